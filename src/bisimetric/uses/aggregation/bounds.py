"""Proven bounds on the value error and the policy regret of an aggregated MDP.

Let d be a distance with |V(s) - V(t)| <= d(s, t), where V is V* for d~ and d_lax and V^pi for d^pi
and MICo. Each class c has a representative t_c, [s] is the class of s, and the aggregated MDP takes
rewards and transitions from the representatives:

    R'(c, a) = R(t_c, a),    P'(c, a)(k) = P(t_c, a)(class k),    V' its optimal value.

**Values.** Let r(s) = d(s, t_[s]). V*(t_c) and V'(c) are maxima over the same actions and the same
rewards, so

    |V*(s) - V'([s])| <= |V*(s) - V*(t_[s])| + |V*(t_[s]) - V'([s])|
                      <= r(s) + discount * max_a sum_x P(t_[s], a)(x) |V*(x) - V'([x])|.

Hence the solution of e(s) = r(s) + discount * max_a sum_x P(t_[s], a)(x) e(x), an optimal value
function again, bounds the left side, and is at most max r / (1 - discount). For d^pi the
actions of pi replace the maxima. No two values differ by more than the range of R / (1 - discount).

Ferns, Panangaden & Precup (2004), Metrics for finite Markov decision processes, UAI, prove it for
d~ and an aggregated MDP of class means. For any weights w on each class

    |V*(s) - V'([s])| <= max_a sum_t w(t) |Q*(s, a) - R(t, a) - discount * sum_x P(t, a)(x) V'([x])|
                      <= sum_t w(t) d~(s, t) + discount * max |V* - V'|,

since |Q*(s, a) - Q*(t, a)| <= d~(s, t) for every action a; so the largest mean distance divided by
1 - discount bounds the left side. For d_lax the inequality for each action is wrong. A single
representative does not need it, so that one construction serves all kinds. Means can gain at most a
factor of 2: a class of two has its mean in the middle.

**Policies.** Let a_c be the optimal action of class c, b the action of s that it is lifted to,
and delta(s) = |R(t, a_c) - R(s, b)| + discount * W1(d)(P(t, a_c), P(s, b)), with t for
t_[s], the distance between the two actions. As |V*(x) - V*(y)| <= d(x, y), also |Q*(t, a_c) -
Q*(s, b)| <= delta(s), and

    V*(s) - Q*(s, b)  =  [V*(s) - V*(t)] + [V*(t) - Q*(t, a_c)] + [Q*(t, a_c) - Q*(s, b)]
                     <=  r(s) + max(m(c), 0) + delta(s),

    m(c) = max_{a != a_c} Q'(c, a) + E(c, a) - Q'(c, a_c) + E(c, a_c),
    E(c, a) = discount * sum_x P(t_c, a)(x) e(x) >= |Q*(t_c, a) - Q'(c, a)|.

- Under d~ b is a_c itself, and delta(s) <= d~(s, t). Any other action a of s has Q*(s, a) <=
  Q*(t, a) + r(s), so max(r(s) + m(c) + delta(s), 0) is a bound: where a_c is optimal by a
  margin, the regret is 0.
- Under d_lax b minimises delta, which is then at most d_lax(s, t), as in Taylor, Precup &
  Panangaden (2009), Bounding performance loss in approximate MDP homomorphisms, NIPS 21. Another
  action of s may be as near to a_c as b is, so a margin does not help.
- For d^pi and MICo the reward R^pi(t) and the distribution P^pi(t) of pi in t are lifted, so
  that

      delta(s) = |R^pi(t) - R(s, b)| + discount * W1(d)(P^pi(t), P(s, b)),

  and pi has no regret against V^pi in t: r(s) + delta(s) is a bound. It is 0 where pi takes b in s
  with probability 1. If pi is deterministic, delta(s) <= d(s, t). If pi is stochastic, no such
  bound exists, not even where s is t itself and r(s) = 0: a mixture differs from each of its
  actions, and the error of d counts there as it does elsewhere.

By the performance difference lemma V - V^policy is the discounted sum of these one-step regrets
along the policy: at most the value of its chain with their bounds as rewards; unless pi is
stochastic, at most 2 max r / (1 - discount)^2; and at most (max R - min R) / (1 - discount).

**Errors.** Distances are known to within the error of d, which is added to r(s) unless s is t, and,
times the discount, to delta(s) unless s is t and b is taken there with probability 1: then r
or delta are 0 by definition. The values of the aggregated MDP are known to within `values.error`,
which is added to e. Every rounded sum and product is rounded upward, or a bound on its rounding is
added: see `bound_value_errors`, `_action_margins` and `compute_action_distances`.
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
    """An MDP with a proven distance: its kind, its error, and its policy or None."""

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
    """Return bounds on |V - V'| and on the regret of the lifted policy.

    With `evaluate_chain` the one-step regrets are summed along the policy, which solves a linear
    system of all states; else the largest one counts at every step.
    """
    mdp, diameter = certified.mdp, diameter_bound(certified.mdp)
    has_other_representative = clustering.representatives[clustering.labels] != np.arange(
        mdp.num_states
    )
    distances = np.where(
        has_other_representative,
        np.minimum(add_upward(clustering.representative_distances, certified.error), diameter),
        0.0,
    )
    value_errors = bound_value_errors(certified, clustering, aggregate, distances)
    delta = add_upward(lifted.action_distances, multiply_upward(mdp.discount, certified.error))
    delta = np.where(lifted.identical, 0.0, delta)
    regrets = bound_regrets(
        certified, clustering, aggregate, lifted.policy, add_upward(distances, delta), value_errors
    )
    regret_bound = _bound_policy_regret(
        mdp, lifted.policy, np.clip(regrets, 0.0, diameter), evaluate_chain
    )
    return min(float(value_errors.max()), diameter), min(regret_bound, diameter)


def bound_value_errors(
    certified: CertifiedDistance,
    clustering: Clustering,
    aggregate: AggregateMDP,
    distances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return e(s) >= |V(s) - V'([s])|, (S,), from r(s), (S,), which includes the error of d.

    V' are the computed values: within their error of the exact ones, which differ by at most
    (max R - min R) / (1 - discount) from any value.
    """
    error_mdp = aggregate.mdp.replace(R=aggregate.discount_expectation(distances))
    propagated = (
        planning.optimal_values(error_mdp, tol=math.inf)
        if certified.policy is None
        else planning.policy_values(error_mdp, aggregate.policy, tol=math.inf)
    )
    errors = add_upward(
        distances, add_upward(propagated.values, propagated.error)[clustering.labels]
    )
    # With n the largest number of entries in a row: the rows of P' are sums of rounded
    # probabilities, 4 n + 4 units from the exact ones, which counts for V' and for e; the
    # expectation of r adds 2 n + 4.
    rounding = (
        _backup_rounding(aggregate, float(errors.max()))
        / (1 - aggregate.mdp.discount)
        * (1 + 8 * UNIT)
    )
    bounded = np.minimum(add_upward(errors, rounding), diameter_bound(certified.mdp))
    return np.asarray(add_upward(bounded, aggregate.values.error))


