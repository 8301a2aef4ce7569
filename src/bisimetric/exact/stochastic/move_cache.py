"""What is cached of each move of a pair: a bound of 16 bits on its value, and its coupling.

The basis tree of a coupling is stored as one parent per node, of which two share a byte where
supports are small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._transport import NO_ALLOCATION

FLOAT32_MARGIN = 1e-6
"""The relative error of a float32 number, with a margin."""
UNBOUNDED = 0x7C00
"""The code of a bound that says nothing."""
MAX_BOUND = 6e4
"""The largest magnitude of a bound in 16 bits."""
MAX_PACKED_SUPPORT = 16
"""The largest support for which two nodes of a tree share a byte."""


class PairLayout(NamedTuple):
    """Where the entries of a pair start in an array: see `locate_pair`."""

    starts: NDArray[Any]  # per state, or per pair
    own: NDArray[Any]  # (S,), entries of a pair for its larger state
    preceding: NDArray[Any]  # (S,), those for all smaller states; empty: starts are per pair


class CouplingCache(NamedTuple):
    """Bounds and couplings of each move; the bounds of a pair are at pair * moves + move."""

    bound: NDArray[Any]  # an upper bound on value - discount * drift; lax: on -value - ...
    choice: NDArray[Any]  # one action per pair; lax: (side * A + action) * A + response
    trees: NDArray[Any]  # a node's parent among the other side's; at the root, if there is a tree
    layout: PairLayout  # of the nodes
    is_packed: bool  # whether two nodes share a byte


class ChosenCouplings(NamedTuple):
    """The successor pairs of each pair under the chosen actions and couplings, and their masses.

    A successor pair is stored as the positions i and j of its states in the two rows of P, as
    (i << shift) + j. Where only some pairs have distances, it is stored as its index.
    """

    successors: NDArray[Any]
    masses: NDArray[Any]  # in units of `unit`; the first 0 ends a row
    layout: PairLayout
    unit: float
    shift: int


@njit(**NO_ALLOCATION)
def encode_bound(bound):
    """Round a bound up to 16 bits: a sign, 5 bits of exponent and 10 of mantissa."""
    if not abs(bound) < MAX_BOUND:
        return UNBOUNDED
    # The exponent of float32 minus 112 fits into 5 bits.
    magnitude = np.float32(np.float32(abs(bound)) * np.float32(2.0**-112))
    code = np.int64(magnitude.view(np.int32)) >> 13
    if bound < 0:
        return code | 0x8000
    return code + 1 if decode_bound(code) < bound else code


@njit(**NO_ALLOCATION)
def decode_bound(code):
    """Return a bound of 16 bits."""
    if code == UNBOUNDED:
        return np.inf
    magnitude = np.int32((np.int64(code) & 0x7FFF) << 13).view(np.float32)
    bound = np.float64(magnitude) * 2.0**112
    return -bound if code >= 0x8000 else bound


@njit(nogil=True, **NO_ALLOCATION)
def shift_bounds(bounds, change, low, high):
    """Add a change to all bounds."""
    for at in range(low, high):
        if bounds[at] != UNBOUNDED:
            bound = decode_bound(bounds[at]) + change
            bounds[at] = encode_bound(bound + FLOAT32_MARGIN * (abs(bound) + 2 * abs(change)))


@njit(cache=True, inline="always")
def locate_pair(layout, pair, s, t):
    """Return where the entries of the pair (s, t), t < s, start."""
    if layout.preceding.size == 0:
        return layout.starts[pair]
    return layout.starts[s] + t * layout.own[s] + layout.preceding[t]


@njit(cache=True, inline="always")
def locate_tree(model, cache, pair, s, t, a, b):
    """Return the position of the root of the tree of a move."""
    actions, starts = model.reward.shape[1], model.row_starts
    # Nodes of the rows of earlier actions: those of a pair are one after the other.
    p, q = starts[s * actions + a] - starts[s * actions], starts[t * actions + b]
    if not model.match_freely:
        return locate_pair(cache.layout, pair, s, t) + p + q - starts[t * actions]
    own = starts[s * actions + a + 1] - starts[s * actions + a]
    other = starts[(t + 1) * actions] - starts[t * actions]
    q -= starts[t * actions]
    return locate_pair(cache.layout, pair, s, t) + actions * p + a * other + b * own + q


@njit(cache=True, inline="always")
def read_node(cache, position):
    """Return an entry of the trees."""
    if cache.is_packed:
        return (cache.trees[position >> 1] >> (4 * (position & 1))) & 15
    return cache.trees[position]


@njit(cache=True, inline="always")
def write_node(cache, position, value):
    """Set an entry of the trees; two that share a byte belong to one pair."""
    if cache.is_packed:
        shift = 4 * (position & 1)
        byte = cache.trees[position >> 1]
        cache.trees[position >> 1] = (byte & (240 >> shift)) | (value << shift)
    else:
        cache.trees[position] = value
