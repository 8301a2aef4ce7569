"""One scale of colours for all pictures, safe for colour-blind eyes."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
from matplotlib.colors import Colormap, Normalize
from numpy.typing import NDArray

WALL_COLOUR = "0.72"
ACCENT_COLOUR = "#e4007c"
LINE_COLOUR = "#3b528b"
ZERO_COLOUR = "white"
UNKNOWN_COLOUR = "0.9"
"""What covers states of which nothing is known."""


def build_colormap() -> Colormap:
    """Viridis, with white for what lies below the scale: distance 0."""
    return matplotlib.colormaps["viridis"].with_extremes(under=ZERO_COLOUR)


def build_norm(values: NDArray[np.floating], error: float) -> Normalize:
    """The scale from the smallest distance above `error` to the largest.

    It does not start at 0: at a discount near 1 all states that differ at all are far apart, and
    the differences between those distances are what a picture can show. An infinite `error`, of a
    table where nothing is proven, counts as 0.

    >>> scaled = scale(np.array([0.0, 1e-9, 140.0, 150.0]), 1e-6)
    >>> scaled.vmin, scaled.vmax
    (140.0, 150.0)
    """
    largest = float(values.max())
    if math.isinf(error):
        error = 0.0
    if largest <= error:
        return Normalize(max(error, 1e-9), 1 + 2 * error)
    smallest = float(values.min(where=values > error, initial=largest))
    return Normalize(smallest if smallest < 0.999 * largest else 1e-9 * largest, largest)
