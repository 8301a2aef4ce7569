"""Compiled kernels of the search for cycles of the pair graph, see `cycle_search`."""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric.exact.deterministic.pair_kernels import one_minus_power


@njit(cache=True, nogil=True)
def search_rows(
    successor, reward, order, sorted_reward, discount, level, visits_per_step, rows, cycles, values,
    lengths, low, high,
):  # fmt: skip
    """Find the best cycle through the pairs (s, t) of some rows s, in which s has the larger
    reward of the first action."""
    states, actions = successor.shape
    least, scale = (1 - discount) * level, 1 / discount
    capacity = states * visits_per_step // 4
    # Visited pairs, each with the index of the one before, the t of the first, the gap of the last
    # step, and the value that the rest of the path needs.
    pairs, needed = np.empty((capacity + actions, 2), np.uint32), np.empty(capacity + actions)
    last_gap, previous = np.empty(capacity + actions), np.empty(capacity + actions, np.int64)
    first_t = np.empty(capacity + actions, np.uint32)
    for row in range(low, high):
        s0, best, num_pairs = np.int64(rows[row]), level, 0
        for a in range(actions):
            own, i = reward[s0, a], 0
            while i < states and own - sorted_reward[a, i] >= least and num_pairs < capacity:
                t = order[a, i]
                gap = own - sorted_reward[a, i]
                pairs[num_pairs, 0], pairs[num_pairs, 1] = successor[s0, a], successor[t, a]
                first_t[num_pairs], previous[num_pairs] = t, -1
                needed[num_pairs], last_gap[num_pairs] = (level - gap) * scale, gap
                num_pairs += pairs[num_pairs, 0] != pairs[num_pairs, 1]
                i += 1
        at = 0
        end = min(capacity, visits_per_step * num_pairs)
        while at < num_pairs and num_pairs < end:
            s, t, t0, need = pairs[at, 0], pairs[at, 1], first_t[at], needed[at]
            if (s == s0 and t == t0) or (s == t0 and t == s0):
                value, k, length = 0.0, at, 0
                while k >= 0:
                    value = last_gap[k] + discount * value
                    k, length = previous[k], length + 1
                value /= one_minus_power(discount, length)
                if value > best and length <= cycles.shape[1]:
                    best, lengths[s0], k = value, length, at
                    for n in range(length - 1, -1, -1):
                        value = last_gap[k] + discount * value
                        k = previous[k]
                        x = s0 if k < 0 else np.int64(pairs[k, 0])
                        y = np.int64(t0) if k < 0 else np.int64(pairs[k, 1])
                        cycles[s0, n], values[s0, n] = max(x, y) * states + min(x, y), value
            else:
                for a in range(actions):
                    gap = abs(reward[s, a] - reward[t, a])
                    remaining = (need - gap) * scale
                    x, y = successor[s, a], successor[t, a]
                    pairs[num_pairs, 0], pairs[num_pairs, 1] = x, y
                    first_t[num_pairs], previous[num_pairs] = t0, at
                    needed[num_pairs], last_gap[num_pairs] = remaining, gap
                    num_pairs += (remaining <= level) & (x != y)
            at += 1


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
