"""What a sweep found of one shape of network and batch, its file, and the table of all of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import read_record, write_atomically, write_record

FORMAT = "bisimetric sweep, version 1"
NUM_SHOWN = 12
"""Settings that are printed."""


class SweepShape(NamedTuple):
    """What a program is compiled for; `period` is in steps of the agent."""

    batch: int = 128
    target_update_period: int = 500
    layers: int = 2
    units: int = 16

    @property
    def name(self) -> str:
        """A name for files.

        >>> Shape().name
        'batch128-period500-2x16'
        """
        return f"batch{self.batch}-period{self.target_update_period}-{self.layers}x{self.units}"


@dataclasses.dataclass(frozen=True, eq=False)
class SweepResult:
    """Networks of one shape, seeds and learning rates side by side, and what was measured.

    Attributes:
        shape: that of all of them.
        keys, rates: (n,), the seed and the learning rate of each network.
        steps: (m,), the updates at each record.
        loss, distance, correlation, error: (n, m); see `learning.judged`. NaN where the exact
            distances are not known.
        made: how.
    """

    shape: SweepShape
    seeds: NDArray[np.int64]
    learning_rates: NDArray[np.float64]
    updates: NDArray[np.int64]
    loss: NDArray[np.float64]
    distance: NDArray[np.float64]
    correlation: NDArray[np.float64]
    error: NDArray[np.float64]
    metadata: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {"shape": list(fields.pop("shape")), "made": fields.pop("made")}
        write_record(path, {"format": FORMAT, **about}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SweepResult:
        """Reads what `save` wrote."""
        otherwise = "no result of a sweep ({}); remove it and sweep again."
        found = read_record(path, FORMAT, cls, otherwise)
        return dataclasses.replace(found, shape=SweepShape(*found.shape))


class SweepRow(NamedTuple):
    """One setting, at its last record: means over the seeds, and the deviation of one of them."""

    batch: int
    target_update_period: int
    layers: int
    units: int
    learning_rate: float
    num_seeds: int
    num_dead: int
    correlation: float
    correlation_std: float
    error: float
    distance: float
    loss: float

    @property
    def setting(self) -> tuple[SweepShape, float]:
        return SweepShape(*self[:4]), self.learning_rate


def tabulate(results: Sequence[SweepResult]) -> list[SweepRow]:
    """All settings, the best first: those whose distances fit the exact ones best.

    A dead network says 0 for all pairs; its correlation is 0.
    """
    every = []
    for each in results:
        for rate in np.unique(each.learning_rates):
            of = each.learning_rates == rate
            last = {
                name: np.asarray(getattr(each, name))[of, -1]
                for name in ("correlation", "error", "distance", "loss")
            }
            every.append(
                SweepRow(
                    *each.shape,
                    float(rate),
                    int(of.sum()),
                    int((last["distance"] == 0).sum()),
                    float(last["correlation"].mean()),
                    float(last["correlation"].std(ddof=1)) if of.sum() > 1 else math.nan,
                    float(last["error"].mean()),
                    float(last["distance"].mean()),
                    float(last["loss"].mean()),
                )
            )
    return sorted(every, key=_sort_key)


def _sort_key(row: SweepRow) -> tuple[Any, ...]:
    unknown = math.isnan(row.correlation)
    return unknown, row.loss if unknown else -row.correlation, row[:5]


def write_table(path: str | os.PathLike[str], table: Sequence[SweepRow]) -> None:
    """Writes the table as CSV, one setting a line, the best first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SweepRow._fields)
    writer.writerows([f"{cell:.6g}" for cell in row] for row in table)
    with write_atomically(path) as beside:
        beside.write_text(text.getvalue(), encoding="utf-8")


def format_table(
    table: Sequence[SweepRow], chosen: tuple[SweepShape, float], num_shown: int = NUM_SHOWN
) -> Iterator[str]:
    """The best settings to be printed, and where the chosen one stands among them."""
    heads = ("batch", "period", "layers", "units", "rate", "correlation", "error", "dead")
    yield (
        "  "
        + "".join(f"{head:>9}" for head in heads[:5])
        + "".join(f"{head:>18}" if head == "correlation" else f"{head:>9}" for head in heads[5:])
    )
    for place, row in enumerate(table):
        paper = row.setting == chosen
        if place >= num_shown and not paper:
            continue
        if place > num_shown and paper:
            yield f"  ... and, {place + 1} of {len(table)}:"
        spread = "" if math.isnan(row.correlation_std) else f" +- {row.correlation_std:.2g}"
        yield (
            f"{'*' if paper else ' '} {row.batch:>9}{row.target_update_period:>9}{row.layers:>9}{row.units:>9}"
            f"{row.learning_rate:>9.2g}{f'{row.correlation:.3f}{spread}':>18}{row.error:>9.3f}"
            f"{f'{row.num_dead}/{row.num_seeds}':>9}"
        )
    yield (
        "* the paper's. correlation: with the exact distances of 256 states, by their recorded "
        "futures;"
    )
    yield "error: the mean one, as a share of the mean distance; dead: networks that say 0 for all"
