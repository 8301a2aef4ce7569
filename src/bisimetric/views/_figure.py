"""Colours, lines, legends and files shared by all figures."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from bisimetric._io import write_atomically
from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views.layout import typeset

WALL_COLOUR = "0.72"
ACCENT_COLOUR = "#e4007c"
LINE_COLOUR = "#3b528b"
ZERO_COLOUR = "white"
GREY = "0.45"
UNKNOWN_COLOUR = "0.9"
"""Of states that the data never visited."""
PALETTE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#b8a000",
    "#000000",
)
"""The colour-blind safe palette of Okabe and Ito; its yellow is darkened to show on white."""

MARKERS = "osD^vP"
PANEL_HEIGHT = 2.9
"""Inches."""
MAX_LEGEND_COLUMNS = 5

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


class Figure(matplotlib.figure.Figure):
    """A Matplotlib figure that notebooks display without pyplot and without magic commands."""

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG, which a notebook shows below a cell that ends with it."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def build_colormap() -> Colormap:
    """Return viridis with white below the scale, for distance 0."""
    return matplotlib.colormaps["viridis"].with_extremes(under=ZERO_COLOUR)


def save_figure(figure: matplotlib.figure.Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG, SVG or PDF; the file is replaced atomically.

    Args:
        figure: as the views return it.
        path: of the file; its extension selects the format.

    Raises:
        InputError: the extension is not .png, .svg or .pdf.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(Figure(), Path(folder, "figure.png"))
    ...     print(Path(folder, "figure.png").read_bytes()[1:4])
    b'PNG'
    """
    target = Path(path)
    extension = target.suffix.lower().removeprefix(".")
    if extension not in FORMATS:
        problem = f"ends in {target.suffix!r}" if extension else "has no extension"
        raise InputError(f"cannot save the figure: {target} {problem}; use .png, .svg or .pdf.")
    with write_atomically(target) as temporary:
        figure.savefig(temporary, format=extension, dpi=DOTS_PER_INCH, bbox_inches="tight")


def draw_mean(
    axes: Axes,
    x: ArrayLike,
    samples: NDArray[Any],
    label: str | None,
    style: Mapping[str, Any],
    *,
    lower: ArrayLike = -np.inf,
    upper: float = np.inf,
    log_floor: float | None = None,
    partial: bool = False,
    gaps: bool = False,
    alpha: float = 0.2,
) -> None:
    """Draw the mean of samples (seeds, n) over x (n,), shaded by its 95% confidence interval.

    Args:
        axes: to draw on.
        x: (n,), increasing.
        samples: (seeds, n), NaN where there is none. A single seed has no interval.
        label: of the line in the legend; None draws a line without one.
        style: of the line; its colour is also that of the shade.
        lower: the least value of the shade, a number or (n,).
        upper: the largest value of the shade.
        log_floor: on a logarithmic axis, the least value of the shade. Where the interval reaches
            0, the shade ends at the smallest sample.
        partial: whether to draw the mean where only some seeds have a sample.
        gaps: whether to interrupt the line where there is no mean; otherwise it is connected.
        alpha: opacity of the shade; 0 draws none.
    """
    positions, known = np.asarray(x), np.isfinite(samples)
    complete = known.all(axis=0)
    if len(samples) > 1 and complete.any() and alpha > 0:
        mean, half_width = compute_confidence_interval(samples[:, complete])
        low = mean - half_width
        if log_floor is not None:
            low = np.where(mean > half_width, low, samples[:, complete].min(axis=0))
            low = np.maximum(low, log_floor)
        low = np.maximum(low, np.broadcast_to(lower, complete.shape)[complete])
        high = np.minimum(mean + half_width, upper)
        axes.fill_between(positions[complete], low, high, color=style["color"], alpha=alpha, lw=0)
    drawn = known.any(axis=0) if partial else complete
    mean = np.full(drawn.shape, np.nan)
    mean[drawn] = np.mean(samples[:, drawn], axis=0, where=known[:, drawn])
    shown = np.ones_like(drawn) if gaps else drawn
    axes.plot(positions[shown], mean[shown], label=label, **style)


