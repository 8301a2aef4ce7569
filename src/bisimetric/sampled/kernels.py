"""Kernels of sampled distances: random pairs of transitions, and updates by equation 3.

Random numbers are a function of the seed and a counter, weighted samples use alias tables.
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
    """Weights as alias tables (Walker 1977): one sample costs one random number.

    A sample selects one of n equal parts k; it is `low + k` with probability `threshold[low + k]`,
    otherwise `alias[low + k]`.
    """

    threshold: NDArray[np.float64]
    alias: NDArray[np.int32]


def derive_seed(seed: int) -> np.uint64:
    """Derive the 64-bit seed of the kernels."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@numba.njit(cache=True, inline="always")
def uniform(seed, count):
    """Return the random number with a given counter, in [0, 1): SplitMix64 (Steele et al. 2014).

    It is a function of seed and counter alone, so that a run can be resumed anywhere.
    """
    z = seed + (uint64(count) + uint64(1)) * uint64(SPLITMIX_INCREMENT)
    z = (z ^ (z >> uint64(30))) * uint64(SPLITMIX_FIRST)
    z = (z ^ (z >> uint64(27))) * uint64(SPLITMIX_SECOND)
    z = z ^ (z >> uint64(31))
    return (z >> uint64(11)) * UNIT_SCALE


@numba.njit(cache=True, inline="always")
def draw_alias(u, low, size, threshold, alias):
    """Map a random number u to an entry from `low` to `low + size` - 1."""
    x = u * size
    k = min(int(x), size - 1)
    return low + k if x - k < threshold[low + k] else alias[low + k]


@numba.njit(cache=True)
def build_alias_table(weight, offsets):
    """Build the alias tables of the weights between consecutive `offsets` (Vose 1991)."""
    threshold = np.ones(len(weight))
    alias = np.arange(len(weight)).astype(np.int32)
    small = np.empty(len(weight), np.int32)
    large = np.empty(len(weight), np.int32)
    for part in range(len(offsets) - 1):
        low, high = offsets[part], offsets[part + 1]
        total = weight[low:high].sum()
        smalls = larges = 0
        for i in range(low, high):
            threshold[i] = weight[i] / total * (high - low) if total > 0 else 1.0
            if threshold[i] < 1:
                small[smalls] = i
                smalls += 1
            else:
                large[larges] = i
                larges += 1
        while smalls and larges:
            smalls -= 1
            i, j = small[smalls], large[larges - 1]
            alias[i] = j
            threshold[j] -= 1 - threshold[i]
            if threshold[j] < 1:
                larges -= 1
                small[smalls] = j
                smalls += 1
        # Entries left over by rounding keep their own index, unless their weight is 0.
        for k in range(smalls):
            if weight[small[k]] > 0:
                threshold[small[k]] = 1.0
            else:
                alias[small[k]] = low + np.argmax(weight[low:high])
                threshold[small[k]] = 0.0
        for k in range(larges):
            threshold[large[k]] = 1.0
    return threshold, alias


@numba.njit(nogil=True, cache=True)
def sample_weighted_pairs(rows, row_alias, group_alias, seed, first_step, i, j):
    """Fill i and j with a row by its weight, and another of its group by its weight."""
    for k in range(len(i)):
        u = uniform(seed, 2 * (first_step + k))
        first = draw_alias(u, 0, len(rows.state), row_alias.threshold, row_alias.alias)
        low = rows.start[rows.group[first]]
        size = rows.start[rows.group[first] + 1] - low
        i[k] = first
        u = uniform(seed, 2 * (first_step + k) + 1)
        j[k] = draw_alias(u, low, size, group_alias.threshold, group_alias.alias)


@numba.njit(nogil=True, cache=True)
def sample_state_pairs(rows, row_index, row_alias, seed, position, i, j):
    """Fill i and j with all groups of one pair of states after the other.

    `position` is (2,): the number of pairs of states so far, and the next group of the last one.
    """
    filled = 0
    groups = len(rows.start) - 1
    while filled < len(i):
        n, g = position
        size = len(rows.state)
        threshold, alias = row_alias.threshold, row_alias.alias
        first = draw_alias(uniform(seed, 2 * n), 0, size, threshold, alias)
        second = draw_alias(uniform(seed, 2 * n + 1), 0, size, threshold, alias)
        a, b = row_index[g, rows.state[first]], row_index[g, rows.state[second]]
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
    """Fill i and j with the steps of a random walk, each with an earlier one of its group.

    `cumulative_policy` (S, G) are cumulative action probabilities; `current_state` (1,) is that of
    the walk, -1 to restart it; `seen[0, g, :num_seen[g]]` are the states in which group g was seen,
    and `seen[1]` is the inverse of the permutation `seen[0]`.
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
    """Fill i and j with the rows of recorded data, cyclically, each with an earlier one.

    `start_step` (1,) is the step of the first row, -1 if it was not read yet.
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
    """Add a row to those seen, and sample one of them of the same group."""
    g, s = rows.group[row], rows.state[row]
    # States beyond the first num_seen[g] are the unseen ones, in any order.
    position = seen[1, g, s]
    if position >= num_seen[g]:
        swapped = seen[0, g, num_seen[g]]
        seen[0, g, position], seen[1, g, swapped] = swapped, position
        seen[0, g, num_seen[g]], seen[1, g, s] = s, num_seen[g]
        num_seen[g] += 1
    return row_index[g, seen[0, g, int(u * num_seen[g])]]


