"""The loss of Castro (2020), and what all losses on pairs of transitions share.

A target is a function of numbers, for one pair; `map_over_pairs` applies it to (n, m) matrices.
`gap` is |r - r'|, `next_value` the target network at the two successors, `value` that at the two
states, `same` whether both are the same transition, and `beta` the weight of the future.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.networks.mico_network import ScaledMicoNetwork
from bisimetric.learned.networks.pair_layer import TILE, build_tile_groups
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.sources import (
    ANY_ACTION,
    Batch,
    StateSource,
    TrainingSource,
    reject_cost,
)

LearnedKind = Literal["bisimulation", "on_policy", "mico", "reduced_mico"]
TargetFunction = Callable[[Array, Array, Array, Array, float, Array], Array]


class Objective(NamedTuple):
    """What is minimised between two synchronisations of the target network, for one seed.

    Attributes:
        prepare: from the target network and the update to what stays fixed until the next
            synchronisation, such as targets.
        loss: from parameters, what was prepared and a random key to the loss on a batch.
    """

    prepare: Callable[[Parameters, Array], Any]
    loss: Callable[[Parameters, Any, Array], Array]


def bisimulation_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """Return max(gap + discount * beta * next_value, beta * value); 0 for the same transition.

    >>> float(bisimulation_target(1.0, 2.0, 3.0, False, 0.5, 1.0))
    3.0
    """
    return jnp.where(same, 0.0, jnp.maximum(gap + discount * beta * next_value, beta * value))


def on_policy_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """Return gap + discount * beta * next_value; 0 for the same transition.

    >>> float(on_policy_target(1.0, 2.0, 3.0, False, 0.5, 1.0))
    2.0
    """
    return jnp.where(same, 0.0, gap + discount * beta * next_value)


def mico_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """Return gap + discount * beta * next_value for all pairs (Castro et al. 2021).

    >>> float(mico_target(0.0, 2.0, 3.0, True, 0.5, 1.0))
    1.0
    """
    return gap + discount * beta * next_value


@dataclasses.dataclass(frozen=True)
class PairLoss:
    """Which pairs of transitions a distance compares, and with which target.

    Attributes:
        kind: the distance.
        target: the target of one pair.
        same_actions: whether only transitions with equal actions are compared.
        uses_current_value: whether the target depends on the target network at the two states.
        zero_self_distance: whether the target of a transition and itself is 0.
    """

    kind: LearnedKind
    target: TargetFunction
    same_actions: bool
    uses_current_value: bool
    zero_self_distance: bool


LOSSES: dict[LearnedKind, PairLoss] = {
    "bisimulation": PairLoss("bisimulation", bisimulation_target, True, True, True),
    "on_policy": PairLoss("on_policy", on_policy_target, False, False, True),
    "mico": PairLoss("mico", mico_target, False, False, False),
    # Trained as MICo, and reduced afterwards.
    "reduced_mico": PairLoss("reduced_mico", mico_target, False, False, True),
}


def map_over_pairs(target: TargetFunction) -> TargetFunction:
    """Return the target as a function of (n, m) matrices, entry by entry."""
    one_row = jax.vmap(target, in_axes=(0, 0, 0, 0, None, None))
    return jax.vmap(one_row, in_axes=(0, 0, 0, 0, None, None))


def compute_mean_squared_error(psi: Array, targets: Array, weights: Array) -> Array:
    """Return the mean over all pairs of weight * (psi - target)^2; targets are constants."""
    return jnp.mean(weights * (psi - jax.lax.stop_gradient(targets)) ** 2)


def compute_beta(step: Array, target_update_period: int, horizon_growth: float) -> Array:
    """Return beta = 1 - horizon_growth^k after the k-th synchronisation of the target network.

    >>> [round(float(compute_beta(step, 500, 0.9)), 3) for step in (0, 499, 500, 1000)]
    [0.0, 0.0, 0.1, 0.19]
    """
    return 1.0 - jnp.float32(horizon_growth) ** (step // target_update_period)


def fits_in_batch(source: TrainingSource, batch_size: int) -> TypeGuard[StateSource]:
    """Return whether a batch has room for all states, so that each pair is evaluated once."""
    return (
        isinstance(source, StateSource) and source.enumerable and len(source.points) <= batch_size
    )


def compute_reward_gaps(reward: Array) -> Array:
    """Return |r_i - r_j|, (n, n)."""
    return jnp.abs(reward[:, None] - reward[None, :])


def build_action_mask(action: Array) -> Array:
    """Return whether two transitions have the same action, (n, n); the terminal state has any."""
    any_action = (action[:, None] == ANY_ACTION) | (action[None, :] == ANY_ACTION)
    return (action[:, None] == action[None, :]) | any_action


def compute_pair_td_loss(
    network: ScaledMicoNetwork,
    discount: float,
    parameters: Parameters,
    target: Parameters,
    rows: Array,
    batch: Batch,
) -> Array:
    """Return the loss of MICo over pairs of different transitions, and that of the reward head.

    A transition is not paired with itself, since its successors would be equal in place of
    independent, and self-distances too small. The terminal state is paired with itself.

    Args:
        network: the network of MICo.
        discount: the discount of the distance.
        parameters: of the network.
        target: parameters of the target network.
        rows: (b,) numbers of the transitions; -1 where there is a single outcome.
        batch: the transitions, in terms of features.

    Returns:
        A scalar.
    """
    table = network.network.table
    reward, reward_loss = batch.reward, jnp.float32(0.0)
    if network.reward_scale is not None:
        predicted = network.predict_standardised_rewards(parameters, batch.x)
        recorded = (batch.reward - network.reward_shift) / network.reward_scale
        reward_loss = jnp.mean((predicted - recorded) ** 2)
        reward = jnp.where(
            batch.action == ANY_ACTION, 0.0, network.predict_rewards(target, batch.x)
        )
    gap = compute_reward_gaps(reward) / network.unit
    next_value = table(target["pairs"], batch.x_next, batch.x_next)
    targets = jax.lax.stop_gradient(gap + discount * next_value)
    psi = table(parameters["pairs"], batch.x, batch.x)
    same = (rows[:, None] == rows[None, :]) & (rows[:, None] >= 0)
    weights = 1.0 - same.astype(psi.dtype)
    error = jnp.sum(weights * (psi - targets) ** 2)
    return error / jnp.maximum(jnp.sum(weights), 1.0) + reward_loss


def build_batch_objective(
    source: TrainingSource,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
    average_compared: bool = False,
) -> Objective:
    """Return the loss over all pairs of a batch; the target network and beta stay fixed.

    With `average_compared` it is averaged over the pairs of equal actions in place of all pairs.
    """
    reject_cost(f"learned.castro2020.{kind}", source, "raise batch_size to the number of states")
    loss, table = LOSSES[kind], network.table
    sort = loss.same_actions and not source.scaling.has_terminal and batch_size % TILE == 0

    def prepare(target: Parameters, step: Array) -> Any:
        return target, compute_beta(step, target_update_period, horizon_growth)

    def compute_loss(parameters: Parameters, prepared: Any, key: Array) -> Array:
        target, beta = prepared
        batch = source.sample_batch(key, batch_size)
        groups = None
        if sort:
            order = jnp.argsort(batch.action)
            batch = Batch(*(column[order] for column in batch))
            groups = build_tile_groups(batch.action)
        psi = table(parameters, batch.x, batch.x, groups)
        next_value = table(target, batch.x_next, batch.x_next, groups)
        value = table(target, batch.x, batch.x, groups) if loss.uses_current_value else psi
        targets = map_over_pairs(loss.target)(
            compute_reward_gaps(batch.reward),
            next_value,
            value,
            jnp.eye(batch_size, dtype=bool),
            discount,
            beta,
        )
        weights = jnp.ones_like(psi)
        if loss.same_actions:
            weights = build_action_mask(batch.action).astype(psi.dtype)
            if average_compared:
                weights /= weights.mean()
        return compute_mean_squared_error(psi, targets, weights)

    return Objective(prepare, compute_loss)


def build_all_pairs_objective(
    source: StateSource,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
    average_compared: bool = False,
) -> Objective:
    """Return the same loss for fewer states than a batch holds: each pair is evaluated once.

    With c_a(s) the number of times that a batch has action a in state s, the sum over all pairs of
    the batch is the sum over a, s, t of c_a(s) c_a(t) (psi(s, t) - T_a(s, t))^2, except for the b
    transitions paired with themselves, whose target is 0. T changes with the target network only.
    """
    loss, table = LOSSES[kind], network.table
    points = source.compute_features()
    states = len(points)

    def prepare(target: Parameters, step: Array) -> Array:
        value = table(target, points, points)
        next_value = source.gather_successors(value)
        gap = source.compute_gaps()
        different = jnp.zeros((states, states), dtype=bool)
        targets = jax.vmap(map_over_pairs(loss.target), in_axes=(0, 0, None, None, None, None))
        return targets(
            gap,
            next_value,
            value,
            different,
            discount,
            compute_beta(step, target_update_period, horizon_growth),
        )

    def compute_loss(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.sample_counts(key, batch_size)
        psi = table(parameters, points, points)
        total = jnp.einsum("as,at,ast->", count, count, (psi[None] - targets) ** 2)
        if loss.zero_self_distance:
            # By counts, not transition by transition: a GPU adds up repeated ones in any order.
            own, other = jnp.diagonal(psi), jnp.diagonal(targets, axis1=1, axis2=2)
            total += jnp.sum(count * (own**2 - (own - other) ** 2))
        if average_compared:
            return total / jnp.sum(count.sum(axis=1) ** 2)
        return total / batch_size**2

    return Objective(prepare, compute_loss)
