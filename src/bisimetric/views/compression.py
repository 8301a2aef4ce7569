"""Compressed replay buffers: covering radius by size, and the regret of learning from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.views._figure import ACCENT_COLOUR, GREY, LINE_COLOUR, Figure, plot_mean_panels

if TYPE_CHECKING:
    from bisimetric.uses import Compression

RANDOM_LINE_THRESHOLD = 0.5
"""Where all regrets are below this, the line of random actions, at 1, is not drawn."""


def plot_covering_radius(compression: Compression, *, title: str = "") -> Figure:
    """Plot the covering radius over the number of retained steps and mark the selected number.

    Numbers too small to include every action are omitted. The line ends where the radius is 0.

    Args:
        compression: as `uses.compress` returns it.
        title: of the figure.

    Returns:
        A Matplotlib figure.

    >>> from bisimetric import Transitions, uses
    >>> steps = Transitions([0, 1, 2], [0, 0, 0], [0, 0, 1], [1, 2, 0], [False] * 3)
    >>> compression = uses.compress(steps, [[0, 1, 9], [1, 0, 9], [9, 9, 0]], 2)
    >>> plot_covering_radius(compression).axes[0].lines[0].get_ydata().tolist()
    [9.0, 1.0]
    """
    shown = np.isfinite(compression.radii)
    figure = Figure(figsize=(6.6, 4.0), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(compression.radii) + 1)[shown]
    axes.step(numbers, compression.radii[shown], where="post", color=LINE_COLOUR, lw=2.0)
    selected = (len(compression.indices), compression.radius)
    axes.plot(*selected, "o", ms=8, color=ACCENT_COLOUR, zorder=3, clip_on=False, label="selected")
    # The line decreases: nothing is drawn to the lower left of its end.
    low = compression.radius < 0.2 * float(compression.radii[shown].max())
    axes.annotate(
        f"{selected[0]:,} of {len(compression.representatives):,} steps, "
        f"radius {compression.radius:.4g}",
        selected,
        xytext=(-4, 10 if low else -10),
        textcoords="offset points",
        ha="right",
        va="bottom" if low else "top",
        color=ACCENT_COLOUR,
        fontsize=9,
    )
    axes.set_ylim(0, 1.12 * max(float(compression.radii[shown].max()), 1e-9))
    axes.set_xlim(0, 1.03 * max(selected[0], float(numbers[-1])))
    axes.set(xlabel="retained steps", ylabel="covering radius")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        title or f"{compression.num_state_actions:,} distinct state-action pairs", fontsize=10
    )
    return figure


def plot_compression_regret(
    fractions: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    title: str = "",
    columns: int | None = None,
) -> Figure:
    """Plot the regret of learning from a part of a buffer: one panel per title, a line per label.

    A line is the mean over the seeds, its shade the 95% confidence interval of that mean.

    Args:
        fractions: (n,), the retained fractions, increasing.
        panels: by title, and then by label, regrets (seeds, n) divided by the regret of random
            actions.
        title: of the whole figure.
        columns: panels per row; all, if not given.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no line, or its shape does not fit.

    >>> figure = plot_compression_regret([0.1, 1], {"lake": {"random": [[0.9, 0.2], [0.7, 0.0]]}})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.8, 0.1]
    """
    figure, axes = plot_mean_panels(
        "plot_compression_regret",
        fractions,
        panels,
        axis_labels=("retained state-action pairs", "regret / regret of random actions"),
        title=title,
        columns=columns,
    )
    for panel in axes[: len(panels)]:
        if (
            max((np.asarray(line.get_ydata()).max() for line in panel.lines), default=0.0)
            > RANDOM_LINE_THRESHOLD
        ):
            panel.axhline(1.0, color=GREY, lw=0.8, ls="--", label="_random", zorder=1)
        panel.set_ylim(bottom=0)
    axes[0].set_xlim(0, 1.03)
    axes[0].xaxis.set_major_formatter(PercentFormatter(1.0, 0))
    return figure
