"""Rank statistics of series in time, whose neighbours are alike: tested by turning one of them.

Frames that follow one another are nearly the same, so that tests for independent draws would call
anything significant. Here a series is compared with itself turned round in time, by all amounts:
what is common to both only by chance is as likely to be there after a turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Tested(NamedTuple):
    """A statistic, and the share of turned series for which it is at least as large."""

    value: float
    chance: float


def higher(series: ArrayLike, among: ArrayLike) -> Tested:
    """How likely a number of `series` (n,) where `among` (n,) is true is above one elsewhere.

    0.5 is chance, 1 where all of them are above all others; ties count half.

    >>> higher([1.0, 5.0, 6.0, 2.0], [False, True, True, False]).value
    1.0
    """
    from scipy.stats import rankdata

    numbers, mask = np.asarray(series, np.float64), np.asarray(among, np.bool_)
    inside, outside = int(mask.sum()), int((~mask).sum())
    if not inside or not outside:
        return Tested(np.nan, np.nan)
    sums = _turned(rankdata(numbers), mask.astype(np.float64))
    areas = (sums - inside * (inside + 1) / 2) / (inside * outside)
    return Tested(float(areas[0]), _chance(areas))


def together(one: ArrayLike, other: ArrayLike) -> Tested:
    """The rank correlation (Spearman's) of two series (n,).

    >>> round(together([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]).value, 9)
    1.0
    """
    from scipy.stats import rankdata

    x, y = (rankdata(np.asarray(each, np.float64)) for each in (one, other))
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.linalg.norm(x) * np.linalg.norm(y))
    if spread == 0:
        return Tested(np.nan, np.nan)
    found = _turned(x, y) / spread
    return Tested(float(np.clip(found[0], -1, 1)), _chance(found))


def _turned(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum over i of x[i] y[i - k], for all turns k, (n,)."""
    product = np.fft.rfft(x) * np.conj(np.fft.rfft(y))
    return np.asarray(np.fft.irfft(product, len(x)))


def _chance(found: NDArray[np.float64]) -> float:
    slack = 1e-9 * max(float(np.abs(found).max()), 1e-30)
    return float(np.mean(found >= found[0] - slack))
