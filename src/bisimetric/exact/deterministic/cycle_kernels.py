"""Compiled kernels of the search for cycles of the pair graph, see `cycle_search`."""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric.exact._intrinsics import prefetch

START_DEPTH, START_VISITS = 16, 64
"""Steps of the paths by which pairs are selected, and pairs visited per path at most."""
RETEST_DEPTH, RETEST_VISITS = 32, 512
"""The same for the pairs that are left, at the level of a search."""
STEP_DEPTH, STEP_VISITS = 3, 16
"""The same for each step of a search."""
CHECK_PERIOD = 4
"""Every so many steps of a path, a pair that has been reached before is looked for on it."""
MAX_LENGTH = 2**10
"""The most steps of a path."""
NUM_BUCKETS = 256
NONE = -1
CYCLE, END, FULL = 0, 1, 2
"""How a search ends: with a cycle, with none, or with as many entries as it may have."""


@njit(inline="always")
def _has_path(
    successor, reward, level, scale, s, t, needed, depth, max_visits, first, second, steps, needs
):
    """Return whether a path of `depth` steps from (s, t) is worth what is `needed`, or `max_visits`
    pairs do not decide it. Depth first, with the stack in the last four arguments."""
    first[0], second[0], steps[0], needs[0] = s, t, 0, needed
    size, visits = 1, 0
    while size > 0:
        size -= 1
        x, y, step, need = first[size], second[size], steps[size], needs[size]
        visits += 1
        if step >= depth or visits >= max_visits:
            return True
        for a in range(successor.shape[1]):
            remaining = (need - abs(reward[x, a] - reward[y, a])) * scale
            if remaining <= level and successor[x, a] != successor[y, a]:
                first[size], second[size] = successor[x, a], successor[y, a]
                steps[size], needs[size] = step + 1, remaining
                size += 1
    return False


@njit(cache=True, nogil=True)
def select_starts(successor, reward, order, sorted_reward, discount, level, low, high):
    """List the pairs s * S + t with paths of `START_DEPTH` steps that are worth a level, where s is
    in a range, and has the larger reward of the first action."""
    states, actions = successor.shape
    least, scale = (1 - discount) * level, 1 / discount
    stack, needs = (
        np.empty((3, START_DEPTH * actions + 1), np.int64),
        np.empty(START_DEPTH * actions + 1),
    )
    first, second, steps = stack[0], stack[1], stack[2]
    pairs, n = np.empty((high - low) * states * actions, np.int64), 0
    for s in range(low, high):
        for a in range(actions):
            own, x, i = reward[s, a], np.int64(successor[s, a]), 0
            while i < states and own - sorted_reward[a, i] >= least:
                t = np.int64(order[a, i])
                y, needed = np.int64(successor[t, a]), (level - own + sorted_reward[a, i]) * scale
                i += 1
                if x == y:
                    continue
                if _has_path(
                    successor, reward, level, scale, x, y, needed, START_DEPTH, START_VISITS, first,
                    second, steps, needs,
                ):  # fmt: skip
                    pairs[n] = max(s, t) * states + min(s, t)
                    n += 1
    return pairs[:n].copy()


@njit(cache=True, nogil=True)
def retest_starts(successor, reward, discount, level, pairs, low, high):
    """Return which of some pairs have paths of `RETEST_DEPTH` steps that are worth a level."""
    states, actions = successor.shape
    stack, needs = (
        np.empty((3, RETEST_DEPTH * actions + 1), np.int64),
        np.empty(RETEST_DEPTH * actions + 1),
    )
    first, second, steps = stack[0], stack[1], stack[2]
    has_path = np.empty(high - low, np.bool_)
    for k in range(low, high):
        has_path[k - low] = _has_path(
            successor, reward, level, 1 / discount, pairs[k] // states, pairs[k] % states, level,
            RETEST_DEPTH, RETEST_VISITS, first, second, steps, needs,
        )  # fmt: skip
    return has_path


