"""Losses on pairs of sampled transitions: MICo, its kernel form (reduced MICo, KSMe) and SimSR."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from bisimetric.losses._distances import (
    DistanceFunction,
    cosine_distance,
    inner_product,
    mico_distance,
)
from bisimetric.losses._pairs import build_pairs, compute_error, compute_mean, compute_targets
from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_error,
    require_options,
)


def mico(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    distance: DistanceFunction = mico_distance,
    next_distance: DistanceFunction | None = None,
    target_embeddings: Array | None = None,
    error: str = "huber",
    permutation: Array | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of MICo (Castro et al. 2021).

        mean over pairs of huber(U(x, y) - (|r_x - r_y| + discount * U'(x', y')))

    Fixed point: `exact.mico`, where the distance can represent it. Known bias: |r_x - r_y| of
    sampled rewards is larger on average than that of expected rewards; a transition paired with
    itself has equal successors in place of independent ones, so self-distances of stochastic
    states are too small in batches that are samples; the reduced part of `mico_distance` is at
    most pi * beta.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, k), of the successors, by the target network; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: that of the successors; default: `distance`.
        target_embeddings: (b, k), of the same states by the target network, for the second state of
            each pair, as in the published code. Default: `embeddings`.
        error: "huber", or "squared".
        permutation: (b,), the partner of each transition; default: all pairs.
        self_pairs: whether a transition is paired with itself, as in the published code.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with all others where a transition of the batch terminated. False ignores termination,
            as the published code does.
        terminal_embedding: (k,), of the terminal state; default: zeros, whose self-distance is 0.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0, 1.0], [0.0, 1.0]])
    >>> loss = mico(x, x_next, jnp.array([0.0, 1.0]), jnp.array([False, False]), discount=0.9)
    >>> round(float(loss), 4)
    0.1405
    """
    require_error("losses.mico", error)
    require_discount("losses.mico", discount)
    require_batch("losses.mico", embeddings, next_embeddings, rewards, terminated)
    require_options("losses.mico", embeddings, permutation, terminal_embedding, target_embeddings)
    zeros = jnp.zeros(embeddings.shape[1], embeddings.dtype)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
        target_embeddings=target_embeddings,
    )
    targets = compute_targets(pairs, discount, next_distance or distance)
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)


def reduced_mico(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    reward_range: float = 2.0,
    kernel: DistanceFunction = inner_product,
    next_kernel: DistanceFunction | None = None,
    target_embeddings: Array | None = None,
    error: str = "huber",
    permutation: Array | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of KSMe (Castro et al. 2023), whose kernel gives reduced MICo.

        mean over pairs of
            huber(K(x, y) - (1 - |r_x - r_y| / reward_range + discount * K'(x', y')))

    Fixed point: K = 1 / (1 - discount) - U / reward_range with U = `exact.mico`, so that
    reward_range / 2 * (K(x, x) + K(y, y) - 2 K(x, y)) is `exact.reduced_mico`. For the inner
    product that is reward_range / 2 times the squared Euclidean distance of the embeddings. Known
    bias: as for `mico`, in the rewards and the self-similarities of stochastic states.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, k), of the successors, by the target network; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        reward_range: largest reward less least reward; 2 for rewards clipped to [-1, 1].
        kernel: of embeddings (..., k) and (..., k), broadcast.
        next_kernel: that of the successors; default: `kernel`.
        target_embeddings: (b, k), of the same states by the target network, for the second state of
            each pair, as in the published code. Default: `embeddings`.
        error: "huber", or "squared".
        permutation: (b,), the partner of each transition; default: all pairs.
        self_pairs: whether a transition is paired with itself, as in the published code.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with all others where a transition of the batch terminated. False ignores termination,
            as the published code does.
        terminal_embedding: (k,), of the terminal state; default: equal coordinates, with the
            self-similarity 1 / (1 - discount) of the fixed point.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0, 1.0], [0.0, 1.0]])
    >>> loss = reduced_mico(
    ...     x, x_next, jnp.array([0.0, 1.0]), jnp.array([False, False]), discount=0.5
    ... )
    >>> float(loss)
    0.3125
    """
    require_error("losses.reduced_mico", error)
    require_discount("losses.reduced_mico", discount)
    require_batch("losses.reduced_mico", embeddings, next_embeddings, rewards, terminated)
    require_options(
        "losses.reduced_mico", embeddings, permutation, terminal_embedding, target_embeddings
    )
    horizon = 1 / (1 - discount)
    if terminal_embedding is None:
        size = embeddings.shape[1]
        terminal_embedding = jnp.full(size, (horizon / size) ** 0.5, embeddings.dtype)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
        target_embeddings=target_embeddings,
    )
    similarity = (next_kernel or kernel)(pairs.next_x, pairs.next_y)
    similarity = jnp.where(pairs.both_ended, horizon, similarity)
    gap = jnp.abs(pairs.reward_x - pairs.reward_y) / reward_range
    targets = stop_gradient(1 - gap + discount * similarity)
    return compute_mean(compute_error(kernel(pairs.x, pairs.y) - targets, error), pairs.weight)


def simsr(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    distance: DistanceFunction = cosine_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "huber",
    permutation: Array | None = None,
    self_pairs: bool = True,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of SimSR (Zang et al. 2022).

        mean over pairs of huber(d(x, y) - (|r_x - r_y| + discount * d'(x', y'))),  d = 1 - cos

    Fixed point: that of `mico`, `exact.mico`, for a distance that can represent it. Known bias:
    the cosine distance is at most 2 and its self-distances are 0, so it represents no MICo with
    larger values or with stochastic states; rewards must be small, such as scaled by 1 - discount.

    Args:
        embeddings: (b, k), of the states; their norms do not matter.
        next_embeddings: (b, k), of the successors: sampled from a latent model or embedded by the
            target network; no gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        discount: the discount, below 1.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: that of the successors; default: `distance`.
        error: "huber", or "squared".
        permutation: (b,), the partner of each transition; default: all pairs.
        self_pairs: whether a transition is paired with itself, as in the published code.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with all others where a transition of the batch terminated. False ignores termination,
            as the published code does.
        terminal_embedding: (k,), of the terminal state; default: equal coordinates, norm 1.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0, 1.0], [0.0, 1.0]])
    >>> float(simsr(x, x_next, jnp.array([0.0, 0.5]), jnp.array([False, False]), discount=0.9))
    0.0625
    """
    require_error("losses.simsr", error)
    require_discount("losses.simsr", discount)
    require_batch("losses.simsr", embeddings, next_embeddings, rewards, terminated)
    require_options("losses.simsr", embeddings, permutation, terminal_embedding)
    if terminal_embedding is None:
        size = embeddings.shape[1]
        terminal_embedding = jnp.full(size, size**-0.5, embeddings.dtype)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        terminated,
        terminal=terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
        self_pairs=self_pairs,
    )
    targets = compute_targets(pairs, discount, next_distance or distance)
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)
