"""The parts of the GridWorld experiment, their error curves, files and table.

Also validates the arguments that the experiments share.
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
from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError, suggest_names


def validate_names(caller: str, noun: str, names: Sequence[str], known: Collection[str]) -> None:
    """Raise InputError unless `names` is a nonempty sequence of known names."""
    if isinstance(names, str) or not names:
        raise InputError(f"{caller}: {noun}s is {names!r} and must be some of {', '.join(known)}.")
    for name in names:
        if name not in known:
            hint = suggest_names(str(name), known) or f"; they are {', '.join(known)}."
            raise InputError(f"{caller}: there is no {noun} {name!r}{hint}")


def validate_counts(caller: str, updates: Any, num_seeds: Any) -> None:
    """Raise InputError unless there is an update and two seeds; None is the default."""
    for name, value, minimum, reason in (
        ("updates", updates, 1, ""),
        ("num_seeds", num_seeds, 2, ": one run has no interval"),
    ):
        valid = isinstance(value, int | np.integer) and value >= minimum
        if value is not None and not valid:
            raise InputError(
                f"is {value!r} and must be a whole number, at least {minimum}{reason}",
                caller=caller,
                argument=name,
            )


FORMAT = "bisimetric gridworld curves, version 1"
METADATA_NAMES = {
    "batch": "batch_size",
    "keys": "seeds",
    "steps": "updates",
    "every": "log_every",
    "most": "noise_clip",
    "period": "target_update_period",
    "rate": "horizon_growth",
}
"""Names in the metadata of the files in docs/gridworld, and their present names."""

PAPER_TEXT_UPDATES = 2_500
"""Number of updates in the paper's text."""

NOISE = 0.1
"""Standard deviation of the noise, in cells."""

CONVERGED_FRACTION = 0.05
"""Largest error of a converged run, as a fraction of the largest exact distance."""

TITLES = {"bisimulation": "d~", "on_policy": "d^pi"}
COLUMN_WIDTHS = {"error": 25, "normalised": 21, "correlation": 21}
ERRORS = tuple(COLUMN_WIDTHS)


