"""Baselines of the benchmarks: a plain loop, and compiled value iteration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import MDP
from bisimetric.exact._intrinsics import pack_call
from bisimetric.exact._phases import finish_part, share_phases, start_part
from bisimetric.exact.deterministic import table_kernels


def plain_loop(mdp: MDP, tol: float) -> list[list[float]]:
    """Compute d~ by the triple loop over states, states and actions, in plain Python."""
    successor, reward, discount = mdp.next_state.tolist(), mdp.R.tolist(), mdp.discount
    states, actions = range(mdp.num_states), range(mdp.num_actions)
    d = [[0.0 for _ in states] for _ in states]
    while True:
        backup = [[0.0 for _ in states] for _ in states]
        change = 0.0
        for s in states:
            for t in states:
                best = 0.0
                for a in actions:
                    gap = abs(reward[s][a] - reward[t][a])
                    value = gap + discount * d[successor[s][a]][successor[t][a]]
                    best = max(best, value)
                backup[s][t] = best
                change = max(change, best - d[s][t])
        d = backup
        # From below, F(d) is within discount / (1 - discount) * change of the fixed point.
        if change * discount / (1 - discount) <= tol:
            return d


def numpy_rows(
    rewards: NDArray[np.float64], terminated: NDArray[np.bool_], discount: float
) -> NDArray[np.float64]:
    """Compute d^pi between the steps of terminated episodes, one row at a time, last row first."""
    n = len(rewards)
    # Row and column n are the terminal state, to which `following` leads after each episode.
    following = np.where(terminated, n, np.arange(1, n + 1))
    d = np.zeros((n + 1, n + 1))
    for j in range(n - 1, -1, -1):
        d[n, j] = abs(rewards[j]) + discount * d[n, following[j]]
    for i in range(n - 1, -1, -1):
        d[i, :n] = np.abs(rewards[i] - rewards) + discount * d[following[i], following]
        d[i, n] = d[n, i]
    return d[:n, :n]


def plain_updates(mdp: MDP, steps: int, seed: int) -> list[list[float]]:
    """Run equation 3 of Castro (2020), one pair of transitions at a time, in plain Python."""
    successor, reward, discount = mdp.next_state.tolist(), mdp.R.tolist(), mdp.discount
    states, actions = mdp.num_states, mdp.num_actions
    d = [[0.0] * states for _ in range(states)]
    uniform = random.Random(seed).random
    for _ in range(steps):
        a, s, t = int(uniform() * actions), int(uniform() * states), int(uniform() * states)
        gap = abs(reward[s][a] - reward[t][a])
        value = gap + discount * d[successor[s][a]][successor[t][a]]
        if value > d[s][t]:
            d[s][t] = d[t][s] = value
    return d


@njit(cache=True, nogil=True)
def _sweep_parts(progress, part, parts, d, backup, successor, reward, discount, change):  # type: ignore[no-untyped-def]
    """Run parts of `table_kernels.sweep_bisimulation`, without its statistics."""
    while True:
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, first, last, kind, low, high = parts[part]
        if kind == table_kernels.SWEEP:
            for s in range(first, last):
                change[s] = _sweep_row(d, backup[s - low], s, successor, reward, discount)
        else:
            table_kernels.write_columns(d, backup, low, high, first, last)
        part = finish_part(progress)


@njit(cache=True)
def _prepare_sweep(pack, progress, parts, *arguments):  # type: ignore[no-untyped-def]
    return pack_call(_sweep_parts, pack, (progress, parts, *arguments))


@njit(cache=True, nogil=True, fastmath=table_kernels.NO_NANS)
def _sweep_row(d, row, s, successor, reward, discount):  # type: ignore[no-untyped-def]
    """Compute a row of F(d), t < s; return the largest increase."""
    largest = 0.0
    for a in range(successor.shape[0]):
        successor_row = d[successor[a, s]]
        # The row is in the cache when its entries are gathered.
        largest += table_kernels.read_in_order(successor_row)
        own = reward[a, s]
        if a == 0:
            for t in range(s):
                row[t] = abs(own - reward[a, t]) + discount * successor_row[successor[a, t]]
        else:
            for t in range(s):
                value = abs(own - reward[a, t]) + discount * successor_row[successor[a, t]]
                row[t] = max(row[t], value)
    largest = min(largest, 0.0)
    for t in range(s):
        largest = max(largest, row[t] - d[s, t])
    return largest


def _sweeps(mdp: MDP) -> Iterator[tuple[NDArray[np.float64], float]]:
    """Repeat our fastest sweep: in place, in alternating directions.

    Yields the distance matrix and its largest change.
    """
    states = mdp.num_states
    successor = np.ascontiguousarray(mdp.next_state.T, dtype=np.uint32)
    reward = np.ascontiguousarray(mdp.R.T)
    d, change = np.zeros((states, states)), np.zeros(states)
    size = table_kernels.choose_block_size(states, 16)
    backup = np.empty((size, states))
    plans = [
        table_kernels.plan_sweep(states, size, len(successor), backward=backward, write=True)
        for backward in (False, True)
    ]
    for plan in itertools.cycle(plans):
        share_phases(_prepare_sweep, (d, backup, successor, reward, mdp.discount, change), plan)
        yield d, float(change.max())


def value_iteration(mdp: MDP, tol: float) -> tuple[NDArray[np.float64], int]:
    """Compute d~ by sweeps alone, to the same proven error; return it with the sweeps."""
    for num_sweeps, (d, change) in enumerate(_sweeps(mdp), start=1):
        if change / (1 - mdp.discount) <= tol:
            return d, num_sweeps
    raise AssertionError("unreachable")


def chain_sweeps(mdp: MDP, num_sweeps: int) -> NDArray[np.float64]:
    """Run plain sweeps of d^pi, for an MDP with one action."""
    return next(itertools.islice(_sweeps(mdp), num_sweeps - 1, None))[0]