@numba.njit(cache=True, inline="always")
def compute_gap(rows, a, b):
    """Return the immediate cost of rows a and b of one group: |r - r'|, and `rows.cost` if any."""
    gap = abs(rows.reward[a] - rows.reward[b])
    if rows.cost.shape[0] == 0:
        return gap
    group = min(rows.group[a], rows.cost.shape[0] - 1)
    return gap + rows.cost[group, rows.state[a], rows.state[b]]


PREFETCHED_PAIRS = 256
"""Pairs whose entries the processor may prefetch."""


@numba.njit(nogil=True, cache=True)
def apply_updates(values, paired, rows, discount, i, j):
    """Set d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t')) for rows i and j, in order.

    `values` (S, S) stays symmetric, and bit g of `paired[s, t]`, s < t, is set where their rows of
    group g are sampled together. Returns the largest increase.
    """
    states = len(values)
    flat, bits = values.ravel(), paired.reshape(-1, paired.shape[2])
    increase = 0.0
    entry, successor = np.empty(PREFETCHED_PAIRS, np.int64), np.empty(PREFETCHED_PAIRS, np.int64)
    gap = np.empty(PREFETCHED_PAIRS)
    for first in range(0, len(i), PREFETCHED_PAIRS):
        size = min(PREFETCHED_PAIRS, len(i) - first)
        # Two loops, so that the processor prefetches the entries of many pairs in the second.
        for k in range(size):
            a, b = i[first + k], j[first + k]
            s, t = rows.state[a], rows.state[b]
            entry[k] = min(s, t) * states + max(s, t)
            s, t = rows.successor[a], rows.successor[b]
            successor[k] = min(s, t) * states + max(s, t)
            gap[k] = compute_gap(rows, a, b)
        for k in range(size):
            index, g = entry[k], rows.group[i[first + k]]
            bits[index, g >> 3] |= np.uint8(1 << (g & 7))
            value = gap[k] + discount * flat[successor[k]]
            if value > flat[index]:
                increase = max(increase, value - flat[index])
                flat[index] = value
                flat[(index % states) * states + index // states] = value
    return increase


@numba.njit(nogil=True, cache=True)
def compute_residual(values, rows, discount, mask, low, high):
    """Return the largest increase that rows low to high could make, and the largest F(d).

    Only pairs with `mask[s, t]` are examined; an empty `mask` (0, 0) selects all.
    """
    increase, largest = 0.0, 0.0
    unmasked = mask.shape[0] == 0
    for a in range(low, high):
        s, next_s = rows.state[a], rows.successor[a]
        for b in range(rows.start[rows.group[a]], a):
            if unmasked or mask[s, rows.state[b]]:
                value = compute_gap(rows, a, b) + discount * values[next_s, rows.successor[b]]
                increase = max(increase, value - values[s, rows.state[b]])
                largest = max(largest, value)
    return increase, largest


@numba.njit(nogil=True, cache=True)
def count_paired(paired, low, high):
    """Count the pairs of rows that were sampled together, for states low to high."""
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
    """Remove from `determined` (S, S), in place, the pairs that reach a pair outside of it.

    A state and itself are always at distance 0. Rows of group g that lead to state s are
    `predecessors[predecessor_offsets[g, s] : predecessor_offsets[g, s + 1]]`.
    """
    states = len(determined)
    groups = len(rows.start) - 1
    worklist = np.empty((states * (states - 1) // 2, 2), np.int32)
    size = 0
    for s in range(states):
        determined[s, s] = True
        for t in range(s):
            if not determined[s, t]:
                worklist[size] = s, t
                size += 1
    while size:
        size -= 1
        s, t = worklist[size]
        for g in range(groups):
            for a in predecessors[predecessor_offsets[g, s] : predecessor_offsets[g, s + 1]]:
                for b in predecessors[predecessor_offsets[g, t] : predecessor_offsets[g, t + 1]]:
                    u, v = rows.state[a], rows.state[b]
                    if u != v and determined[u, v]:
                        determined[u, v] = determined[v, u] = False
                        worklist[size] = u, v
                        size += 1
