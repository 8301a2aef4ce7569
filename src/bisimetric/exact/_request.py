"""What all exact solvers share: validated requests, error bounds, memory and sweep limits."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import bisimetric
from bisimetric import _memory
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP

if TYPE_CHECKING:
    from bisimetric.exact._query import QueryResult
    from bisimetric.implicit_mdp import ImplicitMDP

DEFAULT_TOL = 1e-6
MAX_SWEEPS = 2**20
"""Sweeps that a residual may need, extrapolated from its rate so far, to reach the tolerance."""
MIN_WINDOW = 128
"""The fewest sweeps over which a rate is measured."""


@dataclasses.dataclass(frozen=True)
class SolverResult:
    """A distance matrix d with the largest |F(d) - d|, the largest F(d), and solver statistics."""

    values: NDArray[np.floating]
    residual: float
    largest: float
    details: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """The validated options of an exact distance.

    Attributes:
        kind: of the distance.
        tol: the largest error allowed.
        tol_is_explicit: whether the caller chose it; otherwise a float32 matrix may exceed it.
        dtype: of the matrix.
        start_time: by `time.perf_counter`.
        discount: of the MDP.
        normalised_tol: the largest error of (1 - discount) d that the caller asked for, if any;
            `tol` is then that divided by 1 - discount.
    """

    kind: Kind
    tol: float
    tol_is_explicit: bool
    dtype: np.dtype[Any]
    start_time: float
    discount: float = 0.0
    normalised_tol: float | None = None

    def residual_tolerance(self, mdp: MDP, caller: str = "exact") -> float:
        """Return the residual to reach: half of what `tol` allows, or the precision floor."""
        self.require_range(mdp, caller)
        return max(self.tol * (1 - mdp.discount) / 2, 8 * UNIT * mdp.diameter_bound)

    def require_range(
        self, mdp: MDP, caller: str = "exact", diameter_bound: float | None = None
    ) -> None:
        """Raise InputError where the diameter bound exceeds the largest number of the dtype."""
        bound = mdp.diameter_bound if diameter_bound is None else diameter_bound
        if not bound < float(np.finfo(self.dtype).max):
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
        """Return the distance; raise NotConverged with it where its error exceeds `tol`."""
        metadata = self.build_metadata({**details, "dtype": str(self.dtype)}, mdp)
        if "gap" not in details:
            error = bound_by_diameter(error, values, mdp)
        distance = Distance(values, error, self.kind, mdp, policy, metadata)
        self.require_tolerance(error, distance)
        return distance

    def build_metadata(
        self, details: dict[str, Any], source: MDP | ImplicitMDP | None = None
    ) -> dict[str, Any]:
        """Add the tolerance, the elapsed time and versions; mark errors of an empirical model."""
        model = {"model": "empirical"} if isinstance(source, MDP) and source.is_empirical else {}
        normalised = {} if self.normalised_tol is None else {"normalised_tol": self.normalised_tol}
        return {
            **details,
            **model,
            "tol": self.tol,
            **normalised,
            "seconds": round(time.perf_counter() - self.start_time, 6),
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }

    def require_tolerance(self, error: float, partial: Distance | QueryResult) -> None:
        """Raise NotConverged where the proven error exceeds `tol`."""
        single = self.dtype == np.float32
        if error <= self.tol or (single and not self.tol_is_explicit):
            return
        raise NotConverged(
            f"exact.{self.kind}: "
            + describe_shortfall(self.dtype, error, self.tol, self.normalised_tol, self.discount),
            partial,
        )


def build_request(
    kind: Kind,
    tol: float | None,
    dtype: DTypeLike,
    *,
    normalised_tol: float | None = None,
    discount: float = 0.0,
) -> Request:
    """Validate the tolerance and `dtype`, and start the clock."""
    caller = f"exact.{kind}"
    matrix_dtype = validate_dtype(caller, dtype)
    chosen = resolve_tol(caller, tol, normalised_tol, discount)
    return Request(
        kind,
        DEFAULT_TOL if chosen is None else chosen,
        chosen is not None,
        matrix_dtype,
        time.perf_counter(),
        discount,
        normalised_tol,
    )


def resolve_tol(
    caller: str, tol: float | None, normalised_tol: float | None, discount: float
) -> float | None:
    """Return the bound on the error that a caller asked for: `tol`, a normalised one, or None.

    >>> resolve_tol("exact.lax", None, 1e-6, 0.75)
    3.99999999999...e-06
    """
    if normalised_tol is None:
        return None if tol is None else validate_tol(caller, tol)
    if tol is not None:
        raise InputError(
            "bounds the same error as tol", caller=caller, argument="normalised_tol",
            remedy="leave one of them out",
        )  # fmt: skip
    allowed = validate_tol(caller, normalised_tol, "normalised_tol")
    # Below the quotient, so that error * (1 - discount) <= normalised_tol in exact arithmetic.
    return allowed / (1 - discount) * (1 - 4 * UNIT)


def describe_shortfall(
    dtype: np.dtype[Any], error: float, tol: float, normalised_tol: float | None, discount: float
) -> str:
    """Return the message about a proven error that exceeds the tolerance, and the remedy.

    The normalised tolerance that it names is twice the proven error, since solvers leave half of a
    tolerance to the residual and the rest to rounding.

    >>> describe_shortfall(np.dtype("float64"), 2.34e-6, 1e-6, None, 0.9999).partition("; ")[2]
    'pass a larger tol, or normalised_tol=5.1e-10, which bounds the error of (1 - discount) d.'
    """
    proven = f"{dtype} proves an error of {error:.2g} here"
    other = " or dtype='float64'" if dtype == np.float32 else ""
    if normalised_tol is not None:
        return (
            f"{proven}, {error * (1 - discount):.2g} of (1 - discount) d, and not "
            f"normalised_tol={normalised_tol:g}; pass a larger one{other}."
        )
    # Above twice the error, also after rounding to two digits.
    suggested = 2.2 * error * (1 - discount)
    if discount > 0 and 0 < suggested < math.inf:
        other += f", or normalised_tol={suggested:.2g}, which bounds the error of (1 - discount) d"
    return f"{proven} and not tol={tol:g}; pass a larger tol{other}."


def validate_dtype(caller: str, dtype: DTypeLike) -> np.dtype[Any]:
    """Return the dtype of a distance matrix, float64 or float32."""
    matrix_dtype = np.dtype(dtype)
    if matrix_dtype not in (np.float64, np.float32):
        raise InputError(
            f"is {matrix_dtype} and must be float64 or float32", caller=caller, argument="dtype"
        )
    return matrix_dtype


def validate_tol(caller: str, tol: float, argument: str = "tol") -> float:
    """Return a finite tolerance above 0."""
    if not (np.isfinite(tol) and tol > 0):
        raise InputError(f"is {tol} and must be above 0", caller=caller, argument=argument)
    return float(tol)


def bound_error(residual: float, largest: float, discount: float) -> float:
    """Bound |d - d*| <= |F(d) - d| / (1 - discount), since F is a contraction (Banach).

    F(d) is |r - r'| + discount * d in float64: three roundings, each of at most UNIT times the
    largest F(d), or TINY below the normal numbers; one more is for the difference.
    """
    return (residual + 4 * (UNIT * largest + TINY)) / (1 - discount) * (1 + 8 * UNIT)


def bound_by_diameter(error: float, values: NDArray[np.floating], mdp: MDP) -> float:
    """Cap a proven error at the diameter bound D = reward range / (1 - discount).

    True distances lie in [0, D]. Where the values do too, none of them is off by more than D. The
    chain of a policy may have labels and equal rewards, so that its D is 1 / (1 - discount).
    """
    bound = mdp.diameter_bound
    if mdp.has_labels:
        bound = max(bound, 1 / (1 - mdp.discount))
    # A difference, 1 - discount and a quotient: three roundings.
    diameter = bound * (1 + 8 * UNIT) + TINY
    return diameter if error > diameter and values.max() <= diameter else error


def require_matrix_memory(kind: str, num_states: int, required_bytes: float) -> None:
    """Raise InsufficientMemory before anything is allocated that the free memory cannot hold."""
    _memory.require_memory(
        f"exact.{kind}: {num_states:,} states need",
        required_bytes,
        "try dtype='float32', or fewer states, such as bisimetric.relation's classes",
    )


class SweepLimit:
    """Stop an iteration whose residual falls too slowly, or not at all.

    Value iteration takes log(tolerance) / log(discount) sweeps, far too many where the discount is
    nearly 1, and rounding can keep a residual above any tolerance. So once per window of sweeps the
    smallest residual so far is compared with that of the window before, and the rate extrapolated.
    The residual proves an error whenever an iteration stops, so that stopping early is sound.
    """

    def __init__(self, window: int) -> None:
        self._window = max(MIN_WINDOW, window)
        self._best = self._previous_best = math.inf
        self._next_check = self._window

    def is_exceeded(self, sweeps: int, residual: float, tolerance: float) -> bool:
        """Return whether a residual after so many sweeps is too far from the tolerance.

        >>> limit = SweepLimit(128)
        >>> [limit.is_exceeded(n, 0.99**n, 1e-9) for n in (128, 256)]
        [False, False]
        >>> limit.is_exceeded(384, 0.99**256, 1e-9)
        True
        """
        self._best = min(self._best, residual)
        if sweeps < self._next_check:
            return False
        previous, self._previous_best = self._previous_best, self._best
        self._next_check = sweeps + self._window
        if previous == math.inf or self._best <= tolerance:
            return False
        rate = math.log(self._best) - math.log(previous)
        if rate >= 0:
            return True
        remaining = math.log(max(tolerance, TINY)) - math.log(self._best)
        return self._window * remaining / rate > MAX_SWEEPS
