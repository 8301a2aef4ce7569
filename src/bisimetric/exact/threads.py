"""Parallel loops over a range, on threads that sleep while they wait.

Kernels that release the interpreter's lock run side by side. Numba's own parallel loops spin where
they wait for each other: they take up to a hundred times as long where other processes occupy the
cores, and compile for seconds more.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

PARTS = 8
"""Parts per thread, so that none waits long for the slowest."""
LARGEST = 1024
"""The size of the largest part."""

T = TypeVar("T")


def in_parts(work: Callable[[int, int], T], size: int, worth: int) -> list[T]:
    """What `work(low, high)` returns for parts that make up `range(size)`, in order.

    A range of fewer than `worth` is left to one thread. Parts are small even then, so that an
    interrupt does not wait for long. The caller takes parts like every other thread and waits only
    for parts that another has begun: where the cores are busy, it does most of them itself.

    >>> in_parts(lambda low, high: sum(range(low, high)), 10, worth=100)
    [45]
    """
    threads = numba.get_num_threads() if size >= worth else 1
    count = max(1, min(size, max(threads * PARTS if threads > 1 else 1, size // LARGEST)))
    cuts = [size * part // count for part in range(count + 1)]
    if threads == 1 or count == 1:
        return [work(low, high) for low, high in itertools.pairwise(cuts)]
    results: dict[int, T] = {}
    parts = deque(range(count))

    def take_parts() -> None:
        while True:
            try:
                part = parts.popleft()
            except IndexError:
                return
            results[part] = work(cuts[part], cuts[part + 1])

    helpers = [_pool(threads - 1).submit(take_parts) for _ in range(threads - 1)]
    try:
        take_parts()
    finally:
        # After an error or an interrupt, no part is begun, and none writes on behind the caller.
        parts.clear()
        begun = [helper for helper in helpers if not helper.cancel()]
        failures = [helper.exception() for helper in begun]
    for failure in failures:
        if failure is not None:
            raise failure
    return [results[part] for part in range(count)]


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="bisimetric")
