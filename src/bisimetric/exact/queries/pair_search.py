"""The pairs that some pairs reach, breadth first: a hash set, and the kernel that fills it.

A pair of states t < s is the number s * 2^32 + t. From it every move, an action of s and one of t,
leads to all (x, y) such that P(s, a) exceeds P(t, b) at x and falls below it at y: the mass that
both share stays where it is, and the rest may be coupled in any way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._rounding import UNIT

NEGLIGIBLE_MASS = 32 * UNIT
"""Probabilities that differ by no more are taken for equal, where distances have a known bound.

What that may cost is in the error."""
EMPTY_SLOT = -1
STATE_BITS = 32
STATE_MASK = 2**STATE_BITS - 1
HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: its multiples scatter the pairs (Knuth)."""


class TransitionRows(NamedTuple):
    """Rows that are known: that of s and a is `first[s, a]:last[s, a]`, states in rising order."""

    first: NDArray[Any]
    last: NDArray[Any]
    states: NDArray[Any]
    share: NDArray[Any]
    has: NDArray[Any]  # (S, A), whether a state has an action
    widest: int  # the most successors of a row
    exact: NDArray[Any]  # equal numbers where exact shares are; empty: within DUST they are equal


class PairSearch:
    """Pairs in the order in which they were reached.

    Attributes:
        found: the pairs, `reached` of them; the first `expanded` have been expanded.
        slots: a hash table of places in `found`; see `place`.
        depth: how many steps from the first pairs have been expanded in full.
        dust: the most mass that a move left aside because it differed by no more than `DUST`.
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
        """The pairs that are next, all those of one depth."""
        return self.pairs[self._counters[0] : self._counters[1]]

    @property
    def num_pairs(self) -> int:
        return int(self._counters[2])

    @property
    def depth(self) -> int:
        return int(self._counters[3])

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to expand."""
        return self.num_expanded == self.num_pairs

    @property
    def negligible_mass(self) -> float:
        return float(self._max_negligible_mass[0])

    def expand(
        self,
        rows: TransitionRows,
        *,
        lax: bool,
        max_depth: int,
        max_expanded: int,
        capacity: int | None = None,
    ) -> bool:
        """Goes on up to a depth, or for `most` pairs; False if it finds more than it has room for.

        Room is for as many pairs as `found` holds, or for `room` if that is less.
        """
        space = self.pairs if capacity is None else self.pairs[: max(capacity, self.num_pairs)]
        return bool(
            _expand_pairs(
                rows,
                lax,
                space,
                self.slots,
                self._counters,
                max_depth,
                max_expanded,
                self._max_negligible_mass,
            )
        )

    def grow(self) -> None:
        """Makes room for twice as many pairs."""
        self.pairs = np.concatenate([self.pairs, np.empty_like(self.pairs)])
        self._rebuild_hash_table()

    def _rebuild_hash_table(self) -> None:
        self.slots = np.full(2 * len(self.pairs), EMPTY_SLOT, np.int64)
        _insert_pairs(self.slots, self.pairs, self.num_pairs)


def encode_pairs(s: NDArray[Any], t: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers of pairs of different states, in either order."""
    s, t = np.asarray(s, np.int64), np.asarray(t, np.int64)
    return np.asarray((np.maximum(s, t) << STATE_BITS) | np.minimum(s, t))


def decode_pairs(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The states s and t of pairs t < s."""
    return pairs >> STATE_BITS, pairs & STATE_MASK


@njit(cache=True)
def find_slot(slots: Any, found: Any, pair: Any) -> Any:
    """The slot of a pair: it holds the pair's place in `found`, or is free."""
    last = slots.size - 1
    mixed = np.uint64(pair) * np.uint64(HASH_MULTIPLIER)
    # The upper half depends on both states, the lower half on t alone.
    at = np.int64((mixed ^ (mixed >> np.uint64(STATE_BITS))) & np.uint64(last))
    while slots[at] != EMPTY_SLOT and found[slots[at]] != pair:
        at = (at + 1) & last
    return at


@njit(cache=True)
def _insert_pairs(slots: Any, found: Any, count: Any) -> None:
    for i in range(count):
        slots[find_slot(slots, found, found[i])] = i


@njit(cache=True)
def _expand_pairs(
    ground: Any, lax: Any, found: Any, slots: Any, at: Any, depth: Any, most: Any, tally: Any
) -> Any:
    """Expands pairs in turn; a pair for which there was no room is begun again."""
    actions = ground.has.shape[1]
    x, y = np.empty(ground.widest, np.int64), np.empty(ground.widest, np.int64)
    for _ in range(most):
        if at[0] == at[1] or at[3] >= depth:
            return True
        s, t = found[at[0]] >> STATE_BITS, found[at[0]] & STATE_MASK
        if lax or have_same_actions(ground, s, t):
            for a in range(actions):
                for b in range(0 if lax else a, actions if lax else a + 1):
                    if not (ground.has[s, a] and ground.has[t, b]):
                        continue
                    n, m, dust = _find_differences(ground, s, a, t, b, x, y)
                    tally[0] = max(tally[0], dust)
                    for i in range(n):
                        for j in range(m):
                            if x[i] == y[j]:
                                continue
                            pair = (max(x[i], y[j]) << STATE_BITS) | min(x[i], y[j])
                            slot = find_slot(slots, found, pair)
                            if slots[slot] != EMPTY_SLOT:
                                continue
                            if at[2] >= found.size:
                                return False
                            slots[slot] = at[2]
                            found[at[2]] = pair
                            at[2] += 1
        at[0] += 1
        if at[0] == at[1]:
            at[1] = at[2]
            at[3] += 1
    return True


@njit(cache=True)
def have_same_actions(ground: Any, s: Any, t: Any) -> Any:
    """Whether two states have the same actions."""
    same = True
    for a in range(ground.has.shape[1]):
        same &= ground.has[s, a] == ground.has[t, a]
    return same


@njit(cache=True)
def _find_differences(ground: Any, s: Any, a: Any, t: Any, b: Any, x: Any, y: Any) -> Any:
    """Writes where P(s, a) exceeds P(t, b) into x, and where it falls below into y."""
    n = m = 0
    dust = 0.0
    p, p_end = ground.first[s, a], ground.last[s, a]
    q, q_end = ground.first[t, b], ground.last[t, b]
    states, share, exact = ground.states, ground.share, ground.exact
    while p < p_end or q < q_end:
        same = False
        if q == q_end or (p < p_end and states[p] < states[q]):
            here, excess, above, below = states[p], share[p], True, False
            p += 1
        elif p == p_end or states[q] < states[p]:
            here, excess, above, below = states[q], -share[q], False, True
            q += 1
        else:
            here, excess = states[p], share[p] - share[q]
            # Shares that round to one number may differ either way.
            above, below = excess >= 0, excess <= 0
            same = exact.size > 0 and exact[p] == exact[q]
            p, q = p + 1, q + 1
        if exact.size == 0 and abs(excess) <= NEGLIGIBLE_MASS:
            dust += abs(excess)
            same = True
        if above and not same:
            x[n] = here
            n += 1
        if below and not same:
            y[m] = here
            m += 1
    return n, m, dust
