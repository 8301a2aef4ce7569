"""The losses against loops in NumPy, entry by entry; their derivatives against differences."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from bisimetric import MDP
from bisimetric.learned import FeatureScaling, source_from_mdp
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    build_action_mask,
    build_all_pairs_objective,
    build_batch_objective,
    compute_beta,
    compute_mean_squared_error,
    fits_in_batch,
    map_over_pairs,
)
from bisimetric.learned.sources import ANY_ACTION, Batch, StateSource, TrainingSource
from tests.learned_references import (  # noqa: F401 - a fixture
    KINDS,
    PLAIN,
    TRIANGLE,
    Table,
    compile_quickly,
    loss_of,
    mask_of,
    record,
    targets_of,
    weights,
)

NETWORK = PairNetwork((7,), output_activation="relu")
DISCOUNT = 0.8
LARGE = MDP.deterministic(
    np.random.default_rng(3).integers(6, size=(6, 3)),
    np.random.default_rng(4).normal(size=(6, 3)),
    discount=DISCOUNT,
)


def two_networks(key: int, features: int) -> tuple[Any, Any]:
    return weights(2 * key, NETWORK, features), weights(2 * key + 1, NETWORK, features)


PERIOD, RATE = 1, 0.4
"""With these beta is 0 at step 0, 0.6 at step 1, and 1 at step 200."""


def batch_loss(source: TrainingSource, kind: LearnedKind, size: int) -> Any:
    return build_batch_objective(source, NETWORK, kind, DISCOUNT, size, PERIOD, RATE).loss


def states_learner(source: StateSource, kind: LearnedKind, size: int) -> Any:
    return build_all_pairs_objective(source, NETWORK, kind, DISCOUNT, size, PERIOD, RATE)


def flatten(tree: Any) -> Table:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@dataclasses.dataclass(frozen=True, eq=False)
class FixedSource:
    """A source that always gives the same batch."""

    fixed: Batch
    scaling: FeatureScaling

    def sample_batch(self, key: Any, size: int) -> Batch:
        assert len(self.fixed.reward) == size
        return self.fixed


@pytest.mark.parametrize("kind", KINDS)
def test_the_targets_are_those_of_the_paper_entry_by_entry(kind: LearnedKind) -> None:
    rng = np.random.default_rng(0)
    for size, beta in ((1, 1.0), (9, 0.0), (9, 0.3), (9, 1.0)):
        reward = rng.normal(size=size)
        ahead, here = rng.random((2, size, size)) * 4
        targets = jax.jit(map_over_pairs(LOSSES[kind].target))
        gaps = np.abs(reward[:, None] - reward)
        found = targets(gaps, ahead, here, np.eye(size, dtype=bool), DISCOUNT, beta)
        expected = targets_of(kind, reward, ahead, here, DISCOUNT, beta)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_larger_of_the_two_counts_on_either_side() -> None:
    args = (jnp.float32(1.0), jnp.float32(2.0), jnp.float32(5.0), jnp.array(False), 0.5)
    assert float(LOSSES["bisimulation"].target(*args, jnp.float32(1.0))) == 5.0
    assert float(LOSSES["bisimulation"].target(*args, jnp.float32(0.2))) == pytest.approx(1.2)
    assert float(LOSSES["on_policy"].target(*args, jnp.float32(1.0))) == 2.0


def test_the_mask_is_equal_actions_and_the_end_takes_any() -> None:
    action = np.array([0, 1, 1, ANY_ACTION, 2])
    found = np.asarray(build_action_mask(jnp.asarray(action)))
    np.testing.assert_array_equal(found, mask_of("bisimulation", action) > 0)
    assert found[3].all()
    assert found[:, 3].all()
    assert not found[0, 1]


def test_the_loss_is_a_mean_over_all_pairs_and_targets_are_constants() -> None:
    psi, targets = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.zeros((2, 2))
    weights = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    assert float(compute_mean_squared_error(psi, targets, weights)) == (1 + 16) / 4
    slope = jax.grad(compute_mean_squared_error, argnums=1)(psi, targets, weights)
    assert not np.asarray(slope).any()


# 16 rows without an end are sorted by their actions; others are not.
@pytest.mark.parametrize(
    ("kind", "ends", "size"),
    [(kind, ends, 16) for kind in KINDS for ends in (False, True)] + [("bisimulation", False, 12)],
)
def test_the_loss_of_a_batch_is_that_of_the_loops(kind: LearnedKind, ends: bool, size: int) -> None:
    source = record(5, ends=ends)

    @jax.jit
    def both(parameters: Any, target: Any, beta: Any, key: Any) -> tuple[Any, Batch]:
        loss = batch_loss(source, kind, size)(parameters, (target, beta), key)
        return loss, source.sample_batch(key, size)

    for key in range(3):
        parameters, target = two_networks(key, source.scaling.num_features)
        found, batch = both(parameters, target, np.float32(0.7), jax.random.key(key))
        expected = loss_of(kind, batch, parameters, target, DISCOUNT, 0.7)
        assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_batch_with_terminal_states_has_one_absorbing_row() -> None:
    source = record(6, ends=True)
    batch = jax.jit(lambda key: source.sample_batch(key, 12))(jax.random.key(0))
    x, action, reward, x_next = (np.asarray(column) for column in batch)
    assert source.scaling.terminal.tolist() == [[0.0, 0.0, 1.0]]
    assert (action == ANY_ACTION).tolist() == [False] * 11 + [True]
    np.testing.assert_array_equal(x[-1:], source.scaling.terminal)
    np.testing.assert_array_equal(x_next[-1:], source.scaling.terminal)
    assert reward[-1] == 0
    assert not x[:-1, -1].any()
    known = {tuple(row) for row in np.asarray(source.x).tolist()}
    assert {tuple(row) for row in x[:-1].tolist()} <= known
    # With psi' = 0, |r - 0| is left for a step and the end, and 0 for the end and itself.
    for kind in ("bisimulation", "on_policy"):
        T = targets_of(kind, reward, np.zeros((12, 12)), np.zeros((12, 12)), DISCOUNT, 1.0)
        np.testing.assert_array_equal(T[-1], np.abs(reward))
        assert mask_of(kind, action)[-1].all()


@pytest.mark.parametrize("kind", KINDS)
def test_each_pair_of_states_once_is_the_loss_and_slope_of_the_whole_batch(
    kind: LearnedKind,
) -> None:
    """Counts of states and actions stand for the batch of all that was drawn."""
    policy = None if kind == "bisimulation" else np.array([0, 1, 2, 0, 1, 2])
    source = source_from_mdp(kind, LARGE, policy, points=np.eye(6), scaling=PLAIN)
    assert fits_in_batch(source, 40)
    learner = states_learner(source, kind, 40)

    @jax.jit
    def both(parameters: Any, target: Any, step: Any, key: Any) -> Any:
        state, action = source.sample_state_actions(key, 40)
        points, after = source.compute_features(), source.successor[state, action]
        batch = Batch(points[state], action, source.reward[state, action], points[after])
        given: Any = FixedSource(batch, source.scaling)
        whole = build_batch_objective(given, NETWORK, kind, DISCOUNT, 40, PERIOD, RATE)
        counted = jax.value_and_grad(learner.loss)(parameters, learner.prepare(target, step), key)
        prepared = whole.prepare(target, step)
        return batch, counted, jax.value_and_grad(whole.loss)(parameters, prepared, key)

    parameters, target = two_networks(8, 6)
    for key, step, beta in ((0, 0, 0.0), (1, 1, 0.6), (2, 200, 1.0)):
        batch, (value, slope), (expected, other) = both(
            parameters, target, np.int32(step), jax.random.key(key)
        )
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
        mine, yours = flatten(slope), flatten(other)
        assert np.abs(yours).max() > 1e-3
        np.testing.assert_allclose(mine, yours, atol=2e-5 * np.abs(yours).max())
        by_loops = loss_of(kind, batch, parameters, target, DISCOUNT, beta)
        assert float(value) == pytest.approx(by_loops, rel=1e-5)


def test_sampling_is_uniform_and_noise_shifts_a_state_with_its_successor() -> None:
    points = np.arange(12.0).reshape(6, 2)
    source = source_from_mdp("bisimulation", LARGE, points=points, noise=0.2, noise_clip=0.3)
    still = dataclasses.replace(source, noise=0.0)
    state, action = jax.jit(lambda key: source.sample_state_actions(key, 6000))(jax.random.key(0))
    counts = np.zeros((6, 3))
    np.add.at(counts, (np.asarray(state), np.asarray(action)), 1)
    # 6,000 / 18 = 333 each, with a deviation of 18.
    assert np.abs(counts - 6000 / 18).max() < 90
    both = jax.jit(lambda key: (source.sample_batch(key, 500), still.sample_batch(key, 500)))
    one, other = both(jax.random.key(1))
    width = np.asarray(source.scaling.width)
    moved = (np.asarray(one.x) - np.asarray(other.x)) * width
    np.testing.assert_allclose(
        moved, (np.asarray(one.x_next) - np.asarray(other.x_next)) * width, atol=1e-5
    )
    assert np.abs(moved).max() == pytest.approx(0.3, abs=1e-5)
    assert moved.std() == pytest.approx(0.2 * 0.87, rel=0.1)  # cut off at 1.5 deviations
    np.testing.assert_array_equal(one.reward, other.reward)


@pytest.mark.parametrize(("kind", "ends"), [("bisimulation", True), ("on_policy", False)])
def test_the_slope_of_a_batch_is_that_of_differences(kind: LearnedKind, ends: bool) -> None:
    source = record(9, ends=ends)
    with jax.enable_x64(True):
        wide = jax.tree.map(_double, source)
        learner = build_batch_objective(wide, NETWORK, kind, DISCOUNT, 10, PERIOD, RATE)
        _compare_slopes(wide, learner)


def test_the_slope_of_states_is_that_of_differences() -> None:
    source = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3), scaling=PLAIN)
    with jax.enable_x64(True):
        wide: StateSource = jax.tree.map(_double, source)
        _compare_slopes(wide, states_learner(wide, "bisimulation", 10))


def _double(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float64) if array.dtype.kind == "f" else array)


def _compare_slopes(source: TrainingSource, learner: Any) -> None:
    parameters, target = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), each)
        for each in two_networks(10, source.scaling.num_features)
    )
    flat, back = ravel_pytree(parameters)
    assert flat.dtype == jnp.float64
    step, key = jnp.int32(1), jax.random.key(11)

    def value(vector: Any) -> Any:
        return learner.loss(back(vector), learner.prepare(target, step), key)

    points = np.asarray(flat) + 1e-6 * np.concatenate([np.eye(len(flat)), -np.eye(len(flat))])
    slope, values = jax.jit(lambda at, near: (jax.grad(value)(at), jax.vmap(value)(near)))(
        flat, points
    )
    above, below = np.asarray(values).reshape(2, -1)
    assert np.abs(slope).max() > 1e-4
    np.testing.assert_allclose(slope, (above - below) / 2e-6, atol=1e-8)


def test_beta_grows_at_the_updates_of_the_target() -> None:
    steps = np.arange(30)
    found = compute_beta(jnp.asarray(steps), 7, 0.9)
    np.testing.assert_allclose(found, 1 - 0.9 ** (steps // 7), atol=1e-6)
    assert compute_beta(jnp.array([0, 1, 2, 9]), 2, 0.0).tolist() == [0, 0, 1, 1]


def test_averaged_over_compared_pairs_as_in_the_published_code() -> None:
    """Both forms divide the same sum by the number of pairs with equal actions."""
    source = source_from_mdp("bisimulation", LARGE)
    size, key = 9, jax.random.key(7)
    parameters, target = two_networks(3, source.scaling.num_features)
    actions = np.bincount(np.asarray(source.sample_batch(key, size).action))
    counts = np.asarray(source.sample_counts(key, size)).sum(axis=1)
    for build, sizes in (
        (build_batch_objective, actions),
        (build_all_pairs_objective, counts),
    ):
        ratio, values = size**2 / float((sizes**2).sum()), []
        assert ratio > 1.5
        for average_compared in (False, True):
            objective = build(
                source, NETWORK, "bisimulation", DISCOUNT, size, PERIOD, RATE, average_compared
            )
            prepared = objective.prepare(target, jnp.int32(1))
            values.append(float(objective.loss(parameters, prepared, key)))
        assert values[1] == pytest.approx(ratio * values[0], rel=1e-5)
