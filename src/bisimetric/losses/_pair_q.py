"""Pair Q-learning for d~, and n-step targets for d^pi; metrics by construction."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from bisimetric.errors import InputError
from bisimetric.learned.pair_q_loss import evaluate_double_q
from bisimetric.losses._distances import DistanceFunction, metric_distance
from bisimetric.losses._pairs import append_row, build_pairs, compute_error, compute_mean
from bisimetric.losses._validation import (
    require_batch,
    require_discount,
    require_error,
    require_options,
    require_shape,
)


def pair_q(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    actions: Array,
    *,
    discount: float,
    distance: DistanceFunction = metric_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "squared",
    permutation: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of pair Q-learning for the bisimulation metric d~.

        mean over pairs with the same action a of
            (psi_a(x, y) - (|r_x - r_y| + discount * max_b psi'_b(x', y')))^2

    psi_a is the distance of the embeddings for action a, so max_a psi_a is a pseudometric for all
    weights. d~ is the optimal value of the synchronous product MDP (Ferns & Precup 2014). Fixed
    point: for deterministic dynamics max_a psi_a = `exact.bisimulation`. Known bias: upwards for
    stochastic dynamics, whose successors are coupled independently; the maximum of estimates is
    biased upwards, which two target networks reduce (double Q-learning).

    Args:
        embeddings: (b, A, k), of the states, one per action.
        next_embeddings: (b, A, k), of the successors, by the target network; or (2, b, A, k) by two
            target networks: one selects the action and the other evaluates it. No gradient flows.
        rewards: (b,).
        terminated: (b,) booleans. Truncation is not termination.
        actions: (b,) integers below A.
        discount: the discount, below 1.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: that of the successors; default: `distance`.
        error: "squared", or "huber".
        permutation: (b,), the partner of each transition; default: all pairs.
        absorbing: whether episodes terminate in an absorbing state with reward 0 for every action,
            which is paired with all others where a transition of the batch terminated. False
            ignores termination.
        terminal_embedding: (A, k) or (k,), of the terminal state; default: zeros.

    Returns:
        A scalar; 0 where no pair has equal actions.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x = jnp.array([[[0.0], [0.0]], [[1.0], [2.0]]])
    >>> rewards, ends = jnp.array([0.0, 1.0]), jnp.array([False, False])
    >>> float(pair_q(x, x, rewards, ends, jnp.array([1, 1]), discount=0.5))
    0.0
    """
    require_error("losses.pair_q", error)
    require_discount("losses.pair_q", discount)
    networks = next_embeddings if next_embeddings.ndim == 4 else next_embeddings[None]
    successors = jnp.moveaxis(networks, 0, 1)
    require_batch(
        "losses.pair_q", embeddings, successors, rewards, terminated, axes=("b", "A", "k")
    )
    require_shape("losses.pair_q", "actions", actions, rewards.shape)
    require_options("losses.pair_q", embeddings, permutation, terminal_embedding)
    zeros = jnp.zeros(embeddings.shape[-1], embeddings.dtype)
    pairs = build_pairs(
        embeddings,
        successors,
        rewards,
        terminated,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
    )
    values = (next_distance or distance)(pairs.next_x, pairs.next_y)
    best = evaluate_double_q(jnp.moveaxis(values, (-2, -1), (0, 1)))
    best = jnp.where(pairs.both_ended, 0.0, best)
    targets = stop_gradient(jnp.abs(pairs.reward_x - pairs.reward_y) + discount * best)
    # The terminal state takes the action of the other state.
    action = append_row(actions, jnp.array(-1)) if absorbing else actions
    action_x, action_y = action[pairs.row_x], action[pairs.row_y]
    same = (action_x == action_y) | (action_x < 0) | (action_y < 0)
    pair_action = jnp.maximum(jnp.maximum(action_x, action_y), 0)
    psi = jnp.take_along_axis(distance(pairs.x, pairs.y), pair_action[..., None], axis=-1)[..., 0]
    return compute_mean(
        compute_error(psi - targets, error), pairs.weight * same.astype(pairs.weight.dtype)
    )


