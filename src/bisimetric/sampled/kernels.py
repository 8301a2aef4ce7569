"""Which pairs of transitions are drawn: random numbers by count, weights by alias, and walks.

Equation 3 of Castro (2020) on many pairs of transitions, in place; and what it has reached.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numba import uint64
from numpy.typing import NDArray

SPLITMIX_INCREMENT = 0x9E3779B97F4A7C15
SPLITMIX_FIRST, SPLITMIX_SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
UNIT_SCALE = 1.0 / 2**53


class AliasTable(NamedTuple):
    """Weights as alias tables (Walker 1977): one draw costs one random number.

    A draw lands on `low + k` for one of n equal parts k, and stays with probability
    `keep[low + k]`, else goes to `other[low + k]`.
    """

    threshold: NDArray[np.float64]
    alias: NDArray[np.int32]


def derive_seed(seed: int) -> np.uint64:
    """The seed of the random numbers of a key."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@numba.njit(cache=True, inline="always")
def uniform(seed, count):
    """The random number with a given count, in [0, 1): SplitMix64 (Steele et al. 2014).

    It is a function of seed and count alone, so that a run can go on from anywhere.
    """
    z = seed + (uint64(count) + uint64(1)) * uint64(SPLITMIX_INCREMENT)
    z = (z ^ (z >> uint64(30))) * uint64(SPLITMIX_FIRST)
    z = (z ^ (z >> uint64(27))) * uint64(SPLITMIX_SECOND)
    z = z ^ (z >> uint64(31))
    return (z >> uint64(11)) * UNIT_SCALE


@numba.njit(cache=True, inline="always")
def draw_alias(u, low, size, threshold, alias):
    """The entry, from `low` to `low + size`, that a random number u stands for."""
    x = u * size
    k = min(int(x), size - 1)
    return low + k if x - k < threshold[low + k] else alias[low + k]


@numba.njit(cache=True)
def build_alias_table(weight, offsets):
    """The alias tables of the weights between each two entries of `start` (Vose 1991)."""
    keep = np.ones(len(weight))
    other = np.arange(len(weight)).astype(np.int32)
    small = np.empty(len(weight), np.int32)
    large = np.empty(len(weight), np.int32)
    for part in range(len(offsets) - 1):
        low, high = offsets[part], offsets[part + 1]
        total = weight[low:high].sum()
        smalls = larges = 0
        for i in range(low, high):
            keep[i] = weight[i] / total * (high - low) if total > 0 else 1.0
            if keep[i] < 1:
                small[smalls] = i
                smalls += 1
            else:
                large[larges] = i
                larges += 1
        while smalls and larges:
            smalls -= 1
            i, j = small[smalls], large[larges - 1]
            other[i] = j
            keep[j] -= 1 - keep[i]
            if keep[j] < 1:
                larges -= 1
                small[smalls] = j
                smalls += 1
        # What rounding left over keeps its place, unless it has no weight at all.
        for k in range(smalls):
            if weight[small[k]] > 0:
                keep[small[k]] = 1.0
            else:
                other[small[k]] = low + np.argmax(weight[low:high])
                keep[small[k]] = 0.0
        for k in range(larges):
            keep[large[k]] = 1.0
    return keep, other


@numba.njit(nogil=True, cache=True)
def sample_weighted_pairs(rows, row_alias, group_alias, seed, first_step, i, j):
    """Fills i and j: a row by its weight, and another of its group by its weight."""
    for k in range(len(i)):
        one = draw_alias(
            uniform(seed, 2 * (first_step + k)), 0, len(rows.state), row_alias.keep, row_alias.other
        )
        low = rows.start[rows.group[one]]
        size = rows.start[rows.group[one] + 1] - low
        i[k] = one
        j[k] = draw_alias(
            uniform(seed, 2 * (first_step + k) + 1), low, size, group_alias.keep, group_alias.other
        )


@numba.njit(nogil=True, cache=True)
def sample_state_pairs(rows, row_index, row_alias, seed, position, i, j):
    """Fills i and j with all groups of one pair of states after the other.

    `position` is (2,): how many pairs of states were drawn, and the next group of the last one.
    """
    filled = 0
    groups = len(rows.start) - 1
    while filled < len(i):
        n, g = position
        size = len(rows.state)
        one = draw_alias(uniform(seed, 2 * n), 0, size, row_alias.keep, row_alias.other)
        two = draw_alias(uniform(seed, 2 * n + 1), 0, size, row_alias.keep, row_alias.other)
        a, b = row_index[g, rows.state[one]], row_index[g, rows.state[two]]
        if a >= 0 and b >= 0:
            i[filled], j[filled] = a, b
            filled += 1
        position[1] = (g + 1) % groups
        position[0] = n + (g + 1) // groups


@numba.njit(nogil=True, cache=True)
def sample_walk_pairs(
    rows,
    row_index,
    cumulative_policy,
    restart,
    seed,
    first_step,
    current_state,
    seen,
    num_seen,
    i,
    j,
):
    """Fills i and j: the steps of a walk, each with one of its group that was seen before.

    `choices` (S, G) are the probabilities of the actions, added up; `at` (1,) is where the walk
    stands, -1 where it starts anew. `seen[g, :count[g]]` are the states that group g was seen in.
    """
    states = len(cumulative_policy)
    for k in range(len(i)):
        n = 4 * (first_step + k)
        if current_state[0] < 0 or uniform(seed, n) < restart:
            current_state[0] = int(uniform(seed, n + 1) * states)
        u, g = uniform(seed, n + 2), 0
        while g < cumulative_policy.shape[1] - 1 and u >= cumulative_policy[current_state[0], g]:
            g += 1
        i[k] = row_index[g, current_state[0]]
        j[k] = sample_earlier_row(rows, row_index, seen, num_seen, i[k], uniform(seed, n + 3))
        current_state[0] = rows.successor[i[k]]


