"""MICo: the distance of two states that follow a policy independently (Castro et al. 2021)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from bisimetric._progress import announce_compilation, convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance
from bisimetric.exact._request import (
    SolverResult,
    SweepLimit,
    bound_error,
    build_request,
    require_matrix_memory,
    resolve_policy,
)
from bisimetric.exact.deterministic import table_kernels
from bisimetric.mdp import MDP, induce_chain


def mico(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
) -> Distance:
    """The MICo distance U of a policy in any MDP, every entry proven to `tol`.

    U(s, t) = |R^pi(s) - R^pi(t)| + discount * sum_xy P^pi(s)(x) P^pi(t)(y) U(x, y)

    Both states move on independently, where d^pi looks for the best coupling of their successors:
    d^pi <= U, and |V^pi(s) - V^pi(t)| <= U(s, t). So U is no metric: a state that branches may be
    at a distance above 0 from itself, and the diagonal says so.

    F, the right side, is affine, and U = sum_k discount^k P^k G P^k' with the reward gaps G. The
    sum doubles, U_2k = U_k + discount^k P^k U_k P^k', while the powers of P stay sparse enough to
    pay off (Smith 1968); the rest are sweeps U <- F(U). With D = F(U) - U, F(U) differs from the
    true table by discount / (1 - discount) times something between min D and max D (MacQueen
    1966): in a chain that mixes those soon meet. A last sweep puts the answer back into the
    equation for `error`. Rows of P and of the policy are divided by their sums (`MDP.under`).

    Args:
        policy: (S,) actions or (S, A) probabilities; default: the policy that the world comes
            with, or the only one there is.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32.

    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]],
    ...                          discount=0.5)
    >>> mico(coin).values
    array([[0.5, 0.5, 1.5],
           [0.5, 0. , 2. ],
           [1.5, 2. , 0. ]])
    """
    asked = build_request("mico", tol, dtype)
    checked = resolve_policy("mico", mdp, policy)
    induced = induce_chain(mdp, checked)
    chain = induced.mdp
    asked.require_range(chain)
    # Two tables, and the powers of P that _square allows.
    require_matrix_memory(
        "mico", chain.num_states, chain.num_states**2 * (2 * asked.dtype.itemsize + 4)
    )
    _warm_up(asked.dtype)
    least = asked.tol * (1 - chain.discount) / 2
    P = chain.normalised_probabilities
    table = _solve(P, chain.R[:, 0].copy(), chain.discount, least, asked.dtype)
    # Each of two sums over a row has a rounding a term, and so has dividing the row by its sum;
    # a few are for the gap, the discount, the sum and the difference.
    longest = int(np.diff(P.indptr).max())
    residual = table.residual + (4 * longest + 4) * UNIT * table.largest
    residual += induced.pair_error(table.largest + table.residual)
    error = bound_error(residual, table.largest, chain.discount)
    return asked.build_distance(table.values, error, mdp, checked, table.details)


def _solve(
    P: sparse.csr_array,
    reward: NDArray[np.float64],
    discount: float,
    residual_tolerance: float,
    dtype: np.dtype[Any],
) -> SolverResult:
    """U to a residual of `least`, or as near to it as the numbers of the table allow."""
    longest = int(np.diff(P.indptr).max())
    grain = 2 * float(np.finfo(dtype).eps) + 2 * longest * UNIT
    U, spare = (np.empty(P.shape, dtype) for _ in range(2))
    table_kernels.compute_reward_gaps(reward, U)
    power, weight, number, doublings = P, discount, 0, 0
    going = bool(U.any())
    with show_progress(1.0, "MICo: digits of the error") as shown:
        while going:
            low, high, largest = _apply_operator(U, spare, power, reward, weight, doubling=True)
            U, spare, doublings = spare, U, doublings + 1
            small = max(residual_tolerance, grain * largest)
            left = weight / (1 - weight) * (high - low) * (1 - discount)
            square = _square(power, 2**doublings * P.nnz) if left > small else None
            if square is None:
                # From below, so that pairs at distance 0 stay there: their rise is 0.
                U += dtype.type(weight / (1 - weight) * max(low, 0.0))
                break
            power, weight = square, weight * weight
        del power
        limit = SweepLimit(len(U))
        while True:
            low, high, largest = _apply_operator(U, spare, P, reward, discount)
            residual, small = max(-low, high), max(residual_tolerance, grain * largest)
            if residual <= small or number > _bound_sweeps(small, largest, discount):
                break
            if limit.is_exceeded(number, residual, small):
                break
            U, spare, number = spare, U, number + 1
            if discount * (high - low) <= small:
                U += dtype.type(discount / (1 - discount) * max(low, 0.0))
            shown.set_position(convergence_fraction(residual, small, largest), f"sweep {number}")
    how = {"method": "doubling, sweep", "doublings": doublings, "sweeps": number}
    return SolverResult(U, residual, largest, how)


def _bound_sweeps(tolerance: float, largest: float, discount: float) -> float:
    """Sweeps after which only rounding can keep a residual above `small`."""
    if tolerance >= largest or discount == 0:
        return 1
    # A quotient of the two may be too small for a number.
    return 2 + 2 * (math.log(max(tolerance, TINY)) - math.log(largest)) / math.log(discount)


def _normalise_rows(P: sparse.csr_array) -> sparse.csr_array:
    rows = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    return sparse.csr_array((P.data / P.sum(axis=1)[rows], P.indices, P.indptr), P.shape)


def _square(power: sparse.csr_array, max_entries: int) -> sparse.csr_array | None:
    """power @ power, or None where it has more than `most` entries: sweeps are cheaper then."""
    states = power.shape[0]
    products = int(np.diff(power.indptr)[power.indices].sum())
    if products > max(states**2 // 4, 2**16):
        return None
    square = power @ power
    return _normalise_rows(square) if square.nnz <= max_entries else None


def _apply_operator(
    U: NDArray[np.floating],
    out: NDArray[np.floating],
    P: sparse.csr_array,
    reward: NDArray[np.float64],
    weight: float,
    *,
    doubling: bool = False,
) -> tuple[float, float, float]:
    """out = base + weight * P U P', base being the reward gaps or, in a doubling, U itself.

    Returns the least and the largest rise of an entry, and the largest entry.
    """
    tally = np.empty((len(U), 3))
    # One type for all indices: SciPy chooses it by size, and each would be compiled for.
    starts, successor = P.indptr.astype(np.int64), P.indices.astype(np.int32)

    def rows(low: int, high: int) -> None:
        _apply_operator_rows(
            U, out, starts, successor, P.data, reward, weight, doubling, tally, low, high
        )

    # A row adds up the rows of its successors, then an entry of it for each successor of a column.
    entries = int(len(U) * (P.nnz / len(U) + 1) + P.nnz / 2)
    table_kernels.map_rows(rows, len(U), entries)
    table_kernels.mirror(out)
    return float(tally[:, 0].min()), float(tally[:, 1].max()), float(tally[:, 2].max())


@njit(cache=True, nogil=True)
def _apply_operator_rows(
    U: NDArray[np.floating],
    out: NDArray[np.floating],
    starts: NDArray[Any],
    successor: NDArray[Any],
    probability: NDArray[np.float64],
    reward: NDArray[np.float64],
    weight: float,
    doubling: bool,
    tally: NDArray[np.float64],
    low: int,
    high: int,
) -> None:
    """The half t <= s of `_step`, in float64 whatever the table holds."""
    states = U.shape[0]
    ahead = np.empty(states)
    for i in range(low, high):
        s = table_kernels.balance_row(i, states)
        ahead[:] = 0.0
        for k in range(starts[s], starts[s + 1]):
            row = U[successor[k]]
            for y in range(states):
                ahead[y] += probability[k] * row[y]
        least, most, largest = np.inf, -np.inf, 0.0
        for t in range(s + 1):
            mean = 0.0
            for k in range(starts[t], starts[t + 1]):
                mean += probability[k] * ahead[successor[k]]
            value = (U[s, t] if doubling else abs(reward[s] - reward[t])) + weight * mean
            least, most = min(least, value - U[s, t]), max(most, value - U[s, t])
            largest = max(largest, value)
            out[s, t] = value
        tally[s, 0], tally[s, 1], tally[s, 2] = least, most, largest


@functools.cache
def _warm_up(dtype: np.dtype[Any]) -> None:
    """Takes a step in a toy, so that kernels are compiled before the bar of the real work."""
    with announce_compilation("the kernels"):
        _solve(sparse.csr_array(np.eye(2)), np.array([0.0, 1.0]), 0.5, 1e-6, dtype)
