"""How many examples property-based tests generate."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("EXAMPLES", "0.4"))
"""`make test` generates fewer examples; continuous integration also runs with all, EXAMPLES=1."""


def scaled(count: int) -> int:
    """Return the number of examples out of `count` that this run generates."""
    return max(round(count * SCALE), 5)
