"""d_lax, the lax bisimulation metric of a deterministic MDP (Taylor et al. 2009)."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bisimetric import relation
from bisimetric.distance import Distance
from bisimetric.exact import paths, sweeps
from bisimetric.exact.table import Problem, Table, solved
from bisimetric.mdp import MDP
from bisimetric.progress import bar

FIRST_LEAP = 12
"""Sweeps before the first leap."""


def lax(mdp: MDP, *, tol: float | None = None, dtype: DTypeLike = "float64") -> Distance:
    """The lax bisimulation metric d_lax of a deterministic MDP, every entry proven to `tol`.

    With delta((s, a), (t, b)) = |R(s, a) - R(t, b)| + discount * d_lax(n(s, a), n(t, b)),

    d_lax(s, t) = max(max_a min_b delta((s, a), (t, b)), max_b min_a delta((s, a), (t, b))),

    the Hausdorff distance between the actions of s and those of t: an action may be answered by
    any action. |V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t).

    It is the value of a game on the pair graph, found by sweeps of value iteration in place. Now
    and then a leap: both players' best choices send each pair to one other, so what they are worth
    for ever is computed exactly, in one visit a pair (a Newton step; Pollatschek & Avi-Itzhak
    1969). In games such a step may go astray, so after each one that gained nothing the next is
    twice as far away, and value iteration converges in between. The residual of the last table
    proves `error`.

    Args:
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32.

    >>> from bisimetric import worlds
    >>> lax(worlds.load("pessimism"))("s", "t")
    0.0
    """
    return solved(
        "lax",
        mdp,
        of=mdp,
        labels=relation.lax,
        solve=solve,
        tables=1,
        scratch=6,
        tol=tol,
        dtype=dtype,
    )


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
            done = np.log(largest / residual) / np.log(largest / small) if residual > small else 1
            shown.at(max(0.0, float(done)), f"sweep {number}")
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
