"""Decide which distances of a labelled Markov chain are 1, by reachability on pairs of states.

In a chain whose states are pairwise not bisimilar, d(s, t) < 1 iff a pair of equal states can be
reached from (s, t) in the graph on pairs of states with equal labels with the edges

    (s, t) -> (u, v)    for P(s)(u) > 0 and P(t)(v) > 0.

Tang & van Breugel (2018), Deciding probabilistic bisimilarity distance one for labelled Markov
chains, CAV 2018.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.exact.undiscounted_solver.fixed_point import FixedPointRows

DISTANCE_ONE = -1
"""The number of a pair at distance 1."""


class UndecidedPairs(NamedTuple):
    """The pairs whose distance is strictly between 0 and 1.

    `number` (S, S), symmetric, is the position of a pair in `first` and `second` (the larger state
    first), or `DISTANCE_ONE`, also on the diagonal, which is not read.
    """

    number: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return len(self.first)


def find_undecided_pairs(chain: FixedPointRows, label_classes: NDArray[np.int64]) -> UndecidedPairs:
    """Return the pairs of different states whose distance is neither 0 nor 1.

    The states of the chain must be pairwise not bisimilar.
    """
    states = len(label_classes)
    entries = (np.ones(len(chain.successors), np.int8), chain.successors, chain.row_starts)
    backward = sparse.csr_array(entries, (states, states)).tocsc()
    number = np.full((states, states), DISTANCE_ONE, np.int32)
    first, second = _search_backward(
        backward.indptr.astype(np.int64), backward.indices.astype(np.int32), label_classes, number
    )
    return UndecidedPairs(number, first, second)


@njit(cache=True)
def _search_backward(starts: Any, predecessors: Any, classes: Any, number: Any) -> Any:
    """Number the pairs from which the diagonal can be reached, in breadth-first order."""
    states = len(classes)
    capacity = 1024
    first, second = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    found = 0
    for at in range(-states, 0):
        u = states + at
        for i in range(starts[u], starts[u + 1]):
            for j in range(starts[u], i):
                first, second, found = _add_pair(
                    first, second, found, predecessors[i], predecessors[j], classes, number
                )
    at = 0
    while at < found:
        u, v = first[at], second[at]
        for i in range(starts[u], starts[u + 1]):
            for j in range(starts[v], starts[v + 1]):
                first, second, found = _add_pair(
                    first, second, found, predecessors[i], predecessors[j], classes, number
                )
        at += 1
    return first[:found].copy(), second[:found].copy()


@njit(cache=True, inline="always")
def _add_pair(first, second, found, s, t, classes, number):
    """Append a pair that is not numbered yet, if its labels are equal."""
    if s != t and classes[s] == classes[t] and number[s, t] < 0:
        if found == len(first):
            larger, smaller = np.empty(2 * found, np.int32), np.empty(2 * found, np.int32)
            larger[:found], smaller[:found] = first, second
            first, second = larger, smaller
        number[s, t] = number[t, s] = found
        first[found], second[found] = max(s, t), min(s, t)
        found += 1
    return first, second, found
