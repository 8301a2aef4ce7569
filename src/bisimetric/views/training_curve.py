"""A training run at a glance: its loss and its errors over steps, from the history it kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterMathtext, MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.error_curves import GREY

PANEL_TITLES = {
    "loss": "loss",
    "error": "largest error",
    "normalised": "normalised error",
    "correlation": "correlation with the exact distance",
}
LOG_SCALE_RATIO = 30.0
"""How many times its least number the largest of a panel is, for a logarithmic axis."""


def plot_training_curve(history: Mapping[str, ArrayLike], *, title: str = "") -> Figure:
    """What was measured over steps, a panel each: the loss, and errors where they are known.

    Args:
        history: by name, (n,) numbers or (seeds, n), as in `Learned.history` and `Fit.history`;
            `step` (n,) tells when. Where there is NaN nothing was measured.
        title: of the whole figure.

    Numbers above 0 that span decades are drawn on a logarithmic axis, all others from 0 on. Of
    several seeds a thick line is the mean, and thin ones are the seeds.

    >>> figure = training_curve({"step": [500, 1000], "loss": [0.1, 0.2], "error": [9.0, 3.0]})
    >>> [panel.get_title() for panel in figure.axes]
    ['loss', 'largest error']
    """
    steps = _validate_steps(history)
    names = [*PANEL_TITLES, *(name for name in history if name not in PANEL_TITLES)]
    rows = {
        name: _validate_measure(name, history[name], steps)
        for name in names
        if name != "step" and name in history
    }
    if not rows:
        raise InputError("training_curve: the history has nothing but steps; there is no curve.")
    columns = 2 if len(rows) == 4 else min(len(rows), 3)
    height = -(-len(rows) // columns)
    size = (7.2, 3.6) if len(rows) == 1 else (0.6 + 4.2 * columns, 0.3 + 3.1 * height)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(height, columns, sharex=True, squeeze=False).ravel()
    for panel, (name, numbers) in zip(axes, rows.items(), strict=False):
        _draw_measure(panel, steps, numbers)
        _format_axes(panel, name, numbers, steps)
    for panel in axes[len(rows) :]:
        panel.remove()
    for panel in axes[max(len(rows) - columns, 0) : len(rows)]:
        panel.set_xlabel("steps")
        panel.tick_params(labelbottom=True)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _validate_steps(history: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    if "step" not in history:
        raise InputError("training_curve: the history has no 'step' that tells when it was.")
    steps = np.asarray(history["step"], np.float64)
    if steps.ndim != 1 or not len(steps) or steps[0] <= 0 or (np.diff(steps) <= 0).any():
        raise InputError("training_curve: the steps must be a row of rising numbers above 0.")
    return steps


def _validate_measure(
    name: str, values: ArrayLike, steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One row a seed."""
    found = np.atleast_2d(np.asarray(values, np.float64))
    if found.ndim != 2 or not len(found) or found.shape[1:] != steps.shape:
        raise InputError(
            f"training_curve: {name!r} has shape {np.shape(values)} and must have one number, or "
            f"one a seed, for each of {steps.size} steps."
        )
    if not np.isfinite(found).any():
        raise InputError(f"training_curve: {name!r} has no number to draw; leave it out.")
    return found


def _draw_measure(axes: Axes, steps: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    for row in values if len(values) > 1 else ():
        axes.plot(steps, row, color=LINE_COLOUR, lw=0.7, alpha=0.5, label="_seed")
    mean = np.where(np.isfinite(values).all(axis=0), values.mean(axis=0), np.nan)
    axes.plot(steps, mean, color=LINE_COLOUR, lw=2.0, label="_mean")
    last = np.flatnonzero(np.isfinite(mean))
    if len(last):
        where = (steps[last[-1]], mean[last[-1]])
        axes.plot(
            *where, marker="o", ms=5, color=ACCENT_COLOUR, label="_last", zorder=3, clip_on=False
        )
        axes.annotate(
            f"{where[1]:.3g}",
            where,
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=ACCENT_COLOUR,
            fontsize=9,
        )


def _format_axes(
    axes: Axes, name: str, values: NDArray[np.float64], steps: NDArray[np.float64]
) -> None:
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    if low > 0 and high > LOG_SCALE_RATIO * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.5, high * 1.8)
        axes.yaxis.set_major_formatter(LogFormatterMathtext())
    elif name == "correlation":
        axes.set_ylim(min(1.1 * low, 0.0), 1.12)
        axes.axhline(1.0, color=GREY, lw=0.8, ls="--", label="_level", zorder=1)
    else:
        axes.set_ylim(min(1.1 * low, 0.0), 1.12 * high if high > 0 else 1.0)
    axes.set_xlim(0, float(steps[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(PANEL_TITLES.get(name, name), fontsize=10)