def on_policy(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    discount: float,
    steps: Array | None = None,
    distance: DistanceFunction = metric_distance,
    next_distance: DistanceFunction | None = None,
    error: str = "squared",
    permutation: Array | None = None,
    absorbing: bool = True,
    terminal_embedding: Array | None = None,
) -> Array:
    """Compute the loss of the on-policy bisimulation metric d^pi with n-step targets.

        mean over pairs of
            (d(x, y) - sum_{i<m} discount^i |r_i - r'_i| - discount^m d'(x_m, y_m))^2,

    m = n, or the recorded steps of the pair where one of the two episodes is truncated before.
    Fixed point: for deterministic dynamics and policies `exact.on_policy`. Known bias: upwards for
    stochastic ones, whose successors are coupled independently, so the fixed point is that of
    `mico` with self-distances 0.

    Args:
        embeddings: (b, k), of the states.
        next_embeddings: (b, n, k), of the next n states, by the target network; (b, k) where n is
            1. No gradient flows.
        rewards: (b, n), of the next n steps; or (b,).
        terminated: (b, n) booleans, or (b,); what follows a termination is ignored. Truncation is
            not termination.
        discount: the discount, below 1.
        steps: (b,) integers from 1 to n, recorded steps before truncation; default: n. It is
            ignored where an episode terminates within its steps.
        distance: of embeddings (..., k) and (..., k), broadcast.
        next_distance: that of the successors; default: `distance`.
        error: "squared", or "huber".
        permutation: (b,), the partner of each transition; default: all pairs.
        absorbing: whether episodes terminate in an absorbing state with reward 0, which is paired
            with all others where an episode of the batch terminated. False ignores termination.
        terminal_embedding: (k,), of the terminal state; default: zeros.

    Returns:
        A scalar.

    Raises:
        InputError: when a shape or a number does not fit.

    >>> x, x_next = jnp.array([[0.0], [2.0]]), jnp.array([[[5.0], [0.0]], [[5.0], [2.0]]])
    >>> rewards, ends = jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.zeros((2, 2), bool)
    >>> float(on_policy(x, x_next, rewards, ends, discount=0.5))
    0.0
    """
    require_error("losses.on_policy", error)
    require_discount("losses.on_policy", discount)
    if rewards.ndim == 1:
        rewards, terminated = rewards[:, None], terminated[:, None]
        next_embeddings = next_embeddings[:, None]
    require_batch("losses.on_policy", embeddings, next_embeddings, rewards[:, 0], terminated[:, 0])
    length = rewards.shape[1]
    require_shape("losses.on_policy", "terminated", terminated, rewards.shape)
    require_options("losses.on_policy", embeddings, permutation, terminal_embedding)
    if next_embeddings.ndim != 3 or next_embeddings.shape[1] != length:
        raise InputError(
            f"has shape {tuple(next_embeddings.shape)} and must have shape (b, n, k) with n = "
            f"{length}, as the rewards",
            caller="losses.on_policy",
            argument="next_embeddings",
        )
    recorded = jnp.full(len(rewards), length) if steps is None else jnp.asarray(steps)
    ended = jnp.zeros(rewards.shape, bool)
    if absorbing:
        within = jnp.arange(length) < recorded[:, None]
        ended = jnp.cumsum(jnp.asarray(terminated, bool) & within, axis=1) > 0
        before = jnp.pad(ended[:, :-1], ((0, 0), (1, 0)))
        rewards = jnp.where(before, 0.0, rewards)
        recorded = append_row(jnp.where(ended[:, -1], length, recorded), jnp.array(length))
    zeros = jnp.zeros(embeddings.shape[1], embeddings.dtype)
    pairs = build_pairs(
        embeddings,
        next_embeddings,
        rewards,
        ended,
        terminal=zeros if terminal_embedding is None else terminal_embedding,
        absorbing=absorbing,
        permutation=permutation,
    )
    distance_after = next_distance or distance
    if steps is None:
        values = distance_after(pairs.next_x[..., -1, :], pairs.next_y[..., -1, :])
        bootstrap = jnp.where(pairs.both_ended[..., -1], 0.0, values)
        m = jnp.full(bootstrap.shape, length)
    else:
        m = jnp.minimum(recorded[pairs.row_x], recorded[pairs.row_y])
        values = distance_after(pairs.next_x, pairs.next_y)
        values = jnp.where(pairs.both_ended, 0.0, values)
        bootstrap = jnp.take_along_axis(values, m[..., None] - 1, axis=-1)[..., 0]
    offsets = jnp.arange(length)
    factors = jnp.asarray(discount, values.dtype) ** offsets
    gaps = jnp.abs(pairs.reward_x - pairs.reward_y)
    total = jnp.sum(jnp.where(offsets < m[..., None], factors * gaps, 0.0), axis=-1)
    targets = stop_gradient(total + jnp.asarray(discount, values.dtype) ** m * bootstrap)
    return compute_mean(compute_error(distance(pairs.x, pairs.y) - targets, error), pairs.weight)
