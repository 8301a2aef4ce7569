"""Compiled kernels for d_lax: sweeps of the Hausdorff operator, and the value of fixed choices.

A choice (side * A + action) * A + response of a pair (s, t), t < s, fixes the actions of both
states: on side 0 the state s acts and t responds, on side 1 it is the other way round. Every pair
then has one successor pair, so that it lies on a path into a cycle. See `table_kernels` for the
layout of successors and rewards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from bisimetric.exact.deterministic.pair_kernels import decode_choice, one_minus_power
from bisimetric.exact.deterministic.table_kernels import (
    MIN_BLOCK_ROWS,
    NO_NANS,
    Array,
    balance_row,
    map_rows,
    read_in_order,
)

TILE = 512
"""Columns that are computed together: their intermediate results stay in the first cache."""
BATCH_SIZE = 32
PATH_CAPACITY = 2**16
"""Pairs of a path that are stored; the first ones of a longer path are followed again."""


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


def evaluate_choices(
    d: Array, choice: Array, successor: Array, reward: Array, discount: float, code_bits: int
) -> None:
    """Compute the value of the choices, v(s, t) = gap + discount * v(its successor pair).

    The value of (s, t), t < s, goes into d[s, t]; the half d[t, s] is not changed. Pairs without
    a choice keep their distance. Threads follow paths until a pair has a value, and may compute
    some twice: the value of a pair is the same whichever path it was found on.
    """
    rows, no_choice = len(d), 2**code_bits - 1
    map_rows(lambda low, high: _clear_values(d, choice, no_choice, low, high), rows, rows // 2)
    map_rows(
        lambda low, high: _follow_paths(d, choice, successor, reward, discount, low, high),
        rows,
        8 * rows,
    )


@njit(cache=True, nogil=True)
def _clear_values(d, choice, no_choice, low, high):
    """Set the half that takes the values to -1, but for pairs without a choice."""
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row, row_choice = d[s], choice[s]
        for t in range(s):
            row[t] = row[t] if row_choice[t] == no_choice else -1.0


@njit(cache=True, nogil=True)
def _follow_paths(d, choice, successor, reward, discount, low, high):
    """Compute the values of some rows, and of the pairs on their paths.

    A path ends at a pair that has a value, or where it is on a cycle (Brent 1980).
    """
    states, actions = np.int64(d.shape[0]), successor.shape[0]
    flat, flat_choice = d.reshape(-1), choice.reshape(-1)
    first_action, second_action = _decode_choices(actions)
    path, gaps = np.empty(PATH_CAPACITY, np.int64), np.empty(PATH_CAPACITY)
    ahead = np.empty((2, BATCH_SIZE), np.int64)
    for i in range(low, high):
        row = np.int64(balance_row(i, states))
        for column in range(row):
            if column % BATCH_SIZE == 0:
                size = min(BATCH_SIZE, row - column)
                # Reads of successors are in flight together, before paths need them one by one.
                gaps[0] = _read_ahead(
                    flat, flat_choice, states, successor, first_action, second_action, row, column,
                    size, ahead,
                )  # fmt: skip
            while flat[row * states + column] < 0.0:
                s, t = row, np.int64(column)
                length, turtle, since, power = 0, np.int64(-1), 0, 1
                value = 0.0
                while s != t:
                    if s < t:
                        s, t = t, s
                    pair = s * states + t
                    value = np.float64(flat[pair])
                    if value >= 0.0:
                        break
                    if pair == turtle:
                        _evaluate_cycle(d, choice, successor, reward, discount, s, t, since)
                        length = 0
                        break
                    if since == power:
                        turtle, since, power = pair, 0, 2 * power
                    code = flat_choice[pair]
                    a, b = first_action[code], second_action[code]
                    path[length & (PATH_CAPACITY - 1)] = pair
                    gaps[length & (PATH_CAPACITY - 1)] = abs(reward[a, s] - reward[b, t])
                    length, since = length + 1, since + 1
                    s, t, value = np.int64(successor[a, s]), np.int64(successor[b, t]), 0.0
                order_memory()
                for k in range(length - 1, max(-1, length - 1 - PATH_CAPACITY), -1):
                    pair = path[k & (PATH_CAPACITY - 1)]
                    # Another thread may have evaluated the cycle meanwhile: the value of its first
                    # pair is a geometric series, and must stay.
                    known = np.float64(flat[pair])
                    if known >= 0.0:
                        value = known
                    else:
                        # Rounded as the matrix is, so that no value depends on where a path began.
                        new = d.dtype.type(gaps[k & (PATH_CAPACITY - 1)] + discount * value)
                        flat[pair] = new
                        value = np.float64(new)


@intrinsic
def order_memory(typing_context: Any) -> Any:
    """Order reads and writes: who sees a value of a path also sees that of its cycle."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), generate


