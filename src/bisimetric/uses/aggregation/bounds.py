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
- For d^pi and MICo the step that is lifted is that of pi in t, with the reward R^pi(t) and the
  distribution P^pi(t), so that

      delta(s) = |R^pi(t) - R(s, b)| + discount * W1(d)(P^pi(t), P(s, b)),

  and pi loses nothing of V^pi in t: r(s) + delta(s) is a bound. It is 0 where b is all that pi does
  in s. If pi is deterministic, delta(s) <= d(s, t). If pi mixes actions, no such bound exists, not
  even where s is t itself and r(s) = 0: a mixture is unlike each action that it is made of, by
  distances of d, and the error of d counts there as it does elsewhere.

By the performance difference lemma V - V^policy is the discounted sum of these regrets along the
policy: at most the value of its chain with their bounds for rewards; unless pi mixes actions, at
most 2 max r / (1 - discount)^2; and no more than any policy can lose, the range of R / (1 -
discount).

**Errors.** Distances are known to within the error of d, which is added to r(s) unless s is t, and,
times the discount, to delta(s) unless s is t and b is what is done there for certain: then r or
delta are 0 by definition. The values of the aggregated MDP are known to within `values.error`, and
so is e added to by that. Every sum and product that is rounded is rounded up, or what it may lose
is added: see `values_off`, `_margins` and `likenesses`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._rounding import TINY, UNIT
from bisimetric.mdp import MDP
from bisimetric.uses.aggregation.aggregate_mdp import AggregateMDP, LiftedPolicy
from bisimetric.uses.aggregation.clustering import Clustering
from bisimetric.uses.certificates import add_upward, diameter_bound, multiply_upward, round_upward


class CertifiedDistance(NamedTuple):
    """An MDP, and a proven distance of it: its kind, its error, and its policy or None."""

    mdp: MDP
    kind: str | None
    error: float
    policy: NDArray[Any] | None


def compute_bounds(
    certified: CertifiedDistance,
    clustering: Clustering,
    aggregate: AggregateMDP,
    lifted: LiftedPolicy,
    *,
    evaluate_chain: bool,
) -> tuple[float, float]:
    """No value is farther off than the first; the lifted policy loses no more than the second.

    Where regrets are not `followed` along the policy, which takes the solution of a linear system
    of all states, the largest counts for ever.
    """
    mdp, diameter = certified.mdp, diameter_bound(certified.mdp)
    away = clustering.representatives[clustering.labels] != np.arange(mdp.num_states)
    near = np.where(
        away,
        np.minimum(add_upward(clustering.representative_distances, certified.error), diameter),
        0.0,
    )
    off = bound_value_errors(certified, clustering, aggregate, near)
    unlike = add_upward(lifted.action_distances, multiply_upward(mdp.discount, certified.error))
    unlike = np.where(lifted.identical, 0.0, unlike)
    regrets = bound_regrets(
        certified, clustering, aggregate, lifted.policy, add_upward(near, unlike), off
    )
    promised = _bound_policy_regret(
        mdp, lifted.policy, np.clip(regrets, 0.0, diameter), evaluate_chain
    )
    return min(float(off.max()), diameter), min(promised, diameter)


def bound_value_errors(
    certified: CertifiedDistance,
    clustering: Clustering,
    aggregate: AggregateMDP,
    distances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """e(s) >= |V(s) - V'([s])|, (S,), from r(s), (S,), which includes the error of the distance.

    V' are the solved values: no farther than their error from the exact ones, which are no farther
    than the range of R / (1 - discount) from any value.
    """
    worst = aggregate.mdp.replace(R=aggregate.discounted_expectation(distances))
    more = (
        planning.optimal_values(worst, tol=math.inf)
        if certified.policy is None
        else planning.policy_values(worst, aggregate.policy, tol=math.inf)
    )
    found = add_upward(distances, add_upward(more.values, more.error)[clustering.labels])
    # With n the most entries of a row: the rows of P' are sums of rounded probabilities, 4 n + 4
    # units off the exact ones, which counts for V' and for e; what r is ahead, another 2 n + 4.
    rounding = (
        _backup_rounding(aggregate, float(found.max()))
        / (1 - aggregate.mdp.discount)
        * (1 + 8 * UNIT)
    )
    exactly = np.minimum(add_upward(found, rounding), diameter_bound(certified.mdp))
    return np.asarray(add_upward(exactly, aggregate.values.error))


def _backup_rounding(aggregate: AggregateMDP, largest: float) -> float:
    """What one backup in the aggregated MDP may lose in rounding, beside numbers up to `largest`.

    At most 6 n + 8 units of what is summed, with n the most entries of a row.
    """
    longest = int(np.diff(aggregate.rows.indptr).max())
    summed = float(np.abs(aggregate.mdp.R).max() + np.abs(aggregate.values.values).max() + largest)
    return (8 * longest + 32) * (UNIT * summed + TINY)


def bound_regrets(
    certified: CertifiedDistance,
    clustering: Clustering,
    aggregate: AggregateMDP,
    policy: NDArray[np.int64],
    dissimilarities: NDArray[np.float64],
    value_errors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """V(s) - Q(s, b) at most, (S,), from r(s) + delta(s) and e(s), (S,)."""
    mdp, pi = certified.mdp, certified.policy
    if pi is not None:
        taken = pi if pi.ndim == 1 else np.where((pi > 0).sum(axis=1) == 1, pi.argmax(axis=1), -1)
        return np.where(policy == taken, 0.0, dissimilarities)
    better = _action_margins(aggregate, value_errors)[clustering.labels]
    found = add_upward(dissimilarities, np.maximum(better, 0.0))
    if certified.kind == "bisimulation":
        alike = (
            mdp.action_mask == mdp.action_mask[clustering.representatives[clustering.labels]]
        ).all(axis=1)
        found = np.where(alike, add_upward(dissimilarities, better), found)
    return np.asarray(found)


def _action_margins(
    aggregate: AggregateMDP, value_errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """m(c), (classes,): how much better than a_c another action may be, or -inf."""
    mdp = aggregate.mdp
    # Q' is that of rounded rows of P', and e is a sum of them: both are as far off as a backup.
    unsure = add_upward(
        aggregate.discounted_expectation(value_errors),
        _backup_rounding(aggregate, float(value_errors.max())),
    )
    Q = planning.action_values(mdp, aggregate.values)
    taken = np.arange(mdp.num_actions) == aggregate.policy[:, None]
    others = np.where(taken, -np.inf, add_upward(Q, unsure)).max(axis=1)
    return np.asarray(add_upward(others, add_upward(-Q, unsure)[taken]))


def _bound_policy_regret(
    mdp: MDP, policy: NDArray[np.int64], regrets: NDArray[np.float64], evaluate_chain: bool
) -> float:
    if not regrets.any():
        return 0.0
    largest = float(regrets.max())
    if not math.isfinite(largest):
        return math.inf
    most = round_upward(Fraction(largest) / (1 - Fraction(mdp.discount)))
    if evaluate_chain:
        paid = mdp.replace(R=np.broadcast_to(regrets[:, None], mdp.R.shape))
        lost = planning.policy_values(paid, policy, tol=math.inf)
        most = min(most, float(add_upward(lost.values.max(), lost.error)))
    return most
