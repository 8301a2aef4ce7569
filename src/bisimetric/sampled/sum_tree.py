"""Sampled prioritised sweeping: a sum tree over the increases that pairs would make."""

from __future__ import annotations

import numba
import numpy as np

from bisimetric.sampled.kernels import compute_gap, uniform


@numba.njit(cache=True, inline="always")
def leaf_index(rows, group_offsets, a, b):
    """Return the leaf of a pair of rows of one group; those of a group form a triangle."""
    low = rows.start[rows.group[a]]
    i, j = max(a, b) - low, min(a, b) - low
    return group_offsets[rows.group[a]] + i * (i - 1) // 2 + j


@numba.njit(cache=True, inline="always")
def compute_increase(values, rows, discount, a, b):
    """Compute the increase that rows a and b would make."""
    value = compute_gap(rows, a, b) + discount * values[rows.successor[a], rows.successor[b]]
    return max(0.0, value - values[rows.state[a], rows.state[b]])


@numba.njit(nogil=True, cache=True)
def build_tree(values, rows, discount, group_offsets):
    """Build the sum tree over all pairs of rows: node k is the sum of nodes 2k and 2k + 1.

    It is a function of the values alone, so that a resumed run builds the same one.
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
    increase = compute_increase(values, rows, discount, a, b)
    if tree[node] != increase:
        tree[node] = increase
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]


@numba.njit(cache=True, inline="always")
def _sample_leaf(tree, u):
    """Return the leaf at the fraction u of the sum, with a positive priority if there is one."""
    node, remainder = 1, u * tree[1]
    while node < len(tree) // 2:
        node *= 2
        if remainder >= tree[node] and tree[node + 1] > 0:
            remainder -= tree[node]
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
    """Apply equation 3 to pairs of rows sampled in proportion to the increase they would make.

    A fraction `explore` of the samples, and all of them where no pair would increase, is uniform,
    so that every pair is sampled infinitely often. After an increase, the priorities of the
    predecessor pairs and of the other actions of the two states are updated. Returns the largest
    increase.
    """
    largest = 0.0
    groups = len(rows.start) - 1
    for k in range(first_step, first_step + num_steps):
        u = uniform(seed, 2 * k + 1)
        if uniform(seed, 2 * k) < explore or tree[1] == 0:
            leaf = min(int(u * group_offsets[-1]), group_offsets[-1] - 1)
        else:
            leaf = _sample_leaf(tree, u)
        g = np.searchsorted(group_offsets, leaf, side="right") - 1
        leaf -= group_offsets[g]
        i = int((1 + np.sqrt(1 + 8 * leaf)) / 2)
        while i * (i - 1) // 2 > leaf:
            i -= 1
        while i * (i + 1) // 2 <= leaf:
            i += 1
        a = rows.start[g] + i
        b = rows.start[g] + leaf - i * (i - 1) // 2
        s, t = rows.state[a], rows.state[b]
        paired[min(s, t), max(s, t), g >> 3] |= np.uint8(1 << (g & 7))
        value = compute_gap(rows, a, b) + discount * values[rows.successor[a], rows.successor[b]]
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
