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
from bisimetric.mdp import MDP, checked_policy
from bisimetric.rounding import TINY, UNIT

if TYPE_CHECKING:
    from bisimetric.exact.queries.answers import Answer

DEFAULT_TOL = 1e-6


@dataclasses.dataclass(frozen=True)
class Table:
    """A solved problem: the table d, the largest |F(d) - d| and F(d) in it, and how."""

    values: NDArray[np.floating]
    residual: float
    largest: float
    how: dict[str, Any]


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
    explicit: bool
    dtype: np.dtype[Any]
    began: float

    def least(self, mdp: MDP, room: str = "exact") -> float:
        """The residual to reach: half of what is allowed, if rounding lets it."""
        self.require_range(mdp, room)
        return max(self.tol * (1 - mdp.discount) / 2, 8 * UNIT * mdp.farthest)

    def require_range(self, mdp: MDP, room: str = "exact") -> None:
        """Raises InputError where the diameter bound is no finite number of the table's type."""
        if not mdp.farthest < float(np.finfo(self.dtype).max):
            raise InputError(
                f"{room}.{self.kind}: rewards from {mdp.R.min():g} to {mdp.R.max():g} make "
                f"distances that {self.dtype} cannot hold; scale the rewards down."
            )

    def answer(
        self,
        values: NDArray[np.floating],
        error: float,
        mdp: MDP,
        policy: NDArray[Any] | None,
        how: dict[str, Any],
    ) -> Distance:
        """The distance, or NotConverged with it where its error is larger than was asked for."""
        made = self.made({**how, "dtype": str(self.dtype)})
        error = bound_by_diameter(error, values, mdp)
        distance = Distance(values, error, self.kind, mdp, policy, made)
        self.refuse_larger(error, distance)
        return distance

    def made(self, how: dict[str, Any]) -> dict[str, Any]:
        """How an answer was made, with the tolerance, the time that it took, and the versions."""
        return {
            **how,
            "tol": self.tol,
            "seconds": round(time.perf_counter() - self.began, 6),
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }

    def refuse_larger(self, error: float, partial: Distance | Answer) -> None:
        """Raises NotConverged where an error is larger than was asked for."""
        single = self.dtype == np.float32
        if not error <= self.tol and (self.explicit or not single):
            raise NotConverged(
                f"exact.{self.kind}: {self.dtype} proves an error of {error:.2g} here and not "
                f"tol={self.tol:g}; pass a larger tol"
                + (" or dtype='float64'." if single else "."),
                partial,
            )


def request(kind: Kind, tol: float | None, dtype: DTypeLike) -> Request:
    """A request that can be met, or a clear error."""
    table_type = np.dtype(dtype)
    if table_type not in (np.float64, np.float32):
        raise InputError(f"exact.{kind}: dtype is {table_type} and must be float64 or float32.")
    if tol is not None and not (np.isfinite(tol) and tol > 0):
        raise InputError(f"exact.{kind}: tol is {tol} and must be above 0.")
    wanted = DEFAULT_TOL if tol is None else float(tol)
    return Request(kind, wanted, tol is not None, table_type, time.perf_counter())


def given_policy(
    kind: str, mdp: MDP, policy: ArrayLike | None, *, how: str = "exact"
) -> NDArray[Any]:
    """The policy, checked; where none is given, the MDP's own or the only one there is."""
    if policy is None:
        policy = mdp.policy if mdp.num_actions > 1 else [0] * mdp.num_states
    if policy is None:
        raise InputError(
            f"{how}.{kind}: this MDP comes with no policy; pass one, such as "
            "planning.greedy_policy(mdp)."
        )
    return checked_policy(mdp, policy)


def proven_error(residual: float, largest: float, discount: float) -> float:
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
    diameter = mdp.farthest * (1 + 8 * UNIT) + TINY
    return diameter if error > diameter and values.max() <= diameter else error


def require_memory(kind: str, states: int, needed: float) -> None:
    """Refuses, before anything is allocated, what the free memory cannot hold."""
    memory.require_memory(
        f"exact.{kind}: {states:,} states need",
        needed,
        "try dtype='float32', or fewer states, such as bisimetric.relation's classes",
    )
