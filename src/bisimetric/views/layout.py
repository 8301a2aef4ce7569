"""Geometry and text shared by the views: map cells, goals, titles and number formats.

Nothing here needs Matplotlib.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
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
    "reduced_mico": "reduced MICo distance",
    "undiscounted": "undiscounted distance",
}
KIND_SYMBOLS = {
    "bisimulation": "d~",
    "on_policy": "d^pi",
    "lax": "d_lax",
    "mico": "d_MICo",
    "reduced_mico": "d_red",
    "undiscounted": "d_1",
}
MATH_SYMBOLS = {
    r"d~": r"\tilde d",
    r"d\^(?:pi|\u03c0)(?!\w)": r"d^\pi",
    r"d_lax(?![\w.])": r"d_{\mathrm{lax}}",
    r"d_MICo(?![\w.])": r"d_{\mathrm{MICo}}",
    r"d_red(?![\w.])": r"d_{\mathrm{red}}",
    r"d_1(?![\w.])": r"d_1",
    r"V\^(?:pi|\u03c0)(?!\w)": r"V^\pi",
    r"V\*": r"V^*",
    r"pi(?![\w.])": r"\pi",
}
"""Patterns of symbols in plain text, and their mathtext."""


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


def find_absorbing_states(mdp: MDP) -> NDArray[np.int64]:
    """Find the states that no action leaves and where no action pays.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("pessimism")
    >>> [mdp.state_name(state) for state in find_absorbing_states(mdp)]
    ['u']
    """
    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    absorbing = (mdp.R == 0).all(axis=1)
    absorbing[source[(mdp.P.indices != source) & (mdp.P.data > 0)]] = False
    return np.flatnonzero(absorbing)


def find_goals(mdp: MDP) -> NDArray[np.int64]:
    """Find the goals: states that pay the largest reward whenever, and only when, they are entered.

    They are the successors of all transitions with the largest reward, provided that it is
    positive and that no other transition from outside enters one of them. Where there are none,
    as on slippery ice, they are the absorbing states that only actions of positive reward enter;
    or all absorbing states, where every other state and action costs something.

    >>> from bisimetric import worlds
    >>> for name in ("mirrored-rooms", "CliffWalking-v1"):
    ...     mdp = worlds.load(name)
    ...     print([mdp.state_name(goal) for goal in find_goals(mdp)])
    ['1,5', '5,5']
    ['3,11']
    """
    entered = _find_rewarded_states(mdp)
    return entered if len(entered) else _find_absorbing_goals(mdp)


def _find_absorbing_goals(mdp: MDP) -> NDArray[np.int64]:
    absorbing = find_absorbing_states(mdp)
    others = np.setdiff1d(np.arange(mdp.num_states), absorbing)
    if not len(absorbing) or not len(others):
        return absorbing[:0]
    if (mdp.R[others] < 0).all():
        return absorbing
    row = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr))
    entering = np.isin(row // mdp.num_actions, others) & (mdp.P.data > 0)
    rewarded = mdp.R.ravel()[row] > 0
    return np.setdiff1d(
        np.intersect1d(absorbing, mdp.P.indices[entering & rewarded]),
        mdp.P.indices[entering & ~rewarded],
    )


def _find_rewarded_states(mdp: MDP) -> NDArray[np.int64]:
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
    """Find the states of each part of a map that shows several maps beside or above each other.

    Every state name then consists of the part's name and the name inside it, each part has
    several states, and no two parts share a column of the map, or no two share a row; otherwise
    there are no parts. The parts of Taxi are its locations of the passenger and destinations.

    >>> from bisimetric import worlds
    >>> {name: len(states) for name, states in find_parts(worlds.load("duplicated-grid")).items()}
    {'lower': 31, 'upper': 31}
    >>> list(find_parts(worlds.load("Taxi-v4")))[::19]
    ['from R to R', 'aboard, to B']
    """
    trips = _find_trips(mdp)
    if trips:
        return trips
    names = [name.partition(" ") for name in mdp.names or ()]
    if mdp.positions is None or not names or not all(inner for *_, inner in names):
        return {}
    prefixes = np.array([prefix for prefix, *_ in names])
    parts = {str(prefix): np.flatnonzero(prefixes == prefix) for prefix in np.unique(prefixes)}
    several = len(parts) > 1 and min(map(len, parts.values())) > 1
    disjoint = any(_are_disjoint(mdp.positions[:, axis], parts) for axis in (0, 1))
    return parts if several and disjoint else {}


def _are_disjoint(coordinates: NDArray[np.float64], parts: dict[str, NDArray[np.int64]]) -> bool:
    """Tell whether the ranges of the parts along one axis do not overlap."""
    spans = sorted(
        (float(coordinates[states].min()), float(coordinates[states].max()))
        for states in parts.values()
    )
    return all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


TAXI_NAME = re.compile(r"taxi (\d),(\d) passenger (\w+) to (\w+)")


def _find_trips(mdp: MDP) -> dict[str, NDArray[np.int64]]:
    """Find the states of each location of the passenger and destination of Taxi."""
    if mdp.positions is None or not TAXI_NAME.fullmatch((mdp.names or ("",))[0]):
        return {}
    found: dict[tuple[str, str], list[int]] = {}
    for state, name in enumerate(mdp.names or ()):
        parsed = TAXI_NAME.fullmatch(name)
        if parsed is not None:
            found.setdefault((parsed[3], parsed[4]), []).append(state)
    return {
        f"aboard, to {there}" if here == "aboard" else f"from {here} to {there}": np.array(states)
        for (here, there), states in found.items()
    }


def describe_kind(d: Distance, *, capitalise: bool = False, normalise: bool = False) -> str:
    """Name the kind of distance in plain text, with a capital letter if it starts a sentence."""
    name = KIND_NAMES.get(d.kind, f"{d.kind} distance")
    if normalise:
        name = f"(1 - discount) * {name}"
    return name[0].upper() + name[1:] if capitalise else name


def typeset_kind(d: Distance, *, capitalise: bool = False, normalise: bool = False) -> str:
    """Name the kind of distance for a figure, with its symbol in mathtext."""
    name = describe_kind(d, capitalise=capitalise and not normalise)
    symbol = KIND_SYMBOLS.get(d.kind, "")
    if normalise:
        product = typeset(symbol).replace("$", r"$(1-\gamma)\,", 1)
        return f"{'Normalised' if capitalise else 'normalised'} {name} {product}"
    return f"{name} {typeset(symbol)}".rstrip()


def typeset(text: str) -> str:
    r"""Write the symbols of distances and values in a text as mathtext.

    >>> typeset("31 states, d^pi and d_lax")
    '31 states, $d^\\pi$ and $d_{\\mathrm{lax}}$'
    """
    for pattern, symbol in MATH_SYMBOLS.items():
        escaped = symbol.replace("\\", r"\\")
        text = re.sub(rf"(?<![\w$\\]){pattern}", f"${escaped}$", text)
    return text


def escape(name: str) -> str:
    """Escape the dollar signs of a name, which would start mathtext."""
    return name.replace("$", r"\$")


def get_scale(d: Distance, normalise: bool) -> float:
    """Return the factor of drawn distances: 1 - discount if they are normalised, otherwise 1."""
    return 1.0 - d.mdp.discount if normalise else 1.0


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
