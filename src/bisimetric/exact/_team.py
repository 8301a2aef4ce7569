"""Threads that take part in compiled loops without Python's global lock.

To wake up a thread and to take the lock takes some tens of microseconds, one thread after the
other. So threads that have taken part in a loop stay in compiled code for about a millisecond, in
which they look for the next one: a function and its arguments, at addresses. Then they leave, and
sleep.

A loop is open while its number, `control[JOB]`, is odd. A thread that finds it open enters, and
looks again: if it is still open, its memory is valid until the thread has left.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._intrinsics import (
    FAILED,
    add,
    call_packed,
    count_cycles,
    increase,
    load,
    load_at,
    pause,
    sleep_briefly,
    store_at,
    yield_core,
)

NUM_DONE, NUM_PARTS, HAS_FAILED = 16, 32, 48
"""Entries of the progress of a loop: how many parts are done, how many there are, and whether one
has failed. The first counts those that are claimed. They are on different cache lines."""
PROGRESS_SIZE = 64
NO_PART = -1
JOB, FUNCTION, PACK, PROGRESS = 0, 1, 2, 3
SEATS, NUM_INSIDE, NUM_ACTIVE, NUM_RECALLS = 16, 32, 48, 64
"""Entries of the control: how many more threads may take part in the loop, how many look at it, how
many are in compiled code or about to be, and how often they were told to leave."""
MAX_SPINS, MAX_YIELDS = 500, 500
"""Times that a thread looks whether a phase has ended before it lets other threads run, and how
often it does that before it sleeps. To wake up takes longer, and one thread after the other."""
MAX_IDLE_YIELDS = 2000
"""The same for a thread that looks for the next loop."""
MAX_WAIT_CYCLES = 200_000
"""A wait that takes more cycles was one for another process. Then a thread sleeps at once: when it
wakes up, it comes before those that are busy."""


@njit(inline="always")
def wait(attempt: int) -> bool:
    """Wait for some cycles, or, after many attempts, let other threads run; return whether another
    process needs the core."""
    before = count_cycles()
    if attempt < MAX_SPINS:
        pause()
    else:
        yield_core()
    return bool(count_cycles() - before > MAX_WAIT_CYCLES)


@njit(cache=True, nogil=True)
def run_part(function: int, pack: int, part: int) -> int:
    """Call a packed function, see `_intrinsics.pack_call`."""
    return int(call_packed(function, pack, part))


@njit(cache=True, nogil=True)
def _run_parts(function: int, pack: int, progress: int) -> None:
    """Run parts until none is left."""
    part = NO_PART
    while part != NO_PART or load_at(progress) < load_at(progress + 8 * NUM_PARTS):
        part = call_packed(function, pack, part)
        if part == FAILED:
            store_at(progress + 8 * HAS_FAILED, 1)
            store_at(progress + 8 * NUM_PARTS, 0)
            part = NO_PART
        elif part != NO_PART:
            sleep_briefly()


@njit(cache=True, nogil=True)
def _serve(control: NDArray[np.int64]) -> None:
    """Take part in loops until there has been none for long, or it must leave."""
    num_recalls, last, idle = load(control, NUM_RECALLS), 0, 0
    while idle < MAX_SPINS + MAX_IDLE_YIELDS and load(control, NUM_RECALLS) == num_recalls:
        job = load(control, JOB)
        if job % 2 == 1 and job != last:
            add(control, NUM_INSIDE, 1)
            if add(control, JOB, 0) == job:
                last = job
                if add(control, SEATS, -1) > 0:
                    _run_parts(control[FUNCTION], control[PACK], control[PROGRESS])
                    idle = 0
            add(control, NUM_INSIDE, -1)
        if wait(idle):
            break
        idle += 1
    add(control, NUM_ACTIVE, -1)


@njit(cache=True, nogil=True)
def _open_loop(
    control: NDArray[np.int64], function: int, pack: int, progress: int, num_threads: int
) -> int:
    """Let so many threads take part in a loop; return how many of them must be woken up."""
    control[FUNCTION], control[PACK], control[PROGRESS] = function, pack, progress
    control[SEATS] = num_threads
    add(control, JOB, 1)
    num_asleep = max(0, num_threads - int(load(control, NUM_ACTIVE)))
    add(control, NUM_ACTIVE, num_asleep)
    return num_asleep


@njit(cache=True, nogil=True)
def _close_loop(control: NDArray[np.int64]) -> None:
    """Let no more threads in, and wait for those inside, which have no part, to leave."""
    add(control, JOB, 1)
    attempt = 0
    while add(control, NUM_INSIDE, 0) > 0:
        wait(attempt)
        attempt += 1


@njit(cache=True, nogil=True)
def _recall(control: NDArray[np.int64]) -> None:
    increase(control, NUM_RECALLS)


class Team:
    """The threads of a process. One loop can be open at a time."""

    def __init__(self) -> None:
        self._control = np.zeros(80, np.int64)
        self._lock = threading.Lock()
        self._kept: tuple[Any, ...] = ()

    def open(
        self,
        function: int,
        pack: int,
        progress: NDArray[np.int64],
        num_threads: int,
        arguments: Any,
    ) -> int:
        """Let so many threads take part in a loop. Keeps the arguments until it is closed.

        Returns how many threads must be woken up to call `join`: none where another loop is open,
        so that this one has no other threads.
        """
        if not self._lock.acquire(blocking=False):
            return 0
        self._kept = progress, arguments
        address = progress.ctypes.data
        return int(_open_loop(self._control, function, pack, address, num_threads))

    def close(self, progress: NDArray[np.int64]) -> None:
        """Close the loop of this progress, if it is open; then no thread uses its arguments."""
        if self._kept and self._kept[0] is progress:
            _close_loop(self._control)
            self._kept = ()
            self._lock.release()

    def join(self) -> None:
        """Take part in loops, on another thread."""
        _serve(self._control)

    def recall(self) -> None:
        """Let all threads that look for a loop leave."""
        _recall(self._control)

    def reset(self) -> None:
        """Forget all threads: a forked process has none of them."""
        self._control, self._lock, self._kept = np.zeros(80, np.int64), threading.Lock(), ()


team = Team()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=team.reset)
