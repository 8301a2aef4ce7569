"""What the GridWorld experiment measures: its parts, their curves, the files and the table."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.files import read_record, write_record

FORMAT = "bisimetric gridworld curves, version 1"
TEXT = 2_500
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
class Curves:
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
    steps: NDArray[np.int64]
    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    normalised: NDArray[np.float64]
    correlation: NDArray[np.float64]
    learned: NDArray[np.float32]
    exact: NDArray[np.float64]
    made: dict[str, Any]

    @property
    def part(self) -> Part:
        return PARTS[self.name]

    @property
    def seeds(self) -> int:
        return len(self.error)

    def record(self) -> dict[str, Any]:
        """The curves as means and half the widths of their 95% intervals, for a JSON file."""
        # Where networks are trained there may be no Matplotlib, which views need.
        from bisimetric.views.convergence import interval

        found: dict[str, Any] = {"made": self.made, "steps": self.steps.tolist()}
        for name in ("loss", *ERRORS):
            mean, half = interval(getattr(self, name))
            found[name] = {"mean": _digits(mean), "half_interval": _digits(half)}
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {"format": FORMAT, "name": fields.pop("name"), "made": fields.pop("made")}
        write_record(path, about, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Curves:
        """Reads what `save` wrote."""
        otherwise = "no curves of the grid ({}); measure them again."
        found = read_record(path, FORMAT, cls, otherwise)
        if found.name not in PARTS:
            raise InputError(f"{path} is of no part of the experiment, but of {found.name!r}.")
        return found


def kept(folder: str | os.PathLike[str]) -> dict[str, Curves]:
    """The curves of all parts that a folder holds."""
    paths = {name: Path(folder) / f"{name}.npz" for name in PARTS}
    found = {name: Curves.load(path) for name, path in paths.items() if path.exists()}
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no curves, such as noise.npz; measure them first, with "
            "`bisimetric reproduce gridworld`."
        )
    return found


def lines(found: Mapping[str, Curves]) -> Iterator[str]:
    """A table to be printed: errors and correlation by variant, means and 95% intervals.

    Rows are the steps of the paper's text, those of the smallest mean error where it rose again,
    and the last.
    """
    from bisimetric.views.convergence import interval

    heads = ("absolute error", "normalised error", "correlation")
    yield (f"{'variant':<16}{'steps':>9}" + "".join(f"  {head:<21}" for head in heads)).rstrip()
    for curves in found.values():
        what = f"{TITLES[curves.part.kind]}, {label(curves)}"
        smallest, last = int(curves.error.mean(axis=0).argmin()), len(curves.steps) - 1
        at_text = np.flatnonzero(curves.steps == TEXT).tolist()
        for row in sorted({*at_text, smallest, last}):
            cells = []
            for name in ERRORS:
                mean, half = interval(getattr(curves, name)[:, row])
                cells.append(f"  {f'{mean:.4g} +- {half:.2g}':<21}")
            note = "  smallest" if row == smallest < last else ""
            yield f"{what:<16}{curves.steps[row]:9,}{''.join(cells)}{note}".rstrip()
            what = ""
        how = curves.made
        yield f"{'':<16}{curves.seeds} seeds, {how['seconds']:.3g} s on {how['device']}"


def label(curves: Curves) -> str:
    """The variant, as a line of a figure is named."""
    return "noise on" if curves.part.noise else "noise off"


def extent(found: Sequence[Curves]) -> str:
    """How many steps and seeds the runs of a figure had, and how large their batches were.

    "240,000 steps, 10 seeds, batches of 256", or "... of 256 (noise off) and 32 (noise on)".
    """
    return ", ".join(
        (
            f"{_each(found, [curves.made['steps'] for curves in found])} steps",
            f"{_each(found, [curves.seeds for curves in found])} seeds",
            f"batches of {_each(found, [curves.made['batch'] for curves in found])}",
        )
    )


def _each(found: Sequence[Curves], counts: Sequence[int]) -> str:
    if len(set(counts)) == 1:
        return f"{counts[0]:,}"
    named = zip(counts, found, strict=True)
    return " and ".join(f"{count:,} ({label(curves)})" for count, curves in named)


def _digits(numbers: NDArray[np.float64]) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers]
