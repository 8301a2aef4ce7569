"""Train many networks of one loss on one MDP at once, and measure their distances.

All runs, that is policies, noises, settings and seeds, are one `jax.vmap` inside one `lax.scan`.
Tables of the MDPs are padded to one size, and runs are grouped, so that a loss is compiled once per
kind of observation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from bisimetric._progress import jit
from bisimetric.paper.loss_benchmark.environments import (
    DISTRACTORS,
    MAX_STATES,
    Environment,
)
from bisimetric.paper.loss_benchmark.methods import Method, NStepBatch
from bisimetric.paper.loss_benchmark.networks import init_weights
from bisimetric.paper.loss_benchmark.protocol import NOISES, POLICIES, Protocol, Run

CHUNK = 60
"""The most runs at once."""


class Tables(NamedTuple):
    """An MDP as arrays; the terminal state is the last row, 64.

    Attributes:
        features: (65, ...), renderings without distractors.
        successors: (65, A, k).
        cumulative: (65, A, k), cumulative probabilities of the successors.
        rewards: (65, A).
        num_states: of those that are not terminal.
    """

    features: Array
    successors: Array
    cumulative: Array
    rewards: Array
    num_states: Array


class RunArrays(NamedTuple):
    """What differs between runs; the first axis is the run.

    Attributes:
        actions: (65, A), cumulative probabilities of actions in the data.
        noise_scale: of the distractors.
        noise_correlation: of two consecutive steps.
        learning_rate: at the start.
        reward_scale: factor of the rewards.
        seed: of initialisation and data.
    """

    actions: Array
    noise_scale: Array
    noise_correlation: Array
    learning_rate: Array
    reward_scale: Array
    seed: Array


def train(
    method: Method, environment: Environment, runs: Sequence[Run], protocol: Protocol
) -> dict[str, NDArray[np.float64]]:
    """Train one network per run, and return the distances of the states.

    Args:
        method: the loss.
        environment: the MDP.
        runs: policies, noises, settings and seeds.
        protocol: sizes.

    Returns:
        Per readout (runs, n, n), in units of reward: the mean distance of renderings of the states;
        on the diagonal, that of two renderings of one state.
    """
    tables = _build_tables(environment)
    compute = _compile(method, protocol, environment.num_actions)
    size, chunk = environment.num_states, min(len(runs), CHUNK)
    found: dict[str, list[NDArray[np.float64]]] = {each.name: [] for each in method.readouts}
    for start in range(0, len(runs), chunk):
        part = list(runs[start : start + chunk])
        # One number of runs is one compilation; the results of those added are dropped.
        arrays = _build_runs(method, environment, part + part[:1] * (chunk - len(part)))
        # The default of GPUs has 10 bits.
        with jax.default_matmul_precision("highest"):
            matrices = compute(tables, arrays)
        scale = np.array([run.setting.reward_scale for run in part])[:, None, None]
        for name, matrix in matrices.items():
            values = np.asarray(matrix, np.float64)[: len(part), :size, :size]
            found[name].append(values / scale)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _build_tables(environment: Environment) -> Tables:
    """Return the tables of an MDP, padded to the common size."""
    missing = MAX_STATES + 1 - environment.num_states

    def pad(values: NDArray[Any]) -> NDArray[Any]:
        return np.pad(values, ((0, missing), *((0, 0),) * (values.ndim - 1)))

    successors = environment.successors
    successors = np.where(successors == environment.num_states, MAX_STATES, successors)
    padded = pad(successors)
    padded[environment.num_states :] = MAX_STATES
    cumulative = pad(np.cumsum(environment.probabilities, axis=2))
    # The terminal state stays where it is; rounding must not pass the last successor.
    cumulative[environment.num_states :] = 1.0
    cumulative[:, :, -1] = 1.0
    return Tables(
        jnp.asarray(pad(environment.features), jnp.float32),
        jnp.asarray(padded, jnp.int32),
        jnp.asarray(cumulative, jnp.float32),
        jnp.asarray(pad(environment.rewards), jnp.float32),
        jnp.asarray(environment.num_states),
    )


def _build_runs(method: Method, environment: Environment, runs: Sequence[Run]) -> RunArrays:
    """Return the runs as arrays."""
    uniform = np.full_like(environment.policies[0], 1 / environment.num_actions)
    probabilities = [
        uniform if method.uniform_actions else environment.policies[POLICIES.index(run.policy)]
        for run in runs
    ]
    cumulative = np.cumsum(probabilities, axis=2)
    missing = MAX_STATES + 1 - environment.num_states
    cumulative = np.pad(cumulative, ((0, 0), (0, missing), (0, 0)))
    cumulative[:, environment.num_states :] = 1.0
    cumulative[:, :, -1] = 1.0
    return RunArrays(
        jnp.asarray(cumulative, jnp.float32),
        jnp.asarray([NOISES[run.noise].scale for run in runs], jnp.float32),
        jnp.asarray([NOISES[run.noise].correlation for run in runs], jnp.float32),
        jnp.asarray([run.setting.learning_rate for run in runs], jnp.float32),
        jnp.asarray([run.setting.reward_scale for run in runs], jnp.float32),
        jnp.asarray([run.seed for run in runs], jnp.uint32),
    )


@functools.cache
def _compile(
    method: Method, protocol: Protocol, num_actions: int
) -> Callable[[Tables, RunArrays], dict[str, Array]]:
    """Return the compiled training and measurement of a loss."""

    def compute(tables: Tables, runs: RunArrays) -> dict[str, Array]:
        return jax.vmap(functools.partial(_train_one, method, protocol, num_actions, tables))(runs)

    return jit(compute)


def _train_one(
    method: Method, protocol: Protocol, num_actions: int, tables: Tables, run: RunArrays
) -> dict[str, Array]:
    """Train one network and measure its distances."""
    key_weights, key_data, key_measure = jax.random.split(jax.random.key(run.seed), 3)
    weights = init_weights(
        key_weights,
        _observation_shape(tables),
        num_actions,
        embedding_size=protocol.embedding_size,
        hidden_size=protocol.hidden_size,
        heads=method.heads,
    )
    adam = optax.scale_by_adam()

    def update(carry: Any, step: Array) -> tuple[Any, None]:
        weights, target, state = carry
        batch = sample_batch(jax.random.fold_in(key_data, step), tables, run, protocol)
        gradient = jax.grad(method.loss)(weights, target, batch)
        direction, state = adam.update(gradient, state)
        rate = run.learning_rate * (1 + jnp.cos(jnp.pi * step / protocol.updates)) / 2
        weights = jax.tree.map(lambda w, g: w - rate * g, weights, direction)
        target = optax.incremental_update(weights, target, protocol.target_rate)
        return (weights, target, state), None

    start = (weights, weights, adam.init(weights))
    (weights, _, _), _ = jax.lax.scan(update, start, jnp.arange(protocol.updates))
    return _measure(method, weights, tables, run, key_measure, protocol)


def _observation_shape(tables: Tables) -> tuple[int, ...]:
    *size, last = tables.features.shape[1:]
    return (*size, last + 1) if size else (last + DISTRACTORS,)


def sample_batch(key: Array, tables: Tables, run: RunArrays, protocol: Protocol) -> NStepBatch:
    """Draw transitions: states uniformly, actions from the run, n steps each.

    Args:
        key: a JAX random key.
        tables: the MDP.
        run: one run.
        protocol: sizes.

    Returns:
        The batch, with rewards in the scale of training.
    """
    size, length = protocol.batch_size, protocol.lookahead
    key_state, key_noise, *keys = jax.random.split(key, 2 + 3 * length)
    state = jax.random.randint(key_state, (size,), 0, tables.num_states)
    noise = _sample_noise(key_noise, tables, size)
    observations, actions, rewards = [render(tables, run, state, noise)], [], []
    terminated = []
    for step in range(length):
        key_action, key_successor, key_step = keys[3 * step : 3 * step + 3]
        action = _sample_index(key_action, run.actions[state])
        successor = _sample_index(key_successor, tables.cumulative[state, action])
        rewards.append(run.reward_scale * tables.rewards[state, action])
        actions.append(action)
        state = tables.successors[state, action, successor]
        terminated.append(state == MAX_STATES)
        rho = run.noise_correlation
        noise = rho * noise + jnp.sqrt(1 - rho**2) * _sample_noise(key_step, tables, size)
        observations.append(render(tables, run, state, noise))
    return NStepBatch(
        observations[0],
        actions[0],
        jnp.stack(rewards, axis=1),
        jnp.stack(terminated, axis=1),
        observations[1],
        observations[-1],
        run.reward_scale,
    )


def render(tables: Tables, run: RunArrays, states: Array, noise: Array) -> Array:
    """Return the observations of states, with distractors as further coordinates or a plane.

    Args:
        tables: the MDP.
        run: one run, which scales the distractors.
        states: (b,).
        noise: (b, 16), or (b, height, width, 1) for images.

    Returns:
        (b, 48), or (b, height, width, 8).
    """
    return jnp.concatenate([tables.features[states], run.noise_scale * noise], axis=-1)


def _sample_noise(key: Array, tables: Tables, size: int) -> Array:
    *image, _ = tables.features.shape[1:]
    return jax.random.normal(key, (size, *image, 1) if image else (size, DISTRACTORS))


def _sample_index(key: Array, cumulative: Array) -> Array:
    """Draw from distributions given by cumulative probabilities, (b, k) to (b,)."""
    u = jax.random.uniform(key, (len(cumulative), 1))
    return jnp.sum(u >= cumulative, axis=1)


def _measure(
    method: Method,
    weights: Any,
    tables: Tables,
    run: RunArrays,
    key: Array,
    protocol: Protocol,
) -> dict[str, Array]:
    """Return the mean distances of renderings of all states, (64, 64) per readout."""
    states = jnp.arange(MAX_STATES)

    def measure_once(total: dict[str, Array], key: Array) -> tuple[dict[str, Array], None]:
        first, second = jax.random.split(key)
        x, y = (
            render(tables, run, states, _sample_noise(each, tables, MAX_STATES))
            for each in (first, second)
        )
        for readout in method.readouts:
            represent = functools.partial(readout.represent, weights)
            matrix = readout.distance(
                represent(x, run.reward_scale)[:, None],
                represent(y, run.reward_scale)[None, :],
                run.reward_scale,
            )
            # Symmetric, as the noise of both sides has one distribution.
            total = total | {readout.name: total[readout.name] + (matrix + matrix.T) / 2}
        return total, None

    zeros = {each.name: jnp.zeros((MAX_STATES, MAX_STATES)) for each in method.readouts}
    total, _ = jax.lax.scan(measure_once, zeros, jax.random.split(key, protocol.num_renderings))
    return {name: matrix / protocol.num_renderings for name, matrix in total.items()}
