"""The loss and the errors of one training run over its updates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatterMathtext, MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    Figure,
    annotate_last,
    draw_mean,
)
from bisimetric.views.layout import typeset

PANEL_TITLES = {
    "loss": "loss",
    "error": "largest error",
    "normalised": "normalised error",
    "correlation": "correlation with the exact distance",
}
LOG_SCALE_RATIO = 30.0
"""The ratio of the largest to the smallest value above which an axis is logarithmic."""


def plot_training_curve(history: Mapping[str, ArrayLike], *, title: str = "") -> Figure:
    """Plot the measurements of a training run over its updates, one panel per measure.

    Positive values that span decades have a logarithmic axis, all others a linear one from 0.
    With several seeds a thick line is the mean, and thin ones are the seeds.

    Args:
        history: by name, values (n,) or (seeds, n), as in `LearnedDistance.history` and
            `FitResult.history`; `step` (n,) holds the updates. NaN where nothing was measured.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: `step` is missing or does not increase, or a measure does not fit it.

    >>> history = {"step": [500, 1000], "loss": [0.1, 0.2], "error": [9.0, 3.0]}
    >>> [panel.get_title() for panel in plot_training_curve(history).axes]
    ['loss', 'largest error']
    """
    updates = _validate_updates(history)
    names = [*PANEL_TITLES, *(name for name in history if name not in PANEL_TITLES)]
    rows = {
        name: _validate_measure(name, history[name], updates)
        for name in names
        if name != "step" and name in history
    }
    if not rows:
        raise InputError("plot_training_curve: the history has only updates; there is no curve.")
    columns = 2 if len(rows) == 4 else min(len(rows), 3)
    height = -(-len(rows) // columns)
    size = (7.2, 3.6) if len(rows) == 1 else (0.6 + 4.2 * columns, 0.3 + 3.1 * height)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(height, columns, sharex=True, squeeze=False).ravel()
    for panel, (name, values) in zip(axes, rows.items(), strict=False):
        _draw_measure(panel, updates, values)
        _format_axes(panel, name, values, updates)
    for panel in axes[len(rows) :]:
        panel.remove()
    for panel in axes[max(len(rows) - columns, 0) : len(rows)]:
        panel.set_xlabel("updates")
        panel.tick_params(labelbottom=True)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    return figure


def _validate_updates(history: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    if "step" not in history:
        raise InputError("plot_training_curve: the history has no 'step', the updates.")
    updates = np.asarray(history["step"], np.float64)
    if updates.ndim != 1 or not len(updates) or updates[0] <= 0 or (np.diff(updates) <= 0).any():
        raise InputError("plot_training_curve: 'step' must be increasing numbers above 0, (n,).")
    return updates


def _validate_measure(
    name: str, values: ArrayLike, updates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a measure with one row per seed."""
    rows = np.atleast_2d(np.asarray(values, np.float64))
    if rows.ndim != 2 or not len(rows) or rows.shape[1:] != updates.shape:
        raise InputError(
            f"plot_training_curve: {name!r} has shape {np.shape(values)} and must have one value, "
            f"or one per seed, for each of {updates.size} updates."
        )
    if not np.isfinite(rows).any():
        raise InputError(f"plot_training_curve: {name!r} has no number to draw; leave it out.")
    return rows


def _draw_measure(axes: Axes, updates: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    for row in values if len(values) > 1 else ():
        axes.plot(updates, row, color=LINE_COLOUR, lw=0.7, alpha=0.5, label="_seed")
    style = {"color": LINE_COLOUR, "lw": 2.0}
    draw_mean(axes, updates, values, "_mean", style, gaps=True, alpha=0)
    drawn = np.flatnonzero(np.isfinite(values).all(axis=0))
    if len(drawn):
        last = (float(updates[drawn[-1]]), float(values[:, drawn[-1]].mean()))
        axes.plot(
            *last, marker="o", ms=5, color=ACCENT_COLOUR, label="_last", zorder=3, clip_on=False
        )
        annotate_last(axes, f"{last[1]:.3g}", last, offset=7)


def _format_axes(
    axes: Axes, name: str, values: NDArray[np.float64], updates: NDArray[np.float64]
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
    axes.set_xlim(0, float(updates[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(PANEL_TITLES.get(name, name), fontsize=10)
