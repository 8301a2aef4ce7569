"""One scale of colours for all pictures, safe for colour-blind eyes.

Figures as files.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bisimetric._io import write_atomically
from bisimetric.errors import InputError

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


FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as png, svg or pdf, by the ending of `path`, whole or not at all."""
    target = Path(path)
    ending = target.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        found = f"ends in {target.suffix!r}" if ending else "has no ending"
        raise InputError(f"cannot save the figure: {target} {found}; use .png, .svg or .pdf.")
    with write_atomically(target) as beside:
        figure.savefig(beside, format=ending, dpi=DOTS_PER_INCH, bbox_inches="tight")
