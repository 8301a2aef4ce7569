"""Policies of a quotient, lifted: values of the lifted policy are those of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import planning, relation, worlds
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps


def permute_actions(mdp: MDP, seed: int) -> MDP:
    """Return two copies of an MDP side by side; the second has permuted actions in each state."""
    rng = np.random.default_rng(seed)
    states, actions = mdp.R.shape
    P, R = mdp.P.toarray().reshape(states, actions, states), mdp.R
    order = np.argsort(rng.random((states, actions)), axis=1)
    everyone = np.arange(states)[:, None]
    twice = np.zeros((2 * states, actions, 2 * states))
    twice[:states, :, :states], twice[states:, :, states:] = P, P[everyone, order]
    available = np.concatenate([mdp.action_mask, mdp.action_mask[everyone, order]])
    R = np.concatenate([R, R[everyone, order]])
    return MDP(twice, R, mdp.discount, available=available)


@given(mdp=stochastic_mdps(discounts=[0.0, 0.5, 0.9], available=True), seed=st.integers(0, 99))
@settings(max_examples=scaled(60), deadline=None)
@pytest.mark.parametrize("kind", ["bisimulation", "lax", "sets"])
def test_values_of_lifted_policies(kind: str, mdp: MDP, seed: int) -> None:
    mdp = permute_actions(mdp, seed)
    if kind == "sets":
        mdp = mdp.replace(choice_labels=["x"] * mdp.num_actions)
    classes = relation.lax(mdp) if kind == "lax" else relation.bisimulation(mdp)
    small = relation.quotient(mdp, classes)
    rng = np.random.default_rng(seed)
    weights = rng.random(small.R.shape) * small.action_mask
    stochastic = weights / weights.sum(axis=1, keepdims=True)
    for policy in (np.argmax(weights, axis=1), stochastic):
        lifted = relation.lift_policy(mdp, classes, policy)
        whole, part = planning.policy_values(mdp, lifted), planning.policy_values(small, policy)
        difference = np.abs(whole.values - part.values[classes]).max()
        # Probabilities of 1e-13 count as equal, and are worth 1e-13 times the diameter bound.
        assert difference <= whole.error + part.error + 1e-9 * (1 + mdp.diameter_bound)


def test_bisimilar_states_take_the_same_actions() -> None:
    mdp = worlds.load("duplicated-grid", discount=0.9)
    classes = relation.bisimulation(mdp)
    assert classes.max() + 1 < mdp.num_states
    matches = relation.match_actions(mdp, classes)
    assert (matches == np.arange(mdp.num_actions)).all()
    policy = planning.greedy_policy(relation.quotient(mdp, classes))
    assert np.array_equal(relation.lift_policy(mdp, classes, policy), policy[classes])


def test_other_representatives_and_missing_actions() -> None:
    mdp = MDP.deterministic(
        [[2, 0, 0], [1, 1, 2], [2, 2, 2]],
        [[1, 0, 0], [0, 0, 1], [0, 0, 0]],
        discount=0.9,
        available=[[True, True, False], [False, True, True], [True, True, True]],
    )
    classes = relation.lax(mdp)
    assert classes.tolist() == [0, 0, 1]
    assert relation.match_actions(mdp, classes).tolist()[:2] == [[0, 1, -1], [2, 1, -1]]
    other = relation.match_actions(mdp, classes, states=[1, 2])
    assert other.tolist()[:2] == [[-1, 1, 0], [-1, 1, 2]]
    assert relation.lift_policy(mdp, classes, [2, 0], states=[1, 2]).tolist() == [0, 2, 0]


def test_what_does_not_fit() -> None:
    mdp = MDP.deterministic([[0], [0]], [[0], [1]], discount=0.9)
    with pytest.raises(InputError, match="match_actions: labels have shape"):
        relation.match_actions(mdp, [0])
    with pytest.raises(InputError, match="policy"):
        relation.lift_policy(mdp, [0, 1], [0, 4])
    with pytest.raises(InputError, match="policy is None"):
        relation.lift_policy(mdp, [0, 1], None)  # type: ignore[arg-type]
