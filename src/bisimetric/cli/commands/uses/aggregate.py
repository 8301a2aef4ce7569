"""`bisimetric uses aggregate`: states merged by a distance, and what that costs."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from bisimetric.cli.options import OutputArg, program_name
from bisimetric.cli.output import FigurePathArg, reject_networks, save_array, validate_files
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.distance import Distance
    from bisimetric.uses.aggregation import Aggregation

DistancesArg = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="TABLE ...", help_behavior_hint="")
]
NumClustersArg = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
RadiusArg = Annotated[float | None, arg(metavar="R", help_behavior_hint="")]
RULE_TITLES = {
    "incremental": "incremental, in the order of the states",
    "complete": "complete linkage",
    "medoids": "k-medoids",
}
SYMBOLS = {"bisimulation": "d~", "lax": "d_lax", "on_policy": "d^pi", "mico": "MICo"}


def aggregate(
    paths: DistancesArg,
    clusters: NumClustersArg = None,
    radius: RadiusArg = None,
    rule: Literal["incremental", "complete", "medoids"] = "incremental",
    seed: Annotated[int, arg(metavar="K")] = 0,
    require_proof: FlagCreatePairsOff[bool] = False,
    output: OutputArg = None,
    plot_clusters: FigurePathArg = None,
    plot_regret: FigurePathArg = None,
) -> None:
    """States merged by a distance and solved: the loss that is promised, and the true one.

    Args:
        tables: a table saved with -o; for --curve, one or more of the same world
        clusters: at most so many classes, as near to each other as that allows
        radius: no state is farther from the one that stands for its class
        rule: how classes are made: state by state as in the paper, by complete linkage, or around
            medoids
        key: of the first medoids
        proof: refuse distances of which nothing is proven
        output: save the class of every state as a .npy file
        png: save a picture of the classes on the map of the world
        curve: save a picture of what is lost by any number of classes, promised and measured;
            beside the tables, by how far states lie apart on the map

    Examples:
        bisimetric uses aggregate d.npz --clusters 8
        bisimetric uses aggregate d.npz --radius 0.5 --rule complete -o labels.npy --png map.png
        bisimetric uses aggregate d.npz lax.npz pi.npz --rule complete --curve curve.png
    """
    _validate(paths, clusters, radius, output, plot_clusters, plot_regret)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    found = [Distance.load(path) for path in paths]
    if plot_regret is not None:
        if require_proof:
            raise InputError("--proof is for --clusters or --radius; a curve also draws estimates.")
        _write_curve(paths, found, rule, seed, plot_regret)
        return
    distance = found[0]
    if plot_clusters is not None:
        _validate_map(distance, plot_clusters)
    began = time.perf_counter()
    merged = uses.aggregate(
        distance.mdp,
        distance,
        radius=radius,
        clusters=clusters,
        rule=rule,
        seed=seed,
        proof=require_proof,
    )
    save_array(output, merged.labels)
    seconds = f"seconds    {time.perf_counter() - began:.3g}"
    report.print_lines(_describe(distance, merged), [seconds], report.describe_saved([output]))
    if plot_clusters is not None:
        from bisimetric import views

        title = f"{len(merged)} classes by {SYMBOLS[distance.kind]}, {RULE_TITLES[rule]}"
        views.save_figure(
            views.plot_classes(distance.mdp, merged.labels, merged.representatives, title),
            plot_clusters,
        )
    following = shlex.join(
        [program_name(), "uses", "aggregate", str(paths[0]), "--curve", "curve.png"]
    )
    report.print_lines(report.describe_saved([plot_clusters]), [f"next: {following}"])


def _validate(
    paths: tuple[Path, ...],
    clusters: int | None,
    radius: float | None,
    output: Path | None,
    plot_clusters: Path | None,
    plot_regret: Path | None,
) -> None:
    """Refuses what could not be done or saved, before any long work starts."""
    validate_files(
        output, plot_clusters, plot_regret, content="classes", suffix=".npy", inputs=paths
    )
    if not paths:
        raise InputError("there is no table; name one that was saved with -o.")
    chosen = sum(each is not None for each in (clusters, radius, plot_regret))
    if chosen != 1:
        what = "none is" if chosen == 0 else "more than one is"
        raise InputError(
            f"--clusters, --radius or --curve says what to do, one of the three; {what} given."
        )
    if plot_regret is not None and (output or plot_clusters):
        raise InputError(
            f"--curve makes no classes to save in {output or plot_clusters}; use --clusters."
        )
    if plot_regret is None and len(paths) > 1:
        raise InputError(f"{paths[1]} is one table too many; several are for --curve.")
    reject_networks(*paths, alternative=", and uses.labels aggregates observations in Python")


def _validate_map(distance: Distance, path: Path) -> None:
    from bisimetric.views.clusters import require_class_map

    try:
        require_class_map(distance.mdp)
    except InputError as error:
        raise InputError(str(error).replace("plot_classes:", f"cannot draw {path}:")) from None


def _describe(distance: Distance, merged: Aggregation) -> Iterator[str]:
    from bisimetric.cli import report

    yield from report.describe_classes(
        distance.mdp,
        merged.labels,
        str(distance.metadata.get("world", "not named")),
        distance=report.TITLES[distance.kind],
        rule=RULE_TITLES[merged.rule],
    )
    yield from itertools.islice(merged.lines(), 1, None)


def _write_curve(
    paths: tuple[Path, ...],
    distances: list[Distance],
    rule: Literal["incremental", "complete", "medoids"],
    seed: int,
    path: Path,
) -> None:
    """What is lost by any number of classes: as lines, and as a picture."""
    from bisimetric import uses, views
    from bisimetric.cli import report

    mdp = distances[0].mdp
    named: dict[str, Any] = {}
    for table, distance in zip(paths, distances, strict=True):
        name = SYMBOLS[distance.kind]
        named[name if name not in named else f"{name} ({table})"] = distance
    if mdp.positions is not None:
        named["map"] = uses.manhattan_distances(mdp)
    curve = uses.aggregation_curve(mdp, named, rule=rule, seed=seed)
    world = str(distances[0].metadata.get("world", "not named"))
    report.print_lines(
        [f"world      {world}: {report.format_mdp(mdp)}", f"rule       {RULE_TITLES[rule]}"]
    )
    report.print_lines(curve.lines())
    title = f"{world}: {report.format_count(mdp.num_states, 'state')}, discount {mdp.discount:g}"
    views.save_figure(views.plot_aggregation_curve({f"{title}\n{RULE_TITLES[rule]}": curve}), path)
    report.print_lines(report.describe_saved([path]))
