"""How a network learned, seed by seed, and its file."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.files import read_record, write_record

FORMAT = "bisimetric recipe curves, version 1"


@dataclasses.dataclass(frozen=True, eq=False)
class AlgorithmCurves:
    """What was measured of one trial by one recipe, seed by seed.

    Attributes:
        trial, recipe: their names.
        steps: (n,), when.
        error, normalised, correlation: (seeds, n).
        largest: of the exact metric.
        made: how.
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
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {name: fields.pop(name) for name in ("trial", "recipe", "made", "largest")}
        write_record(path, {"format": FORMAT, **about}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AlgorithmCurves:
        """Reads what `save` wrote."""
        otherwise = "no curves of a recipe ({}); measure them again."
        return read_record(path, FORMAT, cls, otherwise)