@njit(cache=True, nogil=True)
def search_level(
    successor, reward, discount, level, starts, surplus, pairs, values, links, heads, min_gain
):
    """Search for a path from one of the starts into a cycle, worth more than a level.

    The surplus of a pair is the level minus what the rest of a path must be worth from there; the
    flat matrix `surplus` holds the largest one found per pair, and is 0 before. Entries are pairs
    with their surplus (`values`), the entry before, the entry after it in a bucket, and their steps
    (`links`). Those of the largest surplus come first. There must be more entries than starts.

    Returns how the search ended, the last entry, and the number of entries.
    """
    states, actions = successor.shape
    least, scale = (1 - discount) * level, 1 / discount
    # A path of the largest gap only would have a surplus of several times `least` after some steps.
    width = NUM_BUCKETS / (8 * least)
    stack, needs = (
        np.empty((3, STEP_DEPTH * actions + 1), np.int64),
        np.empty(STEP_DEPTH * actions + 1),
    )
    first, second, steps = stack[0], stack[1], stack[2]
    heads[:] = NONE
    n, capacity, bucket = 0, len(pairs), 0
    for k in range(len(starts)):
        if surplus[starts[k]] == 0.0:
            pairs[n], values[n], links[n, 0], links[n, 2] = starts[k], 0.0, NONE, 0
            links[n, 1], heads[0] = heads[0], n
            n += 1
    while bucket >= 0:
        at = heads[bucket]
        if at == NONE:
            bucket -= 1
            continue
        heads[bucket] = links[at, 1]
        if surplus[pairs[at]] > values[at] + min_gain:
            continue  # a better path to the pair has been found since
        s, t, rest = pairs[at] // states, pairs[at] % states, values[at] - least
        for a in range(actions):
            x, y = np.int64(successor[s, a]), np.int64(successor[t, a])
            prefetch(surplus, max(x, y) * states + min(x, y))
        for a in range(actions):
            value = (rest + abs(reward[s, a] - reward[t, a])) * scale
            x, y = np.int64(successor[s, a]), np.int64(successor[t, a])
            pair = max(x, y) * states + min(x, y)
            if value <= 0.0 or x == y or value <= surplus[pair] + min_gain:
                continue
            if links[at, 2] == MAX_LENGTH:
                continue
            if n == capacity:
                return FULL, n - 1, n
            surplus[pair] = value
            pairs[n], values[n], links[n, 0], links[n, 2] = pair, value, at, links[at, 2] + 1
            n += 1
            if not _has_path(
                successor, reward, level, scale, x, y, level - value, STEP_DEPTH, STEP_VISITS,
                first, second, steps, needs,
            ):  # fmt: skip
                continue
            into = np.int64(min(value * width, NUM_BUCKETS - 1.0))
            links[n - 1, 1], heads[into] = heads[into], n - 1
            bucket = max(bucket, into)
            if links[n - 1, 2] % CHECK_PERIOD == 0:
                k = at
                while k != NONE and pairs[k] != pair:
                    k = links[k, 0]
                if k != NONE:
                    return CYCLE, n - 1, n
    return END, NONE, n


@njit(cache=True, nogil=True)
def has_ancestors(s, t, starts, predecessors, actions, min_pairs):
    """Return whether `min_pairs` pairs, (s, t) with t < s included, lead to (s, t)."""
    pairs, n, at = np.empty((min_pairs, 2), np.int64), 1, 0
    pairs[0, 0], pairs[0, 1] = s, t
    while at < n:
        s, t = pairs[at, 0] * actions, pairs[at, 1] * actions
        at += 1
        for a in range(actions):
            for i in range(starts[s + a], starts[s + a + 1]):
                for j in range(starts[t + a], starts[t + a + 1]):
                    x, y = np.int64(predecessors[i]), np.int64(predecessors[j])
                    x, y = max(x, y), min(x, y)
                    k = 0
                    while k < n and (pairs[k, 0] != x or pairs[k, 1] != y):
                        k += 1
                    if k == n:
                        pairs[n, 0], pairs[n, 1] = x, y
                        n += 1
                        if n == min_pairs:
                            return True
    return False
