"""d_lax of a deterministic MDP: the value of a game on the pair graph.

Sweeps of value iteration, in place. Now and then a leap: both players' best choices send each pair
to one other, so what they are worth for ever is computed exactly, in one visit per pair (a Newton
step; Pollatschek & Avi-Itzhak 1969). In games such a step may go astray. After the first that
gained nothing, the actions of the maximising player are held until the other's answers to them are
optimal (Hoffman & Karp 1966): those values increase from leap to leap, at any discount. Where
rounding spoils even that, leaps become rare, and then cease. The residual of the last table proves
the error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic import pair_kernels, table_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem

FIRST_EVALUATION = 12
"""Sweeps before the first leap."""
PATIENCE = 8
"""Leaps with optimal answers in a row that may gain nothing, before they become rarer."""
MAX_RESPONSES = 50
"""Rounds of policy iteration in which answers become optimal."""


def solve(problem: DeterministicProblem) -> SolverResult:
    """The table of d_lax by sweeps and leaps."""
    states, discount = problem.num_states, problem.discount
    d = np.zeros((states, states), problem.dtype)
    choice = np.zeros((states, states), np.uint16 if problem.num_actions < 181 else np.uint32)
    marks = np.zeros((states, states), np.uint8)
    path = np.empty(min(max(1, states * (states - 1) // 2), 2**20), np.int64)
    # Below the grain of the table no sweep can help; the proven error then says so.
    grain = 2 * float(np.finfo(problem.dtype).eps)
    number, leaps, since, interval, before = 0, 0, 0, FIRST_EVALUATION, np.inf
    leaping, respond, vain = True, False, 0
    limit = SweepLimit(16 * states)
    with show_progress(1.0, "d_lax: digits of the error") as shown:
        while True:
            residual, largest = _sweep(problem, d, backward=number % 2 == 1)
            number, since = number + 1, since + 1
            small = max(problem.residual_tolerance, grain * largest)
            if residual <= small:
                # The sweep changed the table; this one does not, so its residual is the table's.
                residual, largest = _sweep(problem, d, write=False)
                if residual <= small:
                    break
            elif limit.is_exceeded(number, residual, small):
                if not leaping:
                    residual, largest = _sweep(problem, d, write=False)
                    break
                leaping, limit = False, SweepLimit(16 * states)
            elif leaping and since >= interval:
                vain = vain + 1 if residual > before * discount**since else 0
                if vain and not respond:
                    respond, interval, vain = True, 1, 0
                elif vain == PATIENCE:
                    interval, vain = 2 * interval, 0
                before, since, leaps = residual, 0, leaps + 1
                table_kernels.select_lax_choices(
                    d, problem.successor, problem.reward, discount, choice
                )
                _evaluate(problem, d, choice, marks, path, optimise_responses=respond)
            shown.set_position(convergence_fraction(residual, small, largest), f"sweep {number}")
    how = {"method": "sweep, leap", "sweeps": number, "leaps": leaps}
    return SolverResult(d, residual, largest, how)


def _evaluate(
    problem: DeterministicProblem,
    d: NDArray[np.floating],
    choice: NDArray[np.unsignedinteger],
    marks: NDArray[np.uint8],
    path: NDArray[np.int64],
    *,
    optimise_responses: bool,
) -> None:
    """Sets d to the value of the choices; to `respond`, answers are made optimal to the actions."""
    given = problem.successor, problem.reward, problem.discount
    for _ in range(MAX_RESPONSES if optimise_responses else 1):
        pair_kernels.evaluate_policy(d, choice, marks, path, *given)
        table_kernels.mirror(d)
        if (
            not optimise_responses
            or table_kernels.improve_lax_responses(d, *given, choice, problem.residual_tolerance)
            == 0
        ):
            return


def _sweep(
    problem: DeterministicProblem,
    d: NDArray[np.floating],
    *,
    backward: bool = False,
    write: bool = True,
) -> tuple[float, float]:
    """The largest |F(d) - d| and F(d) of a sweep, in place unless it only looks."""
    states = problem.num_states
    size = table_kernels.choose_block_size(states)
    fresh, tally = np.empty((size, states)), np.zeros((states, 2))
    blocks = range(0, states, size)
    for low in reversed(blocks) if backward else blocks:
        high = min(states, low + size)
        table_kernels.sweep_lax_block(
            d, fresh, low, high, problem.successor, problem.reward, problem.discount, tally
        )
        if write:
            table_kernels.write_block(d, fresh, low, high)
    residual, largest = tally.max(axis=0)
    return float(residual), float(largest)
