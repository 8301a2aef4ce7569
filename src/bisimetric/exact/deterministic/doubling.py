"""Distances where every pair has one successor: the number of summed terms doubles per round."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult
from bisimetric.exact.deterministic import table_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem


def count_doublings(reward: NDArray[np.float64], discount: float, residual_tolerance: float) -> int:
    """Return how often the terms must double until the truncation error is small enough.

    After k terms it is at most discount^k times the largest distance.

    >>> count_doublings(np.array([[0.0, 1.0]]), 0.99, 1e-9)
    12
    """
    truncation = residual_tolerance * (1 - discount) / max(float(np.ptp(reward)), 1e-300)
    target = max(min(truncation, 1.0), UNIT)
    terms = 1.0 if discount == 0 else max(1.0, math.log(target) / math.log(discount))
    return math.ceil(math.log2(terms))


def solve(problem: DeterministicProblem) -> SolverResult:
    """Compute the distances of a problem with one action.

        d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t))

    with n_k(s) the state after k steps.
    """
    states, discount = problem.num_states, problem.discount
    d, spare = (np.empty((states, states), problem.dtype) for _ in range(2))
    table_kernels.compute_reward_gaps(problem.reward[0], d)
    rounds = count_doublings(problem.reward, discount, problem.residual_tolerance)
    successor, weight = problem.successor[0], discount
    with show_progress(rounds, "doublings") as progress:
        for number in range(rounds):
            table_kernels.double_horizon(d, spare, successor, weight)
            table_kernels.mirror(spare)
            d, spare = spare, d
            successor, weight = successor[successor], weight * weight
            progress.set_position(number + 1)
    del spare
    row_stats = np.zeros((states, 2))
    table_kernels.compute_chain_residual(
        d, problem.successor[0], problem.reward[0], discount, row_stats
    )
    residual, largest = row_stats.max(axis=0)
    details = {"method": "doubling", "rounds": rounds}
    return SolverResult(d, float(residual), float(largest), details)
