"""How networks learn: errors over steps, the mean of several seeds and its interval.

Takes plain arrays: one panel a measure, one line a variant; lines may end at different steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views.colours import ACCENT_COLOUR, LINE_COLOUR, build_colormap
from bisimetric.views.convergence import GREY, add_legend_below, draw_mean

ErrorLine = tuple[NDArray[np.float64], NDArray[np.float64]]
POINT_STYLE = {"marker": "x", "markersize": 8, "markeredgewidth": 2}
"""A line that ends where it began would not be seen."""
MAX_OPAQUE_LINES = 5
"""Lines whose shades can be told apart where they cross."""


def plot_learning_curves(
    panels: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]],
    *,
    marks: Mapping[int, str] | None = None,
    levels: Mapping[str, tuple[float, str]] | None = None,
    logarithmic: bool = False,
    title: str = "",
) -> Figure:
    """Errors over steps from 0 on: one panel a measure, one line a variant.

    Args:
        panels: by measure, and then by label, steps (n,) and errors (seeds, n). The same labels
            mean the same lines in every panel.
        marks: steps to mark, and what they are; one beyond the last step stands at the edge, with
            an arrow.
        levels: by measure, an error to mark, and what it is.
        logarithmic: whether equal ratios of errors are equally high.
        title: of the whole figure.

    A line is the mean over the seeds, its shade the 95% interval of that mean. A single seed has
    no shade.

    >>> errors = {"noise off": ([500, 1000], [[9.0, 1.0], [7.0, 2.0]])}
    >>> figure = learning({"largest error": errors}, marks={500: "here"})
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [8.0, 1.5]
    """
    tables = {
        name: {label: _validate_line(name, label, *line) for label, line in lines.items()}
        for name, lines in panels.items()
    }
    if not any(tables.values()):
        raise InputError("learning: there is nothing to draw; give at least one line of errors.")
    labels = list(dict.fromkeys(label for lines in tables.values() for label in lines))
    styles = dict(zip(labels, itertools.cycle(_learning_styles()), strict=False))
    figure = Figure(figsize=(0.8 + 4.8 * len(tables), 4.2), layout="constrained")
    axes = figure.subplots(1, len(tables), sharex=True, squeeze=False)[0]
    shade = 0.2 if len(labels) <= MAX_OPAQUE_LINES else 0.08
    last = max(float(steps[-1]) for lines in tables.values() for steps, _ in lines.values())
    for panel, (name, lines) in zip(axes, tables.items(), strict=True):
        for label, (steps, errors) in lines.items():
            # On a logarithmic scale there is no 0.
            least = errors.min(axis=0) / 2 if logarithmic else 0.0
            style = styles[label] | (POINT_STYLE if len(steps) == 1 else {})
            draw_mean(panel, steps, errors, label, style, lower=least, alpha=shade)
        if levels and name in levels:
            _draw_centred_level(panel, *levels[name])
        _format_learning_axes(panel, name, last, logarithmic)
        _draw_marks(panel, marks or {}, last)
    if title:
        figure.suptitle(title, fontsize=11)
    add_legend_below(figure, labels)
    return figure


def _validate_line(name: str, label: str, steps: ArrayLike, errors: ArrayLike) -> ErrorLine:
    counts, found = np.asarray(steps, np.float64), np.asarray(errors, np.float64)
    if counts.ndim != 1 or not len(counts) or counts[0] <= 0 or (np.diff(counts) <= 0).any():
        raise InputError(
            f"learning: the steps of {label!r} in {name!r} must be a row of rising numbers above 0."
        )
    if found.ndim != 2 or not len(found) or found.shape[1:] != counts.shape:
        raise InputError(
            f"learning: the errors of {label!r} in {name!r} have shape {found.shape} and must have "
            f"one row a seed and one column for each of {counts.size} steps."
        )
    if not np.isfinite(found).all():
        raise InputError(f"learning: an error of {label!r} in {name!r} is not a number.")
    return counts, found


def _learning_styles() -> tuple[dict[str, Any], ...]:
    """Lines that differ in hue, in lightness and in dashes."""
    return (
        {"color": LINE_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": (0, (5, 1.5))},
        {"color": build_colormap()(0.6), "lw": 2.0, "ls": (0, (2, 1.5))},
        {"color": build_colormap()(0.05), "lw": 1.5, "ls": (0, (6, 1.5, 1, 1.5))},
        {"color": build_colormap()(0.8), "lw": 1.5, "ls": "-"},
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
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.22 * axes.get_ylim()[1])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("steps")
    axes.set_title(name, fontsize=10)


def _draw_centred_level(axes: Axes, height: float, text: str) -> None:
    axes.axhline(height, color=GREY, lw=0.8, ls="--", label="_level", zorder=1)
    axes.annotate(
        text,
        (0.5, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        color=GREY,
        fontsize=8,
    )


def _draw_marks(axes: Axes, marks: Mapping[int, str], last: float) -> None:
    for number, (step, words) in enumerate(marks.items()):
        beyond = step > last
        where = min(float(step), last)
        if not beyond:
            axes.axvline(where, color=GREY, lw=0.8, ls=":", label="_mark", zorder=1)
        right = where > 0.6 * last
        axes.annotate(
            f"{words} \N{RIGHTWARDS ARROW}" if beyond else words,
            (where, 1),
            xycoords=("data", "axes fraction"),
            # One below the other, so that neighbours do not meet.
            xytext=(-3 if right else 3, -1 - 11 * number),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top",
            color=GREY,
            fontsize=8,
        )
