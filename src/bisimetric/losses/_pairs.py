"""Pairs of the transitions of a batch, with an absorbing terminal state.

The terminal state becomes one more row of the batch, with reward 0 and itself as successor, where a
transition of the batch terminated; without one, all losses are those without a terminal state.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from bisimetric.losses._distances import DistanceFunction


class Pairs(NamedTuple):
    """Both sides of each pair; all pairs have two axes (n, n), those of a permutation one (n,).

    Attributes:
        x: (n, 1, ...) or (n, ...), embeddings of the first state.
        y: (1, n, ...) or (n, ...), embeddings of the second state.
        next_x: successors of the first state, without gradient.
        next_y: successors of the second state, without gradient.
        reward_x: rewards of the first transition.
        reward_y: rewards of the second transition.
        row_x: row of the first transition.
        row_y: row of the second transition.
        both_ended: whether both successors are the terminal state.
        weight: weight of a pair in the mean.
    """

    x: Array
    y: Array
    next_x: Array
    next_y: Array
    reward_x: Array
    reward_y: Array
    row_x: Array
    row_y: Array
    both_ended: Array
    weight: Array


def build_pairs(
    embeddings: Array,
    next_embeddings: Array,
    rewards: Array,
    terminated: Array,
    *,
    terminal: Array,
    absorbing: bool,
    permutation: Array | None = None,
    self_pairs: bool = True,
    next_terminal: Array | None = None,
    target_embeddings: Array | None = None,
) -> Pairs:
    """Pair the rows of a batch, all with all or each with the one that a permutation gives.

    Args:
        embeddings: (b, ...), of the states.
        next_embeddings: (b, ...), of their successors.
        rewards: (b, ...).
        terminated: (b,) booleans; (b, n) for n successors of each state.
        terminal: embedding of the terminal state, without batch axis.
        absorbing: whether a terminated transition leads to an absorbing terminal state.
        permutation: (b,), the partner of each row; None is all pairs.
        self_pairs: whether a transition is paired with itself.
        next_terminal: the terminal state as a successor; default: `terminal`.
        target_embeddings: (b, ...), of the second state of each pair; default: `embeddings`.

    Returns:
        The pairs.
    """
    size = len(embeddings)
    second = embeddings if target_embeddings is None else stop_gradient(target_embeddings)
    successors = stop_gradient(next_embeddings)
    ended = jnp.zeros(terminated.shape, bool)
    row_weight = jnp.ones(size, embeddings.dtype)
    if absorbing:
        next_terminal = stop_gradient(terminal if next_terminal is None else next_terminal)
        ended = jnp.asarray(terminated, bool)
        mask = ended.reshape(*ended.shape, *(1,) * (successors.ndim - ended.ndim))
        successors = append_row(jnp.where(mask, next_terminal, successors), next_terminal)
        embeddings, second = append_row(embeddings, terminal), append_row(second, terminal)
        rewards = append_row(rewards, jnp.zeros((), rewards.dtype))
        row_weight = jnp.append(row_weight, jnp.any(ended).astype(row_weight.dtype))
        ended = append_row(ended, jnp.array(True))
        if permutation is not None:
            permutation = jnp.append(permutation, permutation[:1])
    rows = jnp.arange(len(embeddings))

    def split(values: Array, others: Array) -> tuple[Array, Array]:
        if permutation is None:
            return values[:, None], others[None, :]
        return values, others[permutation]

    row_x, row_y = split(rows, rows)
    weight_x, weight_y = split(row_weight, row_weight)
    # Of the terminal state and itself nothing is to be learned.
    excluded = (row_x == row_y) & ((row_x >= size) | (not self_pairs))
    ended_x, ended_y = split(ended, ended)
    return Pairs(
        *split(embeddings, second),
        *split(successors, successors),
        *split(rewards, rewards),
        row_x,
        row_y,
        ended_x & ended_y,
        jnp.where(excluded, 0.0, weight_x * weight_y),
    )


def append_row(values: Array, row: Array) -> Array:
    """Return the values with one more row, broadcast to the shape of a row."""
    return jnp.concatenate([values, jnp.broadcast_to(row, values.shape[1:])[None]])


def compute_targets(
    pairs: Pairs, discount: float, distance: DistanceFunction, terminal_value: float = 0.0
) -> Array:
    """Return |r - r'| + discount * distance(successors), without gradient."""
    next_distance = jnp.where(
        pairs.both_ended, terminal_value, distance(pairs.next_x, pairs.next_y)
    )
    return stop_gradient(jnp.abs(pairs.reward_x - pairs.reward_y) + discount * next_distance)


def compute_error(difference: Array, error: str) -> Array:
    """Return the Huber function of the difference, quadratic up to 1, or its square."""
    if error == "squared":
        return difference**2
    size = jnp.abs(difference)
    return jnp.where(size <= 1, difference**2 / 2, size - 0.5)


def compute_mean(values: Array, weight: Array) -> Array:
    """Return the weighted mean; 0 where all weights are 0."""
    total = jnp.sum(weight)
    return jnp.sum(weight * values) / jnp.where(total > 0, total, 1.0)
