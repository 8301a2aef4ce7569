"""What the solvers of deterministic MDPs are given."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 256
"""States above which a table is worth all cores."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A deterministic MDP as the kernels read it, and what they must reach.

    Attributes:
        successor: (A, S) unsigned.
        reward: (A, S).
        least: the largest |F(d) - d| that is small enough.
        dtype: of the table.
    """

    successor: NDArray[np.uint32]
    reward: NDArray[np.float64]
    discount: float
    least: float
    dtype: np.dtype[Any]

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.successor.shape[0])
