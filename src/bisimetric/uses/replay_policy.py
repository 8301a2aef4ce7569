"""What a thinned buffer still teaches: the model that its steps make, with the gaps filled by d."""

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
    certified_action_values,
    difference_error,
)

CALLER = "uses.compression.models"


@dataclasses.dataclass(frozen=True, eq=False)
class ReplayPolicy:
    """The policy that some steps teach, what it is promised to lose, and what it loses.

    Attributes:
        model: the MDP in which (s, a) does what the nearest state with a step of action a did.
        borrowed: (S, A), how far that state is from s; 0 where s has one itself, infinite where no
            step has the action.
        policy: (S,), optimal in the model.
        promised: (S,), at least as large as V*(s) - V^pi(s) in d.mdp; infinite where nothing is
            proven.
        lost: (S,), V*(s) - V^pi(s) in d.mdp, as it is.
        lost_error: a proven bound on the error of `lost`.
    """

    model: MDP
    nearest_distances: NDArray[np.float64]
    policy: NDArray[np.int64]
    regret_bound: NDArray[np.float64]
    regret: NDArray[np.float64]
    regret_error: float = math.nan


def solve_replay(transitions: Transitions, d: Distance) -> ReplayPolicy:
    """Solves the model that steps make, where (s, a) is that of the nearest state in d that has it.

    With t the state that (s, a) borrows from, delta(s, a) = d(s, t) + error, and to that is added
    what the steps miss of (t, a) itself: |R'(t, a) - R(t, a)| + discount * |P'(t, a) - P(t, a)|_1
    * (range of V*) / 2. By Bellman's equation at (t, a), |Q'(s, a) - Q*(s, a)| <= E(s, a), the
    largest action value of the model with rewards delta. So the action a that is greedy for Q' has
    a regret of at most max_b Q'(s, b) + E(s, b) - Q'(s, a) + E(s, a) over the others b, and what a
    policy loses is the discounted sum of its regrets, solved as a chain in d.mdp.

    Args:
        steps: with ids of states, such as a thinned buffer or a random part of one.
        d: the distance of their states, of kind "bisimulation" for a promise.
    """
    if not isinstance(d, Distance):
        raise InputError(f"{CALLER}: d is {type(d).__name__} and must be a Distance.")
    truth = d.mdp
    pairs = find_state_actions(CALLER, transitions, d)
    model, borrowed, source = _complete_model(transitions, pairs, d)
    policy = planning.greedy_policy(model, tol=math.inf)
    best = planning.optimal_values(truth, tol=math.inf)
    followed = planning.policy_values(truth, policy, tol=math.inf)
    lost = np.maximum(best.values - followed.values, 0.0)
    promised = np.full(truth.num_states, np.inf)
    known = (
        truth.action_mask[pairs.states, pairs.actions].all()
        and np.isfinite(borrowed[truth.action_mask]).all()
    )
    if known and d.kind == "bisimulation" and math.isfinite(d.error):
        off = _model_error(model, truth, source, best)
        promised = _bound_regret(model, borrowed + d.error + off, policy, truth)
    lost_error = difference_error(best, followed, float(lost.max()))
    return ReplayPolicy(model, borrowed, policy, promised, lost, lost_error)


