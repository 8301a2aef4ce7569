"""Distances of embeddings: functions of (..., k) and (..., k) that reduce the last axis.

Leading axes are broadcast: `distance(x[:, None], y[None, :])` compares all x with all y.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError

DistanceFunction = Callable[[Array, Array], Array]

MIN_NORM = 1e-12
"""Added to a squared norm before dividing by the norm: the zero vector stays 0."""


def l1_distance(x: Array, y: Array) -> Array:
    """Compute the L1 distance sum_i |x_i - y_i|.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.

    Returns:
        (...), a pseudometric of the states for all weights.

    >>> float(l1_distance(jnp.array([1.0, 2.0]), jnp.array([0.0, 4.0])))
    3.0
    """
    return jnp.sum(jnp.abs(x - y), axis=-1)


def euclidean_distance(x: Array, y: Array) -> Array:
    """Compute the Euclidean distance, with gradient 0 where x = y.

    W2 of two Gaussians with diagonal covariance is the Euclidean distance of their (mean, standard
    deviation), concatenated.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.

    Returns:
        (...), a pseudometric of the states for all weights.

    >>> float(euclidean_distance(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    5.0
    """
    return safe_sqrt(jnp.sum((x - y) ** 2, axis=-1))


def metric_distance(x: Array, y: Array, group_size: int = 1) -> Array:
    """Compute the mean over groups of coordinates of the largest difference in a group.

    It is the distance of `learned.MetricNetwork`. One group, the maximum norm, embeds any finite
    metric (Kuratowski); with many groups, more coordinates get a gradient from a pair.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.
        group_size: coordinates per group, a divisor of k.

    Returns:
        (...), a pseudometric of the states for all weights.

    Raises:
        InputError: when k is not a multiple of the group size.

    >>> float(metric_distance(jnp.array([1.0, 0, 0, 5]), jnp.zeros(4), group_size=2))
    3.0
    """
    size = x.shape[-1]
    if group_size < 1 or size % group_size:
        raise InputError(
            f"is {group_size} and must divide the {size} coordinates of the embeddings",
            caller="losses.metric_distance",
            argument="group_size",
        )
    difference = jnp.abs(x - y)
    groups = difference.reshape(*difference.shape[:-1], size // group_size, group_size)
    return jnp.mean(jnp.max(groups, axis=-1), axis=-1)


def mico_distance(x: Array, y: Array, beta: float = 0.1) -> Array:
    """Compute MICo's parametrisation (|x|^2 + |y|^2) / 2 + beta * angle(x, y).

    Castro et al. (2021). The self-distance is the squared norm. The zero vector is at a right
    angle to all others.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.
        beta: the weight of the angle.

    Returns:
        (...), a symmetric function with positive self-distances; no metric.

    >>> x, y = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    >>> round(float(mico_distance(x, y)), 4), float(mico_distance(x, x))
    (1.1571, 1.0)
    """
    norms = jnp.sum(x**2, axis=-1) + jnp.sum(y**2, axis=-1)
    return norms / 2 + beta * compute_angle(x, y)


def rap_distance(x: Array, y: Array, beta: float = 1e-6) -> Array:
    """Compute RAP's parametrisation |x|^2 + |y|^2 + beta * angle(x, y).

    Chen & Pan (2022), with the constants of their code.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.
        beta: the weight of the angle.

    Returns:
        (...), a symmetric function with positive self-distances; no metric.

    >>> float(rap_distance(jnp.array([1.0, 0.0]), jnp.array([2.0, 0.0])))
    5.0
    """
    norms = jnp.sum(x**2, axis=-1) + jnp.sum(y**2, axis=-1)
    return norms + beta * compute_angle(x, y)


def cosine_distance(x: Array, y: Array) -> Array:
    """Compute SimSR's distance 1 - cos(x, y), between 0 and 2.

    Args:
        x: (..., k), embeddings; their norms do not matter.
        y: (..., k), embeddings.

    Returns:
        (...). Self-distances are 0; the triangle inequality does not hold.

    >>> float(cosine_distance(jnp.array([3.0, 0.0]), jnp.array([0.0, 2.0])))
    1.0
    """
    return 1 - jnp.sum(normalise(x) * normalise(y), axis=-1)


def inner_product(x: Array, y: Array) -> Array:
    """Compute the kernel sum_i x_i y_i.

    Args:
        x: (..., k), embeddings.
        y: (..., k), embeddings.

    Returns:
        (...), a similarity: larger for similar states.

    >>> float(inner_product(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
    11.0
    """
    return jnp.sum(x * y, axis=-1)


def compute_angle(x: Array, y: Array) -> Array:
    """Return the angle of x and y by Kahan's formula, which keeps small angles, unlike arccos."""
    u, v = normalise(x), normalise(y)
    return 2 * jnp.arctan2(euclidean_distance(u, v), euclidean_distance(u, -v))


def normalise(x: Array) -> Array:
    """Return x / |x|; the zero vector stays 0."""
    return x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + MIN_NORM)


def safe_sqrt(z: Array) -> Array:
    """Return the square root; at 0 the gradient is 0."""
    positive = z > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, z, 1.0)), 0.0)
