"""What every exact distance shares: the memory it may take, its quotient, its proven error."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
from numpy.typing import DTypeLike, NDArray

import bisimetric
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged, TableTooLarge
from bisimetric.mdp import MDP
from bisimetric.planning import UNIT
from bisimetric.progress import compiling

LARGE = 256
"""States above which a table is worth all cores."""
DEFAULT_TOL = 1e-6


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


@dataclasses.dataclass(frozen=True)
class Table:
    """A solved problem: the table d, the largest |F(d) - d| and F(d) in it, and how."""

    values: NDArray[np.floating]
    residual: float
    largest: float
    how: dict[str, Any]


def solved(
    kind: Kind,
    mdp: MDP,
    *,
    of: MDP,
    labels: Callable[[MDP], NDArray[np.int64]],
    solve: Callable[[Problem], Table],
    tables: int,
    scratch: float,
    tol: float | None,
    dtype: DTypeLike,
    policy: NDArray[Any] | None = None,
) -> Distance:
    """The distance `kind` of `mdp`, whose own dynamics are those of the chain or MDP `of`.

    States in one class of the relation are at distance 0 and share their rows, so the problem is
    solved on one state a class and copied out. `solve` takes the memory of `tables` tables, and
    `scratch` bytes for each entry of one.
    """
    began = time.perf_counter()
    table_type, wanted = _checked_request(kind, of, tol, dtype)
    table_bytes = of.num_states**2 * table_type.itemsize
    _require_memory(kind, of.num_states, table_bytes)
    _compile_once(solve, table_type, of.num_states > LARGE)
    classes = labels(of)
    members, first = np.unique(classes, return_index=True)
    trivial = len(members) == of.num_states
    work_bytes = len(members) ** 2 * (tables * table_type.itemsize + scratch)
    _require_memory(kind, of.num_states, work_bytes + (0 if trivial else table_bytes))
    kept = slice(None) if trivial else first
    successor, reward = of.next_state[kept].T, of.R[kept].T
    spread = float(np.ptp(reward, axis=None)) / (1 - of.discount)
    problem = Problem(
        np.ascontiguousarray(successor if trivial else classes[successor], dtype=np.uint32),
        np.ascontiguousarray(reward),
        of.discount,
        max(wanted * (1 - of.discount) / 2, 8 * UNIT * spread),
        table_type,
    )
    table = solve(problem)
    values = table.values if trivial else table.values[np.ix_(classes, classes)]
    error = proven_error(table.residual, table.largest, of.discount)
    made = {
        **table.how,
        "tol": wanted,
        "classes": len(members),
        "dtype": str(table_type),
        "seconds": round(time.perf_counter() - began, 6),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    distance = Distance(values, error, kind, mdp, policy, made)
    if error > wanted and not (tol is None and table_type == np.float32):
        raise NotConverged(
            f"exact.{kind}: {table_type} proves an error of {error:.2g} here and not "
            f"tol={wanted:g}; pass a larger tol"
            + (" or dtype='float64'." if table_type == np.float32 else "."),
            distance,
        )
    return distance


@functools.cache
def _compile_once(solve: Callable[[Problem], Table], dtype: np.dtype[Any], large: bool) -> None:
    """Solves a toy problem, so that kernels are compiled before the bar of the real one."""
    states = LARGE + 1 if large else 8
    s = np.arange(states)
    reward = (s[None] % 5).astype(np.float64)
    toy = Problem((s * 7 + 3)[None].astype(np.uint32) % states, reward, 0.5, 1e-6, dtype)
    with compiling("the kernels"):
        solve(toy)


def proven_error(residual: float, largest: float, discount: float) -> float:
    """|d - d*| <= |F(d) - d| / (1 - discount), since F is a contraction (Banach).

    F(d) is |r - r'| + discount * d in float64: three roundings, each of at most UNIT times the
    largest F(d); one more is for the difference.
    """
    return (residual + 4 * UNIT * largest) / (1 - discount) * (1 + 8 * UNIT)


def _checked_request(
    kind: str, mdp: MDP, tol: float | None, dtype: DTypeLike
) -> tuple[np.dtype[Any], float]:
    table_type = np.dtype(dtype)
    if table_type not in (np.float64, np.float32):
        raise InputError(f"exact.{kind}: dtype is {table_type} and must be float64 or float32.")
    if tol is not None and not (np.isfinite(tol) and tol > 0):
        raise InputError(f"exact.{kind}: tol is {tol} and must be above 0.")
    if not mdp.is_deterministic:
        s, a = mdp.first_branch()
        where = f"state {mdp.name(s)} has" if kind == "on_policy" else f"P[{s}, {a}] has"
        raise InputError(
            f"exact.{kind}: {where} several successors; exact distances need a deterministic MDP "
            "(and, on-policy, a deterministic policy)."
        )
    return table_type, DEFAULT_TOL if tol is None else float(tol)


def _require_memory(kind: str, states: int, needed: float) -> None:
    """Refuses, before anything is allocated, what the free memory cannot hold."""
    if needed < 2**26:
        return
    free = psutil.virtual_memory().available
    if needed > free:
        raise TableTooLarge(
            f"exact.{kind}: {states:,} states need {_size(needed)} of memory and {_size(free)} are "
            "free; try dtype='float32', or fewer states, such as bisimetric.relation's classes."
        )


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
