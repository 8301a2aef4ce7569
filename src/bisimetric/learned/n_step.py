"""n-step targets of d^pi on recorded episodes.

    T = sum_{k<m} discount^k |r_k - r'_k| + discount^m psi'(s_m, t_m),

where m is n, or less where the recording of one of the two episodes ends before: at truncation, and
at the end of the data, the target network is evaluated at the last recorded state. An episode that
terminated continues in the absorbing terminal state with reward 0, so that it never ends before.
Where both have terminated, T is the recorded sum alone; with n infinite, that is regression on
recorded returns. The pairs of a batch then have many different m, so that the target network is
not evaluated anew for each m: the embeddings of all recorded states are computed once per
synchronisation, and looked up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bisimetric.learned.losses import (
    LOSSES,
    Objective,
    compute_beta,
    compute_mean_squared_error,
    map_over_pairs,
)
from bisimetric.learned.networks.metric_networks import MetricNetwork, PairQEnsemble
from bisimetric.learned.networks.pair_layer import get_platform
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.pair_q_loss import (
    compute_target,
    compute_weighted_loss,
    evaluate_double_q,
    evaluate_networks,
)
from bisimetric.learned.sources import EpisodeBatch, TrainingSource, TransitionSource

REWARD_BLOCKS = {"cpu": 8}
"""Steps whose reward gaps are added up at once, by platform: a CPU stores them all."""

BOOTSTRAP_BLOCKS = {"cpu": 1}
"""Numbers of steps for which the target network is evaluated at once, by platform."""

ACCELERATOR_REWARD_BLOCK, ACCELERATOR_BOOTSTRAP_BLOCK = 512, 16
"""The same for other platforms, on which the iterations of a loop are expensive."""

EMBEDDING_BLOCK = 8_192
"""States whose embeddings are computed at once."""


def count_steps(source: TrainingSource, lookahead: float) -> int:
    """Return the n of n-step targets: at most the length of the longest recorded episode.

    >>> from bisimetric.transitions import Transitions
    >>> from bisimetric.learned.source_builders import source_from_transitions
    >>> data = Transitions([0, 1, 0], [0, 0, 0], [1.0, 0.0, 1.0], [1, 2, 1], [False, True, False])
    >>> source = source_from_transitions("on_policy", data)
    >>> count_steps(source, 1), count_steps(source, math.inf)
    (1, 2)
    """
    longest = source.longest_episode if isinstance(source, TransitionSource) else 1
    return int(min(lookahead, longest))


def limit_steps(n: int, discount: float) -> int:
    """Return n, or the steps after which the discount is below the resolution of 32-bit floats.

    >>> limit_steps(1_000, 0.9), limit_steps(10, 0.9)
    (158, 10)
    """
    if discount == 0:
        return 1
    return min(n, math.ceil(math.log(np.finfo(np.float32).eps / 2) / math.log(discount)))


def compute_recorded_part(
    source: TransitionSource, batch: EpisodeBatch, n: int, discount: float
) -> tuple[Array, Array, Array]:
    """Return what is recorded of the targets of all pairs of a batch, (b, b) each.

    Returns:
        The discounted sum of reward gaps, its number of steps m, and whether both episodes have
        terminated within m steps.
    """
    limit = jnp.where(batch.terminates, n, jnp.minimum(batch.remaining, n))
    steps = jnp.minimum(limit[:, None], limit[None, :])
    end = jnp.where(batch.terminates, batch.remaining, n + 1)
    ended = jnp.maximum(end[:, None], end[None, :]) <= steps
    # After the longer one of two episodes that terminate, all rewards are 0.
    last = jnp.minimum(jnp.maximum(batch.remaining.max(), 1), n)

    size = REWARD_BLOCKS.get(get_platform(), ACCELERATOR_REWARD_BLOCK)

    def add_block(block: Array, total: Array) -> Array:
        offsets = block * size + jnp.arange(size)
        rewards = source.gather_rewards(batch, offsets)
        weights = jnp.float32(discount) ** offsets
        gaps = jnp.abs(rewards[:, None, :] - rewards[None, :, :])
        counted = offsets < steps[:, :, None]
        return total + jnp.sum(jnp.where(counted, weights * gaps, 0.0), axis=-1)

    blocks = (last + size - 1) // size
    total = jax.lax.fori_loop(0, blocks, add_block, jnp.zeros(steps.shape))
    return total, steps, ended


def compute_bootstrap(
    source: TransitionSource,
    batch: EpisodeBatch,
    steps: Array,
    ended: Array,
    evaluate: Callable[[Array], Array],
) -> Array:
    """Return psi'(s_m, t_m) of all pairs, (b, b); 0 where both episodes have ended.

    The target network is evaluated once for each different m in the batch, in blocks: once where
    no episode is truncated within n steps.

    Args:
        source: the episodes.
        batch: the sampled steps.
        steps: (b, b), m of each pair.
        ended: (b, b), whether both have terminated within m steps.
        evaluate: from features (b, k) to psi' of all pairs, (b, b).
    """
    needed = jnp.where(ended, 0, steps)
    size = BOOTSTRAP_BLOCKS.get(get_platform(), ACCELERATOR_BOOTSTRAP_BLOCK)
    # m is the smaller limit of two episodes, so each m is the limit of an episode of the batch.
    limits = jnp.diagonal(steps)
    used = jnp.any(needed == limits[:, None], axis=1)
    padded = -(-len(limits) // size) * size
    # In descending order, 0 behind the last one.
    different = -jnp.unique(jnp.where(used, -limits, 0), size=padded, fill_value=0)

    def evaluate_block(block: Array, values: Array) -> Array:
        m = jax.lax.dynamic_slice_in_dim(different, block * size, size)
        found = jax.vmap(lambda each: evaluate(source.gather_state_after(batch, each)))(m)
        is_m = (needed == m[:, None, None]) & (m > 0)[:, None, None]
        return values + jnp.sum(jnp.where(is_m, found, 0.0), axis=0)

    blocks = (jnp.sum(different > 0) + size - 1) // size
    return jax.lax.fori_loop(0, blocks, evaluate_block, jnp.zeros(steps.shape))


def can_tabulate(source: TransitionSource, network: PairQEnsemble) -> bool:
    """Return whether the embeddings of all recorded states can be looked up by their rows."""
    return source.x_next.ndim == 1 and isinstance(network.network, MetricNetwork)


def embed_states(source: TransitionSource, network: PairQEnsemble, target: Parameters) -> Array:
    """Return the embeddings (networks, states, size, groups) of all rows of x, in its precision."""
    n = len(source.x)
    blocks = -(-n // EMBEDDING_BLOCK)
    rows = jnp.minimum(jnp.arange(blocks * EMBEDDING_BLOCK), n - 1).reshape(blocks, -1)

    def embed_block(each: Array) -> Array:
        x = source.x[each].astype(jnp.float32)
        found = [network.network.embed(parameters, x)[:, 0] for parameters in target]  # type: ignore[union-attr]
        return jnp.stack(found).astype(source.x.dtype)

    embedded = jnp.moveaxis(jax.lax.map(embed_block, rows), 0, 1)
    return embedded.reshape(len(target), -1, *embedded.shape[3:])[:, :n]


def look_up_bootstrap(
    source: TransitionSource, batch: EpisodeBatch, steps: Array, ended: Array, embedded: Array
) -> Array:
    """Return what `compute_bootstrap` returns, from the result of `embed_states`."""
    # One axis is the state, the other one the state that it is compared with.
    last = jnp.minimum(steps, batch.remaining[:, None]) - 1
    state = source.x_next[batch.row[:, None] + jnp.maximum(last, 0)]
    if source.scaling.has_terminal:
        state = jnp.where(batch.remaining[:, None] > 0, state, len(source.x) - 1)
    gaps = jnp.abs(embedded[:, state] - embedded[:, state.T]).astype(jnp.float32)
    return jnp.where(ended, 0.0, gaps.max(axis=-2).sum(axis=-1).mean(axis=0))


def build_pair_q_objective(
    source: TransitionSource,
    network: PairQEnsemble,
    discount: float,
    batch_size: int,
    n: int,
    tabulate: bool = False,
) -> Objective:
    """Return the loss of pair Q-learning with n-step targets; the policy is the only action.

    Args:
        source: the episodes.
        network: the networks.
        discount: the discount of the distance.
        batch_size: steps per update.
        n: the lookahead.
        tabulate: whether to look up the embeddings of all recorded states; see `can_tabulate`.
    """
    n = limit_steps(n, discount)
    same = jnp.eye(batch_size, dtype=bool)

    def prepare(target: Parameters, step: Array) -> Any:
        return embed_states(source, network, target) if tabulate else target

    def compute_loss(parameters: Parameters, target: Any, key: Array) -> Array:
        batch = source.sample_steps(key, batch_size)
        total, steps, ended = compute_recorded_part(source, batch, n, discount)
        if tabulate:
            bootstrap = look_up_bootstrap(source, batch, steps, ended, target)
        else:
            bootstrap = compute_bootstrap(
                source,
                batch,
                steps,
                ended,
                lambda x: evaluate_double_q(evaluate_networks(network, target, x)),
            )
        targets = compute_target(
            total / network.unit,
            bootstrap,
            same,
            jnp.float32(discount) ** steps,
            network.diameter_bound,
        )
        targets = jax.lax.stop_gradient(targets)[None]
        values = [network.network.block_values(each, batch.x[None]) for each in parameters]
        return compute_weighted_loss(values, targets, jnp.ones_like(targets))

    return Objective(prepare, compute_loss)


def build_castro2020_objective(
    source: TransitionSource,
    network: Any,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
    n: int,
) -> Objective:
    """Return the loss of Castro (2020) for d^pi with n-step targets; beta scales the bootstrap."""
    n = limit_steps(n, discount)
    same = jnp.eye(batch_size, dtype=bool)

    def prepare(target: Parameters, step: Array) -> Any:
        return target, compute_beta(step, target_update_period, horizon_growth)

    def compute_loss(parameters: Parameters, prepared: Any, key: Array) -> Array:
        target, beta = prepared
        batch = source.sample_steps(key, batch_size)
        total, steps, ended = compute_recorded_part(source, batch, n, discount)
        bootstrap = compute_bootstrap(
            source, batch, steps, ended, lambda x: network.table(target, x, x)
        )
        psi = network.table(parameters, batch.x, batch.x)
        weighted = jnp.float32(discount) ** steps * bootstrap
        targets = map_over_pairs(LOSSES["on_policy"].target)(total, weighted, psi, same, 1.0, beta)
        return compute_mean_squared_error(psi, targets, jnp.ones_like(psi))

    return Objective(prepare, compute_loss)
