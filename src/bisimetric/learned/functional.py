"""Pure functions for a training loop of one's own: features, distances and losses of a batch.

They compile with `jax.jit`, and are differentiable in the parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.errors import InputError
from bisimetric.learned.evaluation import compute_distances
from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    build_action_mask,
    compute_mean_squared_error,
    compute_pair_td_loss,
    compute_reward_gaps,
    map_over_pairs,
)
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from bisimetric.learned.networks.mico_network import ScaledMicoNetwork
from bisimetric.learned.networks.pair_network import Castro2020Network, Parameters
from bisimetric.learned.pair_q_loss import compute_target, evaluate_double_q
from bisimetric.learned.source_builders import has_id_observations
from bisimetric.learned.sources import ANY_ACTION, Batch, FeatureScaling
from bisimetric.transitions import Transitions


class TransitionBatch(NamedTuple):
    """A batch of b transitions, as a loss takes it.

    Attributes:
        observation: (b, *shape), in the original shape and scale.
        action: (b,) integers; ignored except for d~.
        reward: (b,).
        next_observation: (b, *shape); ignored where `terminated`.
        terminated: (b,) booleans. Truncation is not termination.

    >>> data = Transitions([[0.0], [1.0]], [0, 1], [1.0, 0.0], [[1.0], [0.0]], [False, True])
    >>> TransitionBatch.from_transitions(data, [1, 0]).reward.tolist()
    [0.0, 1.0]
    """

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    terminated: Any

    @classmethod
    def from_transitions(cls, data: Transitions, rows: ArrayLike) -> TransitionBatch:
        """Return some of the recorded transitions; ids of states become one-hot vectors.

        Args:
            data: the transitions.
            rows: (b,), their positions.

        Returns:
            The batch, as arrays of NumPy.
        """
        rows = np.asarray(rows)
        if has_id_observations(data):
            one_hot = np.eye(int(data.num_states or 0), dtype=np.float32)
            states, next_states = (np.asarray(e) for e in (data.states, data.next_states))
            x, x_next = one_hot[states[rows]], one_hot[next_states[rows]]
        else:
            x, x_next = data.observations[rows], data.next_observations[rows]
        return cls(
            x,
            data.actions[rows],
            data.rewards[rows].astype(np.float32),
            x_next,
            data.terminated[rows],
        )


def compute_features(scaling: FeatureScaling, observations: Any) -> Array:
    """Return the features (n, k) of observations (n, *shape), which may be traced.

    Raises:
        InputError: when observations have another shape.
    """
    array = jnp.asarray(observations)
    shape = observation_shape(scaling)
    if array.shape[1:] != shape:
        raise InputError(
            f"learned: an observation has shape {array.shape[1:]} and those of the training data "
            f"have {shape}; give observations of the same shape."
        )
    flat = array.astype(jnp.float32).reshape(len(array), len(scaling.shift))
    features = (flat - scaling.shift) / scaling.width
    return jnp.pad(features, ((0, 0), (0, 1))) if scaling.has_terminal else features


def observation_shape(scaling: FeatureScaling) -> tuple[int, ...]:
    """Return the shape of one observation; a vector where a scaling has none."""
    return (len(scaling.shift),) if scaling.shape is None else scaling.shape


def apply_network(
    network: Any, scaling: FeatureScaling, parameters: Parameters, x: Any, y: Any
) -> Array:
    """Return d(x_i, y_i) for observations with the same leading axes; None is the terminal state.

    Raises:
        InputError: when an observation has another shape, or there is no terminal state.
    """
    (x_axes, x_features), (y_axes, y_features) = (_flatten_axes(scaling, each) for each in (x, y))
    axes = jnp.broadcast_shapes(x_axes, y_axes)
    size = x_features.shape[-1]
    rows = [
        jnp.broadcast_to(each.reshape(*lead, size), (*axes, size)).reshape(-1, size)
        for lead, each in ((x_axes, x_features), (y_axes, y_features))
    ]

    def compute_pair(u: Array, v: Array) -> Array:
        return compute_distances(network, parameters, u[None], v[None])[0, 0]

    return jax.vmap(compute_pair)(*rows).reshape(axes)


def _flatten_axes(scaling: FeatureScaling, x: Any) -> tuple[tuple[int, ...], Array]:
    """Return the leading axes of observations, and the features (n, k) of all of them."""
    if x is None:
        if not scaling.has_terminal:
            raise InputError(
                "LearnedDistance: None is the terminal state, and no episode of the data "
                "terminated."
            )
        return (), jnp.asarray(scaling.terminal)
    array, shape = jnp.asarray(x), observation_shape(scaling)
    num_axes = array.ndim - len(shape)
    if num_axes < 0 or array.shape[num_axes:] != shape:
        raise InputError(
            f"learned: observations have shape {array.shape}, and must end with the shape of one "
            f"observation of the training data, {shape}."
        )
    return array.shape[:num_axes], compute_features(scaling, array.reshape(-1, *shape))


def compute_loss(
    kind: LearnedKind,
    network: Any,
    scaling: FeatureScaling,
    discount: float,
    parameters: Parameters,
    target_parameters: Parameters,
    batch: TransitionBatch,
    beta: Any = 1.0,
) -> Array:
    """Return the loss of the algorithm that the network belongs to, over all pairs of a batch.

    Raises:
        InputError: when the network belongs to another algorithm, or a shape does not fit.
    """
    rows = _build_rows(scaling, batch)
    if isinstance(network, PairQEnsemble):
        return _compute_pair_q_loss(kind, network, discount, parameters, target_parameters, rows)
    if isinstance(network, Castro2020Network):
        return _compute_castro2020_loss(
            kind, network, discount, parameters, target_parameters, rows, beta
        )
    if isinstance(network, ScaledMicoNetwork):
        # The terminal state, the last row, has a single outcome.
        numbers = jnp.arange(len(rows.reward))
        numbers = numbers.at[-1].set(-1) if scaling.has_terminal else numbers
        return compute_pair_td_loss(network, discount, parameters, target_parameters, numbers, rows)
    raise InputError(
        f"has a {type(network).__name__}, whose loss is not a function of one batch",
        caller="LearnedDistance.loss",
        argument="network",
    )


def _build_rows(scaling: FeatureScaling, batch: TransitionBatch) -> Batch:
    """Return a batch in terms of features, with the terminal state as its last row, if any."""
    x, x_next = (compute_features(scaling, e) for e in (batch.observation, batch.next_observation))
    action, reward = jnp.asarray(batch.action), jnp.asarray(batch.reward, jnp.float32)
    if action.ndim > 1:
        action = jnp.zeros(len(action), jnp.int32)
    if not scaling.has_terminal:
        return Batch(x, action, reward, x_next)
    terminal = jnp.asarray(scaling.terminal)
    x_next = jnp.where(jnp.asarray(batch.terminated, bool)[:, None], terminal, x_next)
    return Batch(
        jnp.concatenate([x, terminal]),
        jnp.append(action, ANY_ACTION),
        jnp.append(reward, 0.0),
        jnp.concatenate([x_next, terminal]),
    )


def _compute_pair_q_loss(
    kind: LearnedKind,
    network: PairQEnsemble,
    discount: float,
    parameters: Parameters,
    target: Parameters,
    batch: Batch,
) -> Array:
    """Return the mean squared error of psi_a, a the action of both, summed over the networks."""
    observed = jnp.array(network.observed_actions)
    next_values = jnp.stack(
        [network.network.values(each, batch.x_next, batch.x_next)[observed] for each in target]
    )
    gap = compute_reward_gaps(batch.reward) / network.unit
    same = jnp.eye(len(batch.reward), dtype=bool)
    targets = jax.lax.stop_gradient(
        compute_target(gap, evaluate_double_q(next_values), same, discount, network.diameter_bound)
    )
    same_actions = LOSSES[kind].same_actions
    action = batch.action if same_actions else jnp.zeros_like(batch.action)
    weights = build_action_mask(action).astype(targets.dtype)
    # The terminal state takes the action of the other state.
    pair_action = jnp.maximum(jnp.maximum(action[:, None], action[None, :]), 0)
    total = jnp.float32(0.0)
    for each in parameters:
        values = network.network.values(each, batch.x, batch.x)
        psi = jnp.take_along_axis(values, pair_action[None], axis=0)[0]
        total += jnp.sum(weights * (psi - targets) ** 2)
    return total / jnp.sum(weights)


def _compute_castro2020_loss(
    kind: LearnedKind,
    network: Any,
    discount: float,
    parameters: Parameters,
    target: Parameters,
    batch: Batch,
    beta: Any,
) -> Array:
    """Return the mean over all pairs of the squared error, 0 for pairs of different actions."""
    loss = LOSSES[kind]
    psi = network.table(parameters, batch.x, batch.x)
    next_value = network.table(target, batch.x_next, batch.x_next)
    value = network.table(target, batch.x, batch.x) if loss.uses_current_value else psi
    same = jnp.eye(len(batch.reward), dtype=bool)
    targets = map_over_pairs(loss.target)(
        compute_reward_gaps(batch.reward), next_value, value, same, discount, jnp.float32(beta)
    )
    weights = jnp.ones_like(psi)
    if loss.same_actions:
        weights = build_action_mask(batch.action).astype(psi.dtype)
    return compute_mean_squared_error(psi, targets, weights)
