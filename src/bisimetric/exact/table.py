"""What every exact distance shares: what may be asked, the memory it may take, its proven error."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import bisimetric
from bisimetric import memory
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP, validate_policy
from bisimetric.rounding import TINY, UNIT

if TYPE_CHECKING:
    from bisimetric.exact.queries.answers import QueryResult

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
    memory.require_memory(
        f"exact.{kind}: {num_states:,} states need",
        required_bytes,
        "try dtype='float32', or fewer states, such as bisimetric.relation's classes",
    )
