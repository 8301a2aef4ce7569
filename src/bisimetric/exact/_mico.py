"""MICo: the distance of two states that follow a policy independently (Castro et al. 2021)."""

from __future__ import annotations

import dataclasses
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
from bisimetric.exact._gap_solver import (
    add_ground_distance,
    bound_diameter,
    describe_gap,
    evaluate_gap,
)
from bisimetric.exact._request import (
    Request,
    SolverResult,
    SweepLimit,
    bound_error,
    build_request,
    require_matrix_memory,
)
from bisimetric.exact.deterministic import table_kernels
from bisimetric.exact.gaps import GapFunction
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import require_mdp, resolve_policy


def mico(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the MICo distance U of a policy in any MDP, every entry proven to `tol`.

        U(s, t) = |R^pi(s) - R^pi(t)| + discount * sum_xy P^pi(s)(x) P^pi(t)(y) U(x, y)

    It takes the independent coupling of the successors, where d^pi takes the best one: d^pi <= U,
    and |V^pi(s) - V^pi(t)| <= U(s, t). If the label sets of s and t differ (`MDP.labels`), U(s, t)
    is the diameter bound of the chain, as in d^pi. U is not a metric: U(s, s), the diagonal of the
    matrix, may be above 0 where s has several successors.

    F, the right side, is affine, and U = sum_k discount^k P^k G P^k' with the reward gaps G. The
    sum doubles, U_2k = U_k + discount^k P^k U_k P^k', while the powers of P stay sparse enough to
    pay off (Smith 1968); the rest are sweeps U <- F(U). With D = F(U) - U, F(U) differs from the
    fixed point by discount / (1 - discount) times something between min D and max D (MacQueen
    1966), which approach each other quickly in a chain that mixes. With labels there are sweeps
    only. The residual of the result proves its `error`. Rows of P and of the policy are divided by
    their sums (`MDP.apply_policy`).

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities; default: the MDP's own policy, or the only
            one where there is a single action.
        tol: bound on the true error of every entry; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        gap: immediate costs in place of |R^pi(s) - R^pi(t)|: (S, S), or a function (`exact.gaps`).

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or the MDP comes with no policy.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]],
    ...                          discount=0.5)
    >>> mico(coin).values
    array([[0.5, 0.5, 1.5],
           [0.5, 0. , 2. ],
           [1.5, 2. , 0. ]])
    """
    require_mdp("exact.mico", mdp)
    request = build_request(
        "mico", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    actions = resolve_policy("mico", mdp, policy)
    if gap is None:
        solution = solve_mico(request, mdp, actions)
        details = solution.details
    else:
        table = evaluate_gap("exact.mico", "mico", mdp, gap, actions, check_triangles=False)[0, 0]
        solution = solve_mico(request, mdp, actions, table)
        details = {**solution.details, "gap": describe_gap(gap)}
    return request.build_distance(solution.values, solution.error, mdp, actions, details)


@dataclasses.dataclass(frozen=True)
class MicoSolution:
    """The matrix U with its proven error, its largest entry and solver statistics."""

    values: NDArray[np.floating]
    error: float
    largest: float
    details: dict[str, Any]


def solve_mico(
    request: Request, mdp: MDP, policy: NDArray[Any], gap: NDArray[np.float64] | None = None
) -> MicoSolution:
    """Compute MICo of a validated policy to `request.tol`, or to what rounding allows.

    A `gap` (S, S) takes the place of the differences of rewards; ground distances are added.
    """
    induced = induce_chain(mdp, policy)
    chain = induced.mdp
    request.require_range(chain)
    # Two matrices, and the powers of P that _square allows.
    require_matrix_memory(
        request.kind, chain.num_states, chain.num_states**2 * (2 * request.dtype.itemsize + 4)
    )
    _warm_up(request.dtype)
    tolerance = request.tol * (1 - chain.discount) / 2
    P = chain.normalised_probabilities
    problem = _MicoProblem(
        P, chain.R[:, 0].copy(), chain.discount, chain.label_classes, chain.diameter_bound
    )
    rounding = 0.0
    if gap is not None:
        gap, rounding = add_ground_distance(gap, mdp)
        diameter = bound_diameter(gap, chain, lax=True)
        problem = dataclasses.replace(problem, gap=gap, diameter_bound=diameter)
        induced = dataclasses.replace(induced, reward_error=0.0)
    elif mdp.ground_distance is not None:
        gap, rounding = add_ground_distance(np.abs(problem.reward[:, None] - problem.reward), mdp)
        problem = dataclasses.replace(problem, gap=gap)
    solution = _solve(problem, tolerance, request.dtype)
    # Each of two sums over a row has one rounding per term, and so has dividing the row by its sum;
    # a few are for the gap, the discount, the sum and the difference.
    max_support = int(np.diff(P.indptr).max())
    residual = solution.residual + rounding + (4 * max_support + 4) * UNIT * solution.largest
    residual += induced.pair_error(solution.largest + solution.residual)
    error = bound_error(residual, solution.largest, chain.discount)
    largest = solution.largest + solution.residual
    return MicoSolution(solution.values, error, largest, solution.details)


@dataclasses.dataclass(frozen=True, eq=False)
class _MicoProblem:
    """A chain: P (S, S), rewards (S,), discount; states of different classes are at the diameter.

    Attributes:
        gap: (S, S) in place of the differences of rewards, or empty (0, 0).
    """

    P: sparse.csr_array
    reward: NDArray[np.float64]
    discount: float
    classes: NDArray[np.int64]
    diameter_bound: float
    gap: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.empty((0, 0)))


def _solve(problem: _MicoProblem, residual_tolerance: float, dtype: np.dtype[Any]) -> SolverResult:
    """Compute U to a residual tolerance, or to the precision floor of the dtype."""
    P, discount = problem.P, problem.discount
    max_support = int(np.diff(P.indptr).max())
    precision_floor = 2 * float(np.finfo(dtype).eps) + 2 * max_support * UNIT
    U, spare = (np.empty(P.shape, dtype) for _ in range(2))
    if problem.gap.size:
        U[:] = problem.gap
    else:
        table_kernels.compute_reward_gaps(problem.reward, U)
    power, weight, num_sweeps, doublings = P, discount, 0, 0
    is_doubling = bool(U.any()) and not problem.classes.any()
    with show_progress(1.0, "MICo: digits of the error") as progress:
        while is_doubling:
            low, high, largest = _apply_operator(U, spare, problem, power, weight, doubling=True)
            U, spare, doublings = spare, U, doublings + 1
            tolerance = max(residual_tolerance, precision_floor * largest)
            remaining = weight / (1 - weight) * (high - low) * (1 - discount)
            square = _square(power, 2**doublings * P.nnz) if remaining > tolerance else None
            if square is None:
                # From below, so that pairs at distance 0 stay there: their increase is 0.
                U += dtype.type(weight / (1 - weight) * max(low, 0.0))
                break
            power, weight = square, weight * weight
        del power
        limit = SweepLimit(len(U))
        while True:
            low, high, largest = _apply_operator(U, spare, problem, P, discount)
            residual, tolerance = (
                max(-low, high),
                max(residual_tolerance, precision_floor * largest),
            )
            if residual <= tolerance or num_sweeps > _bound_sweeps(tolerance, largest, discount):
                break
            if limit.is_exceeded(num_sweeps, residual, tolerance):
                break
            U, spare, num_sweeps = spare, U, num_sweeps + 1
            if discount * (high - low) <= tolerance:
                U += dtype.type(discount / (1 - discount) * max(low, 0.0))
            progress.set_position(
                convergence_fraction(residual, tolerance, largest), f"sweep {num_sweeps}"
            )
    details = {
        "method": "doubling, value iteration",
        "doublings": doublings,
        "sweeps": num_sweeps,
    }
    return SolverResult(U, residual, largest, details)


def _bound_sweeps(tolerance: float, largest: float, discount: float) -> float:
    """Return the sweeps after which only rounding can keep a residual above the tolerance."""
    if tolerance >= largest or discount == 0:
        return 1
    # The quotient of the two may underflow.
    return 2 + 2 * (math.log(max(tolerance, TINY)) - math.log(largest)) / math.log(discount)


def _normalise_rows(P: sparse.csr_array) -> sparse.csr_array:
    rows = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    return sparse.csr_array((P.data / P.sum(axis=1)[rows], P.indices, P.indptr), P.shape)


def _square(power: sparse.csr_array, max_entries: int) -> sparse.csr_array | None:
    """Return power @ power, or None where it has too many entries: sweeps are cheaper then."""
    states = power.shape[0]
    products = int(np.diff(power.indptr)[power.indices].sum())
    if products > max(states**2 // 4, 2**16):
        return None
    square = power @ power
    return _normalise_rows(square) if square.nnz <= max_entries else None


def _apply_operator(
    U: NDArray[np.floating],
    out: NDArray[np.floating],
    problem: _MicoProblem,
    P: sparse.csr_array,
    weight: float,
    *,
    doubling: bool = False,
) -> tuple[float, float, float]:
    """Set out = base + weight * P U P', base being the reward gaps or, in a doubling, U itself.

    States of different classes are at the diameter bound.

    Returns the smallest and the largest increase of an entry, and the largest entry.
    """
    row_stats = np.empty((len(U), 3))
    # One type for all indices: SciPy chooses it by size, and each would be compiled for.
    starts, successor = P.indptr.astype(np.int64), P.indices.astype(np.int32)

    def rows(low: int, high: int) -> None:
        _apply_operator_rows(
            U, out, starts, successor, P.data, problem.reward, problem.gap, problem.classes,
            problem.diameter_bound, weight, doubling, row_stats, low, high,
        )  # fmt: skip

    # A row adds up the rows of its successors, then an entry of it for each successor of a column.
    entries = int(len(U) * (P.nnz / len(U) + 1) + P.nnz / 2)
    table_kernels.map_rows(rows, len(U), entries)
    table_kernels.mirror(out)
    return float(row_stats[:, 0].min()), float(row_stats[:, 1].max()), float(row_stats[:, 2].max())


@njit(cache=True, nogil=True)
def _apply_operator_rows(
    U: NDArray[np.floating],
    out: NDArray[np.floating],
    starts: NDArray[Any],
    successor: NDArray[Any],
    probability: NDArray[np.float64],
    reward: NDArray[np.float64],
    gap: NDArray[np.float64],
    classes: NDArray[np.int64],
    diameter: float,
    weight: float,
    doubling: bool,
    row_stats: NDArray[np.float64],
    low: int,
    high: int,
) -> None:
    """Compute the half t <= s of `_apply_operator`, in float64 whatever the dtype of U."""
    states = U.shape[0]
    expected = np.empty(states)
    for i in range(low, high):
        s = table_kernels.balance_row(i, states)
        expected[:] = 0.0
        for k in range(starts[s], starts[s + 1]):
            row = U[successor[k]]
            for y in range(states):
                expected[y] += probability[k] * row[y]
        lowest, highest, largest = np.inf, -np.inf, 0.0
        for t in range(s + 1):
            mean = 0.0
            for k in range(starts[t], starts[t + 1]):
                mean += probability[k] * expected[successor[k]]
            if doubling:
                value = U[s, t] + weight * mean
            elif gap.size > 0:
                value = gap[s, t] + weight * mean
            else:
                value = abs(reward[s] - reward[t]) + weight * mean
            if classes[s] != classes[t]:
                value = diameter
            lowest, highest = min(lowest, value - U[s, t]), max(highest, value - U[s, t])
            largest = max(largest, value)
            out[s, t] = value
        row_stats[s, 0], row_stats[s, 1], row_stats[s, 2] = lowest, highest, largest


@functools.cache
def _warm_up(dtype: np.dtype[Any]) -> None:
    """Compile the kernels on a small chain, before the progress bar of the real one."""
    with announce_compilation("the kernels"):
        rewards, classes = np.array([0.0, 1.0]), np.zeros(2, np.int64)
        _solve(_MicoProblem(sparse.csr_array(np.eye(2)), rewards, 0.5, classes, 2.0), 1e-6, dtype)
