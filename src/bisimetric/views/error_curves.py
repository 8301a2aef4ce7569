"""Errors over samples or updates: the mean over seeds with its 95% confidence interval.

`plot_convergence` is for sampled runs, on logarithmic axes; `plot_learning_curves` for networks,
where lines may have different lengths. Both take plain arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    Figure,
    add_legend_below,
    build_colormap,
    draw_level,
    draw_mean,
)
from bisimetric.views.layout import typeset

ErrorLine = tuple[NDArray[np.float64], NDArray[np.float64]]
POINT_STYLE = {"marker": "x", "markersize": 8, "markeredgewidth": 2}
"""For a line of one point, which would be invisible."""
MAX_OPAQUE_LINES = 5
"""Lines whose shades can be told apart where they cross."""


def plot_convergence(
    steps: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    target_error: float = 1e-3,
    floor: float = 1e-6,
    title: str = "",
) -> Figure:
    """Plot errors over sampled pairs, both logarithmic: one panel per title, one line per label.

    A line is the mean over the seeds, its shade the 95% confidence interval of that mean, and
    thin lines are the seeds. Where the interval reaches 0, the shade ends at the smallest error
    of any seed. A single seed has no shade.

    Args:
        steps: (n,) numbers of samples, increasing.
        panels: by title, and then by label, errors (seeds, n), NaN after the end of a run. The
            same labels mean the same lines in every panel.
        target_error: an error to mark.
        floor: the smallest error to show.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no line, the steps do not increase, or the shapes do not fit.

    >>> errors = {"uniform": [[9.0, 1.0, 0.0], [8.0, 2.0, 0.1]]}
    >>> figure = plot_convergence([10, 100, 1000], {"d~": errors}, title="Two seeds")
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [8.5, 1.5, 0.05]
    """
    counts = np.asarray(steps, dtype=np.float64)
    if counts.ndim != 1 or not len(counts) or counts[0] <= 0 or (np.diff(counts) <= 0).any():
        raise InputError("plot_convergence: steps must be increasing numbers above 0, (n,).")
    errors_by_panel = {
        name: {
            label: _validate_errors(name, label, errors, counts) for label, errors in rows.items()
        }
        for name, rows in panels.items()
    }
    if not any(errors_by_panel.values()):
        raise InputError("plot_convergence: there is nothing to draw; give at least one line.")
    labels = list(dict.fromkeys(label for rows in errors_by_panel.values() for label in rows))
    styles = dict(zip(labels, itertools.cycle(_convergence_styles()), strict=False))
    figure = Figure(figsize=(0.8 + 4.4 * len(panels), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (name, rows) in zip(axes, errors_by_panel.items(), strict=True):
        for label, errors in rows.items():
            draw_mean(panel, counts, errors, label, styles[label], log_floor=floor / 10)
            _draw_seeds(panel, counts, errors, floor, styles[label]["color"])
        draw_level(panel, target_error, f"error {target_error:g}", label="_goal")
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("sampled pairs of transitions")
        panel.set_title(typeset(name), fontsize=10)
    axes[0].set(xscale="log", yscale="log", ylabel="largest error")
    every = [errors for rows in errors_by_panel.values() for errors in rows.values()]
    _set_limits(axes[0], counts, every, floor)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    add_legend_below(figure, labels)
    return figure


def _validate_errors(
    name: str, label: str, errors: ArrayLike, steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    rows = np.asarray(errors, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or rows.shape[1:] != steps.shape:
        raise InputError(
            f"plot_convergence: the errors of {label!r} in {name!r} have shape {rows.shape} and "
            f"must have one row per seed and one column for each of {steps.size} steps."
        )
    if not (rows >= 0).all(axis=0).any():
        raise InputError(
            f"plot_convergence: at no step do all seeds of {label!r} in {name!r} have an error of "
            "at least 0; leave the line out."
        )
    return rows


def _convergence_styles() -> Sequence[dict[str, Any]]:
    """Return lines that differ in lightness and dashes, later ones narrower than earlier ones."""
    colormap = build_colormap()
    return (
        {"color": LINE_COLOUR, "lw": 4.5, "ls": "-"},
        {"color": colormap(0.55), "lw": 2.4, "ls": "-"},
        {"color": colormap(0.85), "lw": 1.8, "ls": (0, (3, 3))},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": "-"},
    )


def _draw_seeds(
    axes: Axes,
    steps: NDArray[np.float64],
    errors: NDArray[np.float64],
    floor: float,
    colour: Any,
) -> None:
    """Draw one thin line per seed, up to the step where the first run ended."""
    if len(errors) > 1:
        shown = ~np.isnan(errors).any(axis=0)
        runs = [
            np.column_stack([steps[shown], np.maximum(row[shown], floor / 10)]) for row in errors
        ]
        axes.add_collection(LineCollection(runs, colors=[colour], lw=0.6, alpha=0.6, zorder=1.5))


def _set_limits(
    axes: Axes, steps: NDArray[np.float64], error_rows: Sequence[NDArray[np.float64]], floor: float
) -> None:
    """Show the first step to the last drawn one, and the floor to the largest error."""
    drawn = np.any([~np.isnan(errors).any(axis=0) for errors in error_rows], axis=0)
    last = steps[drawn].max(initial=steps[0])
    axes.set_xlim(steps[0], max(last, 2 * steps[0]) * 1.05)
    largest = max(float(np.nanmax(errors)) for errors in error_rows)
    axes.set_ylim(floor, max(2 * largest, 10 * floor))


def plot_learning_curves(
    panels: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]],
    *,
    marks: Mapping[int, str] | None = None,
    levels: Mapping[str, tuple[float, str]] | None = None,
    logarithmic: bool = False,
    title: str = "",
) -> Figure:
    """Plot errors over gradient updates: one panel per measure, one line per variant.

    A line is the mean over the seeds, its shade the 95% confidence interval of that mean. A
    single seed has no shade.

    Args:
        panels: by measure, and then by label, updates (n,) and errors (seeds, n). The same labels
            mean the same lines in every panel.
        marks: updates to mark, with their text; one beyond the last update is written at the
            edge, with an arrow.
        levels: by measure, an error to mark, with its text.
        logarithmic: whether the error axis is logarithmic.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no line, the updates do not increase, an error is not finite, or the
            shapes do not fit.

    >>> errors = {"noise off": ([500, 1000], [[9.0, 1.0], [7.0, 2.0]])}
    >>> figure = plot_learning_curves({"largest error": errors}, marks={500: "here"})
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [8.0, 1.5]
    """
    lines_by_panel = {
        name: {label: _validate_line(name, label, *line) for label, line in lines.items()}
        for name, lines in panels.items()
    }
    if not any(lines_by_panel.values()):
        raise InputError("plot_learning_curves: there is nothing to draw; give at least one line.")
    labels = list(dict.fromkeys(label for lines in lines_by_panel.values() for label in lines))
    styles = dict(zip(labels, itertools.cycle(_learning_styles()), strict=False))
    figure = Figure(figsize=(0.8 + 4.8 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, squeeze=False)[0]
    alpha = 0.2 if len(labels) <= MAX_OPAQUE_LINES else 0.08
    last = max(float(x[-1]) for lines in lines_by_panel.values() for x, _ in lines.values())
    for panel, (name, lines) in zip(axes, lines_by_panel.items(), strict=True):
        for label, (updates, errors) in lines.items():
            # A logarithmic scale has no 0.
            lower = errors.min(axis=0) / 2 if logarithmic else 0.0
            style = styles[label] | (POINT_STYLE if len(updates) == 1 else {})
            draw_mean(panel, updates, errors, label, style, lower=lower, alpha=alpha)
        if levels and name in levels:
            draw_level(panel, *levels[name], x=0.5, offset=(0, 4), align="center")
        _format_learning_axes(panel, name, last, logarithmic)
        _draw_marks(panel, marks or {}, last)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    add_legend_below(figure, labels)
    return figure


def _validate_line(name: str, label: str, updates: ArrayLike, errors: ArrayLike) -> ErrorLine:
    counts, rows = np.asarray(updates, np.float64), np.asarray(errors, np.float64)
    which = f"of {label!r} in {name!r}"
    if counts.ndim != 1 or not len(counts) or counts[0] <= 0 or (np.diff(counts) <= 0).any():
        raise InputError(
            f"plot_learning_curves: the updates {which} must be increasing numbers above 0, (n,)."
        )
    if rows.ndim != 2 or not len(rows) or rows.shape[1:] != counts.shape:
        raise InputError(
            f"plot_learning_curves: the errors {which} have shape {rows.shape} and must have one "
            f"row per seed and one column for each of {counts.size} updates."
        )
    if not np.isfinite(rows).all():
        raise InputError(f"plot_learning_curves: an error {which} is not a number.")
    return counts, rows


def _learning_styles() -> tuple[dict[str, Any], ...]:
    """Return lines that differ in hue, lightness and dashes."""
    colormap = build_colormap()
    return (
        {"color": LINE_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": (0, (5, 1.5))},
        {"color": colormap(0.6), "lw": 2.0, "ls": (0, (2, 1.5))},
        {"color": colormap(0.05), "lw": 1.5, "ls": (0, (6, 1.5, 1, 1.5))},
        {"color": colormap(0.8), "lw": 1.5, "ls": "-"},
        {"color": GREY, "lw": 1.5, "ls": (0, (1, 1))},
        {"color": "tab:orange", "lw": 2.0, "ls": "-"},
        {"color": "tab:brown", "lw": 2.0, "ls": (0, (5, 1.5))},
        {"color": "deepskyblue", "lw": 2.0, "ls": (0, (2, 1.5))},
    )


def _format_learning_axes(axes: Axes, name: str, last: float, logarithmic: bool) -> None:
    axes.set_xlim(0, last)
    if logarithmic:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low, high**1.1 / low**0.1)
        # Over many powers of 10, some of those alone are marked.
        wide = high > 1e4 * low
        axes.yaxis.set_major_locator(LogLocator(numticks=8) if wide else LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.22 * axes.get_ylim()[1])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("updates")
    axes.set_title(typeset(name), fontsize=10)


def _draw_marks(axes: Axes, marks: Mapping[int, str], last: float) -> None:
    for index, (update, text) in enumerate(marks.items()):
        beyond = update > last
        x = min(float(update), last)
        if not beyond:
            axes.axvline(x, color=GREY, lw=0.8, ls=":", label="_mark", zorder=1)
        right = x > 0.6 * last
        axes.annotate(
            f"{text} \N{RIGHTWARDS ARROW}" if beyond else text,
            (x, 1),
            xycoords=("data", "axes fraction"),
            # One below the other, so that neighbours do not overlap.
            xytext=(-3 if right else 3, -1 - 11 * index),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top",
            color=GREY,
            fontsize=8,
        )
