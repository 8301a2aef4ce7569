"""The paper's loss over all pairs of a batch, or over all pairs of few states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    compute_beta,
    compute_mean_squared_error,
    map_over_pairs,
)
from bisimetric.learned.networks.hidden import build_tile_groups
from bisimetric.learned.networks.kernels import TILE
from bisimetric.learned.networks.pairs import Parameters
from bisimetric.learned.pairs import build_action_mask, compute_reward_gaps
from bisimetric.learned.sources import Batch, TrainingSource
from bisimetric.learned.training import Objective


def build_batch_objective(
    source: TrainingSource,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
) -> Objective:
    """The loss over all pairs of a batch; what is frozen is the target network, and beta."""
    loss, table = LOSSES[kind], network.table
    sort = loss.same_actions and not source.scaling.has_terminal and batch_size % TILE == 0

    def frozen(target: Parameters, step: Array) -> Any:
        return target, compute_beta(step, target_update_period, horizon_growth)

    def loss_of(parameters: Parameters, frozen: Any, key: Array) -> Array:
        target, beta = frozen
        batch = source.sample_batch(key, batch_size)
        groups = None
        if sort:
            order = jnp.argsort(batch.action)
            batch = Batch(*(column[order] for column in batch))
            groups = build_tile_groups(batch.action)
        psi = table(parameters, batch.x, batch.x, groups)
        ahead = table(target, batch.x_next, batch.x_next, groups)
        here = table(target, batch.x, batch.x, groups) if loss.uses_current_value else psi
        targets = map_over_pairs(loss.target)(
            compute_reward_gaps(batch.reward),
            ahead,
            here,
            jnp.eye(batch_size, dtype=bool),
            discount,
            beta,
        )
        weights = jnp.ones_like(psi)
        if loss.same_actions:
            weights = build_action_mask(batch.action).astype(psi.dtype)
        return compute_mean_squared_error(psi, targets, weights)

    return Objective(frozen, loss_of)


def build_all_pairs_objective(
    source: Any,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
) -> Objective:
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
        gap = jax.vmap(compute_reward_gaps)(source.reward.T)
        different = jnp.zeros((states, states), dtype=bool)
        targets = jax.vmap(map_over_pairs(loss.target), in_axes=(0, 0, None, None, None, None))
        return targets(
            gap,
            ahead,
            here,
            different,
            discount,
            compute_beta(step, target_update_period, horizon_growth),
        )

    def loss_of(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.counts(key, batch_size)
        psi = table(parameters, points, points)
        total = jnp.einsum("as,at,ast->", count, count, (psi[None] - targets) ** 2)
        if loss.zero_self_distance:
            # By counts, not transition by transition: a GPU adds up repeated ones in any order.
            own, other = jnp.diagonal(psi), jnp.diagonal(targets, axis1=1, axis2=2)
            total += jnp.sum(count * (own**2 - (own - other) ** 2))
        return total / batch_size**2

    return Objective(frozen, loss_of)
