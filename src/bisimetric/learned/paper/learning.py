"""The paper's loss over all pairs of a batch, or over all pairs of few states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.losses import LOSSES, Kind, beta_at, mean_squared, over_pairs
from bisimetric.learned.networks.hidden import groups_of
from bisimetric.learned.networks.kernels import TILE
from bisimetric.learned.networks.pairs import Parameters
from bisimetric.learned.pairs import equal, gaps
from bisimetric.learned.sources import Batch, Source
from bisimetric.learned.training import Learner


def of_batches(
    source: Source,
    network: Any,
    kind: Kind,
    discount: float,
    size: int,
    period: int,
    rate: float,
) -> Learner:
    """The loss over all pairs of a batch; what is frozen is the target network, and beta."""
    loss, table = LOSSES[kind], network.table
    sort = loss.same_actions and not source.scale.ends and size % TILE == 0

    def frozen(target: Parameters, step: Array) -> Any:
        return target, beta_at(step, period, rate)

    def loss_of(parameters: Parameters, frozen: Any, key: Array) -> Array:
        target, beta = frozen
        batch = source.batch(key, size)
        groups = None
        if sort:
            order = jnp.argsort(batch.action)
            batch = Batch(*(column[order] for column in batch))
            groups = groups_of(batch.action)
        psi = table(parameters, batch.x, batch.x, groups)
        ahead = table(target, batch.x_next, batch.x_next, groups)
        here = table(target, batch.x, batch.x, groups) if loss.looks_here else psi
        targets = over_pairs(loss.target)(
            gaps(batch.reward), ahead, here, jnp.eye(size, dtype=bool), discount, beta
        )
        weights = jnp.ones_like(psi)
        if loss.same_actions:
            weights = equal(batch.action).astype(psi.dtype)
        return mean_squared(psi, targets, weights)

    return Learner(frozen, loss_of)


def of_states(
    source: Any,
    network: Any,
    kind: Kind,
    discount: float,
    size: int,
    period: int,
    rate: float,
) -> Learner:
    """The same loss where a batch holds few different states: each pair of them is computed once.

    With c_a(s) the number of times that a batch has action a in state s, the sum over all pairs of
    the batch is the sum over a, s, t of c_a(s) c_a(t) (psi(s, t) - T_a(s, t))^2, but for the b
    transitions paired with themselves, whose target is 0. T changes with the target network only.
    """
    loss, table = LOSSES[kind], network.table
    points = source.features()
    states = len(points)

    def frozen(target: Parameters, step: Array) -> Array:
        here = table(target, points, points)
        ahead = source.ahead(here)
        gap = jax.vmap(gaps)(source.reward.T)
        different = jnp.zeros((states, states), dtype=bool)
        targets = jax.vmap(over_pairs(loss.target), in_axes=(0, 0, None, None, None, None))
        return targets(gap, ahead, here, different, discount, beta_at(step, period, rate))

    def loss_of(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.counts(key, size)
        psi = table(parameters, points, points)
        total = jnp.einsum("as,at,ast->", count, count, (psi[None] - targets) ** 2)
        if loss.zero_on_itself:
            # By counts, not transition by transition: a GPU adds up repeated ones in any order.
            own, other = jnp.diagonal(psi), jnp.diagonal(targets, axis1=1, axis2=2)
            total += jnp.sum(count * (own**2 - (own - other) ** 2))
        return total / size**2

    return Learner(frozen, loss_of)
