"""Float64 rounding, from which proven errors are built: its constants, and exact sums."""

from __future__ import annotations

from typing import Any

UNIT = 2.0**-53
"""The unit roundoff: one operation is off by at most this share of its result."""
TINY = 2.0**-1074
"""The smallest positive float64: what an operation is off by at most where it underflows."""


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b as a float, and what it rounds away, exactly (Knuth); numbers or arrays.

    >>> two_sum(1.0, 2.0**-60) == (1.0, 2.0**-60)
    True
    """
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)
