"""d_lax, the lax bisimulation metric of a deterministic MDP (Taylor et al. 2009)."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from bisimetric import relation
from bisimetric.distance import Distance
from bisimetric.exact import paths, sweeps
from bisimetric.exact.table import Problem, Table, solved
from bisimetric.mdp import MDP
from bisimetric.progress import bar

SWEEPS_AFTER_REFUSAL = 8


def lax(mdp: MDP, *, tol: float | None = None, dtype: DTypeLike = "float64") -> Distance:
    """The lax bisimulation metric d_lax of a deterministic MDP, every entry proven to `tol`.

    With delta((s, a), (t, b)) = |R(s, a) - R(t, b)| + discount * d_lax(n(s, a), n(t, b)),

    d_lax(s, t) = max(max_a min_b delta((s, a), (t, b)), max_b min_a delta((s, a), (t, b))),

    the Hausdorff distance between the actions of s and those of t: an action may be answered by
    any action. |V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t).

    It is the value of a game on the pair graph. Both players' best choices for a table send each
    pair to one other, so what they are worth for ever is computed exactly, in one visit a pair
    (a Newton step). In games such a step may go astray: it is kept when the residual falls by
    more than value iteration promises, else value iteration goes on from before it. The residual
    of the last table proves `error`.

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
        tables=2.6,
        tol=tol,
        dtype=dtype,
    )


def solve(problem: Problem) -> Table:
    """The table of d_lax by guarded Newton steps."""
    states, discount = problem.num_states, problem.discount
    pairs = max(1, states * (states - 1) // 2)
    d = np.zeros((states, states), problem.dtype)
    kept = np.zeros((states, states), problem.dtype)
    choice = np.zeros((states, states), np.uint16 if problem.num_actions < 256 else np.uint32)
    marks = np.zeros((states, states), np.uint8)
    path = np.empty(min(pairs, 2**20), np.int64)
    grain = float(np.finfo(problem.dtype).eps)
    counts = {"newton": 0, "sweeps": 0}
    residual, largest = _sweep(problem, d, choice, write=False)
    wanted = np.log(max(residual, problem.least) / problem.least)
    with bar(1.0, "d_lax: digits of the residual", "") as shown:
        # Below the grain of the table no step can help; the proven error then says so.
        while residual > max(problem.least, 2 * grain * largest):
            kept[:] = d
            paths.evaluate(
                d, choice, marks, path, problem.successor, problem.reward, problem.discount
            )
            sweeps.mirror(d)
            counts["newton"] += 1
            before = residual
            residual, largest = _sweep(problem, d, choice, write=False)
            if residual > discount * before:
                d[:] = kept
                for _ in range(SWEEPS_AFTER_REFUSAL):
                    _sweep(problem, d, choice, write=True)
                    counts["sweeps"] += 1
                residual, largest = _sweep(problem, d, choice, write=False)
            left = np.log(max(residual, problem.least) / problem.least)
            shown.at(1 - left / max(wanted, 1e-9), f"error <= {residual / (1 - discount):.1g}")
    return Table(d, residual, largest, {"method": "guarded Newton", **counts})


def _sweep(
    problem: Problem, d: np.ndarray, choice: np.ndarray, *, write: bool
) -> tuple[float, float]:
    """The largest |F(d) - d| and F(d), with the choices that attain it; writes F(d) if asked."""
    states = problem.num_states
    fresh, tally = np.empty((sweeps.BLOCK, states)), np.zeros((states, 2))
    for low in range(0, states, sweeps.BLOCK):
        high = min(states, low + sweeps.BLOCK)
        sweeps.lax_rows(
            d, fresh, low, high, problem.successor, problem.reward, problem.discount, choice, tally
        )
        if write:
            sweeps.write_block(d, fresh, low, high)
    residual, largest = tally.max(axis=0)
    return float(residual), float(largest)