def _complete_model(
    transitions: Transitions, state_actions: StateActions, d: Distance
) -> tuple[MDP, NDArray[np.float64], NDArray[np.int64]]:
    """The model, how far it borrows, and from which state, (S, A) each."""
    truth = d.mdp
    size, actions = truth.R.shape
    if transitions.terminal_state is not None and transitions.terminal_state >= size:
        raise InputError(
            f"{CALLER}: steps end episodes, and the distance does not know their end; take that of "
            "Transitions.to_mdp()."
        )
    table = np.asarray(d.values, np.float64)
    borrowed = np.full((size, actions), np.inf)
    source = np.tile(np.arange(size)[:, None], (1, actions))
    for action in np.unique(state_actions.actions):
        having = np.unique(state_actions.states[state_actions.actions == action])
        nearest = table[:, having].argmin(axis=1)
        source[:, action] = having[nearest]
        borrowed[:, action] = table[np.arange(size), having[nearest]]
        borrowed[having, action], source[having, action] = 0.0, having
    row = transitions.states * actions + transitions.actions
    counts = sparse.csr_array(
        (np.ones(len(transitions)), (row, transitions.successors)), (size * actions, size)
    )
    totals = np.bincount(row, minlength=size * actions)
    counts.data /= np.repeat(totals, np.diff(counts.indptr))
    rewards = mean_rewards(row, transitions.rewards, size * actions)[0]
    # What no step shows, and the end of episodes, stays on the spot and pays 0.
    still = np.isinf(borrowed)
    if truth.names is not None and truth.names[-1] == TERMINAL:
        still[-1], borrowed[-1], source[-1] = True, 0.0, size - 1
    takes = (source * actions + np.arange(actions)).ravel()
    spot = np.repeat(np.arange(size), actions)
    mask = still.ravel()
    P = sparse.diags_array((~mask).astype(float)) @ counts[takes] + sparse.csr_array(
        (np.ones(mask.sum()), (np.flatnonzero(mask), spot[mask])), counts.shape
    )
    R = np.where(still, 0.0, rewards[takes].reshape(size, actions))
    has = truth.action_mask & np.isfinite(borrowed)
    has = np.where(has.any(axis=1)[:, None], has, truth.action_mask)
    model = truth.replace(P=sparse.csr_array(P), R=R, available=has, policy=None)
    return model, borrowed, source


def _model_error(
    model: MDP,
    reference: MDP,
    nearest_states: NDArray[np.int64],
    optimal_values: planning.ValueFunction,
) -> NDArray[np.float64]:
    """How far the model of (t, a) is from the truth there, in values, (S, A).

    With n the most entries of a row, normalising both rows takes n + 1 units of rounding each, and
    their difference and its sum n more.
    """
    size, actions = reference.R.shape
    takes = (nearest_states * actions + np.arange(actions)).ravel()
    span = float(np.ptp(optimal_values.values)) + 2 * optimal_values.error
    moved = (
        abs(model.normalised_probabilities - reference.normalised_probabilities[takes])
        .sum(axis=1)
        .reshape(size, actions)
        / 2
    )
    longest = max(int(np.diff(mdp.P.indptr).max()) for mdp in (model, reference))
    if longest > 1:
        moved += (3 * longest + 8) * UNIT
    paid = np.abs(model.R - reference.R.ravel()[takes].reshape(size, actions))
    return np.where(model.action_mask, paid + reference.discount * span * moved, 0.0)


def _bound_regret(
    model: MDP, delta: NDArray[np.float64], policy: NDArray[np.int64], reference: MDP
) -> NDArray[np.float64]:
    """A bound on what the policy loses in the truth, state by state.

    delta and E are sums of numbers at least 0, whose rounding `ROUNDING` exceeds.
    """
    ahead = planning.optimal_values(model, tol=math.inf)
    delta = np.where(model.action_mask, (1 + ROUNDING_SLACK) * delta, 0.0)
    unsure = model.replace(R=delta)
    drift = planning.optimal_values(unsure, tol=math.inf)
    Q = certified_action_values(model, ahead)
    E = (1 + ROUNDING_SLACK) * planning.action_values(unsure, drift.values + drift.error) + Q.error
    everyone = np.arange(len(policy))
    high = np.where(model.action_mask, add_upward(Q.values, E), -np.inf)
    high[everyone, policy] = -np.inf
    low = -add_upward(-Q.values, E)[everyone, policy]
    regret = np.maximum(add_upward(high.max(axis=1), -low), 0.0)
    chain = reference.apply_policy(policy).replace(R=regret[:, None])
    total = planning.policy_values(chain, np.zeros(len(policy), np.int64), tol=math.inf)
    return np.asarray((1 + ROUNDING_SLACK) * (total.values + total.error))
