"""Rank statistics of series in time, whose neighbours are alike: tested by turning one of them.

Frames that follow one another are nearly the same, so that tests for independent draws would call
anything significant. Here a series is compared with itself turned round in time, by all amounts:
what is common to both only by chance is as likely to be there after a turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class PermutationTest(NamedTuple):
    """A statistic, and the share of turned series for which it is at least as large."""

    statistic: float
    p_value: float


def rank_auc(series: ArrayLike, among: ArrayLike) -> PermutationTest:
    """How likely a number of `series` (n,) where `among` (n,) is true is above one elsewhere.

    0.5 is chance, 1 where all of them are above all others; ties count half.

    >>> higher([1.0, 5.0, 6.0, 2.0], [False, True, True, False]).value
    1.0
    """
    from scipy.stats import rankdata

    numbers, mask = np.asarray(series, np.float64), np.asarray(among, np.bool_)
    inside, outside = int(mask.sum()), int((~mask).sum())
    if not inside or not outside:
        return PermutationTest(np.nan, np.nan)
    sums = _circular_correlation(rankdata(numbers), mask.astype(np.float64))
    areas = (sums - inside * (inside + 1) / 2) / (inside * outside)
    return PermutationTest(float(areas[0]), _compute_p_value(areas))


def rank_correlation(one: ArrayLike, other: ArrayLike) -> PermutationTest:
    """The rank correlation (Spearman's) of two series (n,).

    >>> round(together([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]).value, 9)
    1.0
    """
    from scipy.stats import rankdata

    x, y = (rankdata(np.asarray(each, np.float64)) for each in (one, other))
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.linalg.norm(x) * np.linalg.norm(y))
    if spread == 0:
        return PermutationTest(np.nan, np.nan)
    found = _circular_correlation(x, y) / spread
    return PermutationTest(float(np.clip(found[0], -1, 1)), _compute_p_value(found))


def _circular_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum over i of x[i] y[i - k], for all turns k, (n,)."""
    product = np.fft.rfft(x) * np.conj(np.fft.rfft(y))
    return np.asarray(np.fft.irfft(product, len(x)))


def _compute_p_value(statistics: NDArray[np.float64]) -> float:
    slack = 1e-9 * max(float(np.abs(statistics).max()), 1e-30)
    return float(np.mean(statistics >= statistics[0] - slack))
