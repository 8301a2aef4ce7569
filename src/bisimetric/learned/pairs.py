"""Pairs of transitions: what tells two of them apart."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from bisimetric.learned.sources import ANY_ACTION, StateSource, TrainingSource


def fits_in_batch(source: TrainingSource, batch_size: int) -> bool:
    """Whether a world has no more states than are drawn, so that each pair is computed once."""
    return (
        isinstance(source, StateSource) and source.enumerable and len(source.points) <= batch_size
    )


def compute_reward_gaps(reward: Array) -> Array:
    """|r_i - r_j|, (n, n)."""
    return jnp.abs(reward[:, None] - reward[None, :])


def build_action_mask(action: Array) -> Array:
    """Whether two transitions take the same action, (n, n); the end takes any."""
    any_of = (action[:, None] == ANY_ACTION) | (action[None, :] == ANY_ACTION)
    return (action[:, None] == action[None, :]) | any_of
