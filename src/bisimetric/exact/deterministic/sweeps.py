"""Compiled kernels that go over the whole table, row by row, on all cores.

Successors and rewards come transposed, (A, S), and unsigned: the row d[next(s, a)] is then read
in one piece, and its gathers stay in the cache. Rows of a block read the table as it was before
the block, so that the result does not depend on the number of threads. Only t < s is computed;
the other half is its mirror. Sums are taken in float64 whatever the table holds.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

NO_NANS = {"nnan", "nsz"}
"""Leave to vectorise a maximum; no sum or product is changed by it."""
BLOCK = 64
"""The least number of rows that are computed together, from the same table."""


@njit(inline="always")
def balanced(i, states):
    """The i-th row to compute: long and short rows in turn, so that threads get equal shares."""
    return i // 2 if i % 2 == 0 else states - 1 - i // 2


def block_size(states: int) -> int:
    """Rows a block: few, large blocks keep the threads busy; sixteen let news travel in a sweep."""
    return max(BLOCK, -(-states // 16))


@njit(parallel=True, cache=True, fastmath=NO_NANS)
def bisimulation_block(
    d, fresh, low, high, successor, reward, discount, least, changed, tally, seek
):
    """Rows low..high of F(d)(s, t) = max_a |R(s,a) - R(t,a)| + discount * d(n(s,a), n(t,a)).

    Entries of `fresh` that are higher by more than `least`, or than 0, are marked in `changed`.
    `tally[s]` receives: how many, the largest |F(d) - d|, the largest F(d) and, for who seeks it,
    the t of the largest |F(d) - d|.
    """
    actions = successor.shape[0]
    for i in prange(high - low):
        s = low + i
        row = fresh[i]
        for a in range(actions):
            ahead = d[successor[a, s]]
            own = reward[a, s]
            if a == 0:
                for t in range(s):
                    row[t] = abs(own - reward[a, t]) + discount * ahead[successor[a, t]]
            else:
                for t in range(s):
                    value = abs(own - reward[a, t]) + discount * ahead[successor[a, t]]
                    row[t] = max(row[t], value)
        old, marks = d[s], changed[s]
        rose, residual, largest = 0, 0.0, 0.0
        for t in range(s):
            rise = row[t] - old[t]
            up = (rise > least) | ((old[t] == 0.0) & (rise > 0.0))
            up &= d.dtype.type(row[t]) > old[t]
            marks[t] = up
            rose += up
            residual = max(residual, abs(rise))
            largest = max(largest, row[t])
        steepest = 0
        if rose > 0 and seek:
            while steepest < s - 1 and row[steepest] - old[steepest] != residual:
                steepest += 1
        tally[s, 0], tally[s, 1], tally[s, 2], tally[s, 3] = rose, residual, largest, steepest


@njit(parallel=True, cache=True)
def write_block(d, fresh, low, high):
    """Puts the rows low..high, t < s, into the table and into its mirror."""
    for i in prange(high - low):
        s = low + i
        for t in range(s):
            d[s, t] = fresh[i, t]
    for t in prange(high):
        for s in range(max(low, t + 1), high):
            d[t, s] = fresh[s - low, t]


@njit(parallel=True, cache=True)
def write_changes(d, fresh, low, high, changed, many):
    """`write_block` for the marked entries only; the mirror as a whole if they are many."""
    for i in prange(high - low):
        s = low + i
        for t in range(s):
            if changed[s, t]:
                d[s, t] = fresh[i, t]
                if not many:
                    d[t, s] = fresh[i, t]
    if many:
        for t in prange(high):
            for s in range(max(low, t + 1), high):
                d[t, s] = d[s, t]


@njit(parallel=True, cache=True)
def mirror(d):
    """Copies the half t < s onto the half t > s, tile by tile."""
    states = d.shape[0]
    tiles = (states + BLOCK - 1) // BLOCK
    for k in prange(tiles):
        i = balanced(k, tiles)
        for j in range(i, tiles):
            for s in range(i * BLOCK, min(states, (i + 1) * BLOCK)):
                for t in range(max(s + 1, j * BLOCK), min(states, (j + 1) * BLOCK)):
                    d[s, t] = d[t, s]


@njit(parallel=True, cache=True)
def collect(d, changed, floor, starts, found):
    """Lists the changed pairs (s, t) with d >= floor as s * S + t.

    The rows of `changed` are a multiple of 8 bytes long, so that 8 marks are looked at together.
    Returns how many there are; -1 where `found` has no room for them.
    """
    states = d.shape[0]
    eights = changed.view(np.uint64)
    for i in prange(states):
        s = balanced(i, states)
        count = 0
        for k in range((s + 7) // 8):
            if eights[s, k] != 0:
                for t in range(8 * k, min(8 * k + 8, s)):
                    if changed[s, t]:
                        count += d[s, t] >= floor
        starts[s + 1] = count
    starts[0] = 0
    for s in range(states):
        starts[s + 1] += starts[s]
    if starts[states] > found.shape[0]:
        return -1
    for i in prange(states):
        s = balanced(i, states)
        at = starts[s]
        if starts[s + 1] > at:
            for k in range((s + 7) // 8):
                if eights[s, k] != 0:
                    for t in range(8 * k, min(8 * k + 8, s)):
                        if changed[s, t] and d[s, t] >= floor:
                            found[at] = s * states + t
                            at += 1
    return starts[states]


@njit(parallel=True, cache=True)
def double(d, out, ahead, weight):
    """out(s, t) = d(s, t) + weight * d(ahead(s), ahead(t)), for t < s."""
    for i in prange(d.shape[0]):
        s = balanced(i, d.shape[0])
        row = d[ahead[s]]
        for t in range(s):
            out[s, t] = d[s, t] + weight * row[ahead[t]]
        out[s, s] = 0.0


@njit(parallel=True, cache=True)
def gaps(reward, out):
    """out(s, t) = |reward(s) - reward(t)|."""
    for s in prange(out.shape[0]):
        for t in range(out.shape[0]):
            out[s, t] = abs(reward[s] - reward[t])


@njit(parallel=True, cache=True)
def chain_residual(d, ahead, reward, discount, tally):
    """For each row of F(d)(s, t) = |R(s) - R(t)| + discount * d(ahead(s), ahead(t)), the largest
    |F(d) - d| and the largest F(d)."""
    for i in prange(d.shape[0]):
        s = balanced(i, d.shape[0])
        row = d[ahead[s]]
        residual, largest = 0.0, 0.0
        for t in range(s):
            value = abs(reward[s] - reward[t]) + discount * row[ahead[t]]
            residual = max(residual, abs(value - d[s, t]))
            largest = max(largest, value)
        tally[s, 0], tally[s, 1] = residual, largest


@njit(parallel=True, cache=True)
def lax_block(d, fresh, low, high, successor, reward, discount, tally):
    """Rows low..high of the Hausdorff operator F(d)(s, t), into `fresh`.

    With delta(a, b) = |R(s,a) - R(t,b)| + discount * d(n(s,a), n(t,b)) it is the larger of
    max_a min_b delta(a, b) and max_b min_a delta(a, b). `tally[s]` receives the largest
    |F(d) - d| and the largest F(d).
    """
    actions = successor.shape[0]
    for i in prange(high - low):
        s = low + i
        row = fresh[i]
        worst = np.empty((actions, s))
        answer = np.empty(s)
        for a in range(actions):
            ahead = d[successor[a, s]]
            own = reward[a, s]
            for b in range(actions):
                other = worst[b]
                for t in range(s):
                    delta = abs(own - reward[b, t]) + discount * ahead[successor[b, t]]
                    answer[t] = delta if b == 0 else min(answer[t], delta)
                    other[t] = delta if a == 0 else min(other[t], delta)
            for t in range(s):
                row[t] = answer[t] if a == 0 else max(row[t], answer[t])
        residual, largest = 0.0, 0.0
        for b in range(actions):
            for t in range(s):
                row[t] = max(row[t], worst[b, t])
        for t in range(s):
            residual = max(residual, abs(row[t] - d[s, t]))
            largest = max(largest, row[t])
        tally[s, 0], tally[s, 1] = residual, largest


@njit(parallel=True, cache=True)
def lax_choices(d, successor, reward, discount, choice):
    """choice(s, t) = a * A + b, the actions that attain `lax_block`'s F(d)(s, t), for t < s."""
    states, actions = d.shape[0], successor.shape[0]
    for i in prange(states):
        s = balanced(i, states)
        least_a = np.empty(actions)
        answer_a = np.empty(actions, np.int64)
        for t in range(s):
            best, pick = -1.0, 0
            for b in range(actions):
                least_a[b] = np.inf
            for a in range(actions):
                ahead = d[successor[a, s]]
                least_b, answer_b = np.inf, 0
                for b in range(actions):
                    delta = abs(reward[a, s] - reward[b, t]) + discount * ahead[successor[b, t]]
                    if delta < least_b:
                        least_b, answer_b = delta, b
                    if delta < least_a[b]:
                        least_a[b], answer_a[b] = delta, a
                if least_b > best:
                    best, pick = least_b, a * actions + answer_b
            for b in range(actions):
                if least_a[b] > best:
                    best, pick = least_a[b], answer_a[b] * actions + b
            choice[s, t] = pick
