"""d_lax of a deterministic MDP: the value of a game on the pair graph.

In-place value iteration alternates with policy evaluation: the greedy choices of both players send
each pair to one other, so that their infinite-horizon value is computed exactly, in one visit per
pair (a Newton step; Pollatschek & Avi-Itzhak 1969). In games such a step may diverge. After the
first without gain, the actions of the maximising player are held until the responses to them are
optimal (Hoffman & Karp 1966): those values increase monotonically, at any discount. Where rounding
spoils even that, evaluations become rare, and then stop. The residual of the result proves its
error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic import pair_kernels, table_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem

FIRST_EVALUATION = 12
"""Sweeps before the first policy evaluation."""
PATIENCE = 8
"""Evaluations in a row without gain, before they become rarer."""
MAX_RESPONSES = 50
"""Rounds of policy iteration over the responses."""


def solve(problem: DeterministicProblem) -> SolverResult:
    """Compute d_lax by value iteration and policy evaluation."""
    states, discount = problem.num_states, problem.discount
    d = np.zeros((states, states), problem.dtype)
    choice = np.zeros((states, states), np.uint16 if problem.num_actions < 181 else np.uint32)
    no_choice = int(np.iinfo(choice.dtype).max)
    marks = np.zeros((states, states), np.uint8)
    path = np.empty(min(max(1, states * (states - 1) // 2), 2**20), np.int64)
    # Below the precision floor no sweep can help; the proven error includes it.
    precision_floor = 2 * float(np.finfo(problem.dtype).eps)
    num_sweeps, num_evaluations, since, interval, previous = 0, 0, 0, FIRST_EVALUATION, np.inf
    evaluating, optimise_responses, without_gain = True, False, 0
    limit = SweepLimit(16 * states)
    with show_progress(1.0, "d_lax: digits of the error") as progress:
        while True:
            residual, largest = _sweep(problem, d, backward=num_sweeps % 2 == 1)
            num_sweeps, since = num_sweeps + 1, since + 1
            tolerance = max(problem.residual_tolerance, precision_floor * largest)
            if residual <= tolerance:
                # That sweep changed the matrix; the residual of the result needs one that does not.
                residual, largest = _sweep(problem, d, write=False)
                if residual <= tolerance:
                    break
            elif limit.is_exceeded(num_sweeps, residual, tolerance):
                if not evaluating:
                    residual, largest = _sweep(problem, d, write=False)
                    break
                evaluating, limit = False, SweepLimit(16 * states)
            elif evaluating and since >= interval:
                without_gain = without_gain + 1 if residual > previous * discount**since else 0
                if without_gain and not optimise_responses:
                    optimise_responses, interval, without_gain = True, 1, 0
                elif without_gain == PATIENCE:
                    interval, without_gain = 2 * interval, 0
                previous, since, num_evaluations = residual, 0, num_evaluations + 1
                table_kernels.select_lax_choices(
                    d, problem.successor, problem.reward, discount, problem.classes, choice,
                    no_choice,
                )  # fmt: skip
                _evaluate(problem, d, choice, marks, path, optimise_responses=optimise_responses)
            progress.set_position(
                convergence_fraction(residual, tolerance, largest), f"sweep {num_sweeps}"
            )
    details = {
        "method": "value iteration, policy evaluation",
        "sweeps": num_sweeps,
        "evaluations": num_evaluations,
    }
    return SolverResult(d, residual, largest, details)


def _evaluate(
    problem: DeterministicProblem,
    d: NDArray[np.floating],
    choice: NDArray[np.unsignedinteger],
    marks: NDArray[np.uint8],
    path: NDArray[np.int64],
    *,
    optimise_responses: bool,
) -> None:
    """Set d to the value of the choices, after optimising the responses where asked to."""
    dynamics = problem.successor, problem.reward, problem.discount
    no_choice = int(np.iinfo(choice.dtype).max)
    for _ in range(MAX_RESPONSES if optimise_responses else 1):
        pair_kernels.evaluate_policy(d, choice, marks, path, *dynamics, no_choice)
        table_kernels.mirror(d)
        if not optimise_responses:
            return
        tolerance = problem.residual_tolerance
        if table_kernels.improve_lax_responses(d, *dynamics, choice, no_choice, tolerance) == 0:
            return


def _sweep(
    problem: DeterministicProblem,
    d: NDArray[np.floating],
    *,
    backward: bool = False,
    write: bool = True,
) -> tuple[float, float]:
    """Sweep once, in place unless `write` is False; return the largest |F(d) - d| and F(d)."""
    states = problem.num_states
    size = table_kernels.choose_block_size(states)
    backup, row_stats = np.empty((size, states)), np.zeros((states, 2))
    blocks = range(0, states, size)
    for low in reversed(blocks) if backward else blocks:
        high = min(states, low + size)
        table_kernels.sweep_lax_block(
            d, backup, low, high, problem.successor, problem.reward, problem.discount,
            problem.classes, problem.diameter_bound, row_stats,
        )  # fmt: skip
        if write:
            table_kernels.write_block(d, backup, low, high)
    residual, largest = row_stats.max(axis=0)
    return float(residual), float(largest)
