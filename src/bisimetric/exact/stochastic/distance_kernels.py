"""Kernels on distances that are stored once per pair, see `Costs`."""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric._transport import NO_ALLOCATION


@njit(cache=True, inline="always")
def decode_pair(costs, pair):
    """Return the two states of a pair, the larger first."""
    if costs.pair_codes.size > 0:
        return costs.pair_codes[pair] // costs.num_states, costs.pair_codes[pair] % costs.num_states
    s = np.int64((1 + np.sqrt(1.0 + 8.0 * pair)) / 2)
    while s * (s - 1) // 2 > pair:
        s -= 1
    while (s + 1) * s // 2 <= pair:
        s += 1
    return s, pair - s * (s - 1) // 2


@njit(cache=True, inline="always")
def find_next_pair(costs, pairs, row, first, s, t):
    """Return pair number `row` of the current pairs and its states; s, t are those of the last."""
    pair = np.int64(pairs[row]) if pairs.size > 0 else row
    if row == first or costs.pair_codes.size > 0 or pair != s * (s - 1) // 2 + t + 1:
        s, t = decode_pair(costs, pair)
        return pair, s, t
    if t + 1 < s:
        return pair, s, t + 1
    return pair, s + 1, 0


@njit(nogil=True, **NO_ALLOCATION)
def fill_differences(values, distances, low, high):
    """Set the distances of states low to high and all smaller ones to |values[s] - values[t]|."""
    for s in range(low, high):
        for t in range(s):
            distances[1 + s * (s - 1) // 2 + t] = abs(values[s] - values[t])


@njit(nogil=True, **NO_ALLOCATION)
def expand_matrix(distances, position, scale, matrix, low, high):
    """Write rows low to high of the distance matrix; state s is number position[s] of the pairs."""
    for s in range(low, high):
        i = position[s]
        for t in range(len(position)):
            j = position[t]
            larger, smaller = (i, j) if i > j else (j, i)
            pair = larger * (larger - 1) // 2 + smaller
            matrix[s, t] = distances[1 + pair] * scale if i != j else 0.0


@njit(nogil=True, **NO_ALLOCATION)
def round_matrix(values, floor, rounded, low, high):
    """Round rows low to high of a distance matrix, raised to `floor` off the diagonal.

    Returns the largest change of an entry. `rounded` may be `values`.
    """
    largest = 0.0
    for s in range(low, high):
        for t in range(len(values)):
            before = values[s, t]
            if s != t and before < floor:
                rounded[s, t] = floor
            else:
                rounded[s, t] = before
            largest = max(largest, abs(np.float64(rounded[s, t]) - before))
    return largest
