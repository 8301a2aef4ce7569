"""`bisimetric uses embed`: states as points whose distances follow a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric.cli.arguments import Output, Table
from bisimetric.cli.commands.uses.files import Picture, check_files, refuse_networks, save_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.uses.embedding import Embedding


def embed(
    table: Table,
    dimensions: Annotated[int, arg(metavar="K")] = 2,
    method: Literal["classical", "metric"] = "classical",
    key: Annotated[int, arg(metavar="K")] = 0,
    steps: Annotated[int, arg(metavar="N")] = 300,
    output: Output = None,
    png: Picture = None,
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
    check_files(output, png, what="coordinates", ending=".npy", inputs=(table,))
    refuse_networks(table)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(table)
    found = uses.embed(distance, dimensions, method=method, key=key, steps=steps)
    save_array(output, found.coordinates)
    values, label = _values(distance)
    report.say(_lines(distance, found, values, label), report.saved_lines([output]))
    if png is not None:
        from bisimetric import views

        views.save(views.embedding(found, values, label=label), png)
    report.say(report.saved_lines([png]))


def _values(distance: Distance) -> tuple[NDArray[Any], str]:
    """What the distance bounds, and its name."""
    from bisimetric import planning

    if distance.policy is not None:
        found = planning.policy_values(distance.mdp, distance.policy, tol=math.inf)
        return found.values, "V^pi"
    return planning.optimal_values(distance.mdp, tol=math.inf).values, "V*"


def _lines(distance: Distance, found: Embedding, values: NDArray[Any], label: str) -> Iterator[str]:
    from bisimetric.cli import report

    yield f"world      {distance.made.get('world', 'not named')}: {report.counted(distance.mdp)}"
    yield f"distance   {report.TITLES[distance.kind]}"
    dimensions = found.coordinates.shape[1]
    rounds = f", {report.plural(found.made['rounds'], 'round')}" if "rounds" in found.made else ""
    yield f"embedding  {found.method}, {report.plural(dimensions, 'dimension')}{rounds}"
    if found.rank < dimensions:
        yield f"rank       {found.rank}: the other coordinates are 0"
    yield f"stress     {found.stress:.4g}: 0 where every distance is kept, 1 on a single spot"
    yield f"factors    {found.shrink:.4g} too near at most, {found.stretch:.4g} too far"
    yield f"gaps       {found.mean_gap:.4g} in the mean, {found.largest_gap:.4g} at most"
    about = "about " if found.made["negative"] == "estimate" else ""
    yield f"euclidean  but for {about}{found.negative:.2%} of the eigenvalues, which are negative"
    really = f"{found.steepest(values):.4g}"
    if math.isinf(found.error):
        yield "promise    none: nothing is proven of the distance"
    else:
        apart = f"|{label}(s) - {label}(t)|"
        far = f"{found.shrink:.4g} |x_s - x_t| + {found.error:.2g}; really {really} |x_s - x_t|"
        if math.isinf(found.shrink):
            far = f"|x_s - x_t| + {found.largest_gap + found.error:.4g}"
        yield f"promise    {apart} <= {far}"
    yield f"seconds    {found.made['seconds']:.3g}"
