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

from bisimetric.rounding import UNIT

DUST = 32 * UNIT
"""Probabilities that differ by no more are taken for equal, where distances have a known bound.

What that may cost is in the error."""
FREE = -1
BITS = 32
LOWER = 2**BITS - 1
SPREAD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: its multiples scatter the pairs (Knuth)."""


class Ground(NamedTuple):
    """Rows that are known: that of s and a is `first[s, a]:last[s, a]`, states in rising order."""

    first: NDArray[Any]
    last: NDArray[Any]
    states: NDArray[Any]
    share: NDArray[Any]
    has: NDArray[Any]  # (S, A), whether a state has an action
    widest: int  # the most successors of a row
    exact: NDArray[Any]  # equal numbers where exact shares are; empty: within DUST they are equal


class Reach:
    """Pairs in the order in which they were reached.

    Attributes:
        found: the pairs, `reached` of them; the first `expanded` have been expanded.
        slots: a hash table of places in `found`; see `place`.
        depth: how many steps from the first pairs have been expanded in full.
        dust: the most mass that a move left aside because it differed by no more than `DUST`.
    """

    def __init__(self, pairs: NDArray[np.int64], room: int = 2**10) -> None:
        while room < 2 * len(pairs):
            room *= 2
        self.found = np.empty(room, np.int64)
        self.found[: len(pairs)] = pairs
        self._at = np.array([0, len(pairs), len(pairs), 0])
        self._tally = np.zeros(1)
        self._index()

    @property
    def expanded(self) -> int:
        return int(self._at[0])

    @property
    def level(self) -> NDArray[np.int64]:
        """The pairs that are next, all those of one depth."""
        return self.found[self._at[0] : self._at[1]]

    @property
    def reached(self) -> int:
        return int(self._at[2])

    @property
    def depth(self) -> int:
        return int(self._at[3])

    @property
    def complete(self) -> bool:
        """Whether nothing is left to expand."""
        return self.expanded == self.reached

    @property
    def dust(self) -> float:
        return float(self._tally[0])

    def expand(
        self, ground: Ground, *, lax: bool, depth: int, most: int, room: int | None = None
    ) -> bool:
        """Goes on up to a depth, or for `most` pairs; False if it finds more than it has room for.

        Room is for as many pairs as `found` holds, or for `room` if that is less.
        """
        space = self.found if room is None else self.found[: max(room, self.reached)]
        return bool(_expand(ground, lax, space, self.slots, self._at, depth, most, self._tally))

    def grow(self) -> None:
        """Makes room for twice as many pairs."""
        self.found = np.concatenate([self.found, np.empty_like(self.found)])
        self._index()

    def _index(self) -> None:
        self.slots = np.full(2 * len(self.found), FREE, np.int64)
        _fill(self.slots, self.found, self.reached)


def joined(s: NDArray[Any], t: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers of pairs of different states, in either order."""
    s, t = np.asarray(s, np.int64), np.asarray(t, np.int64)
    return np.asarray((np.maximum(s, t) << BITS) | np.minimum(s, t))


def parted(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The states s and t of pairs t < s."""
    return pairs >> BITS, pairs & LOWER


@njit(cache=True)
def place(slots: Any, found: Any, pair: Any) -> Any:
    """The slot of a pair: it holds the pair's place in `found`, or is free."""
    last = slots.size - 1
    mixed = np.uint64(pair) * np.uint64(SPREAD)
    # The upper half depends on both states, the lower half on t alone.
    at = np.int64((mixed ^ (mixed >> np.uint64(BITS))) & np.uint64(last))
    while slots[at] != FREE and found[slots[at]] != pair:
        at = (at + 1) & last
    return at


@njit(cache=True)
def _fill(slots: Any, found: Any, count: Any) -> None:
    for i in range(count):
        slots[place(slots, found, found[i])] = i


@njit(cache=True)
def _expand(
    ground: Any, lax: Any, found: Any, slots: Any, at: Any, depth: Any, most: Any, tally: Any
) -> Any:
    """Expands pairs in turn; a pair for which there was no room is begun again."""
    actions = ground.has.shape[1]
    x, y = np.empty(ground.widest, np.int64), np.empty(ground.widest, np.int64)
    for _ in range(most):
        if at[0] == at[1] or at[3] >= depth:
            return True
        s, t = found[at[0]] >> BITS, found[at[0]] & LOWER
        if lax or alike(ground, s, t):
            for a in range(actions):
                for b in range(0 if lax else a, actions if lax else a + 1):
                    if not (ground.has[s, a] and ground.has[t, b]):
                        continue
                    n, m, dust = _apart(ground, s, a, t, b, x, y)
                    tally[0] = max(tally[0], dust)
                    for i in range(n):
                        for j in range(m):
                            if x[i] == y[j]:
                                continue
                            pair = (max(x[i], y[j]) << BITS) | min(x[i], y[j])
                            slot = place(slots, found, pair)
                            if slots[slot] != FREE:
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
def alike(ground: Any, s: Any, t: Any) -> Any:
    """Whether two states have the same actions."""
    same = True
    for a in range(ground.has.shape[1]):
        same &= ground.has[s, a] == ground.has[t, a]
    return same


@njit(cache=True)
def _apart(ground: Any, s: Any, a: Any, t: Any, b: Any, x: Any, y: Any) -> Any:
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
        if exact.size == 0 and abs(excess) <= DUST:
            dust += abs(excess)
            same = True
        if above and not same:
            x[n] = here
            n += 1
        if below and not same:
            y[m] = here
            m += 1
    return n, m, dust
