"""The targets of Castro (2020) for one pair of transitions, and their mean over a batch.

A target is a function of numbers, for one pair; `over_pairs` makes it one of tables (n, m). `gap`
is |r - r'|, `ahead` the target network at the two successors, `here` that at the two states, `same`
whether both transitions are one and the same, and `beta` the share of the horizon that counts.

Pairs of transitions: what tells two of them apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.sources import ANY_ACTION, StateSource, TrainingSource

LearnedKind = Literal["bisimulation", "on_policy", "mico"]
TargetFunction = Callable[[Array, Array, Array, Array, float, Array], Array]


def bisimulation_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """T = max(gap + discount * beta * ahead, beta * here), and 0 for one and the same.

    >>> float(bisimulation_target(1.0, 2.0, 3.0, False, 0.5, 1.0))
    3.0
    """
    return jnp.where(same, 0.0, jnp.maximum(gap + discount * beta * next_value, beta * value))


def on_policy_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """T^pi = gap + discount * beta * ahead, and 0 for one and the same.

    >>> float(on_policy_target(1.0, 2.0, 3.0, False, 0.5, 1.0))
    2.0
    """
    return jnp.where(same, 0.0, gap + discount * beta * next_value)


def mico_target(
    gap: Array, next_value: Array, value: Array, same: Array, discount: float, beta: Array
) -> Array:
    """gap + discount * beta * ahead for all pairs (Castro et al. 2021): none is 0 by definition.

    >>> float(mico_target(0.0, 2.0, 3.0, True, 0.5, 1.0))
    1.0
    """
    return gap + discount * beta * next_value


@dataclasses.dataclass(frozen=True)
class PairLoss:
    """A way to compare transitions.

    Attributes:
        target: of one pair.
        same_actions: whether only transitions with equal actions are compared.
        looks_here: whether the target network at the two states themselves takes part.
        zero_on_itself: whether the target of a transition and itself is 0.
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
}


def map_over_pairs(target: TargetFunction) -> TargetFunction:
    """The target of tables (n, m), entry by entry."""
    one_row = jax.vmap(target, in_axes=(0, 0, 0, 0, None, None))
    return jax.vmap(one_row, in_axes=(0, 0, 0, 0, None, None))


def compute_mean_squared_error(psi: Array, targets: Array, weights: Array) -> Array:
    """L = mean over all pairs of weight * (psi - target)^2; targets are constants."""
    return jnp.mean(weights * (psi - jax.lax.stop_gradient(targets)) ** 2)


def compute_beta(step: Array, target_update_period: int, horizon_growth: float) -> Array:
    """beta = 1 - rate^k after the k-th update of the target, which come every `period` steps.

    >>> [round(float(beta_at(step, 500, 0.9)), 3) for step in (0, 499, 500, 1000)]
    [0.0, 0.0, 0.1, 0.19]
    """
    return 1.0 - jnp.float32(horizon_growth) ** (step // target_update_period)


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
