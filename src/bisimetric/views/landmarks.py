"""Marks on the map of an MDP: absorbing states, walls between cells, and Taxi's stands.

Nothing here needs Matplotlib.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.mdp import MDP, TERMINAL
from bisimetric.views.layout import TAXI_NAME, Cells, find_absorbing_states, find_goals

MIN_CONNECTED_FRACTION = 0.75
"""Of neighbouring cells that a step connects, for the others to be separated by walls."""
TAXI_STANDS = {"R": (0, 0), "G": (0, 4), "Y": (4, 0), "B": (4, 3)}


def find_holes(mdp: MDP) -> NDArray[np.int64]:
    """Find the absorbing states that are no goals, such as the holes of FrozenLake.

    The state "end", which has its name on the map, is left out.

    >>> from bisimetric import worlds
    >>> lake = worlds.load("FrozenLake-v1", is_slippery=False)
    >>> [lake.state_name(hole) for hole in find_holes(lake)]
    ['1,1', '1,3', '2,3', '3,0']
    """
    absorbing = find_absorbing_states(mdp)
    if len(absorbing) == mdp.num_states:
        return absorbing[:0]
    named_end = [s for s in absorbing if mdp.state_name(int(s)) == TERMINAL]
    return np.setdiff1d(absorbing, np.concatenate([find_goals(mdp), named_end]).astype(np.int64))


def find_walls(mdp: MDP, cells: Cells) -> NDArray[np.float64]:
    """Find the walls between neighbouring cells, which no step crosses in either direction.

    Walls are drawn only where steps connect most neighbours: elsewhere, positions are no places.

    Args:
        mdp: whose transitions are the steps.
        cells: of its map.

    Returns:
        (n, 2, 2), the ends of each wall: x and y, counted as the positions are.

    >>> from bisimetric import worlds
    >>> taxi = worlds.load("Taxi-v4")
    >>> from bisimetric.views.layout import find_cells
    >>> len(find_walls(taxi, find_cells(taxi)))  # 6 in each of 20 maps
    120
    """
    grid = np.full(cells.shape, -1, np.int64)
    grid[cells.rows, cells.columns] = np.arange(mdp.num_states)
    sources = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    possible = mdp.P.data > 0
    ends = (sources[possible], mdp.P.indices[possible])
    steps = sparse.csr_array((np.ones(len(ends[0])), ends), shape=(mdp.num_states,) * 2)
    absorbing = np.zeros(mdp.num_states, np.bool_)
    absorbing[find_absorbing_states(mdp)] = True
    walls, num_pairs = [], 0
    for first, second, across in (
        (grid[:, :-1], grid[:, 1:], True),
        (grid[:-1], grid[1:], False),
    ):
        both = (first >= 0) & (second >= 0)
        s, t = first[both], second[both]
        # No step leaves two absorbing states, whether there is a wall or not.
        s, t = s[~(absorbing[s] & absorbing[t])], t[~(absorbing[s] & absorbing[t])]
        if not len(s):
            continue
        num_pairs += len(s)
        blocked = t[(np.asarray(steps[s, t]) == 0) & (np.asarray(steps[t, s]) == 0)]
        rows, columns = cells.locate(blocked)
        start = np.column_stack([columns - 0.5, rows - 0.5])
        walls.append(np.stack([start, start + ([0, 1] if across else [1, 0])], axis=1))
    found = np.concatenate(walls) if walls else np.empty((0, 2, 2))
    if len(found) > (1 - MIN_CONNECTED_FRACTION) * num_pairs:
        return np.empty((0, 2, 2))
    return found


def find_stands(mdp: MDP) -> dict[int, str]:
    """Find the states of Taxi at the passenger's location and at the destination.

    >>> from bisimetric import worlds
    >>> taxi = worlds.load("Taxi-v4")
    >>> stands = find_stands(taxi)
    >>> stands[taxi.state("taxi 0,0 passenger R to G")]
    'R'
    """
    found = {}
    for state, name in enumerate(mdp.names or ()):
        parsed = TAXI_NAME.fullmatch(name)
        if parsed is None:
            if state == 0:
                break
            continue
        row, column, *places = parsed.groups()
        for place in places:
            if TAXI_STANDS.get(place) == (int(row), int(column)):
                found[state] = place
    return found
