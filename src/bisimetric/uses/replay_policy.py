"""The policy of an empirical MDP whose gaps are filled by nearest neighbours, and its regret."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import planning
from bisimetric._rounding import UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.transitions import TERMINAL, Transitions
from bisimetric.transitions.empirical_mdp import mean_rewards
from bisimetric.uses._compress import StateActions, find_state_actions
from bisimetric.uses.certificates import (
    ROUNDING_SLACK,
    add_upward,
    certify_action_values,
    difference_error,
)
from bisimetric.uses.trivial_bounds import bound_any_regret, is_vacuous

CALLER = "uses.replay_policy"


@dataclasses.dataclass(frozen=True, eq=False)
class ReplayPolicy:
    """The policy learned from transitions, its regret and a proven bound on it.

    Attributes:
        model: the MDP in which (s, a) behaves as in the nearest state with a transition of a.
        nearest_distances: (S, A), the distance to that state; 0 where it is s itself, infinite
            where no transition has the action.
        policy: (S,), optimal in the model.
        regret_bound: (S,), a proven bound on V*(s) - V^pi(s) in d.mdp; infinite where nothing is
            proven.
        regret: (S,), V*(s) - V^pi(s) in d.mdp.
        regret_error: a proven bound on the error of `regret`.
        trivial_bound: a proven bound on the regret of every policy in d.mdp.
    """

    model: MDP
    nearest_distances: NDArray[np.float64]
    policy: NDArray[np.int64]
    regret_bound: NDArray[np.float64]
    regret: NDArray[np.float64]
    regret_error: float = math.nan
    trivial_bound: float = math.inf

    @property
    def is_vacuous(self) -> bool:
        """Whether the largest `regret_bound` is above 0 and at least `trivial_bound`."""
        return is_vacuous(float(self.regret_bound.max()), self.trivial_bound)


def solve_replay(transitions: Transitions, d: Distance) -> ReplayPolicy:
    """Solve the empirical MDP, where an unseen (s, a) is that of the nearest state with a.

    With t the state that (s, a) is copied from, delta(s, a) = d(s, t) + error, plus the error of
    the model at (t, a) itself: |R'(t, a) - R(t, a)| + discount * |P'(t, a) - P(t, a)|_1
    * (range of V*) / 2. By the Bellman equation at (t, a), |Q'(s, a) - Q*(s, a)| <= E(s, a), the
    optimal action value of the model with rewards delta. So the greedy action a for Q' has a
    one-step regret of at most max_b Q'(s, b) + E(s, b) - Q'(s, a) + E(s, a) over the others b, and
    the regret of a policy is the discounted sum of these, evaluated as a chain in d.mdp.

    Args:
        transitions: with ids of states, such as a compressed buffer or a random part of one.
        d: the `Distance` of their states, of kind "bisimulation" for a regret bound.

    Returns:
        A `ReplayPolicy`.

    Raises:
        InputError: where d is no `Distance` or is of other states.

    >>> from bisimetric import exact
    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 1], [2, 0]], discount=0.5)
    >>> buffer = Transitions([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 0], [1, 0, 1, 0], [False] * 4)
    >>> float(solve_replay(buffer, exact.bisimulation(mdp)).regret.max())
    0.0
    """
    if not isinstance(d, Distance):
        raise InputError(
            f"is {type(d).__name__} and must be a Distance", caller=CALLER, argument="d"
        )
    reference = d.mdp
    state_actions = find_state_actions(CALLER, transitions, d)
    model, nearest_distances, nearest_states = _complete_model(transitions, state_actions, d)
    policy = planning.greedy_policy(model, tol=math.inf)
    V = planning.optimal_values(reference, tol=math.inf)
    V_policy = planning.policy_values(reference, policy, tol=math.inf)
    regret = np.maximum(V.values - V_policy.values, 0.0)
    regret_bound = np.full(reference.num_states, np.inf)
    is_known = (
        reference.action_mask[state_actions.states, state_actions.actions].all()
        and np.isfinite(nearest_distances[reference.action_mask]).all()
    )
    same_actions = d.kind == "bisimulation" and d.mdp.choice_labels is None
    if is_known and same_actions and d.bounds_values and math.isfinite(d.error):
        model_error = _model_error(model, reference, nearest_states, V)
        regret_bound = _bound_regret(
            model, nearest_distances + d.error + model_error, policy, reference
        )
    regret_error = difference_error(V, V_policy, float(regret.max()))
    return ReplayPolicy(
        model,
        nearest_distances,
        policy,
        regret_bound,
        regret,
        regret_error,
        bound_any_regret(reference, V),
    )


def _complete_model(
    transitions: Transitions, state_actions: StateActions, d: Distance
) -> tuple[MDP, NDArray[np.float64], NDArray[np.int64]]:
    """Return the model, and (S, A) the distance to and the id of the state copied from."""
    reference = d.mdp
    num_states, num_actions = reference.R.shape
    if transitions.terminal_state is not None and transitions.terminal_state >= num_states:
        raise InputError(
            f"{CALLER}: the transitions have a terminal state and d does not; use a distance of "
            "Transitions.to_mdp()."
        )
    distances = np.asarray(d.values, np.float64)
    nearest_distances = np.full((num_states, num_actions), np.inf)
    nearest_states = np.tile(np.arange(num_states)[:, None], (1, num_actions))
    for action in np.unique(state_actions.actions):
        observed = np.unique(state_actions.states[state_actions.actions == action])
        nearest = distances[:, observed].argmin(axis=1)
        nearest_states[:, action] = observed[nearest]
        nearest_distances[:, action] = distances[np.arange(num_states), observed[nearest]]
        nearest_distances[observed, action], nearest_states[observed, action] = 0.0, observed
    rows = transitions.states * num_actions + transitions.actions
    counts = sparse.csr_array(
        (np.ones(len(transitions)), (rows, transitions.successors)),
        (num_states * num_actions, num_states),
    )
    totals = np.bincount(rows, minlength=num_states * num_actions)
    counts.data /= np.repeat(totals, np.diff(counts.indptr))
    rewards = mean_rewards(rows, transitions.rewards, num_states * num_actions)[0]
    # Actions without a transition, and the terminal state, are self-loops with reward 0.
    absorbing = np.isinf(nearest_distances)
    if reference.names is not None and reference.names[-1] == TERMINAL:
        absorbing[-1], nearest_distances[-1], nearest_states[-1] = True, 0.0, num_states - 1
    copied_rows = (nearest_states * num_actions + np.arange(num_actions)).ravel()
    own_state = np.repeat(np.arange(num_states), num_actions)
    mask = absorbing.ravel()
    P = sparse.diags_array((~mask).astype(float)) @ counts[copied_rows] + sparse.csr_array(
        (np.ones(mask.sum()), (np.flatnonzero(mask), own_state[mask])), counts.shape
    )
    R = np.where(absorbing, 0.0, rewards[copied_rows].reshape(num_states, num_actions))
    available = reference.action_mask & np.isfinite(nearest_distances)
    available = np.where(available.any(axis=1)[:, None], available, reference.action_mask)
    model = reference.replace(P=sparse.csr_array(P), R=R, available=available, policy=None)
    return model, nearest_distances, nearest_states


def _model_error(
    model: MDP,
    reference: MDP,
    nearest_states: NDArray[np.int64],
    optimal_values: planning.ValueFunction,
) -> NDArray[np.float64]:
    """Return the error of the model at (t, a) in units of value, (S, A).

    With n the largest number of entries in a row, normalising both rows costs n + 1 units of
    rounding each, and their difference and its sum n more.
    """
    num_states, num_actions = reference.R.shape
    copied_rows = (nearest_states * num_actions + np.arange(num_actions)).ravel()
    span = float(np.ptp(optimal_values.values)) + 2 * optimal_values.error
    total_variation = (
        abs(model.normalised_probabilities - reference.normalised_probabilities[copied_rows])
        .sum(axis=1)
        .reshape(num_states, num_actions)
        / 2
    )
    max_support = max(int(np.diff(mdp.P.indptr).max()) for mdp in (model, reference))
    if max_support > 1:
        total_variation += (3 * max_support + 8) * UNIT
    reward_error = np.abs(
        model.R - reference.R.ravel()[copied_rows].reshape(num_states, num_actions)
    )
    return np.where(
        model.action_mask, reward_error + reference.discount * span * total_variation, 0.0
    )


def _bound_regret(
    model: MDP, delta: NDArray[np.float64], policy: NDArray[np.int64], reference: MDP
) -> NDArray[np.float64]:
    """Bound the regret of the policy in the reference MDP, (S,).

    delta and E are sums of nonnegative numbers, whose rounding is below `ROUNDING_SLACK`.
    """
    V = planning.optimal_values(model, tol=math.inf)
    delta = np.where(model.action_mask, (1 + ROUNDING_SLACK) * delta, 0.0)
    error_mdp = model.replace(R=delta)
    errors = planning.optimal_values(error_mdp, tol=math.inf)
    Q = certify_action_values(model, V)
    E = (1 + ROUNDING_SLACK) * planning.action_values(
        error_mdp, errors.values + errors.error
    ) + Q.error
    states = np.arange(len(policy))
    others = np.where(model.action_mask, add_upward(Q.values, E), -np.inf)
    others[states, policy] = -np.inf
    chosen = -add_upward(-Q.values, E)[states, policy]
    regret = np.maximum(add_upward(others.max(axis=1), -chosen), 0.0)
    chain = reference.apply_policy(policy).replace(R=regret[:, None])
    total = planning.policy_values(chain, np.zeros(len(policy), np.int64), tol=math.inf)
    return np.asarray((1 + ROUNDING_SLACK) * (total.values + total.error))
