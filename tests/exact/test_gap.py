"""Distances with a gap of their own, put back into their equation by slow loops."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings

from bisimetric import MDP, Distance, InputError, exact, relation, uses
from bisimetric.exact import gaps
from tests.labelled_oracle import (
    actions_of,
    apply_mico_operator,
    apply_operator,
    assert_solves,
    random_mdp,
)
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps

SEEDS = range(6)
both = pytest.mark.parametrize("deterministic", [True, False])


def metric(rng: np.random.Generator, size: int) -> Any:
    """A random pseudometric with some zeros: distances of points on a grid."""
    points = rng.integers(3, size=(size, 2))
    return np.abs(points[:, None] - points[None]).sum(axis=2).astype(float)


def solves(d: Distance, mdp: MDP, gap: Any, *, lax: bool = False) -> None:
    any_actions = lax or mdp.choice_labels is not None
    largest = max(
        float(gap(s, a, t, b))
        for s in range(mdp.num_states)
        for t in range(mdp.num_states)
        for a in actions_of(mdp, s)
        for b in actions_of(mdp, t)
        if any_actions or a == b
    )
    diameter = (largest or 1.0) / (1 - mdp.discount)
    backup = apply_operator(mdp, np.asarray(d.values), lax=lax, gap=gap, diameter=diameter)
    assert_solves(d, backup, mdp.discount)


@both
@pytest.mark.parametrize("labels", [False, True])
def test_d_tilde_of_state_and_action_gaps(deterministic: bool, labels: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, labels=labels)
        cost = np.stack([metric(rng, mdp.num_states) for _ in range(mdp.num_actions)], axis=2)
        d = exact.bisimulation(mdp, gap=cost)
        solves(d, mdp, lambda s, a, t, b, cost=cost: cost[s, t, a])
        function: Any = lambda s, a, t, b, cost=cost: cost[s, t, a]  # noqa: E731
        same = exact.bisimulation(mdp, gap=function)
        np.testing.assert_array_equal(same.values, d.values)
        ground = cost[:, :, 0]
        d = exact.bisimulation(mdp, gap=ground, dtype="float32", tol=1e-3)
        assert d.values.dtype == np.float32
        solves(d, mdp, lambda s, a, t, b, ground=ground: ground[s, t])


@both
def test_the_gap_of_the_rewards_is_the_default(deterministic: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, labels=False).replace(available=None)
        own = gaps.rewards(mdp.R[None])
        policy = np.zeros(mdp.num_states, int)
        mixed = mdp.action_mask / mdp.action_mask.sum(axis=1, keepdims=True)
        chain = mdp.apply_policy(mixed)
        for one, other in (
            (exact.bisimulation(mdp), exact.bisimulation(mdp.replace(R=0 * mdp.R), gap=own)),
            (exact.lax(mdp), exact.lax(mdp, gap=own)),
            (exact.on_policy(mdp, policy), exact.on_policy(mdp, policy, gap=own)),
            (exact.mico(mdp, policy), exact.mico(mdp, policy, gap=own)),
            (exact.on_policy(mdp, mixed), exact.on_policy(mdp, mixed, gap=gaps.rewards([chain.R]))),
            (exact.mico(mdp, mixed), exact.mico(mdp, mixed, gap=gaps.rewards([chain.R]))),
        ):
            assert np.abs(one.values - other.values).max() <= one.error + other.error


@both
def test_lax_and_choice_labels_compare_any_two_actions(deterministic: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, choices=True)
        states, actions = mdp.R.shape
        cost = metric(rng, states * actions).reshape(states, actions, states, actions)
        gap = lambda s, a, t, b, cost=cost: cost[s, a, t, b]  # noqa: E731
        for compute, lax in ((exact.lax, True), (exact.bisimulation, False)):
            d = compute(mdp, gap=cost)
            if lax or mdp.choice_labels:
                solves(d, mdp, gap, lax=lax)
                np.testing.assert_array_equal(compute(mdp, gap=gap).values, d.values)


@both
def test_policy_similarity(deterministic: bool) -> None:
    # Agarwal et al. (2021): total variation of the policies, and W1 of the successors.
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, labels=seed % 2 == 0)
        first = np.array([np.flatnonzero(row)[0] for row in mdp.action_mask])
        mixed = mdp.action_mask / mdp.action_mask.sum(axis=1, keepdims=True)
        for policy in (first, mixed):
            pi = np.eye(mdp.num_actions)[policy] if policy.ndim == 1 else policy
            tv = np.abs(pi[:, None] - pi[None]).sum(axis=2) / 2
            chain = mdp.apply_policy(policy)
            d = exact.on_policy(mdp, policy, gap=gaps.policies(mdp, policy))
            solves(d, chain, lambda s, a, t, b, tv=tv: tv[s, t])
            U = exact.mico(mdp, policy, gap=tv)
            if not chain.has_labels:
                assert_solves(U, apply_mico_operator(chain, U.values, tv), mdp.discount)
                assert (d.values <= U.values + d.error + U.error).all()


def test_several_rewards_bound_the_values_of_their_combinations() -> None:
    from bisimetric import planning

    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=False, labels=False).replace(available=None)
        R = rng.normal(size=(3, *mdp.R.shape))
        weights = np.array([1.0, 0.5, 2.0])
        summed = exact.bisimulation(mdp, gap=gaps.rewards(R, weights=weights))
        largest = exact.bisimulation(mdp, gap=gaps.rewards(R, weights=weights, combine="max"))
        gap = np.abs(R[:, :, None] - R[:, None, :]) * weights[:, None, None, None]
        solves(summed, mdp, lambda s, a, t, b, gap=gap: gap[:, s, t, a].sum())
        solves(largest, mdp, lambda s, a, t, b, gap=gap: gap[:, s, t, a].max())
        for combination in (weights, -weights, weights * [1, -1, 0.3]):
            V = planning.optimal_values(mdp.replace(R=np.tensordot(combination, R, 1)))
            apart = np.abs(V.values[:, None] - V.values)
            assert (apart <= summed.values + summed.error + 2 * V.error).all()
        for weight, each in zip(weights, R, strict=True):
            V = planning.optimal_values(mdp.replace(R=weight * each))
            apart = np.abs(V.values[:, None] - V.values)
            assert (apart <= largest.values + largest.error + 2 * V.error).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_observed_vectors(norm: Any) -> None:
    rng = np.random.default_rng(0)
    mdp = random_mdp(rng, deterministic=False, labels=False)
    x = rng.normal(size=(mdp.num_states, 2))
    order = {"l1": 1, "l2": 2, "max": np.inf}[norm]
    ground = 3 * np.linalg.norm(x[:, None] - x[None], ord=order, axis=2)
    d = exact.bisimulation(mdp, gap=gaps.observations(x, norm=norm, weight=3, R=mdp.R))
    largest = max(
        float((ground + np.abs(mdp.R[:, None, a] - mdp.R[None, :, a])).max())
        for a in range(mdp.num_actions)
    )
    backup = apply_operator(
        mdp,
        np.asarray(d.values),
        gap=lambda s, a, t, b: ground[s, t] + abs(mdp.R[s, a] - mdp.R[t, b]),
        diameter=largest / (1 - mdp.discount),
    )
    assert_solves(d, backup, mdp.discount)


@given(mdp=deterministic_mdps(max_states=8))
@settings(deadline=None, max_examples=scaled(40))
def test_policy_iteration_agrees_with_the_default_at_any_discount(mdp: MDP) -> None:
    d, e = exact.bisimulation(mdp), exact.bisimulation(mdp, gap=gaps.rewards(mdp.R[None]))
    assert np.abs(d.values - e.values).max() <= d.error + e.error
    np.testing.assert_array_equal(e.values, e.values.T)


def test_equal_observations_are_bisimilar_as_equal_labels_are() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=seed % 2 == 0, labels=False)
        x = rng.integers(2, size=(mdp.num_states, 1))
        d = exact.bisimulation(mdp, gap=gaps.observations(x, R=mdp.R))
        classes = relation.bisimulation(mdp.replace(labels=[str(each) for each in x]))
        np.testing.assert_array_equal(d.values <= d.error, classes[:, None] == classes)


@both
def test_zero_classes_are_the_relation_of_a_gap(deterministic: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic, choices=seed % 2 == 0)
        states, actions = mdp.R.shape
        structures = rng.integers(2, size=(2, states, actions))
        for gap in (metric(rng, states), gaps.rewards(structures)):
            for compute, relate, lax in (
                (exact.bisimulation, relation.bisimulation, False),
                (exact.lax, relation.lax, True),
            ):
                d = compute(mdp, gap=gap)
                classes = relate(mdp.replace(R=gaps.zero_classes(mdp, gap, lax=lax)))
                np.testing.assert_array_equal(d.values <= d.error, classes[:, None] == classes)


TWO = MDP([[[0.5, 0.5]], [[0, 1]]], [[0], [1]], discount=0.5)
GAP = np.array([[0.0, 1.0], [1.0, 0.0]])


def test_what_a_gap_does_not_prove(tmp_path: Any) -> None:
    d = exact.bisimulation(TWO, gap=GAP)
    assert not d.bounds_values
    assert exact.bisimulation(TWO).bounds_values
    assert d.metadata["gap"] == "array (2, 2)"
    d.save(tmp_path / "d.npz")
    assert not Distance.load(tmp_path / "d.npz").bounds_values
    with pytest.raises(InputError, match="has a gap of its own"):
        d.explain(0, 1)
    assert np.isinf(uses.aggregate(TWO, d, clusters=1).value_bound)


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (-GAP, r"gaps go from -1 to -0 and must be finite and >= 0"),
        (np.array([[0, np.nan], [np.nan, 0]]), "must be finite"),
        (np.array([[0, 1.0], [2.0, 0]]), r"differ by 1; a gap must be symmetric"),
        (GAP + 1, r"gap\(s, a, s, a\) is 1 and must be 0"),
        (np.ones((3, 3)), r"gap has shape \(3, 3\) and must be \(2, 2\) or .*, or a function"),
        ("x", "gap is <U1 and must be numbers or a function"),
        (lambda s, a, t, b: np.ones(7), r"returns shape \(7,\) .* must return \(2, 2\)"),
    ],
)
def test_invalid_gaps_raise(gap: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact.bisimulation(TWO, gap=gap)


def test_the_triangle_inequality_is_needed_for_couplings() -> None:
    x = np.arange(3.0)
    squared = (x[:, None] - x) ** 2
    P = np.full((3, 1, 3), 1 / 3)
    mdp = MDP(P, np.zeros((3, 1)), discount=0.5)
    with pytest.raises(InputError, match="violates the triangle inequality by 2"):
        exact.bisimulation(mdp, gap=squared)
    still = MDP.deterministic([[0], [1], [2]], np.zeros((3, 1)), discount=0.5)
    assert exact.bisimulation(still, gap=squared)(0, 2) == pytest.approx(8, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 3}, "gap and samples do not go together"),
        ({"reward_tol": 0.1}, "gap and reward_tol do not go together"),
    ],
)
def test_options_that_gaps_do_not_support(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact.bisimulation(TWO, gap=GAP, **options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gaps.rewards([[1.0]]), r"R has shape \(1, 1\) and must be \(k, S, A\)"),
        (lambda: gaps.rewards([[[1.0]]], weights=[-1]), "must be 1 finite numbers of at least 0"),
        (lambda: gaps.rewards([[[np.inf]]]), "must be finite"),
        (lambda: gaps.rewards([[[1.0]]], combine=cast(Any, "min")), "combine is 'min'"),
        (lambda: gaps.observations([1.0]), r"vectors have shape \(1,\)"),
        (lambda: gaps.observations([[1.0]], norm=cast(Any, "l3")), "norm is 'l3'"),
        (lambda: gaps.observations([[1.0]], weight=-1), "weight is -1"),
        (lambda: gaps.policies(TWO, [3, 0]), "must be an action from 0 to 0"),
    ],
)
def test_invalid_arguments_of_the_builders(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_a_stochastic_policy_has_no_action_to_compare() -> None:
    mdp = MDP.deterministic([[0, 1], [1, 0]], [[0, 1], [1, 1]], discount=0.5)
    with pytest.raises(InputError, match=r"pass the rewards of its chain, \(k, S, 1\)"):
        exact.on_policy(mdp, np.array([[0.5, 0.5], [1, 0]]), gap=gaps.rewards(mdp.R[None]))
