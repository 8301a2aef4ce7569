"""d_lax of a deterministic MDP: the value of a game on the pair graph.

Sweeps of value iteration, in place. Now and then a leap: both players' best choices send each pair
to one other, so what they are worth for ever is computed exactly, in one visit a pair (a Newton
step; Pollatschek & Avi-Itzhak 1969). In games such a step may go astray, so after each one that
gained nothing the next is twice as far away, and value iteration converges in between. The residual
of the last table proves the error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic import paths, sweeps
from bisimetric.exact.deterministic.problem import Problem
from bisimetric.exact.table import Table
from bisimetric.progress import bar, digits

FIRST_LEAP = 12
"""Sweeps before the first leap."""


def solve(problem: Problem) -> Table:
    """The table of d_lax by sweeps and leaps."""
    states, discount = problem.num_states, problem.discount
    d = np.zeros((states, states), problem.dtype)
    choice = np.zeros((states, states), np.uint16 if problem.num_actions < 256 else np.uint32)
    marks = np.zeros((states, states), np.uint8)
    path = np.empty(min(max(1, states * (states - 1) // 2), 2**20), np.int64)
    # Below the grain of the table no sweep can help; the proven error then says so.
    grain = 2 * float(np.finfo(problem.dtype).eps)
    number, leaps, since, interval, before = 0, 0, 0, FIRST_LEAP, np.inf
    with bar(1.0, "d_lax: digits of the error") as shown:
        while True:
            residual, largest = _sweep(problem, d, backward=number % 2 == 1)
            number, since = number + 1, since + 1
            small = max(problem.least, grain * largest)
            if residual <= small:
                # The sweep changed the table; this one does not, so its residual is the table's.
                residual, largest = _sweep(problem, d, write=False)
                if residual <= small:
                    break
            elif since >= interval:
                if residual > before * discount**since:
                    interval *= 2
                before, since, leaps = residual, 0, leaps + 1
                sweeps.lax_choices(d, problem.successor, problem.reward, discount, choice)
                paths.evaluate(d, choice, marks, path, problem.successor, problem.reward, discount)
                sweeps.mirror(d)
            shown.at(digits(residual, small, largest), f"sweep {number}")
    how = {"method": "sweep, leap", "sweeps": number, "leaps": leaps}
    return Table(d, residual, largest, how)


def _sweep(
    problem: Problem, d: NDArray[np.floating], *, backward: bool = False, write: bool = True
) -> tuple[float, float]:
    """The largest |F(d) - d| and F(d) of a sweep, in place unless it only looks."""
    states = problem.num_states
    size = sweeps.block_size(states)
    fresh, tally = np.empty((size, states)), np.zeros((states, 2))
    blocks = range(0, states, size)
    for low in reversed(blocks) if backward else blocks:
        high = min(states, low + size)
        sweeps.lax_block(
            d, fresh, low, high, problem.successor, problem.reward, problem.discount, tally
        )
        if write:
            sweeps.write_block(d, fresh, low, high)
    residual, largest = tally.max(axis=0)
    return float(residual), float(largest)
