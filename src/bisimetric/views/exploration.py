"""How agents explore: states visited and goals found over steps, one line a kind of bonus."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR, build_colormap
from bisimetric.views.error_curves import GREY, draw_mean

if TYPE_CHECKING:
    from bisimetric.uses.exploration.experiment import ExplorationComparison

SHADE_ALPHA = 0.14
"""How much of their colour intervals have: there are many."""

LOG_SCALE_RATIO = 20.0
"""How many times the first step the last one is, for a logarithmic axis."""


def plot_exploration(
    comparisons: Mapping[str, ExplorationComparison], *, title: str = ""
) -> Figure:
    """Two panels a world: different states visited, and goals, over the steps of an agent.

    Args:
        found: by title, what was measured in a world. The same names mean the same lines.
        title: of the whole figure.

    States are drawn over a logarithmic axis, since most are met early. A line is the mean over the
    keys, its shade the 95% interval of that mean. A single key has no shade. Dots mark the median
    step of the first goal, where half of the keys found one.

    >>> from bisimetric import worlds
    >>> from bisimetric.uses.exploration.experiment import Arm, compare
    >>> arms = {"no bonus": Arm("none"), "counts": Arm("states")}
    >>> found = compare(worlds.load("mirrored-rooms"), arms, steps=200, keys=2)
    >>> exploration({"rooms": found}).get_suptitle()
    'rooms'
    """
    if not comparisons:
        raise InputError("exploration: there is nothing to draw; give at least one world.")
    names = list(dict.fromkeys(name for each in comparisons.values() for name in each.names))
    styles = dict(zip(names, itertools.cycle(_line_styles()), strict=False))
    alone = len(comparisons) == 1
    size = (9.0, 4.2) if alone else (0.8 + 4.0 * len(comparisons), 6.6)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(*((1, 2) if alone else (2, len(comparisons))), squeeze=False)
    pairs = panels if alone else panels.T
    for (upper, lower), (world, each) in zip(pairs, comparisons.items(), strict=True):
        for row, name in enumerate(each.names):
            style = styles[name]
            most = each.num_reachable
            draw_mean(
                upper, each.steps, each.visited[row], name, style, upper=most, alpha=SHADE_ALPHA
            )
            draw_mean(lower, each.steps, each.goals[row], name, style, alpha=SHADE_ALPHA)
            _mark_first_goal(upper, each, row, style)
        upper.axhline(each.num_reachable, color=GREY, lw=0.8, ls="--", label="_all", zorder=1)
        upper.set_ylim(0, 1.06 * each.num_reachable)
        lower.set_ylim(bottom=0)
        if not alone:
            upper.set_title(world, fontsize=10)
        _format_axes(upper, each.steps, logarithmic=True)
        _format_axes(lower, each.steps, logarithmic=False)
    for panel in panels.flat:
        panel.set_xlabel("steps")
    pairs[0, 0].set_ylabel("different states visited")
    pairs[0, 1].set_ylabel("goals so far")
    if title or alone:
        figure.suptitle(title or next(iter(comparisons)), fontsize=11)
    _add_legend(figure, names)
    return figure


def format_comparison(comparison: ExplorationComparison) -> Iterator[str]:
    """A table to be printed: by arm the first goal, and states and goals at the end.

    The first goal is the median over the keys, with how many found it; the others are means and
    half the widths of their 95% intervals.
    """
    keys = comparison.first_goal.shape[1]
    wide = max(len(name) for name in comparison.names) + 2
    last = f"{int(comparison.steps[-1]):,} steps"
    yield f"{'':<{wide}}{'first goal':>10}  {'found by':<10}{'states':<17}goals, after {last}"
    for row, name in enumerate(comparison.names):
        cells = [
            _format_mean(numbers[row, :, -1]) for numbers in (comparison.visited, comparison.goals)
        ]
        middle = float(np.median(comparison.first_goal[row]))
        step = f"{middle:,.0f}" if np.isfinite(middle) else "never"
        by = f"{int(np.isfinite(comparison.first_goal[row]).sum())} of {keys}"
        yield f"{name:<{wide}}{step:>10}  {by:<10}{cells[0]:<17}{cells[1]}"
    yield f"of {comparison.num_reachable:,} different states that can be visited"


def _format_mean(numbers: NDArray[np.int64]) -> str:
    mean = float(numbers.mean())
    return f"{mean:.1f}" + (
        f" +- {float(compute_confidence_interval(numbers)[1]):.1f}" if len(numbers) > 1 else ""
    )


def _line_styles() -> tuple[dict[str, Any], ...]:
    """Lines that differ in hue, in lightness and in dashes."""
    return (
        {"color": GREY, "lw": 1.8, "ls": (0, (1, 1.2))},
        {"color": LINE_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 2.0, "ls": "-"},
        {"color": ACCENT_COLOUR, "lw": 1.6, "ls": (0, (2, 1.5))},
        {"color": build_colormap()(0.6), "lw": 2.0, "ls": (0, (5, 1.5))},
        {"color": "#e69f00", "lw": 2.0, "ls": (0, (6, 1.2, 1.2, 1.2))},
    )


def _add_legend(figure: Figure, names: list[str]) -> None:
    """One legend for all panels, below them, in rows."""
    lines = {line.get_label(): line for panel in figure.axes for line in panel.lines}
    figure.legend(
        handles=[lines[name] for name in names],
        loc="outside lower center",
        ncols=min(len(names), 3),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def _mark_first_goal(
    axes: Axes, comparison: ExplorationComparison, row: int, style: dict[str, Any]
) -> None:
    """A dot where half of the keys had found a goal."""
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
