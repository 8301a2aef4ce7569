"""Float64 rounding, from which proven errors are built: constants and exact sums."""

from __future__ import annotations

from typing import Any

UNIT = 2.0**-53
"""The unit roundoff: the relative error of one operation."""
TINY = 2.0**-1074
"""The smallest positive float64: the absolute error of an operation that underflows."""


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b as a float, and its rounding error, exactly (Knuth); numbers or arrays.

    >>> two_sum(1.0, 2.0**-60) == (1.0, 2.0**-60)
    True
    """
    total = a + b
    rounded = total - a
    return total, (a - (total - rounded)) + (b - rounded)
