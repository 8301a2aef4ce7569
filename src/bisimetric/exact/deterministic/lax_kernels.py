"""Compiled kernels for d_lax: sweeps of the Hausdorff operator.

See `evaluation_kernels` for the choices of both players, which a sweep may record, and
`table_kernels` for the layout of successors and rewards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from bisimetric.exact._intrinsics import (
    VECTOR_BYTES,
    pack_call,
    pack_rows,
    replace_last_bits,
    transpose_block,
)
from bisimetric.exact._phases import finish_part, share_phases, share_rows, start_part
from bisimetric.exact.deterministic.table_kernels import (
    MIN_PARALLEL_ENTRIES,
    NO_NANS,
    SWEEP,
    Array,
    balance_row,
    map_rows,
    plan_sweep,
    write_columns,
)

TILE = 256
"""Columns that are computed together: their intermediate results stay in the first cache."""


class LaxOperator(NamedTuple):
    """The Hausdorff operator F of a deterministic MDP.

    With delta(a, b) = |R(s,a) - R(t,b)| + discount * d(n(s,a), n(t,b)), F(d)(s, t) is the larger of
    max_a min_b delta(a, b) and max_b min_a delta(a, b).

    Attributes:
        successor, reward: (A, S); sums have the type of rewards.
        discount: in [0, 1), of the same type.
        classes: (S,); F(d)(s, t) is `diameter` for states of different classes.
        diameter: the largest possible distance.
    """

    successor: Array
    reward: Array
    discount: float
    classes: Array
    diameter: float


def count_code_bits(actions: int) -> int:
    """Return the bits of a choice, which `sweep` puts in place of the last bits of a
    distance: 6 for 4 actions. The largest number of so many bits stands for no choice."""
    return (2 * actions * actions).bit_length()


def sweep(
    d: Array,
    backup: Array,
    operator: LaxOperator,
    row_stats: Array,
    choice: Array,
    *,
    backward: bool = False,
    write: bool = True,
    code_bits: int = 0,
    hold_actions: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Set d to F(d), in blocks of as many rows as `backup` has, and record the choices.

    The code of a choice replaces the last `code_bits` of its delta, so that minima and maxima carry
    it along: the result is below F(d) by at most 2^bits units in the last place. With no bits it is
    F(d), and the choices stay. States of different classes have no choice. With `hold_actions` only
    responses change, to those that improve on the present ones by more than `tolerance`.
    `row_stats[s]` receives the largest |F(d) - d|, the largest F(d), and how many choices changed.
    With `backward` the last block is the first one to be computed. Without `write` d stays.
    """
    mask = np.array([2**code_bits - 1], f"int{8 * operator.reward.itemsize}")
    margin = operator.reward.dtype.type(tolerance)
    plan = plan_sweep(
        len(d), len(backup), len(operator.successor) ** 2, backward=backward, write=write,
        unit=_count_group_rows(VECTOR_BYTES // d.itemsize, len(operator.successor)),
    )  # fmt: skip
    arguments = (
        plan.parts_per_call, d, backup, operator, row_stats, choice, mask, hold_actions, margin
    )  # fmt: skip
    share_phases(_prepare_sweep, arguments, plan)


@njit(cache=True, nogil=True)
def _sweep_parts(
    progress, part, parts, max_parts, d, backup, operator, row_stats, choice, mask, hold_actions,
    tolerance,
):  # fmt: skip
    workspace = _allocate_workspace(d, operator)
    for _ in range(max_parts):
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, first, last, kind, low, high = parts[part]
        if kind == SWEEP:
            _sweep_rows(
                d, backup, low, operator, row_stats, choice, mask, hold_actions, tolerance,
                workspace, first, last,
            )  # fmt: skip
        else:
            write_columns(d, backup, low, high, first, last)
        part = finish_part(progress)
    return part


@njit(cache=True)
def _prepare_sweep(pack, progress, parts, *arguments):
    return pack_call(_sweep_parts, pack, (progress, parts, *arguments))


@njit(cache=True)
def _count_group_rows(width, actions):
    """Return the rows that are computed together: vectors of so many entries hold an entry of the
    rows of all their successors."""
    return max(1, width // actions)


@njit(cache=True, nogil=True)
def _allocate_workspace(d, operator):
    """Return memory for `_sweep_rows`, and the successors, followed by zeros."""
    actions, states = operator.successor.shape
    width = VECTOR_BYTES // d.itemsize
    group_size = _count_group_rows(width, actions)
    num_tables = -(-group_size * actions // width)
    following = np.zeros((actions, states + width), np.uint32)
    following[:, :states] = operator.successor
    kind = operator.reward.dtype
    return (
        np.zeros(num_tables * width, np.uint32),
        np.empty((num_tables, states * width), d.dtype),
        following,
        np.empty((num_tables * width, TILE), d.dtype),
        np.empty((group_size, actions, TILE), kind),
        np.empty((group_size, TILE), kind),
        np.empty(TILE, kind),
    )


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _sweep_rows(
    d, backup, start, operator, row_stats, choice, mask, hold_actions, tolerance, workspace, low,
    high,
):  # fmt: skip
    successor, reward, discount, classes, diameter = operator
    # Entry x of the rows of all successors of a state is one vector of a table, so that they are
    # read together; where there are few actions, those of several states are.
    rows, tables, following, tile, lowest, best, worst = workspace
    actions, group_size, num_tables = len(successor), len(best), len(tables)
    width = VECTOR_BYTES // d.itemsize
    has_classes, code_mask = classes.max() > 0, np.int64(mask[0])
    zero, infinite = reward.dtype.type(0), reward.dtype.type(np.inf)
    best_bits = best.view(mask.dtype)
    for group in range(low, high, group_size):
        end = min(high, group + group_size)
        for k in range((end - group) * actions):
            rows[k] = successor[k % actions, group + k // actions]
        for k in range(num_tables):
            _interleave_rows(d, rows, k * width, width, tables[k])
        row_stats[group:end] = 0.0
        for first in range(0, end - 1, TILE):
            size = min(TILE, end - 1 - first)
            for k in range(group_size):
                best[k].fill(0)
                for a in range(actions):
                    lowest[k, a].fill(infinite)
            for b in range(actions):
                for k in range(num_tables):
                    _gather_columns(tables[k], following[b], first, size, width, tile[k * width :])
                other_reward = reward[b, first : first + size]
                for s in range(group, end):
                    row_choice = choice[s, first : first + size]
                    worst.fill(infinite)
                    for a in range(actions):
                        own, distance = reward[a, s], tile[(s - group) * actions + a]
                        side_0 = (a * actions + b) & code_mask
                        side_1 = ((actions + b) * actions + a) & code_mask
                        lowest_a = lowest[s - group, a]
                        if hold_actions:
                            for t in range(size):
                                delta = abs(own - other_reward[t]) + discount * distance[t]
                                held = (row_choice[t] == side_0) | (row_choice[t] == side_1)
                                delta = max(delta - tolerance, zero) if held else delta
                                value = replace_last_bits(delta, code_mask, side_0)
                                lowest_a[t] = min(lowest_a[t], value)
                                value = replace_last_bits(delta, code_mask, side_1)
                                worst[t] = min(worst[t], value)
                        else:
                            for t in range(size):
                                delta = abs(own - other_reward[t]) + discount * distance[t]
                                value = replace_last_bits(delta, code_mask, side_0)
                                lowest_a[t] = min(lowest_a[t], value)
                                value = replace_last_bits(delta, code_mask, side_1)
                                worst[t] = min(worst[t], value)
                    _keep_best(
                        best[s - group], worst, size, row_choice, actions, actions + b, hold_actions
                    )
            for s in range(group, end):
                size = min(TILE, s - first)
                if size <= 0:
                    continue
                row_choice = choice[s, first : first + size]
                row_best, row_bits = best[s - group], best_bits[s - group]
                for a in range(actions):
                    _keep_best(
                        row_best, lowest[s - group, a], size, row_choice, actions, a, hold_actions
                    )
                for t in range(size if has_classes else 0):
                    if classes[first + t] != classes[s]:
                        row_best[t] = replace_last_bits(diameter, code_mask, code_mask)
                residual, largest, num_changed = zero, zero, 0
                for t in range(size if code_mask != 0 else 0):
                    code = row_bits[t] & code_mask
                    num_changed += row_choice[t] != code
                    row_choice[t] = code
                row, old = backup[s - start, first : first + size], d[s, first : first + size]
                for t in range(size):
                    row[t] = replace_last_bits(row_best[t], code_mask, 0)
                    residual = max(residual, abs(row[t] - old[t]))
                    largest = max(largest, row[t])
                stats = row_stats[s]
                stats[0], stats[1] = max(stats[0], residual), max(stats[1], largest)
                stats[2] += num_changed


@njit(inline="always")
def _interleave_rows(d, rows, first, width, table):
    """Set table[x * width + i] = d[rows[first + i], x], for i < width."""
    states, flat = d.shape[0], d.reshape(-1)
    whole = states // width * width
    for x in range(0, whole, width):
        transpose_block(flat, rows, first, states, x, table, x * width, width)
    for x in range(whole, states):
        for i in range(width):
            table[x * width + i] = d[rows[first + i], x]


@njit(inline="always")
def _gather_columns(table, following, first, size, width, tile):
    """Set tile[i, t] = table[following[first + t] * width + i], for i < width and t < size."""
    for t in range(0, size, width):
        transpose_block(table, following, first + t, width, 0, tile, t, TILE)


@njit(inline="always")
def _keep_best(best, value, size, row_choice, actions, number, hold_actions):
    """Keep the larger of two; of held actions, whose number is choice // actions, keep that one."""
    if hold_actions:
        for t in range(size):
            best[t] = value[t] if row_choice[t] // actions == number else best[t]
    else:
        for t in range(size):
            best[t] = max(best[t], value[t])


def select_choices(
    d: Array, successor: Array, reward: Array, discount: float, choice: Array, code_bits: int
) -> None:
    """Select the choices that attain F(d)(s, t), to the last bit; those without one stay so.

    That takes several times as long as `sweep`.
    """
    no_choice, entries = 2**code_bits - 1, len(d) * len(successor) ** 2
    map_rows(
        lambda low, high: _select_rows(
            d, successor, reward, discount, choice, no_choice, low, high
        ),
        len(d),
        entries,
    )


@njit(cache=True, nogil=True)
def _select_rows(d, successor, reward, discount, choice, no_choice, low, high):
    states, actions = d.shape[0], successor.shape[0]
    lowest_a, response_a = np.empty(actions), np.empty(actions, np.int64)
    for i in range(low, high):
        s = balance_row(i, states)
        for t in range(s):
            if choice[s, t] == no_choice:
                continue
            best, best_choice = -1.0, 0
            lowest_a[:] = np.inf
            for a in range(actions):
                successor_row = d[successor[a, s]]
                lowest_b, response_b = np.inf, 0
                for b in range(actions):
                    delta = (
                        abs(reward[a, s] - reward[b, t]) + discount * successor_row[successor[b, t]]
                    )
                    if delta < lowest_b:
                        lowest_b, response_b = delta, b
                    if delta < lowest_a[b]:
                        lowest_a[b], response_a[b] = delta, a
                if lowest_b > best:
                    best, best_choice = lowest_b, a * actions + response_b
            for b in range(actions):
                if lowest_a[b] > best:
                    best, best_choice = lowest_a[b], (actions + b) * actions + response_a[b]
            choice[s, t] = best_choice


def shift(d: Array, amount: float, bound: float) -> None:
    """Add a number to all distances but those of a state to itself, within 0 and `bound`."""
    share_rows(_prepare_shift, (d, amount, bound), len(d), len(d), MIN_PARALLEL_ENTRIES)


@njit(cache=True)
def _prepare_shift(pack, *arguments):
    return pack_rows(_shift_rows, pack, arguments)


@njit(cache=True, nogil=True)
def _shift_rows(d, amount, bound, low, high):
    for s in range(low, high):
        row = d[s]
        for t in range(d.shape[0]):
            row[t] = min(max(row[t] + amount, 0.0), bound)
        row[s] = 0.0
