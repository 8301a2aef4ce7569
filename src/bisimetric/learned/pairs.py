"""Pairs of transitions: what tells two of them apart."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from bisimetric.learned.sources import ANY, Source, States


def listed(source: Source, size: int) -> bool:
    """Whether a world has no more states than are drawn, so that each pair is computed once."""
    return isinstance(source, States) and source.finite and len(source.points) <= size


def gaps(reward: Array) -> Array:
    """|r_i - r_j|, (n, n)."""
    return jnp.abs(reward[:, None] - reward[None, :])


def equal(action: Array) -> Array:
    """Whether two transitions take the same action, (n, n); the end takes any."""
    any_of = (action[:, None] == ANY) | (action[None, :] == ANY)
    return (action[:, None] == action[None, :]) | any_of
