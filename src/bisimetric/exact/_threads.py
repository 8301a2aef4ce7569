"""Parallel loops over a range, on threads that sleep while they wait.

Kernels that release the interpreter's lock run side by side. Numba's own parallel loops spin where
they wait for each other: they take up to a hundred times as long where other processes occupy the
cores, and compile for seconds more.
"""

from __future__ import annotations

import functools
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numba

MAX_CHUNKS_PER_THREAD = 8
"""The most parts per thread, so that none waits long for the slowest."""
FULL_GAIN_THREADS = 8
"""Threads that gain from a range as soon as it is worth several."""
MAX_CHUNK_SIZE = 1024
"""The size of the largest part."""

T = TypeVar("T")


def map_chunks(work: Callable[[int, int], T], size: int, min_parallel_size: int) -> list[T]:
    """What `work(low, high)` returns for parts that make up `range(size)`, in order.

    A range of fewer than `worth` is left to one thread, and so is a longer one where threads are
    few: they gain less, and wait as long where one of them loses its core. A part holds at least
    half of `worth`, since starting it takes some microseconds in which no other starts. Parts are
    small even on one thread, so that an interrupt does not wait for long. The caller takes parts
    like every other thread and waits only for parts that another has begun: where the cores are
    busy, it does most of them itself.

    >>> in_parts(lambda low, high: sum(range(low, high)), 10, worth=100)
    [45]
    """
    threads = numba.get_num_threads() if size >= min_parallel_size else 1
    if size * min(threads, FULL_GAIN_THREADS) < min_parallel_size * FULL_GAIN_THREADS:
        threads = 1
    count = (
        min(threads * MAX_CHUNKS_PER_THREAD, 2 * size // min_parallel_size) if threads > 1 else 1
    )
    count = max(1, min(size, max(count, size // MAX_CHUNK_SIZE)))
    threads = min(threads, count)
    cuts = [size * part // count for part in range(count + 1)]
    if threads == 1:
        return [work(low, high) for low, high in itertools.pairwise(cuts)]
    loop = _ParallelLoop(work, cuts)
    tickets = _start_workers(threads - 1)
    for _ in range(threads - 1):
        tickets.put(loop)
    return loop.run()


class _ParallelLoop(Generic[T]):
    """The parts of one range that no thread has taken, and the results of those that are done."""

    def __init__(self, work: Callable[[int, int], T], cuts: list[int]) -> None:
        self._work, self._boundaries = work, cuts
        self._pending = deque(range(len(cuts) - 1))
        self._results: dict[int, T] = {}
        self._active = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def run(self) -> list[T]:
        """Takes parts until none is left, waits for those that others have begun."""
        try:
            self._run_chunks()
        finally:
            # After an error or an interrupt no part is begun, and none writes behind the caller.
            self._pending.clear()
            with self._changed:
                self._closed = True
                while self._active > 0:
                    self._changed.wait()
        if self._failure is not None:
            raise self._failure
        return [self._results[part] for part in range(len(self._boundaries) - 1)]

    def join(self) -> None:
        """Takes parts on another thread, if the caller still waits for some."""
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
                part = self._pending.popleft()
            except IndexError:
                return
            self._results[part] = self._work(self._boundaries[part], self._boundaries[part + 1])


@functools.cache
def _start_workers(num_workers: int) -> queue.SimpleQueue[_ParallelLoop[Any]]:
    """A queue of loops to join, and so many threads that sleep until there is one."""
    tickets: queue.SimpleQueue[_ParallelLoop[Any]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            tickets.get().join()

    for number in range(num_workers):
        threading.Thread(target=work, name=f"bisimetric-{number}", daemon=True).start()
    return tickets
