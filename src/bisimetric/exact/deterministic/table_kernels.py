"""Compiled kernels over the whole distance matrix, row by row, on all cores.

Each consists of a kernel for the rows `low` to `high`, and a function that runs it on chunks.

Successors and rewards come transposed, (A, S), and unsigned: the row d[next(s, a)] is then read
contiguously, and its gathers stay in the cache. Rows of a block read the matrix as it was before
the block, so that the result does not depend on the number of threads. Only t < s is computed;
the other half is its mirror. Sums are taken in float64 whatever the dtype of the matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._transport import NO_ALLOCATION
from bisimetric.exact._intrinsics import VECTOR_BYTES, pack_call, pack_rows, transpose_block
from bisimetric.exact._phases import (
    Phase,
    Plan,
    choose_num_threads,
    finish_part,
    plan_phases,
    share_phases,
    share_rows,
    start_part,
)
from bisimetric.exact._threads import map_chunks

MIN_PARALLEL_ENTRIES = 2**18
"""Entries that are worth several threads: a quarter of a millisecond of work."""
Array = NDArray[Any]
T = TypeVar("T")

NO_NANS = {"nnan", "nsz"}
"""Allows vectorised maxima; changes no sum or product."""
MARKS_PER_READ = 32
"""Marks that are tested together, by vector instructions."""
MIN_BLOCK_ROWS = 64
"""The least number of rows that are computed together, from the same matrix."""
SPARSE_WRITE_FRACTION = 0.2
"""A block with fewer changes than this fraction is written entry by entry."""
SWEEP, WRITE = 0, 1
"""The phases of a sweep of each block."""


@njit(inline="always")
def balance_row(i, states):
    """Return the i-th row to compute: long and short rows alternate, to balance the threads."""
    return i // 2 if i % 2 == 0 else states - 1 - i // 2


@njit(inline="always")
def read_in_order(row):
    """Read a row, which brings it into the cache faster than gathers do; returns a sum."""
    total = 0.0
    for k in range(0, row.shape[0], 8):
        total += row[k]
    return total


def map_rows(kernel: Callable[[int, int], T], rows: int, entries: int) -> list[T]:
    """Return `kernel(low, high)` for chunks of `range(rows)`, each row of so many entries."""
    return map_chunks(kernel, rows, -(-MIN_PARALLEL_ENTRIES // max(1, entries)))


def choose_block_size(states: int, num_blocks: int) -> int:
    """Return the rows per block: large ones keep threads busy, several spread changes faster."""
    return max(MIN_BLOCK_ROWS, -(-states // num_blocks))


def sweep_bisimulation(
    d: Array,
    backup: Array,
    successor: Array,
    reward: Array,
    discount: float,
    tolerance: float,
    changed: Array,
    row_stats: Array,
    *,
    backward: bool = False,
    write: bool = True,
) -> None:
    """Apply the Bellman operator,

        F(d)(s, t) = max_a |R(s,a) - R(t,a)| + discount * d(n(s,a), n(t,a)),

    in place, unless `write` is False, to blocks of as many rows as `backup` has.

    Entries that are higher by more than `tolerance`, or than 0, are marked in `changed`; the others
    stay. `row_stats[s]` receives: how many, the largest |F(d) - d|, the largest F(d) and the t of
    the largest increase.
    """
    plan = plan_sweep(len(d), len(backup), len(successor), backward=backward, write=write)
    arguments = (
        plan.parts_per_call, d, backup, successor, reward, discount, tolerance, changed, row_stats
    )  # fmt: skip
    share_phases(_prepare_sweep, arguments, plan)


def plan_sweep(
    states: int, block_rows: int, updates: int, *, backward: bool, write: bool, unit: int = 1
) -> Plan:
    """Plan an in-place sweep: the rows of each block are computed, and then written.

    The label of a part is SWEEP, whose items are rows, or WRITE, whose items are tiles of columns,
    and the first row of the block and that after its last.

    Args:
        states, block_rows: the rows of the matrix, and of a block.
        updates: computed values per entry.
        backward: whether the last block is the first one to be computed.
        write: whether blocks are written.
        unit: rows that are computed together.
    """
    threads = choose_num_threads(updates * states * states // 2, MIN_PARALLEL_ENTRIES)
    return _plan_sweep(
        states, block_rows, updates, backward, write, unit, threads, MIN_PARALLEL_ENTRIES
    )


@functools.lru_cache(maxsize=16)
def _plan_sweep(
    states: int,
    block_rows: int,
    updates: int,
    backward: bool,
    write: bool,
    unit: int,
    num_threads: int,
    min_parallel_entries: int,
) -> Plan:
    blocks, phases = range(0, states, block_rows), []
    for low in reversed(blocks) if backward else blocks:
        high = min(states, low + block_rows)
        # Row s has s entries, for which whole rows of successors are read.
        rows = updates * np.arange(low, high) + states
        phases.append(Phase((SWEEP, low, high), low, rows, unit))
        if write:
            first = np.arange(0, high, MIN_BLOCK_ROWS)
            # Every entry is written twice.
            tiles = 2 * MIN_BLOCK_ROWS * (high - np.maximum(low, first))
            phases.append(Phase((WRITE, low, high), 0, tiles))
    return plan_phases(phases, num_threads, min_parallel_entries)


@njit(cache=True, nogil=True)
def _sweep_bisimulation_parts(
    progress, part, parts, max_parts, d, backup, successor, reward, discount, tolerance, changed,
    row_stats,
):  # fmt: skip
    for _ in range(max_parts):
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, first, last, kind, low, high = parts[part]
        if kind == SWEEP:
            _sweep_bisimulation_rows(
                d, backup, low, successor, reward, discount, tolerance, changed, row_stats, first,
                last,
            )  # fmt: skip
        else:
            fraction = row_stats[low:high, 0].sum() / max(1, (high - low) * (high + low) // 2)
            if fraction > SPARSE_WRITE_FRACTION:
                write_columns(d, backup, low, high, first, last)
            elif fraction > 0:
                _write_changed_columns(d, backup, low, high, changed, first, last)
        part = finish_part(progress)
    return part


@njit(cache=True)
def _prepare_sweep(pack, progress, parts, *arguments):
    return pack_call(_sweep_bisimulation_parts, pack, (progress, parts, *arguments))


@njit(nogil=True, fastmath=NO_NANS, **NO_ALLOCATION)
def _sweep_bisimulation_rows(
    d, backup, start, successor, reward, discount, tolerance, changed, row_stats, low, high
):  # fmt: skip
    actions = successor.shape[0]
    for s in range(low, high):
        row = backup[s - start]
        for a in range(actions):
            successor_row = d[successor[a, s]]
            row_stats[s, 3] = read_in_order(successor_row)
            own = reward[a, s]
            if a == 0:
                for t in range(s):
                    row[t] = abs(own - reward[a, t]) + discount * successor_row[successor[a, t]]
            else:
                for t in range(s):
                    value = abs(own - reward[a, t]) + discount * successor_row[successor[a, t]]
                    row[t] = max(row[t], value)
        old, row_changed = d[s], changed[s]
        num_increased, residual, largest, largest_increase = 0, 0.0, 0.0, 0.0
        for t in range(s):
            increase = row[t] - old[t]
            is_increase = (increase > tolerance) | ((old[t] == 0.0) & (increase > 0.0))
            is_increase &= d.dtype.type(row[t]) > old[t]
            row_changed[t] = is_increase
            num_increased += is_increase
            residual = max(residual, abs(increase))
            largest = max(largest, row[t])
            row[t] = row[t] if is_increase else old[t]
            largest_increase = max(largest_increase, row[t] - old[t])
        steepest = 0
        if num_increased > 0:
            while steepest < s - 1 and row[steepest] - old[steepest] != largest_increase:
                steepest += 1
        row_stats[s, 0], row_stats[s, 1], row_stats[s, 2], row_stats[s, 3] = (
            num_increased,
            residual,
            largest,
            steepest,
        )


@njit(cache=True, nogil=True)
def write_columns(d, backup, start, end, low, high):
    """Write tiles of columns of the rows start..end, t < s, into both halves of the matrix."""
    width, states = VECTOR_BYTES // d.itemsize, d.shape[0]
    flat, flat_backup = d.reshape(-1), backup.reshape(-1)
    # Blocks of `width` rows and columns left of the diagonal are transposed in registers.
    whole = start + (end - start) // width * width if d.itemsize == backup.itemsize else start
    rows = np.arange(end - start).astype(np.uint32)
    for tile in range(low, high):
        first, last = tile * MIN_BLOCK_ROWS, min(end, (tile + 1) * MIN_BLOCK_ROWS)
        for s in range(max(start, first + 1), end):
            for t in range(first, min(s, last)):
                d[s, t] = backup[s - start, t]
        in_blocks = whole if last <= start else start
        for t in range(first, last if in_blocks > start else first, width):
            for s in range(start, in_blocks, width):
                transpose_block(
                    flat_backup, rows, s - start, states, t, flat, t * states + s, states
                )
        for t in range(first, last):
            for s in range(max(in_blocks, t + 1), end):
                d[t, s] = backup[s - start, t]


@njit(nogil=True, **NO_ALLOCATION)
def _write_changed_columns(d, backup, start, end, changed, low, high):
    """Write the marked entries of tiles of columns, which are few, into both halves."""
    begin, stop = low * MIN_BLOCK_ROWS, min(end, high * MIN_BLOCK_ROWS)
    for s in range(max(start, begin + 1), end):
        row_changed = changed[s]
        for first in range(begin, min(s, stop), MARKS_PER_READ):
            last = min(s, stop, first + MARKS_PER_READ)
            if has_marks(row_changed, first, last):
                for t in range(first, last):
                    if row_changed[t]:
                        d[s, t] = backup[s - start, t]
                        d[t, s] = backup[s - start, t]


@njit(inline="always")
def has_marks(row, first, last):
    """Return whether any mark is set."""
    marks = np.uint8(0)
    for t in range(first, last):
        marks |= row[t]
    return marks != 0


def clear(matrix: Array) -> None:
    """Fill a matrix with zeros."""
    states = len(matrix)
    share_rows(_prepare_clear, (matrix,), states, states // 8, MIN_PARALLEL_ENTRIES)


@njit(cache=True)
def _prepare_clear(pack, *arguments):
    return pack_rows(_clear_rows, pack, arguments)


@njit(nogil=True, **NO_ALLOCATION)
def _clear_rows(matrix, low, high):
    for s in range(low, high):
        for t in range(matrix.shape[1]):
            matrix[s, t] = 0


def mirror(d: Array) -> None:
    """Copy the half t < s onto the half t > s, tile by tile."""
    tiles = -(-len(d) // MIN_BLOCK_ROWS)
    entries = MIN_BLOCK_ROWS * len(d) // 2
    share_rows(_prepare_mirror, (d,), tiles, entries, MIN_PARALLEL_ENTRIES)


@njit(cache=True)
def _prepare_mirror(pack, *arguments):
    return pack_rows(mirror_tiles, pack, arguments)


@njit(nogil=True, **NO_ALLOCATION)
def mirror_tiles(d, low, high):
    """Mirror some tiles of rows."""
    states = d.shape[0]
    tiles = -(-states // MIN_BLOCK_ROWS)
    for k in range(low, high):
        i = balance_row(k, tiles)
        for j in range(i, tiles):
            for s in range(i * MIN_BLOCK_ROWS, min(states, (i + 1) * MIN_BLOCK_ROWS)):
                for t in range(
                    max(s + 1, j * MIN_BLOCK_ROWS), min(states, (j + 1) * MIN_BLOCK_ROWS)
                ):
                    d[s, t] = d[t, s]


def collect_changed(
    d: Array, changed: Array, floor: float, starts: Array, pairs: Array, values: Array
) -> int:
    """List the changed pairs (s, t) with d >= floor as s * S + t, and their distances.

    Returns how many there are; -1 where they do not fit into `pairs`.
    """
    states = len(d)
    matrices = d, changed, floor, starts
    share_rows(_prepare_count, matrices, states, states // 8, MIN_PARALLEL_ENTRIES)
    starts[0] = 0
    np.cumsum(starts, out=starts)
    if starts[states] > len(pairs):
        return -1
    lists = pairs, values
    share_rows(_prepare_list, (*matrices, *lists), states, states // 8, MIN_PARALLEL_ENTRIES)
    return int(starts[states])


@njit(cache=True)
def _prepare_count(pack, *arguments):
    return pack_rows(_count_changed, pack, arguments)


@njit(cache=True)
def _prepare_list(pack, *arguments):
    return pack_rows(_list_changed, pack, arguments)


@njit(nogil=True, **NO_ALLOCATION)
def _count_changed(d, changed, floor, starts, low, high):
    """Set starts[s + 1] to the number of changed pairs in row s."""
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row, row_changed, count = d[s], changed[s], 0
        for t in range(s):  # without branches, which would be mispredicted
            count += (row_changed[t] != 0) & (row[t] >= floor)
        starts[s + 1] = count


@njit(nogil=True, **NO_ALLOCATION)
def _list_changed(d, changed, floor, starts, pairs, values, low, high):
    states = d.shape[0]
    for i in range(low, high):
        s = balance_row(i, states)
        row_changed, at = changed[s], starts[s]
        for first in range(0, s, MARKS_PER_READ):
            last = min(s, first + MARKS_PER_READ)
            if at < starts[s + 1] and has_marks(row_changed, first, last):
                for t in range(first, last):
                    if (row_changed[t] != 0) & (d[s, t] >= floor):
                        pairs[at], values[at] = s * states + t, d[s, t]
                        at += 1


def double_horizon(d: Array, out: Array, successor: Array, weight: float) -> None:
    """Set out(s, t) = d(s, t) + weight * d(successor(s), successor(t)), for t < s."""
    map_rows(
        lambda low, high: _double_horizon_rows(d, out, successor, weight, low, high),
        len(d),
        len(d) // 2,
    )


@njit(nogil=True, **NO_ALLOCATION)
def _double_horizon_rows(d, out, successor, weight, low, high):
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row = d[successor[s]]
        out[s, s] = read_in_order(row)
        for t in range(s):
            out[s, t] = d[s, t] + weight * row[successor[t]]
        out[s, s] = 0.0


def compute_reward_gaps(reward: Array, out: Array) -> None:
    """Set out(s, t) = |reward(s) - reward(t)|."""
    map_rows(
        lambda low, high: _compute_reward_gaps_rows(reward, out, low, high), len(out), len(out)
    )


@njit(nogil=True, **NO_ALLOCATION)
def _compute_reward_gaps_rows(reward, out, low, high):
    for s in range(low, high):
        for t in range(out.shape[0]):
            out[s, t] = abs(reward[s] - reward[t])


def compute_chain_residual(
    d: Array, successor: Array, reward: Array, discount: float, row_stats: Array
) -> None:
    """Compute the largest |F(d) - d| and the largest F(d) of each row of a chain,
    F(d)(s, t) = |R(s) - R(t)| + discount * d(successor(s), successor(t))."""

    def rows(low: int, high: int) -> None:
        _compute_chain_residual_rows(d, successor, reward, discount, row_stats, low, high)

    map_rows(rows, len(d), len(d) // 2)


@njit(nogil=True, **NO_ALLOCATION)
def _compute_chain_residual_rows(d, successor, reward, discount, row_stats, low, high):
    for i in range(low, high):
        s = balance_row(i, d.shape[0])
        row = d[successor[s]]
        row_stats[s, 0] = read_in_order(row)
        residual, largest = 0.0, 0.0
        for t in range(s):
            value = abs(reward[s] - reward[t]) + discount * row[successor[t]]
            residual = max(residual, abs(value - d[s, t]))
            largest = max(largest, value)
        row_stats[s, 0], row_stats[s, 1] = residual, largest
