"""What a view knows of a table before it draws: cells, goals, titles and the form of numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.mdp import MDP

KIND_NAMES = {
    "bisimulation": "bisimulation distance",
    "on_policy": "on-policy distance",
    "lax": "lax bisimulation distance",
    "mico": "MICo distance",
}


@dataclasses.dataclass(frozen=True)
class Cells:
    """The cells of a map: `shape` in cells, one of wall on every side; `rows` and `columns` (S,)
    of each state in it; and `corner`, the position of cell (0, 0)."""

    shape: tuple[int, int]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    corner: tuple[int, int]

    def to_array(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """One number a state (S,) as an array of `shape`, NaN where there is no state."""
        placed = np.full(self.shape, np.nan, dtype=values.dtype)
        placed[self.rows, self.columns] = values
        return placed


def find_cells(mdp: MDP) -> Cells | None:
    """The map of an MDP, or None where its positions make none.

    A map needs distinct, whole positions that are not scattered over mostly empty space.

    >>> mdp = MDP.deterministic([[0], [0]], [[0], [1]], discount=0.5, positions=[[3, 7], [3, 9]])
    >>> cells(mdp).place(np.array([1.0, 2.0]))
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


def find_goals(mdp: MDP) -> NDArray[np.int64]:
    """The states that pay the largest reward whenever, and only when, they are entered.

    They are the successors of all moves with the largest reward, if that is positive and no
    other move from outside leads to one of them; else there are none.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> [mdp.name(goal) for goal in goals(mdp)]
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
    """The states of each part of a map that shows several worlds side by side.

    Every name is then the word of its part and the name inside it, no part is a single state, and
    no two share a column of the map; else there are no parts.

    >>> from bisimetric import worlds
    >>> {name: len(states) for name, states in parts(worlds.load("duplicated-grid")).items()}
    {'lower': 31, 'upper': 31}
    """
    words = [name.partition(" ") for name in mdp.names or ()]
    if mdp.positions is None or not words or not all(inner for *_, inner in words):
        return {}
    first = np.array([word for word, *_ in words])
    found = {str(word): np.flatnonzero(first == word) for word in np.unique(first)}
    spans = sorted(
        (float(mdp.positions[states, 1].min()), float(mdp.positions[states, 1].max()))
        for states in found.values()
    )
    apart = all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    several = len(found) > 1 and min(map(len, found.values())) > 1
    return found if several and apart else {}


def describe_kind(d: Distance, *, capitalise: bool = False) -> str:
    """What the numbers are, in words; at the `start` of a sentence with a capital letter."""
    words = KIND_NAMES.get(d.kind, f"{d.kind} distance")
    return words[0].upper() + words[1:] if capitalise else words


def format_summary(d: Distance) -> str:
    """How many states, and the small print."""
    states = "1 state" if d.mdp.num_states == 1 else f"{d.mdp.num_states} states"
    return f"{states}, {format_details(d)}"


def find_unknown_states(d: Distance) -> NDArray[np.int64]:
    """The states of which nothing is known: ids that no step of the data left or lived in."""
    if d.coverage is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(~d.coverage.visited)


def format_details(d: Distance) -> str:
    """The discount, and what the numbers are where they are not the distances."""
    unsure = "" if d.estimate is None else ", an estimate"
    if d.coverage is not None and not d.coverage.complete:
        unsure = ", lower bounds"
    return f"discount {d.mdp.discount:g}{unsure}"


def build_number_format(values: NDArray[np.floating]) -> Callable[[float], str]:
    """One way to write all `numbers`: equally many decimals, four digits for the largest.

    >>> written = number_format(np.array([0.0, 1.5, 150.25]))
    >>> written(150.25), written(1.5), written(0.0)
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