@njit(inline="always")
def _read_ahead(
    flat, flat_choice, states, successor, first_action, second_action, row, column, size, ahead
):
    """Read the values of the next two pairs on the paths from some pairs of a row."""
    total = 0.0
    for k in range(size):
        ahead[0, k], ahead[1, k] = row, column + k
    for _ in range(2):
        for k in range(size):
            s, t = ahead[0, k], ahead[1, k]
            pair = s * states + t
            if s != t and flat[pair] < 0.0:
                code = flat_choice[pair]
                x = np.int64(successor[first_action[code], s])
                y = np.int64(successor[second_action[code], t])
                ahead[0, k], ahead[1, k] = max(x, y), min(x, y)
        for k in range(size):
            total += flat[ahead[0, k] * states + ahead[1, k]]
    return total


@njit(cache=True)
def _decode_choices(actions):
    """Return the actions of s and of t for every choice."""
    first, second = np.empty((2, 2 * actions * actions), np.int64)
    for choice in range(2 * actions * actions):
        first[choice], second[choice] = decode_choice(choice, actions)
    return first, second


@njit(cache=True)
def _evaluate_cycle(d, choice, successor, reward, discount, s, t, length):
    """Set one pair of a cycle, that of the smallest number, to its infinite-horizon value."""
    states, actions = d.shape[0], successor.shape[0]
    first_s, first_t = s, t
    for _ in range(length):
        a, b = decode_choice(choice[s, t], actions)
        s, t = np.int64(successor[a, s]), np.int64(successor[b, t])
        if s < t:
            s, t = t, s
        if s * states + t < first_s * states + first_t:
            first_s, first_t = s, t
    value, weight, s, t = 0.0, 1.0, first_s, first_t
    for _ in range(length):
        a, b = decode_choice(choice[s, t], actions)
        value += weight * abs(reward[a, s] - reward[b, t])
        weight *= discount
        s, t = np.int64(successor[a, s]), np.int64(successor[b, t])
        if s < t:
            s, t = t, s
    d[first_s, first_t] = value / one_minus_power(discount, length)
    order_memory()


def step_towards_values(d: Array, step: float) -> None:
    """Set d = d + step * (v - d), with the values of `evaluate_choices`, in both halves."""
    tiles = -(-len(d) // MIN_BLOCK_ROWS)
    map_rows(
        lambda low, high: _step_tiles(d, step, tiles, low, high),
        tiles,
        MIN_BLOCK_ROWS * len(d) // 2,
    )


@njit(cache=True, nogil=True)
def _step_tiles(d, step, tiles, low, high):
    states = d.shape[0]
    for k in range(low, high):
        i = balance_row(k, tiles)
        for j in range(i, tiles):
            for t in range(i * MIN_BLOCK_ROWS, min(states, (i + 1) * MIN_BLOCK_ROWS)):
                first = max(t + 1, j * MIN_BLOCK_ROWS)
                for s in range(first, min(states, (j + 1) * MIN_BLOCK_ROWS)):
                    value, old = d[s, t], d[t, s]
                    value = value if step == 1.0 else old + step * (value - old)
                    d[s, t], d[t, s] = value, value


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
