"""Losses with one-hot embeddings, full batches and a free table in place of a network.

With a squared error the best table for fixed targets is one Newton step away, since each entry has
its own quadratic; replacing the target table by it is one sweep of the loss's Bellman operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bisimetric import MDP

TABLE_TOLERANCE = 1e-6
"""Sweeps are repeated until the remaining contraction is below this."""


class FullBatch(NamedTuple):
    """All outcomes of all states, with the same number of rows per state.

    Attributes:
        state: (b,).
        next_state: (b,).
        reward: (b,).
        terminated: (b,).
        action: (b,).
        terminal: the absorbing state, which has no row; None where there is none.
        size: number of states.
    """

    state: Any
    next_state: Any
    reward: Any
    terminated: Any
    action: Any
    terminal: int | None
    size: int

    def one_hot(self, states: Any) -> Array:
        return jnp.eye(self.size)[np.asarray(states)]

    @property
    def terminal_embedding(self) -> Array | None:
        return None if self.terminal is None else self.one_hot(self.terminal)


Chain = tuple[list[list[int]], list[float]]
"""The equally likely successors of each state, and its reward."""


def build_chain(
    chain: Chain, discount: float, terminal: int | None = None
) -> tuple[MDP, FullBatch]:
    """Return a chain as an MDP and as a full batch."""
    outcomes, rewards = chain
    size = len(outcomes)
    P = np.zeros((size, 1, size))
    for s, nexts in enumerate(outcomes):
        for t in nexts:
            P[s, 0, t] += 1 / len(nexts)
    mdp = MDP(P, np.array(rewards)[:, None], discount=discount)
    count = math.lcm(*map(len, outcomes))
    rows = [
        (s, t, rewards[s], t == terminal, 0)
        for s, nexts in enumerate(outcomes)
        if s != terminal
        for t in nexts * (count // len(nexts))
    ]
    return mdp, build_batch(rows, terminal, size)


def build_deterministic(
    successors: list[list[int]],
    rewards: list[list[float]],
    discount: float,
    terminal: int | None = None,
) -> tuple[MDP, FullBatch]:
    """Return a deterministic MDP, and every action of every state as a full batch."""
    size, num_actions = len(successors), len(successors[0])
    P = np.zeros((size, num_actions, size))
    for s, nexts in enumerate(successors):
        for a, t in enumerate(nexts):
            P[s, a, t] = 1
    rows = [
        (s, t, rewards[s][a], t == terminal, a)
        for s, nexts in enumerate(successors)
        if s != terminal
        for a, t in enumerate(nexts)
    ]
    mdp = MDP(P, np.array(rewards), discount=discount)
    return mdp, build_batch(rows, terminal, size)


def build_batch(
    rows: list[tuple[int, int, float, bool, int]], terminal: int | None, size: int
) -> FullBatch:
    """Return a batch from rows (state, next state, reward, terminated, action)."""
    state, next_state, reward, terminated, action = map(np.array, zip(*rows, strict=True))
    return FullBatch(state, next_state, reward, terminated, action, terminal, size)


def lookup(table: Array) -> Callable[[Array, Array], Array]:
    """Return the distance x^T table y of one-hot embeddings."""
    return lambda x, y: jnp.einsum("...i,ij,...j->...", x, table, y)


def iterate(
    loss: Callable[[Array, Array], Array], size: int, discount: float, start: float = 0.0
) -> Any:
    """Return the fixed point of minimising loss(table, target_table) in the table.

    Entries that no pair of the batch has stay as they are.
    """
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(loss))
        table = jnp.full((size, size), start)
        sweeps = 5 + math.ceil(math.log(1e-9) / math.log(discount))
        for _ in range(sweeps):
            slope = gradient(table, table)
            curvature = gradient(table + 1, table) - slope
            table = jnp.where(
                curvature > 0, table - slope / jnp.where(curvature > 0, curvature, 1), table
            )
        return np.asarray(table)
