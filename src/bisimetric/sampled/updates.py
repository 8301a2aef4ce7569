"""Equation 3 of Castro (2020) on many pairs of transitions, in place; and what it has reached."""

from __future__ import annotations

import numba
import numpy as np

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
