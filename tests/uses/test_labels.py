"""Bounds of uses with labels of states and choices, which make distances larger or match freely."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, Transitions, exact, planning, uses
from tests.labelled_oracle import random_mdp

CASES: Any = pytest.mark.parametrize("choices", [False, True])


@CASES
@pytest.mark.parametrize("compute", [exact.bisimulation, exact.lax])
def test_aggregation_bounds_hold(choices: bool, compute: Any) -> None:
    for seed in range(15):
        mdp = random_mdp(
            np.random.default_rng(seed), deterministic=seed % 2 == 0, choices=choices, rewards=5
        )
        d = compute(mdp)
        V = planning.optimal_values(mdp, tol=math.inf)
        for clusters in (1, 2, 4):
            found = uses.aggregate(mdp, d, clusters=clusters, require_proof=True)
            kept = planning.policy_values(mdp, found.policy, tol=math.inf)
            assert (V.values - kept.values).max() <= found.regret_bound + V.error + kept.error
            off = np.abs(V.values - found.values.values[found.labels]).max()
            assert off <= found.value_bound + V.error


@CASES
def test_transfer_bounds_hold(choices: bool) -> None:
    for seed in range(8):
        source, target = (
            random_mdp(
                np.random.default_rng(seed + shift), deterministic=True, choices=choices, rewards=5
            )
            for shift in (0, 100)
        )
        target = target.replace(choice_labels=source.choice_labels)
        union = uses.disjoint_union(source, target)
        for d in (exact.lax(union), exact.bisimulation(union)):
            found = uses.transfer(source, target, d)
            assert (found.regret <= found.regret_bound + found.regret_error).all()
        assert (uses.transfer(source, target).regret_bound >= -1e-9).all()


def test_compression_bounds_values_of_states_only() -> None:
    # Two choices of one label in another order: V* agrees, Q* of the same action does not.
    mdp = MDP.deterministic(
        [[2, 3], [3, 2], [2, 2], [3, 3]],
        [[0, 0], [0, 0], [1, 1], [0, 0]],
        discount=0.9,
        choice_labels=["a", "a"],
    )
    d = exact.bisimulation(mdp)
    assert d(0, 1) == 0
    steps = Transitions(
        np.array([0, 1]),
        np.zeros(2, int),
        np.zeros(2),
        np.array([2, 3]),
        np.zeros(2, bool),
        num_states=4,
        num_actions=2,
    )
    found = uses.compress(steps, d, 1)
    assert found.value_function == "V*"
    plain = uses.compress(steps, exact.bisimulation(mdp.replace(choice_labels=None)), 1)
    assert plain.value_function == "Q*"


def test_pair_q_learning_raises() -> None:
    pytest.importorskip("jax")
    from bisimetric import learned

    mdp = MDP.deterministic([[0], [1]], [[0], [1]], discount=0.9, labels=["a", "b"])
    with pytest.raises(InputError, match=r"learned\.bisimulation: labels .* not supported here"):
        learned.bisimulation(mdp, seed=0, config=learned.PairQConfig())
