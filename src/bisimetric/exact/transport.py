"""The records of `bisimetric.transport` under the name by which Numba's older caches know them.

A cache is read before it is checked, and reading fails where a record's module is missing.
"""

from bisimetric.transport import Costs, Space

__all__ = ["Costs", "Space"]
