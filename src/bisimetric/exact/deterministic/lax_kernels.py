"""Compiled kernels for d_lax: sweeps of the Hausdorff operator.

See `choice_evaluation` for the choices of both players, which a sweep may record, and
`table_kernels` for the layout of successors and rewards.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric.exact.deterministic.table_kernels import (
    NO_NANS,
    Array,
    balance_row,
    map_rows,
    read_in_order,
)

TILE = 512
"""Columns that are computed together: their intermediate results stay in the first cache."""


def count_code_bits(actions: int) -> int:
    """Return the bits of a choice, which `sweep_with_choices` puts in place of the last bits of a
    distance: 6 for 4 actions. The largest number of so many bits stands for no choice."""
    return (2 * actions * actions).bit_length()


def sweep_block(
    d: Array,
    backup: Array,
    low: int,
    high: int,
    successor: Array,
    reward: Array,
    discount: float,
    classes: Array,
    diameter: float,
    row_stats: Array,
) -> None:
    """Compute rows low..high of the Hausdorff operator F(d)(s, t), into `backup`.

    With delta(a, b) = |R(s,a) - R(t,b)| + discount * d(n(s,a), n(t,b)) it is the larger of
    max_a min_b delta(a, b) and max_b min_a delta(a, b). It is `diameter` for states of different
    `classes` (S,). `row_stats[s]` receives the largest |F(d) - d| and the largest F(d).
    """

    def rows(i: int, j: int) -> None:
        _sweep_rows(
            d, backup, low, successor, reward, discount, classes, diameter, row_stats, low + i,
            low + j,
        )  # fmt: skip

    map_rows(rows, high - low, high * len(successor) ** 2)


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _sweep_rows(
    d, backup, start, successor, reward, discount, classes, diameter, row_stats, low, high
):
    actions = successor.shape[0]
    worst, lowest = np.empty((actions, TILE)), np.empty(TILE)
    for s in range(low, high):
        residual, largest = 0.0, 0.0
        for a in range(actions):
            row_stats[s, 0] = read_in_order(d[successor[a, s]])
        for first in range(0, s, TILE):
            size = min(TILE, s - first)
            row = backup[s - start, first : first + size]
            for a in range(actions):
                successor_row, own = d[successor[a, s]], reward[a, s]
                for b in range(actions):
                    following = successor[b, first : first + size]
                    other_reward = reward[b, first : first + size]
                    other = worst[b]
                    for t in range(size):
                        delta = abs(own - other_reward[t]) + discount * successor_row[following[t]]
                        lowest[t] = delta if b == 0 else min(lowest[t], delta)
                        other[t] = delta if a == 0 else min(other[t], delta)
                for t in range(size):
                    row[t] = lowest[t] if a == 0 else max(row[t], lowest[t])
            for b in range(actions):
                for t in range(size):
                    row[t] = max(row[t], worst[b, t])
            old, other_class = d[s, first : first + size], classes[first : first + size]
            for t in range(size):
                if other_class[t] != classes[s]:
                    row[t] = diameter
                residual = max(residual, abs(row[t] - old[t]))
                largest = max(largest, row[t])
        row_stats[s, 0], row_stats[s, 1] = residual, largest


def sweep_with_choices(
    d: Array,
    backup: Array,
    low: int,
    high: int,
    successor: Array,
    reward: Array,
    discount: float,
    classes: Array,
    diameter: float,
    row_stats: Array,
    choice: Array,
    code_bits: int,
    hold_actions: bool,
    tolerance: float,
) -> None:
    """Compute rows low..high of F(d) as `sweep_block` does, and the choices that attain it.

    The code of a choice replaces the last bits of its delta, so that minima and maxima carry it
    along: `backup` is below F(d) by at most 2^bits units in the last place. States of different
    `classes` have no choice. With `hold_actions` only responses change, to those that improve on
    the present ones by more than `tolerance`. `row_stats[s]` also receives how many changed.
    """

    def rows(i: int, j: int) -> None:
        _sweep_rows_with_choices(
            d, backup, low, successor, reward, discount, classes, diameter, row_stats, choice,
            2**code_bits - 1, hold_actions, tolerance, low + i, low + j,
        )  # fmt: skip

    map_rows(rows, high - low, high * len(successor) ** 2)


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _sweep_rows_with_choices(
    d, backup, start, successor, reward, discount, classes, diameter, row_stats, choice, code_mask,
    hold_actions, tolerance, low, high,
):  # fmt: skip
    actions, has_classes = successor.shape[0], classes.max() > 0
    # Floats that are not negative are ordered as their bits.
    worst, lowest = np.empty((actions, TILE), np.int64), np.empty(TILE, np.int64)
    best, turn, delta = np.empty(TILE, np.int64), np.empty(TILE, np.int64), np.empty(TILE)
    delta_bits, best_value = delta.view(np.int64), best.view(np.float64)
    for s in range(low, high):
        residual, largest, num_changed = 0.0, 0.0, 0
        for a in range(actions):
            row_stats[s, 0] = read_in_order(d[successor[a, s]])
        for first in range(0, s, TILE):
            size = min(TILE, s - first)
            row_choice = choice[s, first : first + size]
            best[:size] = 0
            for t in range(size if hold_actions else 0):
                turn[t] = row_choice[t] // actions
            for a in range(actions):
                successor_row, own = d[successor[a, s]], reward[a, s]
                for b in range(actions):
                    following = successor[b, first : first + size]
                    other_reward = reward[b, first : first + size]
                    for t in range(size):
                        delta[t] = (
                            abs(own - other_reward[t]) + discount * successor_row[following[t]]
                        )
                    side_0 = np.int64(a * actions + b)
                    side_1 = np.int64((actions + b) * actions + a)
                    if hold_actions:
                        for t in range(size):
                            held = (row_choice[t] == side_0) | (row_choice[t] == side_1)
                            delta[t] = max(delta[t] - tolerance, 0.0) if held else delta[t]
                    _keep_lowest(lowest, delta_bits, size, code_mask, side_0, b == 0)
                    _keep_lowest(worst[b], delta_bits, size, code_mask, side_1, a == 0)
                _keep_best(best, lowest, size, turn, a, hold_actions)
            for b in range(actions):
                _keep_best(best, worst[b], size, turn, actions + b, hold_actions)
            other_class = classes[first : first + size]
            for t in range(size if has_classes else 0):
                if other_class[t] != classes[s]:
                    best_value[t] = diameter
                    best[t] |= code_mask
            row, old = backup[s - start, first : first + size], d[s, first : first + size]
            for t in range(size):
                code = best[t] & code_mask
                num_changed += row_choice[t] != code
                row_choice[t] = code
                best[t] &= ~code_mask
            for t in range(size):
                row[t] = best_value[t]
                residual = max(residual, abs(row[t] - old[t]))
                largest = max(largest, row[t])
        row_stats[s, 0], row_stats[s, 1], row_stats[s, 2] = residual, largest, num_changed


@njit(inline="always")
def _keep_lowest(lowest, delta_bits, size, code_mask, code, is_first):
    if is_first:
        for t in range(size):
            lowest[t] = (delta_bits[t] & ~code_mask) | code
    else:
        for t in range(size):
            lowest[t] = min(lowest[t], (delta_bits[t] & ~code_mask) | code)


@njit(inline="always")
def _keep_best(best, lowest, size, turn, number, hold_actions):
    """Keep the larger of two; of held actions keep that one."""
    if hold_actions:
        for t in range(size):
            best[t] = lowest[t] if turn[t] == number else best[t]
    else:
        for t in range(size):
            best[t] = max(best[t], lowest[t])


def select_choices(
    d: Array, successor: Array, reward: Array, discount: float, choice: Array, code_bits: int
) -> None:
    """Select the choices that attain F(d)(s, t), to the last bit; those without one stay so.

    That takes several times as long as `sweep_with_choices`.
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
    map_rows(lambda low, high: _shift_rows(d, amount, bound, low, high), len(d), len(d))


@njit(cache=True, nogil=True)
def _shift_rows(d, amount, bound, low, high):
    for s in range(low, high):
        row = d[s]
        for t in range(d.shape[0]):
            row[t] = min(max(row[t] + amount, 0.0), bound)
        row[s] = 0.0
