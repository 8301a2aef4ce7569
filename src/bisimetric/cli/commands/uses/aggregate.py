"""`bisimetric uses aggregate`: states merged by a distance, and what that costs."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from bisimetric.cli.arguments import Output, program
from bisimetric.cli.commands.uses.files import Picture, check_files, refuse_networks, save_array
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.distance import Distance
    from bisimetric.uses.aggregation import Aggregation

Tables = Annotated[Positional[tuple[Path, ...]], arg(metavar="TABLE ...", help_behavior_hint="")]
Count = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Far = Annotated[float | None, arg(metavar="R", help_behavior_hint="")]
RULES = {
    "incremental": "incremental, in the order of the states",
    "complete": "complete linkage",
    "medoids": "k-medoids",
}
NAMES = {"bisimulation": "d~", "lax": "d_lax", "on_policy": "d^pi", "mico": "MICo"}


def aggregate(
    tables: Tables,
    clusters: Count = None,
    radius: Far = None,
    rule: Literal["incremental", "complete", "medoids"] = "incremental",
    key: Annotated[int, arg(metavar="K")] = 0,
    proof: FlagCreatePairsOff[bool] = False,
    output: Output = None,
    png: Picture = None,
    curve: Picture = None,
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
    _check(tables, clusters, radius, output, png, curve)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    found = [Distance.load(path) for path in tables]
    if curve is not None:
        if proof:
            raise InputError("--proof is for --clusters or --radius; a curve also draws estimates.")
        _curve(tables, found, rule, key, curve)
        return
    distance = found[0]
    if png is not None:
        _check_map(distance, png)
    began = time.perf_counter()
    merged = uses.aggregate(
        distance.mdp, distance, radius=radius, clusters=clusters, rule=rule, key=key, proof=proof
    )
    save_array(output, merged.labels)
    seconds = f"seconds    {time.perf_counter() - began:.3g}"
    report.say(_lines(distance, merged), [seconds], report.saved_lines([output]))
    if png is not None:
        from bisimetric import views

        title = f"{len(merged)} classes by {NAMES[distance.kind]}, {RULES[rule]}"
        views.save(views.classes(distance.mdp, merged.labels, merged.representatives, title), png)
    following = shlex.join([program(), "uses", "aggregate", str(tables[0]), "--curve", "curve.png"])
    report.say(report.saved_lines([png]), [f"next: {following}"])


def _check(
    tables: tuple[Path, ...],
    clusters: int | None,
    radius: float | None,
    output: Path | None,
    png: Path | None,
    curve: Path | None,
) -> None:
    """Refuses what could not be done or saved, before any long work starts."""
    check_files(output, png, curve, what="classes", ending=".npy", inputs=tables)
    if not tables:
        raise InputError("there is no table; name one that was saved with -o.")
    chosen = sum(each is not None for each in (clusters, radius, curve))
    if chosen != 1:
        what = "none is" if chosen == 0 else "more than one is"
        raise InputError(
            f"--clusters, --radius or --curve says what to do, one of the three; {what} given."
        )
    if curve is not None and (output or png):
        raise InputError(f"--curve makes no classes to save in {output or png}; use --clusters.")
    if curve is None and len(tables) > 1:
        raise InputError(f"{tables[1]} is one table too many; several are for --curve.")
    refuse_networks(*tables, instead=", and uses.labels aggregates observations in Python")


def _check_map(distance: Distance, png: Path) -> None:
    from bisimetric.views.aggregation import cells_of_classes

    try:
        cells_of_classes(distance.mdp)
    except InputError as error:
        raise InputError(str(error).replace("classes:", f"cannot draw {png}:")) from None


def _lines(distance: Distance, merged: Aggregation) -> Iterator[str]:
    from bisimetric.cli import report

    yield from report.class_lines(
        distance.mdp,
        merged.labels,
        str(distance.made.get("world", "not named")),
        distance=report.TITLES[distance.kind],
        rule=RULES[merged.rule],
    )
    yield from itertools.islice(merged.lines(), 1, None)


def _curve(
    tables: tuple[Path, ...],
    found: list[Distance],
    rule: Literal["incremental", "complete", "medoids"],
    key: int,
    path: Path,
) -> None:
    """What is lost by any number of classes: as lines, and as a picture."""
    from bisimetric import uses, views
    from bisimetric.cli import report

    mdp = found[0].mdp
    named: dict[str, Any] = {}
    for table, distance in zip(tables, found, strict=True):
        name = NAMES[distance.kind]
        named[name if name not in named else f"{name} ({table})"] = distance
    if mdp.positions is not None:
        named["map"] = uses.map_distances(mdp)
    curve = uses.aggregation_curve(mdp, named, rule=rule, key=key)
    world = str(found[0].made.get("world", "not named"))
    report.say([f"world      {world}: {report.counted(mdp)}", f"rule       {RULES[rule]}"])
    report.say(curve.lines())
    title = f"{world}: {report.plural(mdp.num_states, 'state')}, discount {mdp.discount:g}"
    views.save(views.aggregation_curve({f"{title}\n{RULES[rule]}": curve}), path)
    report.say(report.saved_lines([path]))
