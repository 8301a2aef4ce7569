"""Distances where every pair has one successor: the number of summed terms doubles per round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult
from bisimetric.exact.deterministic import table_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem


def count_doublings(largest_gap: float, discount: float, residual_tolerance: float) -> int:
    """Return how often the terms must double until the truncation error is small enough.

    After k terms it is at most discount^k times the largest distance.

    >>> count_doublings(1.0, 0.99, 1e-9)
    12
    """
    truncation = residual_tolerance * (1 - discount) / max(largest_gap, 1e-300)
    target = max(min(truncation, 1.0), UNIT)
    terms = 1.0 if discount == 0 else max(1.0, math.log(target) / math.log(discount))
    return math.ceil(math.log2(terms))


def solve(problem: DeterministicProblem) -> SolverResult:
    """Compute the distances of a problem with one action.

        d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t))

    with n_k(s) the state after k steps.
    """
    states, discount = problem.num_states, problem.discount
    d = np.empty((states, states), problem.dtype)
    table_kernels.compute_reward_gaps(problem.reward[0], d)
    rounds = count_doublings(problem.largest_gap, discount, problem.residual_tolerance)
    d = _double(d, problem.successor[0], discount, rounds)
    row_stats = np.zeros((states, 2))
    table_kernels.compute_chain_residual(
        d, problem.successor[0], problem.reward[0], discount, row_stats
    )
    residual, largest = row_stats.max(axis=0)
    details = {"method": "doubling", "rounds": rounds}
    return SolverResult(d, float(residual), float(largest), details)


def solve_gaps(
    gap: NDArray[np.float64],
    successor: NDArray[Any],
    discount: float,
    residual_tolerance: float,
    dtype: np.dtype[Any],
) -> SolverResult:
    """Compute the distances of a chain with a symmetric gap (S, S) of its own."""
    rounds = count_doublings(float(gap.max()), discount, residual_tolerance)
    successor = successor.astype(np.uint32)
    d = _double(gap.astype(dtype), successor, discount, rounds)
    residual, largest = 0.0, 0.0
    for s in range(len(d)):
        backup = gap[s] + discount * d[successor[s]].astype(np.float64)[successor]
        residual = max(residual, float(np.abs(backup - d[s]).max()))
        largest = max(largest, float(backup.max()))
    return SolverResult(d, residual, largest, {"method": "doubling", "rounds": rounds})


def _double(
    d: NDArray[Any], successor: NDArray[np.uint32], discount: float, rounds: int
) -> NDArray[Any]:
    """Double the number of summed terms `rounds` times, from the symmetric gaps d."""
    spare, weight = np.empty_like(d), discount
    with show_progress(rounds, "doublings") as progress:
        for number in range(rounds):
            table_kernels.double_horizon(d, spare, successor, weight)
            table_kernels.mirror(spare)
            d, spare = spare, d
            successor, weight = successor[successor], weight * weight
            progress.set_position(number + 1)
    return d
