"""Breadth-first search of the reachable pairs: a hash set, and the kernel that fills it.

A pair of states t < s is encoded as s * 2^32 + t. A move, an action a of s and b of t, leads to all
(x, y) such that P(s, a) exceeds P(t, b) at x and falls below it at y: common mass stays in place,
and the rest may be coupled in any way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._rounding import UNIT

NEGLIGIBLE_MASS = 32 * UNIT
"""Probabilities that differ by no more count as equal where there is a diameter bound.

The proven error includes what that may cost."""
EMPTY_SLOT = -1
STATE_BITS = 32
STATE_MASK = 2**STATE_BITS - 1
HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""Fibonacci hashing (Knuth): 2^64 divided by the golden ratio."""


class QueryRows(NamedTuple):
    """Known rows: that of s and a is `starts[s, a]:ends[s, a]`, successors in increasing order."""

    starts: NDArray[Any]
    ends: NDArray[Any]
    successors: NDArray[Any]
    probabilities: NDArray[Any]
    available: NDArray[Any]  # (S, A), whether a state has an action
    label_classes: NDArray[Any]  # (S,), equal for equal label sets
    max_support: int  # the largest number of successors of a row
    fraction_ids: NDArray[Any]  # equal for equal exact probabilities; empty: NEGLIGIBLE_MASS counts


class PairSearch:
    """Pairs in the order in which they were discovered.

    Attributes:
        pairs: `num_pairs` pairs, of which the first `num_expanded` have been expanded.
        slots: a hash table of indices into `pairs`; see `find_slot`.
        depth: the number of levels that have been expanded completely.
        negligible_mass: the most mass of a move that NEGLIGIBLE_MASS neglects.
    """

    def __init__(self, pairs: NDArray[np.int64], capacity: int = 2**10) -> None:
        while capacity < 2 * len(pairs):
            capacity *= 2
        self.pairs = np.empty(capacity, np.int64)
        self.pairs[: len(pairs)] = pairs
        self._counters = np.array([0, len(pairs), len(pairs), 0])
        self._max_negligible_mass = np.zeros(1)
        self._rebuild_hash_table()

    @property
    def num_expanded(self) -> int:
        return int(self._counters[0])

    @property
    def frontier(self) -> NDArray[np.int64]:
        """The pairs to expand next, all of one depth."""
        return self.pairs[self._counters[0] : self._counters[1]]

    @property
    def num_pairs(self) -> int:
        return int(self._counters[2])

    @property
    def depth(self) -> int:
        return int(self._counters[3])

    @property
    def is_complete(self) -> bool:
        """Whether all pairs are expanded."""
        return self.num_expanded == self.num_pairs

    @property
    def negligible_mass(self) -> float:
        return float(self._max_negligible_mass[0])

    def expand(
        self,
        rows: QueryRows,
        *,
        lax: bool,
        max_depth: int,
        max_expanded: int,
        capacity: int | None = None,
    ) -> bool:
        """Expand up to a depth, or `max_expanded` pairs; return False if the capacity is exceeded.

        The capacity is the length of `pairs`, or `capacity` if that is less.
        """
        pairs = self.pairs if capacity is None else self.pairs[: max(capacity, self.num_pairs)]
        done = _expand_pairs(
            rows, lax, pairs, self.slots, self._counters, max_depth, max_expanded,
            self._max_negligible_mass,
        )  # fmt: skip
        return bool(done)

    def grow(self) -> None:
        """Double the capacity."""
        self.pairs = np.concatenate([self.pairs, np.empty_like(self.pairs)])
        self._rebuild_hash_table()

    def _rebuild_hash_table(self) -> None:
        self.slots = np.full(2 * len(self.pairs), EMPTY_SLOT, np.int64)
        _insert_pairs(self.slots, self.pairs, self.num_pairs)


def encode_pairs(s: NDArray[Any], t: NDArray[Any]) -> NDArray[np.int64]:
    """Encode pairs of different states, in either order."""
    s, t = np.asarray(s, np.int64), np.asarray(t, np.int64)
    return np.asarray((np.maximum(s, t) << STATE_BITS) | np.minimum(s, t))


