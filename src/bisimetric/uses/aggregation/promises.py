"""What a distance promises of an aggregated MDP: how far values are off, what a policy loses.

Let d be a distance with |V(s) - V(t)| <= d(s, t), where V is V* for d~ and d_lax and V^pi for d^pi
and MICo. Each class c has a representative t_c, [s] is the class of s, and the aggregated MDP takes
rewards and transitions from the representatives:

    R'(c, a) = R(t_c, a),    P'(c, a)(k) = P(t_c, a)(class k),    V' its optimal value.

**Values.** Let r(s) = d(s, t_[s]). V*(t_c) and V'(c) are maxima over the same actions and the same
rewards, so

    |V*(s) - V'([s])| <= |V*(s) - V*(t_[s])| + |V*(t_[s]) - V'([s])|
                      <= r(s) + discount * max_a sum_x P(t_[s], a)(x) |V*(x) - V'([x])|.

Hence the solution of e(s) = r(s) + discount * max_a sum_x P(t_[s], a)(x) e(x), an optimal value
function again, bounds the left side, and is at most max r / (1 - discount). For d^pi what pi does
takes the place of the maxima. No two values differ by more than the range of R / (1 - discount).

Ferns, Panangaden & Precup (2004), Metrics for finite Markov decision processes, UAI, prove it of
d~ and an aggregated MDP that takes the means over a class. For any weights w on each class

    |V*(s) - V'([s])| <= max_a sum_t w(t) |Q*(s, a) - R(t, a) - discount * sum_x P(t, a)(x) V'([x])|
                      <= sum_t w(t) d~(s, t) + discount * max |V* - V'|,

since |Q*(s, a) - Q*(t, a)| <= d~(s, t) for every action a; so the largest mean distance divided by
1 - discount bounds the left side. Of d_lax the inequality for each action is wrong. A single
representative does without it, so that one construction serves all. What means can gain is a factor
of 2: a class of two has its mean in the middle.

**Policies.** Let a_c be the action that is solved for in class c, b the action of s that it is
lifted to, and delta(s) = |R(t, a_c) - R(s, b)| + discount * W1(d)(P(t, a_c), P(s, b)), with t for
t_[s]: how unlike they are. |V*(x) - V*(y)| <= d(x, y), so |Q*(t, a_c) - Q*(s, b)| <= delta(s), and

    V*(s) - Q*(s, b)  =  [V*(s) - V*(t)] + [V*(t) - Q*(t, a_c)] + [Q*(t, a_c) - Q*(s, b)]
                     <=  r(s) + max(m(c), 0) + delta(s),

    m(c) = max_{a != a_c} Q'(c, a) + E(c, a) - Q'(c, a_c) + E(c, a_c),
    E(c, a) = discount * sum_x P(t_c, a)(x) e(x) >= |Q*(t_c, a) - Q'(c, a)|.

- Under d~ b is a_c itself, and delta(s) <= d~(s, t). Any other action a of s has Q*(s, a) <=
  Q*(t, a) + r(s), so max(r(s) + m(c) + delta(s), 0) is a bound: where a_c is the best by a margin,
  nothing is lost.
- Under d_lax b minimises delta, which is then at most d_lax(s, t), as in Taylor, Precup &
  Panangaden (2009), Bounding performance loss in approximate MDP homomorphisms, NIPS 21. Another
  action of s may be as like a_c as b is, so a margin does not help.
- For d^pi a_c is what pi does in t, which loses nothing of V^pi: r(s) + delta(s) is a bound, and 0
  where b is what pi does in s. If pi is deterministic, delta(s) <= d^pi(s, t).

By the performance difference lemma V* - V^policy is the discounted sum of these regrets along the
policy: at most the value of its chain with their bounds for rewards; at most
2 max r / (1 - discount)^2; and no more than any policy can lose, the range of R / (1 - discount).

The error of d is added to r and, times the discount, to delta; the errors of solved values and of
rounding are added to e.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.mdp import MDP
from bisimetric.planning import UNIT
from bisimetric.uses.aggregation.groups import Groups
from bisimetric.uses.aggregation.lifting import Lifting
from bisimetric.uses.aggregation.solving import Small


class Source(NamedTuple):
    """An MDP, and a proven distance of it: its kind, its error, and its policy or None."""

    mdp: MDP
    kind: str | None
    error: float
    policy: NDArray[Any] | None


def promises(
    source: Source, groups: Groups, small: Small, lifting: Lifting, *, followed: bool
) -> tuple[float, float]:
    """No value is farther off than the first; the lifted policy loses no more than the second.

    Where regrets are not `followed` along the policy, which takes the solution of a linear system
    of all states, the largest counts for ever.
    """
    away = groups.representatives[groups.labels] != np.arange(source.mdp.num_states)
    near = groups.far + source.error * away
    off = values_off(source, groups, small, near)
    unlike = lifting.unlike + source.mdp.discount * source.error * away
    regrets = regrets_at_most(source, groups, small, lifting.policy, near + unlike, off)
    return float(off.max()), _loss(source.mdp, lifting.policy, regrets, followed)


def values_off(
    source: Source, groups: Groups, small: Small, near: NDArray[np.float64]
) -> NDArray[np.float64]:
    """e(s) >= |V(s) - V'([s])|, (S,), from r(s), (S,), which includes the error of the distance."""
    worst = small.mdp.replace(R=small.ahead(near))
    more = (
        planning.optimal_values(worst, tol=math.inf)
        if source.policy is None
        else planning.policy_values(worst, small.policy, tol=math.inf)
    )
    found = near + (more.values + more.error)[groups.labels]
    longest = int(np.diff(small.rows.indptr).max())
    largest = float(np.abs(small.mdp.R).max() + np.abs(small.values.values).max() + found.max())
    # Sums over rows, those of P' included, have a rounding a term; each counts for ever.
    rounding = (4 * longest + 16) * UNIT * largest / (1 - small.mdp.discount)
    return np.minimum(found + small.values.error + rounding, source.mdp.farthest)


