"""Classes that grow state by state: the rule of the supplement of Castro (2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

NUM_BISECTIONS = 24
"""How often the way to a radius is halved: it is found to a ten-millionth of its range."""


def cluster_incrementally(distances: NDArray[np.floating], radius: float) -> NDArray[np.int64]:
    """The classes (n,), numbered 0, 1, ..., that grow from a symmetric table (n, n).

    State after state joins the first class all of whose members are within `radius`, else it
    starts one; so no two states of a class are farther apart. This is the rule that the paper's
    text gives. The snippet printed there loses members: it drops what `np.append` returns, so that
    nobody ever joins, and begins a class with all states near its first one, which need not be
    near each other and are taken away from the classes that held them.

    Each pair of states is looked at once at most, and nothing but the members is kept.

    >>> incremental(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]), 1.0).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(distances), np.int64)
    _assign_incrementally(distances, float(radius), len(distances), labels)
    return labels


def find_smallest_radius(
    distances: NDArray[np.floating], max_clusters: int, *, num_bisections: int = NUM_BISECTIONS
) -> float:
    """A radius at which there are at most `most` classes, as small as halving finds it.

    The range from 0 to the largest distance is halved `halvings` times, and of what is left the
    largest distance is taken. The rule is greedy: a still smaller radius may happen to do, and is
    not searched for.

    >>> table = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    >>> smallest_radius(table, 4)
    1.0
    """
    labels = np.empty(len(distances), np.int64)
    if _assign_incrementally(distances, 0.0, max_clusters, labels):
        return 0.0
    low, high = 0.0, _largest_distance_below(distances, np.inf)
    for _ in range(num_bisections):
        middle = (low + high) / 2
        if _assign_incrementally(distances, middle, max_clusters, labels):
            high = middle
        else:
            low = middle
    # A radius between two distances means the same as the smaller of them.
    return float(_largest_distance_below(distances, high))


@njit(cache=True)
def _assign_incrementally(distances: Any, radius: float, max_clusters: int, labels: Any) -> bool:
    """Writes the labels; whether there are no more than `most`."""
    states, found = len(distances), 0
    # Members as lists: of a class the last one to join, of a member the one before it.
    last, before = np.empty(states, np.int64), np.empty(states, np.int64)
    for s in range(states):
        label = found
        for each in range(found):
            member = last[each]
            while member >= 0 and distances[s, member] <= radius:
                member = before[member]
            if member < 0:
                label = each
                break
        before[s] = last[label] if label < found else -1
        last[label], labels[s] = s, label
        found = max(found, label + 1)
        if found > max_clusters:
            return False
    return True


@njit(cache=True)
def _largest_distance_below(distances: Any, bound: float) -> float:
    """The largest distance of two states up to a bound, or 0."""
    largest = 0.0
    for s in range(len(distances)):
        for t in range(s):
            if largest < distances[s, t] <= bound:
                largest = distances[s, t]
    return largest
