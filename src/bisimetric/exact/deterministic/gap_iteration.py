"""d~ of a deterministic MDP with further costs: Howard's policy iteration on the pair graph.

Every pair follows one action to one successor pair, so that a policy is evaluated by doubling the
number of summed terms, as in `doubling`. In exact arithmetic values increase from round to round;
the residual of the result proves its error whatever rounding does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult, SweepLimit

NUM_MATRICES = 8
"""The memory that `solve` takes besides the gap, in float64 matrices."""
MAX_ROUNDS = 200
"""Rounds of policy iteration, which needs a few dozen; then sweeps of value iteration follow."""


def solve(
    reward: NDArray[np.float64],
    cost: NDArray[np.float64],
    successor: NDArray[np.integer],
    available: NDArray[np.bool_],
    classes: NDArray[np.int64],
    discount: float,
    diameter_bound: float,
    residual_tolerance: float,
) -> SolverResult:
    """Compute d~ to a residual tolerance, or to the precision floor.

        F(d)(s, t) = max_a |R(s, a) - R(t, a)| + cost_a(s, t) + discount * d(next(s, a), next(t, a))

    Args:
        reward: (S, A).
        cost: (A or 1, S, S), symmetric and 0 on the diagonal.
        successor: (S, A).
        available: (S, A), equal for states of one class.
        classes: (S,): states of different classes are at `diameter_bound`.
        discount: in [0, 1).
        diameter_bound: the largest possible distance.
        residual_tolerance: the largest |F(d) - d| allowed.
    """
    states, actions = successor.shape
    incomparable = classes[:, None] != classes
    d, rounds = np.zeros((states, states)), 0
    # Below the precision floor no round can help; the proven error includes it.
    tolerance = max(residual_tolerance, 8 * UNIT * diameter_bound)
    limit = SweepLimit(states)
    with show_progress(1.0, "pairs: digits of the error") as progress:
        while True:
            backup = np.full((states, states), -np.inf)
            choice = np.zeros((states, states), np.int32)
            for a in range(actions):
                value = d[np.ix_(successor[:, a], successor[:, a])]
                value *= discount
                value += cost[min(a, len(cost) - 1)] + np.abs(reward[:, a, None] - reward[:, a])
                value[~available[:, a]] = -np.inf
                better = value > backup
                backup[better], choice[better] = value[better], a
            backup[incomparable] = diameter_bound
            np.fill_diagonal(backup, 0.0)
            residual, largest = float(np.abs(backup - d).max()), float(backup.max())
            if residual <= tolerance or limit.is_exceeded(rounds, residual, tolerance):
                details = {"method": "policy iteration", "rounds": rounds}
                return SolverResult(d, residual, largest, details)
            rounds += 1
            if rounds > MAX_ROUNDS:
                d = backup
            else:
                d = np.maximum(
                    _evaluate(
                        reward, cost, successor, choice, incomparable, discount, backup, tolerance
                    ),
                    backup if rounds == 1 else d,
                )
            progress.set_position(
                convergence_fraction(residual, tolerance, largest), f"round {rounds}"
            )


def _evaluate(
    reward: NDArray[np.float64],
    cost: NDArray[np.float64],
    successor: NDArray[np.integer],
    choice: NDArray[np.int32],
    incomparable: NDArray[np.bool_],
    discount: float,
    backup: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """Return the infinite-horizon value of the chosen actions, (S, S), from below.

    Pair 0, of a state with itself, is absorbing at 0; decided pairs lead there.
    """
    states = len(choice)
    s = np.arange(states)
    following = successor[s[:, None], choice].astype(np.int64) * states
    following += successor[s[None, :], choice]
    value = np.take_along_axis(cost, np.minimum(choice, len(cost) - 1)[None], axis=0)[0]
    value += np.abs(reward[s[:, None], choice] - reward[s[None, :], choice])
    value[incomparable], following[incomparable] = backup[incomparable], 0
    np.fill_diagonal(value, 0.0)
    np.fill_diagonal(following, 0)
    value, following, weight = value.ravel(), following.ravel(), discount
    largest = max(float(backup.max()), 1e-300) / (1 - discount)
    terms = 1.0
    if discount > 0:
        terms = max(1.0, math.log(min(1.0, tolerance / 8 / largest)) / math.log(discount))
    for _ in range(math.ceil(math.log2(terms)) if terms > 1 else 0):
        value = value + weight * value[following]
        following, weight = following[following], weight * weight
    return np.asarray(value.reshape(states, states))
