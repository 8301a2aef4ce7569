"""Geometry and text shared by the views: map cells, goals, titles and number formats.

Nothing here needs Matplotlib.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bisimetric._text import pluralise
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP

KIND_NAMES = {
    "bisimulation": "bisimulation distance",
    "on_policy": "on-policy distance",
    "lax": "lax bisimulation distance",
    "mico": "MICo distance",
}


@dataclasses.dataclass(frozen=True)
class Cells:
    """The cells of a map.

    Attributes:
        shape: height and width in cells, with a border of one wall cell.
        rows: (S,), the row of each state in the map.
        columns: (S,), the column of each state in the map.
        corner: the position of cell (0, 0).
    """

    shape: tuple[int, int]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    corner: tuple[int, int]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of the map in positions, as `Axes.imshow` takes them."""
        (height, width), (top, left) = self.shape, self.corner
        return (left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5)

    def to_array(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Arrange one value per state (S,) in an array of `shape`, NaN in cells without a state."""
        array = np.full(self.shape, np.nan, dtype=values.dtype)
        array[self.rows, self.columns] = values
        return array

    def locate(self, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows and columns of states, counted as the positions are."""
        return self.rows[states] + self.corner[0], self.columns[states] + self.corner[1]


def find_cells(mdp: MDP) -> Cells | None:
    """Find the map of an MDP, or None if its positions define none.

    A map needs distinct integer positions that are not scattered over mostly empty space.

    >>> mdp = MDP.deterministic([[0], [0]], [[0], [1]], discount=0.5, positions=[[3, 7], [3, 9]])
    >>> find_cells(mdp).to_array(np.array([1.0, 2.0]))
    array([[nan, nan, nan, nan, nan],
           [nan,  1., nan,  2., nan],
           [nan, nan, nan, nan, nan]])
    """
    if mdp.positions is None or (mdp.positions != np.floor(mdp.positions)).any():
        return None
    low, high = mdp.positions.min(axis=0) - 1, mdp.positions.max(axis=0) + 1
    height, width = (high - low + 1).tolist()
    if height * width > 100 * (mdp.num_states + 100):
        return None
    rows, columns = (mdp.positions - low).astype(np.int64).T
    if len(np.unique(rows * int(width) + columns)) < mdp.num_states:
        return None
    return Cells((int(height), int(width)), rows, columns, (int(low[0]), int(low[1])))


def require_cells(mdp: MDP, caller: str, *, which: str = "", otherwise: str = "") -> Cells:
    """Find the map of an MDP, or raise an error that says what is missing.

    Args:
        mdp: whose positions define the map.
        caller: the function that draws it.
        which: the MDP's name in the message, such as " of the source".
        otherwise: an alternative to a map, such as ", or use plot_heatmap".

    Raises:
        InputError: the positions define no map.
    """
    cells = find_cells(mdp)
    if cells is None:
        raise InputError(
            f"{caller}: the states{which} have no map; give the MDP distinct integer "
            f"positions{otherwise}."
        )
    return cells


def find_goals(mdp: MDP) -> NDArray[np.int64]:
    """Find the states that pay the largest reward whenever, and only when, they are entered.

    They are the successors of all transitions with the largest reward, provided that it is
    positive and that no other transition from outside enters one of them.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> [mdp.state_name(goal) for goal in find_goals(mdp)]
    ['1,5', '5,5']
    """
    none = np.empty(0, dtype=np.int64)
    if mdp.R.max() <= 0:
        return none
    best = mdp.R.ravel() == mdp.R.max()
    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr))
    entered = np.zeros(mdp.num_states, dtype=bool)
    entered[mdp.P.indices[best[source]]] = True
    from_outside = ~entered[source // mdp.num_actions]
    if entered.all() or (entered[mdp.P.indices] & from_outside & ~best[source]).any():
        return none
    return np.flatnonzero(entered)


def find_parts(mdp: MDP) -> dict[str, NDArray[np.int64]]:
    """Find the states of each part of a map that shows several MDPs side by side.

    Every state name then consists of the part's name and the name inside it, each part has
    several states, and no two parts share a column of the map; otherwise there are no parts.

    >>> from bisimetric import worlds
    >>> {name: len(states) for name, states in find_parts(worlds.load("duplicated-grid")).items()}
    {'lower': 31, 'upper': 31}
    """
    names = [name.partition(" ") for name in mdp.names or ()]
    if mdp.positions is None or not names or not all(inner for *_, inner in names):
        return {}
    prefixes = np.array([prefix for prefix, *_ in names])
    parts = {str(prefix): np.flatnonzero(prefixes == prefix) for prefix in np.unique(prefixes)}
    spans = sorted(
        (float(mdp.positions[states, 1].min()), float(mdp.positions[states, 1].max()))
        for states in parts.values()
    )
    disjoint = all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    several = len(parts) > 1 and min(map(len, parts.values())) > 1
    return parts if several and disjoint else {}


def describe_kind(d: Distance, *, capitalise: bool = False) -> str:
    """Name the kind of distance, with a capital letter if it starts a sentence."""
    name = KIND_NAMES.get(d.kind, f"{d.kind} distance")
    return name[0].upper() + name[1:] if capitalise else name


def format_summary(d: Distance) -> str:
    """Format the number of states and the details of a distance."""
    return f"{pluralise(d.mdp.num_states, 'state')}, {format_details(d)}"


def find_unknown_states(d: Distance) -> NDArray[np.int64]:
    """Find the states that the recorded data never visited."""
    if d.coverage is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(~d.coverage.visited)


def format_details(d: Distance) -> str:
    """Format the discount, and whether the values are estimates or lower bounds."""
    caveat = "" if d.estimate is None else ", an estimate"
    if d.coverage is not None and not d.coverage.complete:
        caveat = ", lower bounds"
    return f"discount {d.mdp.discount:g}{caveat}"


def build_number_format(values: NDArray[np.floating]) -> Callable[[float], str]:
    """Build one format for all `values`: equally many decimals, four digits for the largest.

    >>> format_number = build_number_format(np.array([0.0, 1.5, 150.25]))
    >>> format_number(150.25), format_number(1.5), format_number(0.0)
    ('150.2', '1.5', '0')
    """
    largest = float(np.abs(values).max())
    if largest == 0:
        return lambda number: "0"
    # Rounded first, so that 9.99999 counts as the 10.00 that it is written as.
    magnitude = math.floor(math.log10(float(f"{largest:.3e}")))
    if not -3 <= magnitude <= 5:
        return lambda number: f"{number:.1e}" if number else "0"
    decimals = max(0, 3 - max(magnitude, 0))
    return lambda number: f"{number:.{decimals}f}" if number else "0"
