"""Pairs of transitions ranked by the rise that they would make: prioritised sweeping by draws."""

from __future__ import annotations

import numba
import numpy as np

from bisimetric.sampled.kernels import uniform


@numba.njit(cache=True, inline="always")
def leaf_index(rows, group_offsets, a, b):
    """Which leaf a pair of rows of one group is; those of a group form a triangle."""
    low = rows.start[rows.group[a]]
    one, two = max(a, b) - low, min(a, b) - low
    return group_offsets[rows.group[a]] + one * (one - 1) // 2 + two


@numba.njit(cache=True, inline="always")
def compute_increase(values, rows, discount, a, b):
    """How much rows a and b would raise the distance of their states."""
    gap = abs(rows.reward[a] - rows.reward[b])
    value = gap + discount * values[rows.successor[a], rows.successor[b]]
    return max(0.0, value - values[rows.state[a], rows.state[b]])


@numba.njit(nogil=True, cache=True)
def build_tree(values, rows, discount, group_offsets):
    """The tree of sums over all pairs of rows: node k is the sum of nodes 2k and 2k + 1.

    It is a function of the table alone, so that a run that goes on finds it again.
    """
    leaves = 1
    while leaves < group_offsets[-1]:
        leaves *= 2
    tree = np.zeros(2 * leaves)
    for a in range(len(rows.state)):
        for b in range(rows.start[rows.group[a]], a):
            tree[leaves + leaf_index(rows, group_offsets, a, b)] = compute_increase(
                values, rows, discount, a, b
            )
    for node in range(leaves - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    return tree


@numba.njit(cache=True, inline="always")
def _update_priority(tree, values, rows, group_offsets, discount, a, b):
    node = len(tree) // 2 + leaf_index(rows, group_offsets, a, b)
    rise = compute_increase(values, rows, discount, a, b)
    if tree[node] != rise:
        tree[node] = rise
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@numba.njit(cache=True, inline="always")
def _sample_leaf(tree, u):
    """The leaf at the share u of the sum; one with a rise, unless there is none."""
    node, left = 1, u * tree[1]
    while node < len(tree) // 2:
        node *= 2
        if left >= tree[node] and tree[node + 1] > 0:
            left -= tree[node]
            node += 1
    return node - len(tree) // 2


@numba.njit(nogil=True, cache=True)
def apply_prioritised_updates(
    values,
    paired,
    rows,
    row_index,
    discount,
    tree,
    group_offsets,
    predecessors,
    predecessor_offsets,
    explore,
    seed,
    first_step,
    num_steps,
):
    """Equation 3 on n pairs of rows, drawn in proportion to the rise that they would make.

    A share `explore` of the draws, and all where nothing would rise, take any pair alike, so that
    every pair is drawn for ever. When an entry rises, the pairs that lead to it, and the other
    actions of its own two states, are ranked anew. Returns the largest rise.
    """
    largest = 0.0
    groups = len(rows.start) - 1
    for k in range(first_step, first_step + num_steps):
        u = uniform(seed, 2 * k + 1)
        if uniform(seed, 2 * k) < explore or tree[1] == 0:
            at = min(int(u * group_offsets[-1]), group_offsets[-1] - 1)
        else:
            at = _sample_leaf(tree, u)
        g = np.searchsorted(group_offsets, at, side="right") - 1
        at -= group_offsets[g]
        one = int((1 + np.sqrt(1 + 8 * at)) / 2)
        while one * (one - 1) // 2 > at:
            one -= 1
        while one * (one + 1) // 2 <= at:
            one += 1
        a = rows.start[g] + one
        b = rows.start[g] + at - one * (one - 1) // 2
        s, t = rows.state[a], rows.state[b]
        paired[min(s, t), max(s, t), g >> 3] |= np.uint8(1 << (g & 7))
        gap = abs(rows.reward[a] - rows.reward[b])
        value = gap + discount * values[rows.successor[a], rows.successor[b]]
        if not value > values[s, t]:
            continue
        largest = max(largest, value - values[s, t])
        values[s, t] = values[t, s] = value
        for h in range(groups):
            if row_index[h, s] >= 0 and row_index[h, t] >= 0:
                _update_priority(
                    tree, values, rows, group_offsets, discount, row_index[h, s], row_index[h, t]
                )
            for c in predecessors[predecessor_offsets[h, s] : predecessor_offsets[h, s + 1]]:
                for e in predecessors[predecessor_offsets[h, t] : predecessor_offsets[h, t + 1]]:
                    if rows.state[c] != rows.state[e]:
                        _update_priority(tree, values, rows, group_offsets, discount, c, e)
    return largest
