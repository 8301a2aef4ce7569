"""Distances as inputs of every use: validated matrices, their certified errors, upward rounding."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._rounding import TINY, UNIT, two_sum
from bisimetric.distance import Distance, StateDistance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction

TILE = 512
"""Rows and columns that are validated together, so that no copy of the matrix is needed."""
ROUNDING_SLACK = 1e-9
"""The relative amount by which a bound is raised, far more than the rounding of its sums."""


@runtime_checkable
class ObservationDistance(Protocol):
    """A distance between observations, such as a `learned.LearnedDistance`."""

    def table(self, x: Any, y: Any) -> NDArray[Any]:
        """Return the (n, m) distances between observations (n, ...) and (m, ...)."""


@runtime_checkable
class ListedDistance(StateDistance, Protocol):
    """A learned distance that may list its states.

    Attributes:
        points: (S, ...), the observations of the states, or None.
    """

    @property
    def points(self) -> NDArray[Any] | None: ...


def is_network(d: Any) -> TypeGuard[Any]:
    """Return whether d is evaluated on observations, as a network is, and is no matrix."""
    return isinstance(d, ObservationDistance) and not isinstance(d, Distance)


def validate_distance_matrix(caller: str, d: Any) -> NDArray[np.floating]:
    """Return the (n, n) matrix of a `Distance`, a `LearnedDistance` of listed states, or an array.

    Its entries must be finite and at least 0, and symmetric up to half of their digits, which
    allows for the rounding of a network. Errors name `caller` and the entry.

    >>> validate_distance_matrix("uses.aggregate", [[0, 1], [1, 0]])
    array([[0., 1.],
           [1., 0.]])
    >>> validate_distance_matrix("uses.aggregate", [[0, 1], [2, 0]])
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: uses.aggregate: the distance matrix has 1 at [0, 1] and 2 at
    [1, 0] and must be symmetric; take np.maximum(d, d.T).
    """
    matrix = np.asarray(d.values if isinstance(d, Distance) or is_network(d) else d)
    if matrix.dtype.kind in "biuf" and matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    shape = matrix.shape
    if len(shape) != 2 or shape[0] != shape[1] or 0 in shape or matrix.dtype.kind != "f":
        raise InputError(
            f"the distance matrix is {matrix.dtype} of shape {shape} and must be square, with real "
            "numbers",
            caller=caller,
        )
    largest = _require_finite(caller, matrix)
    _require_symmetry(caller, matrix, largest * float(np.sqrt(np.finfo(matrix.dtype).eps)))
    return matrix


def validate_state_distances(caller: str, d: Any) -> NDArray[np.floating]:
    """Return the validated matrix of d and require zeros on its diagonal."""
    if is_network(d) and d.kind != "mico":
        # A network need not output 0 for a state and itself.
        d = np.array(d.values)
        np.fill_diagonal(d, 0.0)
    matrix = validate_distance_matrix(caller, d)
    diagonal = matrix.diagonal()
    if diagonal.any():
        s = int(np.argmax(diagonal > 0))
        raise InputError(
            f"the distance matrix has {diagonal[s]:g} at [{s}, {s}] and must be 0 on the diagonal",
            caller=caller,
            remedy="for a MICo distance use exact.reduced_mico or learned.reduced_mico",
        )
    return matrix


def _require_finite(caller: str, distances: NDArray[np.floating]) -> float:
    """Require finite entries of at least 0 and return the largest."""
    largest = 0.0
    for start in range(0, len(distances), TILE):
        rows = distances[start : start + TILE]
        good = np.isfinite(rows) & (rows >= 0)
        if not good.all():
            i, j = np.argwhere(~good)[0]
            raise InputError(
                f"the distance matrix has {rows[i, j]:g} at [{start + i}, {j}] and must be finite "
                "and at least 0",
                caller=caller,
            )
        largest = max(largest, float(rows.max()))
    return largest


def _require_symmetry(caller: str, distances: NDArray[np.floating], tolerance: float) -> None:
    """Require entries [i, j] and [j, i] that differ by at most `tolerance`."""
    for top in range(0, len(distances), TILE):
        for left in range(0, top + 1, TILE):
            upper = distances[left : left + TILE, top : top + TILE]
            lower = distances[top : top + TILE, left : left + TILE].T
            asymmetric = np.abs(upper - lower) > tolerance
            if asymmetric.any():
                i, j = np.argwhere(asymmetric)[0]
                raise InputError(
                    f"the distance matrix has {upper[i, j]:g} at [{left + i}, {top + j}] and "
                    f"{lower[i, j]:g} at [{top + j}, {left + i}] and must be symmetric",
                    caller=caller,
                    remedy="take np.maximum(d, d.T)",
                )


def certify_error(d: Any) -> float:
    """Return the proven error of all distances of d, infinite where nothing is proven.

    A matrix estimated from data proves nothing about ids that were never visited, and one between
    recorded steps nothing about an MDP where some have no successor. Reduced MICo, and distances
    with a `gap` of their own, do not bound differences of values, however small their error is.

    >>> certify_error([[0.0, 1.0], [1.0, 0.0]])
    inf
    """
    if not isinstance(d, Distance) or not d.bounds_values:
        return math.inf
    if d.coverage is not None and not d.coverage.visited.all():
        return math.inf
    return d.error if d.has_successor.all() else math.inf


def add_upward(*terms: Any) -> Any:
    """Add numbers or arrays, rounding upward; exact where the sum is a float.

    >>> add_upward(1.0, 2.0**-60) > 1, add_upward(1.0, 2.0, 0.0)
    (True, 3.0)
    """
    total: Any = terms[0]
    for term in terms[1:]:
        with np.errstate(invalid="ignore", over="ignore"):
            rounded, remainder = two_sum(total, term)
            total = np.where(remainder > 0, np.nextafter(rounded, np.inf), rounded)
    return total if np.ndim(total) else float(total)


def multiply_upward(factor: float, numbers: Any) -> Any:
    """Multiply numbers by a factor, both at least 0, rounding upward.

    >>> multiply_upward(0.5, 2.0**-1074) == 2.0**-1074, multiply_upward(0.5, 0.0)
    (True, 0.0)
    """
    with np.errstate(over="ignore", under="ignore"):
        product = np.multiply(factor, numbers)
        raised = np.where(np.multiply(numbers, factor > 0), np.nextafter(product, np.inf), 0.0)
    return raised if np.ndim(raised) else float(raised)


def round_upward(number: Fraction) -> float:
    """Return the least float that is not below a number.

    >>> round_upward(Fraction(1, 2)), round_upward(Fraction(1, 10)) > Fraction(1, 10)
    (0.5, True)
    """
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def diameter_bound(mdp: MDP) -> float:
    """Return (max R - min R) / (1 - discount), rounded upward: no two values differ by more.

    Without observations, `MDP.diameter_bound` is the same number rounded to nearest.

    >>> diameter_bound(MDP.deterministic([[0, 0]], [[1, 3]], discount=0.5))
    4.0
    """
    rewards = mdp.R if mdp.available is None else mdp.R[mdp.available]
    largest, least = Fraction(float(rewards.max())), Fraction(float(rewards.min()))
    return round_upward((largest - least) / (1 - Fraction(mdp.discount)))


def difference_error(one: ValueFunction, other: ValueFunction, largest: float) -> float:
    """Bound the error of differences V1 - V2, none above `largest` in size."""
    return float(add_upward(one.error, other.error, multiply_upward(UNIT, abs(largest))))


def certify_action_values(mdp: MDP, values: ValueFunction) -> ValueFunction:
    """Return Q (S, A) for values V, with a proven bound on its distance from the exact Q.

    With n the largest number of entries in a row: normalising it costs n units of rounding, the
    sum another n, and the discount and the reward a few.
    """
    max_support = int(np.diff(mdp.P.indptr).max())
    largest = float(np.abs(mdp.R).max() + np.abs(values.values).max())
    rounding = (2 * max_support + 8) * (UNIT * largest + TINY)
    error = add_upward(multiply_upward(mdp.discount, values.error), rounding)
    return ValueFunction(planning.action_values(mdp, values), error)


def describe_mismatch(mdp: MDP, other: MDP) -> str | None:
    """Describe how the other MDP differs in its numbers from the one of a proof, or return None.

    >>> mdp = MDP.deterministic([[0]], [[1]], discount=0.5)
    >>> describe_mismatch(mdp, mdp.replace(discount=0.9))
    'its discount is 0.9 and not 0.5'
    >>> describe_mismatch(mdp, mdp.replace(names="x"))
    """
    if mdp.discount != other.discount:
        return f"its discount is {other.discount:g} and not {mdp.discount:g}"
    for what, own, others in zip(("states", "actions"), mdp.R.shape, other.R.shape, strict=True):
        if own != others:
            return f"it has {others:,} {what} and not {own:,}"
    if (mdp.R != other.R).any():
        return "its rewards differ"
    if (mdp.action_mask != other.action_mask).any():
        return "its available actions differ"
    same = (
        np.array_equal(mdp.P.indptr, other.P.indptr)
        and np.array_equal(mdp.P.indices, other.P.indices)
        and np.array_equal(mdp.P.data, other.P.data)
    )
    return None if same else "its transitions differ"
