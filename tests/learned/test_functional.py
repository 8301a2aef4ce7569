"""Pure functions for other training loops: apply, loss, matrices under jit, and compilations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bisimetric import MDP, InputError, Transitions, exact, learned
from bisimetric.learned import (
    FreeNetwork,
    LearnedDistance,
    MetricNetwork,
    MicoNetwork,
    PairQConfig,
    PairTDConfig,
    RunOptions,
    TransitionBatch,
    training,
)
from bisimetric.learned.castro2020 import Castro2020Config, PairNetwork
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.pair_q_loss import build_batch_objective
from bisimetric.learned.sources import Batch
from tests.learned_references import compile_quickly, loss_of  # noqa: F401 - a fixture

PAIR_Q = PairQConfig(MetricNetwork((8,), num_groups=2, group_size=2), batch_size=8, warm_up=0)
FREE = PairQConfig(FreeNetwork((8,)), batch_size=8, warm_up=0)
PAIR_TD = PairTDConfig(MicoNetwork(MetricNetwork((8,), num_groups=2, group_size=2)), batch_size=8)
CASTRO = Castro2020Config(PairNetwork((8,)), batch_size=8)
CASES = [
    pytest.param("bisimulation", PAIR_Q),
    pytest.param("on_policy", PAIR_Q, marks=pytest.mark.slow),
    pytest.param("bisimulation", FREE, marks=pytest.mark.slow),
    pytest.param("bisimulation", CASTRO, marks=pytest.mark.slow),
    pytest.param("on_policy", CASTRO),
    pytest.param("mico", CASTRO, marks=pytest.mark.slow),
    pytest.param("mico", PAIR_TD),
]


def record(seed: int = 0, steps: int = 24, ends: bool = True) -> Transitions:
    rng = np.random.default_rng(seed)
    points = 3 + rng.normal(size=(steps + 1, 3))
    terminated = np.zeros(steps, bool)
    terminated[[-1, 5]] = ends
    return Transitions(points[:-1], np.arange(steps) % 2, rng.random(steps), points[1:], terminated)


def build_batch(data: Transitions, size: int = 12) -> TransitionBatch:
    return TransitionBatch.from_transitions(data, np.arange(size))


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """The programs that XLA compiled or fetched from its cache, by name."""
    names: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if message.startswith("Compiling "):
                names.append(message.split()[1])

    logger, handler = logging.getLogger("jax._src.interpreters.pxla"), Handler()
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    with jax.log_compiles():
        yield names
    logger.removeHandler(handler)
    logger.propagate = propagates


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_apply_is_the_distance_and_compiles(kind: LearnedKind, config: Any) -> None:
    data = record()
    d = learned.initialise(kind, data, config=config)
    x = data.observations
    expected, apply = d.table(x[:4], x[4:8]), jax.jit(d.apply)
    one = apply(d.params, x[0], x[5])
    assert one.shape == ()
    assert float(one) == pytest.approx(d(x[0], x[5]), rel=1e-5)
    np.testing.assert_allclose(apply(d.params, x[:4], x[4:8]), expected.diagonal(), rtol=1e-5)
    rows = jax.vmap(apply, in_axes=(None, 0, None))(d.params, x[:4], x[4:8])
    np.testing.assert_allclose(rows, expected, rtol=1e-5)
    np.testing.assert_allclose(apply(d.params, x[:4, None], x[4:8]), expected, rtol=1e-5)
    assert float(apply(d.params, x[0], None)) == pytest.approx(d(x[0], None), rel=1e-5)
    gradient = jax.grad(lambda w: apply(w, x[:4], x[4:8]).sum())(d.params)
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))
    by_state = jax.grad(apply, argnums=1)(d.params, jnp.asarray(x[0], jnp.float32), x[5])
    assert by_state.shape == x[0].shape


def test_observations_of_another_shape_raise() -> None:
    d = learned.initialise("on_policy", record(ends=False), config=PAIR_Q)
    with pytest.raises(InputError, match=r"must end with the shape of one observation"):
        d.apply(d.params, np.zeros(2), np.zeros(3))
    with pytest.raises(InputError, match="no episode of the data terminated"):
        d.apply(d.params, np.zeros(3), None)
    with pytest.raises(InputError, match=r"an observation has shape \(2,\)"):
        jax.jit(d.table)(jnp.zeros((4, 2)))


def test_a_matrix_is_computed_under_jit_with_any_weights() -> None:
    data = record()
    d = learned.initialise("on_policy", data, config=PAIR_Q)
    x = jnp.asarray(data.observations[:5], jnp.float32)
    np.testing.assert_allclose(jax.jit(d.table)(x), d.table(x), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(d.table)(x, x[:2]), d.table(x, x[:2]), rtol=1e-5)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, d.params)
    np.testing.assert_allclose(
        jax.jit(lambda w: d.table(x, params=w))(doubled), d.with_params(doubled).table(x), rtol=1e-5
    )
    np.testing.assert_array_equal(d.table(x, params=doubled), d.with_params(doubled).table(x))
    gradient = jax.grad(lambda w: d.table(x, params=w).sum())(d.params)
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(gradient))


def test_a_matrix_of_states_by_id_is_computed_under_grad() -> None:
    mdp = MDP(np.eye(3)[[[1], [2], [2]]], np.array([[1.0], [0.0], [2.0]]), discount=0.5)
    d = learned.initialise("bisimulation", mdp, config=PAIR_Q)
    total = jax.jit(lambda w: d.table([0, 2], params=w).sum())(d.params)
    assert float(total) == pytest.approx(2 * d(0, 2), rel=1e-5)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy", "mico"])
def test_the_loss_of_castro_2020_is_that_of_the_loops(kind: LearnedKind, ends: bool) -> None:
    data = record(ends=ends)
    d = learned.initialise(kind, data, discount=0.9, config=CASTRO)
    target = learned.initialise(kind, data, discount=0.9, config=CASTRO, seed=1).params
    found = jax.jit(d.loss)(d.params, target, build_batch(data), beta=0.7)
    x, x_next = (d.scaling(each[:12]) for each in (data.observations, data.next_observations))
    action, reward = data.actions[:12], data.rewards[:12].astype(np.float32)
    if ends:
        x_next = np.where(data.terminated[:12, None], d.scaling.terminal, x_next)
        x, x_next = (np.concatenate([each, d.scaling.terminal]) for each in (x, x_next))
        action, reward = np.append(action, -1), np.append(reward, np.float32(0))
    batch = Batch(x, action, reward, x_next)  # type: ignore[arg-type]
    assert float(found) == pytest.approx(loss_of(kind, batch, d.params, target, 0.9, 0.7), rel=1e-4)


@pytest.mark.parametrize("config", [PAIR_Q, FREE])
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_the_loss_of_pair_q_learning_is_that_of_training(kind: LearnedKind, config: Any) -> None:
    data = record(ends=False)
    source = learned.source_from_transitions(kind, data)
    d = learned.initialise(kind, source, discount=0.9, config=config)
    target = learned.initialise(kind, source, discount=0.9, config=config, seed=1).params
    objective = build_batch_objective(source, d.network, 0.9, config.batch_size)
    compute_expected, compute_loss = jax.jit(objective.loss), jax.jit(d.loss)
    actions = d.network.num_actions
    sampler = source.build_stratified_sampler(actions, max(config.batch_size // actions, 2))
    for seed in range(3):
        key = jax.random.key(seed)
        rows = sampler.sample(key)
        x, x_next = (
            np.asarray(each).reshape(-1, 3) * d.scaling.width + d.scaling.shift
            for each in (rows.x, rows.x_next)
        )
        action = np.repeat(np.arange(actions), rows.reward.shape[1])
        batch = TransitionBatch(x, action, rows.reward.ravel(), x_next, np.zeros(len(x), bool))
        expected = compute_expected(d.params, target, key)
        found = compute_loss(d.params, target, batch)
        assert float(found) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_the_loss_has_gradients_for_the_network_and_none_for_the_target(
    kind: LearnedKind, config: Any
) -> None:
    data = record()
    d = learned.initialise(kind, data, config=config)
    batch = build_batch(data)
    own, target = jax.jit(jax.grad(d.loss, argnums=(0, 1)))(d.params, d.params, batch)
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(own))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(target))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), d.params)
    losses = jax.vmap(jax.jit(d.loss), in_axes=(0, None, None))(several, d.params, batch)
    assert losses.shape == (2,)


@pytest.mark.parametrize("terminated", [False, True])
def test_a_terminated_transition_ignores_its_next_observation(terminated: bool) -> None:
    data = record()
    d = learned.initialise("on_policy", data, discount=0.9, config=PAIR_Q)
    batch = build_batch(data)._replace(terminated=np.full(12, terminated))
    moved = batch._replace(next_observation=batch.next_observation + 1.0)
    losses = [float(d.loss(d.params, d.params, each)) for each in (batch, moved)]
    assert (losses[0] == losses[1]) == terminated


def test_a_batch_of_ids_is_one_hot() -> None:
    data = Transitions([0, 1, 2], [0, 0, 0], [1.0, 0.0, 0.0], [1, 2, 0], [False] * 3)
    batch = TransitionBatch.from_transitions(data, [2, 0])
    assert batch.observation.tolist() == [[0, 0, 1], [1, 0, 0]]
    d = learned.initialise("on_policy", data, config=PAIR_Q)
    assert np.isfinite(d.loss(d.params, d.params, batch))


def test_initial_weights_are_those_of_a_run() -> None:
    data = record()
    d = learned.initialise("on_policy", data, discount=0.5, config=PAIR_Q, seed=3)
    source = learned.source_from_transitions("on_policy", data)
    network = PAIR_Q.build_network(source, "on_policy", 0.5)
    keys = jnp.stack([jax.random.key(3)])
    state = training.initialise_state(PAIR_Q, network, source.scaling.num_features, keys)
    for a, b in zip(jax.tree.leaves(d.params), jax.tree.leaves(state.parameters), strict=True):
        np.testing.assert_array_equal(a, b[0])
    with pytest.raises(InputError, match="discount is missing"):
        learned.initialise("on_policy", learned.source_from_mdp("bisimulation", chain()))


def chain(rewards: Any = (1.0, 0.0, 0.5, 2.0)) -> MDP:
    """Four states on a line, with one action to either side."""
    successor = np.array([[1, 0], [2, 0], [3, 1], [3, 2]])
    return MDP(
        np.eye(4)[successor], np.repeat(np.asarray(rewards)[:, None], 2, axis=1), discount=0.5
    )


def test_a_training_loop_of_ten_lines_learns_the_exact_distance() -> None:
    mdp = chain()
    states, actions = np.divmod(np.arange(8), 2)
    successors = mdp.next_state[states, actions]
    data = Transitions(states, actions, mdp.R[states, actions], successors, np.zeros(8, bool))
    config = PairQConfig(MetricNetwork((64,), num_groups=16))
    d = learned.initialise("bisimulation", data, discount=0.5, config=config)
    batch = TransitionBatch.from_transitions(data, np.arange(8))
    adam = optax.adam(0.01)

    @jax.jit
    def update(params: Any, target: Any, state: Any) -> Any:
        loss, gradient = jax.value_and_grad(d.loss)(params, target, batch)
        changes, state = adam.update(gradient, state)
        return optax.apply_updates(params, changes), state, loss

    params = target = d.params
    state, losses = adam.init(params), []
    for step in range(600):
        target = params if step % 20 == 0 else target
        params, state, loss = update(params, target, state)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 100
    reference = exact.bisimulation(mdp).values
    np.testing.assert_allclose(d.with_params(params).values, reference, atol=0.1)


@pytest.mark.parametrize(
    ("learn", "config"),
    [
        (learned.bisimulation, PAIR_Q),
        (learned.on_policy, PAIR_Q),
        (learned.castro2020.bisimulation, CASTRO),
    ],
)
def test_a_second_run_with_data_of_equal_shapes_compiles_nothing(
    learn: Any, config: Any, compilations: list[str]
) -> None:
    def run(seed: int) -> LearnedDistance:
        options = RunOptions(log_every=5)
        data = record(seed)
        d: LearnedDistance = learn(
            data, discount=0.9, updates=10, seed=seed, config=config, options=options
        )
        d.table(data.observations[:3])
        d(data.observations[0], data.observations[1])
        d.quality(data)
        return d

    run(0)
    assert any("_advance_compiled" in name for name in compilations)
    compilations.clear()
    run(1)
    assert not compilations


@pytest.mark.parametrize("batch_size", [4, 16])
def test_a_second_mdp_of_equal_shape_compiles_nothing(
    batch_size: int, compilations: list[str]
) -> None:
    config = PairQConfig(PAIR_Q.network, batch_size=batch_size, warm_up=0)

    def run(rewards: Any) -> LearnedDistance:
        mdp = chain(rewards)
        return learned.bisimulation(
            mdp,
            updates=10,
            config=config,
            reference=exact.bisimulation(mdp),
            options=RunOptions(log_every=5),
        )

    run((1.0, 0.0, 0.5, 2.0)).to_distance()
    assert compilations
    compilations.clear()
    d = run((3.0, 1.0, 0.5, 1.0))
    d.to_distance()
    assert not compilations
