"""The aggregated MDP of one representative per class, and its policy lifted to all states."""

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
    """A solved aggregated MDP.

    Attributes:
        mdp: on the classes, with `policy`.
        policy: (classes,), or (classes, A) for a stochastic policy.
        values: V' of that policy.
        rows: (classes * A, S), the rows of P of the representatives.
    """

    mdp: MDP
    policy: NDArray[Any]
    values: ValueFunction
    rows: sparse.csr_array

    def discount_expectation(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return discount * sum_x P(t_c, a)(x) numbers(x), (classes, A), for numbers (S,)."""
        return np.asarray(self.mdp.discount * (self.rows @ numbers).reshape(self.mdp.R.shape))


def solve_aggregate_mdp(mdp: MDP, clustering: Clustering, pi: NDArray[Any] | None) -> AggregateMDP:
    """Build the MDP of the representatives and solve it, or evaluate their policy pi."""
    labels, representatives = clustering.labels, clustering.representatives
    rows = mdp.normalised_probabilities[
        (representatives[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    ]
    aggregated = quotient(mdp, labels, states=representatives)
    if pi is not None:
        policy = pi[representatives]
        values = planning.policy_values(aggregated, policy, tol=math.inf)
    else:
        values = planning.optimal_values(aggregated, tol=math.inf)
        Q = planning.action_values(aggregated, values)
        # The first of the actions that are equal up to the error, so that rounding decides nothing.
        gaps = Q.max(axis=1, keepdims=True) - Q
        policy = (gaps <= 2 * values.error).argmax(axis=1)
    return AggregateMDP(aggregated.replace(policy=policy), policy, values, sparse.csr_array(rows))


class LiftedPolicy(NamedTuple):
    """One action per state.

    Attributes:
        policy: (S,), the actions.
        action_distances: (S,), delta(s), the distance from each action to that of the
            representative, by the given matrix; it includes rounding, not the error of the matrix.
        identical: (S,), whether the state is its own representative and takes the same action, so
            that delta(s) is 0.
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
    """Lift the policy of the classes to the states.

    Under d_lax, d~ with choice labels and distances of a policy a state takes the nearest action to
    that of its class; else the same action, or the nearest one where it is not available. The
    distances are within `error` of the exact ones.
    """
    labels, representatives = clustering.labels, clustering.representatives
    reward_error = 0.0
    if pi is None or pi.ndim == 1:
        indices = representatives * mdp.num_actions + (
            aggregate.policy if pi is None else pi[representatives]
        )
        rewards, rows = np.ravel(mdp.R)[indices], mdp.normalised_probabilities[indices]
    else:
        chain = induce_chain(mdp, pi)
        rewards, rows = (
            chain.mdp.R[representatives, 0],
            chain.mdp.normalised_probabilities[representatives],
        )
        reward_error = chain.reward_error
    same = np.zeros(mdp.R.shape, np.bool_)
    if aggregate.policy.ndim == 1:
        same[np.arange(mdp.num_states), aggregate.policy[labels]] = True
    mask = mdp.action_mask.copy()
    if kind != "lax" and pi is None and mdp.choice_labels is None:
        lacks = ~(same & mdp.action_mask).any(axis=1, keepdims=True)
        mask &= same | lacks
    delta = compute_action_distances(
        mdp,
        distances,
        rewards[labels],
        sparse.csr_array(rows[labels]),
        mask,
        error=error if np.isfinite(error) else 0.0,
        reward_error=reward_error,
    )
    min_delta = delta.min(axis=1, keepdims=True)
    # Among the nearest actions the same action is preferred, then the first.
    nearest = np.asarray(delta <= min_delta)
    policy = np.where((nearest & same).any(axis=1), same.argmax(axis=1), nearest.argmax(axis=1))
    states = np.arange(mdp.num_states)
    deterministic = aggregate.policy.ndim == 1
    identical = (representatives[labels] == states) & same[states, policy] & deterministic
    return LiftedPolicy(policy.astype(np.int64), delta[states, policy], identical)


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
    """Return the distance from each action of a state to a given reward and distribution, (S, A):

        delta(s, b) = |rewards(s) - R(s, b)| + discount * W1(d)(rows(s), P(s, b))

    Args:
        mdp: the MDP of the states and actions.
        distances: (S, S), d; its diagonal counts as 0.
        rewards: (S,), one reward per state.
        rows: (S, S), one distribution per state, its column indices sorted.
        mask: (S, A), where to compute it; elsewhere delta is infinite.
        error: of the matrix, for the size of the exact distances; delta is that of the matrix.
        reward_error: a bound on the error of `rewards`.

    W1 is the cost of a coupling, an upper bound even where that is not optimal, and a bound on the
    rounding is added. With n the largest number of entries in a row: the entries of a mixed row
    have a relative rounding of 2 A + 2 n + 6 units, those of a row of P of n + 1; the flows of a
    tree miss their marginals by the rounding of at most 4 subtractions per node, of which there are
    2 n; and as much mass may have to move the largest distance. Gap, products and sums add 2 n + 4.
    """
    gaps = np.abs(rewards[:, None] - mdp.R)
    if mdp.is_deterministic and rows.nnz == mdp.num_states:
        source_states, target_states = rows.indices[:, None], mdp.next_state
        transport = np.where(
            source_states == target_states, 0.0, distances[source_states, target_states]
        )
        delta = gaps + mdp.discount * transport
    else:
        delta = gaps + mdp.discount * _transport_costs(mdp, distances, rows, mask)
    max_support = max(int(np.diff(mdp.P.indptr).max()), int(np.diff(rows.indptr).max()))
    largest = float(distances.max()) + error + float(gaps.max())
    delta += (16 * max_support + 4 * mdp.num_actions + 32) * (UNIT * largest + TINY) + reward_error
    return np.where(mask & mdp.action_mask, delta, np.inf)


def _transport_costs(
    mdp: MDP, distances: NDArray[np.floating], rows: sparse.csr_array, mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return W1 between the given distribution and that of each action, (S, A), under the mask."""
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
    """Write W1; row s of `row_starts` is the distribution of state s; those of the MDP follow."""
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