@numba.njit(nogil=True, cache=True)
def sample_recorded_pairs(
    rows, row_index, order, seed, first_step, start_step, seen, num_seen, i, j
):
    """Fills i and j: the rows of a record in its order, round and round, as in a walk.

    `at` (1,) is the number of the step that its first row was, -1 where it was not yet read.
    """
    if start_step[0] < 0:
        start_step[0] = first_step
    for k in range(len(i)):
        i[k] = order[(first_step + k - start_step[0]) % len(order)]
        j[k] = sample_earlier_row(
            rows, row_index, seen, num_seen, i[k], uniform(seed, first_step + k)
        )


@numba.njit(nogil=True, cache=True)
def sample_earlier_row(rows, row_index, seen, num_seen, row, u):
    """A row of the same group that was seen until here; remembers this one."""
    g, s = rows.group[row], rows.state[row]
    # States beyond the first count[g] are those that were not seen, in any order.
    where = seen[1, g, s]
    if where >= num_seen[g]:
        swapped = seen[0, g, num_seen[g]]
        seen[0, g, where], seen[1, g, swapped] = swapped, where
        seen[0, g, num_seen[g]], seen[1, g, s] = s, num_seen[g]
        num_seen[g] += 1
    return row_index[g, seen[0, g, int(u * num_seen[g])]]


PREFETCHED_PAIRS = 256
"""Pairs whose entries the processor may fetch at once."""


@numba.njit(nogil=True, cache=True)
def apply_updates(values, paired, rows, discount, i, j):
    """d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t')) for rows i and j, one by one.

    `values` (S, S) stays symmetric, and bit g of `met[s, t]`, s < t, remembers that their rows of
    group g were drawn together. Returns the largest rise.
    """
    states = len(values)
    table, seen = values.ravel(), paired.reshape(-1, paired.shape[2])
    rise = 0.0
    here, there = np.empty(PREFETCHED_PAIRS, np.int64), np.empty(PREFETCHED_PAIRS, np.int64)
    gap = np.empty(PREFETCHED_PAIRS)
    for first in range(0, len(i), PREFETCHED_PAIRS):
        size = min(PREFETCHED_PAIRS, len(i) - first)
        # Two loops: the processor fetches the entries of many pairs at once in the second.
        for k in range(size):
            a, b = i[first + k], j[first + k]
            s, t = rows.state[a], rows.state[b]
            here[k] = min(s, t) * states + max(s, t)
            s, t = rows.successor[a], rows.successor[b]
            there[k] = min(s, t) * states + max(s, t)
            gap[k] = abs(rows.reward[a] - rows.reward[b])
        for k in range(size):
            at, g = here[k], rows.group[i[first + k]]
            seen[at, g >> 3] |= np.uint8(1 << (g & 7))
            value = gap[k] + discount * table[there[k]]
            if value > table[at]:
                rise = max(rise, value - table[at])
                table[at] = value
                table[(at % states) * states + at // states] = value
    return rise


@numba.njit(nogil=True, cache=True)
def compute_residual(values, rows, discount, mask, low, high):
    """The largest rise that rows low to high could still make, and the largest |r - r'| + ... .

    Only pairs with `counts[s, t]` are looked at; an empty `counts` (0, 0) means all.
    """
    rise, largest = 0.0, 0.0
    everyone = mask.shape[0] == 0
    for a in range(low, high):
        s, next_s = rows.state[a], rows.successor[a]
        for b in range(rows.start[rows.group[a]], a):
            if everyone or mask[s, rows.state[b]]:
                gap = abs(rows.reward[a] - rows.reward[b])
                value = gap + discount * values[next_s, rows.successor[b]]
                rise = max(rise, value - values[s, rows.state[b]])
                largest = max(largest, value)
    return rise, largest


@numba.njit(nogil=True, cache=True)
def count_paired(paired, low, high):
    """How many pairs of rows were drawn together, for the states from low to high."""
    count = 0
    for s in range(low, high):
        for t in range(s + 1, paired.shape[1]):
            for word in paired[s, t]:
                while word:
                    word &= word - 1
                    count += 1
    return count


@numba.njit(nogil=True, cache=True)
def remove_undetermined(determined, rows, predecessors, predecessor_offsets):
    """Takes from `together` (S, S) the pairs that lead to a pair outside of it, in place.

    A state and itself are always at distance 0. Rows of group g that lead to state s are
    `backwards[back_start[g, s] : back_start[g, s + 1]]`.
    """
    states = len(determined)
    groups = len(rows.start) - 1
    waiting = np.empty((states * (states - 1) // 2, 2), np.int32)
    size = 0
    for s in range(states):
        determined[s, s] = True
        for t in range(s):
            if not determined[s, t]:
                waiting[size] = s, t
                size += 1
    while size:
        size -= 1
        s, t = waiting[size]
        for g in range(groups):
            for a in predecessors[predecessor_offsets[g, s] : predecessor_offsets[g, s + 1]]:
                for b in predecessors[predecessor_offsets[g, t] : predecessor_offsets[g, t + 1]]:
                    u, v = rows.state[a], rows.state[b]
                    if u != v and determined[u, v]:
                        determined[u, v] = determined[v, u] = False
                        waiting[size] = u, v
                        size += 1
