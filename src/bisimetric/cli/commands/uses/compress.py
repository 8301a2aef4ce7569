"""`bisimetric uses compress`: compress a replay buffer to a coreset of its transitions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from bisimetric._text import pluralise
from bisimetric.cli.options import FigureArg, OutputArg, program_name, validate_files
from bisimetric.cli.output import read_any_distance
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance
    from bisimetric.learned import LearnedDistance
    from bisimetric.transitions import Transitions
    from bisimetric.uses import Compression

VALUES = (
    "value_function",
    "value_bound",
    "value_gap",
    "value_gap_error",
    "trivial_bound",
    "is_vacuous",
)
"""Attributes of a compression that --json reports."""


def compress(
    data: Annotated[Positional[Path], arg(metavar="DATA.npz")],
    distance: Annotated[Positional[Path], arg(metavar="DISTANCE")],
    keep: Annotated[str, arg(metavar="FRACTION_OR_NUMBER")],
    output: OutputArg = None,
    plot_radius: FigureArg = None,
    require_proof: bool = False,
) -> None:
    """Compress a replay buffer: each transition has a kept one with its action nearby (k-centre).

    Args:
        data: transitions, as collected by `bisimetric rollout`
        distance: distances of their states, saved with -o; or a network saved by `learned`
        keep: 0.1 keeps a tenth of the transitions, 500 that many; 1.0 is all, 1 a single one
        output: save the kept transitions as a .npz file
        plot_radius: save a figure of the covering radius over the number of transitions
        require_proof: reject a distance without a proven error

    Examples:
        bisimetric uses compress data.npz d.npz --keep 0.1 -o compressed.npz
        bisimetric uses compress data.npz d.npz --keep 500 --require-proof --plot-radius radius.png
        bisimetric uses compress data.npz d.safetensors --keep 0.05 -o compressed.npz
    """
    inputs = (data, distance)
    validate_files(output, [plot_radius], content="transitions", suffix=".npz", inputs=inputs)
    size = parse_keep(keep)
    from bisimetric import uses
    from bisimetric.cli import report
    from bisimetric.transitions import Transitions

    measure = read_any_distance(distance)
    transitions = Transitions.load(data)
    compression = uses.compress(transitions, measure, size, require_proof=require_proof)
    if output is not None:
        compression.transitions.save(output)
    lines = _describe(data, transitions, measure, compression)
    report.emit(lines, report.describe_saved([output]))
    report.emit_fields(compression, *VALUES)
    if plot_radius is not None:
        from bisimetric import views

        views.save_figure(views.plot_covering_radius(compression), plot_radius)
    report.emit(report.describe_saved([plot_radius]), _suggest_next(output))


def parse_keep(text: str) -> int | float:
    """Parse a number of transitions, or a fraction of them.

    >>> parse_keep("500"), parse_keep("0.1"), parse_keep("1.0")
    (500, 0.1, 1.0)
    """
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    raise InputError(
        f"--keep is {text} and must be a fraction such as 0.1, or a number of transitions."
    )


def _describe(
    path: Path,
    transitions: Transitions,
    distance: Distance | LearnedDistance,
    compression: Compression,
) -> Iterator[Fact]:
    from bisimetric.cli.data_report import count_data, format_data
    from bisimetric.cli.report import Fact, describe_kind, describe_seconds
    from bisimetric.uses.trivial_bounds import format_bound

    value = {"name": str(path), **count_data(transitions)}
    yield Fact("data", f"{path}: {format_data(transitions)}", value)
    yield describe_kind(distance.kind)
    kept, total = len(compression.indices), len(transitions)
    yield Fact("kept", f"{kept:,} of {pluralise(total, 'step')}, {kept / total:.3g}", kept)
    count = compression.num_state_actions
    text = pluralise(count, "distinct state and action", "distinct states and actions")
    yield Fact("pairs", text, count)
    proven = compression.value_function is not None
    optimal = "; at most twice the smallest possible" if proven else ""
    text = f"{compression.radius:.6g}, the largest distance of a step to a kept one{optimal}"
    yield Fact("radius", text, compression.radius)
    if proven:
        text = f"|{compression.value_function}(s) - {compression.value_function}(kept)| <= "
        gap = f"{compression.value_gap:.6g} (error {compression.value_gap_error:.2g})"
        bound = format_bound(compression.value_bound, compression.trivial_bound, digits=6)
        bound = f"{text}{bound}; measured {gap}"
    else:
        bound = "none: nothing is proven of this distance for these steps"
    yield Fact("bound", bound, {"value": compression.value_bound})
    yield describe_seconds(compression.metadata["seconds"])


def _suggest_next(output: Path | None) -> Iterator[Fact]:
    from bisimetric.cli.report import Fact

    if output is None:
        yield Fact("next", "add -o compressed.npz to save the steps")
    else:
        words = [program_name(), "exact", "bisimulation", str(output), "--set", "unseen=missing"]
        yield Fact("next", shlex.join(words))
