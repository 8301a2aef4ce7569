"""A partition of numbers into blocks, held in flat arrays and refined in place.

Numba's cache watches only the file that a kernel stands in: after a change here, remove the
`__pycache__` beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Partition(NamedTuple):
    """A partition of 0..n-1 into blocks, which are split by marking elements.

    Block b is `order[start[b]:stop[b]]`, its marked elements first; `place` inverts `order`.
    """

    order: NDArray[Any]
    position: NDArray[Any]
    block: NDArray[Any]
    start: NDArray[Any]
    stop: NDArray[Any]
    marked: NDArray[Any]  # how many elements of a block are marked
    touched: NDArray[Any]  # the blocks with marked elements; `counts[1]` of them
    counts: NDArray[Any]  # blocks, touched blocks


@njit(cache=True)
def sort_by_key(keys: NDArray[Any], num_keys: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions sorted by key, and where each key starts: a counting sort, stable."""
    starts = np.zeros(num_keys + 1, keys.dtype)
    for key in keys:
        starts[key + 1] += 1
    for key in range(num_keys):
        starts[key + 1] += starts[key]
    ends = starts[:-1].copy()
    order = np.empty_like(keys)
    for i in range(len(keys)):
        order[ends[keys[i]]] = i
        ends[keys[i]] += 1
    return order, starts


@njit(cache=True)
def build_partition(keys: NDArray[Any], num_keys: int) -> Partition:
    """The partition of positions by key; every key from 0 to `num_keys` - 1 occurs."""
    order, starts = sort_by_key(keys, num_keys)
    place = np.empty_like(keys)
    for i in range(len(order)):
        place[order[i]] = i
    start, stop = np.empty_like(keys), np.empty_like(keys)
    start[:num_keys], stop[:num_keys] = starts[:-1], starts[1:]
    counts = np.array([num_keys, 0])
    marked, touched = np.zeros_like(keys), np.empty_like(keys)
    return Partition(order, place, keys.copy(), start, stop, marked, touched, counts)


@njit(cache=True)
def mark(partition: Partition, elements: NDArray[Any]) -> None:
    """Mark some elements, perhaps again: they move to the front of their blocks.

    They come as an array, since a call for each would spend most of its time on reference counts.
    """
    order, place, block, start, _, marked, touched, counts = partition
    for x in elements:
        b = block[x]
        here, there = place[x], start[b] + marked[b]
        if here < there:
            continue
        y = order[there]
        order[here], place[y] = y, here
        order[there], place[x] = x, there
        if marked[b] == 0:
            touched[counts[1]] = b
            counts[1] += 1
        marked[b] += 1


@njit(cache=True)
def split_marked(partition: Partition) -> None:
    """Part marked from unmarked elements in each block; the smaller half gets the next number."""
    start, stop = partition.start, partition.stop
    for b in partition.touched[: partition.counts[1]]:
        middle = start[b] + partition.marked[b]
        partition.marked[b] = 0
        if middle == stop[b]:
            continue
        if middle - start[b] <= stop[b] - middle:
            low, high, start[b] = start[b], middle, middle
        else:
            low, high, stop[b] = middle, stop[b], middle
        create_block(partition, low, high)
    partition.counts[1] = 0


@njit(cache=True)
def create_block(partition: Partition, low: int, high: int) -> None:
    """Make a block, with the next number, of the elements at `low` to `high` - 1 of `order`."""
    b = partition.counts[0]
    partition.counts[0] += 1
    partition.start[b], partition.stop[b] = low, high
    for x in partition.order[low:high]:
        partition.block[x] = b


@njit(cache=True)
def number_blocks(partition: Partition) -> NDArray[np.int64]:
    """The block of each element; blocks are numbered by first appearance."""
    number = np.full(partition.counts[0], -1)
    classes = np.empty(len(partition.block), np.int64)
    found = 0
    for x in range(len(classes)):
        b = partition.block[x]
        if number[b] < 0:
            number[b] = found
            found += 1
        classes[x] = number[b]
    return classes
