"""Distances of MDPs with observations, put back into their equation by slow loops."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, exact, planning, relation, sampled, uses
from bisimetric._rounding import UNIT
from bisimetric.exact import gaps
from tests.labelled_oracle import apply_mico_operator, apply_operator, assert_solves, random_mdp

SEEDS = range(6)
both = pytest.mark.parametrize("deterministic", [True, False])
METRICS = ("l1", "l2", "max", "discrete", "function", "matrix")


def observe(mdp: MDP, rng: np.random.Generator, metric: str) -> tuple[MDP, Any]:
    """Return the MDP with random observations, some equal, and their ground distances."""
    x = rng.integers(3, size=(mdp.num_states, 2)).astype(float)
    difference = x[:, None] - x
    ground = {
        "l1": np.abs(difference).sum(axis=2),
        "l2": np.sqrt((difference**2).sum(axis=2)),
        "max": np.abs(difference).max(axis=2),
        "discrete": (difference != 0).any(axis=2).astype(float),
        "function": 2 * np.abs(difference[..., 0]),
        "matrix": np.abs(difference[..., 1]),
    }[metric]
    given: Any = metric
    if metric == "function":
        given = lambda x, y: 2 * np.abs(x - y)[..., 0]  # noqa: E731
    elif metric == "matrix":
        given = ground
    return mdp.replace(observations=x, ground_distance=given), ground


@both
@pytest.mark.parametrize("metric", METRICS)
def test_every_distance_adds_the_ground_distance(deterministic: bool, metric: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        plain = random_mdp(
            rng, deterministic=deterministic, labels=seed % 2 == 0, choices=seed % 3 == 0
        )
        mdp, ground = observe(plain, rng, metric)

        def gap(s: int, a: int, t: int, b: int, of: MDP = mdp, ground: Any = ground) -> float:
            return float(abs(of.R[s, a] - of.R[t, b]) + ground[s, t])

        for compute, relate, lax in (
            (exact.bisimulation, relation.bisimulation, False),
            (exact.lax, relation.lax, True),
        ):
            d = compute(mdp)
            assert_solves(
                d, apply_operator(mdp, np.asarray(d.values), lax=lax, gap=gap), mdp.discount
            )
            classes = relate(mdp)
            np.testing.assert_array_equal(d.values <= d.error, classes[:, None] == classes)
            assert d.bounds_values
            V = planning.optimal_values(mdp)
            apart = np.abs(V.values[:, None] - V.values)
            assert (apart <= d.values + d.error + 2 * V.error).all()
        first = np.array([np.flatnonzero(row)[0] for row in mdp.action_mask])
        mixed = mdp.action_mask / mdp.action_mask.sum(axis=1, keepdims=True)
        for policy in (first, mixed):
            chain = mdp.apply_policy(policy)
            own = lambda s, a, t, b, of=chain, g=gap: g(s, a, t, b, of)  # noqa: E731
            d = exact.on_policy(mdp, policy)
            assert_solves(d, apply_operator(chain, np.asarray(d.values), gap=own), mdp.discount)
            classes = relation.on_policy(mdp, policy)
            np.testing.assert_array_equal(d.values <= d.error, classes[:, None] == classes)
            U = exact.mico(mdp, policy)
            if not chain.has_labels:
                table = np.abs(chain.R - chain.R.T) + ground
                assert_solves(U, apply_mico_operator(chain, U.values, table), mdp.discount)


def test_a_gap_replaces_rewards_and_not_observations() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp, ground = observe(random_mdp(rng, deterministic=seed % 2 == 0), rng, "l1")
        d = exact.bisimulation(mdp, gap=gaps.rewards(mdp.R[None]))
        same = exact.bisimulation(mdp)
        if not mdp.has_labels and mdp.available is None:
            np.testing.assert_allclose(d.values, same.values, atol=d.error + same.error, rtol=0)
        zero = exact.bisimulation(mdp, gap=np.zeros(ground.shape))
        no_rewards = exact.bisimulation(mdp.replace(R=0 * mdp.R))
        comparable = same.values < mdp.diameter_bound - 1e-3
        np.testing.assert_allclose(
            zero.values[comparable], no_rewards.values[comparable], atol=2e-6, rtol=0
        )


@both
def test_queries(deterministic: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp, _ = observe(
            random_mdp(rng, deterministic=deterministic, labels=seed % 2 == 0), rng, "l2"
        )
        n, policy = mdp.num_states, np.array([np.flatnonzero(row)[0] for row in mdp.action_mask])
        pairs = [(s, t) for s in range(n) for t in range(n)]
        points = rng.integers(3, size=(n * mdp.num_actions, 2))
        cost = np.abs(points[:, None] - points).sum(axis=2).astype(float)
        cost = cost.reshape(n, mdp.num_actions, n, mdp.num_actions)
        ground = cost[:, 0, :, 0]
        kinds: Any = {
            "bisimulation": (exact.bisimulation, {}, (None, ground, cost)),
            "lax": (exact.lax, {}, (None, ground, cost)),
            "on_policy": (exact.on_policy, {"policy": policy}, (None, ground)),
        }
        for kind, (compute, options, found) in kinds.items():
            for gap in found:
                d = compute(mdp, gap=gap, **options)
                q = exact.query(mdp, pairs, kind=kind, gap=gap, **options)
                assert np.abs(q.values.reshape(n, n) - d.values).max() <= q.error + d.error
                assert ("gap" in q.metadata) == (gap is not None)


def test_a_query_explores_no_more_than_it_needs() -> None:
    states = 4_000
    s = np.arange(states)
    mdp = MDP.deterministic(
        np.maximum(s - 1, 0)[:, None],
        np.zeros((states, 1)),
        discount=0.5,
        observations=s[:, None] % 7,
    )
    q = exact.query(mdp, [(states - 1, states - 2)])
    assert q.num_explored < 100
    expected = sum(0.5**k * abs((states - 1 - k) % 7 - (states - 2 - k) % 7) for k in range(200))
    assert q(states - 1, states - 2) == pytest.approx(expected, abs=q.error)


def test_the_rounding_of_a_norm_is_in_the_error() -> None:
    # sqrt(0.1^2 + 0.3^2) is irrational: at discount 0 the distance is the norm itself.
    x = np.array([[0.0, 0.0], [0.1, 0.3]])
    for discount in (0.0, 0.5):
        mdp = MDP.deterministic([[0], [1]], [[0.0], [0.7]], discount=discount, observations=x)
        d = exact.bisimulation(mdp)
        reward, squared = Fraction(0.7), Fraction(0.1) ** 2 + Fraction(0.3) ** 2
        low = (Fraction(float(d(0, 1))) - Fraction(d.error)) * (1 - Fraction(discount)) - reward
        high = (Fraction(float(d(0, 1))) + Fraction(d.error)) * (1 - Fraction(discount)) - reward
        assert low**2 <= squared <= high**2
        assert d.error > 0
    ground = mdp.ground_distance
    assert ground is not None
    assert ground.rounding_error >= UNIT * math.hypot(0.1, 0.3)
    exactly = mdp.replace(ground_distance=np.array([[0, 1.0], [1.0, 0]])).ground_distance
    assert exactly is not None
    assert exactly.rounding_error == 0


SMALL = 0.99 * UNIT
"""1 + SMALL rounds to 1."""


@pytest.mark.parametrize("solver", ["d~", "d_lax", "d^pi", "mico", "query", "sampled", "sharded"])
def test_the_rounding_of_a_sum_is_in_the_error(solver: str) -> None:
    # At discount 0 nothing but rounding is left: the sum of 100 differences rounds to the first.
    x = np.array([[0.0] * 100, [1.0] + [SMALL] * 99])
    mdp = MDP.deterministic(
        [[0], [1]], [[0], [0]], discount=0.0, observations=x, ground_distance="l1"
    )
    if solver == "sharded":
        pytest.importorskip("jax")
        from bisimetric.exact import sharded
    compute: dict[str, Any] = {
        "d~": lambda: exact.bisimulation(mdp),
        "d_lax": lambda: exact.lax(mdp),
        "d^pi": lambda: exact.on_policy(mdp, [0, 0]),
        "mico": lambda: exact.mico(mdp, [0, 0]),
        "query": lambda: exact.query(mdp, [(0, 1)]),
        "sampled": lambda: sampled.bisimulation(mdp),
        "sharded": lambda: sharded.bisimulation(mdp),
    }
    d = compute[solver]()
    true = 1 + 99 * Fraction(SMALL)
    off = abs(Fraction(float(d(0, 1))) - true)
    assert off > 90 * Fraction(SMALL)
    assert off <= Fraction(d.error) <= 1000 * Fraction(UNIT)


def test_explanations_contain_the_ground_distance() -> None:
    for deterministic in (True, False):
        rng = np.random.default_rng(1)
        mdp, _ = observe(random_mdp(rng, deterministic=deterministic, labels=False), rng, "l1")
        d = exact.bisimulation(mdp)
        for s in range(mdp.num_states):
            for t in range(s):
                explained = d.explain(s, t)
                assert explained.total == pytest.approx(d(s, t), abs=10 * d.error)


def test_equal_dynamics_and_different_observations_are_not_bisimilar() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0], [0]], discount=0.5, observations=[[0], [1e-9]])
    d = exact.bisimulation(mdp)
    assert relation.bisimulation(mdp).tolist() == [0, 1]
    assert d(0, 1) == pytest.approx(2e-9, abs=d.error)
    assert "not proven" not in str(d.explain(0, 0))


def test_uses_keep_their_bounds() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        mdp, _ = observe(
            random_mdp(rng, deterministic=seed % 2 == 0, labels=False, states=8), rng, "l1"
        )
        d = exact.bisimulation(mdp)
        result = uses.aggregate(mdp, d, clusters=3)
        assert result.value_gap <= result.value_bound + result.value_gap_error
        assert result.regret <= result.regret_bound + result.regret_error


def test_reduced_mico_needs_a_ground_distance_of_negative_type() -> None:
    rng = np.random.default_rng(0)
    plain = random_mdp(rng, deterministic=False, labels=False).replace(available=None)
    policy = np.full(plain.R.shape, 1 / plain.num_actions)
    for metric in METRICS:
        mdp, _ = observe(plain, rng, metric)
        if metric in ("l1", "l2", "discrete"):
            U, d = exact.mico(mdp, policy), exact.reduced_mico(mdp, policy)
            own = U.values.diagonal() / 2
            expected = U.values - own[:, None] - own
            assert np.abs(expected - d.values).max() <= d.error + 3 * U.error
        else:
            with pytest.raises(InputError, match="reduced MICo may be negative"):
                exact.reduced_mico(mdp, policy)


def test_witnesses_raise_and_perturbation_bounds_hold() -> None:
    rng = np.random.default_rng(2)
    plain = random_mdp(rng, deterministic=False, labels=False).replace(available=None)
    mdp, _ = observe(plain, rng, "l1")
    d = exact.bisimulation(mdp)
    with pytest.raises(InputError, match=r"observations and gap=\.\.\. are not supported"):
        exact.potential(d, 0, 1)
    with pytest.raises(InputError, match="formulas test labels, rewards and probabilities"):
        relation.distinguish(mdp, 0, 1)
    robust = relation.robust(mdp)
    classes = relation.bisimulation(mdp)
    assert all(len(set(classes[robust == each])) == 1 for each in robust)
    bounds = exact.perturbation_bound(d, reward=0.1)
    moved = exact.bisimulation(mdp.replace(R=mdp.R + rng.uniform(-0.1, 0.1, mdp.R.shape)))
    assert (np.abs(moved.values - d.values) <= bounds + d.error + moved.error).all()
