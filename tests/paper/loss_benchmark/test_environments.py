"""MDPs of the loss benchmark: exact metrics, fixed points of the losses, and renderings."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from bisimetric import exact, worlds
from bisimetric.paper.loss_benchmark import environments, references, training
from bisimetric.paper.loss_benchmark.environments import ENVIRONMENTS, TUNING, Environment
from bisimetric.paper.loss_benchmark.methods import METHODS, NStepBatch
from bisimetric.paper.loss_benchmark.protocol import DISCOUNT, Protocol, Run, Setting

build = functools.cache(environments.build)
DETERMINISTIC = ("rooms", "walls", "minigrid", "lava")
INDEPENDENT = ("mico", "sampled_mico", "sampled_reduced_mico", "independent_1", "independent_3")


def test_two_mdps_of_different_kinds_are_held_out() -> None:
    held_out = [name for name in ENVIRONMENTS if name not in TUNING]
    assert len(held_out) == 2
    assert [build(name).is_image for name in held_out] == [True, False]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_metrics_are_proven_and_states_look_different(name: str) -> None:
    environment = build(name)
    size = environment.num_states
    assert max(environment.errors.values()) < 1e-6
    assert len(np.unique(environment.features.reshape(size, -1), axis=0)) == size
    assert np.ptp(np.append(environment.rewards, 0.0)) >= 0.9
    np.testing.assert_allclose(environment.probabilities.sum(axis=2), 1)
    tolerance = 1e-5
    for index, policy in enumerate(("greedy", "uniform")):
        values = environment.values[index]
        gaps = np.abs(values[:, None] - values)
        on_policy = environment.get_distance("on_policy", policy)
        assert (gaps <= on_policy + tolerance).all()
        assert (on_policy <= environment.get_distance("mico", policy) + tolerance).all()
        sampled = environment.get_distance("sampled_mico", policy)
        assert (environment.get_distance("mico", policy) <= sampled + tolerance).all()
    optimal = environment.values[-1]
    bisimulation = environment.get_distance("bisimulation", "greedy")
    assert (np.abs(optimal[:, None] - optimal) <= bisimulation + tolerance).all()
    assert (bisimulation <= environment.get_distance("product", "greedy") + tolerance).all()


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_fixed_points_are_the_metrics_where_nothing_is_random(name: str) -> None:
    environment = build(name)
    on_policy = environment.get_distance("on_policy", "greedy")
    for metric in INDEPENDENT:
        found = environment.get_distance(metric, "greedy")
        np.testing.assert_allclose(found, on_policy, atol=2e-6)
    product = environment.get_distance("product", "greedy")
    np.testing.assert_allclose(product, environment.distances["bisimulation"], atol=2e-6)


def test_the_rooms_are_those_of_the_paper() -> None:
    d = exact.bisimulation(worlds.load("mirrored-rooms", discount=DISCOUNT))
    # Rewards from -1 to 1 are divided by 2.
    np.testing.assert_allclose(build("rooms").distances["bisimulation"], d.values / 2, atol=1e-9)


def test_stock_and_order_of_equal_sum_are_bisimilar() -> None:
    stock, ordered = (each.ravel() for each in np.indices((12, 4)))
    available = np.minimum(stock + ordered, 11)
    zero = build("inventory").distances["bisimulation"] < 1e-6
    np.testing.assert_array_equal(zero, available[:, None] == available)


def test_the_independent_coupling_is_that_of_mico() -> None:
    mdp = worlds.load("random", states=6, actions=2, successors=3, discount=0.8)
    policy = np.full((6, 2), 0.5)
    chain = mdp.apply_policy(policy)
    P, R = np.asarray(chain.P.todense()), np.asarray(chain.R)[:, 0]
    gaps = np.abs(R[:, None] - R)
    U = references.solve_independent(P, gaps, 0.8)
    np.testing.assert_allclose(U, exact.mico(mdp, policy).values, atol=2e-6)
    reduced = exact.reduced_mico(mdp, policy).values
    np.testing.assert_allclose(references.reduce(U), reduced, atol=2e-6)
    # With self-distances, n steps of the operator have the same fixed point.
    np.testing.assert_allclose(references.solve_independent(P, gaps, 0.8, num_steps=3), U)
    metric = references.solve_independent(P, gaps, 0.8, self_distances=False)
    assert (metric <= U).all()
    assert not np.diag(metric).any()


def test_an_environment_is_read_back(tmp_path: Path) -> None:
    environment = build("queue")
    environment.save(tmp_path / "queue.npz")
    again = Environment.load(tmp_path / "queue.npz")
    assert again.errors == environment.errors
    np.testing.assert_array_equal(again.features, environment.features)
    for name, matrix in environment.distances.items():
        np.testing.assert_array_equal(again.distances[name], matrix)


def sample(name: str, noise: str, policy: str = "uniform", size: int = 4096) -> NStepBatch:
    environment = build(name)
    runs = [Run(policy, noise, Setting(1e-3, 0.5), 0)]
    arrays = training._build_runs(METHODS["mico"], environment, runs)
    run = jax.tree.map(lambda each: each[0], arrays)
    tables = training._build_tables(environment)
    protocol = Protocol(batch_size=size, lookahead=2)
    return training.sample_batch(jax.random.key(0), tables, run, protocol)


@pytest.mark.parametrize(
    ("name", "columns"), [("inventory", slice(32, None)), ("minigrid", slice(7, None))]
)
@pytest.mark.parametrize(
    ("noise", "scale", "correlation"),
    [("none", 0.0, 0.0), ("iid", 0.5, 0.0), ("slow", 0.5, 0.95)],
)
def test_distractors_are_further_coordinates_with_the_stated_correlation(
    name: str, columns: slice, noise: str, scale: float, correlation: float
) -> None:
    batch = sample(name, noise)
    now = np.asarray(batch.observations)[..., columns].ravel()
    following = np.asarray(batch.next_observations)[..., columns].ravel()
    last = np.asarray(batch.last_observations)[..., columns].ravel()
    assert now.std() == pytest.approx(scale, abs=0.01)
    assert following.std() == pytest.approx(scale, abs=0.01)
    if scale:
        assert np.corrcoef(now, following)[0, 1] == pytest.approx(correlation, abs=0.02)
        assert np.corrcoef(now, last)[0, 1] == pytest.approx(correlation**2, abs=0.02)


def test_batches_follow_the_mdp() -> None:
    """Mean rewards, termination and successors are those of the tables, per state and action."""
    environment = build("frozen-lake")
    batch = sample("frozen-lake", "none", size=20_000)
    features = environment.features
    states = np.argmax(np.asarray(batch.observations)[:, :32] @ features.T, axis=1)
    actions = np.asarray(batch.actions)
    expected = 0.5 * environment.rewards[states, actions]
    np.testing.assert_allclose(np.asarray(batch.rewards)[:, 0], expected, rtol=1e-6)
    assert np.bincount(states, minlength=53).min() > 250
    ends = environment.successors[states, actions] == environment.num_states
    probability = (ends * environment.probabilities[states, actions]).sum(axis=1)
    ended = np.asarray(batch.terminated)[:, 0]
    assert not ended[probability == 0].any()
    assert ended.mean() == pytest.approx(probability.mean(), abs=0.01)
    # What has ended stays ended, and pays nothing.
    assert np.asarray(batch.terminated)[ended, 1].all()
    assert not np.asarray(batch.rewards)[ended, 1].any()


def test_the_policy_chooses_the_actions() -> None:
    environment = build("rooms")
    batch = sample("rooms", "none", policy="greedy", size=512)
    states = np.argmax(np.asarray(batch.observations)[:, :32] @ environment.features.T, axis=1)
    chosen = np.argmax(environment.policies[0], axis=1)[states]
    np.testing.assert_array_equal(np.asarray(batch.actions), chosen)
