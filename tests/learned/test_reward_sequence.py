"""Reward-sequence prediction, against enumerated futures, loops and exact distances."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import InputError, exact, learned
from bisimetric.learned import (
    ConvEncoder,
    FeatureScaling,
    LearnedDistance,
    MetricNetwork,
    PairQConfig,
    RewardSequenceConfig,
    RewardSequenceNetwork,
    RunOptions,
    network_files,
    source_from_transitions,
)
from bisimetric.learned.networks.reward_sequence_network import (
    RewardSequenceEnsemble,
    _are_equal,
)
from bisimetric.transitions import Transitions
from tests.learned_references import TRIANGLE, compile_quickly, contains  # noqa: F401 - a fixture

DISCOUNT = 0.8
SMALL = RewardSequenceConfig(
    RewardSequenceNetwork((32,)), batch_size=16, warm_up=20, learning_rate=1e-2, num_networks=2
)
VALUES = (-1.0, 0.0, 2.5)


def walk() -> Transitions:
    """Thirty steps in random observations: some episodes terminate, the others are truncated."""
    count, rng = 30, np.random.default_rng(0)
    x, rewards = rng.normal(size=(count, 2)), rng.choice(VALUES, size=count)
    following = np.roll(x, -1, axis=0)
    terminated, truncated = np.zeros((2, count), bool)
    terminated[[6, 9, 25]], truncated[[14, 20]] = True, True
    return Transitions(x, np.zeros(count, int), rewards, following, terminated, truncated)


def cycle(count: int = 400, length: int = 7, seed: int = 0) -> Transitions:
    """A cycle of states with noisy observations, which determine the future."""
    rng = np.random.default_rng(seed)
    state = np.arange(count + 1) % length
    x = np.eye(length)[state] + 0.02 * rng.normal(size=(count + 1, length))
    rewards = np.isin(state[:-1], (0, 3)).astype(float)
    ended = np.zeros(count, bool)
    return Transitions(x[:-1], np.zeros(count, int), rewards, x[1:], ended)


def coins(count: int = 2_000) -> Transitions:
    """Rewards by fair coins, of which the observations say nothing."""
    rng = np.random.default_rng(1)
    x, rewards = rng.normal(size=(count + 1, 2)), rng.integers(2, size=count).astype(float)
    ended = np.arange(count) % 100 == 99
    return Transitions(x[:-1], np.zeros(count, int), rewards, x[1:], ended & False, ended)


class Fixed:
    """An ensemble whose probabilities are given, for features that are row numbers."""

    def __init__(self, values: tuple[float, ...], p: NDArray[Any]) -> None:
        self.ensemble = RewardSequenceEnsemble(
            RewardSequenceNetwork((1,)), DISCOUNT, p.shape[1], values, num_networks=1
        )
        self.p = p

    def table(self, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> NDArray[np.float32]:
        monkeypatch.setattr(
            RewardSequenceEnsemble,
            "probabilities",
            lambda _, __, x: jnp.asarray(self.p, jnp.float32)[x[:, 0].astype(int)],
        )
        x = jnp.asarray(rows, jnp.float32)[:, None]
        return np.asarray(self.ensemble.table([], x, x))


def test_the_distance_is_that_of_two_independent_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    steps, states = 3, 4
    outcomes = rng.dirichlet(np.ones(3), size=(states, steps))
    exceeds = np.stack([outcomes[..., 0], outcomes[..., 2]], axis=-1)
    found = Fixed(VALUES, exceeds).table(list(range(states)), monkeypatch)
    for s, t in itertools.permutations(range(states), 2):
        expected = 0.0
        for k in range(steps):
            for i, j in itertools.product(range(3), repeat=2):
                gap = abs(VALUES[i] - VALUES[j])
                expected += DISCOUNT**k * outcomes[s, k, i] * outcomes[t, k, j] * gap
        assert found[s, t] == pytest.approx(expected, rel=1e-5)
    assert not np.diagonal(found).any()


def test_certain_rewards_give_the_exact_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    data = walk()
    d = exact.recorded(data, discount=DISCOUNT, reward_range=(-1, 2.5))
    # The first episode terminates with row 6.
    futures = np.zeros((7, 7))
    for i in range(7):
        futures[i, : 7 - i] = data.rewards[i:7]
    certain = np.stack([futures < 0, futures > 0], axis=-1).astype(float)
    found = Fixed(VALUES, certain).table(list(range(7)), monkeypatch)
    assert np.allclose(found, d.values[:7, :7], atol=1e-5)


def test_it_is_a_metric_for_all_weights() -> None:
    network = RewardSequenceEnsemble(RewardSequenceNetwork((8,)), 0.9, 12, VALUES, num_networks=2)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: network.init(key, 3), jax.random.key(0))
    for _ in range(20):
        weights = jax.tree.map(lambda s: (2 * rng.normal(size=s.shape)).astype(np.float32), shapes)
        x = jnp.asarray(rng.normal(size=(9, 3)), jnp.float32)
        x = jnp.concatenate([x, x[:1]])
        d = np.asarray(network.table(weights, x, x), np.float64)
        assert np.allclose(d, d.T, atol=1e-5)
        assert (d >= 0).all()
        assert d[0, 9] == 0
        assert not np.diagonal(d).any()
        assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-5).all()


def test_rare_rewards_are_not_lost_in_rounding() -> None:
    # Probabilities near 1 at every step would cancel in sums of about 100.
    network = RewardSequenceEnsemble(
        RewardSequenceNetwork((4,)), 0.99, 917, (-1.0, 0.0, 1.0), has_terminal=True
    )
    terminal, x = jnp.asarray([[0.0, 1.0]]), jnp.asarray([[0.5, 0.0]])
    weights = network.init(jax.random.key(0), 2)
    weights = jax.tree.map(lambda leaf: 0 * leaf, weights)
    for each in weights:
        each[-1]["biases"] -= 12.0
    expected = 2 * float(jax.nn.sigmoid(-12.0)) * (1 - 0.99**917) / 0.01
    assert float(network.table(weights, x, terminal)[0, 0]) == pytest.approx(expected, rel=1e-4)


def test_states_are_equal_where_all_features_are() -> None:
    one_hot = jnp.eye(2_000, dtype=jnp.float32)
    assert (np.asarray(_are_equal(one_hot, one_hot)) == np.eye(2_000, dtype=bool)).all()
    swapped = jnp.asarray([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [-0.0, 3.0]])
    expected = np.eye(4, dtype=bool)
    expected[2, 3] = expected[3, 2] = True
    assert (np.asarray(_are_equal(swapped, swapped)) == expected).all()


def compute_loss_by_loops(
    data: Transitions, network: Any, parameters: Any, rows: list[int], x: Any
) -> float:
    """The weighted cross-entropy of the recorded rewards, number by number."""
    total, weights = 0.0, np.asarray(network.weights, np.float64)
    for each in network.logits(parameters, x):
        logits = np.asarray(each, np.float64)
        for n, row in enumerate(rows):
            i, is_over = row, row < 0
            for k in range(network.horizon):
                reward = 0.0 if is_over else float(data.rewards[i])
                for j, low in enumerate(network.reward_values[:-1]):
                    sign = -1 if (reward > low if low >= 0 else reward <= low) else 1
                    entropy = np.logaddexp(0, sign * logits[n, k, j])
                    total += weights[k, j] / weights.sum() * entropy
                if is_over:
                    continue
                if data.terminated[i]:
                    is_over = True
                elif data.truncated[i] or i + 1 == len(data):
                    break
                i += 1
    return total / len(rows)


def test_the_loss_is_that_of_loops() -> None:
    data = walk()
    source = source_from_transitions("on_policy", data)
    network = SMALL.build_network(source, "on_policy", DISCOUNT)
    assert network.reward_values == VALUES
    assert network.has_terminal
    assert network.horizon == source.longest_episode == 7
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(
        lambda key: network.init(key, source.scaling.num_features), jax.random.key(0)
    )
    parameters = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(np.float32), shapes)
    objective = SMALL.build_objective(source, network, "on_policy", DISCOUNT)
    for seed in range(4):
        key = jax.random.key(seed)
        batch = source.sample_steps(key, SMALL.batch_size)
        rows = [*np.asarray(batch.row)[:-1].tolist(), -1]
        expected = compute_loss_by_loops(data, network, parameters, rows, batch.x)
        found = objective.loss(parameters, None, key)
        assert float(found) == pytest.approx(expected, rel=1e-4)


def test_the_terminal_state_has_no_rewards() -> None:
    d = learned.on_policy(walk(), updates=20, discount=DISCOUNT, config=SMALL)
    probabilities = d.network.probabilities(d.parameters, jnp.asarray(d.scaling.terminal))
    assert not np.asarray(probabilities).any()
    assert d(None, None) == 0


def test_it_learns_the_exact_distance_of_deterministic_data() -> None:
    data, held_out = cycle(), cycle(60, seed=1)
    d = learned.on_policy(data, updates=400, discount=DISCOUNT, config=SMALL)
    reference = exact.recorded(cycle(), discount=DISCOUNT, reward_range=(0, 1)).values[:60, :60]
    found = d.table(held_out.observations)
    off_diagonal = ~np.eye(60, dtype=bool)
    assert np.abs(found - reference)[off_diagonal].max() < 0.1
    assert np.corrcoef(found[off_diagonal], reference[off_diagonal])[0, 1] > 0.999
    assert not np.diagonal(found).any()


def test_unpredictable_futures_have_their_expected_distance() -> None:
    data = coins()
    d = learned.on_policy(data, updates=300, discount=DISCOUNT, config=SMALL)
    x = np.random.default_rng(2).normal(size=(100, 2))
    found = d.table(x)[~np.eye(100, dtype=bool)]
    # Half of the steps differ, whatever the states are.
    expected = 0.5 / (1 - DISCOUNT)
    assert found.mean() == pytest.approx(expected, rel=0.05)
    assert found.std() < 0.1 * expected
    # A pseudometric by construction is too small for nearby states.
    other = PairQConfig(
        MetricNetwork((32,), num_groups=16), batch_size=32, lookahead=np.inf, num_networks=1
    )
    near = learned.on_policy(data, updates=300, discount=DISCOUNT, config=other)
    assert near(x[0], x[0] + 0.01) < 0.5 * expected < d(x[0], x[0] + 0.01)


def test_a_file_holds_the_network(tmp_path: Path) -> None:
    d = learned.on_policy(walk(), updates=20, discount=DISCOUNT, config=SMALL)
    d.save(tmp_path / "d.safetensors")
    loaded = LearnedDistance.load(tmp_path / "d.safetensors")
    assert loaded.network == d.network
    x = walk().observations
    assert (loaded.table(x) == d.table(x)).all()
    assert loaded(x[0], None) == d(x[0], None)


def test_images_have_an_encoder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, size=(41, 8, 8, 1), dtype=np.uint8)
    rewards = (np.arange(40) % 4 == 0).astype(float)
    data = Transitions(images[:-1], np.zeros(40, int), rewards, images[1:], np.zeros(40, bool))
    network = RewardSequenceNetwork((8,), encoder=ConvEncoder((4,), num_features=8))
    config = dataclasses.replace(SMALL, network=network, batch_size=8)
    d = learned.on_policy(data, updates=4, discount=DISCOUNT, config=config)
    d.save(tmp_path / "d.safetensors")
    loaded = LearnedDistance.load(tmp_path / "d.safetensors")
    assert np.allclose(loaded.table(images[:5]), d.table(images[:5]))


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    source = source_from_transitions("on_policy", cycle())
    whole = learned.on_policy(source, updates=30, discount=DISCOUNT, config=SMALL)

    def run(updates: int, **options: Any) -> LearnedDistance:
        config = dataclasses.replace(SMALL, decay=False)
        return learned.on_policy(
            source, updates=updates, discount=DISCOUNT, config=config, options=RunOptions(**options)
        )

    run(12, checkpoint=path)
    resumed, direct = run(30, resume=path), run(30)
    x = cycle(20).observations
    assert (resumed.table(x) == direct.table(x)).all()
    assert (whole.table(x) != direct.table(x)).any()


def test_pure_functions_are_differentiable() -> None:
    d = learned.on_policy(walk(), updates=5, discount=DISCOUNT, config=SMALL)
    x = walk().observations
    value, gradient = jax.jit(jax.value_and_grad(d.apply))(d.params, x[0], x[1])
    assert float(value) == pytest.approx(d(x[0], x[1]), rel=1e-5)
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


def test_quality_measures_the_metric_axioms() -> None:
    d = learned.on_policy(cycle(), updates=400, discount=DISCOUNT, config=SMALL)
    quality = d.quality(cycle(seed=3))
    assert quality.identity == 0
    assert quality.triangle < 1e-5
    assert quality.residual < 0.1


def test_one_reward_value_gives_distance_0() -> None:
    data = dataclasses.replace(cycle(), rewards=np.full(400, 2.0))
    d = learned.on_policy(data, updates=200, discount=DISCOUNT, config=SMALL)
    assert d.table(data.observations[:9]).max() < 0.1


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("network", MetricNetwork((8,)), "and must be a RewardSequenceNetwork"),
        ("batch_size", 1, "batch_size is 1 and must be"),
        ("num_networks", 0, "num_networks is 0 and must be"),
        ("learning_rate", 0.0, "learning_rate is 0.0 and must be"),
    ],
)
def test_fields_are_validated(field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=contains(words)):
        dataclasses.replace(SMALL, **{field: value})


def test_what_has_no_recorded_episodes_is_an_error() -> None:
    with pytest.raises(InputError, match=contains("is an MDP, and the rewards of recorded")):
        learned.on_policy(TRIANGLE, updates=1, config=SMALL)
    with pytest.raises(InputError, match=contains("which learns d^pi only")):
        learned.bisimulation(walk(), updates=1, config=SMALL)
    many = dataclasses.replace(walk(), rewards=np.arange(30.0))
    with pytest.raises(InputError, match=contains("holds 30 different rewards and may hold 8")):
        learned.on_policy(many, updates=1, config=SMALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [("horizon", 0), ("reward_values", [0.0]), ("reward_values", [1.0, 0.0]), ("horizon", 10**12)],
)
def test_damaged_fields_are_errors(tmp_path: Path, name: str, value: Any) -> None:
    d = learned.on_policy(walk(), updates=2, discount=DISCOUNT, config=SMALL)
    described = network_files.describe_network(d.network)
    assert name in described
    path = tmp_path / "d.safetensors"
    damaged = dataclasses.replace(d.network, **{name: tuple(value) if name[0] == "r" else value})
    dataclasses.replace(d, network=damaged).save(path)
    with pytest.raises(InputError):
        LearnedDistance.load(path)


def test_features_are_scaled_once() -> None:
    network = RewardSequenceEnsemble(RewardSequenceNetwork((4,)), 0.5, 3, (0.0, 1.0))
    weights = network.init(jax.random.key(0), 1)
    d = LearnedDistance("on_policy", 0.5, network, weights, FeatureScaling(1.0, 2.0))
    x = jnp.asarray([[0.0], [1.0]])
    assert np.allclose(d.table([[1.0], [3.0]]), network.table(weights, x, x))
