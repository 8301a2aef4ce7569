"""How fast runs come near the truth: errors over steps, the mean of several keys and its interval.

Takes plain arrays: one panel a kind of distance, one line a way to draw samples.

How networks learn: errors over steps, the mean of several seeds and its interval.

Takes plain arrays: one panel a measure, one line a variant; lines may end at different steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR, build_colormap

GREY = "0.45"
MAX_LEGEND_COLUMNS = 5
"""Of a legend below a figure, at most."""


def draw_mean(
    axes: Axes,
    steps: ArrayLike,
    samples: NDArray[Any],
    label: str,
    style: Mapping[str, Any],
    *,
    lower: ArrayLike = 0.0,
    upper: float = np.inf,
    alpha: float = 0.2,
) -> None:
    """The mean of numbers (seeds, n) over steps, in the shade of its interval, cut at the ends."""
    if len(samples) > 1:
        mean, half = compute_confidence_interval(samples)
        low, high = np.maximum(mean - half, lower), np.minimum(mean + half, upper)
        axes.fill_between(steps, low, high, color=style["color"], alpha=alpha, lw=0)
    axes.plot(steps, samples.mean(axis=0), label=label, **style)


def plot_convergence(
    steps: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    target_error: float = 1e-3,
    floor: float = 1e-6,
    title: str = "",
) -> Figure:
    """Errors over steps, both logarithmic: one panel a title, one line a label.

    Args:
        steps: (n,) numbers of samples, rising.
        panels: by title, and then by label, errors (keys, n), NaN where a run had ended. The same
            labels mean the same lines in every panel.
        goal: an error to mark.
        floor: the smallest error to show.
        title: of the whole figure.

    A line is the mean over the keys, its shade the 95% interval of that mean, and thin lines are
    the keys. Where the interval reaches 0, which has no place on a logarithmic axis, the shade ends
    at the smallest error of any key. A single key has no shade.

    >>> errors = {"uniform": [[9.0, 1.0, 0.0], [8.0, 2.0, 0.1]]}
    >>> figure = convergence([10, 100, 1000], {"d~": errors}, title="Two keys")
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [8.5, 1.5, 0.05]
    """
    counts = np.asarray(steps, dtype=np.float64)
    if counts.ndim != 1 or not len(counts) or counts[0] <= 0 or (np.diff(counts) <= 0).any():
        raise InputError("convergence: steps must be a row of rising numbers above 0.")
    tables = {
        name: {
            label: _validate_errors(name, label, errors, counts) for label, errors in lines.items()
        }
        for name, lines in panels.items()
    }
    if not any(tables.values()):
        raise InputError("convergence: there is nothing to draw; give at least one line of errors.")
    labels = list(dict.fromkeys(label for lines in tables.values() for label in lines))
    styles = dict(zip(labels, itertools.cycle(_convergence_styles()), strict=False))
    figure = Figure(figsize=(0.8 + 4.4 * len(tables), 4.4), layout="constrained")
    axes = figure.subplots(1, len(tables), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (name, lines) in zip(axes, tables.items(), strict=True):
        for label, errors in lines.items():
            _draw_convergence(panel, counts, errors, floor, label, styles[label])
        _format_convergence_axes(panel, name, target_error)
    axes[0].set(xscale="log", yscale="log", ylabel="largest error")
    _set_limits(
        axes[0], counts, [errors for lines in tables.values() for errors in lines.values()], floor
    )
    if title:
        figure.suptitle(title, fontsize=11)
    add_legend_below(figure, labels)
    return figure


def add_legend_below(figure: Figure, labels: list[str]) -> None:
    """One legend for all panels of a figure, below them."""
    handles = {line.get_label(): line for panel in figure.axes for line in panel.lines}
    figure.legend(
        handles=[handles[label] for label in labels],
        loc="outside lower center",
        ncols=min(len(labels), MAX_LEGEND_COLUMNS),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def _validate_errors(
    name: str, label: str, errors: ArrayLike, steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    found = np.asarray(errors, dtype=np.float64)
    if found.ndim != 2 or not len(found) or found.shape[1:] != steps.shape:
        raise InputError(
            f"convergence: the errors of {label!r} in {name!r} have shape {found.shape} and must "
            f"have one row a key and one column for each of {steps.size} steps."
        )
    if not (found >= 0).all(axis=0).any():
        raise InputError(
            f"convergence: at no step do all keys of {label!r} in {name!r} have an error, a number "
            "that is at least 0; leave the line out."
        )
    return found


def _convergence_styles() -> Sequence[dict[str, Any]]:
    """Lines that differ in lightness and in dashes; a later one does not hide an earlier one."""
    scale = build_colormap()
    return (
        {"color": LINE_COLOUR, "lw": 4.5, "ls": "-"},
        {"color": scale(0.55), "lw": 2.4, "ls": "-"},
        {"color": scale(0.85), "lw": 1.8, "ls": (0, (3, 3))},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": "-"},
    )


def _draw_convergence(
    axes: Axes,
    steps: NDArray[np.float64],
    errors: NDArray[np.float64],
    floor: float,
    label: str,
    style: dict[str, Any],
) -> None:
    """One mean and its shade, up to where a key has no error any more."""
    shown = ~np.isnan(errors).any(axis=0)
    steps, errors = steps[shown], errors[:, shown]
    if len(errors) > 1:
        mean, half = compute_confidence_interval(errors)
        low = np.where(mean > half, mean - half, errors.min(axis=0))
        low = np.maximum(low, floor / 10)
        axes.fill_between(steps, low, mean + half, color=style["color"], alpha=0.2, lw=0)
        runs = [np.column_stack([steps, np.maximum(row, floor / 10)]) for row in errors]
        thin = LineCollection(runs, colors=[style["color"]], lw=0.6, alpha=0.6, zorder=1.5)
        axes.add_collection(thin)
    axes.plot(steps, errors.mean(axis=0), label=label, **style)


def draw_level(
    axes: Axes,
    height: float,
    text: str,
    *,
    linestyle: str = "--",
    x: float = 0.0,
    offset: int = 4,
    **line: Any,
) -> None:
    """A grey line across, with what it stands for written on it, at a share `left` of the width."""
    axes.axhline(height, color=GREY, lw=0.8, ls=linestyle, zorder=1, **line)
    axes.annotate(
        text,
        (x, height),
        xycoords=("axes fraction", "data"),
        xytext=(offset, 3),
        textcoords="offset points",
        color=GREY,
        fontsize=8,
    )


def _format_convergence_axes(axes: Axes, name: str, target_error: float) -> None:
    draw_level(axes, target_error, f"error {target_error:g}", label="_goal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("pairs of transitions drawn")
    axes.set_title(name, fontsize=10)


def _set_limits(
    axes: Axes, steps: NDArray[np.float64], error_rows: Sequence[NDArray[np.float64]], floor: float
) -> None:
    """From the first step to the last that a line reaches, and from the floor to the top."""
    reached = np.any([~np.isnan(errors).any(axis=0) for errors in error_rows], axis=0)
    last = steps[reached].max(initial=steps[0])
    axes.set_xlim(steps[0], max(last, 2 * steps[0]) * 1.05)
    largest = max(float(np.nanmax(errors)) for errors in error_rows)
    axes.set_ylim(floor, max(2 * largest, 10 * floor))


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
