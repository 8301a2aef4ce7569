"""`bisimetric uses compress`: a replay buffer thinned to steps that stand for all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from bisimetric.cli.learned_options import read_label
from bisimetric.cli.options import OutputArg, program_name
from bisimetric.cli.output import FigurePathArg, validate_files
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.distance import Distance
    from bisimetric.learned import LearnedDistance
    from bisimetric.transitions import Transitions
    from bisimetric.uses._compress import Compression

DataPathArg = Annotated[Positional[Path], arg(metavar="DATA.npz")]
DistanceOrNetworkArg = Annotated[Positional[Path], arg(metavar="DISTANCE")]


def compress(
    data: DataPathArg,
    distance: DistanceOrNetworkArg,
    keep: Annotated[str, arg(metavar="SHARE_OR_NUMBER")],
    output: OutputArg = None,
    plot_radius: FigurePathArg = None,
    require_proof: FlagCreatePairsOff[bool] = False,
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
    validate_files(
        output, plot_radius, content="transitions", suffix=".npz", inputs=(data, distance)
    )
    wanted = parse_keep(keep)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.transitions import Transitions

    measure = _read_distance(distance)
    steps = Transitions.load(data)
    found = uses.compress(steps, measure, wanted, proof=require_proof)
    if output is not None:
        found.transitions.save(output)
    saved = report.describe_saved([output])
    report.print_lines(_describe(data, steps, measure, found), saved)
    if plot_radius is not None:
        from bisimetric import views

        views.save_figure(views.plot_covering_radius(found), plot_radius)
    report.print_lines(report.describe_saved([plot_radius]), _suggest_next(output))


def parse_keep(text: str) -> int | float:
    """A number of steps, or a share of them, as it is typed.

    >>> kept("500"), kept("0.1"), kept("1.0")
    (500, 0.1, 1.0)
    """
    for meant in (int, float):
        try:
            return meant(text)
        except ValueError:
            pass
    raise InputError(f"--keep is {text} and must be a share such as 0.1, or a number of steps.")


def _read_distance(path: Path) -> Distance | LearnedDistance:
    if read_label(path) is not None:
        from bisimetric.learned import LearnedDistance

        return LearnedDistance.load(path)
    from bisimetric.distance import Distance

    return Distance.load(path)


def _describe(
    path: Path,
    transitions: Transitions,
    distance: Distance | LearnedDistance,
    compression: Compression,
) -> Iterator[str]:
    from bisimetric.cli import data_report, report

    yield f"data       {path}: {data_report.format_data(transitions)}"
    yield f"distance   {report.TITLES[distance.kind]}"
    share = len(compression.indices) / len(transitions)
    yield f"kept       {len(compression.indices):,} of {report.format_count(len(transitions), 'step')}, {share:.3g}"
    alone = report.format_count(
        compression.num_state_actions, "distinct state and action", "distinct states and actions"
    )
    yield f"pairs      {alone}"
    twice = "" if compression.value_function is None else "; at most twice the least possible"
    yield f"radius     {compression.radius:.6g}: every step has a kept one with its action so near{twice}"
    if compression.value_function is None:
        yield "promise    none: nothing is proven of this distance for these steps"
    else:
        about = f"{compression.value_function} of a step and of the kept one differ by at most"
        really = f"{compression.value_gap:.6g} (error {compression.value_gap_error:.2g})"
        yield f"promise    {about} {compression.value_bound:.6g}; really {really}"
    yield f"seconds    {compression.metadata['seconds']:.3g}"


def _suggest_next(output: Path | None) -> Iterator[str]:
    if output is None:
        yield "next: add -o thinned.npz to keep the steps"
    else:
        words = [program_name(), "exact", "bisimulation", str(output), "--set", "unseen=missing"]
        yield f"next: {shlex.join(words)}"
