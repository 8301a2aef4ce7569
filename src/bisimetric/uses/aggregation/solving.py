"""The aggregated MDP: one representative a class, solved."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import planning
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.relation import quotient
from bisimetric.uses.aggregation.groups import Clustering


class AggregateMDP(NamedTuple):
    """An aggregated MDP, solved.

    Attributes:
        mdp: on the classes; it comes with `policy`.
        policy: what is done in each class, (classes,), or (classes, A) for a policy of
            probabilities.
        values: of that policy, V'.
        rows: (classes * A, S), the rows of P of the representatives.
    """

    mdp: MDP
    policy: NDArray[Any]
    values: ValueFunction
    rows: sparse.csr_array

    def discounted_expectation(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """discount * sum_x P(t_c, a)(x) numbers(x), (classes, A), for numbers (S,)."""
        return np.asarray(self.mdp.discount * (self.rows @ numbers).reshape(self.mdp.R.shape))


def solve_aggregate_mdp(mdp: MDP, clustering: Clustering, pi: NDArray[Any] | None) -> AggregateMDP:
    """The MDP of the representatives, with an optimal policy or theirs, and its values."""
    labels, first = clustering.labels, clustering.representatives

    rows = mdp.normalised_probabilities[
        (first[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    ]
    small = quotient(mdp, labels, states=first)
    if pi is not None:
        policy = pi[first]
        values = planning.policy_values(small, policy, tol=math.inf)
    else:
        values = planning.optimal_values(small, tol=math.inf)
        Q = planning.action_values(small, values)
        # The first of those that nothing tells apart, so that rounding has no say.
        behind = Q.max(axis=1, keepdims=True) - Q
        policy = (behind <= 2 * values.error).argmax(axis=1)
    return AggregateMDP(small.replace(policy=policy), policy, values, sparse.csr_array(rows))
