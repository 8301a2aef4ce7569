"""A range cut into parts, which threads take in turn.

Kernels that let go of the interpreter's lock run side by side. Numba's own parallel loops would do,
but they compile for seconds more, and slow down a great deal where other processes hold the cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

PARTS = 8
"""Parts a thread, so that none waits long for the slowest."""

T = TypeVar("T")


def in_parts(work: Callable[[int, int], T], size: int, worth: int) -> list[T]:
    """What `work(low, high)` returns for parts that make up `range(size)`, in order.

    A range of fewer than `worth` is one part.

    >>> in_parts(lambda low, high: sum(range(low, high)), 10, worth=100)
    [45]
    """
    threads = numba.get_num_threads()
    if threads == 1 or size < worth:
        return [work(0, size)]
    count = threads * PARTS
    cuts = [size * part // count for part in range(count + 1)]
    return list(_pool(threads).map(work, cuts[:-1], cuts[1:]))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="bisimetric")
