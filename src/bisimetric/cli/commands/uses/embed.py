"""`bisimetric uses embed`: embed states in Euclidean space (multidimensional scaling)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric._text import pluralise
from bisimetric.cli.options import DistanceArg, FigureArg, OutputArg, SeedArg, validate_files
from bisimetric.cli.output import reject_networks, save_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance
    from bisimetric.uses import Embedding


def embed(
    path: DistanceArg,
    dimensions: Annotated[int, arg(metavar="K")] = 2,
    method: Literal["classical", "metric"] = "classical",
    seed: SeedArg = 0,
    max_iterations: Annotated[int, arg(metavar="N")] = 300,
    output: OutputArg = None,
    plot_embedding: FigureArg = None,
    normalise: bool = False,
) -> None:
    """Embed states as points whose Euclidean distances approximate given distances (MDS).

    Args:
        path: distances saved with -o
        dimensions: the number of coordinates per state
        method: classical MDS by eigenvectors, or metric MDS from there by SMACOF
        seed: seed of the eigenvector solver
        max_iterations: for metric MDS, the largest number of SMACOF iterations
        output: save the coordinates as a .npy file, one row per state
        plot_embedding: save a figure of the states, coloured by their values
        normalise: draw (1 - discount) * d: distances in units of reward per step

    Examples:
        bisimetric uses embed d.npz --plot-embedding states.png
        bisimetric uses embed d.npz --dimensions 8 --method metric -o coordinates.npy
    """
    validate_files(output, [plot_embedding], content="coordinates", suffix=".npy", inputs=[path])
    reject_networks(path)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(path)
    embedding = uses.embed(
        distance, dimensions, method=method, seed=seed, max_iterations=max_iterations
    )
    save_array(output, embedding.coordinates)
    values, symbol = _compute_values(distance)
    lines = _describe(distance, embedding, values, symbol)
    report.emit(lines, report.describe_saved([output]))
    if plot_embedding is not None:
        from bisimetric import views

        figure = views.plot_embedding(embedding, values, label=symbol, normalise=normalise)
        views.save_figure(figure, plot_embedding)
    report.emit(report.describe_saved([plot_embedding]))


def _compute_values(distance: Distance) -> tuple[NDArray[Any], str]:
    """Return the value function that the distance bounds, and its symbol."""
    from bisimetric import planning

    if distance.policy is not None:
        found = planning.policy_values(distance.mdp, distance.policy, tol=math.inf)
        return found.values, "V^pi"
    return planning.optimal_values(distance.mdp, tol=math.inf).values, "V*"


def _describe(
    distance: Distance, embedding: Embedding, values: NDArray[Any], symbol: str
) -> Iterator[Fact]:
    from bisimetric.cli.report import (
        Fact,
        describe_kind,
        describe_mdp,
        describe_seconds,
        emit_fields,
        emit_values,
    )

    metadata = embedding.metadata
    yield describe_mdp("world", distance.metadata.get("world", "not named"), distance.mdp)
    yield describe_kind(distance.kind)
    dimensions = embedding.coordinates.shape[1]
    iterations = metadata.get("iterations", metadata.get("rounds"))
    rounds = "" if iterations is None else f", {pluralise(iterations, 'iteration')}"
    text = f"{embedding.method}, {pluralise(dimensions, 'dimension')}{rounds}"
    value = {"method": embedding.method, "dimensions": dimensions, "iterations": iterations}
    yield Fact("embedding", text, value)
    if embedding.rank < dimensions:
        yield Fact("rank", f"{embedding.rank}: the other coordinates are 0", embedding.rank)
    yield Fact("stress", f"{embedding.stress:.4g}", embedding.stress)
    text = f"at most {embedding.contraction:.4g} contraction, {embedding.expansion:.4g} expansion"
    yield Fact("distortion", text, [embedding.contraction, embedding.expansion])
    text = f"mean {embedding.mean_deviation:.4g}, at most {embedding.max_deviation:.4g}"
    yield Fact("deviation", text, [embedding.mean_deviation, embedding.max_deviation])
    about = "about " if metadata["negative"] == "estimate" else ""
    text = f"{about}{embedding.negative_fraction:.2%} of the eigenvalues are negative"
    yield Fact("euclidean", text, embedding.negative_fraction)
    lipschitz = float(embedding.lipschitz_constant(values))
    emit_fields(embedding, "error", "coordinates")
    emit_values(lipschitz=lipschitz)
    if math.isinf(embedding.error):
        yield Fact("bound", "none: nothing is proven of the distance", {"offset": None})
    else:
        bound = f"{embedding.contraction:.4g} |x_s - x_t| + {embedding.error:.2g}"
        bound = f"{bound}; measured {lipschitz:.4g} |x_s - x_t|"
        value = {"factor": embedding.contraction, "offset": embedding.error}
        if math.isinf(embedding.contraction):
            value = {"factor": 1.0, "offset": embedding.max_deviation + embedding.error}
            bound = f"|x_s - x_t| + {value['offset']:.4g}"
        yield Fact("bound", f"|{symbol}(s) - {symbol}(t)| <= {bound}", value)
    yield describe_seconds(metadata["seconds"])
