"""Exploration bonuses compared: curves in one MDP, or first and final goals in several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    MARKERS,
    Figure,
    add_legend_below,
    build_colormap,
    draw_mean,
)
from bisimetric.views.layout import typeset

if TYPE_CHECKING:
    from bisimetric.uses.exploration.experiment import ExplorationComparison

SHADE_ALPHA = 0.14
"""Opacity of the confidence intervals, of which there are many."""

ROW_HEIGHT, GROUP_HEIGHT = 0.17, 0.8
"""Inches of a row, and the part of the height of a group that its rows take."""

LOG_SCALE_RATIO = 20.0
"""The ratio of the last step to the first from which an axis is logarithmic."""


def plot_exploration(
    comparisons: Mapping[str, ExplorationComparison], *, title: str = ""
) -> Figure:
    """Plot how well agents explore, in two panels.

    For one MDP these are the distinct states visited and the goals reached over the steps. States
    are drawn over a logarithmic axis, since most are visited early. A line is the mean over the
    seeds, its shade the 95% confidence interval of that mean; a single seed has no shade. Dots mark
    the median step of the first goal, if at least half of the seeds reached one.

    For several MDPs they are the step of the first goal, a dot for the median over the seeds and
    a line between the quartiles, and the goals per 1,000 steps, a dot for the mean and a line for
    its 95% confidence interval; one group of rows per MDP, one colour and marker per agent.

    Args:
        comparisons: by title, the results in one MDP. The same names mean the same lines.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no comparison.

    >>> from bisimetric import worlds
    >>> from bisimetric.uses.exploration.experiment import ExplorationArm, compare
    >>> arms = {"no bonus": ExplorationArm("none"), "counts": ExplorationArm("states")}
    >>> comparison = compare(worlds.load("mirrored-rooms"), arms, steps=200, num_seeds=2)
    >>> plot_exploration({"rooms": comparison}).get_suptitle()
    'rooms'
    """
    if not comparisons:
        raise InputError("plot_exploration: there is nothing to draw; give at least one MDP.")
    names = list(dict.fromkeys(name for each in comparisons.values() for name in each.names))
    if len(comparisons) > 1:
        return _plot_several(comparisons, names, title)
    (name_of_mdp, comparison), *_ = comparisons.items()
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    visited_panel, goal_panel = figure.subplots(1, 2)
    styles = dict(zip(names, itertools.cycle(_line_styles()), strict=False))
    reachable = comparison.num_reachable
    shade: dict[str, Any] = {"lower": 0.0, "alpha": SHADE_ALPHA}
    for row, name in enumerate(names):
        lines = (comparison.visited[row], comparison.goals[row])
        draw_mean(
            visited_panel, comparison.steps, lines[0], name, styles[name], upper=reachable, **shade
        )
        draw_mean(goal_panel, comparison.steps, lines[1], name, styles[name], **shade)
        _mark_first_goal(visited_panel, comparison, row, styles[name])
    visited_panel.axhline(reachable, color=GREY, lw=0.8, ls="--", label="_all", zorder=1)
    visited_panel.set_ylim(0, 1.06 * reachable)
    goal_panel.set_ylim(bottom=0)
    _format_axes(visited_panel, comparison.steps, logarithmic=True)
    _format_axes(goal_panel, comparison.steps, logarithmic=False)
    visited_panel.set(xlabel="steps", ylabel="distinct states visited")
    goal_panel.set(xlabel="steps", ylabel="goals reached")
    figure.suptitle(typeset(title or name_of_mdp), fontsize=11)
    add_legend_below(figure, names, max_columns=3)
    return figure


def _plot_several(
    comparisons: Mapping[str, ExplorationComparison], names: Sequence[str], title: str
) -> Figure:
    """Plot the first goal and the goals per 1,000 steps of each agent in several MDPs."""
    num_groups, num_rows = len(comparisons), len(names)
    height = 1.2 + num_groups * (0.25 + ROW_HEIGHT * num_rows)
    figure = Figure(figsize=(9.5, height), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    styles = dict(zip(names, itertools.cycle(_dot_styles()), strict=False))
    for group, comparison in enumerate(comparisons.values()):
        per_thousand = comparison.goals[:, :, -1] * 1000 / float(comparison.steps[-1])
        for row, name in enumerate(comparison.names):
            y = group + (names.index(name) - (num_rows - 1) / 2) * GROUP_HEIGHT / num_rows
            first = comparison.first_goal[row]
            median = float(np.median(first))
            # Interpolation between two seeds without a goal would not be a number.
            low, high = np.quantile(first, (0.25, 0.75), method="nearest").tolist()
            if np.isfinite(median):
                _draw_dot(axes[0], y, median, (low, high), styles[name], name)
            mean = float(per_thousand[row].mean())
            half = 0.0
            if per_thousand.shape[1] > 1:
                half = float(compute_confidence_interval(per_thousand[row])[1])
            ends = (max(mean - half, 0.0), mean + half)
            _draw_dot(axes[1], y, mean, ends, styles[name], name)
    for group in range(1, num_groups):
        for panel in axes:
            panel.axhline(group - 0.5, color=GREY, lw=0.6, alpha=0.5, label="_between")
    axes[0].set_yticks(np.arange(num_groups), [_wrap(typeset(name)) for name in comparisons])
    axes[0].set_ylim(num_groups - 0.5, -0.5)
    axes[0].set(xscale="log", xlabel="step of the first goal: median and quartiles")
    axes[0].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    axes[1].set(xlabel="goals per 1,000 steps: mean and 95% interval")
    axes[1].set_xlim(left=0)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    axes[0].set_title("lower is better", fontsize=9, color=GREY)
    axes[1].set_title("higher is better", fontsize=9, color=GREY)
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    add_legend_below(figure, list(names), max_columns=3)
    return figure


def _draw_dot(
    axes: Axes,
    y: float,
    centre: float,
    ends: tuple[float, float],
    style: Mapping[str, Any],
    label: str,
) -> None:
    """Draw a marker and a line between two ends; an infinite end is where the panel ends."""
    right = ends[1] if np.isfinite(ends[1]) else 1e3 * centre
    axes.plot([ends[0], right], [y, y], color=style["color"], lw=1.8, label="_interval")
    axes.plot(centre, y, linestyle="", mec="white", mew=0.6, ms=8, label=label, zorder=3, **style)


def _dot_styles() -> tuple[dict[str, Any], ...]:
    """Return markers that differ in hue and shape, as the lines do in hue."""
    colours = (GREY, LINE_COLOUR, ACCENT_COLOUR, "#d98cb8", build_colormap()(0.6), "#e69f00")
    return tuple(
        {"color": colour, "marker": marker} for colour, marker in zip(colours, MARKERS, strict=True)
    )


def _wrap(name: str) -> str:
    """Break a long name at its comma."""
    return name.replace(", ", ",\n")


def _line_styles() -> tuple[dict[str, Any], ...]:
    """Return lines that differ in hue, lightness and dashes."""
    return (
        {"color": GREY, "lw": 1.8, "ls": (0, (1, 1.2))},
        {"color": LINE_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 1.6, "ls": (0, (2, 1.5))},
        {"color": build_colormap()(0.6), "lw": 2.0, "ls": (0, (5, 1.5))},
        {"color": "#e69f00", "lw": 2.0, "ls": (0, (6, 1.2, 1.2, 1.2))},
    )


def _mark_first_goal(
    axes: Axes, comparison: ExplorationComparison, row: int, style: dict[str, Any]
) -> None:
    """Draw a dot where half of the seeds had reached a goal."""
    step = float(np.median(comparison.first_goal[row]))
    if np.isfinite(step):
        height = float(np.interp(step, comparison.steps, comparison.visited[row].mean(axis=0)))
        axes.plot(
            step,
            height,
            "o",
            ms=7,
            color=style["color"],
            mec="white",
            mew=1.2,
            label="_first",
            zorder=4,
        )


def _format_axes(axes: Axes, steps: NDArray[np.int64], *, logarithmic: bool) -> None:
    first, last = float(steps[0]), float(steps[-1])
    if logarithmic and last >= LOG_SCALE_RATIO * first:
        axes.set_xscale("log")
        axes.set_xlim(first, last)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
