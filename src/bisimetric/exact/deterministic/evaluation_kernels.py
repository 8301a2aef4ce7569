"""Compiled kernels for policy evaluation of d_lax: the values of a choice per pair.

A choice (side * A + action) * A + response of a pair (s, t), t < s, fixes the actions of both
states: on side 0 the state s acts and t responds, on side 1 it is the other way round. Every pair
then has one successor pair, so that it lies on a path into a cycle, and its value is that of the
path: one visit per pair suffices. Successive pairs are far apart in memory. So a thread follows
several paths in turn, and the next pair of each is read while it follows the others.

The values may be those of lambda-policy iteration (Bertsekas & Ioffe 1996), which trusts a choice
less the later it is made: v(s, t) = gap + discount * ((1 - lambda) * d + lambda * v)(successor
pair). With lambda 1 it is the infinite-horizon value, and with 0 that of one step.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from bisimetric.exact._intrinsics import order_memory, pack_call, prefetch
from bisimetric.exact._phases import (
    Phase,
    Plan,
    choose_num_threads,
    finish_part,
    plan_phases,
    share_phases,
    start_part,
)
from bisimetric.exact.deterministic import table_kernels
from bisimetric.exact.deterministic.pair_kernels import decode_choice, one_minus_power
from bisimetric.exact.deterministic.table_kernels import (
    MIN_BLOCK_ROWS,
    Array,
    balance_row,
    mirror_tiles,
)

NUM_PATHS = 16
"""Paths that a thread follows in turn."""
PATH_CAPACITY = 2**13
"""Pairs of a path that are stored, a power of 2; the first ones of a longer path are followed
again."""
CLEAR, FOLLOW, MIRROR = 0, 1, 2
"""The phases of an evaluation."""


def evaluate_choices(
    d: Array,
    choice: Array,
    successor: Array,
    reward: Array,
    discount: float,
    code_bits: int,
    trace_decay: float = 1.0,
) -> None:
    """Replace d by the values of the choices, with lambda = `trace_decay`.

    Pairs without a choice, whose code has all `code_bits`, keep their distance. The values go into
    d[s, t], t < s, while d[t, s] has the distances before; then they are mirrored. Paths end at a
    pair that has a value. Threads may compute some values twice, but the value of a pair is the
    same whichever path it was found on.
    """
    weights = discount * trace_decay, discount * (1 - trace_decay)
    threads = choose_num_threads(9 * len(d) ** 2, table_kernels.MIN_PARALLEL_ENTRIES)
    plan = _plan_evaluation(len(d), threads, table_kernels.MIN_PARALLEL_ENTRIES)
    arguments = (
        plan.parts_per_call, d, choice, successor, reward, weights, 2**code_bits - 1
    )  # fmt: skip
    share_phases(_prepare_evaluation, arguments, plan)


@functools.lru_cache(maxsize=16)
def _plan_evaluation(states: int, num_threads: int, min_parallel_entries: int) -> Plan:
    """Plan an evaluation: values are cleared, computed, and mirrored."""
    tiles = -(-states // MIN_BLOCK_ROWS)
    phases = (
        Phase((CLEAR,), 0, np.full(states, states // 2)),
        Phase((FOLLOW,), 0, np.full(states, 8 * states)),
        Phase((MIRROR,), 0, np.full(tiles, MIN_BLOCK_ROWS * states // 2)),
    )
    return plan_phases(phases, num_threads, min_parallel_entries)


@njit(cache=True, nogil=True)
def _evaluate_parts(
    progress, part, parts, max_parts, d, choice, successor, reward, weights, no_choice
):
    path, gaps = (
        np.empty((NUM_PATHS, PATH_CAPACITY), np.int64),
        np.empty((NUM_PATHS, PATH_CAPACITY)),
    )
    for _ in range(max_parts):
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, kind = parts[part]
        if kind == CLEAR:
            _clear_values(d, choice, no_choice, low, high)
        elif kind == FOLLOW:
            _follow_paths(d, choice, successor, reward, weights, path, gaps, low, high)
        else:
            mirror_tiles(d, low, high)
        part = finish_part(progress)
    return part


@njit(cache=True)
def _prepare_evaluation(pack, progress, parts, *arguments):
    return pack_call(_evaluate_parts, pack, (progress, parts, *arguments))


@njit(cache=True, nogil=True)
def _clear_values(d, choice, no_choice, low, high):
    """Set the half that takes the values to -1, but for pairs without a choice."""
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row, row_choice = d[s], choice[s]
        for t in range(s):
            row[t] = row[t] if row_choice[t] == no_choice else -1.0


@njit(cache=True, nogil=True)
def _follow_paths(d, choice, successor, reward, weights, path, gaps, low, high):
    """Compute the values of some rows, and of the pairs on their paths.

    A path ends at a pair that has a value, or where it is on a cycle (Brent 1980). `path` and
    `gaps` are memory for several paths.
    """
    states, actions = np.int64(d.shape[0]), successor.shape[0]
    weight, old_weight = weights
    flat, flat_choice = d.reshape(-1), choice.reshape(-1)
    flat_successor, flat_reward = successor.reshape(-1), reward.reshape(-1)
    first_offset, second_offset = _index_choices(actions, states)
    # Of each path: its first pair, -1 for none; the pair that is reached, as two states; its
    # length; and for Brent's method a pair on it, the steps since, and when to take a later pair.
    start = np.full(NUM_PATHS, -1, np.int64)
    s_end, t_end, length, mark, since, power = np.empty((6, NUM_PATHS), np.int64)
    i, row, column, num_active = low, np.int64(balance_row(low, states)), np.int64(-1), 0
    while i < high or num_active > 0:
        for k in range(NUM_PATHS):
            if start[k] < 0:
                # The next pair without a value.
                while i < high:
                    column += 1
                    if column >= row:
                        i, column = i + 1, np.int64(-1)
                        row = np.int64(balance_row(i, states))
                    elif flat[row * states + column] < 0.0:
                        break
                if i >= high:
                    continue
                start[k] = row * states + column
                num_active += 1
                s_end[k], t_end[k], length[k], mark[k], since[k], power[k] = (
                    row,
                    column,
                    0,
                    -1,
                    0,
                    1,
                )
            s, t, n = s_end[k], t_end[k], length[k]
            pair, value = s * states + t, 0.0
            if s != t:
                value = np.float64(flat[pair])
                if old_weight > 0.0 and n > 0:
                    gaps[k, (n - 1) & (PATH_CAPACITY - 1)] += old_weight * flat[t * states + s]
                if value < 0.0 and pair != mark[k]:
                    if since[k] == power[k]:
                        mark[k], since[k], power[k] = pair, 0, 2 * power[k]
                    code = flat_choice[pair]
                    x, y = first_offset[code] + s, second_offset[code] + t
                    path[k, n & (PATH_CAPACITY - 1)] = pair
                    gaps[k, n & (PATH_CAPACITY - 1)] = abs(flat_reward[x] - flat_reward[y])
                    length[k], since[k] = n + 1, since[k] + 1
                    s, t = np.int64(flat_successor[x]), np.int64(flat_successor[y])
                    s_end[k], t_end[k] = max(s, t), min(s, t)
                    prefetch(flat, s_end[k] * states + t_end[k])
                    prefetch(flat_choice, s_end[k] * states + t_end[k])
                    if old_weight > 0.0:
                        prefetch(flat, t_end[k] * states + s_end[k])
                    continue
                if value < 0.0:
                    _evaluate_cycle(d, choice, successor, reward, weights, s, t, since[k])
                    n = 0
            # Who sees a value of a path also sees that of its cycle.
            order_memory()
            for m in range(n - 1, max(-1, n - 1 - PATH_CAPACITY), -1):
                pair = path[k, m & (PATH_CAPACITY - 1)]
                # The cycle may have been evaluated meanwhile, from another path: the value of its
                # first pair is a geometric series, and must stay.
                known = np.float64(flat[pair])
                if known >= 0.0:
                    value = known
                else:
                    # Rounded as the matrix is, so that no value depends on where a path began.
                    new = d.dtype.type(gaps[k, m & (PATH_CAPACITY - 1)] + weight * value)
                    flat[pair] = new
                    value = np.float64(new)
            if flat[start[k]] >= 0.0:
                start[k] = -1
                num_active -= 1
            else:
                s_end[k], t_end[k] = start[k] // states, start[k] % states
                length[k], mark[k], since[k], power[k] = 0, -1, 0, 1


@njit(cache=True)
def _index_choices(actions, states):
    """Return where the rows of the actions of s and of t start in (A, S) arrays, by choice."""
    first, second = np.empty((2, 2 * actions * actions), np.int64)
    for choice in range(2 * actions * actions):
        a, b = decode_choice(choice, actions)
        first[choice], second[choice] = a * states, b * states
    return first, second


@njit(cache=True)
def _evaluate_cycle(d, choice, successor, reward, weights, s, t, length):
    """Set one pair of a cycle, that of the smallest number, to its infinite-horizon value."""
    states, actions = d.shape[0], successor.shape[0]
    weight, old_weight = weights
    first_s, first_t = s, t
    for _ in range(length):
        a, b = decode_choice(choice[s, t], actions)
        s, t = np.int64(successor[a, s]), np.int64(successor[b, t])
        if s < t:
            s, t = t, s
        if s * states + t < first_s * states + first_t:
            first_s, first_t = s, t
    value, power, s, t = 0.0, 1.0, first_s, first_t
    for _ in range(length):
        a, b = decode_choice(choice[s, t], actions)
        gap = abs(reward[a, s] - reward[b, t])
        s, t = np.int64(successor[a, s]), np.int64(successor[b, t])
        if s < t:
            s, t = t, s
        value += power * (gap + old_weight * d[t, s])
        power *= weight
    d[first_s, first_t] = value / one_minus_power(weight, length)
    order_memory()
