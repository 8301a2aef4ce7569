"""The encoder that every loss trains, and the heads that some losses need.

Weights are a dictionary of arrays. Convolutions are products of patches and weights, so that many
networks train side by side under `jax.vmap` as batched matrix products.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

Weights = dict[str, list[tuple[Array, Array]]]

CONVOLUTIONS = (16, 32)
"""Channels of the two convolutions of images, with windows of 3 x 3 and ReLU."""
MIN_SCALE, SCALE_BIAS = 1e-3, -3.0
"""The least predicted standard deviation of a latent coordinate; at the start it is about 0.05."""


def init_weights(
    key: Array,
    observation_shape: tuple[int, ...],
    num_actions: int,
    *,
    embedding_size: int,
    hidden_size: int,
    heads: Sequence[str] = (),
) -> Weights:
    """Draw the weights of an encoder and its heads.

    Args:
        key: a JAX random key.
        observation_shape: (d,) or (height, width, channels).
        num_actions: A.
        embedding_size: k.
        hidden_size: width of hidden layers.
        heads: names of the heads that the loss uses: "actions" (one embedding per action),
            "successor" (latent model given the action), "mean_successor" (given the state alone,
            with mean and variance of the reward), "reward" (given the action).

    Returns:
        Lists of layers (W, b), by name.

    >>> weights = init_weights(
    ...     jax.random.key(0), (5,), 2, embedding_size=4, hidden_size=8, heads=["reward"])
    >>> embed(weights, jnp.zeros((3, 5))).shape
    (3, 4)
    """
    keys = iter(jax.random.split(key, 16))

    def init_layers(*sizes: int) -> list[tuple[Array, Array]]:
        # He initialisation of ReLU networks.
        return [
            (jax.random.normal(next(keys), (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
            for m, n in itertools.pairwise(sizes)
        ]

    k, width = embedding_size, hidden_size
    weights: Weights = {}
    flat = observation_shape[0]
    if len(observation_shape) == 3:
        height, columns, channels = observation_shape
        first, second = CONVOLUTIONS
        weights["convolutions"] = [
            *init_layers(9 * channels, first),
            *init_layers(9 * first, second),
        ]
        flat = height * columns * second
    weights["encoder"] = init_layers(flat, width, width, k)
    # Embeddings of norm about 1 at the start, rather than the square root of their size.
    W, bias = weights["encoder"][-1]
    weights["encoder"][-1] = (W * k**-0.5, bias)
    sizes = {
        "actions": (k, num_actions * k),
        "successor": (k + num_actions, width, 2 * k),
        "mean_successor": (k, width, k + 2),
        "reward": (k + num_actions, width, 1),
    }
    return weights | {head: init_layers(*sizes[head]) for head in heads}


def apply_layers(layers: list[tuple[Array, Array]], x: Array) -> Array:
    """Apply dense layers with ReLU between them."""
    for W, b in layers[:-1]:
        x = jax.nn.relu(x @ W + b)
    W, b = layers[-1]
    return x @ W + b


def embed(weights: Weights, observations: Array) -> Array:
    """Embed observations (b, d) or (b, height, width, channels) as (b, k)."""
    x = observations
    for W, b in weights.get("convolutions", ()):
        height, width = x.shape[1:3]
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        patches = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        x = jax.nn.relu(jnp.concatenate(patches, axis=-1) @ W + b)
    return apply_layers(weights["encoder"], x.reshape(len(x), -1))


def embed_actions(weights: Weights, observations: Array) -> Array:
    """Embed observations once per action, (b, A, k)."""
    x = embed(weights, observations)
    return apply_layers(weights["actions"], jax.nn.relu(x)).reshape(len(x), -1, x.shape[1])


def predict_successor(weights: Weights, x: Array, actions: Array) -> tuple[Array, Array]:
    """Predict mean and standard deviation of the next embedding, (b, k) each."""
    output = apply_layers(weights["successor"], _append_actions(weights["successor"], x, actions))
    mean, scale = jnp.split(output, 2, axis=1)
    return mean, jax.nn.softplus(scale + SCALE_BIAS) + MIN_SCALE


def predict_mean_successor(weights: Weights, x: Array) -> tuple[Array, Array, Array]:
    """Predict the mean next embedding (b, k), the mean reward and its variance, (b,) each."""
    output = apply_layers(weights["mean_successor"], x)
    return output[:, :-2], output[:, -2], jax.nn.softplus(output[:, -1]) + MIN_SCALE**2


def predict_reward(weights: Weights, x: Array, actions: Array) -> Array:
    """Predict the reward of an action, (b,)."""
    return apply_layers(weights["reward"], _append_actions(weights["reward"], x, actions))[:, 0]


def _append_actions(layers: list[tuple[Array, Array]], x: Array, actions: Array) -> Array:
    num_actions = layers[0][0].shape[0] - x.shape[1]
    return jnp.concatenate([x, jax.nn.one_hot(actions, num_actions)], axis=1)
