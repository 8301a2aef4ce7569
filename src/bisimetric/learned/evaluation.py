"""Evaluate networks: distances, violations of the metric axioms, errors against a reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from bisimetric._progress import jit
from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    build_action_mask,
    compute_reward_gaps,
    map_over_pairs,
)
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from bisimetric.learned.networks.mico_network import ReducedNetwork, ScaledMicoNetwork
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.sources import ANY_ACTION, Batch

EVALUATION_BATCH = 256
"""Sampled transitions that `LearnedDistance.quality` is computed on."""

MIN_NORM = 1e-30
"""Replaces the norm of a matrix of zeros, to divide by."""


class Quality(NamedTuple):
    """How far a network is from being a metric, and from its own equation.

    Attributes:
        symmetry: the largest |psi(x, y) - psi(y, x)|.
        identity: the largest psi(x, x).
        triangle: the largest violation d(x, z) - d(x, y) - d(y, z), at least 0.
        residual: the mean |psi - T| over pairs of transitions, T the target with the full horizon;
            for networks with one value per action, at the action that was taken. For MICo of
            stochastic data it includes the randomness of the successors, and does not tend to 0.
        max_distance: the largest d.

    >>> Quality(0.0, 0.0, 0.0, 0.1, 2.0).residual
    0.1
    """

    symmetry: float
    identity: float
    triangle: float
    residual: float
    max_distance: float


def compute_distances(network: Any, parameters: Parameters, x: Array, y: Array) -> Array:
    """Return d(x_i, y_j) = max(psi(x_i, y_j), psi(y_j, x_i)), (n, m)."""
    if network.symmetric:
        distances: Array = network.table(parameters, x, y)
        return distances
    return jnp.maximum(network.table(parameters, x, y), network.table(parameters, y, x).T)


def _evaluate_quality(
    network: Any, kind: LearnedKind, discount: float, parameters: Parameters, batch: Batch
) -> tuple[Array, ...]:
    """Return the fields of `Quality` on all pairs of a batch."""
    psi = network.table(parameters, batch.x, batch.x)
    d = jnp.maximum(psi, psi.T)
    loss = LOSSES[kind]
    # Reduced MICo has no equation of its own: the residual is that of MICo.
    trained = network.network if isinstance(network, ReducedNetwork) else network
    reward, same = batch.reward, jnp.eye(len(batch.reward), dtype=bool)
    if isinstance(trained, ScaledMicoNetwork) and trained.reward_scale is not None:
        predicted = trained.predict_rewards(parameters, batch.x)
        reward = jnp.where(batch.action == ANY_ACTION, 0.0, predicted)
    gap = compute_reward_gaps(reward)
    next_value = trained.table(parameters, batch.x_next, batch.x_next)
    if isinstance(network, PairQEnsemble):
        # One equation per action; the terminal state takes the action of the other state.
        action = jnp.maximum(batch.action[:, None], batch.action[None, :])
        action = jnp.maximum(action, 0) if loss.same_actions else jnp.zeros_like(action)
        values = network.values(parameters, batch.x, batch.x)
        value = jnp.take_along_axis(values, action[None], axis=0)[0]
        targets = jnp.where(same, 0.0, gap + discount * next_value)
    else:
        value = psi if trained is network else trained.table(parameters, batch.x, batch.x)
        targets = map_over_pairs(loss.target)(
            gap, next_value, value, same, discount, jnp.float32(1.0)
        )
    mask = build_action_mask(batch.action) if loss.same_actions else jnp.ones_like(same)
    detour = jax.lax.map(lambda row: jnp.min(row[:, None] + d, axis=0), d)
    return (
        jnp.abs(psi - psi.T).max(),
        psi.diagonal().max(),
        jnp.maximum(d - detour, 0.0).max(),
        jnp.sum(mask * jnp.abs(value - targets)) / jnp.sum(mask),
        d.max(),
    )


compute_distances_compiled = jit(compute_distances)
evaluate_quality = jit(_evaluate_quality, static_argnums=(1, 2))


def build_reference_measure(
    reference: ArrayLike, network: Any, points: Array
) -> Callable[[Any], dict[str, Array]]:
    """Return the function from parameters to the errors against a reference (S, S).

    Args:
        reference: the exact distances.
        network: psi, symmetrised before it is compared.
        points: (S, k), the features of the states.
    """
    exact = jnp.asarray(reference, jnp.float32)
    # A tree of arrays, so that equal shapes are compiled once.
    return jax.tree_util.Partial(_measure_errors, network, exact, points)


def _measure_errors(network: Any, exact: Array, points: Array, parameters: Any) -> dict[str, Array]:
    return compute_errors(exact, compute_distances(network, parameters, points, points))


def compute_errors(reference: Array, psi: Array) -> dict[str, Array]:
    """Return the two errors of Castro (2020) and the correlation of psi with the reference.

    error = max |d - psi| and normalised = max |d / |d| - psi / |psi| |, with the Frobenius norm.

    >>> d = jnp.array([[0.0, 2.0], [2.0, 0.0]])
    >>> {name: round(float(each), 6) for name, each in compute_errors(d, d / 2).items()}
    {'error': 1.0, 'normalised': 0.0, 'correlation': 1.0}
    """
    scaled_reference = reference / jnp.maximum(jnp.linalg.norm(reference), MIN_NORM)
    scaled_psi = psi / jnp.maximum(jnp.linalg.norm(psi), MIN_NORM)
    x, y = reference - reference.mean(), psi - psi.mean()
    norms = jnp.linalg.norm(x) * jnp.linalg.norm(y)
    return {
        "error": jnp.abs(reference - psi).max(),
        "normalised": jnp.abs(scaled_reference - scaled_psi).max(),
        "correlation": jnp.sum(x * y) / jnp.maximum(norms, MIN_NORM),
    }
