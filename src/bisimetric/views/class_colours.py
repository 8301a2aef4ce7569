"""Colours of classes of states: twelve, and twelve more where neighbours have all of them.

Nothing here needs Matplotlib. `explorer/parts/classes.js` assigns the same colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric.views.layout import Cells

CLASS_PALETTE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#2020d8",
    "#303000",
    "#a8f090",
    "#600060",
    "#7f5539",
    "#000000",
    "#7070ff",
    "#400090",
    "#604050",
    "#70b060",
    "#d0d0b0",
    "#904000",
    "#50a0ff",
    "#90e0ff",
    "#f0ff80",
    "#001030",
    "#805080",
)
"""The colours of Okabe and Ito without black, and 17 more. Any two differ by at least 17 units of
CIELAB, also with protanopia or deuteranopia (simulated as in Machado et al. 2009)."""
NUM_COMMON_COLOURS = 12
"""The first ones; the others are for classes whose neighbours have all of these."""


def find_neighbours(cells: Cells) -> NDArray[np.int64]:
    """Find all pairs of states (n, 2) whose cells share a side or a corner."""
    grid = np.full((cells.shape[0] + 1, cells.shape[1] + 2), -1, np.int64)
    grid[cells.rows, cells.columns + 1] = np.arange(len(cells.rows))
    middle = grid[:-1, 1:-1]
    others = (grid[:-1, 2:], grid[1:, 1:-1], grid[1:, 2:], grid[1:, :-2])
    pairs = [np.stack([middle, other], axis=-1).reshape(-1, 2) for other in others]
    found = np.concatenate(pairs)
    return found[(found >= 0).all(axis=1)]


def assign_colours(
    labels: NDArray[np.integer], neighbours: Iterable[Sequence[int]], *, smallest: int = 2
) -> NDArray[np.int64]:
    """Assign a colour to each class of at least two states, greedily, in the order of first states.

    A class gets a colour that none of its neighbours has, if possible one of the first twelve;
    then the one that the fewest classes have, then the first. Only where its neighbours have all
    24 colours, it gets the one that the fewest of them have.

    Args:
        labels: (S,), the class of each state, from 0 on.
        neighbours: pairs of states whose cells touch.
        smallest: the size of the smallest classes that get a colour.

    Returns:
        (classes,), indices of `CLASS_PALETTE`; -1 for a class that is too small.

    >>> assign_colours(np.array([0, 1, 0, 1, 2]), [(0, 1), (1, 2)]).tolist()
    [0, 1, -1]
    """
    sizes = np.bincount(labels)
    adjacent: list[set[int]] = [set() for _ in sizes]
    for s, t in neighbours:
        first, second = int(labels[s]), int(labels[t])
        if first != second:
            adjacent[first].add(second)
            adjacent[second].add(first)
    colours = np.full(len(sizes), -1, np.int64)
    uses = [0] * len(CLASS_PALETTE)
    for label in dict.fromkeys(labels.tolist()):
        if sizes[label] < smallest:
            continue
        taken = Counter(int(colours[other]) for other in adjacent[label])
        best = min(
            range(len(uses)),
            key=lambda c: (taken[c], taken[c] > 0 or c >= NUM_COMMON_COLOURS, uses[c], c),
        )
        colours[label] = best
        uses[best] += 1
    return colours
