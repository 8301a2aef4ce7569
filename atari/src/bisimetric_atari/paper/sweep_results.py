"""Results of the hyperparameter sweep: one file per shape, and the table of all settings."""

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
"""Settings in the printed table."""


class SweepShape(NamedTuple):
    """The hyperparameters that a program is compiled for.

    Attributes:
        batch: transitions per update.
        target_update_period: agent steps between two synchronisations of the target network.
        layers: hidden layers.
        units: units per hidden layer.
    """

    batch: int = 128
    target_update_period: int = 500
    layers: int = 2
    units: int = 16

    @property
    def name(self) -> str:
        """The stem of its file.

        >>> SweepShape().name
        'batch128-period500-2x16'
        """
        return f"batch{self.batch}-period{self.target_update_period}-{self.layers}x{self.units}"


@dataclasses.dataclass(frozen=True, eq=False)
class SweepResult:
    """Training curves of networks of one shape, for all seeds and learning rates.

    Attributes:
        shape: the shape of all networks.
        seeds: (n,), the seed of each network.
        learning_rates: (n,), the learning rate of each network.
        updates: (m,), gradient updates at each record.
        loss: (n, m).
        distance: (n, m), the mean distance; see `learning.build_measure`.
        correlation: (n, m), with the exact distances; NaN where those are unknown.
        error: (n, m), relative to the mean exact distance; NaN where unknown.
        metadata: data, options, versions, device and seconds.
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
        """Write one .npz file, atomically."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {"shape": list(fields.pop("shape")), "metadata": fields.pop("metadata")}
        write_record(path, {"format": FORMAT, **about}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SweepResult:
        """Read a file that `save` wrote."""
        otherwise = "no result of a sweep ({}); remove it and sweep again."
        result = read_record(path, FORMAT, cls, otherwise)
        return dataclasses.replace(result, shape=SweepShape(*result.shape))


class SweepRow(NamedTuple):
    """Final results of one setting: means over the seeds, and one standard deviation.

    Attributes:
        batch: transitions per update.
        target_update_period: in agent steps.
        layers: hidden layers.
        units: units per hidden layer.
        learning_rate: of Adam.
        num_seeds: networks of this setting.
        num_dead: networks with distance 0 for all pairs.
        correlation: with the exact distances.
        correlation_std: standard deviation over the seeds; NaN for one seed.
        error: relative to the mean exact distance.
        distance: the mean distance.
        loss: the training loss.
    """

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
    """Return the rows of all settings, the highest correlation with the exact distances first.

    A dead network has distance 0 for all pairs; its correlation is 0.
    """
    rows = []
    for result in results:
        for rate in np.unique(result.learning_rates):
            mask = result.learning_rates == rate
            final = {
                name: np.asarray(getattr(result, name))[mask, -1]
                for name in ("correlation", "error", "distance", "loss")
            }
            rows.append(
                SweepRow(
                    *result.shape,
                    float(rate),
                    int(mask.sum()),
                    int((final["distance"] == 0).sum()),
                    float(final["correlation"].mean()),
                    float(final["correlation"].std(ddof=1)) if mask.sum() > 1 else math.nan,
                    float(final["error"].mean()),
                    float(final["distance"].mean()),
                    float(final["loss"].mean()),
                )
            )
    return sorted(rows, key=_sort_key)


def _sort_key(row: SweepRow) -> tuple[Any, ...]:
    """Sort by correlation, or by loss where the exact distances are unknown."""
    unknown = math.isnan(row.correlation)
    return unknown, row.loss if unknown else -row.correlation, row[:5]


def write_table(path: str | os.PathLike[str], table: Sequence[SweepRow]) -> None:
    """Write the table as CSV, one setting per line, the best first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SweepRow._fields)
    writer.writerows([f"{cell:.6g}" for cell in row] for row in table)
    with write_atomically(path) as beside:
        beside.write_text(text.getvalue(), encoding="utf-8")


def format_table(
    table: Sequence[SweepRow], chosen: tuple[SweepShape, float], num_shown: int = NUM_SHOWN
) -> Iterator[str]:
    """Yield the lines of a table: the best settings, and the rank of the chosen one."""
    heads = ("batch", "period", "layers", "units", "rate", "correlation", "error", "dead")
    yield (
        "  "
        + "".join(f"{head:>9}" for head in heads[:5])
        + "".join(f"{head:>18}" if head == "correlation" else f"{head:>9}" for head in heads[5:])
    )
    for rank, row in enumerate(table):
        is_chosen = row.setting == chosen
        if rank >= num_shown and not is_chosen:
            continue
        if rank > num_shown and is_chosen:
            yield f"  ... and, {rank + 1} of {len(table)}:"
        deviation = "" if math.isnan(row.correlation_std) else f" +- {row.correlation_std:.2g}"
        yield (
            f"{'*' if is_chosen else ' '} {row.batch:>9}{row.target_update_period:>9}"
            f"{row.layers:>9}{row.units:>9}"
            f"{row.learning_rate:>9.2g}{f'{row.correlation:.3f}{deviation}':>18}{row.error:>9.3f}"
            f"{f'{row.num_dead}/{row.num_seeds}':>9}"
        )
    yield "* the paper's. correlation: with exact distances of 256 states, from recorded futures;"
    yield "error: mean absolute error / mean distance; dead: networks with distance 0 for all pairs"
