"""Complete linkage: the two classes are merged whose farthest members are nearest, and so on.

A chain of nearest neighbours finds all merges in O(n^2) (Benzécri 1982; Müllner 2011, Modern
hierarchical, agglomerative clustering algorithms). It works on half of the table, a copy, in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


def complete_linkage(
    distances: NDArray[np.floating], *, radius: float = np.inf, clusters: int = 1
) -> NDArray[np.int64]:
    """The classes (n,) of a symmetric table (n, n), numbered by first appearance.

    Classes are merged, the nearest two first, while there are more than `clusters` and the farthest
    members of the two are within `radius`.

    >>> table = np.abs(np.subtract.outer([0.0, 1, 5, 7], [0.0, 1, 5, 7]))
    >>> complete(table, clusters=2).tolist(), complete(table, radius=1.0).tolist()
    ([0, 0, 1, 1], [0, 0, 1, 2])
    """
    pairs, heights = compute_merges(distances)
    # Among equal heights the order stands, in which a class comes before what it is merged into.
    order = np.argsort(heights, kind="stable")
    order = order[: max(len(distances) - clusters, 0)]
    order = order[heights[order] <= radius]
    return np.asarray(_label_merges(len(distances), pairs[order]), np.int64)


def compute_merges(
    distances: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """All n - 1 merges: a state of each of the two classes, (n - 1, 2), and how far apart they are.

    They are in the order in which they are found, not in that of the distances.
    """
    states = len(distances)
    half = np.empty(states * (states - 1) // 2, distances.dtype)
    _condense(distances, half)
    pairs = np.empty((max(states - 1, 0), 2), np.int64)
    heights = np.empty(len(pairs), distances.dtype)
    _nearest_neighbour_chain(half, states, pairs, heights)
    return pairs, heights


@njit(cache=True)
def _condense(distances: Any, condensed: Any) -> None:
    """The distances of the pairs t < s, row by row."""
    at = 0
    for s in range(len(distances)):
        for t in range(s):
            condensed[at] = distances[s, t]
            at += 1


@njit(cache=True, inline="always")
def _condensed_index(s: int, t: int) -> int:
    return s * (s - 1) // 2 + t if s > t else t * (t - 1) // 2 + s


@njit(cache=True)
def _nearest_neighbour_chain(condensed: Any, num_states: int, pairs: Any, heights: Any) -> None:
    """Finds all merges; of a class one state is left, and has its distances."""
    left = np.arange(num_states)
    count, length = num_states, 0
    chain = np.empty(num_states, np.int64)
    for merge in range(num_states - 1):
        if length == 0:
            chain[0], length = left[0], 1
        while True:
            # Each class leads to its nearest one; of equals the one before, so that it ends.
            s, nearest = chain[length - 1], -1
            least = np.inf
            if length > 1:
                nearest = chain[length - 2]
                least = condensed[_condensed_index(s, nearest)]
            for i in range(count):
                t = left[i]
                if t != s and condensed[_condensed_index(s, t)] < least:
                    least, nearest = condensed[_condensed_index(s, t)], t
            if length > 1 and nearest == chain[length - 2]:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        gone, stays = max(s, nearest), min(s, nearest)
        pairs[merge, 0], pairs[merge, 1], heights[merge] = stays, gone, least
        kept = 0
        for i in range(count):
            t = left[i]
            if t == gone:
                continue
            left[kept] = t
            kept += 1
            if t != stays:
                farther = condensed[_condensed_index(gone, t)]
                if farther > condensed[_condensed_index(stays, t)]:
                    condensed[_condensed_index(stays, t)] = farther
        count = kept


@njit(cache=True)
def _label_merges(num_states: int, pairs: Any) -> Any:
    """The classes that the merges make: a forest, in which the smaller state is the root."""
    root = np.arange(num_states)
    for i in range(len(pairs)):
        s, t = pairs[i]
        while root[s] != s:
            s = root[s]
        while root[t] != t:
            t = root[t]
        root[max(s, t)] = min(s, t)
    labels, found = np.empty(num_states, np.int64), 0
    for s in range(num_states):
        if root[s] == s:
            labels[s] = found
            found += 1
        else:
            # A root is smaller, so that it has its label.
            labels[s] = labels[root[s]]
    return labels