@dataclasses.dataclass(frozen=True)
class Part:
    """One variant: a distance of a world with some noise.

    Attributes:
        kind: the distance.
        world: name of the MDP.
        noise: standard deviation of the noise on the positions, in cells.
        quick: updates and batch size of the quick run. With noise the cost of an update is
            quadratic in the batch size, without noise in the number of states.
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
    """Error curves of one part, per seed.

    Attributes:
        name: name of the part.
        updates: (n,), gradient updates at each record.
        loss: (seeds, n).
        error: (seeds, n), the largest absolute error.
        normalised: (seeds, n), the largest error of the normalised matrices.
        correlation: (seeds, n), with the exact metric.
        learned: (seeds, S, S), the final distance matrices.
        exact: (S, S), the exact metric.
        metadata: command, hyperparameters, versions, device and seconds.
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

    @property
    def largest(self) -> float:
        """The largest exact distance."""
        return float(self.exact.max())

    @property
    def converged(self) -> bool:
        """Whether the mean final error is at most 5% of the largest exact distance."""
        return bool(self.error[:, -1].mean() <= CONVERGED_FRACTION * self.largest)

    def to_json(self) -> dict[str, Any]:
        """Return means and half-widths of 95% intervals, for a JSON file."""
        record: dict[str, Any] = {"metadata": self.metadata, "updates": self.updates.tolist()}
        for name in ("loss", *ERRORS):
            mean, half = compute_confidence_interval(getattr(self, name))
            record[name] = {"mean": _round_digits(mean), "half_interval": _round_digits(half)}
        return record

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file, atomically."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {"name": fields.pop("name"), "made": fields.pop("metadata")}
        fields["steps"] = fields.pop("updates")
        write_record(path, {"format": FORMAT, **about}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GridworldCurves:
        """Read a file that `save` wrote."""

        def build(made: Any, steps: Any, **fields: Any) -> GridworldCurves:
            metadata = {METADATA_NAMES.get(name, name): value for name, value in made.items()}
            return cls(metadata=metadata, updates=steps, **fields)

        otherwise = "no curves of the GridWorld experiment ({}); measure them again."
        curves = read_record(path, FORMAT, build, otherwise)
        if curves.name not in PARTS:
            raise InputError(f"{path} is of an unknown part of the experiment, {curves.name!r}.")
        return curves


def load_curves(folder: str | os.PathLike[str]) -> dict[str, GridworldCurves]:
    """Read the curves of all parts in a folder."""
    paths = {name: Path(folder) / f"{name}.npz" for name in PARTS}
    curves = {name: GridworldCurves.load(path) for name, path in paths.items() if path.exists()}
    if not curves:
        raise FileNotFoundError(
            f"{folder} has no curves, such as noise.npz; measure them first, with "
            "`bisimetric reproduce gridworld`."
        )
    return curves


def format_table(curves_by_part: Mapping[str, GridworldCurves]) -> Iterator[str]:
    """Yield the lines of a table: errors and correlation per variant, means and 95% intervals.

    Rows are the updates of the paper's text, those of the smallest mean error, and the last. The
    absolute error is "of" the largest exact distance, the error of psi = 0.
    """
    heads = {"error": "absolute error", "normalised": "normalised error"}
    yield (
        f"{'variant':<16}{'updates':>9}"
        + "".join(f"  {heads.get(name, name):<{width}}" for name, width in COLUMN_WIDTHS.items())
    ).rstrip()
    for curves in curves_by_part.values():
        variant = f"{TITLES[curves.part.kind]}, {format_label(curves)}"
        smallest, last = int(curves.error.mean(axis=0).argmin()), len(curves.updates) - 1
        at_text = np.flatnonzero(curves.updates == PAPER_TEXT_UPDATES).tolist()
        for row in sorted({*at_text, smallest, last}):
            cells = []
            for name, width in COLUMN_WIDTHS.items():
                mean, half = compute_confidence_interval(getattr(curves, name)[:, row])
                of = f" of {curves.largest:.4g}" if name == "error" else ""
                cells.append(f"  {f'{mean:.4g} +- {half:.2g}{of}':<{width}}")
            note = "  smallest" if row == smallest < last else ""
            yield f"{variant:<16}{curves.updates[row]:9,}{''.join(cells)}{note}".rstrip()
            variant = ""
        metadata = curves.metadata
        note = "" if curves.converged else f"; {_describe_final_error(curves)}"
        yield (
            f"{'':<16}{curves.num_seeds} seeds, {metadata['seconds']:.3g} s on "
            f"{metadata['device']}{note}"
        )


def _describe_final_error(curves: GridworldCurves) -> str:
    fraction = float(curves.error[:, -1].mean()) / curves.largest
    return f"not converged: the final error is {fraction:.0%} of the largest distance"


def format_label(curves: GridworldCurves) -> str:
    """Return the label of a curve."""
    return "noise on" if curves.part.noise else "noise off"


def format_extent(runs: Sequence[GridworldCurves]) -> str:
    """Format updates, seeds and batch sizes of the runs of a figure.

    "240,000 updates, 10 seeds, batches of 256", or "... of 256 (noise off) and 32 (noise on)".
    """
    batch_sizes = [curves.metadata["batch_size"] for curves in runs]
    return ", ".join(
        (
            f"{_format_counts(runs, [curves.metadata['updates'] for curves in runs])} updates",
            f"{_format_counts(runs, [curves.num_seeds for curves in runs])} seeds",
            f"batches of {_format_counts(runs, batch_sizes)}",
        )
    )


def _format_counts(runs: Sequence[GridworldCurves], counts: Sequence[int]) -> str:
    """Format one number, or one per run where they differ."""
    if len(set(counts)) == 1:
        return f"{counts[0]:,}"
    pairs = zip(counts, runs, strict=True)
    return " and ".join(f"{count:,} ({format_label(curves)})" for count, curves in pairs)


def _round_digits(numbers: NDArray[np.float64]) -> list[float]:
    """Round to six significant digits."""
    return [float(f"{number:.6g}") for number in numbers]
