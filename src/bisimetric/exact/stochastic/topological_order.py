"""Topological order of pairs, by the strongly connected components (SCCs) of the states.

A pair (s, t) depends on pairs of successors of s and of t. Let the level of a state be the length
of the longest path from its SCC to a sink of the condensation, and that of a pair the sum of both.
Every pair depends on pairs of lower levels, and, if both SCCs have cycles, on pairs of the same two
SCCs. So level by level, the lowest first, all other distances are known constants: a pair without
cycles takes one update, and the rest one small fixed-point problem per level (topological value
iteration: Dai & Goldsmith 2007). A strongly connected MDP has one level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from bisimetric._transport import Costs
from bisimetric.exact.stochastic.coupling_kernels import KernelMDP
from bisimetric.exact.stochastic.distance_kernels import decode_pair


class PairLevel(NamedTuple):
    """Pairs, in increasing order, that depend on earlier levels and, if cyclic, on each other."""

    pairs: NDArray[Any]
    is_cyclic: bool


def order_pairs(model: KernelMDP, costs: Costs, num_pairs: int) -> list[PairLevel]:
    """Split the pairs into levels, each to be solved after those before it.

    Pairs of states that are not comparable depend on none and come first. Without a split, the list
    is empty.
    """
    component, level, is_cyclic = _find_components(model)
    if len(level) == 1 and not (model.classes != model.classes[0]).any():
        return []
    num_keys = 3 + 4 * int(level.max())
    keys, counts = np.empty(num_pairs, np.int32), np.zeros(num_keys, np.int64)
    _compute_keys(
        costs, model.classes, level[component].astype(np.int32), is_cyclic[component], keys, counts
    )
    if np.count_nonzero(counts) <= 1:
        return []
    ends = np.cumsum(counts)
    order = np.empty(num_pairs, np.uint32 if num_pairs <= 2**32 else np.int64)
    _sort_by_key(keys, ends - counts, order)
    return [
        PairLevel(order[ends[key] - counts[key] : ends[key]], key > 0 and key % 2 == 0)
        for key in np.flatnonzero(counts).tolist()
    ]


def _find_components(
    model: KernelMDP,
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the SCC of each state, and of each SCC its level and whether it has a cycle."""
    states, actions = model.reward.shape
    source = np.repeat(np.arange(states), np.diff(model.row_starts[::actions]))
    target = model.successors
    graph = sparse.csr_array((np.ones(len(target), np.int8), (source, target)), (states, states))
    num_components, component = csgraph.connected_components(graph, connection="strong")
    is_cyclic = np.bincount(component, minlength=num_components) > 1
    is_cyclic[component[source[source == target]]] = True
    between = component[source] != component[target]
    codes = component[target[between]].astype(np.int64) * num_components
    successor, predecessor = np.divmod(
        np.unique(codes + component[source[between]]), num_components
    )
    starts = np.searchsorted(successor, np.arange(num_components + 1))
    out_degree = np.bincount(predecessor, minlength=num_components)
    return component, _compute_levels(starts, predecessor, out_degree), is_cyclic


@njit(cache=True)
def _compute_levels(
    starts: NDArray[np.int64], predecessors: NDArray[np.int64], out_degree: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the longest path to a sink from each node of an acyclic graph (Kahn 1962).

    The predecessors of node i are `predecessors[starts[i]:starts[i + 1]]`.
    """
    nodes = len(out_degree)
    level, queue = np.zeros(nodes, np.int64), np.empty(nodes, np.int64)
    count = 0
    for node in range(nodes):
        if out_degree[node] == 0:
            queue[count] = node
            count += 1
    visited = 0
    while visited < count:
        node = queue[visited]
        visited += 1
        for at in range(starts[node], starts[node + 1]):
            above = predecessors[at]
            level[above] = max(level[above], level[node] + 1)
            out_degree[above] -= 1
            if out_degree[above] == 0:
                queue[count] = above
                count += 1
    return level


@njit(cache=True)
def _compute_keys(
    costs: Costs,
    classes: NDArray[np.int64],
    level: NDArray[np.int32],
    is_cyclic: NDArray[np.bool_],
    keys: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None:
    """Write the sort key of each pair, and count the pairs of each key."""
    for pair in range(len(keys)):
        s, t = decode_pair(costs, pair)
        key = 0
        if classes[s] == classes[t]:
            key = 1 + 2 * (level[s] + level[t]) + (1 if is_cyclic[s] and is_cyclic[t] else 0)
        keys[pair] = key
        counts[key] += 1


@njit(cache=True)
def _sort_by_key(keys: NDArray[np.int32], starts: NDArray[np.int64], order: NDArray[Any]) -> None:
    """Write the pairs by increasing key, those of one key in increasing order (counting sort)."""
    for pair in range(len(keys)):
        order[starts[keys[pair]]] = pair
        starts[keys[pair]] += 1
