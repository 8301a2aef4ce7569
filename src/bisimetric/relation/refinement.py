"""The deterministic kernel: strong bisimulation of a labelled graph, by the smaller half.

Paige & Tarjan (1987), Three partition refinement algorithms, SIAM J. Comput. 16(6);
Valmari (2009), Bisimilarity minimization in O(m log n) time, Petri Nets 2009.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.relation.partition import (
    Partition,
    build_partition,
    mark,
    number_blocks,
    sort_by_key,
    split_marked,
)


class Bundles(NamedTuple):
    """The edges from one state in one processed cord are a bundle; `size` counts them."""

    bundle: NDArray[Any]  # of each edge
    size: NDArray[Any]  # of each bundle
    num_in_cord: NDArray[Any]  # how many edges a state has in the cord that is processed
    current: NDArray[Any]  # the bundle of these edges
    num_bundles: NDArray[Any]  # how many bundles there are


@njit(cache=True)
def build_bundles(source: NDArray[Any], num_states: int) -> Bundles:
    """One bundle a state, of all its edges; every state has equally many."""
    size = np.empty_like(source)
    size[:num_states] = len(source) // num_states
    inside = np.zeros(num_states, source.dtype)
    home = np.empty(num_states, source.dtype)
    return Bundles(source.copy(), size, inside, home, np.array([num_states]))


@njit(cache=True)
def split_by_cord(
    blocks: Partition,
    edges: NDArray[Any],
    source: NDArray[Any],
    match_freely: bool,
    bundles: Bundles,
) -> None:
    """Part the states of each block by how their edges lie in a cord, part of a processed one.

    All edges of a state in the processed cord may lie in this part of it, or none; or only some,
    if actions are matched freely (`free`), since then a cord has several edges from one state.
    """
    states = source[edges]
    mark(blocks, states)
    split_marked(blocks)
    if not match_freely:
        return
    bundle, size, inside, home, known = bundles
    for s in states:
        inside[s] += 1
    partly = 0
    for i in range(len(edges)):
        e, s = edges[i], states[i]
        if inside[s] > 0:
            if inside[s] == size[bundle[e]]:
                home[s] = bundle[e]
            else:
                size[bundle[e]] -= inside[s]
                size[known[0]] = inside[s]
                home[s] = known[0]
                known[0] += 1
                states[partly] = s
                partly += 1
            inside[s] = 0
        bundle[e] = home[s]
    mark(blocks, states[:partly])
    split_marked(blocks)


@njit(cache=True)
def refine(
    targets: NDArray[Any], labels: NDArray[Any], num_labels: int, match_freely: bool
) -> NDArray[np.int64]:
    """The classes (S,) of strong bisimulation, for edges s -`labels[s, a]`-> `targets[s, a]`.

    Edges of different actions have different labels, unless actions are matched freely (`free`).
    Edges are parted into cords: those of one label into one block of states. A cord that has
    been processed splits no block: all states of a block have an edge in it, or none has. A part c
    of a processed cord K splits a block three ways: states whose edges in K lie all in c, partly,
    or not at all. All edges together count as the first processed cord (or, if not `free`, all
    edges of each action), as every state has one.

    A half that is parted off is the smaller one, so an edge is in at most log2(m) + 1 cords that
    are processed, and a state in at most log2(S) blocks whose incoming edges part the cords.
    Cords go first, as a block that is split before its turn need not be searched as a whole.
    """
    num_states, num_actions = targets.shape
    # Edges are numbered by target: those into state s are into[s] to into[s + 1] - 1.
    by_target, into = sort_by_key(targets.ravel(), num_states)
    source = (by_target // num_actions).astype(targets.dtype)
    cords = build_partition(labels.ravel()[by_target], num_labels)
    blocks = build_partition(np.zeros(num_states, targets.dtype), 1)
    bundles = build_bundles(source, num_states)
    entering = np.empty_like(source)
    b, c = 1, 1  # block 0 and cord 0 are what the others leave
    while True:
        if c < cords.counts[0]:
            edges = cords.order[cords.start[c] : cords.stop[c]]
            split_by_cord(blocks, edges, source, match_freely, bundles)
            c += 1
        elif b < blocks.counts[0]:
            found = 0
            for s in blocks.order[blocks.start[b] : blocks.stop[b]]:
                for e in range(into[s], into[s + 1]):
                    entering[found] = e
                    found += 1
            mark(cords, entering[:found])
            split_marked(cords)
            b += 1
        else:
            return number_blocks(blocks)
