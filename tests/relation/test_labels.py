"""Relations with labels of states and choices, and rewards within a tolerance."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, exact, relation
from bisimetric.errors import NearTieWarning
from tests.labelled_oracle import apply_operator, assert_solves, classes_by_signatures, random_mdp


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("choices", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_agrees_with_signatures_in_exact_fractions(
    deterministic: bool, choices: bool, labels: bool
) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(
            rng, deterministic=deterministic, choices=choices, labels=labels, states=8, rewards=1
        )
        for lax in (False, True):
            found = (relation.lax if lax else relation.bisimulation)(mdp)
            assert found.tolist() == classes_by_signatures(mdp, lax=lax)


def test_many_labels() -> None:
    # More labels than one integer encodes, all masks equal but the last.
    masks = {str(i): np.array([True, True, False]) for i in range(150)}
    masks["last"] = np.array([False, True, False])
    mdp = MDP.deterministic([[0], [1], [2]], [[0]] * 3, discount=0.5, labels=masks)
    assert relation.bisimulation(mdp).tolist() == [0, 1, 2]
    same = mdp.replace(labels={**masks, "last": np.zeros(3, bool)})
    assert relation.bisimulation(same).tolist() == [0, 0, 1]


def test_choices_of_equal_labels_are_sets() -> None:
    # The same two choices in another order.
    n, R = [[2, 3], [3, 2], [2, 2], [3, 3]], [[0, 0], [0, 0], [1, 1], [2, 2]]
    mdp = MDP.deterministic(n, R, discount=0.5)
    assert relation.bisimulation(mdp).tolist() == [0, 1, 2, 3]
    assert relation.bisimulation(mdp.replace(choice_labels=["a", "a"])).tolist() == [0, 0, 1, 2]
    # A state with one choice of a label, and one with two equal ones.
    once = MDP.deterministic(
        [[1, 0], [1, 1]], [[0, 9], [0, 0]], discount=0.5, available=[[True, False], [True, True]]
    )
    assert relation.bisimulation(once).tolist() == [0, 1]
    assert relation.bisimulation(once.replace(choice_labels=["a", "a"])).tolist() == [0, 0]


NOISY = MDP(
    [[[0, 0, 0.5, 0.5]], [[0, 0, 0.5, 0.5]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]],
    np.array([[0.1 + 0.2], [0.3], [1], [0]]),
    discount=0.9,
)


@pytest.mark.parametrize(
    "compute",
    [relation.bisimulation, relation.lax, lambda m, **k: relation.on_policy(m, [0] * 4, **k)],
)
def test_a_reward_tolerance_merges_rounded_rewards(compute: Callable[..., Any]) -> None:
    with pytest.warns(NearTieWarning, match=r"0\.3 and 0\.30000000000000004.*reward_tol=1e-16"):
        assert compute(NOISY).tolist() == [0, 1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compute(NOISY, reward_tol=1e-15).tolist() == [0, 0, 1, 2]
        # Neighbours within the tolerance chain up: 0, 0.3 and 1 are one class of rewards at 0.7.
        assert compute(NOISY, reward_tol=0.7).tolist() == [0, 0, 0, 0]
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match=r"reward_tol is .* and must be at least 0 and finite"):
            compute(NOISY, reward_tol=wrong)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("lax", [False, True])
def test_merged_rewards_are_part_of_the_error(deterministic: bool, lax: bool) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, rewards=2)
        noisy = mdp.replace(R=mdp.R + 0.05 * rng.random(mdp.R.shape))
        compute = exact.lax if lax else exact.bisimulation
        d = compute(noisy, reward_tol=0.06, tol=2.0)
        classes = (relation.lax if lax else relation.bisimulation)(noisy, reward_tol=0.06)
        assert d.metadata["classes"] == classes.max() + 1
        assert_solves(d, apply_operator(noisy, d.values, lax=lax), mdp.discount)
        precise = compute(noisy)
        assert np.abs(d.values - precise.values).max() <= d.error + precise.error


def test_no_warning_from_distances() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exact.bisimulation(NOISY).metadata["classes"] == 4
        d = exact.bisimulation(NOISY, reward_tol=1e-15)
    assert d.metadata["classes"] == 3
    assert d.error >= abs(0.1 + 0.2 - 0.3)
