"""Compiled kernels that go over the whole table, row by row, on all cores.

Each is a kernel of some rows, `low` to `high`, and a function that runs it on parts of them.

Successors and rewards come transposed, (A, S), and unsigned: the row d[next(s, a)] is then read
in one piece, and its gathers stay in the cache. Rows of a block read the table as it was before
the block, so that the result does not depend on the number of threads. Only t < s is computed;
the other half is its mirror. Sums are taken in float64 whatever the table holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._threads import map_chunks

MIN_PARALLEL_ENTRIES = 2**18
"""Entries that are worth many threads: a quarter of a millisecond of work."""
Array = NDArray[Any]
T = TypeVar("T")

NO_NANS = {"nnan", "nsz"}
"""Leave to vectorise a maximum; no sum or product is changed by it."""
MIN_BLOCK_ROWS = 64
"""The least number of rows that are computed together, from the same table."""


@njit(inline="always")
def balance_row(i, states):
    """The i-th row to compute: long and short rows in turn, so that threads get equal shares."""
    return i // 2 if i % 2 == 0 else states - 1 - i // 2


def map_rows(kernel: Callable[[int, int], T], rows: int, entries: int) -> list[T]:
    """What `kernel(low, high)` returns for parts of `range(rows)`, each row of so many entries."""
    return map_chunks(kernel, rows, -(-MIN_PARALLEL_ENTRIES // max(1, entries)))


def choose_block_size(states: int) -> int:
    """Rows a block: few, large blocks keep the threads busy; sixteen let news travel in a sweep."""
    return max(MIN_BLOCK_ROWS, -(-states // 16))


def sweep_bisimulation_block(
    d: Array,
    backup: Array,
    low: int,
    high: int,
    successor: Array,
    reward: Array,
    discount: float,
    tolerance: float,
    changed: Array,
    row_stats: Array,
    find_steepest: bool,
) -> None:
    """Rows low..high of F(d)(s, t) = max_a |R(s,a) - R(t,a)| + discount * d(n(s,a), n(t,a)).

    Entries of `fresh` that are higher by more than `least`, or than 0, are marked in `changed`.
    `tally[s]` receives: how many, the largest |F(d) - d|, the largest F(d) and, for who seeks it,
    the t of the largest |F(d) - d|.
    """

    def rows(i: int, j: int) -> None:
        _sweep_bisimulation_rows(
            d, backup, low, successor, reward, discount, tolerance, changed, row_stats, find_steepest, low + i,
            low + j,
        )  # fmt: skip

    map_rows(rows, high - low, high * len(successor))


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _sweep_bisimulation_rows(
    d, fresh, start, successor, reward, discount, least, changed, tally, seek, low, high
):
    actions = successor.shape[0]
    for s in range(low, high):
        row = fresh[s - start]
        for a in range(actions):
            ahead = d[successor[a, s]]
            own = reward[a, s]
            if a == 0:
                for t in range(s):
                    row[t] = abs(own - reward[a, t]) + discount * ahead[successor[a, t]]
            else:
                for t in range(s):
                    value = abs(own - reward[a, t]) + discount * ahead[successor[a, t]]
                    row[t] = max(row[t], value)
        old, marks = d[s], changed[s]
        rose, residual, largest = 0, 0.0, 0.0
        for t in range(s):
            rise = row[t] - old[t]
            up = (rise > least) | ((old[t] == 0.0) & (rise > 0.0))
            up &= d.dtype.type(row[t]) > old[t]
            marks[t] = up
            rose += up
            residual = max(residual, abs(rise))
            largest = max(largest, row[t])
        steepest = 0
        if rose > 0 and seek:
            while steepest < s - 1 and row[steepest] - old[steepest] != residual:
                steepest += 1
        tally[s, 0], tally[s, 1], tally[s, 2], tally[s, 3] = rose, residual, largest, steepest


def write_block(d: Array, backup: Array, low: int, high: int) -> None:
    """Puts the rows low..high, t < s, into the table and into its mirror."""
    map_rows(lambda i, j: _write_rows(d, backup, low, low + i, low + j), high - low, high)
    map_rows(lambda i, j: _write_columns(d, backup, low, high, i, j), high, high - low)


@njit(cache=True, nogil=True)
def _write_rows(d, fresh, start, low, high):
    for s in range(low, high):
        for t in range(s):
            d[s, t] = fresh[s - start, t]


@njit(cache=True, nogil=True)
def _write_columns(d, fresh, start, end, low, high):
    for t in range(low, high):
        for s in range(max(start, t + 1), end):
            d[t, s] = fresh[s - start, t]


def write_changes(d: Array, backup: Array, low: int, high: int, changed: Array, many: bool) -> None:
    """`write_block` for the marked entries only; the mirror as a whole if they are many."""

    def rows(i: int, j: int) -> None:
        _write_changed_rows(d, backup, low, changed, many, low + i, low + j)

    map_rows(rows, high - low, high)
    if many:
        map_rows(lambda i, j: _write_mirror(d, low, high, i, j), high, high - low)


@njit(cache=True, nogil=True)
def _write_changed_rows(d, fresh, start, changed, many, low, high):
    for s in range(low, high):
        for t in range(s):
            if changed[s, t]:
                d[s, t] = fresh[s - start, t]
                if not many:
                    d[t, s] = fresh[s - start, t]


@njit(cache=True, nogil=True)
def _write_mirror(d, start, end, low, high):
    for t in range(low, high):
        for s in range(max(start, t + 1), end):
            d[t, s] = d[s, t]


def mirror(d: Array) -> None:
    """Copies the half t < s onto the half t > s, tile by tile."""
    tiles = -(-len(d) // MIN_BLOCK_ROWS)
    map_rows(
        lambda low, high: _mirror_tiles(d, tiles, low, high), tiles, MIN_BLOCK_ROWS * len(d) // 2
    )


@njit(cache=True, nogil=True)
def _mirror_tiles(d, tiles, low, high):
    states = d.shape[0]
    for k in range(low, high):
        i = balance_row(k, tiles)
        for j in range(i, tiles):
            for s in range(i * MIN_BLOCK_ROWS, min(states, (i + 1) * MIN_BLOCK_ROWS)):
                for t in range(
                    max(s + 1, j * MIN_BLOCK_ROWS), min(states, (j + 1) * MIN_BLOCK_ROWS)
                ):
                    d[s, t] = d[t, s]


def collect_changed(d: Array, changed: Array, floor: float, starts: Array, found: Array) -> int:
    """Lists the changed pairs (s, t) with d >= floor as s * S + t.

    The rows of `changed` are a multiple of 8 bytes long, so that 8 marks are looked at together.
    Returns how many there are; -1 where `found` has no room for them.
    """
    states, eighth = len(d), len(d) // 8
    map_rows(lambda low, high: _count_changed(d, changed, floor, starts, low, high), states, eighth)
    starts[0] = 0
    np.cumsum(starts, out=starts)
    if starts[states] > len(found):
        return -1
    map_rows(
        lambda low, high: _list_changed(d, changed, floor, starts, found, low, high), states, eighth
    )
    return int(starts[states])


@njit(cache=True, nogil=True)
def _count_changed(d, changed, floor, starts, low, high):
    """How many there are in the row s: starts[s + 1]."""
    eights = changed.view(np.uint64)
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        count = 0
        for k in range((s + 7) // 8):
            if eights[s, k] != 0:
                for t in range(8 * k, min(8 * k + 8, s)):
                    if changed[s, t]:
                        count += d[s, t] >= floor
        starts[s + 1] = count


@njit(cache=True, nogil=True)
def _list_changed(d, changed, floor, starts, found, low, high):
    states = d.shape[0]
    eights = changed.view(np.uint64)
    for i in range(low, high):
        s = balance_row(i, states)
        at = starts[s]
        if starts[s + 1] > at:
            for k in range((s + 7) // 8):
                if eights[s, k] != 0:
                    for t in range(8 * k, min(8 * k + 8, s)):
                        if changed[s, t] and d[s, t] >= floor:
                            found[at] = s * states + t
                            at += 1


def double_horizon(d: Array, out: Array, ahead: Array, weight: float) -> None:
    """out(s, t) = d(s, t) + weight * d(ahead(s), ahead(t)), for t < s."""
    map_rows(
        lambda low, high: _double_horizon_rows(d, out, ahead, weight, low, high),
        len(d),
        len(d) // 2,
    )


@njit(cache=True, nogil=True)
def _double_horizon_rows(d, out, ahead, weight, low, high):
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row = d[ahead[s]]
        for t in range(s):
            out[s, t] = d[s, t] + weight * row[ahead[t]]
        out[s, s] = 0.0


def compute_reward_gaps(reward: Array, out: Array) -> None:
    """out(s, t) = |reward(s) - reward(t)|."""
    map_rows(
        lambda low, high: _compute_reward_gaps_rows(reward, out, low, high), len(out), len(out)
    )


@njit(cache=True, nogil=True)
def _compute_reward_gaps_rows(reward, out, low, high):
    for s in range(low, high):
        for t in range(out.shape[0]):
            out[s, t] = abs(reward[s] - reward[t])


def compute_chain_residual(
    d: Array, ahead: Array, reward: Array, discount: float, tally: Array
) -> None:
    """For each row of F(d)(s, t) = |R(s) - R(t)| + discount * d(ahead(s), ahead(t)), the largest
    |F(d) - d| and the largest F(d)."""

    def rows(low: int, high: int) -> None:
        _compute_chain_residual_rows(d, ahead, reward, discount, tally, low, high)

    map_rows(rows, len(d), len(d) // 2)


@njit(cache=True, nogil=True)
def _compute_chain_residual_rows(d, ahead, reward, discount, tally, low, high):
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row = d[ahead[s]]
        residual, largest = 0.0, 0.0
        for t in range(s):
            value = abs(reward[s] - reward[t]) + discount * row[ahead[t]]
            residual = max(residual, abs(value - d[s, t]))
            largest = max(largest, value)
        tally[s, 0], tally[s, 1] = residual, largest


def sweep_lax_block(
    d: Array,
    backup: Array,
    low: int,
    high: int,
    successor: Array,
    reward: Array,
    discount: float,
    row_stats: Array,
) -> None:
    """Rows low..high of the Hausdorff operator F(d)(s, t), into `fresh`.

    With delta(a, b) = |R(s,a) - R(t,b)| + discount * d(n(s,a), n(t,b)) it is the larger of
    max_a min_b delta(a, b) and max_b min_a delta(a, b). `tally[s]` receives the largest
    |F(d) - d| and the largest F(d).
    """

    def rows(i: int, j: int) -> None:
        _sweep_lax_rows(d, backup, low, successor, reward, discount, row_stats, low + i, low + j)

    map_rows(rows, high - low, high * len(successor) ** 2)


@njit(cache=True, nogil=True)
def _sweep_lax_rows(d, fresh, start, successor, reward, discount, tally, low, high):
    actions = successor.shape[0]
    for s in range(low, high):
        row = fresh[s - start]
        worst = np.empty((actions, s))
        answer = np.empty(s)
        for a in range(actions):
            ahead = d[successor[a, s]]
            own = reward[a, s]
            for b in range(actions):
                other = worst[b]
                for t in range(s):
                    delta = abs(own - reward[b, t]) + discount * ahead[successor[b, t]]
                    answer[t] = delta if b == 0 else min(answer[t], delta)
                    other[t] = delta if a == 0 else min(other[t], delta)
            for t in range(s):
                row[t] = answer[t] if a == 0 else max(row[t], answer[t])
        residual, largest = 0.0, 0.0
        for b in range(actions):
            for t in range(s):
                row[t] = max(row[t], worst[b, t])
        for t in range(s):
            residual = max(residual, abs(row[t] - d[s, t]))
            largest = max(largest, row[t])
        tally[s, 0], tally[s, 1] = residual, largest


def select_lax_choices(
    d: Array, successor: Array, reward: Array, discount: float, choice: Array
) -> None:
    """The choices that attain `lax_block`'s F(d)(s, t), for t < s: (side * A + action) * A +
    answer, with s to act on side 0 and t on side 1."""

    def rows(low: int, high: int) -> None:
        _select_lax_choices_rows(d, successor, reward, discount, choice, low, high)

    map_rows(rows, len(d), len(d) * len(successor) ** 2 // 2)


@njit(cache=True, nogil=True)
def _select_lax_choices_rows(d, successor, reward, discount, choice, low, high):
    states, actions = d.shape[0], successor.shape[0]
    for i in range(low, high):
        s = balance_row(i, states)
        least_a = np.empty(actions)
        answer_a = np.empty(actions, np.int64)
        for t in range(s):
            best, pick = -1.0, 0
            for b in range(actions):
                least_a[b] = np.inf
            for a in range(actions):
                ahead = d[successor[a, s]]
                least_b, answer_b = np.inf, 0
                for b in range(actions):
                    delta = abs(reward[a, s] - reward[b, t]) + discount * ahead[successor[b, t]]
                    if delta < least_b:
                        least_b, answer_b = delta, b
                    if delta < least_a[b]:
                        least_a[b], answer_a[b] = delta, a
                if least_b > best:
                    best, pick = least_b, a * actions + answer_b
            for b in range(actions):
                if least_a[b] > best:
                    best, pick = least_a[b], (actions + b) * actions + answer_a[b]
            choice[s, t] = pick


def improve_lax_responses(
    d: Array, successor: Array, reward: Array, discount: float, choice: Array, tolerance: float
) -> int:
    """Changes answers that another betters by more than `least`, for t < s; returns how many."""

    def rows(low: int, high: int) -> int:
        found = _improve_lax_responses_rows(
            d, successor, reward, discount, choice, tolerance, low, high
        )
        return int(found)

    return sum(map_rows(rows, len(d), len(d) * len(successor) // 2))


@njit(cache=True, nogil=True)
def _improve_lax_responses_rows(d, successor, reward, discount, choice, least, low, high):
    states, actions = d.shape[0], successor.shape[0]
    changed = 0
    for i in range(low, high):
        s = balance_row(i, states)
        for t in range(s):
            turn, answer = divmod(np.int64(choice[s, t]), actions)
            x, y = (s, t) if turn < actions else (t, s)
            action = turn % actions
            own, ahead = reward[action, x], d[successor[action, x]]
            best, pick = np.inf, answer
            for other in range(actions):
                delta = abs(own - reward[other, y]) + discount * ahead[successor[other, y]]
                if other == answer:
                    delta -= least
                if delta < best or (delta == best and other == answer):
                    best, pick = delta, other
            if pick != answer:
                choice[s, t] = turn * actions + pick
                changed += 1
    return changed
