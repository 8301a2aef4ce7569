"""Float64 rounding, from which proven errors are built: constants and exact sums."""

from __future__ import annotations

import math
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


def choose_scale(bound: float) -> float:
    """Return a power of two near a bound on distances.

    float32 has a narrow range; dividing by a power of two rounds only what falls below the normal
    numbers.

    >>> choose_scale(5.0), choose_scale(0.0), math.isfinite(1 / choose_scale(1.7e308))
    (8.0, 1.0, True)
    """
    exponent = math.frexp(bound)[1]
    return 1.0 if bound == 0 else math.ldexp(1.0, max(-1000, min(1000, exponent)))
