"""Colour norms of distances: linear, logarithmic, or by quantiles."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from numpy.typing import NDArray

from bisimetric.errors import InputError

NormName = Literal["auto", "linear", "log", "quantile"]
NORM_NAMES: tuple[NormName, ...] = ("auto", "linear", "log", "quantile")
DOMINATED_FRACTION = 0.1
"""A linear scale is dominated if at most this fraction of values lies in its upper half."""
MIN_VALUES = 8
"""Fewer values are always on a linear scale."""
MIN_LOG_RATIO = 5.0
"""The least ratio of the largest to the smallest value for a logarithmic scale."""
NUM_QUANTILES = 64


class QuantileNorm(Normalize):
    """Map values to their quantiles, so that every colour has about equally many of them.

    >>> norm = QuantileNorm(np.array([1.0, 2.0, 3.0, 100.0]))
    >>> [round(float(norm(x)), 2) for x in (1.0, 3.0, 100.0)], norm(0.5) < 0
    ([0.0, 0.67, 1.0], True)
    """

    def __init__(self, values: NDArray[np.floating]) -> None:
        levels = np.linspace(0, 1, min(NUM_QUANTILES, values.size))
        self._values, first = np.unique(np.quantile(values, levels), return_index=True)
        self._levels = levels[first]
        self._levels[-1] = 1.0
        super().__init__(float(self._values[0]), float(self._values[-1]))

    def __call__(self, value: Any, clip: bool | None = None) -> Any:
        array = np.ma.masked_invalid(np.ma.asarray(value, np.float64))
        mapped = np.interp(array.filled(np.nan), self._values, self._levels, left=-1.0, right=2.0)
        found = np.ma.array(mapped, mask=np.ma.getmaskarray(array))
        return found if found.ndim else float(found)

    def inverse(self, value: Any) -> Any:
        """Return the values of quantiles."""
        return np.interp(value, self._levels, self._values)


class PositiveLogNorm(LogNorm):
    """A logarithmic norm that maps 0 below the scale, where `LogNorm` has no colour.

    >>> float(PositiveLogNorm(1.0, 100.0)(0.0)) < 0
    True
    """

    def __call__(self, value: Any, clip: bool | None = None) -> Any:
        array = np.ma.masked_invalid(np.ma.asarray(value, np.float64))
        least = float(self.vmin or 1.0) / 10
        return super().__call__(np.ma.maximum(array, least), clip)


def build_norm(
    values: NDArray[np.floating], error: float, name: NormName = "linear"
) -> tuple[Normalize, str]:
    """Return the colour scale from the smallest distance above `error` to the largest.

    It does not start at 0: at a discount near 1 all states that differ at all are far apart, and
    only the differences between those distances can be shown. An infinite `error`, where nothing
    is proven, counts as 0.

    Args:
        values: the distances.
        error: distances up to this are drawn as 0.
        name: of the norm. "auto" is linear, unless a few values dominate the scale: if at most a
            tenth of them lies in its upper half, it is logarithmic, or, where the largest is less
            than 5 times the smallest, by quantiles.

    Returns:
        The norm, and a note for the colour bar, empty for a linear one.

    Raises:
        InputError: there is no such norm.

    >>> norm, note = build_norm(np.array([0.0, 1e-9, 140.0, 150.0]), 1e-6)
    >>> norm.vmin, norm.vmax, note
    (140.0, 150.0, '')
    >>> build_norm(np.array([0.01] * 20 + [0.02, 9.0]), 0.0, "auto")[1]
    'log scale'
    """
    if name not in NORM_NAMES:
        raise InputError(f"norm is {name!r} and must be one of {', '.join(NORM_NAMES)}.")
    largest = float(values.max())
    if math.isinf(error):
        error = 0.0
    if largest <= error:
        return Normalize(max(error, 1e-9), 1 + 2 * error), ""
    smallest = float(values.min(where=values > error, initial=largest))
    if smallest >= 0.999 * largest:
        return Normalize(1e-9 * largest, largest), ""
    if name == "auto":
        name = _choose_norm(values[values > error], smallest, largest)
    if name == "log":
        return PositiveLogNorm(smallest, largest), "log scale"
    if name == "quantile":
        return QuantileNorm(values[values > error]), "quantile scale"
    return Normalize(smallest, largest), ""


def _choose_norm(values: NDArray[np.floating], smallest: float, largest: float) -> NormName:
    """Choose the norm of "auto" for the values above 0."""
    if values.size < MIN_VALUES:
        return "linear"
    if np.mean(values > (smallest + largest) / 2) > DOMINATED_FRACTION:
        return "linear"
    return "log" if largest >= MIN_LOG_RATIO * smallest else "quantile"
