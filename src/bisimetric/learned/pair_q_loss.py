"""Learning the value of two copies of a world that are walked together, one number an action.

    psi_a(s, t) moves towards |r - r'| + discount * max_b psi_b(s', t'),

for pairs of transitions that take the same action a. The maximum of what two networks say would be
too large where they err, so one of them chooses b and the other tells its value (van Hasselt 2010).

An error e of the networks, the same in each update, is one of e / (1 - discount) in the end. Where
the states of a world are listed, targets therefore look n steps ahead, all pairs at once:

    psi_a(s, t) moves towards |r - r'| + discount * max_b (|r' - r''| + discount * max_c ...),

and what networks say is asked after the last step only; e / (1 - discount^n) is left.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.losses import compute_reward_gaps
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import Objective


def compute_target(
    gap: Array, next_value: Array, same: Array, discount: float, diameter_bound: float
) -> Array:
    """gap + discount * ahead, but no more than there can be, and 0 for one and the same.

    >>> float(target(0.25, 0.5, False, 0.5, 1.0)), float(target(0.25, 0.5, True, 0.5, 1.0))
    (0.5, 0.0)
    """
    return jnp.where(same, 0.0, jnp.minimum(gap + discount * next_value, diameter_bound))


def evaluate_double_q(values: Array) -> Array:
    """max_b as one network chooses it and another tells it: values (2, A, n, m) to (n, m).

    The mean of both ways round. With one network, its maximum.

    >>> values = jnp.array([[[[1.0]], [[3.0]]], [[[5.0]], [[2.0]]]])
    >>> chosen_and_told(values).tolist()
    [[1.5]]
    """
    best = jnp.argmax(values, axis=1)
    told_by = jnp.roll(values, 1, axis=0)
    told = jnp.take_along_axis(told_by, best[:, None], axis=1)[:, 0]
    return told.mean(axis=0)


def build_batch_objective(
    source: TrainingSource, network: PairQEnsemble, discount: float, batch_size: int
) -> Objective:
    """The loss over pairs of transitions, as many of each action; the target network is frozen."""
    each = max(batch_size // network.num_actions, 2)
    same = jnp.eye(each, dtype=bool)
    deal = source.build_stratified_sampler(network.num_actions, each)

    def loss_of(parameters: Parameters, frozen: Parameters, key: Array) -> Array:
        batch = deal.sample(key)
        ahead = jax.vmap(lambda x: evaluate_double_q(_evaluate_networks(network, frozen, x)))(
            batch.x_next
        )
        gap = jax.vmap(compute_reward_gaps)(batch.reward) / network.unit
        targets = jax.lax.stop_gradient(
            compute_target(gap, ahead, same, discount, network.diameter_bound)
        )
        weights = jnp.broadcast_to(deal.available[:, None, None], targets.shape).astype(
            targets.dtype
        )
        found = [network.network.block_values(copy, batch.x) for copy in parameters]
        return _compute_loss(found, targets, weights)

    return Objective(lambda frozen, step: frozen, loss_of)


def build_all_pairs_objective(
    source: StateSource,
    network: PairQEnsemble,
    discount: float,
    batch_size: int,
    lookahead: int = 1,
) -> Objective:
    """The same loss where a batch holds few different states: each pair of them is computed once.

    With c_a(s) the number of times that a batch has action a in state s, a pair weighs
    c_a(s) c_a(t). The targets change with the target network only.
    """
    points = source.compute_features()

    def loss_of(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.sample_counts(key, batch_size)
        weights = count[:, :, None] * count[:, None, :]
        found = [network.network.values(copy, points, points) for copy in parameters]
        return _compute_loss(found, targets, weights)

    return Objective(build_target_function(source, network, discount, lookahead), loss_of)


def build_lookup_objective(
    source: StateSource,
    network: PairQEnsemble,
    discount: float,
    batch_size: int,
    lookahead: int = 1,
) -> Objective:
    """The same loss for more states than a batch holds: it is drawn, its targets are looked up."""
    points = source.compute_features()
    each = max(batch_size // network.num_actions, 2)

    def loss_of(parameters: Parameters, targets: Array, key: Array) -> Array:
        state = jax.random.randint(key, (network.num_actions, each), 0, len(points))
        drawn = jax.vmap(lambda table, s: table[s[:, None], s[None, :]])(targets, state)
        found = [network.network.block_values(copy, points[state]) for copy in parameters]
        return _compute_loss(found, drawn, jnp.ones_like(drawn))

    return Objective(build_target_function(source, network, discount, lookahead), loss_of)


def build_target_function(
    source: StateSource, network: PairQEnsemble, discount: float, lookahead: int
) -> Callable[[Parameters, Array], Array]:
    """The targets (A, S, S) of all pairs, so many steps ahead; from the target network and a step.

    Each step but the last takes the best action of all, whose rewards are known.
    """
    points = source.compute_features()
    same = jnp.eye(len(points), dtype=bool)

    def frozen(parameters: Parameters, step: Array) -> Array:
        gap = jax.vmap(compute_reward_gaps)(source.reward.T) / network.unit

        def before(ahead: Array) -> Array:
            return compute_target(
                gap, source.gather_successors(ahead), same, discount, network.diameter_bound
            )

        beyond = evaluate_double_q(_evaluate_networks(network, parameters, points))
        last = jax.lax.fori_loop(1, lookahead, lambda _, ahead: before(ahead).max(axis=0), beyond)
        return before(last)

    return frozen


def _evaluate_networks(network: PairQEnsemble, parameters: Parameters, x: Array) -> Array:
    """psi_a(x_i, x_j) of each of the networks, for the actions that were learned from."""
    each = jnp.stack([network.network.values(copy, x, x) for copy in parameters])
    return each[:, jnp.array(network.observed_actions)]


def _compute_loss(values: list[Array], targets: Array, weights: Array) -> Array:
    """The weighted mean of (psi - target)^2, added up over the networks."""
    total = sum(jnp.sum(weights * (psi - targets) ** 2) for psi in values)
    return total / jnp.sum(weights)
