"""Probabilities in fixed point: multiples of 2^-53 whose rows sum to exactly 1.

Sums and differences of such numbers of magnitude at most 1 are exact in float64. So are the common
mass of two rows and the flow of every basis of a transportation problem between them: a coupling in
floats has exactly the marginals of its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.mdp import MDP
from bisimetric.mdp.induced_chain import VELTKAMP_SPLITTER

GRID = 2.0**53
"""Probabilities are integers divided by this number."""
SNAP_UNITS = 2.0**40 * 3**2 * 5**3 * 7
"""The sum of a row in units of 1 / GRID, where rows are snapped to common fractions."""


class FixedPointRows(NamedTuple):
    """Distributions: row i is `row_starts[i]:row_starts[i + 1]`, successors in increasing order.

    The probabilities of a row are multiples of 2^-53 and sum to `total`, 1 or a little less, by
    which they must be divided. `rounding[i]` bounds the total variation distance of the quotient
    from the row of the MDP, divided by its sum in exact arithmetic. It is 0 where that row is in
    fixed point. Both have the same support.
    """

    row_starts: NDArray[np.int64]
    successors: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    rounding: NDArray[np.float64]
    max_support: int
    total: float


def round_rows(mdp: MDP, *, snap: bool = False) -> FixedPointRows:
    """Round the rows of an MDP to fixed point.

    With `snap`, probabilities are multiples of 1 / N for `SNAP_UNITS`, unless all of them are
    multiples of 2^-53: those that stand for thirds, sevenths, or decimals of three digits are then
    exactly those, and so are their sums.
    """
    P = mdp.P
    starts = P.indptr.astype(np.int64)
    units = GRID
    if snap and (P.data * GRID % 1 != 0).any():
        units = SNAP_UNITS
    probabilities, rounding = _round_rows(starts, P.data, units)
    support = int(np.diff(starts).max())
    successors = P.indices.astype(np.int32)
    return FixedPointRows(starts, successors, probabilities, rounding, support, units / GRID)


@njit(cache=True, inline="always")
def _two_product(a: Any, b: Any) -> Any:
    """Return a * b as a float and its rounding error, exactly (Dekker)."""
    product = a * b
    split = VELTKAMP_SPLITTER * a
    a_high = split - (split - a)
    split = VELTKAMP_SPLITTER * b
    b_high = split - (split - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@njit(cache=True)
def _round_rows(starts: Any, data: Any, units: float) -> Any:
    """Round each row; the largest entry takes what the others leave.

    A row that is in fixed point already, with sum 1, stays as it is. Otherwise sums and quotients
    are in doubled precision, with a relative error far below 16 UNIT^2 per entry. The largest entry
    is off by no more than the others together, so that the sum of their errors bounds the total
    variation.
    """
    probabilities = data.copy()
    rounding = np.zeros(len(starts) - 1)
    for s in range(len(starts) - 1):
        low, high = starts[s], starts[s + 1]
        total, rest, largest, is_exact = 0.0, 0.0, low, True
        for i in range(low, high):
            new = total + data[i]
            back = new - total
            rest += (total - (new - back)) + (data[i] - back)
            total = new
            is_exact = is_exact and data[i] * GRID == np.rint(data[i] * GRID)
            if data[i] > data[largest]:
                largest = i
        if is_exact and total == 1.0 and units == GRID:
            continue
        total, rest = total + rest, rest - ((total + rest) - total)
        others, moved = 0.0, 0.0
        for i in range(low, high):
            if i != largest:
                quotient = data[i] / total
                product, lost = _two_product(quotient, total)
                remainder = ((data[i] - product) - lost - quotient * rest) / total
                # At least one unit, which keeps the support.
                probabilities[i] = max(np.rint(quotient * units), 1.0) / GRID
                moved += abs((quotient - probabilities[i] * (GRID / units)) + remainder)
                others += probabilities[i]
        probabilities[largest] = units / GRID - others
        if high - low > 1:
            entries = high - low
            rounding[s] = moved * (1 + 4 * entries * UNIT) + 16 * entries * UNIT * UNIT
            if units != GRID:  # the scale and the product have a rounding each
                rounding[s] += 2 * UNIT
    return probabilities, rounding