def _backup_rounding(aggregate: AggregateMDP, largest: float) -> float:
    """Bound the rounding of one Bellman backup in the aggregated MDP, with numbers up to `largest`.

    At most 6 n + 8 units of the sum, with n the largest number of entries in a row.
    """
    max_support = int(np.diff(aggregate.rows.indptr).max())
    magnitude = float(
        np.abs(aggregate.mdp.R).max() + np.abs(aggregate.values.values).max() + largest
    )
    return (8 * max_support + 32) * (UNIT * magnitude + TINY)


def bound_regrets(
    certified: CertifiedDistance,
    clustering: Clustering,
    aggregate: AggregateMDP,
    policy: NDArray[np.int64],
    dissimilarities: NDArray[np.float64],
    value_errors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bound V(s) - Q(s, b), (S,), given r(s) + delta(s) and e(s), (S,)."""
    mdp, pi = certified.mdp, certified.policy
    if pi is not None:
        pi_actions = (
            pi if pi.ndim == 1 else np.where((pi > 0).sum(axis=1) == 1, pi.argmax(axis=1), -1)
        )
        return np.where(policy == pi_actions, 0.0, dissimilarities)
    margins = _action_margins(aggregate, value_errors)[clustering.labels]
    regrets = add_upward(dissimilarities, np.maximum(margins, 0.0))
    if certified.kind == "bisimulation" and mdp.choice_labels is None:
        same_actions = (
            mdp.action_mask == mdp.action_mask[clustering.representatives[clustering.labels]]
        ).all(axis=1)
        regrets = np.where(same_actions, add_upward(dissimilarities, margins), regrets)
    return np.asarray(regrets)


def _action_margins(
    aggregate: AggregateMDP, value_errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return m(c), (classes,), a bound on the advantage of other actions over a_c, or -inf."""
    mdp = aggregate.mdp
    # Q' and e are computed from rounded rows of P': each with the error of a backup.
    uncertainty = add_upward(
        aggregate.discount_expectation(value_errors),
        _backup_rounding(aggregate, float(value_errors.max())),
    )
    Q = planning.action_values(mdp, aggregate.values)
    is_policy_action = np.arange(mdp.num_actions) == aggregate.policy[:, None]
    others = np.where(is_policy_action, -np.inf, add_upward(Q, uncertainty)).max(axis=1)
    return np.asarray(add_upward(others, add_upward(-Q, uncertainty)[is_policy_action]))


def _bound_policy_regret(
    mdp: MDP, policy: NDArray[np.int64], regrets: NDArray[np.float64], evaluate_chain: bool
) -> float:
    """Bound the discounted sum of one-step regrets along the policy."""
    if not regrets.any():
        return 0.0
    largest = float(regrets.max())
    if not math.isfinite(largest):
        return math.inf
    bound = round_upward(Fraction(largest) / (1 - Fraction(mdp.discount)))
    if evaluate_chain:
        regret_mdp = mdp.replace(R=np.broadcast_to(regrets[:, None], mdp.R.shape))
        values = planning.policy_values(regret_mdp, policy, tol=math.inf)
        bound = min(bound, float(add_upward(values.values.max(), values.error)))
    return bound
