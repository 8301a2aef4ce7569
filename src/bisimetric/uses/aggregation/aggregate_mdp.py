"""The aggregated MDP: one representative a class, solved.

From classes back to states: which action of a state is most like what its class does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import _transport, planning
from bisimetric._rounding import TINY, UNIT
from bisimetric.mdp import MDP, induce_chain
from bisimetric.planning import ValueFunction
from bisimetric.relation import quotient
from bisimetric.uses.aggregation.clustering import Clustering


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


class LiftedPolicy(NamedTuple):
    """An action for each state.

    Attributes:
        policy: (S,), the actions.
        unlike: (S,), delta(s), how unlike each is to what the representative of the state does, by
            the given table; rounding is included, and the error of the table is not.
        identical: (S,), whether the state is its own representative and takes the very action that
            is taken there, so that delta(s) is 0.
    """

    policy: NDArray[np.int64]
    action_distances: NDArray[np.float64]
    identical: NDArray[np.bool_]


def lift_policy(
    mdp: MDP,
    distances: NDArray[np.floating],
    clustering: Clustering,
    aggregate: AggregateMDP,
    kind: str | None,
    pi: NDArray[Any] | None,
    error: float = 0.0,
) -> LiftedPolicy:
    """The policy of the classes, for the states.

    Under d_lax and distances of a policy it is the action that is most like it; else the same one,
    or where a state lacks that, again the one that is most like it. The distances of the table are
    within `error` of the true ones.
    """
    labels, first = clustering.labels, clustering.representatives
    rounding = 0.0
    if pi is None or pi.ndim == 1:
        taken = first * mdp.num_actions + (aggregate.policy if pi is None else pi[first])
        rewards, rows = np.ravel(mdp.R)[taken], mdp.normalised_probabilities[taken]
    else:
        chain = induce_chain(mdp, pi)
        rewards, rows = chain.mdp.R[first, 0], chain.mdp.normalised_probabilities[first]
        rounding = chain.reward_error
    same = np.zeros(mdp.R.shape, np.bool_)
    if aggregate.policy.ndim == 1:
        same[np.arange(mdp.num_states), aggregate.policy[labels]] = True
    wanted = mdp.action_mask.copy()
    if kind != "lax" and pi is None:
        lacks = ~(same & mdp.action_mask).any(axis=1, keepdims=True)
        wanted &= same | lacks
    unlike = compute_action_distances(
        mdp,
        distances,
        rewards[labels],
        sparse.csr_array(rows[labels]),
        wanted,
        error=error if np.isfinite(error) else 0.0,
        reward_error=rounding,
    )
    least = unlike.min(axis=1, keepdims=True)
    # Among those that are most like it the same action is preferred, then the first.
    best = np.asarray(unlike <= least)
    policy = np.where((best & same).any(axis=1), same.argmax(axis=1), best.argmax(axis=1))
    everyone = np.arange(mdp.num_states)
    certain = aggregate.policy.ndim == 1
    identical = (first[labels] == everyone) & same[everyone, policy] & certain
    return LiftedPolicy(policy.astype(np.int64), unlike[everyone, policy], identical)


def compute_action_distances(
    mdp: MDP,
    distances: NDArray[np.floating],
    rewards: NDArray[np.float64],
    rows: sparse.csr_array,
    mask: NDArray[np.bool_],
    *,
    error: float = 0.0,
    reward_error: float = 0.0,
) -> NDArray[np.float64]:
    """How unlike each action of a state is to a given step, (S, A):

        delta(s, b) = |rewards(s) - R(s, b)| + discount * W1(d)(rows(s), P(s, b))

    Args:
        table: (S, S), the distances d; those of a state and itself count as 0.
        rewards, rows: the step, (S,) and (S, S); each row sums to 1, its states in rising order.
        wanted: (S, A), where to work it out; elsewhere delta is infinite.
        error: of the table, for the size of the true distances; delta itself is that of the table.
        rounding: how far the given rewards may be from the exact ones.

    W1 is the cost of a coupling, an upper bound even where that is not the best one, and what is
    rounded is added. With n the most entries of a row: the entries of a mixed row have a relative
    rounding of 2 A + 2 n + 6 units, those of a row of P of n + 1; the flows of a tree miss their
    marginals by the rounding of at most 4 subtractions per node, of which there are 2 n; and so
    much mass may have to go as far as two states can be apart. Gap, products and sums add 2 n + 4.
    """
    gaps = np.abs(rewards[:, None] - mdp.R)
    if mdp.is_deterministic and rows.nnz == mdp.num_states:
        here, there = rows.indices[:, None], mdp.next_state
        moved = np.where(here == there, 0.0, distances[here, there])
        found = gaps + mdp.discount * moved
    else:
        found = gaps + mdp.discount * _transport_costs(mdp, distances, rows, mask)
    longest = max(int(np.diff(mdp.P.indptr).max()), int(np.diff(rows.indptr).max()))
    farthest = float(distances.max()) + error + float(gaps.max())
    found += (16 * longest + 4 * mdp.num_actions + 32) * (UNIT * farthest + TINY) + reward_error
    return np.where(mask & mdp.action_mask, found, np.inf)


def _transport_costs(
    mdp: MDP, distances: NDArray[np.floating], rows: sparse.csr_array, mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """W1 of a given distribution and of each action's, (S, A), where it is wanted."""
    shares = mdp.normalised_probabilities
    first = np.concatenate([rows.indptr[:-1], rows.nnz + shares.indptr]).astype(np.int64)
    states = np.concatenate([rows.indices, shares.indices]).astype(np.int64)
    share = np.concatenate([rows.data, shares.data])
    costs = _transport.Costs(distances, np.empty(0, np.int64), len(distances))
    found = np.zeros(mdp.R.shape)
    _fill_transport_costs(costs, first, states, share, mask, int(np.diff(first).max()), found)
    return found


@njit(cache=True)
def _fill_transport_costs(
    costs: Any,
    row_starts: Any,
    states: Any,
    probabilities: Any,
    mask: Any,
    max_support: int,
    out: Any,
) -> None:
    """Row s of `first` is the given distribution of state s; those of the MDP follow."""
    room = _transport.allocate_workspace(max_support)
    num_states, actions = mask.shape
    for s in range(num_states):
        for b in range(actions):
            if not mask[s, b]:
                continue
            q = num_states + s * actions + b
            n, m = _transport.cancel_common_mass(
                room,
                states,
                probabilities,
                row_starts[s],
                row_starts[s + 1],
                row_starts[q],
                row_starts[q + 1],
            )
            if n == 0 or m == 0:
                continue
            _transport.build_northwest_tree(room, n, m)
            _transport.compute_flows(room, n, m)
            if n > 1 and m > 1:
                _transport.optimise_tree(room, n, m, _transport.gather_costs(room, costs, n, m))
            out[s, b] = _transport.compute_cost(room, costs, n, m)
