"""Partition refinement in place, and strong bisimulation of a labelled graph with it.

Numba's cache tracks only the file of a kernel: after a change here, remove `__pycache__`, because
the kernels of `lumping.py` call these.

Paige & Tarjan (1987), Three partition refinement algorithms, SIAM J. Comput. 16(6);
Valmari (2009), Bisimilarity minimization in O(m log n) time, Petri Nets 2009.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Partition(NamedTuple):
    """A partition of 0..n-1 into blocks, which are split by marking elements.

    Block b is `order[start[b]:stop[b]]`, its marked elements first; `position` inverts `order`.
    """

    order: NDArray[Any]
    position: NDArray[Any]
    block: NDArray[Any]
    start: NDArray[Any]
    stop: NDArray[Any]
    marked: NDArray[Any]  # the number of marked elements per block
    touched: NDArray[Any]  # the blocks with marked elements; `counts[1]` of them
    counts: NDArray[Any]  # blocks, touched blocks


@njit(cache=True)
def sort_by_key(keys: NDArray[Any], num_keys: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sort positions by key, stably (counting sort); return them and the start of each key."""
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
    """Partition positions by key; every key from 0 to `num_keys` - 1 must occur."""
    order, starts = sort_by_key(keys, num_keys)
    position = np.empty_like(keys)
    for i in range(len(order)):
        position[order[i]] = i
    start, stop = np.empty_like(keys), np.empty_like(keys)
    start[:num_keys], stop[:num_keys] = starts[:-1], starts[1:]
    counts = np.array([num_keys, 0])
    marked, touched = np.zeros_like(keys), np.empty_like(keys)
    return Partition(order, position, keys.copy(), start, stop, marked, touched, counts)


@njit(cache=True)
def mark(partition: Partition, elements: NDArray[Any]) -> None:
    """Mark elements: they move to the front of their blocks. Marking twice has no effect.

    The argument is an array, since a call per element would mostly count references.
    """
    order, position, block, start, _, marked, touched, counts = partition
    for x in elements:
        b = block[x]
        old, new = position[x], start[b] + marked[b]
        if old < new:
            continue
        y = order[new]
        order[old], position[y] = y, old
        order[new], position[x] = x, new
        if marked[b] == 0:
            touched[counts[1]] = b
            counts[1] += 1
        marked[b] += 1


@njit(cache=True)
def split_marked(partition: Partition) -> None:
    """Split marked from unmarked elements in each block; the smaller half gets the next number."""
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
    """Create a block, with the next number, of the elements at `low` to `high` - 1 of `order`."""
    b = partition.counts[0]
    partition.counts[0] += 1
    partition.start[b], partition.stop[b] = low, high
    for x in partition.order[low:high]:
        partition.block[x] = b


@njit(cache=True)
def number_blocks(partition: Partition) -> NDArray[np.int64]:
    """Return the block of each element, with blocks numbered by first appearance."""
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


class Bundles(NamedTuple):
    """The edges from one state in one processed cord are a bundle; `size` counts them."""

    bundle: NDArray[Any]  # of each edge
    size: NDArray[Any]  # of each bundle
    num_in_cord: NDArray[Any]  # the edges of each state in the cord being processed
    current: NDArray[Any]  # the bundle of these edges
    num_bundles: NDArray[Any]  # (1,)


@njit(cache=True)
def build_bundles(source: NDArray[Any], num_states: int) -> Bundles:
    """Build one bundle per state, of all its edges; every state has at least one."""
    size = np.zeros_like(source)
    for s in source:
        size[s] += 1
    num_in_cord = np.zeros(num_states, source.dtype)
    current = np.empty(num_states, source.dtype)
    return Bundles(source.copy(), size, num_in_cord, current, np.array([num_states]))


@njit(cache=True)
def split_by_cord(
    blocks: Partition,
    edges: NDArray[Any],
    source: NDArray[Any],
    match_freely: bool,
    bundles: Bundles,
) -> None:
    """Split the states of each block by a cord that is part of a processed one.

    All edges of a state in the processed cord may lie in this part of it, or none; or only some, if
    `match_freely`, since then a cord has several edges from one state.
    """
    states = source[edges]
    mark(blocks, states)
    split_marked(blocks)
    if not match_freely:
        return
    bundle, size, num_in_cord, current, num_bundles = bundles
    for s in states:
        num_in_cord[s] += 1
    num_partial = 0
    for i in range(len(edges)):
        e, s = edges[i], states[i]
        if num_in_cord[s] > 0:
            if num_in_cord[s] == size[bundle[e]]:
                current[s] = bundle[e]
            else:
                size[bundle[e]] -= num_in_cord[s]
                size[num_bundles[0]] = num_in_cord[s]
                current[s] = num_bundles[0]
                num_bundles[0] += 1
                states[num_partial] = s
                num_partial += 1
            num_in_cord[s] = 0
        bundle[e] = current[s]
    mark(blocks, states[:num_partial])
    split_marked(blocks)


@njit(cache=True)
def refine(
    source: NDArray[Any],
    target: NDArray[Any],
    labels: NDArray[Any],
    num_labels: int,
    initial: NDArray[Any],
    num_initial: int,
    match_freely: bool,
) -> NDArray[np.int64]:
    """Compute the classes (S,) of strong bisimulation: edges `source` -`labels`-> `target`.

    Edges are grouped by source, and every state has one. States in different `initial` classes
    (S,) are never related. Edges of different actions have different labels, unless `match_freely`,
    and states with different actions are in different initial classes then. Edges are partitioned
    into cords: those of one label into one block of states. A processed cord splits no block: all
    states of a block have an edge in it, or none has. A part c of a processed cord K splits a block
    three ways: states whose edges in K lie all in c, partly, or not at all. All edges together are
    the first processed cord (or, unless `match_freely`, all edges of each action).

    The smaller half is split off, so an edge is in at most log2(m) + 1 processed cords, and a state
    in at most log2(S) blocks whose incoming edges split cords. Cords are processed first, as a
    block that is split before its turn need not be searched as a whole.
    """
    num_states = len(initial)
    # Edges are numbered by target: those into state s are offsets[s] to offsets[s + 1] - 1.
    by_target, offsets = sort_by_key(target, num_states)
    source = source[by_target]
    cords = build_partition(labels[by_target], num_labels)
    blocks = build_partition(initial, num_initial)
    bundles = build_bundles(source, num_states)
    entering = np.empty_like(source)
    b, c = 1, 1  # block 0 and cord 0 are the complements of the others
    while True:
        if c < cords.counts[0]:
            edges = cords.order[cords.start[c] : cords.stop[c]]
            split_by_cord(blocks, edges, source, match_freely, bundles)
            c += 1
        elif b < blocks.counts[0]:
            found = 0
            for s in blocks.order[blocks.start[b] : blocks.stop[b]]:
                for e in range(offsets[s], offsets[s + 1]):
                    entering[found] = e
                    found += 1
            mark(cords, entering[:found])
            split_marked(cords)
            b += 1
        else:
            return number_blocks(blocks)
