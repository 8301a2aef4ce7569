"""`bisimetric uses embed`: states as points whose distances follow a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric.cli.options import DistanceArg, OutputArg
from bisimetric.cli.output import FigurePathArg, reject_networks, save_array, validate_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.uses._embed import Embedding


def embed(
    path: DistanceArg,
    dimensions: Annotated[int, arg(metavar="K")] = 2,
    method: Literal["classical", "metric"] = "classical",
    seed: Annotated[int, arg(metavar="K")] = 0,
    max_iterations: Annotated[int, arg(metavar="N")] = 300,
    output: OutputArg = None,
    plot_embedding: FigurePathArg = None,
) -> None:
    """States as points: coordinates whose Euclidean distances follow a table, and how nearly.

    Args:
        table: a table saved with -o
        dimensions: how many coordinates a state gets
        method: by eigenvectors, or from there by rounds that lower the stress (SMACOF)
        key: of the random numbers
        steps: of the metric method, the most rounds
        output: save the coordinates as a .npy file, a row a state
        png: save a picture of the states, in the colours of their values

    Examples:
        bisimetric uses embed d.npz --png states.png
        bisimetric uses embed d.npz --dimensions 8 --method metric -o coordinates.npy
    """
    validate_files(output, plot_embedding, content="coordinates", suffix=".npy", inputs=(path,))
    reject_networks(path)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(path)
    found = uses.embed(
        distance, dimensions, method=method, seed=seed, max_iterations=max_iterations
    )
    save_array(output, found.coordinates)
    values, label = _compute_values(distance)
    report.print_lines(_describe(distance, found, values, label), report.describe_saved([output]))
    if plot_embedding is not None:
        from bisimetric import views

        views.save_figure(views.plot_embedding(found, values, label=label), plot_embedding)
    report.print_lines(report.describe_saved([plot_embedding]))


def _compute_values(distance: Distance) -> tuple[NDArray[Any], str]:
    """What the distance bounds, and its name."""
    from bisimetric import planning

    if distance.policy is not None:
        found = planning.policy_values(distance.mdp, distance.policy, tol=math.inf)
        return found.values, "V^pi"
    return planning.optimal_values(distance.mdp, tol=math.inf).values, "V*"


def _describe(
    distance: Distance, embedding: Embedding, values: NDArray[Any], label: str
) -> Iterator[str]:
    from bisimetric.cli import report

    yield f"world      {distance.metadata.get('world', 'not named')}: {report.format_mdp(distance.mdp)}"
    yield f"distance   {report.TITLES[distance.kind]}"
    dimensions = embedding.coordinates.shape[1]
    rounds = (
        f", {report.format_count(embedding.metadata['rounds'], 'round')}"
        if "rounds" in embedding.metadata
        else ""
    )
    yield f"embedding  {embedding.method}, {report.format_count(dimensions, 'dimension')}{rounds}"
    if embedding.rank < dimensions:
        yield f"rank       {embedding.rank}: the other coordinates are 0"
    yield f"stress     {embedding.stress:.4g}: 0 where every distance is kept, 1 on a single spot"
    yield f"factors    {embedding.contraction:.4g} too near at most, {embedding.expansion:.4g} too far"
    yield f"gaps       {embedding.mean_deviation:.4g} in the mean, {embedding.max_deviation:.4g} at most"
    about = "about " if embedding.metadata["negative"] == "estimate" else ""
    yield f"euclidean  but for {about}{embedding.negative_fraction:.2%} of the eigenvalues, which are negative"
    really = f"{embedding.lipschitz_constant(values):.4g}"
    if math.isinf(embedding.error):
        yield "promise    none: nothing is proven of the distance"
    else:
        apart = f"|{label}(s) - {label}(t)|"
        far = f"{embedding.contraction:.4g} |x_s - x_t| + {embedding.error:.2g}; really {really} |x_s - x_t|"
        if math.isinf(embedding.contraction):
            far = f"|x_s - x_t| + {embedding.max_deviation + embedding.error:.4g}"
        yield f"promise    {apart} <= {far}"
    yield f"seconds    {embedding.metadata['seconds']:.3g}"
