"""Numbers with `BITS` binary digits after the point, as integers; enclosures; linear systems."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

# The least float is 2^-1074, so that every float is an integer of these units.
BITS = 1400
ONE = 1 << BITS
# Below this many units a residual is what rounding leaves; divided by the least 1 - discount,
# 2^-53, it is still far below the least float.
REST = 1 << 128


class Undecided(RuntimeError):  # noqa: N818 - reads as a statement
    """Policy iteration did not come to rest: the oracle has nothing to say of this case."""


def round_to_units(number: Fraction | float | int) -> int:
    """The number in units of 2^-BITS, rounded down; exact for floats."""
    top, bottom = number.as_integer_ratio()
    return (top << BITS) // bottom


@dataclasses.dataclass(frozen=True)
class Enclosure:
    """Numbers (in units of 2^-BITS), each within `radius` units of the true one.

    `centres` are indexed by state, or by pair of states.
    """

    centres: dict[tuple[int, ...], int]
    radius: int

    def excess(self, index: tuple[int, ...], value: float, error: float) -> float:
        """How many times its `error` the value is off at least; above 1 contradicts the error.

        A value that is no number, or an error that is none, contradicts it infinitely.
        """
        if math.isnan(error) or error < 0 or math.isnan(value):
            return math.inf
        if math.isinf(error):
            return 0.0
        if math.isinf(value):
            return math.inf
        off = abs(round_to_units(value) - self.centres[index]) - self.radius
        claimed = round_to_units(error)
        if off <= claimed:
            return 0.0
        return math.inf if claimed == 0 else ratio(off, claimed)

    def below(self, index: tuple[int, ...], bound: float) -> bool:
        """Whether the true number may be at most `bound`."""
        if not math.isfinite(bound):
            return bound > 0
        return self.centres[index] - self.radius <= round_to_units(bound)

    def above(self, index: tuple[int, ...], bound: float) -> bool:
        """Whether the true number may be at least `bound`."""
        if not math.isfinite(bound):
            return bound < 0
        return self.centres[index] + self.radius >= round_to_units(bound)

    def is_positive(self, index: tuple[int, ...]) -> bool:
        """Whether the true number is proven to be above 0."""
        return self.centres[index] > self.radius

    def __getitem__(self, index: tuple[int, ...] | int) -> float:
        """The nearest float, for messages."""
        key = (index,) if isinstance(index, int) else index
        return as_float(self.centres[key])


def as_float(units: int) -> float:
    """A number in units of 2^-BITS as a float, infinite where it is too large."""
    try:
        return float(Fraction(units, ONE))
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def ratio(a: int, b: int) -> float:
    """a / b, infinite where it is too large."""
    try:
        return float(Fraction(a, b))
    except OverflowError:
        return math.inf


def solve(matrix: list[dict[int, int]], right: Sequence[int]) -> list[int]:
    """x with (I - A) x = right; A as rows of units, each with a sum of at most the discount.

    Elimination without pivots: the rows stay diagonally dominant. Rounding makes x inexact, which
    the caller measures.
    """
    rows = [{i: ONE} for i in range(len(matrix))]
    for i, row in enumerate(matrix):
        for j, entry in row.items():
            rows[i][j] = rows[i].get(j, 0) - entry
    x = list(right)
    for k, pivot_row in enumerate(rows):
        pivot = pivot_row[k]
        for i in range(k + 1, len(rows)):
            entry = rows[i].pop(k, 0)
            if entry:
                factor = (entry << BITS) // pivot
                for j, above in pivot_row.items():
                    if j > k:
                        rows[i][j] = rows[i].get(j, 0) - (factor * above >> BITS)
                x[i] -= factor * x[k] >> BITS
    for k in range(len(rows) - 1, -1, -1):
        rest = sum(entry * x[j] >> BITS for j, entry in rows[k].items() if j > k)
        x[k] = ((x[k] - rest) << BITS) // rows[k][k]
    return x


def enclose(centres: dict[tuple[int, ...], int], residual: int, discount: Fraction) -> Enclosure:
    """The enclosure that a residual in units, rounded down by less than 8, proves (Banach)."""
    radius = Fraction(residual + 8) / (1 - discount)
    return Enclosure(centres, math.ceil(radius))
