"""MICo and reduced MICo learned from chains and from stochastic data, against `exact`."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, InputError, Transitions, exact, learned, worlds
from bisimetric.errors import StochasticDataWarning
from bisimetric.learned import (
    LearnedDistance,
    MetricNetwork,
    MicoNetwork,
    PairTDConfig,
    RunOptions,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned._mico import build_batch_objective, build_table_objective
from bisimetric.learned.sources import ChainSource, StateSource
from tests.learned_references import TRIANGLE

NETWORK = MicoNetwork(MetricNetwork((32,), num_groups=16, group_size=1))
QUICK = PairTDConfig(NETWORK, batch_size=64, learning_rate=3e-3, warm_up=100)
CHAIN = worlds.load("random", states=6, actions=2, successors=2, seed=3, discount=0.8)
UNIFORM = np.full((6, 2), 0.5)
SILENT = RunOptions(log_every=10_000)


def sample(mdp: MDP, steps: int, seed: int = 0, reward_noise: float = 1.0) -> Transitions:
    """Uniform states and actions, and noise on the rewards."""
    rng = np.random.default_rng(seed)
    size, actions = mdp.R.shape
    s, a = rng.integers(size, size=steps), rng.integers(actions, size=steps)
    P = mdp.normalised_probabilities.toarray().cumsum(axis=1)[s * actions + a]
    t = np.minimum((rng.random(steps)[:, None] > P).sum(axis=1), size - 1)
    rewards = mdp.R[s, a] + reward_noise * rng.normal(size=steps)
    return Transitions(s, a, rewards, t, np.zeros(steps, bool))


def empirical_mico(data: Transitions, discount: float) -> NDArray[Any]:
    """Exact MICo of the chain that the data make."""
    size = int(data.num_states or 0)
    P = np.zeros((size, 1, size))
    for s, t in zip(np.asarray(data.states), np.asarray(data.next_states), strict=True):
        P[s, 0, t] += 1.0
    visits = P.sum(axis=(1, 2))
    R = np.bincount(np.asarray(data.states), data.rewards, size) / visits
    chain = MDP(P / visits[:, None, None], R[:, None], discount=discount)
    return np.asarray(exact.mico(chain).values)


def correlation(d: Any, reference: Any) -> float:
    return float(np.corrcoef(np.ravel(d), np.ravel(reference))[0, 1])


@pytest.mark.parametrize("parametrisation", ["squared", "angular"])
def test_a_stochastic_chain_is_learned(parametrisation: str) -> None:
    reference = exact.mico(CHAIN, UNIFORM)
    network = dataclasses.replace(NETWORK, parametrisation=parametrisation)
    config = dataclasses.replace(QUICK, network=network)
    d = learned.mico(CHAIN, UNIFORM, updates=2_000, config=config, reference=reference)
    assert correlation(d.values, reference.values) > 0.999
    assert np.abs(d.values - reference.values).max() < 0.03 * reference.values.max()
    assert d.history["error"][-1] == pytest.approx(
        np.abs(d.values - reference.values).max(), rel=1e-3, abs=1e-5
    )
    assert d.metadata["policy"] == UNIFORM.tolist()


def test_a_deterministic_chain_has_no_self_distances() -> None:
    d = learned.mico(TRIANGLE, updates=1_500, config=QUICK)
    reference = exact.on_policy(TRIANGLE, TRIANGLE.policy).values
    np.testing.assert_allclose(d.values, reference, atol=0.05)


def test_random_rewards_and_actions_are_averaged() -> None:
    data = sample(CHAIN, 4_000)
    reference = empirical_mico(data, CHAIN.discount)
    d = learned.mico(data, updates=2_500, discount=CHAIN.discount, config=QUICK, options=SILENT)
    assert correlation(d.values, reference) > 0.98
    assert np.abs(d.values - reference).max() < 0.1 * reference.max()
    # E|r - r'| instead of |E r - E r'|: rewards have a standard deviation of 1.
    assert reference.max() < 2 / math.sqrt(math.pi) / (1 - CHAIN.discount)
    # The reduced distance is that of the same network.
    own = np.diagonal(reference)
    reduced = learned.reduced_mico(d)
    expected = reference - (own[:, None] + own[None, :]) / 2
    assert np.abs(reduced.values - expected).max() < 0.1 * reference.max()
    assert np.abs(np.diagonal(reduced.values)).max() < 1e-4


@pytest.mark.slow
def test_the_reward_head_removes_the_bias_where_observations_never_repeat() -> None:
    data = sample(CHAIN, 8_000)
    rng = np.random.default_rng(1)

    def observe(states: Any) -> NDArray[Any]:
        return np.asarray(np.eye(6)[states] + 0.05 * rng.normal(size=(len(states), 6)))

    noisy = Transitions(
        observe(data.states), data.actions, data.rewards, observe(data.next_states), data.terminated
    )
    reference = exact.mico(CHAIN, UNIFORM).values
    errors = {}
    for head in (True, False):
        # Fourier features, the default for 6 numbers, would fit the noise of the observations.
        smooth = dataclasses.replace(NETWORK.embedding, fourier_features=0)
        config = dataclasses.replace(QUICK, network=MicoNetwork(smooth), reward_head=head)
        d = learned.mico(noisy, updates=2_500, discount=CHAIN.discount, config=config)
        errors[head] = np.abs(d.table(np.eye(6)) - reference).max() / reference.max()
    assert errors[True] < 0.35
    assert errors[False] > 1.0


def test_rewards_of_equal_observations_are_averaged() -> None:
    data = Transitions([0, 1, 0, 1], [0, 1, 1, 0], [1.0, 5.0, 3.0, 5.0], [1, 0, 0, 1], [False] * 4)
    assert source_from_transitions("mico", data).reward.tolist() == [2.0, 5.0, 2.0, 5.0]
    assert source_from_transitions("on_policy", data).reward.tolist() == [1.0, 5.0, 3.0, 5.0]


def test_a_transition_is_not_paired_with_itself() -> None:
    """With all data equal to one row, only that row remains, and no pair of different ones."""
    data = Transitions([[0.0], [1.0]], [0, 0], [0.0, 1.0], [[1.0], [0.0]], [False, False])
    source = source_from_transitions("mico", data)
    single = dataclasses.replace(source, num_stored=jnp.int32(1))
    config = PairTDConfig(NETWORK, batch_size=2, reward_head=False)
    network = config.build_network(source, "mico", 0.5)
    parameters = network.init(jax.random.key(0), 1)
    for each, positive in ((source, True), (single, False)):
        objective = build_batch_objective(each, network, 0.5, 8)
        prepared = objective.prepare(parameters, jnp.int32(0))
        loss = float(objective.loss(parameters, prepared, jax.random.key(3)))
        assert (loss > 0) == positive


def test_the_terminal_state_has_reward_0_and_is_paired_with_itself() -> None:
    data = Transitions([0, 1] * 20, [0] * 40, [1.0, 2.0] * 20, [1, 1] * 20, [False, True] * 20)
    config = dataclasses.replace(QUICK, batch_size=32)
    d = learned.mico(data, updates=1_500, discount=0.5, config=config, options=SILENT)
    # 0 -> 1 -> end: rewards 1, 2, and then 0.
    expected = {(0, None): 1 + 0.5 * 2, (1, None): 2.0, (0, 1): 1 + 0.5 * 2, (None, None): 0.0}
    for (s, t), value in expected.items():
        assert d(s, t) == pytest.approx(value, abs=0.1)


def test_all_pairs_of_states_have_expected_targets() -> None:
    source = source_from_mdp("mico", CHAIN, UNIFORM)
    assert isinstance(source, ChainSource)
    network = QUICK.build_network(source, "mico", 0.8)
    parameters = network.init(jax.random.key(0), source.scaling.num_features)
    P = CHAIN.apply_policy(UNIFORM).normalised_probabilities.toarray()
    R = CHAIN.apply_policy(UNIFORM).R[:, 0]
    x = source.compute_features()
    U = np.asarray(network.table(parameters, x, x), np.float64)
    for lookahead in (1, 3):
        U_next = U
        for _ in range(lookahead):
            U_next = np.abs(R[:, None] - R) + 0.8 * P @ U_next @ P.T
        objective = build_table_objective(source, network, 0.8, 64, lookahead)
        targets = np.asarray(objective.prepare(parameters, jnp.int32(0))) * network.unit
        np.testing.assert_allclose(targets, U_next, rtol=1e-4, atol=1e-4)
    loss = float(objective.loss(parameters, targets / network.unit, jax.random.key(0)))
    assert loss == pytest.approx(np.mean((U - targets) ** 2) / network.unit**2, rel=1e-3)


def test_successors_of_a_chain_are_sampled_by_their_probabilities() -> None:
    source = source_from_mdp("mico", CHAIN, UNIFORM, points=np.eye(6))
    batch = source.sample_batch(jax.random.key(0), 6_000)
    x, x_next = (np.asarray(each).argmax(axis=1) for each in (batch.x, batch.x_next))
    counts = np.zeros((6, 6))
    np.add.at(counts, (x, x_next), 1.0)
    P = CHAIN.apply_policy(UNIFORM).normalised_probabilities.toarray()
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), P, atol=0.08)


def test_files_keep_the_network(tmp_path: Path) -> None:
    data = sample(CHAIN, 100)
    config = dataclasses.replace(QUICK, network=dataclasses.replace(NETWORK, beta=0.2))
    d = learned.mico(data, updates=5, discount=0.8, config=config)
    for each in (d, learned.reduced_mico(d)):
        each.save(tmp_path / "d.safetensors")
        loaded = LearnedDistance.load(tmp_path / "d.safetensors")
        assert (loaded.kind, loaded.network) == (each.kind, each.network)
        np.testing.assert_array_equal(loaded.values, each.values)
        assert math.isfinite(loaded.quality(data).residual)


def test_a_resumed_run_is_that_of_one_run(tmp_path: Path) -> None:
    data, path = sample(CHAIN, 100), tmp_path / "run.safetensors"
    config = dataclasses.replace(QUICK, decay=False)

    def run(updates: int, **files: Any) -> LearnedDistance:
        options = RunOptions(log_every=10, **files)
        return learned.mico(data, updates=updates, discount=0.8, config=config, options=options)

    run(10, checkpoint=path)
    resumed, whole = run(20, resume=path), run(20)
    np.testing.assert_array_equal(resumed.values, whole.values)


def test_reduced_mico_is_that_of_the_learned_mico() -> None:
    data = sample(CHAIN, 100)
    U = learned.mico(data, updates=5, discount=0.8, config=QUICK)
    d = learned.reduced_mico(data, updates=5, discount=0.8, config=QUICK)
    assert (d.kind, d.metadata["kind"]) == ("reduced_mico", "reduced_mico")
    np.testing.assert_array_equal(d.values, learned.reduced_mico(U).values)
    with pytest.raises(InputError, match="kind 'reduced_mico' and must be of kind 'mico'"):
        learned.reduced_mico(d)
    source = source_from_transitions("mico", data)
    with pytest.raises(InputError, match=r"learned.fit: kind is 'reduced_mico'"):
        learned.fit("reduced_mico", source, discount=0.8, updates=1)
    matrix = learned.reduced_mico(TRIANGLE, updates=5, config=QUICK).to_distance()
    assert matrix.kind == "reduced_mico"
    assert not np.diagonal(matrix.values).any()


def test_other_kinds_and_configurations_are_rejected() -> None:
    source = source_from_mdp("on_policy", TRIANGLE)
    with pytest.raises(InputError, match=r"learned.on_policy: config is a PairTDConfig"):
        learned.fit("on_policy", source, discount=0.5, updates=1, config=QUICK)
    with pytest.raises(InputError, match=r"PairTDConfig: network is .* must be a MicoNetwork"):
        PairTDConfig(MetricNetwork())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="PairTDConfig: lookahead is 0"):
        PairTDConfig(lookahead=0)
    with pytest.raises(InputError, match=r"learned.on_policy: policy must be one action per state"):
        source_from_mdp("on_policy", TRIANGLE, np.full((3, 2), 0.5))
    assert isinstance(source_from_mdp("mico", TRIANGLE), StateSource)


def test_stochastic_data_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", StochasticDataWarning)
        learned.mico(sample(CHAIN, 100), updates=2, discount=0.0, config=QUICK)
