"""Lumping of stochastic MDPs: states and distributions are refined in turn, by smaller parts.

Valmari & Franceschinis (2010), Simple O(m log n) time Markov chain lumping, TACAS 2010;
Groote, Rivera Verduzco & de Vink (2018), An efficient algorithm to determine probabilistic
bisimulation, Algorithms 11(9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.relation.refinement import (
    Partition,
    build_bundles,
    build_partition,
    create_block,
    mark,
    number_blocks,
    split_by_cord,
)

FIXED_POINT_ONE = 2**62
"""Probability 1 in fixed point: int64 holds the sum of a row, and every sum is exact."""


@njit(cache=True)
def group_by_successor(
    indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[np.float64], num_states: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Group transitions by successor: return the groups' offsets, the rows and the weights.

    A weight is a probability in fixed point, after its row is normalised. Rounding changes a sum of
    k weights of a row by at most a few times 2^-53 + k * 2^-63.
    """
    offsets = np.zeros(num_states + 1, indices.dtype)
    for t in indices:
        offsets[t + 1] += 1
    for t in range(num_states):
        offsets[t + 1] += offsets[t]
    ends = offsets[:-1].copy()
    rows = np.empty_like(indices)
    weights = np.empty(len(indices), np.int64)
    for row in range(len(indptr) - 1):
        total = np.int64(0)
        for i in range(indptr[row], indptr[row + 1]):
            total += np.int64(np.rint(data[i] * FIXED_POINT_ONE))
        scale = FIXED_POINT_ONE / total * FIXED_POINT_ONE
        for i in range(indptr[row], indptr[row + 1]):
            t = indices[i]
            rows[ends[t]] = row
            weights[ends[t]] = np.int64(np.rint(data[i] * scale))
            ends[t] += 1
    return offsets, rows, weights


@njit(cache=True)
def lump(
    offsets: NDArray[Any],
    rows: NDArray[Any],
    weights: NDArray[np.int64],
    source: NDArray[Any],
    labels: NDArray[Any],
    num_labels: int,
    initial: NDArray[Any],
    num_initial: int,
    match_freely: bool,
    tol: int,
) -> NDArray[np.int64]:
    """Compute the classes (S,) of probabilistic bisimulation from `group_by_successor`.

    A row is the distribution of an action of state `source[row]`, with `labels[row]`. Rows take the
    role of the edges of `refinement.refine`, and `initial` is as there: a cord holds the rows of
    one label that agree, within `tol`, in their probability of each processed block, and a cord
    splits blocks as there. A part b of a processed block splits a cord by the probability of b. The
    largest part keeps the cord's number, so a row is in at most log2(m) + 1 processed cords.
    """
    num_states = len(offsets) - 1
    cords = build_partition(labels, num_labels)
    blocks = build_partition(initial, num_initial)
    bundles = build_bundles(source, num_states)
    sums = np.zeros(len(labels), np.int64)  # the probability of block b, per row
    scratch, ends = np.empty_like(labels), np.empty_like(labels)
    b, c = 1, 1  # block 0 and cord 0 are the complements of the others
    while True:
        if c < cords.counts[0]:
            members = cords.order[cords.start[c] : cords.stop[c]]
            split_by_cord(blocks, members, source, match_freely, bundles)
            c += 1
        elif b < blocks.counts[0]:
            found = 0
            for t in blocks.order[blocks.start[b] : blocks.stop[b]]:
                for i in range(offsets[t], offsets[t + 1]):
                    row = rows[i]
                    if sums[row] == 0 and weights[i] > 0:
                        scratch[found] = row
                        found += 1
                    sums[row] += weights[i]
            mark(cords, scratch[:found])
            split_by_sums(cords, sums, tol, scratch, ends)
            b += 1
        else:
            return number_blocks(blocks)


@njit(cache=True)
def split_by_sums(
    cords: Partition,
    sums: NDArray[np.int64],
    tol: int,
    scratch: NDArray[Any],
    ends: NDArray[Any],
) -> None:
    """Split each cord by the sums of its rows, where these differ by more than `tol`.

    Unmarked rows have the sum 0. The largest part keeps the number of the cord, the others get new
    ones. All sums are reset to 0.
    """
    order, position, _, start, stop, marked, touched, counts = cords
    for c in touched[: counts[1]]:
        first, middle, last = start[c], start[c] + marked[c], stop[c]
        marked[c] = 0
        members = order[first:middle]
        low = high = sums[members[0]]
        for row in members:
            low, high = min(low, sums[row]), max(high, sums[row])
        found = 0
        if high - low > tol:
            found = order_by_sums(members, sums, tol, scratch, ends)
            for i in range(first, middle):
                position[order[i]] = i
        sums[members] = 0
        if low > tol and middle < last:
            ends[found] = middle - first
            found += 1
        ends[found] = last - first

        begin, widest = first, first
        for k in range(found + 1):
            end = first + ends[k]
            if end - begin > stop[c] - start[c] or k == 0:
                start[c], stop[c], widest = begin, end, begin
            begin = end
        begin = first
        for k in range(found + 1):
            if begin != widest:
                create_block(cords, begin, first + ends[k])
            begin = first + ends[k]
    counts[1] = 0


@njit(cache=True)
def order_by_sums(
    members: NDArray[Any],
    sums: NDArray[np.int64],
    tol: int,
    scratch: NDArray[Any],
    ends: NDArray[Any],
) -> int:
    """Sort rows by decreasing sum, store in `ends` where gaps above `tol` are; return how many.

    A majority sum is found by voting (Boyer & Moore 1991), and only the other rows are sorted:
    these end up in parts of at most half the size, so that sorting does not dominate. Rows within
    `tol` of the majority sum stay together in any order.
    """
    common, votes = np.int64(0), 0
    for row in members:
        if votes == 0:
            common = sums[row]
        votes += 1 if abs(sums[row] - common) <= tol else -1

    near, others, above = 0, 0, 0
    low = high = common
    for row in members:
        value = sums[row]
        if abs(value - common) <= tol:
            members[near] = row
            near += 1
            low, high = min(low, value), max(high, value)
        else:
            scratch[others] = row
            others += 1
            above += value > common
    rest = scratch[:others]
    rest[:] = rest[np.argsort(-sums[rest])]
    for i in range(min(above, near)):  # free the front for the larger sums
        members[max(above, near) + i] = members[i]
    members[:above] = rest[:above]
    members[above + near :] = rest[above:]

    found = 0
    below = above + near
    for i in range(len(members) - 1):
        if above <= i < below - 1:
            continue
        here = low if i == below - 1 else sums[members[i]]
        after = high if i == above - 1 else sums[members[i + 1]]
        if here - after > tol:
            ends[found] = i + 1
            found += 1
    return found
