"""A range cut into parts, which threads take in turn.

Kernels that let go of the interpreter's lock run side by side. Numba's own parallel loops would do,
but they compile for seconds more, and slow down a great deal where other processes hold the cores.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

PARTS = 8
"""Parts a thread, so that none waits long for the slowest."""
LARGEST = 1024
"""The size of the largest part."""

T = TypeVar("T")


def in_parts(work: Callable[[int, int], T], size: int, worth: int) -> list[T]:
    """What `work(low, high)` returns for parts that make up `range(size)`, in order.

    A range of fewer than `worth` is left to one thread. Parts are small even then, so that an
    interrupt does not wait for long.

    >>> in_parts(lambda low, high: sum(range(low, high)), 10, worth=100)
    [45]
    """
    threads = numba.get_num_threads() if size >= worth else 1
    count = max(threads * PARTS if threads > 1 else 1, size // LARGEST)
    cuts = [size * part // count for part in range(count + 1)]
    if threads == 1:
        return [work(low, high) for low, high in itertools.pairwise(cuts)]
    return list(_pool(threads).map(work, cuts[:-1], cuts[1:]))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="bisimetric")
