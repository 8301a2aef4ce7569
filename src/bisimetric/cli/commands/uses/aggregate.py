"""`bisimetric uses aggregate`: merge states by a distance, with the regret of the result."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from bisimetric._text import pluralise
from bisimetric.cli.options import FigureArg, OutputArg, SeedArg, program_name, validate_files
from bisimetric.cli.output import reject_networks, save_array
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance
    from bisimetric.uses.aggregation import Aggregation

DistancesArg = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="DISTANCE ...", help_behavior_hint="")
]
Rule = Literal["incremental", "complete", "medoids"]
RULE_TITLES = {
    "incremental": "incremental, in the order of the states",
    "complete": "complete linkage",
    "medoids": "k-medoids",
}
SYMBOLS = {
    "bisimulation": "d~",
    "lax": "d_lax",
    "on_policy": "d^pi",
    "mico": "MICo",
    "reduced_mico": "reduced MICo",
    "undiscounted": "d_1",
}
VALUES = (
    "radius",
    "regret_bound",
    "regret",
    "value_bound",
    "value_gap",
    "trivial_bound",
    "is_vacuous",
)
"""Attributes of an aggregation that --json reports."""


def aggregate(
    paths: DistancesArg,
    clusters: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None,
    radius: Annotated[float | None, arg(metavar="R", help_behavior_hint="")] = None,
    rule: Rule = "incremental",
    seed: SeedArg = 0,
    require_proof: bool = False,
    output: OutputArg = None,
    plot_clusters: FigureArg = None,
    plot_regret: FigureArg = None,
) -> None:
    """Merge states by a distance and solve the aggregated MDP: regret bound and realised regret.

    Args:
        paths: distances saved with -o; for --plot-regret, one or more of the same world
        clusters: at most so many classes, with the smallest radius that allows
        radius: the largest distance of a state to the representative of its class
        rule: how classes are built: state by state as in the paper, by complete linkage, or around
            medoids
        seed: seed of the first medoids
        require_proof: reject distances without a proven error
        output: save the class of every state as a .npy file
        plot_clusters: save a figure of the classes on the map of the world
        plot_regret: save a figure of bound and realised regret over the number of classes; beside
            the given distances, by the distance on the map

    Examples:
        bisimetric uses aggregate d.npz --clusters 8
        bisimetric uses aggregate d.npz --radius 0.5 -o labels.npy --plot-clusters map.png
        bisimetric uses aggregate d.npz lax.npz pi.npz --rule complete --plot-regret curve.png
    """
    _validate(paths, clusters, radius, output, plot_clusters, plot_regret)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distances = [Distance.load(path) for path in paths]
    if plot_regret is not None:
        if require_proof:
            raise InputError(
                "--require-proof is for --clusters or --radius; --plot-regret also draws estimates."
            )
        _write_curve(paths, distances, rule, seed, plot_regret)
        return
    distance = distances[0]
    if plot_clusters is not None:
        _validate_map(distance, plot_clusters)
    start_time = time.perf_counter()
    aggregation = uses.aggregate(
        distance.mdp,
        distance,
        radius=radius,
        clusters=clusters,
        rule=rule,
        seed=seed,
        require_proof=require_proof,
    )
    save_array(output, aggregation.labels)
    seconds = report.describe_seconds(time.perf_counter() - start_time)
    report.emit(_describe(distance, aggregation), [seconds], report.describe_saved([output]))
    report.emit_fields(aggregation, *VALUES)
    if plot_clusters is not None:
        from bisimetric import views

        title = f"{len(aggregation)} classes by {SYMBOLS[distance.kind]}, {RULE_TITLES[rule]}"
        figure = views.plot_classes(
            distance.mdp, aggregation.labels, aggregation.representatives, title
        )
        views.save_figure(figure, plot_clusters)
    words = [program_name(), "uses", "aggregate", str(paths[0]), "--plot-regret", "curve.png"]
    report.emit(report.describe_saved([plot_clusters]), [report.Fact("next", shlex.join(words))])


def _validate(
    paths: tuple[Path, ...],
    clusters: int | None,
    radius: float | None,
    output: Path | None,
    plot_clusters: Path | None,
    plot_regret: Path | None,
) -> None:
    """Reject options that contradict each other, and paths that cannot be written."""
    figures = (plot_clusters, plot_regret)
    validate_files(output, figures, content="classes", suffix=".npy", inputs=paths)
    if not paths:
        raise InputError("there is no distance; name a file that was saved with -o.")
    given = sum(each is not None for each in (clusters, radius, plot_regret))
    if given != 1:
        found = "none is" if given == 0 else "more than one is"
        raise InputError(f"give one of --clusters, --radius and --plot-regret; {found} given.")
    if plot_regret is not None and (output or plot_clusters):
        path = output or plot_clusters
        raise InputError(f"--plot-regret yields no classes to save in {path}; use --clusters.")
    if plot_regret is None and len(paths) > 1:
        raise InputError(f"{paths[1]} is one distance too many; several are for --plot-regret.")
    reject_networks(*paths, alternative=", and uses.cluster aggregates observations in Python")


def _validate_map(distance: Distance, path: Path) -> None:
    from bisimetric.views.clusters import require_class_map

    try:
        require_class_map(distance.mdp)
    except InputError as error:
        raise InputError(f"cannot draw {path}: {error}") from None


def _describe(distance: Distance, aggregation: Aggregation) -> Iterator[Fact | str]:
    from bisimetric.cli import report

    world = str(distance.metadata.get("world", "not named"))
    header, *classes = report.describe_classes(distance.mdp, aggregation.labels, world, {})
    yield header
    yield report.describe_kind(distance.kind)
    yield report.Fact("rule", RULE_TITLES[aggregation.rule], aggregation.rule)
    yield from classes
    yield from itertools.islice(aggregation.lines(), 1, None)


def _write_curve(
    paths: tuple[Path, ...], distances: list[Distance], rule: Rule, seed: int, output: Path
) -> None:
    """Report and draw the regret over the number of classes."""
    from bisimetric import uses, views
    from bisimetric.cli import report

    mdp = distances[0].mdp
    named: dict[str, Any] = {}
    for path, distance in zip(paths, distances, strict=True):
        symbol = SYMBOLS[distance.kind]
        named[symbol if symbol not in named else f"{symbol} ({path})"] = distance
    if mdp.positions is not None:
        named["map"] = uses.manhattan_distances(mdp)
    curve = uses.aggregation_curve(mdp, named, rule=rule, seed=seed)
    world = str(distances[0].metadata.get("world", "not named"))
    header = [
        report.describe_mdp("world", world, mdp),
        report.Fact("rule", RULE_TITLES[rule], rule),
    ]
    report.emit(header, curve.lines())
    report.emit_values(
        curves={
            name: [
                {"classes": len(each), **{key: getattr(each, key) for key in VALUES}}
                for each in aggregations
            ]
            for name, aggregations in curve.aggregations.items()
        }
    )
    title = f"{world}: {pluralise(mdp.num_states, 'state')}, discount {mdp.discount:g}"
    figure = views.plot_aggregation_curve({f"{title}\n{RULE_TITLES[rule]}": curve})
    views.save_figure(figure, output)
    report.emit(report.describe_saved([output]))
