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
from bisimetric.uses.proofs import add_up, round_up, scale_up
from bisimetric.uses.transfer.imitation import imitation
from bisimetric.uses.transfer.matching import TIE, Matched

Rule = Literal["optimistic", "pessimistic", "nearest", "hopeful"]
ALIKE = 1e-6
"""The error that is asked of the optimistic distance, times 1 - discount."""


class Choice(NamedTuple):
    """A policy (S2,) of the target, and where it comes from; see `Transfer`.

    `match` (S2,) are numbers s * A1 + a of the source's actions, `distances` (S2,) how far from
    them those of the policy are, and `lower` (S2,) is proven to be no more than its values.
    """

    policy: NDArray[np.int64]
    match: NDArray[np.int64]
    distances: NDArray[np.float64]
    lower: NDArray[np.float64]


def by_bounds(
    rule: Rule, target: MDP, found: Matched, asked: NDArray[np.int64], off: float
) -> Choice:
    """The choice of every rule but the optimistic one.

    `asked` (S2,) is what the nearest rule answers. `off` is the error of the bounds: `low` and `up`
    are within it of those that the true distance and the true values make.
    """
    tables = {
        "nearest": (-found.answers, asked[:, None], found.answers),
        "pessimistic": (found.low, found.below, found.low_delta),
        "hopeful": (found.up, found.above, found.up_delta),
    }
    worth, match, delta = tables[rule]
    each = np.arange(target.num_states)
    policy = worth.argmax(axis=1)
    best = found.low.max(axis=1)
    short = add_up(best, -found.low[each, policy])
    paid = target.replace(R=np.broadcast_to(short[:, None], target.R.shape))
    along = planning.policy_values(paid, policy, tol=math.inf)
    lower = -add_up(-best, along.values, along.error, _for_ever(off, target.discount))
    match = np.broadcast_to(match, target.R.shape)
    return Choice(policy, match[each, policy], delta[each, policy], lower)


def by_imitation(source: MDP, target: MDP, best: NDArray[np.int64]) -> Choice:
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
    followed = planning.policy_values(source, best, tol=math.inf)
    alike = imitation(source, best, target, tol=ALIKE * (1 - source.discount))
    worth = followed.values[:, None] - (1 + TIE) * alike.values
    each, like = np.arange(target.num_states), worth.argmax(axis=0)
    largest = float(np.abs(followed.values).max() + alike.values.max())
    off = add_up(followed.error, 3 * (UNIT * largest + TINY))
    lower = -add_up(
        -worth[like, each], _for_ever(off, target.discount), scale_up(1 + 2 * TIE, alike.error)
    )
    return Choice(
        alike.actions[like, each],
        like * source.num_actions + best[like],
        alike.values[like, each],
        lower,
    )


def _for_ever(off: float, discount: float) -> float:
    """What errors cost a lower bound L of the values of a policy.

    Where L and low(t, pi(t)) are within `off` of what they stand for, the policy's backup of L is
    at least L less (1 + discount) * off, and its values are L less this / (1 - discount).
    """
    if not math.isfinite(off):
        return math.inf
    share = Fraction(discount)
    return round_up((1 + share) / (1 - share) * Fraction(off))
