"""Double Q-learning on the synchronous product MDP of two copies that take the same actions.

    psi_a(s, t)  is fitted to  |r - r'| + discount * max_b psi'_b(s', t')

on pairs of transitions with the same action a. The maximum of estimates is biased upwards, so one
network selects b and the other evaluates it (van Hasselt 2010).

An error e of the networks that is the same in every update becomes e / (1 - discount) in the limit.
Where states are enumerable, targets therefore look n steps ahead, for all pairs at once,

    |r - r'| + discount * max_b (|r' - r''| + discount * max_c ...),

and evaluate the networks after the last step only, which leaves e / (1 - discount^n).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.losses import Objective, compute_reward_gaps
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.sources import StateSource, TrainingSource, reject_cost


def compute_target(
    gap: Array, next_value: Array, same: Array, discount: float, diameter_bound: float
) -> Array:
    """Return min(gap + discount * next_value, diameter_bound); 0 for the same transition.

    >>> float(compute_target(0.25, 0.5, False, 0.5, 1.0))
    0.5
    >>> float(compute_target(0.25, 0.5, True, 0.5, 1.0))
    0.0
    """
    return jnp.where(same, 0.0, jnp.minimum(gap + discount * next_value, diameter_bound))


def evaluate_double_q(values: Array) -> Array:
    """Return max_b, selected by one network and evaluated by the other: (2, A, n, m) to (n, m).

    It is the mean over both assignments of the roles; with one network, its maximum.

    >>> values = jnp.array([[[[1.0]], [[3.0]]], [[[5.0]], [[2.0]]]])
    >>> evaluate_double_q(values).tolist()
    [[1.5]]
    """
    selected = jnp.argmax(values, axis=1)
    evaluators = jnp.roll(values, 1, axis=0)
    evaluated = jnp.take_along_axis(evaluators, selected[:, None], axis=1)[:, 0]
    return evaluated.mean(axis=0)


def build_batch_objective(
    source: TrainingSource, network: PairQEnsemble, discount: float, batch_size: int
) -> Objective:
    """Return the loss over pairs of sampled transitions, the same number of each action."""
    reject_cost("learned", source, "leave noise out, or give a learned.ModelBasedConfig")
    per_action = max(batch_size // network.num_actions, 2)
    same = jnp.eye(per_action, dtype=bool)
    sampler = source.build_stratified_sampler(network.num_actions, per_action)

    def compute_loss(parameters: Parameters, target: Parameters, key: Array) -> Array:
        batch = sampler.sample(key)
        next_value = jax.vmap(lambda x: evaluate_double_q(evaluate_networks(network, target, x)))(
            batch.x_next
        )
        gap = jax.vmap(compute_reward_gaps)(batch.reward) / network.unit
        targets = jax.lax.stop_gradient(
            compute_target(gap, next_value, same, discount, network.diameter_bound)
        )
        weights = jnp.broadcast_to(sampler.available[:, None, None], targets.shape).astype(
            targets.dtype
        )
        values = [network.network.block_values(each, batch.x) for each in parameters]
        return compute_weighted_loss(values, targets, weights)

    return Objective(lambda target, step: target, compute_loss)


def build_all_pairs_objective(
    source: StateSource,
    network: PairQEnsemble,
    discount: float,
    batch_size: int,
    lookahead: int = 1,
) -> Objective:
    """Return the same loss for fewer states than a batch holds: each pair is evaluated once.

    With c_a(s) the number of times that a batch has action a in state s, a pair has weight
    c_a(s) c_a(t). The targets change with the target network only.
    """
    points = source.compute_features()

    def compute_loss(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.sample_counts(key, batch_size)
        weights = count[:, :, None] * count[:, None, :]
        values = [network.network.values(each, points, points) for each in parameters]
        return compute_weighted_loss(values, targets, weights)

    return Objective(build_target_function(source, network, discount, lookahead), compute_loss)


def build_lookup_objective(
    source: StateSource,
    network: PairQEnsemble,
    discount: float,
    batch_size: int,
    lookahead: int = 1,
) -> Objective:
    """Return the same loss for more states than a batch holds: targets are looked up."""
    points = source.compute_features()
    per_action = max(batch_size // network.num_actions, 2)

    def compute_loss(parameters: Parameters, targets: Array, key: Array) -> Array:
        state = jax.random.randint(key, (network.num_actions, per_action), 0, len(points))
        sampled = jax.vmap(lambda matrix, s: matrix[s[:, None], s[None, :]])(targets, state)
        values = [network.network.block_values(each, points[state]) for each in parameters]
        return compute_weighted_loss(values, sampled, jnp.ones_like(sampled))

    return Objective(build_target_function(source, network, discount, lookahead), compute_loss)


def build_target_function(
    source: StateSource, network: PairQEnsemble, discount: float, lookahead: int
) -> Callable[[Parameters, Array], Array]:
    """Return the function from the target network and the update to the targets (A, S, S).

    Every step before the last takes the best of all actions, whose rewards are known.
    """
    points = source.compute_features()
    same = jnp.eye(len(points), dtype=bool)

    def compute_targets(parameters: Parameters, step: Array) -> Array:
        # As a product: a quotient by an argument rounds differently in some of these programs.
        inverse = jax.lax.optimization_barrier(1 / jnp.float32(network.unit))
        gap = source.compute_gaps() * inverse

        def back_up(next_value: Array) -> Array:
            return compute_target(
                gap, source.gather_successors(next_value), same, discount, network.diameter_bound
            )

        bootstrap = evaluate_double_q(evaluate_networks(network, parameters, points))
        last = jax.lax.fori_loop(
            1, lookahead, lambda _, value: back_up(value).max(axis=0), bootstrap
        )
        return back_up(last)

    return compute_targets


def evaluate_networks(network: PairQEnsemble, parameters: Parameters, x: Array) -> Array:
    """Return psi_a(x_i, x_j) of each network, for the actions in the data."""
    values = jnp.stack([network.network.values(each, x, x) for each in parameters])
    return values[:, jnp.array(network.observed_actions)]


def compute_weighted_loss(values: list[Array], targets: Array, weights: Array) -> Array:
    """Return the weighted mean of (psi - target)^2, summed over the networks."""
    total = sum(jnp.sum(weights * (psi - targets) ** 2) for psi in values)
    return total / jnp.sum(weights)
