"""Maps from the choices of a quotient MDP to those of its MDP, and lifted policies."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.api import quotient, select_representatives

TIE_TOL = 1e-12
"""Actions whose mismatches differ by less are equally near."""


def match_actions(
    mdp: MDP, labels: ArrayLike, *, states: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Match each action of a class of the quotient with an action of each state of the class.

        m(s, a) = argmin_b  |R(s, b) - R(s_c, a)| / range  +  sum_k |P(s, b)(k) - P(s_c, a)(k)|

    over the available actions b of s, where s_c is the representative of the class c of s, k are
    classes, and range is that of the rewards (or 1). If the classes come from `relation`, the
    minimum is 0 up to its tolerances. Ties go to a itself, then to actions with its choice label.
    `relation.bisimulation` without choice labels gives m(s, a) = a; `relation.lax` and sets of
    choices permute actions.

    Args:
        mdp: the MDP.
        labels: (S,) the class of each state, from 0 without gaps.
        states: (C,) the representative of each class, as for `quotient`; default: its first state.

    Returns:
        (S, A): the action of state s that matches action a of its class; -1 where the class lacks
        action a.

    Raises:
        InputError: if the labels or the representatives do not fit the MDP.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> match_actions(mdp, [0, 0, 1])
    array([[0, 1], [1, 0], [0, 1]])
    """
    require_mdp("relation.match_actions", mdp)
    classes = np.asarray(labels)
    first = select_representatives("match_actions", mdp, classes, states)
    num_states, num_actions = mdp.R.shape
    indicator = sparse.csr_array(
        (np.ones(num_states), (np.arange(num_states), classes)), (num_states, len(first))
    )
    lumped = sparse.csr_array(mdp.normalised_probabilities @ indicator)
    representative, mask, groups = first[classes], mdp.action_mask, mdp.choice_groups
    reward_range = float(np.ptp(mdp.R[mask])) or 1.0
    rows = np.arange(num_states) * num_actions
    matches = np.empty((num_states, num_actions), np.int64)
    for action in range(num_actions):
        target = lumped[representative * num_actions + action]
        mismatch = np.full((num_states, num_actions), np.inf)
        for other in range(num_actions):
            moved = abs(lumped[rows + other] - target).sum(axis=1)
            paid = np.abs(mdp.R[:, other] - mdp.R[representative, action]) / reward_range
            mismatch[:, other] = np.where(mask[:, other], moved + paid, np.inf)
        nearest = mismatch <= mismatch.min(axis=1, keepdims=True) + TIE_TOL
        preference = 1 + (groups == groups[action]) + 2 * (np.arange(num_actions) == action)
        matches[:, action] = np.argmax(nearest * preference, axis=1)
    matches[~mask[representative]] = -1
    return matches


def lift_policy(
    mdp: MDP, labels: ArrayLike, policy: ArrayLike, *, states: ArrayLike | None = None
) -> NDArray[np.int64] | NDArray[np.float64]:
    """Lift a policy (scheduler) of the quotient to the MDP.

    State s of class c takes the actions that match those of c, see `match_actions`. If the classes
    come from `bisimulation` or `lax`, V^pi(s) of the lifted policy is the value of c.

    Args:
        mdp: the MDP.
        labels: (S,) the class of each state, from 0 without gaps.
        policy: of `quotient(mdp, labels, states=states)`: (C,) actions or (C, A) probabilities.
        states: (C,) the representative of each class, as for `quotient`; default: its first state.

    Returns:
        (S,) actions or (S, A) probabilities, like `policy`.

    Raises:
        InputError: if the labels, the representatives or the policy do not fit.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> lift_policy(mdp, [0, 0, 1], [0, 1])
    array([0, 1, 1])
    """
    require_mdp("relation.lift_policy", mdp)
    matches = match_actions(mdp, labels, states=states)
    # The quotient validates the policy.
    found = quotient(mdp.replace(policy=None), labels, states=states).replace(policy=policy).policy
    if found is None:
        raise InputError("relation.lift_policy: policy is None and must be that of the quotient.")
    everyone, classes = np.arange(mdp.num_states), np.asarray(labels)
    if found.ndim == 1:
        return np.asarray(matches[everyone, found[classes]])
    lifted = np.zeros(mdp.R.shape)
    for action in range(mdp.num_actions):
        present = matches[:, action] >= 0
        lifted[everyone[present], matches[present, action]] += found[classes[present], action]
    return lifted
