"""Parallel loops of several phases, each of which needs the results of the one before.

The phases of one loop run in compiled code on all threads, so that a thread is started once per
loop and not once per phase, see also `_team`. A thread that has to wait for the end of a phase
spins for some microseconds, in which the others usually finish, then lets other threads and
processes run on its core, and at last sleeps.

A phase consists of parts, which are claimed in order. The earliest part that is not done never
waits, and a thread that has no core has claimed nothing, so that no loop waits for it.

A loop may repeat its phases, round after round, until the kernel ends it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._intrinsics import (
    FAILED,
    PACK_BYTES,
    call_rows,
    claim_part,
    increase,
    load,
    pack_call,
)
from bisimetric.exact._team import (
    HAS_FAILED,
    MAX_SPINS,
    MAX_YIELDS,
    NO_PART,
    NUM_DONE,
    NUM_PARTS,
    PROGRESS_SIZE,
    run_part,
    team,
    wait,
)
from bisimetric.exact._threads import count_useful_threads, start_workers

MIN_PART_FRACTION = 1 / 8
"""The smallest parts have this fraction of the entries that are worth several threads."""
MAX_PART_ENTRIES = 2**24
MAX_CALL_ENTRIES = 2**25
"""Entries of the parts that a thread runs, on average, before it returns to Python, where it can be
interrupted."""
FAILURE = "a compiled loop failed; please report this"
MIN_SLEEP, MAX_SLEEP = 2e-5, 1e-3
"""Seconds that a thread sleeps, doubled each time."""


class Phase(NamedTuple):
    """The items of a phase.

    Attributes:
        label: numbers that tell the kernel what to do.
        first: the first item.
        entries: how many entries of a matrix each item takes.
        unit: parts begin at multiples of so many items from the first.
    """

    label: tuple[int, ...]
    first: int
    entries: NDArray[np.int64]
    unit: int = 1


class Plan(NamedTuple):
    """The parts of all phases of a loop.

    Attributes:
        parts: per part the number of parts of earlier phases, the first item, the item after the
            last, and the label of the phase.
        num_threads: threads that are worth starting.
        parts_per_call: how many parts a thread runs before it returns to Python.
        repeats: whether the phases are repeated until the kernel calls `end_rounds`.
    """

    parts: NDArray[np.int64]
    num_threads: int
    parts_per_call: int
    repeats: bool = False


def choose_num_threads(entries: int, min_parallel_entries: int) -> int:
    """Return how many threads a loop over so many entries is worth.

    >>> choose_num_threads(100, min_parallel_entries=1000)
    1
    """
    threads = count_useful_threads(entries, min_parallel_entries)
    return max(1, min(threads, 2 * entries // min_parallel_entries))


def plan_phases(phases: Sequence[Phase], num_threads: int, min_parallel_entries: int) -> Plan:
    """Divide the items of each phase into parts, the first ones large and the last ones small.

    So threads are started few times per phase, and finish it at nearly the same time.

    >>> plan_phases([Phase((7,), 10, np.full(4, 50)), Phase((8,), 0, np.full(2, 9))], 1, 1).parts
    array([[ 0, 10, 14,  7],
           [ 1,  0,  2,  8]])
    """
    parts: list[tuple[int, ...]] = []
    min_part_entries = int(MIN_PART_FRACTION * min_parallel_entries)
    for phase in phases:
        ends = np.cumsum(phase.entries)
        num_before, low, total = len(parts), 0, int(ends[-1])
        while low < len(ends):
            before = int(ends[low - 1]) if low else 0
            size = total - before
            if num_threads > 1:
                size = max(size // (2 * num_threads), min_part_entries)
            target = before + min(size, MAX_PART_ENTRIES)
            units = (int(np.searchsorted(ends, target)) + 1 - low) // phase.unit
            high = min(low + max(1, units) * phase.unit, len(ends))
            parts.append((num_before, phase.first + low, phase.first + high, *phase.label))
            low = high
    total = sum(int(phase.entries.sum()) for phase in phases)
    parts_per_call = max(1, MAX_CALL_ENTRIES * len(parts) // max(1, total))
    return Plan(np.array(parts, np.int64), num_threads, parts_per_call)


@functools.lru_cache
def plan_items(sizes: tuple[int, ...], num_threads: int, *, repeats: bool = False) -> Plan:
    """Plan phases of so many items each; the label of a phase is its number.

    >>> plan_items((2, 1), 1).parts
    array([[0, 0, 2, 0],
           [1, 0, 1, 1]])
    """
    phases = [Phase((k,), 0, np.ones(size, np.int64)) for k, size in enumerate(sizes)]
    return plan_phases(phases, num_threads, 1)._replace(repeats=repeats)


@njit(cache=True, nogil=True)
def start_part(
    progress: NDArray[np.int64], parts: NDArray[np.int64], part: int
) -> tuple[int, bool]:
    """Claim the next part, or take a claimed one, and wait for the phases before its own.

    Returns the part, or `NO_PART` if none is left, and whether it may be run: where that takes
    long, the thread should return the part, and sleep. Parts of later rounds have larger numbers.
    """
    if part == NO_PART:
        part = claim_part(progress)
    num_before = count_parts_before(parts, part)
    for k in range(MAX_SPINS + MAX_YIELDS):
        is_ready = load(progress, NUM_DONE) >= num_before
        # Read after the other: the round before may have been the last.
        if part >= load(progress, NUM_PARTS):
            return NO_PART, False
        if is_ready:
            return part, True
        if wait(k):
            break
    return part, False


@njit(cache=True, nogil=True)
def count_parts_before(parts: NDArray[np.int64], part: int) -> int:
    """Return the number of parts of earlier rounds and phases."""
    return int(part // len(parts) * len(parts) + parts[part % len(parts), 0])


@njit(cache=True, nogil=True)
def finish_part(progress: NDArray[np.int64]) -> int:
    """Count a part as done; return that the thread has none."""
    increase(progress, NUM_DONE)
    return NO_PART


@njit(cache=True, nogil=True)
def end_rounds(progress: NDArray[np.int64], parts: NDArray[np.int64], part: int) -> None:
    """Make the round of a part the last one. To be called in its last phase, which has one part."""
    progress[NUM_PARTS] = (part // len(parts) + 1) * len(parts)


@njit(cache=True, nogil=True)
def _wait_for_end(progress: NDArray[np.int64]) -> bool:
    """Wait until all parts are done, but not for long; return whether they are."""
    for k in range(MAX_SPINS + MAX_YIELDS):
        if load(progress, NUM_DONE) >= load(progress, NUM_PARTS):
            return True
        if wait(k):
            break
    return False


def share_phases(prepare: Callable[..., int], arguments: tuple[Any, ...], plan: Plan) -> None:
    """Run a compiled kernel on several threads until all parts of a plan are done.

    `prepare(pack, progress, parts, *arguments)` is compiled, and returns
    `pack_call(kernel, pack, (progress, parts, *arguments))`. The kernel repeats, at most
    `plan.parts_per_call` times:

        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        ...  # run parts[part], or, in rounds, parts[part % len(parts)]
        part = finish_part(progress)

    and returns the part. An error or an interrupt in one thread ends the loop on all.
    """
    progress = np.zeros(PROGRESS_SIZE, np.int64)
    progress[NUM_PARTS] = np.iinfo(np.int64).max if plan.repeats else len(plan.parts)
    pack = np.empty(PACK_BYTES // 8, np.int64)
    function, address = prepare(pack, progress, plan.parts, *arguments), pack.ctypes.data
    try:
        if plan.num_threads > 1:
            others = plan.num_threads - 1
            num_asleep = team.open(function, address, progress, others, (pack, plan, arguments))
            for _ in range(num_asleep):
                start_workers(numba.get_num_threads() - 1).put(team)
        part = NO_PART
        while part != NO_PART or progress[0] < progress[NUM_PARTS]:
            part = run_part(function, address, part)
            if part == FAILED:
                progress[HAS_FAILED] = 1
                break
            if part != NO_PART:
                _sleep_until(progress, count_parts_before(plan.parts, part))
        while not (progress[HAS_FAILED] or _wait_for_end(progress)):
            _sleep_until(progress, progress[NUM_PARTS])
    finally:
        # No part may keep running in the background.
        progress[NUM_PARTS] = 0
        team.close(progress)
    if progress[HAS_FAILED]:
        raise RuntimeError(FAILURE)


def share_rows(
    prepare: Callable[..., int],
    arguments: tuple[Any, ...],
    rows: int,
    entries: int,
    min_parallel_entries: int,
) -> None:
    """Run a compiled kernel on several threads for all ranges of rows, of so many entries each.

    `prepare(pack, *arguments)` is compiled, and returns `pack_rows(kernel, pack, arguments)`. The
    kernel has the arguments `low` and `high` in addition, and should return nothing.
    """
    if rows == 0:
        return
    pack = np.empty(PACK_BYTES // 8, np.int64)
    function, address = prepare(pack, *arguments), pack.ctypes.data
    threads = choose_num_threads(rows * entries, min_parallel_entries)
    plan = _plan_rows(rows, max(1, entries), threads, min_parallel_entries)
    if threads > 1:
        share_phases(_prepare_rows, (function, address, plan.parts_per_call), plan)
        return
    for _, low, high in plan.parts.tolist():
        if run_rows(function, address, low, high) == FAILED:
            raise RuntimeError(FAILURE)


@functools.lru_cache(maxsize=64)
def _plan_rows(rows: int, entries: int, num_threads: int, min_parallel_entries: int) -> Plan:
    phases = [Phase((), 0, np.full(rows, entries))]
    return plan_phases(phases, num_threads, min_parallel_entries)


@njit(cache=True)
def _prepare_rows(
    pack: NDArray[np.int64], progress: NDArray[np.int64], parts: NDArray[np.int64], *arguments: int
) -> int:
    return int(pack_call(_run_rows, pack, (progress, parts, *arguments)))


@njit(cache=True, nogil=True)
def run_rows(function: int, pack: int, low: int, high: int) -> int:
    """Call a packed function of rows, see `_intrinsics.pack_rows`."""
    return int(call_rows(function, pack, low, high))


@njit(cache=True, nogil=True)
def _run_rows(
    progress: NDArray[np.int64],
    part: int,
    parts: NDArray[np.int64],
    function: int,
    pack: int,
    max_parts: int,
) -> int:
    for _ in range(max_parts):
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        if call_rows(function, pack, parts[part, 1], parts[part, 2]) == FAILED:
            return FAILED
        part = finish_part(progress)
    return part


def _sleep_until(progress: NDArray[np.int64], count: int) -> None:
    """Sleep until so many parts are done, or all, or a thread fails."""
    delay = MIN_SLEEP
    while progress[NUM_DONE] < min(count, progress[NUM_PARTS]):
        time.sleep(delay)
        delay = min(2 * delay, MAX_SLEEP)
