"""Dot plots: one row per variant, a dot for its mean, a line for its 95% confidence interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import ACCENT_COLOUR, GREY, LINE_COLOUR, Figure
from bisimetric.views.layout import typeset

ROW_HEIGHT = 0.3
"""Inches."""
MAX_PANELS_ACROSS = 2
"""Panels of scores beside each other; a page is two wide."""
SERIES_COLOURS, MARKERS = (LINE_COLOUR, ACCENT_COLOUR, "#35b779", GREY), "osD^"
"""Of the series of a row."""


def plot_final_errors(
    panels: Mapping[str, Mapping[str, ArrayLike]], *, reference: str | None = None, title: str = ""
) -> Figure:
    """Plot final errors as dots with intervals: one panel per measure, one row per variant.

    A dot is the mean over the seeds, its line the 95% confidence interval of that mean, and small
    dots are the seeds; a single seed has no interval. Where the interval reaches 0, the line ends
    at the smallest error. The error axis is logarithmic. Rows are ordered by the mean in the first
    panel, the smallest on top.

    Args:
        panels: by measure, and then by variant, the final errors (seeds,), above 0. Every panel has
            the same variants.
        reference: the variant to compare with, drawn in another colour, with a line across.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no variant, an error is not above 0, or the panels differ.

    >>> errors = {"default": [1.0, 1.2], "one network": [3.0, 5.0]}
    >>> figure = plot_final_errors({"largest error": errors}, reference="default")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['default', 'one network']
    """
    samples = {
        name: {label: _validate_errors(name, label, errors) for label, errors in rows.items()}
        for name, rows in panels.items()
    }
    first: dict[str, NDArray[np.float64]] = next(iter(samples.values()), {})
    if not first or any(set(rows) != set(first) for rows in samples.values()):
        raise InputError(
            "plot_final_errors: give at least one variant, and the same variants in every panel."
        )
    if reference is not None and reference not in first:
        raise InputError(f"plot_final_errors: the reference {reference!r} is not among the rows.")
    order = sorted(first, key=lambda label: float(first[label].mean()))
    figure = Figure(
        figsize=(2.2 + 3.8 * len(samples), 1.3 + ROW_HEIGHT * len(order)), layout="constrained"
    )
    axes = figure.subplots(1, len(samples), sharey=True, squeeze=False)[0]
    for panel, (name, rows) in zip(axes, samples.items(), strict=True):
        for height, label in enumerate(order):
            colour = ACCENT_COLOUR if label == reference else LINE_COLOUR
            _draw_row(panel, height, rows[label], colour)
        if reference is not None:
            mean = float(rows[reference].mean())
            panel.axvline(mean, color=ACCENT_COLOUR, lw=0.8, ls=":", zorder=1)
        _format_log_axis(panel)
        panel.set_title(typeset(name), fontsize=10)
    axes[0].set_yticks(np.arange(len(order)), [typeset(label) for label in order])
    axes[0].set_ylim(len(order) - 0.4, -0.6)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    return figure


def plot_scores(
    panels: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]], *, title: str = ""
) -> Figure:
    """Plot scores as dots with intervals: a panel per score, a row per method, a dot per series.

    At most two panels stand beside each other.

    A dot is the mean over the seeds and its line the 95% confidence interval of that mean; a single
    seed has no interval. Rows and series keep their order; the axes are linear.

    Args:
        panels: by score, then by method, then by series, the values (seeds,). Every panel has the
            same methods; a series may be missing from a row.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no method, a value is not finite, or the panels differ.

    >>> scores = {"MICo": {"no noise": [0.9, 0.8], "noise": [0.2, 0.3]}}
    >>> figure = plot_scores({"rank correlation": scores})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['no noise', 'noise']
    """
    rows = list(next(iter(panels.values()), {}))
    if not rows or any(list(each) != rows for each in panels.values()):
        raise InputError(
            "plot_scores: give at least one method, and the same methods in every panel."
        )
    every = [series for each in panels.values() for row in each.values() for series in row]
    series = list(dict.fromkeys(every))
    step = 0.6 / max(len(series) - 1, 1)
    across = min(len(panels), MAX_PANELS_ACROSS)
    down = math.ceil(len(panels) / across)
    figure_height = 0.9 + (0.6 + ROW_HEIGHT * len(rows)) * down
    figure = Figure(figsize=(2.0 + 3.2 * across, figure_height), layout="constrained")
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for unused in axes[len(panels) :]:
        unused.remove()
    for panel, (name, scores) in zip(axes, panels.items(), strict=False):
        for height, label in enumerate(rows):
            for each, values in scores[label].items():
                i = series.index(each)
                place = height + (0.0 if len(series) == 1 else step * i - 0.3)
                _draw_score(panel, place, _validate_scores(name, label, values), i)
        for border in range(1, len(rows)):
            panel.axhline(border - 0.5, color=GREY, alpha=0.2, lw=0.6, zorder=1)
        panel.set_title(typeset(name), fontsize=10)
        panel.grid(axis="x", color=GREY, alpha=0.2, lw=0.6)
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_yticks(np.arange(len(rows)), [typeset(label) for label in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    handles = [
        Line2D([], [], color=_colour(i), marker=MARKERS[i % len(MARKERS)], lw=1.6, ms=5)
        for i in range(len(series))
    ]
    if len(series) > 1:
        names = [typeset(each) for each in series]
        figure.legend(handles, names, loc="outside lower center", ncols=len(series), frameon=False)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    return figure


def _colour(series: int) -> str:
    return SERIES_COLOURS[series % len(SERIES_COLOURS)]


def _draw_score(axes: Axes, height: float, values: NDArray[np.float64], series: int) -> None:
    """Draw the interval and the mean of one series of a row."""
    mean = float(values.mean())
    if values.size > 1:
        half = float(compute_confidence_interval(values)[1])
        ends = [mean - half, mean + half]
        axes.plot(ends, [height, height], color=_colour(series), lw=1.6, label="_interval")
    marker = MARKERS[series % len(MARKERS)]
    axes.plot(mean, height, marker, color=_colour(series), ms=5, mec="white", mew=0.6, zorder=3)


def _validate_scores(name: str, label: str, values: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise InputError(
            f"plot_scores: the values of {label!r} in {name!r} must be finite, one per seed."
        )
    return found


def _validate_errors(name: str, label: str, errors: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(errors, np.float64)
    if found.ndim != 1 or not found.size or not (found > 0).all() or not np.isfinite(found).all():
        raise InputError(
            f"plot_final_errors: the errors of {label!r} in {name!r} must be numbers above 0, one "
            "per seed."
        )
    return found


def _draw_row(axes: Axes, height: float, errors: NDArray[np.float64], colour: str) -> None:
    """Draw the seeds, the interval and the mean of one row."""
    mean = float(errors.mean())
    seeds: dict[str, Any] = {"color": colour, "alpha": 0.35, "ms": 2.5, "label": "_seeds"}
    axes.plot(errors, np.full(errors.size, height), "o", mew=0, zorder=2, **seeds)
    if errors.size > 1:
        half = float(compute_confidence_interval(errors)[1])
        low = mean - half if half < mean else float(errors.min())
        axes.plot([low, mean + half], [height, height], color=colour, lw=2.0, label="_interval")
    axes.plot(mean, height, "o", color=colour, ms=6.5, mec="white", mew=0.8, zorder=3, label="mean")


def _format_log_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7) if high < 10 * low else (1, 3)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=GREY, alpha=0.2, lw=0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
