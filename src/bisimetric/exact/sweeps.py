"""Compiled kernels that go over the whole table, row by row, on all cores.

Successors and rewards come transposed, (A, S), and unsigned: the row d[next(s, a)] is then read
in one piece, and its gathers stay in the cache. Rows of a block read the table as it was before
the block, so that the result does not depend on the number of threads. Only t < s is computed;
the other half is its mirror. Sums are taken in float64 whatever the table holds.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

BLOCK = 64
"""Rows that are computed together, from the same table."""


@njit(parallel=True, cache=True)
def bisimulation_block(d, fresh, low, high, successor, reward, discount, least, changed, tally):
    """Rows low..high of F(d)(s, t) = max_a |R(s,a) - R(t,a)| + discount * d(n(s,a), n(t,a)).

    Entries that rise by more than `least`, or from 0, go to `fresh` and are marked in `changed`;
    the others keep their value. `tally[s]` receives: how many rose, the largest |F(d) - d|, the
    largest F(d), and the t that rose most.
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
        rose, residual, largest, steepest, best = 0, 0.0, 0.0, 0, 0.0
        for t in range(s):
            old = d[s, t]
            rise = row[t] - old
            largest = max(largest, row[t])
            residual = max(residual, abs(rise))
            up = (rise > least or (old == 0.0 and rise > 0.0)) and d.dtype.type(row[t]) > old
            changed[s, t] = up
            if up:
                rose += 1
                if rise > best:
                    best, steepest = rise, t
            else:
                row[t] = old
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
def mirror(d):
    """Copies the half t < s onto the half t > s, tile by tile."""
    states = d.shape[0]
    tiles = (states + BLOCK - 1) // BLOCK
    for i in prange(tiles):
        for j in range(i, tiles):
            for s in range(i * BLOCK, min(states, (i + 1) * BLOCK)):
                for t in range(max(s + 1, j * BLOCK), min(states, (j + 1) * BLOCK)):
                    d[s, t] = d[t, s]


@njit(parallel=True, cache=True)
def collect(d, changed, tally, floor, starts, found):
    """Lists the changed pairs (s, t) with d >= floor as s * S + t, and unmarks the others.

    Returns how many there are; -1 where `found` has no room for them.
    """
    states = d.shape[0]
    for s in prange(states):
        count = 0
        if tally[s, 0] > 0:
            for t in range(s):
                if changed[s, t]:
                    if d[s, t] >= floor:
                        count += 1
                    else:
                        changed[s, t] = False
        starts[s + 1] = count
    starts[0] = 0
    for s in range(states):
        starts[s + 1] += starts[s]
    if starts[states] > found.shape[0]:
        return -1
    for s in prange(states):
        at = starts[s]
        if starts[s + 1] > at:
            for t in range(s):
                if changed[s, t]:
                    found[at] = s * states + t
                    at += 1
    return starts[states]


@njit(parallel=True, cache=True)
def double(d, out, ahead, weight):
    """out(s, t) = d(s, t) + weight * d(ahead(s), ahead(t)), for t < s."""
    for s in prange(d.shape[0]):
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
    for s in prange(d.shape[0]):
        row = d[ahead[s]]
        residual, largest = 0.0, 0.0
        for t in range(s):
            value = abs(reward[s] - reward[t]) + discount * row[ahead[t]]
            residual = max(residual, abs(value - d[s, t]))
            largest = max(largest, value)
        tally[s, 0], tally[s, 1] = residual, largest


@njit(parallel=True, cache=True)
def lax_rows(d, fresh, low, high, successor, reward, discount, choice, tally):
    """Rows low..high of the Hausdorff operator F(d)(s, t), into `fresh`.

    With delta(a, b) = |R(s,a) - R(t,b)| + discount * d(n(s,a), n(t,b)) it is the larger of
    max_a min_b delta(a, b) and max_b min_a delta(a, b); `choice[s, t]` receives the a * A + b
    that attains it, and `tally[s]` the largest |F(d) - d| and the largest F(d).
    """
    actions = successor.shape[0]
    for i in prange(high - low):
        s = low + i
        least_a = np.empty(actions)
        answer_a = np.empty(actions, np.int64)
        residual, largest = 0.0, 0.0
        for t in range(s):
            best, pick = -1.0, 0
            for b in range(actions):
                least_a[b] = np.inf
            for a in range(actions):
                ahead = d[successor[a, s]]
                own = reward[a, s]
                least_b, answer_b = np.inf, 0
                for b in range(actions):
                    delta = abs(own - reward[b, t]) + discount * ahead[successor[b, t]]
                    if delta < least_b:
                        least_b, answer_b = delta, b
                    if delta < least_a[b]:
                        least_a[b], answer_a[b] = delta, a
                if least_b > best:
                    best, pick = least_b, a * actions + answer_b
            for b in range(actions):
                if least_a[b] > best:
                    best, pick = least_a[b], answer_a[b] * actions + b
            fresh[i, t] = best
            choice[s, t] = pick
            residual = max(residual, abs(best - d[s, t]))
            largest = max(largest, best)
        tally[s, 0], tally[s, 1] = residual, largest
