"""The losses of the benchmark: how each trains the encoder, and how its distance is read.

A method is one function, the loss. To add one, write it and pass a `Method` to `measure`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.lax import optimization_barrier, stop_gradient

from bisimetric import losses
from bisimetric.losses._distances import compute_angle
from bisimetric.paper.loss_benchmark.networks import (
    Weights,
    embed,
    embed_actions,
    predict_mean_successor,
    predict_reward,
    predict_successor,
)
from bisimetric.paper.loss_benchmark.protocol import DISCOUNT

BETA = 0.1
"""Weight of the angle in MICo, as published."""
GROUP_SIZE = 4
"""Coordinates per group of the metric by construction, as in `learned.MetricNetwork`."""


class NStepBatch(NamedTuple):
    """Transitions from states that are drawn uniformly; n is the lookahead.

    Attributes:
        observations: (b, ...).
        actions: (b,).
        rewards: (b, n), of the next n steps.
        terminated: (b, n), whether the episode has terminated after a step.
        next_observations: (b, ...), after one step.
        last_observations: (b, ...), after n steps.
        reward_range: largest less least reward, in the scale of training.
    """

    observations: Array
    actions: Array
    rewards: Array
    terminated: Array
    next_observations: Array
    last_observations: Array
    reward_range: Array


Loss = Callable[[Weights, Weights, NStepBatch], Array]
Represent = Callable[[Weights, Array, Array], Any]
DistanceFunction = Callable[[Array, Array, Array], Array]


def represent_by_encoder(weights: Weights, observations: Array, reward_range: Array) -> Array:
    """Return the embeddings (b, k)."""
    return embed(weights, observations)


class Readout(NamedTuple):
    """How a distance is read from trained weights.

    Attributes:
        name: in files, unique among all readouts.
        title: in tables and figures.
        own: the reference that the loss aims at: a name of `Environment.get_distance`.
        distance: of representations x and y, broadcast over leading axes, and the reward range.
        represent: representation of observations, (b, ...).
    """

    name: str
    title: str
    own: str
    distance: DistanceFunction
    represent: Represent = represent_by_encoder


class Method(NamedTuple):
    """A loss of the benchmark.

    Attributes:
        name: in files and on the command line.
        loss: of weights, target weights and a batch.
        readouts: the distances that are scored; the setting is selected by the first.
        heads: of the network, beside the encoder; see `networks.init_weights`.
        uniform_actions: whether data are of uniformly random actions, for metrics without a policy,
            in place of those of the policy.
        is_control: whether it is a control that is not tuned.
    """

    name: str
    loss: Loss
    readouts: tuple[Readout, ...]
    heads: tuple[str, ...] = ()
    uniform_actions: bool = False
    is_control: bool = False


def _compute_one_step(
    loss: Callable[..., Array],
    weights: Weights,
    target: Weights,
    batch: NStepBatch,
    **options: float,
) -> Array:
    """Return a loss of embeddings of states and successors, the latter by the target network."""
    return loss(
        embed(weights, batch.observations),
        embed(target, batch.next_observations),
        batch.rewards[:, 0],
        batch.terminated[:, 0],
        discount=DISCOUNT,
        **options,
    )


def _normalise_representation(weights: Weights, observations: Array, reward_range: Array) -> Array:
    max_norm = reward_range / (2 * (1 - DISCOUNT))
    return losses.normalise_embeddings(embed(weights, observations), max_norm)  # type: ignore[arg-type]


def _compute_dbc(
    weights: Weights, target: Weights, batch: NStepBatch, *, normalised: bool = False
) -> Array:
    """Return the loss of DBC and that of its latent model, which does not train the encoder."""
    represent = _normalise_representation if normalised else represent_by_encoder
    rewards, terminated = batch.rewards[:, 0], batch.terminated[:, 0]
    x = represent(weights, batch.observations, batch.reward_range)
    target_x = represent(target, batch.observations, batch.reward_range)
    next_x = represent(target, batch.next_observations, batch.reward_range)
    mean, scale = predict_successor(target, target_x, batch.actions)
    if normalised:
        loss = losses.normalised_dbc(
            x, mean, rewards, terminated, discount=DISCOUNT,
            reward_range=batch.reward_range, next_scales=scale,  # type: ignore[arg-type]
        )  # fmt: skip
    else:
        loss = losses.dbc(x, mean, rewards, terminated, discount=DISCOUNT, next_scales=scale)
    predicted, predicted_scale = predict_successor(weights, stop_gradient(x), batch.actions)
    model_loss = losses.deepmdp_transition(
        predicted, stop_gradient(next_x), terminated, predicted_scales=predicted_scale
    )
    return loss + model_loss


def _compute_rap(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    """Return the loss of RAP and that of its latent model, which does not train the encoder."""
    rewards, terminated = batch.rewards[:, 0], batch.terminated[:, 0]
    x = embed(weights, batch.observations)
    mean, _, variance = predict_mean_successor(target, embed(target, batch.observations))
    loss = losses.rap(
        x,
        mean,
        rewards,
        terminated,
        discount=DISCOUNT,
        reward_variances=variance * batch.reward_range**2,
    )
    next_x = embed(target, batch.next_observations) * ~terminated[:, None]
    predicted, reward, spread = predict_mean_successor(weights, stop_gradient(x))
    # The variance is predicted in units of the squared reward range.
    standardised = (reward - rewards / batch.reward_range) ** 2 / spread
    model_loss = jnp.mean((predicted - stop_gradient(next_x)) ** 2)
    return loss + model_loss + jnp.mean(standardised + jnp.log(spread)) / 2


def _compute_deepmdp(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    x, next_x = embed(weights, batch.observations), embed(weights, batch.next_observations)
    predicted, _ = predict_successor(weights, x, batch.actions)
    reward_loss = losses.deepmdp_reward(
        predict_reward(weights, x, batch.actions), batch.rewards[:, 0]
    )
    return reward_loss + losses.deepmdp_transition(predicted, next_x, batch.terminated[:, 0])


def _measure_groups(x: Array, y: Array) -> Array:
    # Apart from the maximum over actions: fused with it, XLA warned of a very slow compilation.
    values: Array = optimization_barrier(  # type: ignore[no-untyped-call]
        losses.metric_distance(x, y, group_size=GROUP_SIZE)
    )
    return values


def _compute_pair_q(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    return losses.pair_q(
        embed_actions(weights, batch.observations),
        embed_actions(target, batch.next_observations),
        batch.rewards[:, 0],
        batch.terminated[:, 0],
        batch.actions,
        discount=DISCOUNT,
        distance=_measure_groups,
    )


def _compute_on_policy(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    last = embed(target, batch.last_observations)
    # Without `steps`, only the last of the n successors is read.
    shape = (*batch.rewards.shape, last.shape[1])
    return losses.on_policy(
        embed(weights, batch.observations),
        jnp.broadcast_to(last[:, None], shape),
        batch.rewards,
        batch.terminated,
        discount=DISCOUNT,
        distance=_measure_groups,
    )


def _compute_nothing(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    return jnp.zeros(())


def _measure_mico(x: Array, y: Array, reward_range: Array) -> Array:
    return losses.mico_distance(x, y, BETA)


def _measure_angle(x: Array, y: Array, reward_range: Array) -> Array:
    return BETA * compute_angle(x, y)


def _measure_kernel(x: Array, y: Array, reward_range: Array) -> Array:
    return jnp.sum((x - y) ** 2, axis=-1) / 2


def _measure_cosine(x: Array, y: Array, reward_range: Array) -> Array:
    return losses.cosine_distance(x, y)


def _measure_l1(x: Array, y: Array, reward_range: Array) -> Array:
    return losses.l1_distance(x, y)


def _measure_euclidean(x: Array, y: Array, reward_range: Array) -> Array:
    return losses.euclidean_distance(x, y)


def _measure_rap(x: Array, y: Array, reward_range: Array) -> Array:
    return losses.rap_distance(x, y)


def _measure_metric(x: Array, y: Array, reward_range: Array) -> Array:
    return _measure_groups(x, y)


def _measure_pair_q(x: Array, y: Array, reward_range: Array) -> Array:
    return jnp.max(_measure_groups(x, y), axis=-1)


def _measure_constant(x: Array, y: Array, reward_range: Array) -> Array:
    return jnp.ones(jnp.broadcast_shapes(x.shape, y.shape)[:-1]) * reward_range


def _represent_actions(weights: Weights, observations: Array, reward_range: Array) -> Array:
    return embed_actions(weights, observations)


METHODS = {
    method.name: method
    for method in (
        Method(
            "mico",
            functools.partial(_compute_one_step, losses.mico),
            (
                Readout("mico", "MICo, U", "sampled_mico", _measure_mico),
                Readout("mico-angle", "MICo, angle", "sampled_reduced_mico", _measure_angle),
            ),
        ),
        Method(
            "reduced-mico",
            functools.partial(_compute_one_step, losses.reduced_mico, reward_range=1.0),
            (
                Readout(
                    "reduced-mico", "reduced MICo (KSMe)", "sampled_reduced_mico", _measure_kernel
                ),
            ),
        ),
        Method(
            "dbc",
            _compute_dbc,
            (Readout("dbc", "DBC", "on_policy", _measure_l1),),
            heads=("successor",),
        ),
        Method(
            "normalised-dbc",
            functools.partial(_compute_dbc, normalised=True),
            (
                Readout(
                    "normalised-dbc",
                    "normalised DBC",
                    "on_policy",
                    _measure_euclidean,
                    _normalise_representation,
                ),
            ),
            heads=("successor",),
        ),
        Method(
            "simsr",
            functools.partial(_compute_one_step, losses.simsr),
            (Readout("simsr", "SimSR", "independent_1", _measure_cosine),),
        ),
        Method(
            "rap",
            _compute_rap,
            (Readout("rap", "RAP", "on_policy", _measure_rap),),
            heads=("mean_successor",),
        ),
        Method(
            "deepmdp",
            _compute_deepmdp,
            (Readout("deepmdp", "DeepMDP", "bisimulation", _measure_euclidean),),
            heads=("successor", "reward"),
            uniform_actions=True,
        ),
        Method(
            "pair-q",
            _compute_pair_q,
            (Readout("pair-q", "pair Q-learning", "product", _measure_pair_q, _represent_actions),),
            heads=("actions",),
            uniform_actions=True,
        ),
        Method(
            "on-policy",
            _compute_on_policy,
            (Readout("on-policy", "on-policy, 3 steps", "independent_3", _measure_metric),),
        ),
        Method(
            "untrained",
            _compute_nothing,
            (
                Readout("untrained", "untrained encoder", "on_policy", _measure_euclidean),
                Readout("constant", "constant distance", "on_policy", _measure_constant),
            ),
            is_control=True,
        ),
    )
}
"""By name; the distance of an untrained encoder and a constant distance are controls."""