def decode_pairs(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the states s and t of encoded pairs t < s."""
    return pairs >> STATE_BITS, pairs & STATE_MASK


@njit(cache=True)
def find_slot(slots: Any, pairs: Any, pair: Any) -> Any:
    """Return the slot of a pair: it holds the index of the pair in `pairs`, or is empty."""
    last = slots.size - 1
    hashed = np.uint64(pair) * np.uint64(HASH_MULTIPLIER)
    # The upper half depends on both states, the lower half on t alone.
    at = np.int64((hashed ^ (hashed >> np.uint64(STATE_BITS))) & np.uint64(last))
    while slots[at] != EMPTY_SLOT and pairs[slots[at]] != pair:
        at = (at + 1) & last
    return at


@njit(cache=True)
def _insert_pairs(slots: Any, pairs: Any, count: Any) -> None:
    for i in range(count):
        slots[find_slot(slots, pairs, pairs[i])] = i


@njit(cache=True)
def _expand_pairs(
    rows: Any,
    lax: Any,
    pairs: Any,
    slots: Any,
    at: Any,
    max_depth: Any,
    max_expanded: Any,
    max_neglected: Any,
) -> Any:
    """Expand pairs in order; a pair that exceeded the capacity is expanded again."""
    actions = rows.available.shape[1]
    x, y = np.empty(rows.max_support, np.int64), np.empty(rows.max_support, np.int64)
    for _ in range(max_expanded):
        if at[0] == at[1] or at[3] >= max_depth:
            return True
        s, t = pairs[at[0]] >> STATE_BITS, pairs[at[0]] & STATE_MASK
        if are_comparable(rows, s, t, lax):
            for a in range(actions):
                for b in range(0 if lax else a, actions if lax else a + 1):
                    if not (rows.available[s, a] and rows.available[t, b]):
                        continue
                    n, m, neglected = _find_differences(rows, s, a, t, b, x, y)
                    max_neglected[0] = max(max_neglected[0], neglected)
                    for i in range(n):
                        for j in range(m):
                            if x[i] == y[j]:
                                continue
                            pair = (max(x[i], y[j]) << STATE_BITS) | min(x[i], y[j])
                            slot = find_slot(slots, pairs, pair)
                            if slots[slot] != EMPTY_SLOT:
                                continue
                            if at[2] >= pairs.size:
                                return False
                            slots[slot] = at[2]
                            pairs[at[2]] = pair
                            at[2] += 1
        at[0] += 1
        if at[0] == at[1]:
            at[1] = at[2]
            at[3] += 1
    return True


@njit(cache=True)
def are_comparable(rows: Any, s: Any, t: Any, lax: Any) -> Any:
    """Return whether two states have the same labels and, unless `lax`, the same actions."""
    same = rows.label_classes[s] == rows.label_classes[t]
    for a in range(0 if lax else rows.available.shape[1]):
        same &= rows.available[s, a] == rows.available[t, a]
    return same


@njit(cache=True)
def _find_differences(rows: Any, s: Any, a: Any, t: Any, b: Any, x: Any, y: Any) -> Any:
    """Write where P(s, a) exceeds P(t, b) into x, and where it falls below into y."""
    n = m = 0
    neglected = 0.0
    p, p_end = rows.starts[s, a], rows.ends[s, a]
    q, q_end = rows.starts[t, b], rows.ends[t, b]
    successors, probabilities, fraction_ids = rows.successors, rows.probabilities, rows.fraction_ids
    while p < p_end or q < q_end:
        same = False
        if q == q_end or (p < p_end and successors[p] < successors[q]):
            here, excess, above, below = successors[p], probabilities[p], True, False
            p += 1
        elif p == p_end or successors[q] < successors[p]:
            here, excess, above, below = successors[q], -probabilities[q], False, True
            q += 1
        else:
            here, excess = successors[p], probabilities[p] - probabilities[q]
            # Probabilities that round to one number may differ either way.
            above, below = excess >= 0, excess <= 0
            same = fraction_ids.size > 0 and fraction_ids[p] == fraction_ids[q]
            p, q = p + 1, q + 1
        if fraction_ids.size == 0 and abs(excess) <= NEGLIGIBLE_MASS:
            neglected += abs(excess)
            same = True
        if above and not same:
            x[n] = here
            n += 1
        if below and not same:
            y[m] = here
            m += 1
    return n, m, neglected
