"""What is proven of distances, for the uses that promise something by them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.rounding import TINY, UNIT, two_sum

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
