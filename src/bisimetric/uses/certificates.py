"""Tables of distances as every use takes them: checked at the border, entry by entry.

What is proven of distances, for the uses that promise something by them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._rounding import TINY, UNIT, two_sum
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction

TILE = 512
"""Rows and columns that are looked at together, so that a check needs no second table."""


def validate_distance_matrix(caller: str, d: Any) -> NDArray[np.floating]:
    """The table (n, n) of a `Distance`, of a `Learned` that knows its states, or an array.

    Its numbers are finite and at least 0, and it is symmetric up to half of their digits, which a
    network rounds away. What is wrong is said in the name of `where`, with the entry.

    >>> checked_table("uses.aggregate", [[0, 1], [1, 0]])
    array([[0., 1.],
           [1., 0.]])
    >>> checked_table("uses.aggregate", [[0, 1], [2, 0]])
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: uses.aggregate: the table has 1 at [0, 1] and 2 at [1, 0] and must
    be symmetric; take np.maximum(d, d.T).
    """
    given = getattr(d, "values", d)
    table = np.asarray(d if callable(given) else given)
    if table.dtype.kind in "biuf" and table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    shape = table.shape
    if len(shape) != 2 or shape[0] != shape[1] or 0 in shape or table.dtype.kind != "f":
        raise InputError(
            f"{caller}: the table is {table.dtype} of shape {shape} and must be square, with a real "
            "number for each two states."
        )
    largest = _require_finite(caller, table)
    _require_symmetry(caller, table, largest * float(np.sqrt(np.finfo(table.dtype).eps)))
    return table


def validate_state_distances(caller: str, d: Any) -> NDArray[np.floating]:
    """The checked table of d, with 0 from a state to itself."""
    if not isinstance(d, Distance) and hasattr(d, "distance") and getattr(d, "kind", "") != "mico":
        # A network does not know that a state is at distance 0 of itself.
        d = np.array(d.values)
        np.fill_diagonal(d, 0.0)
    table = validate_distance_matrix(caller, d)
    itself = table.diagonal()
    if itself.any():
        s = int(np.argmax(itself > 0))
        raise InputError(
            f"{caller}: the table has {itself[s]:g} at [{s}, {s}] and a point is at distance 0 of "
            "itself; of a MICo distance U take U(s, t) - (U(s, s) + U(t, t)) / 2."
        )
    return table


def _require_finite(caller: str, distances: NDArray[np.floating]) -> float:
    """Refuses what is no distance; the largest that there is."""
    largest = 0.0
    for start in range(0, len(distances), TILE):
        rows = distances[start : start + TILE]
        good = np.isfinite(rows) & (rows >= 0)
        if not good.all():
            i, j = np.argwhere(~good)[0]
            raise InputError(
                f"{caller}: the table has {rows[i, j]:g} at [{start + i}, {j}] and distances must "
                "be finite and at least 0."
            )
        largest = max(largest, float(rows.max()))
    return largest


def _require_symmetry(caller: str, distances: NDArray[np.floating], tolerance: float) -> None:
    for top in range(0, len(distances), TILE):
        for left in range(0, top + 1, TILE):
            here = distances[left : left + TILE, top : top + TILE]
            there = distances[top : top + TILE, left : left + TILE].T
            apart = np.abs(here - there) > tolerance
            if apart.any():
                i, j = np.argwhere(apart)[0]
                raise InputError(
                    f"{caller}: the table has {here[i, j]:g} at [{left + i}, {top + j}] and "
                    f"{there[i, j]:g} at [{top + j}, {left + i}] and must be symmetric; take "
                    "np.maximum(d, d.T)."
                )


ROUNDING_SLACK = 1e-9
"""The share by which a bound is raised, far more than the rounding of its sums."""


def certified_error(d: Any) -> float:
    """The proven error of all distances of d, infinite where there is none.

    A table from data proves nothing of ids that were never lived in.

    >>> proven([[0.0, 1.0], [1.0, 0.0]])
    inf
    """
    if not isinstance(d, Distance) or (d.coverage is not None and not d.coverage.visited.all()):
        return math.inf
    return d.error


def add_upward(*terms: Any) -> Any:
    """The sum of numbers or arrays, never below the exact sum; exact where nothing is rounded.

    >>> add_up(1.0, 2.0**-60) > 1, add_up(1.0, 2.0, 0.0)
    (True, 3.0)
    """
    total: Any = terms[0]
    for term in terms[1:]:
        with np.errstate(invalid="ignore", over="ignore"):
            rounded, lost = two_sum(total, term)
            total = np.where(lost > 0, np.nextafter(rounded, np.inf), rounded)
    return total if np.ndim(total) else float(total)


def multiply_upward(factor: float, numbers: Any) -> Any:
    """The product of a factor and numbers, both at least 0, never below the exact one.

    >>> scale_up(0.5, 2.0**-1074) == 2.0**-1074, scale_up(0.5, 0.0)
    (True, 0.0)
    """
    with np.errstate(over="ignore", under="ignore"):
        product = np.multiply(factor, numbers)
        raised = np.where(np.multiply(numbers, factor > 0), np.nextafter(product, np.inf), 0.0)
    return raised if np.ndim(raised) else float(raised)


def round_upward(number: Fraction) -> float:
    """The least float that is not below a number.

    >>> round_up(Fraction(1, 2)), round_up(Fraction(1, 10)) > Fraction(1, 10)
    (0.5, True)
    """
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def diameter_bound(mdp: MDP) -> float:
    """The range of R / (1 - discount), rounded up: no two values differ by more.

    >>> diameter_bound(MDP.deterministic([[0, 0]], [[1, 3]], discount=0.5))
    4.0
    """
    paid = mdp.R if mdp.available is None else mdp.R[mdp.available]
    largest, least = Fraction(float(paid.max())), Fraction(float(paid.min()))
    return round_upward((largest - least) / (1 - Fraction(mdp.discount)))


def difference_error(one: ValueFunction, other: ValueFunction, largest: float) -> float:
    """How far differences of two values, none above `largest`, may be from the true ones."""
    return float(add_upward(one.error, other.error, multiply_upward(UNIT, abs(largest))))


def certified_action_values(mdp: MDP, values: ValueFunction) -> ValueFunction:
    """Q (S, A) of values V, to within a proven error of what the true values make.

    With n the most entries of a row: normalising it takes n units of rounding, the sum another n,
    and the discount and the reward a few.
    """
    longest = int(np.diff(mdp.P.indptr).max())
    largest = float(np.abs(mdp.R).max() + np.abs(values.values).max())
    rounding = (2 * longest + 8) * (UNIT * largest + TINY)
    error = add_upward(multiply_upward(mdp.discount, values.error), rounding)
    return ValueFunction(planning.action_values(mdp, values), error)


def describe_mismatch(mdp: MDP, other: MDP) -> str | None:
    """How the other MDP differs from the one that a proof speaks of, by its numbers, or None.

    >>> mdp = MDP.deterministic([[0]], [[1]], discount=0.5)
    >>> difference(mdp, mdp.replace(discount=0.9)), difference(mdp, mdp.replace(names="x"))
    ('its discount is 0.9 and not 0.5', None)
    """
    if mdp.discount != other.discount:
        return f"its discount is {other.discount:g} and not {mdp.discount:g}"
    for what, here, there in zip(("states", "actions"), mdp.R.shape, other.R.shape, strict=True):
        if here != there:
            return f"it has {there:,} {what} and not {here:,}"
    if (mdp.R != other.R).any():
        return "its rewards differ"
    if (mdp.action_mask != other.action_mask).any():
        return "its available actions differ"
    if not all(
        np.array_equal(getattr(mdp.P, part), getattr(other.P, part))
        for part in ("indptr", "indices", "data")
    ):
        return "its transitions differ"
    return None
