"""Labels of states and choices in every exact and sampled distance, against slow loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, exact, relation, sampled
from tests.labelled_oracle import (
    apply_mico_operator,
    apply_operator,
    assert_solves,
    random_mdp,
)

SEEDS = range(12)
both = pytest.mark.parametrize("deterministic", [True, False])


@both
@pytest.mark.parametrize("lax", [False, True])
@pytest.mark.parametrize("choices", [False, True])
def test_distances_solve_their_equation(deterministic: bool, lax: bool, choices: bool) -> None:
    for seed in SEEDS:
        mdp = random_mdp(np.random.default_rng(seed), deterministic=deterministic, choices=choices)
        d = (exact.lax if lax else exact.bisimulation)(mdp)
        assert_solves(d, apply_operator(mdp, d.values, lax=lax), mdp.discount)
        zero = (relation.lax if lax else relation.bisimulation)(mdp)
        np.testing.assert_array_equal(d.values == 0, zero[:, None] == zero)


@both
def test_on_policy_and_mico_solve_their_equations(deterministic: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=deterministic)
        uniform = mdp.action_mask / mdp.action_mask.sum(axis=1, keepdims=True)
        for policy in (np.zeros(mdp.num_states, int), uniform):
            chain = mdp.apply_policy(policy)
            d, U = exact.on_policy(mdp, policy), exact.mico(mdp, policy)
            assert_solves(d, apply_operator(chain, d.values), mdp.discount)
            assert_solves(U, apply_mico_operator(chain, U.values), mdp.discount)
            assert (d.values <= U.values + d.error + U.error).all()


@both
@pytest.mark.parametrize("kind", ["bisimulation", "lax", "on_policy"])
def test_queries_agree_with_the_matrix(deterministic: bool, kind: Any) -> None:
    for seed in SEEDS:
        mdp = random_mdp(np.random.default_rng(seed), deterministic=deterministic)
        policy: dict[str, Any] = {}
        if kind == "on_policy":
            policy["policy"] = np.zeros(mdp.num_states, int)
        d = getattr(exact, kind)(mdp, **policy)
        pairs = [(s, t) for s in range(mdp.num_states) for t in range(s)]
        for chosen in (pairs, pairs[seed : seed + 1]):
            found = exact.query(mdp, chosen, kind=kind, **policy)
            expected = np.array([d(*pair) for pair in chosen])
            np.testing.assert_allclose(found.values, expected, atol=found.error + d.error, rtol=0)


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_sampled_distances_agree_with_the_matrix(kind: str) -> None:
    for seed in range(4):
        mdp = random_mdp(np.random.default_rng(seed), deterministic=True)
        policy = (np.zeros(mdp.num_states, int),) if kind == "on_policy" else ()
        d = getattr(exact, kind)(mdp, *policy)
        found = getattr(sampled, kind)(mdp, *policy, seed=0, steps=20_000)
        assert np.isfinite(found.error)
        np.testing.assert_allclose(found.values, d.values, atol=found.error + d.error, rtol=0)


def test_more_states_than_one_thread_solves() -> None:
    # The parallel solvers of d~ and d_lax, float32 as well.
    rng = np.random.default_rng(0)
    states = 300
    n, R = rng.integers(states, size=(states, 2)), rng.integers(2, size=(states, 2))
    labels = {"x": rng.random(states) < 0.5}
    mdp = MDP.deterministic(n, R, discount=0.8, labels=labels)
    for dtype in ("float64", "float32"):
        for compute in (exact.bisimulation, exact.lax):
            d = compute(mdp, dtype=dtype)
            gaps = np.abs(mdp.R[:, None, :, None] - mdp.R[None, :, None, :])
            v = gaps + 0.8 * d.values[n[:, None, :, None], n[None, :, None, :]]
            both = np.maximum(v.min(axis=3).max(axis=2), v.min(axis=2).max(axis=2))
            backup = both if compute is exact.lax else v.diagonal(axis1=2, axis2=3).max(axis=2)
            backup = np.where(labels["x"][:, None] != labels["x"], mdp.diameter_bound, backup)
            np.fill_diagonal(backup, 0.0)
            assert np.abs(backup - d.values).max() <= 1.8 * d.error + 1e-12


def test_two_absorbing_states_with_different_labels() -> None:
    mdp = MDP.deterministic([[0, 0], [1, 1]], np.zeros((2, 2)), discount=0.9, labels=["a", "b"])
    for d in (
        exact.bisimulation(mdp),
        exact.lax(mdp),
        exact.on_policy(mdp, [0, 0]),
        exact.mico(mdp, [0, 0]),
        sampled.bisimulation(mdp, seed=0, steps=10),
    ):
        assert d(0, 1) == pytest.approx(10, abs=d.error + 1e-12)
        assert d(0, 0) == 0
    assert relation.lax(mdp).tolist() == relation.bisimulation(mdp).tolist() == [0, 1]


def test_labels_without_rewards_give_the_usual_distance_of_labelled_chains() -> None:
    # 1 where labels differ, else discount * W1, after scaling by 1 - discount.
    P = [[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]]
    mdp = MDP(P, np.zeros((3, 1)), discount=0.9, labels=[(), (), "goal"])
    d = exact.bisimulation(mdp)
    # x = d(0, 1) = 0.9 * (0.5 * 1), scaled.
    np.testing.assert_allclose(
        np.asarray(0.1 * d.values),
        np.array([[0, 0.45, 1], [0.45, 0, 1], [1, 1, 0]]),
        atol=0.1 * d.error + 1e-12,
    )


def test_rewards_scale_labelled_distances() -> None:
    mdp = random_mdp(np.random.default_rng(3), deterministic=False)
    d, scaled = exact.bisimulation(mdp), exact.bisimulation(mdp.replace(R=8 * mdp.R))
    np.testing.assert_allclose(scaled.values, 8 * d.values, atol=scaled.error + 8 * d.error)


def test_what_labels_do_not_reach_raises() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0], [1]], discount=0.9, labels=["a", "b"])
    with pytest.raises(InputError, match=r"reduced MICo is defined by rewards alone.*exact\.mico"):
        exact.reduced_mico(mdp)
    shared = MDP.deterministic(
        [[0, 1], [1, 1]], [[0, 1], [1, 0]], discount=0.9, choice_labels=["a", "a"]
    )
    with pytest.raises(InputError, match=r"exact\.query: .* choice labels.*exact\.bisimulation"):
        exact.query(shared, [(0, 1)])
    with pytest.raises(InputError, match=r"sampled\.bisimulation: source has .* choice labels"):
        sampled.bisimulation(shared)
    with pytest.raises(InputError, match=r"choice labels.*leave samples out"):
        exact.bisimulation(shared, samples=3)
