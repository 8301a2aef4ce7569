"""Quotients and representatives: the small MDP, and the way back to the large one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, InputError, planning, relation
from tests.strategies import deterministic_mdps, stochastic_mdps

Compute = Callable[[MDP], NDArray[np.int64]]
DISCOUNTS = [0.0, 0.5, 0.9]
MDPS = st.one_of(
    deterministic_mdps(discounts=DISCOUNTS),
    stochastic_mdps(discounts=DISCOUNTS),
    stochastic_mdps(discounts=DISCOUNTS, available=True),
)


@pytest.mark.parametrize("compute", [relation.bisimulation, relation.lax])
@given(mdp=MDPS)
@settings(deadline=None)
def test_the_quotient_is_reduced_and_keeps_the_values(compute: Compute, mdp: MDP) -> None:
    labels = compute(mdp)
    small = relation.quotient(mdp, labels)
    first = relation.representatives(labels)
    assert labels[first].tolist() == list(range(labels.max() + 1))
    assert compute(small).tolist() == list(range(labels.max() + 1))
    assert np.abs(small.P.sum(axis=1) - 1).max() < 1e-15
    assert np.array_equal(small.R, mdp.R[first])
    assert small.discount == mdp.discount
    large, little = planning.optimal_values(mdp), planning.optimal_values(small)
    # Rows of one class differ by at most S * tol in all, and values by so much of the largest.
    slack = (
        2 * mdp.num_states * relation.RELATION_TOL * np.abs(mdp.R).max() / (1 - mdp.discount) ** 2
    )
    gap = np.abs(little.values[labels] - large.values).max()
    assert gap <= large.error + little.error + slack


def test_the_quotient_sums_the_successors_and_keeps_other_attributes() -> None:
    P = [
        [[0.25, 0.25, 0.5], [0, 0, 1]],
        [[0.5, 0.0, 0.5], [0, 1, 0]],
        [[0.125, 0.125, 0.75], [0, 0, 1]],
    ]
    mdp = MDP(
        P,
        [[1, 5], [1, 5], [0, 7]],
        discount=0.9,
        names="xyz",
        actions=["go", "stay"],
        positions=[[0, 0], [0, 1], [1, 0]],
        features=[[7], [8], [9]],
        policy=[0, 0, 1],
        available=[[True, False], [True, False], [True, True]],
    )
    labels = relation.bisimulation(mdp)
    assert labels.tolist() == [0, 0, 1]
    assert relation.representatives(labels).tolist() == [0, 2]
    small = relation.quotient(mdp, labels)
    assert small.P.toarray().tolist() == [[0.5, 0.5], [1, 0], [0.25, 0.75], [0, 1]]
    assert small.R.tolist() == [[1, 0], [0, 7]]
    assert (small.names, small.actions) == (("x", "z"), ("go", "stay"))
    kept = (small.positions, small.features, small.policy, small.available)
    wanted = ([[0, 0], [1, 0]], [[7], [9]], [0, 1], [[True, False], [True, True]])
    for found, rows in zip(kept, wanted, strict=True):
        assert found is not None
        assert found.tolist() == rows


def test_the_quotient_keeps_the_attributes_of_the_first_states() -> None:
    mdp = MDP.deterministic(
        [[2, 0], [2, 1], [1, 2]],
        [[1, 0], [1, 0], [0, 4]],
        discount=0.9,
        names=["x", "y", "z"],
        actions=["go", "stay"],
        positions=[[0, 0], [0, 1], [1, 0]],
        features=[[7], [8], [9]],
        policy=[1, 0, 0],
    )
    small = relation.quotient(mdp, relation.bisimulation(mdp))
    assert small.next_state.tolist() == [[1, 0], [0, 1]]
    assert small.R.tolist() == [[1, 0], [0, 4]]
    assert (small.names, small.actions) == (("x", "z"), ("go", "stay"))
    kept = (small.positions, small.features, small.policy)
    wanted = ([[0, 0], [1, 0]], [[7], [9]], [1, 0])
    for found, rows in zip(kept, wanted, strict=True):
        assert found is not None
        assert found.tolist() == rows
    bare = dataclasses.replace(mdp, names=None, positions=None, features=None, policy=None)
    small = relation.quotient(bare, [0, 0, 1])
    assert (small.names, small.positions, small.features, small.policy) == (None,) * 4


def test_a_policy_of_probabilities_survives_the_quotient() -> None:
    mdp = MDP.deterministic(
        [[0, 1], [1, 1]], [[0, 0], [0, 0]], discount=0.9, policy=[[0.5, 0.5], [1.0, 0.0]]
    )
    policy = relation.quotient(mdp, [0, 0]).policy
    assert policy is not None
    assert policy.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1], "one integer for each of 3 states"),
        ([0.0, 0.0, 1.0], "labels are float64"),
        ([], "one integer for each of 3 states"),
        ([0, 0, 2], "labelled from 0 to 2 and must be from 0 to 1"),
        ([-1, 0, 1], "labelled from -1 to 1 and must be from 0 to 2"),
    ],
)
def test_invalid_labels_of_a_quotient_raise(labels: list[float], said: str) -> None:
    mdp = MDP.deterministic([[0], [1], [2]], np.zeros((3, 1)), discount=0.9)
    with pytest.raises(InputError, match=said):
        relation.quotient(mdp, labels)


@pytest.mark.parametrize(
    ("labels", "said"), [([], "must be one integer"), ([1, 1], "from 1 to 1"), ([0.5], "float64")]
)
def test_bad_labels_have_no_representatives(labels: list[float], said: str) -> None:
    with pytest.raises(InputError, match=f"representatives: .*{said}"):
        relation.representatives(labels)


@pytest.mark.parametrize("states", [[0, -1], [0, 2], [-2, 1]])
def test_every_representative_must_be_the_id_of_a_state(states: list[int]) -> None:
    mdp = MDP.deterministic([[0], [1]], [[0], [1]], discount=0.5)
    with pytest.raises(InputError, match="must be ids of one state of each of 2 classes"):
        relation.quotient(mdp, [0, 1], states=states)


def test_any_state_of_a_class_can_represent_it() -> None:
    mdp = MDP.deterministic([[1], [0], [2]], [[0], [0], [1]], discount=0.5, names="xyz")
    assert relation.quotient(mdp, [0, 0, 1], states=[0, 2]).names == ("x", "z")
    assert relation.quotient(mdp, [0, 0, 1], states=[1, 2]).names == ("y", "z")
