"""Compiled recursion along time for pairs of recorded steps, diagonal by diagonal.

The pair (i, j) leads to (i + 1, j + 1), which lies on the same diagonal of the matrix. So diagonals
are independent of each other: a thread takes a band of them, holds the latest value of each in a
buffer that fits into the cache, and writes one contiguous part of each row, last row first. Sums
are taken in float64 whatever the dtype of the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact.deterministic.table_kernels import NO_NANS, map_rows

Array = NDArray[Any]

CONTINUES, TERMINATED, UNRECORDED = 0, 1, 2
"""What follows a step: the next one, the absorbing terminal state, or an unrecorded future."""


def fill_distances(
    out: Array,
    reward: Array,
    ending: Array,
    discount: float,
    tail: float,
    segments: Array,
) -> float:
    """Set the distances between some steps, and from the terminal state; return the largest.

        d(i, j) = |r_i - r_j| + discount * d(i + 1, j + 1)

    The largest is that of all pairs of steps, also of those that `out` has no entry for.

    Args:
        out: (m, m), or (m + 1, m + 1) with the terminal state as its last.
        reward: (n,) float64.
        ending: (n,) uint8: what follows each step, never `CONTINUES` for the last one.
        discount: in [0, 1).
        tail: the distance where one of two futures is unrecorded.
        segments: (k, 3): the first step of each run of consecutive steps in `out`, the step after
            its last one, and the index of the first one in `out`.
    """
    n, m = len(reward), int(segments[-1, 2] + segments[-1, 1] - segments[-1, 0])
    ends = np.flatnonzero(ending != CONTINUES)
    from_end, after_end = np.empty(n), np.empty(n)
    _compute_terminal_distances(reward, ending, discount, tail, from_end, after_end)
    row_of = np.full(n, -1, np.int64)
    for start, stop, index in segments.tolist():
        row_of[start:stop] = np.arange(index, index + stop - start)

    def fill(low: int, high: int) -> float:
        first = low - (n - 1)
        return float(
            _fill_band(
                out, reward, ending, after_end, ends, segments, row_of, discount, tail, first,
                high - low,
            )
        )  # fmt: skip

    largest = max(map_rows(fill, 2 * n - 1, n))
    if len(out) > m:
        out[m, :m] = out[:m, m] = from_end[row_of >= 0]
        out[m, m] = 0.0
        largest = max(largest, float(from_end.max()))
    return largest


@njit(cache=True, nogil=True)
def _compute_terminal_distances(reward, ending, discount, tail, from_end, after_end):
    """Set the distance of the terminal state from each step, and from what follows each step."""
    for i in range(len(reward) - 1, -1, -1):
        if ending[i] == CONTINUES:
            after_end[i] = from_end[i + 1]
        else:
            after_end[i] = 0.0 if ending[i] == TERMINATED else tail
        from_end[i] = abs(reward[i]) + discount * after_end[i]


@njit(cache=True, nogil=True, fastmath=NO_NANS)
def _fill_band(
    out, reward, ending, after_end, ends, segments, row_of, discount, tail, first, width
):
    """Fill the diagonals j - i = first to first + width - 1; return the largest value."""
    n = len(reward)
    band = np.zeros(width)
    largest = 0.0
    for i in range(n - 1, -1, -1):
        low, high = max(0, i + first), min(n, i + first + width)
        if low >= high:
            continue
        size = high - low
        # The value of (i + 1, j + 1) is replaced by that of (i, j).
        values = band[low - i - first : high - i - first]
        others = reward[low:high]
        own = reward[i]
        if ending[i] == CONTINUES:
            for k in range(size):
                values[k] = abs(own - others[k]) + discount * values[k]
            at = np.searchsorted(ends, low)
            while at < len(ends) and ends[at] < high:
                j = ends[at]
                following = after_end[i] if ending[j] == TERMINATED else tail
                values[j - low] = abs(own - reward[j]) + discount * following
                at += 1
        elif ending[i] == TERMINATED:
            following_values = after_end[low:high]
            for k in range(size):
                values[k] = abs(own - others[k]) + discount * following_values[k]
        else:
            for k in range(size):
                values[k] = abs(own - others[k]) + discount * tail
        if low <= i < high:
            values[i - low] = 0.0
        for k in range(size):
            largest = max(largest, values[k])
        if row_of[i] < 0:
            continue
        row = out[row_of[i]]
        at = np.searchsorted(segments[:, 1], low, side="right")
        while at < len(segments) and segments[at, 0] < high:
            start, stop = max(low, segments[at, 0]), min(high, segments[at, 1])
            shift = segments[at, 2] - segments[at, 0]
            part, source = row[start + shift : stop + shift], values[start - low : stop - low]
            for k in range(stop - start):
                part[k] = source[k]
            at += 1
    return largest
