"""When an iteration cannot reach its tolerance in reasonable time."""

from __future__ import annotations

import math

from bisimetric.rounding import TINY

MAX_SWEEPS = 2**20
"""Sweeps that a residual may need, by its rate so far, to reach the tolerance."""
MIN_WINDOW = 128
"""The fewest sweeps over which a rate is measured."""


class SweepLimit:
    """Ends an iteration whose residual falls too slowly, or not at all.

    Value iteration takes log(tolerance) / log(discount) sweeps, far too many where the discount is
    nearly 1, and rounding can keep a residual above any tolerance. So once per window of sweeps the
    smallest residual so far is compared with that of the window before, and the rate extrapolated.
    The residual proves an error whenever an iteration ends, so that ending early is sound.
    """

    def __init__(self, window: int) -> None:
        self._window = max(MIN_WINDOW, window)
        self._best = self._previous_best = math.inf
        self._next_check = self._window

    def is_exceeded(self, sweeps: int, residual: float, tolerance: float) -> bool:
        """Whether a residual after so many sweeps is too far from the tolerance to go on.

        >>> limit = SweepLimit(128)
        >>> [limit.exceeds(n, 0.99**n, 1e-9) for n in (128, 256)]
        [False, False]
        >>> limit.exceeds(384, 0.99**256, 1e-9)
        True
        """
        self._best = min(self._best, residual)
        if sweeps < self._next_check:
            return False
        before, self._previous_best, self._next_check = (
            self._previous_best,
            self._best,
            sweeps + self._window,
        )
        if before == math.inf or self._best <= tolerance:
            return False
        rate = math.log(self._best) - math.log(before)
        if rate >= 0:
            return True
        left = math.log(max(tolerance, TINY)) - math.log(self._best)
        return self._window * left / rate > MAX_SWEEPS
