"""Constants of float64 rounding, from which proven errors are built."""

UNIT = 2.0**-53
"""The unit roundoff: one operation is off by at most this share of its result."""
TINY = 2.0**-1074
"""The smallest positive float64: what an operation is off by at most where it underflows."""
