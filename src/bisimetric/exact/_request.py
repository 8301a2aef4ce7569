"""What every exact distance shares: what may be asked, the memory it may take, its proven error.

When an iteration cannot reach its tolerance in reasonable time.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import bisimetric
from bisimetric import _memory
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP, validate_policy

if TYPE_CHECKING:
    from bisimetric.exact._query import QueryResult


DEFAULT_TOL = 1e-6


@dataclasses.dataclass(frozen=True)
class SolverResult:
    """A solved problem: the table d, the largest |F(d) - d| and F(d) in it, and how."""

    values: NDArray[np.floating]
    residual: float
    largest: float
    details: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """A distance that was asked for: its kind, the error allowed, the numbers of its table.

    Attributes:
        tol: the largest error allowed.
        explicit: whether the caller chose it. If not, a float32 table may have a larger one.
        began: when, by `time.perf_counter`.
    """

    kind: Kind
    tol: float
    tol_is_explicit: bool
    dtype: np.dtype[Any]
    start_time: float

    def residual_tolerance(self, mdp: MDP, caller: str = "exact") -> float:
        """The residual to reach: half of what is allowed, if rounding lets it."""
        self.require_range(mdp, caller)
        return max(self.tol * (1 - mdp.discount) / 2, 8 * UNIT * mdp.diameter_bound)

    def require_range(self, mdp: MDP, caller: str = "exact") -> None:
        """Raises InputError where the diameter bound is no finite number of the table's type."""
        if not mdp.diameter_bound < float(np.finfo(self.dtype).max):
            raise InputError(
                f"{caller}.{self.kind}: rewards from {mdp.R.min():g} to {mdp.R.max():g} make "
                f"distances that {self.dtype} cannot hold; scale the rewards down."
            )

    def build_distance(
        self,
        values: NDArray[np.floating],
        error: float,
        mdp: MDP,
        policy: NDArray[Any] | None,
        details: dict[str, Any],
    ) -> Distance:
        """The distance, or NotConverged with it where its error is larger than was asked for."""
        made = self.build_metadata({**details, "dtype": str(self.dtype)})
        error = bound_by_diameter(error, values, mdp)
        distance = Distance(values, error, self.kind, mdp, policy, made)
        self.require_tolerance(error, distance)
        return distance

    def build_metadata(self, details: dict[str, Any]) -> dict[str, Any]:
        """How an answer was made, with the tolerance, the time that it took, and the versions."""
        return {
            **details,
            "tol": self.tol,
            "seconds": round(time.perf_counter() - self.start_time, 6),
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }

    def require_tolerance(self, error: float, partial: Distance | QueryResult) -> None:
        """Raises NotConverged where an error is larger than was asked for."""
        single = self.dtype == np.float32
        if not error <= self.tol and (self.tol_is_explicit or not single):
            raise NotConverged(
                f"exact.{self.kind}: {self.dtype} proves an error of {error:.2g} here and not "
                f"tol={self.tol:g}; pass a larger tol"
                + (" or dtype='float64'." if single else "."),
                partial,
            )


def build_request(kind: Kind, tol: float | None, dtype: DTypeLike) -> Request:
    """A request that can be met, or a clear error."""
    table_type = np.dtype(dtype)
    if table_type not in (np.float64, np.float32):
        raise InputError(f"exact.{kind}: dtype is {table_type} and must be float64 or float32.")
    if tol is not None and not (np.isfinite(tol) and tol > 0):
        raise InputError(f"exact.{kind}: tol is {tol} and must be above 0.")
    wanted = DEFAULT_TOL if tol is None else float(tol)
    return Request(kind, wanted, tol is not None, table_type, time.perf_counter())


def resolve_policy(
    kind: str, mdp: MDP, policy: ArrayLike | None, *, caller: str = "exact"
) -> NDArray[Any]:
    """The policy, checked; where none is given, the MDP's own or the only one there is."""
    if policy is None:
        policy = mdp.policy if mdp.num_actions > 1 else [0] * mdp.num_states
    if policy is None:
        raise InputError(
            f"{caller}.{kind}: this MDP comes with no policy; pass one, such as "
            "planning.greedy_policy(mdp)."
        )
    return validate_policy(mdp, policy)


def bound_error(residual: float, largest: float, discount: float) -> float:
    """|d - d*| <= |F(d) - d| / (1 - discount), since F is a contraction (Banach).

    F(d) is |r - r'| + discount * d in float64: three roundings, each of at most UNIT times the
    largest F(d), or TINY below the normal numbers; one more is for the difference.
    """
    return (residual + 4 * (UNIT * largest + TINY)) / (1 - discount) * (1 + 8 * UNIT)


def bound_by_diameter(error: float, values: NDArray[np.floating], mdp: MDP) -> float:
    """The smaller of a proven error and the diameter bound D = reward range / (1 - discount).

    True distances lie in [0, D]. Where the values do too, none of them is off by more than D.
    """
    # A difference, 1 - discount and a quotient: three roundings.
    diameter = mdp.diameter_bound * (1 + 8 * UNIT) + TINY
    return diameter if error > diameter and values.max() <= diameter else error


def require_matrix_memory(kind: str, num_states: int, required_bytes: float) -> None:
    """Refuses, before anything is allocated, what the free memory cannot hold."""
    _memory.require_memory(
        f"exact.{kind}: {num_states:,} states need",
        required_bytes,
        "try dtype='float32', or fewer states, such as bisimetric.relation's classes",
    )


MAX_SWEEPS = 2**20
"""Sweeps that a residual may need, by its rate so far, to reach the tolerance."""
MIN_WINDOW = 128
"""The fewest sweeps over which a rate is measured."""


class SweepLimit:
    """Ends an iteration whose residual falls too slowly, or not at all.

    Value iteration takes log(tolerance) / log(discount) sweeps, far too many where the discount is
    nearly 1, and rounding can keep a residual above any tolerance. So once per window of sweeps the
    smallest residual so far is compared with that of the window before, and the rate extrapolated.
    The residual proves an error whenever an iteration ends, so that ending early is sound.
    """

    def __init__(self, window: int) -> None:
        self._window = max(MIN_WINDOW, window)
        self._best = self._previous_best = math.inf
        self._next_check = self._window

    def is_exceeded(self, sweeps: int, residual: float, tolerance: float) -> bool:
        """Whether a residual after so many sweeps is too far from the tolerance to go on.

        >>> limit = SweepLimit(128)
        >>> [limit.exceeds(n, 0.99**n, 1e-9) for n in (128, 256)]
        [False, False]
        >>> limit.exceeds(384, 0.99**256, 1e-9)
        True
        """
        self._best = min(self._best, residual)
        if sweeps < self._next_check:
            return False
        before, self._previous_best, self._next_check = (
            self._previous_best,
            self._best,
            sweeps + self._window,
        )
        if before == math.inf or self._best <= tolerance:
            return False
        rate = math.log(self._best) - math.log(before)
        if rate >= 0:
            return True
        left = math.log(max(tolerance, TINY)) - math.log(self._best)
        return self._window * left / rate > MAX_SWEEPS
