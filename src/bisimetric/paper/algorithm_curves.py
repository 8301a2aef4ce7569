"""Error curves of the compared algorithms, their files, and the table of final errors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import read_record, write_record
from bisimetric.paper.gridworld_curves import compute_intervals

FORMAT = "bisimetric algorithm curves, version 2"
HEADER = ("task", "algorithm", "max_distance", "metadata")
"""Fields in the header of a file; the others are arrays."""


@dataclasses.dataclass(frozen=True, eq=False)
class AlgorithmCurves:
    """Error curves of one task and algorithm, per seed.

    Attributes:
        task: name of the task.
        algorithm: name of the algorithm or ablation.
        updates: (n,), gradient updates at each record.
        error: (seeds, n), the largest absolute error.
        normalised: (seeds, n), the largest error of the normalised matrices.
        correlation: (seeds, n), with the exact metric.
        max_distance: the largest exact distance.
        metadata: seconds, device, versions and quality.
    """

    task: str
    algorithm: str
    updates: NDArray[np.int64]
    error: NDArray[np.float64]
    normalised: NDArray[np.float64]
    correlation: NDArray[np.float64]
    max_distance: float
    metadata: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file, atomically."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        header = {name: fields.pop(name) for name in HEADER}
        write_record(path, {"format": FORMAT, **header}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AlgorithmCurves:
        """Read a file that `save` wrote."""
        otherwise = "no curves of an algorithm ({}); measure them again."
        return read_record(path, FORMAT, cls, otherwise)


class AlgorithmRow(NamedTuple):
    """Final errors of an algorithm on a task: means over the seeds, and half their 95% intervals.

    Attributes:
        task: name of the task.
        algorithm: name of the algorithm or ablation.
        num_seeds: networks.
        updates: gradient updates.
        diverged: whether the training diverged after these updates.
        error: the largest absolute error.
        error_half_interval: of `error`.
        normalised: the largest error of the normalised matrices.
        normalised_half_interval: of `normalised`.
        correlation: with the exact metric.
        correlation_half_interval: of `correlation`.
        max_distance: the largest exact distance.
    """

    task: str
    algorithm: str
    num_seeds: int
    updates: int
    diverged: bool
    error: float
    error_half_interval: float
    normalised: float
    normalised_half_interval: float
    correlation: float
    correlation_half_interval: float
    max_distance: float


def tabulate(curves: Sequence[AlgorithmCurves]) -> list[AlgorithmRow]:
    """Return the final errors, one row per task and algorithm.

    Args:
        curves: those of `measure` or `load_curves`.
    """
    return [
        AlgorithmRow(
            task=run.task,
            algorithm=run.algorithm,
            num_seeds=len(run.error),
            updates=int(run.updates[-1]),
            diverged="diverged" in run.metadata,
            **compute_intervals(run, -1),
            max_distance=run.max_distance,
        )
        for run in curves
    ]
