"""Parallel loops over a range, on threads that sleep while they wait.

Kernels that release the GIL run in parallel. The threads of Numba's parallel loops spin while they
wait: they take up to a hundred times as long where other processes occupy the cores, and compile
for seconds more.
"""

from __future__ import annotations

import functools
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numba

from bisimetric.exact._team import team

MAX_CHUNKS = 32
"""Chunks per range: several per thread, so that none waits long for the slowest. Starting one takes
some microseconds in which no other starts, so that many threads have only two each."""
MAX_CHUNKS_PER_THREAD = 8
FULL_GAIN_THREADS = 8
"""Threads with which a range of `min_parallel_size` is worth running in parallel."""
MAX_CHUNK_SIZE = 1024

T = TypeVar("T")


def count_useful_threads(size: int, min_parallel_size: int) -> int:
    """Return the threads of this process, or 1 for a range that is not worth several of them.

    Few threads gain less, and wait as long where one of them loses its core.

    >>> count_useful_threads(10, min_parallel_size=100)
    1
    """
    threads = numba.get_num_threads() if size >= min_parallel_size else 1
    is_worth_it = size * min(threads, FULL_GAIN_THREADS) >= min_parallel_size * FULL_GAIN_THREADS
    return threads if is_worth_it else 1


def map_chunks(work: Callable[[int, int], T], size: int, min_parallel_size: int) -> list[T]:
    """Return `work(low, high)` for the chunks of `range(size)`, in order.

    A range of fewer than `min_parallel_size` runs on one thread, and so does a longer one where
    threads are few: they gain less, and wait as long where one of them loses its core. A chunk has
    at least half of `min_parallel_size`, since starting it takes some microseconds in which no
    other starts. Chunks are small even on one thread, so that an interrupt does not wait for long.
    The caller runs chunks like every other thread and waits only for those that others have
    started: where the cores are busy, it runs most of them itself.

    >>> map_chunks(lambda low, high: sum(range(low, high)), 10, min_parallel_size=100)
    [45]
    """
    threads = count_useful_threads(size, min_parallel_size)
    num_chunks = 1
    if threads > 1:
        most = min(threads * MAX_CHUNKS_PER_THREAD, max(MAX_CHUNKS, 2 * threads))
        num_chunks = min(most, 2 * size // min_parallel_size)
    num_chunks = max(1, min(size, max(num_chunks, size // MAX_CHUNK_SIZE)))
    threads = min(threads, num_chunks)
    boundaries = [size * chunk // num_chunks for chunk in range(num_chunks + 1)]
    if threads == 1:
        return [work(low, high) for low, high in itertools.pairwise(boundaries)]
    loop = _ParallelLoop(work, boundaries)
    loop.start(threads - 1)
    return loop.run()


class _ParallelLoop(Generic[T]):
    """The pending chunks of one range, and the results of the others."""

    def __init__(self, work: Callable[[int, int], T], boundaries: list[int]) -> None:
        self._work, self._boundaries = work, boundaries
        self._pending = deque(range(len(boundaries) - 1))
        self._results: dict[int, T] = {}
        self._active = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def start(self, num_threads: int) -> None:
        """Let so many other threads join."""
        team.recall()
        loops = start_workers(numba.get_num_threads() - 1)
        for _ in range(num_threads):
            loops.put(self)

    def run(self) -> list[T]:
        """Run chunks until none is pending, then wait for the other threads."""
        try:
            self._run_chunks()
        finally:
            # After an error or an interrupt no chunk starts or keeps running in the background.
            self._pending.clear()
            with self._changed:
                self._closed = True
                while self._active > 0:
                    self._changed.wait()
        if self._failure is not None:
            raise self._failure
        return [self._results[chunk] for chunk in range(len(self._boundaries) - 1)]

    def join(self) -> None:
        """Run chunks on another thread, if the caller still waits for some."""
        with self._changed:
            if self._closed:
                return
            self._active += 1
        try:
            self._run_chunks()
        except BaseException as failure:  # for the caller to raise
            self._failure = failure
            self._pending.clear()
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify()

    def _run_chunks(self) -> None:
        while True:
            try:
                chunk = self._pending.popleft()
            except IndexError:
                return
            self._results[chunk] = self._work(self._boundaries[chunk], self._boundaries[chunk + 1])


class _Loop(Protocol):
    """What threads can join."""

    def join(self) -> None: ...


@functools.cache
def start_workers(num_workers: int) -> queue.SimpleQueue[_Loop]:
    """Start threads that sleep until there is a loop to join; return the queue of loops."""
    loops: queue.SimpleQueue[_Loop] = queue.SimpleQueue()

    def work() -> None:
        while True:
            loops.get().join()

    for number in range(num_workers):
        threading.Thread(target=work, name=f"bisimetric-{number}", daemon=True).start()
    return loops


if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads.
    os.register_at_fork(after_in_child=start_workers.cache_clear)
