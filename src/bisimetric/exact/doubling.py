"""Distances where every pair has one successor: the first terms of the sum, doubled."""

from __future__ import annotations

import numpy as np

from bisimetric.exact import sweeps
from bisimetric.exact.table import UNIT, Problem, Table
from bisimetric.progress import bar


def solve(problem: Problem) -> Table:
    """The table of a problem with one action.

    d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)), with n_k(s) the state after k steps.
    """
    states, discount = problem.num_states, problem.discount
    d, spare = np.empty((2, states, states), problem.dtype)
    sweeps.gaps(problem.reward[0], d)
    ahead, weight, rounds = problem.successor[0], discount, 0
    # What is left out after k terms is at most discount^k times the largest distance.
    small = problem.least * (1 - discount) / max(float(np.ptp(problem.reward)), 1e-300)
    enough = max(min(small, 1.0), UNIT)
    expected = max(1, int(np.ceil(np.log2(max(1.0, np.log(enough) / np.log(max(weight, 1e-9)))))))
    with bar(expected, "doublings") as shown:
        while weight > enough:
            sweeps.double(d, spare, ahead, weight)
            sweeps.mirror(spare)
            d, spare = spare, d
            ahead, weight, rounds = ahead[ahead], weight * weight, rounds + 1
            shown.at(rounds)
    del spare
    tally = np.zeros((states, 2))
    sweeps.chain_residual(d, problem.successor[0], problem.reward[0], discount, tally)
    residual, largest = tally.max(axis=0)
    how = {"method": "doubling", "rounds": rounds}
    return Table(d, float(residual), float(largest), how)
