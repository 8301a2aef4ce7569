"""Which action each state of the target takes, and what the policy is then worth at least."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.mdp import MDP
from bisimetric.rounding import TINY, UNIT
from bisimetric.uses.proofs import add_upward, multiply_upward, round_upward
from bisimetric.uses.transfer.imitation import solve_imitation
from bisimetric.uses.transfer.matching import TIE_TOLERANCE, ActionBounds

TransferRule = Literal["optimistic", "pessimistic", "nearest", "hopeful"]
IMITATION_TOLERANCE = 1e-6
"""The error that is asked of the optimistic distance, times 1 - discount."""


class MatchedPolicy(NamedTuple):
    """A policy (S2,) of the target, and where it comes from; see `Transfer`.

    `match` (S2,) are numbers s * A1 + a of the source's actions, `distances` (S2,) how far from
    them those of the policy are, and `lower` (S2,) is proven to be no more than its values.
    """

    policy: NDArray[np.int64]
    matches: NDArray[np.int64]
    distances: NDArray[np.float64]
    value_lower_bound: NDArray[np.float64]


def choose_by_bounds(
    rule: TransferRule,
    target: MDP,
    bounds: ActionBounds,
    nearest_actions: NDArray[np.int64],
    bound_error: float,
) -> MatchedPolicy:
    """The choice of every rule but the optimistic one.

    `asked` (S2,) is what the nearest rule answers. `off` is the error of the bounds: `low` and `up`
    are within it of those that the true distance and the true values make.
    """
    tables = {
        "nearest": (
            -bounds.response_distances,
            nearest_actions[:, None],
            bounds.response_distances,
        ),
        "pessimistic": (bounds.lower, bounds.lower_matches, bounds.lower_distances),
        "hopeful": (bounds.upper, bounds.upper_matches, bounds.upper_distances),
    }
    worth, match, delta = tables[rule]
    each = np.arange(target.num_states)
    policy = worth.argmax(axis=1)
    best = bounds.lower.max(axis=1)
    short = add_upward(best, -bounds.lower[each, policy])
    paid = target.replace(R=np.broadcast_to(short[:, None], target.R.shape))
    along = planning.policy_values(paid, policy, tol=math.inf)
    lower = -add_upward(
        -best, along.values, along.error, _accumulate_error(bound_error, target.discount)
    )
    match = np.broadcast_to(match, target.R.shape)
    return MatchedPolicy(policy, match[each, policy], delta[each, policy], lower)


def choose_by_imitation(
    source: MDP, target: MDP, source_policy: NDArray[np.int64]
) -> MatchedPolicy:
    """The choice of the optimistic rule: each t imitates the s with the largest V1 - d_o.

    Let V be V1 of the policy `best` as computed, to within v, and d be d_o as computed, whose
    residual proves its error e: the answer b of t to s costs at most d(s, t) + (1 - discount) e.
    With L(t) = max_s V(s) - (1 + TIE) d(s, t), attained by s, the policy's backup of L is

        R2(t, b) + discount * E L(y)
            >=  V1(s) - discount * v - (1 + TIE) (d(s, t) + (1 - discount) e)
            >=  L(t) - (1 + discount) v - (1 + TIE) (1 - discount) e,

    so that its values are L or more, less (1 + discount) / (1 - discount) v and (1 + TIE) e. TIE
    prefers the nearest of equals, and costs nothing but that. L is rounded by a unit of the product
    and one of the difference, which is added to v.
    """
    followed = planning.policy_values(source, source_policy, tol=math.inf)
    alike = solve_imitation(
        source, source_policy, target, tol=IMITATION_TOLERANCE * (1 - source.discount)
    )
    worth = followed.values[:, None] - (1 + TIE_TOLERANCE) * alike.values
    each, like = np.arange(target.num_states), worth.argmax(axis=0)
    largest = float(np.abs(followed.values).max() + alike.values.max())
    off = add_upward(followed.error, 3 * (UNIT * largest + TINY))
    lower = -add_upward(
        -worth[like, each],
        _accumulate_error(off, target.discount),
        multiply_upward(1 + 2 * TIE_TOLERANCE, alike.error),
    )
    return MatchedPolicy(
        alike.actions[like, each],
        like * source.num_actions + source_policy[like],
        alike.values[like, each],
        lower,
    )


def _accumulate_error(backup_error: float, discount: float) -> float:
    """What errors cost a lower bound L of the values of a policy.

    Where L and low(t, pi(t)) are within `off` of what they stand for, the policy's backup of L is
    at least L less (1 + discount) * off, and its values are L less this / (1 - discount).
    """
    if not math.isfinite(backup_error):
        return math.inf
    share = Fraction(discount)
    return round_upward((1 + share) / (1 - share) * Fraction(backup_error))
