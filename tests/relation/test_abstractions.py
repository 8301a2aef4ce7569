"""Li, Walsh & Littman's hierarchy: which relation refines which, and where it is strict."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from bisimetric import MDP, InputError, planning, relation
from bisimetric.mdp import number_by_appearance
from bisimetric.relation.abstractions import _find_greedy_cover, _find_smallest_cover
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps

CONDITIONS = ("bisimulation", "q_pi", "q_star", "a_star", "pi_star")
IMPLIED = {
    "bisimulation": {"lax", "q_pi", "q_star", "a_star", "pi_star", "v_star"},
    "lax": {"v_star"},
    "on_policy": set(),
    "q_pi": {"q_star", "a_star", "pi_star", "v_star"},
    "q_star": {"a_star", "pi_star", "v_star"},
    "a_star": {"pi_star", "v_star"},
    "pi_star": set(),
    "v_star": set(),
}
"""The table of docs/concepts/abstractions.md: all other implications fail for some MDP."""


def random_mdp(rng: np.random.Generator) -> MDP:
    """Few states and rewards of 0, 1 and 2 at discount 1/2, so that values often coincide.

    Perhaps state 1 is state 0 with the actions in reverse order.
    """
    states, actions = int(rng.integers(3, 6)), int(rng.integers(1, 3))
    n = rng.integers(states, size=(states, actions, 2))
    if rng.random() < 0.7:
        n[:, :, 1] = n[:, :, 0]
    R = rng.integers(3, size=(states, actions)).astype(float)
    n[-1], R[-1] = states - 1, 0.0
    if rng.random() < 0.3:
        n[1], R[1] = n[0, ::-1], R[0, ::-1]
    P = (np.eye(states)[n[:, :, 0]] + np.eye(states)[n[:, :, 1]]) / 2
    return MDP(P, R, discount=0.5)


def value_classes(mdp: MDP) -> np.ndarray[Any, Any]:
    return number_by_appearance(planning.optimal_values(mdp).values.round(6))


def compute_all(mdp: MDP, policy: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "bisimulation": relation.bisimulation(mdp),
        "lax": relation.lax(mdp),
        "on_policy": relation.on_policy(mdp, policy),
        "q_pi": relation.q_pi_irrelevance(mdp),
        "q_star": relation.q_star_irrelevance(mdp),
        "a_star": relation.a_star_irrelevance(mdp),
        "pi_star": relation.pi_star_irrelevance(mdp),
        "v_star": value_classes(mdp),
    }


def refines(finer: np.ndarray[Any, Any], coarser: np.ndarray[Any, Any]) -> bool:
    return bool(number_by_appearance(finer, coarser).max() == finer.max())


def test_the_table_of_refinements_holds_and_is_strict() -> None:
    rng = np.random.default_rng(0)
    violated: dict[str, set[str]] = {name: set() for name in IMPLIED}
    for _ in range(60):
        mdp = random_mdp(rng)
        policy = rng.integers(mdp.num_actions, size=mdp.num_states)
        classes = compute_all(mdp, policy)
        for finer, labels in classes.items():
            conditions: dict[Any, bool] = dict(relation.check_abstraction(mdp, labels))
            for other in ("lax", "on_policy", "v_star"):
                conditions[other] = refines(labels, classes[other])
            violated[finer] |= {name for name, holds in conditions.items() if not holds}
    for finer, implied in IMPLIED.items():
        assert violated[finer] == IMPLIED.keys() - implied - {finer}, finer


@settings(max_examples=scaled(30), deadline=None)
@given(stochastic_mdps(discounts=[0.0, 0.3, 0.9], available=True))
def test_each_abstraction_meets_its_condition_and_all_later_ones(mdp: MDP) -> None:
    found = {
        "bisimulation": relation.bisimulation(mdp),
        "q_pi": relation.q_pi_irrelevance(mdp),
        "q_star": relation.q_star_irrelevance(mdp),
        "a_star": relation.a_star_irrelevance(mdp),
        "pi_star": relation.pi_star_irrelevance(mdp),
    }
    sizes = [int(labels.max()) + 1 for labels in found.values()]
    assert sizes == sorted(sizes, reverse=True)
    for at, name in enumerate(CONDITIONS):
        met = relation.check_abstraction(mdp, found[name])
        assert all(met[later] for later in CONDITIONS[at:])  # type: ignore[index]


def list_partitions(states: int) -> list[np.ndarray[Any, Any]]:
    """All partitions of a few states."""
    found = {
        tuple(number_by_appearance(np.array(codes)))
        for codes in itertools.product(range(states), repeat=states)
    }
    return [np.array(labels) for labels in found]


def test_partitions_are_the_coarsest_with_their_condition() -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        mdp = random_mdp(rng)
        if mdp.num_states > 4:
            continue
        met = [
            (labels, relation.check_abstraction(mdp, labels))
            for labels in list_partitions(mdp.num_states)
        ]
        for name, labels in (
            ("bisimulation", relation.bisimulation(mdp)),
            ("q_pi", relation.q_pi_irrelevance(mdp)),
            ("q_star", relation.q_star_irrelevance(mdp)),
        ):
            assert all(refines(other, labels) for other, holds in met if holds[name])  # type: ignore[index]
        for name, labels in (
            ("a_star", relation.a_star_irrelevance(mdp)),
            ("pi_star", relation.pi_star_irrelevance(mdp)),
        ):
            fewest = min(int(other.max()) for other, holds in met if holds[name])  # type: ignore[index]
            assert labels.max() == fewest


def test_policies_that_act_differently_in_bisimilar_states_are_left_out() -> None:
    # 1 and 2 are bisimilar, and so are 3 and 4, which 1 and 2 lead to.
    n = [[0, 0], [3, 3], [4, 4], [0, 0], [0, 0]]
    mdp = MDP.deterministic(n, [[0, 0], [0, 0], [0, 0], [1, 0], [1, 0]], discount=0.5)
    assert relation.bisimulation(mdp).tolist() == [0, 1, 1, 2, 2]
    assert relation.q_pi_irrelevance(mdp).tolist() == [0, 1, 1, 2, 2]
    one_policy = relation.q_pi_irrelevance(mdp, [0, 0, 0, 0, 1])
    assert one_policy.tolist() == [0, 1, 0, 2, 2]


def test_one_policy_gives_the_classes_of_its_action_values() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        mdp = random_mdp(rng)
        policy = rng.dirichlet(np.ones(mdp.num_actions), mdp.num_states)
        Q = planning.action_values(mdp, planning.policy_values(mdp, policy)).round(6)
        expected = np.unique(Q, axis=0, return_inverse=True)[1].ravel()
        found = relation.q_pi_irrelevance(mdp, policy)
        assert np.array_equal(found, number_by_appearance(expected))


def test_labels_and_available_actions_separate_states() -> None:
    mdp = MDP.deterministic([[0, 0], [1, 1]], np.zeros((2, 2)), discount=0.5)
    assert relation.pi_star_irrelevance(mdp).max() == 0
    labelled = mdp.replace(labels=["x", "y"])
    assert relation.pi_star_irrelevance(labelled).max() == 1
    assert not any(relation.check_abstraction(labelled, [0, 0]).values())
    partial = mdp.replace(available=[[True, True], [True, False]])
    assert relation.q_star_irrelevance(partial).max() == 1
    assert relation.a_star_irrelevance(partial).max() == 0


def test_greedy_covers_hold_where_the_smallest_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    optimal = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]], bool)
    assert len(_find_smallest_cover(optimal)) == 2
    assert optimal[:, _find_greedy_cover(optimal)].any(axis=1).all()
    monkeypatch.setattr("bisimetric.relation.abstractions.MAX_COVERS", 0)
    assert _find_smallest_cover(optimal) == _find_greedy_cover(optimal)


def test_invalid_input_is_rejected() -> None:
    mdp = MDP.deterministic([[0, 0], [1, 1]], [[0.0, 1.0], [0.3, 0.0]], discount=0.9)
    with pytest.raises(InputError, match="choice labels"):
        relation.q_star_irrelevance(mdp.replace(choice_labels=["a", "a"]))
    with pytest.raises(InputError, match="tol is 1e-17 and action values are proven to"):
        relation.q_star_irrelevance(mdp, tol=1e-17)
    with pytest.raises(InputError, match="must be at least 0"):
        relation.pi_star_irrelevance(mdp, tol=-1.0)
    with pytest.raises(InputError, match="labels have shape"):
        relation.check_abstraction(mdp, [0])
