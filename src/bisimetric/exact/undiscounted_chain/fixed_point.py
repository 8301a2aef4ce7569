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


class FixedPointChain(NamedTuple):
    """A Markov chain: row s is `row_starts[s]:row_starts[s + 1]`, successors in increasing order.

    `rounding[s]` bounds the total variation distance between row s and P(s) / sum(P(s)) in exact
    arithmetic. It is 0 where P(s) is in fixed point. Both have the same support.
    """

    row_starts: NDArray[np.int64]
    successors: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    rounding: NDArray[np.float64]
    max_support: int


def round_chain(chain: MDP) -> FixedPointChain:
    """Round the rows of a chain, an MDP with one action, to fixed point."""
    P = chain.P
    starts = P.indptr.astype(np.int64)
    probabilities, rounding = _round_rows(starts, P.data)
    support = int(np.diff(starts).max())
    return FixedPointChain(starts, P.indices.astype(np.int32), probabilities, rounding, support)


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
def _round_rows(starts: Any, data: Any) -> Any:
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
        if is_exact and total == 1.0:
            continue
        total, rest = total + rest, rest - ((total + rest) - total)
        others, moved = 0.0, 0.0
        for i in range(low, high):
            if i != largest:
                quotient = data[i] / total
                product, lost = _two_product(quotient, total)
                remainder = ((data[i] - product) - lost - quotient * rest) / total
                # At least one unit, which keeps the support.
                probabilities[i] = max(np.rint(quotient * GRID), 1.0) / GRID
                moved += abs((quotient - probabilities[i]) + remainder)
                others += probabilities[i]
        probabilities[largest] = 1.0 - others
        if high - low > 1:
            entries = high - low
            rounding[s] = moved * (1 + 4 * entries * UNIT) + 16 * entries * UNIT * UNIT
    return probabilities, rounding
