"""`bisimetric uses compress`: a replay buffer thinned to steps that stand for all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from bisimetric.cli.arguments import Output, program
from bisimetric.cli.commands.uses.files import Picture, check_files
from bisimetric.cli.learning import label_of
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.distance import Distance
    from bisimetric.learned import Learned
    from bisimetric.transitions import Transitions
    from bisimetric.uses.compression import Compressed

Data = Annotated[Positional[Path], arg(metavar="DATA.npz")]
Measure = Annotated[Positional[Path], arg(metavar="DISTANCE")]


def compress(
    data: Data,
    distance: Measure,
    keep: Annotated[str, arg(metavar="SHARE_OR_NUMBER")],
    output: Output = None,
    png: Picture = None,
    proof: FlagCreatePairsOff[bool] = False,
) -> None:
    """A replay buffer thinned so that every step has a kept one with its action, near by.

    Args:
        data: transitions, as `bisimetric rollout` collects them
        distance: a table of their states, saved with -o; or a network that `learned` saved
        keep: 0.1 keeps a tenth of the steps, 500 that many; 1.0 is all, 1 a single one
        output: save the kept steps as a .npz file
        png: save a picture of how near they are, by their number
        proof: refuse a distance of which nothing is proven

    Examples:
        bisimetric uses compress data.npz d.npz --keep 0.1 -o thinned.npz
        bisimetric uses compress data.npz d.npz --keep 500 --proof --png radius.png
        bisimetric uses compress data.npz d.safetensors --keep 0.05 -o thinned.npz
    """
    check_files(output, png, what="transitions", ending=".npz", inputs=(data, distance))
    wanted = kept(keep)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.transitions import Transitions

    measure = _measure(distance)
    steps = Transitions.load(data)
    found = uses.compress(steps, measure, wanted, proof=proof)
    if output is not None:
        found.transitions.save(output)
    saved = report.saved_lines([output])
    report.say(_lines(data, steps, measure, found), saved)
    if png is not None:
        from bisimetric import views

        views.save(views.covering(found), png)
    report.say(report.saved_lines([png]), _next(output))


def kept(word: str) -> int | float:
    """A number of steps, or a share of them, as it is typed.

    >>> kept("500"), kept("0.1"), kept("1.0")
    (500, 0.1, 1.0)
    """
    for meant in (int, float):
        try:
            return meant(word)
        except ValueError:
            pass
    raise InputError(f"--keep is {word} and must be a share such as 0.1, or a number of steps.")


def _measure(path: Path) -> Distance | Learned:
    if label_of(path) is not None:
        from bisimetric.learned import Learned

        return Learned.load(path)
    from bisimetric.distance import Distance

    return Distance.load(path)


def _lines(
    path: Path, steps: Transitions, measure: Distance | Learned, found: Compressed
) -> Iterator[str]:
    from bisimetric.cli import experience, report

    yield f"data       {path}: {experience.size(steps)}"
    yield f"distance   {report.TITLES[measure.kind]}"
    share = len(found.kept) / len(steps)
    yield f"kept       {len(found.kept):,} of {report.plural(len(steps), 'step')}, {share:.3g}"
    alone = report.plural(found.pairs, "distinct state and action", "distinct states and actions")
    yield f"pairs      {alone}"
    twice = "" if found.values is None else "; at most twice the least possible"
    yield f"radius     {found.radius:.6g}: every step has a kept one with its action so near{twice}"
    if found.values is None:
        yield "promise    none: nothing is proven of this distance for these steps"
    else:
        about = f"{found.values} of a step and of the kept one differ by at most"
        really = f"{found.lost:.6g} (error {found.lost_error:.2g})"
        yield f"promise    {about} {found.promised:.6g}; really {really}"
    yield f"seconds    {found.made['seconds']:.3g}"


def _next(output: Path | None) -> Iterator[str]:
    if output is None:
        yield "next: add -o thinned.npz to keep the steps"
    else:
        words = [program(), "exact", "bisimulation", str(output), "--set", "unseen=lacking"]
        yield f"next: {shlex.join(words)}"
