"""What an experiment is asked for, checked before it begins.

What the GridWorld experiment measures: its parts, their curves, the files and the table.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import read_record, write_record
from bisimetric.errors import InputError, suggest_names


def validate_names(caller: str, noun: str, names: Sequence[str], known: Collection[str]) -> None:
    """Refuses names that are not known, and none at all."""
    if isinstance(names, str) or not names:
        raise InputError(f"{caller}: {noun}s is {names!r} and must be some of {', '.join(known)}.")
    for name in names:
        if name not in known:
            hint = suggest_names(str(name), known) or f"; they are {', '.join(known)}."
            raise InputError(f"{caller}: there is no {noun} {name!r}{hint}")


def validate_counts(caller: str, updates: Any, num_seeds: Any) -> None:
    """Refuses less than one step, and less than two seeds; None is for the default."""
    for what, count, least, why in (
        ("steps", updates, 1, ""),
        ("seeds", num_seeds, 2, ": one run has no interval"),
    ):
        whole = isinstance(count, int | np.integer) and count >= least
        if count is not None and not whole:
            raise InputError(
                f"{caller}: {what} is {count!r} and must be a whole number, at least {least}{why}."
            )


FORMAT = "bisimetric gridworld curves, version 1"
PAPER_TEXT_UPDATES = 2_500
"""The number of steps in the paper's text."""

NOISE = 0.1
"""The standard deviation of the noise, in cells."""

TITLES = {"bisimulation": "d~", "on_policy": "d^pi"}
ERRORS = ("error", "normalised", "correlation")


@dataclasses.dataclass(frozen=True)
class Part:
    """One variant: which distance of which world, with how much noise.

    `quick` is how many steps, and how large a batch, the quick run has in place of the paper's.
    With noise a step costs as much as its batch has pairs; without, as there are pairs of states.
    """

    kind: Literal["bisimulation", "on_policy"]
    world: str
    noise: float
    quick: tuple[int, int]


PARTS = {
    "no-noise": Part("bisimulation", "mirrored-rooms", 0.0, (35_000, 256)),
    "noise": Part("bisimulation", "mirrored-rooms", NOISE, (35_000, 32)),
    "policy": Part("on_policy", "mirrored-rooms-policy", 0.0, (12_000, 256)),
    "policy-noise": Part("on_policy", "mirrored-rooms-policy", NOISE, (12_000, 64)),
}


@dataclasses.dataclass(frozen=True, eq=False)
class GridworldCurves:
    """What was measured of one part, seed by seed.

    Attributes:
        name: of the part.
        steps: (n,), when.
        loss, error, normalised, correlation: (seeds, n).
        learned: (seeds, S, S), the tables at the end.
        exact: (S, S).
        made: how: command, hyperparameters, versions, device, seconds.
    """

    name: str
    updates: NDArray[np.int64]
    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    normalised: NDArray[np.float64]
    correlation: NDArray[np.float64]
    learned: NDArray[np.float32]
    exact: NDArray[np.float64]
    metadata: dict[str, Any]

    @property
    def part(self) -> Part:
        return PARTS[self.name]

    @property
    def num_seeds(self) -> int:
        return len(self.error)

    def to_json(self) -> dict[str, Any]:
        """The curves as means and half the widths of their 95% intervals, for a JSON file."""
        # Where networks are trained there may be no Matplotlib, which views need.
        from bisimetric._statistics import compute_confidence_interval

        found: dict[str, Any] = {"made": self.metadata, "steps": self.updates.tolist()}
        for name in ("loss", *ERRORS):
            mean, half = compute_confidence_interval(getattr(self, name))
            found[name] = {"mean": _round_digits(mean), "half_interval": _round_digits(half)}
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {"format": FORMAT, "name": fields.pop("name"), "made": fields.pop("made")}
        write_record(path, about, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GridworldCurves:
        """Reads what `save` wrote."""
        otherwise = "no curves of the grid ({}); measure them again."
        found = read_record(path, FORMAT, cls, otherwise)
        if found.name not in PARTS:
            raise InputError(f"{path} is of no part of the experiment, but of {found.name!r}.")
        return found


def load_curves(folder: str | os.PathLike[str]) -> dict[str, GridworldCurves]:
    """The curves of all parts that a folder holds."""
    paths = {name: Path(folder) / f"{name}.npz" for name in PARTS}
    found = {name: GridworldCurves.load(path) for name, path in paths.items() if path.exists()}
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no curves, such as noise.npz; measure them first, with "
            "`bisimetric reproduce gridworld`."
        )
    return found


def format_table(curves_by_part: Mapping[str, GridworldCurves]) -> Iterator[str]:
    """A table to be printed: errors and correlation by variant, means and 95% intervals.

    Rows are the steps of the paper's text, those of the smallest mean error where it rose again,
    and the last.
    """
    from bisimetric._statistics import compute_confidence_interval

    heads = ("absolute error", "normalised error", "correlation")
    yield (f"{'variant':<16}{'steps':>9}" + "".join(f"  {head:<21}" for head in heads)).rstrip()
    for curves in curves_by_part.values():
        what = f"{TITLES[curves.part.kind]}, {format_label(curves)}"
        smallest, last = int(curves.error.mean(axis=0).argmin()), len(curves.updates) - 1
        at_text = np.flatnonzero(curves.updates == PAPER_TEXT_UPDATES).tolist()
        for row in sorted({*at_text, smallest, last}):
            cells = []
            for name in ERRORS:
                mean, half = compute_confidence_interval(getattr(curves, name)[:, row])
                cells.append(f"  {f'{mean:.4g} +- {half:.2g}':<21}")
            note = "  smallest" if row == smallest < last else ""
            yield f"{what:<16}{curves.updates[row]:9,}{''.join(cells)}{note}".rstrip()
            what = ""
        how = curves.metadata
        yield f"{'':<16}{curves.num_seeds} seeds, {how['seconds']:.3g} s on {how['device']}"


def format_label(curves: GridworldCurves) -> str:
    """The variant, as a line of a figure is named."""
    return "noise on" if curves.part.noise else "noise off"


def format_extent(runs: Sequence[GridworldCurves]) -> str:
    """How many steps and seeds the runs of a figure had, and how large their batches were.

    "240,000 steps, 10 seeds, batches of 256", or "... of 256 (noise off) and 32 (noise on)".
    """
    return ", ".join(
        (
            f"{_format_counts(runs, [curves.metadata['steps'] for curves in runs])} steps",
            f"{_format_counts(runs, [curves.num_seeds for curves in runs])} seeds",
            f"batches of {_format_counts(runs, [curves.metadata['batch'] for curves in runs])}",
        )
    )


def _format_counts(runs: Sequence[GridworldCurves], counts: Sequence[int]) -> str:
    if len(set(counts)) == 1:
        return f"{counts[0]:,}"
    named = zip(counts, runs, strict=True)
    return " and ".join(f"{count:,} ({format_label(curves)})" for count, curves in named)


def _round_digits(numbers: NDArray[np.float64]) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers]