def regrets_at_most(
    source: Source,
    groups: Groups,
    small: Small,
    policy: NDArray[np.int64],
    unlike: NDArray[np.float64],
    off: NDArray[np.float64],
) -> NDArray[np.float64]:
    """V(s) - Q(s, b) at most, (S,), from r(s) + delta(s) and e(s), (S,)."""
    mdp, pi, found = source.mdp, source.policy, unlike
    if pi is None:
        better = _margins(small, off)[groups.labels]
        found = unlike + np.maximum(better, 0.0)
        if source.kind == "bisimulation":
            alike = (mdp.has == mdp.has[groups.representatives[groups.labels]]).all(axis=1)
            found = np.where(alike, unlike + better, found)
    elif pi.ndim == 1:
        found = np.where(policy == pi, 0.0, unlike)
    return np.clip(found, 0.0, mdp.farthest)


def _margins(small: Small, off: NDArray[np.float64]) -> NDArray[np.float64]:
    """m(c), (classes,): how much better than a_c another action may be, or -inf."""
    mdp, unsure = small.mdp, small.ahead(off)
    Q = planning.action_values(mdp, small.values)
    taken = np.arange(mdp.num_actions) == small.policy[:, None]
    others = np.where(taken, -np.inf, Q + unsure).max(axis=1)
    return np.asarray(others - (Q - unsure)[taken])


def _loss(
    mdp: MDP, policy: NDArray[np.int64], regrets: NDArray[np.float64], followed: bool
) -> float:
    most = float(regrets.max()) / (1 - mdp.discount) * (1 + 4 * UNIT)
    if followed and most > 0:
        paid = mdp.replace(R=np.broadcast_to(regrets[:, None], mdp.R.shape))
        lost = planning.policy_values(paid, policy, tol=math.inf)
        most = min(most, float(lost.values.max()) + lost.error)
    return min(most, mdp.farthest)