def annotate_last(axes: Axes, text: str, point: tuple[float, float], *, offset: int = 5) -> None:
    """Write a value to the right of the last point of a curve."""
    axes.annotate(
        text,
        point,
        xytext=(offset, 0),
        textcoords="offset points",
        va="center",
        color=ACCENT_COLOUR,
        fontsize=9,
    )


def draw_level(
    axes: Axes,
    height: float,
    text: str,
    *,
    linestyle: str = "--",
    x: float = 0.0,
    offset: tuple[int, int] = (4, 3),
    align: str = "left",
    label: str = "_level",
) -> None:
    """Draw a grey horizontal line with its meaning written at a fraction `x` of the width."""
    axes.axhline(height, color=GREY, lw=0.8, ls=linestyle, zorder=1, label=label)
    axes.annotate(
        text,
        (x, height),
        xycoords=("axes fraction", "data"),
        xytext=offset,
        textcoords="offset points",
        ha=align,
        color=GREY,
        fontsize=8,
    )


def add_legend_below(
    figure: matplotlib.figure.Figure, labels: list[str], *, max_columns: int = MAX_LEGEND_COLUMNS
) -> None:
    """Add one legend for all panels of a figure, below them."""
    handles = {line.get_label(): line for panel in figure.axes for line in panel.lines}
    figure.legend(
        handles=[handles[label] for label in labels],
        labels=[typeset(label) for label in labels],
        loc="outside lower center",
        ncols=min(len(labels), max_columns),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def add_marker_legend(figure: Figure, markers: list[Line2D], *, width: float | None = None) -> None:
    """Add a legend of markers below a figure, if there are any.

    It has one row, or as many as fit into `width` inches.
    """
    if not markers:
        return
    columns = len(markers)
    if width is not None:
        widest = max(len(str(marker.get_label())) for marker in markers)
        columns = max(1, min(columns, int(width / (0.75 + 0.065 * widest))))
        if sum(0.75 + 0.065 * len(str(each.get_label())) for each in markers) <= width:
            columns = len(markers)
    figure.legend(
        handles=markers, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def build_marker(label: str, **style: Any) -> Line2D:
    """Build the legend entry of a marker."""
    return Line2D([], [], linestyle="", label=label, **style)


def plot_mean_panels(
    caller: str,
    x: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    axis_labels: tuple[str, str],
    title: str = "",
    columns: int | None = None,
    width: float = 4.0,
    sharey: bool = False,
) -> tuple[Figure, NDArray[Any]]:
    """Plot means with their 95% confidence intervals, one panel per title and one line per label.

    Args:
        caller: the function that draws, for error messages.
        x: (n,), increasing.
        panels: by title, and then by label, samples (seeds, n), NaN where there are none.
        axis_labels: of the horizontal and of the vertical axis.
        title: of the whole figure.
        columns: panels per row; all, if not given.
        width: inches of a panel.
        sharey: whether the panels share their vertical axis.

    Returns:
        The figure and its axes.
    """
    if not any(panels.values()):
        raise InputError(f"{caller}: there is nothing to draw; give at least one line.")
    positions = np.asarray(x, np.float64)
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    across = columns or len(panels)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(0.6 + width * across, 0.9 + PANEL_HEIGHT * down), layout="constrained")
    axes = figure.subplots(down, across, sharex=True, sharey=sharey, squeeze=False).ravel()
    for panel, (name, lines) in zip(axes, panels.items(), strict=False):
        for label, samples in lines.items():
            rows = _validate_samples(caller, name, label, samples, positions.size)
            index = labels.index(label)
            style = {"color": PALETTE[index % len(PALETTE)], "ms": 4.5, "lw": 1.6}
            style["marker"] = MARKERS[index % len(MARKERS)]
            draw_mean(panel, positions, rows, label, style)
        panel.set_title(typeset(name), fontsize=10)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[-across:]:
        panel.set_xlabel(axis_labels[0])
    for panel in axes[::across]:
        panel.set_ylabel(axis_labels[1])
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    add_legend_below(figure, labels)
    return figure, axes


def _validate_samples(
    caller: str, name: str, label: str, samples: ArrayLike, size: int
) -> NDArray[np.float64]:
    rows = np.asarray(samples, np.float64)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != size:
        raise InputError(
            f"{caller}: the samples of {label!r} in {name!r} have shape {rows.shape} and must have "
            f"one row per seed and {size} columns."
        )
    return rows
