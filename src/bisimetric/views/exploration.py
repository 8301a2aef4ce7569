"""States visited and goals reached over environment steps, one line per exploration bonus."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    Figure,
    add_legend_below,
    build_colormap,
    draw_mean,
)

if TYPE_CHECKING:
    from bisimetric.uses.exploration.experiment import ExplorationComparison

SHADE_ALPHA = 0.14
"""Opacity of the confidence intervals, of which there are many."""

LOG_SCALE_RATIO = 20.0
"""The ratio of the last step to the first from which an axis is logarithmic."""


def plot_exploration(
    comparisons: Mapping[str, ExplorationComparison], *, title: str = ""
) -> Figure:
    """Plot the distinct states visited and the goals reached over the steps of an agent.

    Each MDP has two panels. States are drawn over a logarithmic axis, since most are visited
    early. A line is the mean over the seeds, its shade the 95% confidence interval of that mean;
    a single seed has no shade. Dots mark the median step of the first goal, if at least half of
    the seeds reached one.

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
    styles = dict(zip(names, itertools.cycle(_line_styles()), strict=False))
    alone = len(comparisons) == 1
    size = (9.0, 4.2) if alone else (0.8 + 4.0 * len(comparisons), 6.6)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(*((1, 2) if alone else (2, len(comparisons))), squeeze=False)
    pairs = panels if alone else panels.T
    for (upper, lower), (name_of_mdp, each) in zip(pairs, comparisons.items(), strict=True):
        for row, name in enumerate(each.names):
            style = styles[name]
            shade: dict[str, Any] = {"lower": 0.0, "alpha": SHADE_ALPHA}
            visited, reachable = each.visited[row], each.num_reachable
            draw_mean(upper, each.steps, visited, name, style, upper=reachable, **shade)
            draw_mean(lower, each.steps, each.goals[row], name, style, **shade)
            _mark_first_goal(upper, each, row, style)
        upper.axhline(each.num_reachable, color=GREY, lw=0.8, ls="--", label="_all", zorder=1)
        upper.set_ylim(0, 1.06 * each.num_reachable)
        lower.set_ylim(bottom=0)
        if not alone:
            upper.set_title(name_of_mdp, fontsize=10)
        _format_axes(upper, each.steps, logarithmic=True)
        _format_axes(lower, each.steps, logarithmic=False)
    for panel in panels.flat:
        panel.set_xlabel("steps")
    pairs[0, 0].set_ylabel("distinct states visited")
    pairs[0, 1].set_ylabel("goals reached")
    if title or alone:
        figure.suptitle(title or next(iter(comparisons)), fontsize=11)
    add_legend_below(figure, names, max_columns=3)
    return figure


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
