"""Thinned buffers: how near the kept steps are by their number, and what they still teach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.error_curves import GREY
from bisimetric.views.panels import plot_mean_panels

if TYPE_CHECKING:
    from bisimetric.uses import Compression

RANDOM_LINE_THRESHOLD = 0.5
"""Losses all below this leave no room for the line of random actions, at 1."""


def plot_covering_radius(compression: Compression, *, title: str = "") -> Figure:
    """The covering radius over the number of kept steps, with the number that was chosen.

    Left out are numbers too small to have every action. The line ends where the radius is 0.

    >>> from bisimetric import Transitions, uses
    >>> steps = Transitions([0, 1, 2], [0, 0, 0], [0, 0, 1], [1, 2, 0], [False] * 3)
    >>> figure = covering(uses.compress(steps, [[0, 1, 9], [1, 0, 9], [9, 9, 0]], 2))
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [9.0, 1.0]
    """
    shown = np.isfinite(compression.radii)
    figure = Figure(figsize=(6.6, 4.0), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(compression.radii) + 1)[shown]
    axes.step(numbers, compression.radii[shown], where="post", color=LINE_COLOUR, lw=2.0)
    chosen = (len(compression.indices), compression.radius)
    axes.plot(*chosen, "o", ms=8, color=ACCENT_COLOUR, zorder=3, clip_on=False, label="kept")
    # The line falls: below its end, and to the left, nothing is drawn.
    low = compression.radius < 0.2 * float(compression.radii[shown].max())
    axes.annotate(
        f"{chosen[0]:,} of {len(compression.representatives):,} steps, radius {compression.radius:.4g}",
        chosen,
        xytext=(-4, 10 if low else -10),
        textcoords="offset points",
        ha="right",
        va="bottom" if low else "top",
        color=ACCENT_COLOUR,
        fontsize=9,
    )
    axes.set_ylim(0, 1.12 * max(float(compression.radii[shown].max()), 1e-9))
    axes.set_xlim(0, 1.03 * max(chosen[0], float(numbers[-1])))
    axes.set(xlabel="kept steps", ylabel="farthest step from a kept one")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        title or f"{compression.num_state_actions:,} distinct states and actions", fontsize=10
    )
    return figure


def plot_compression_regret(
    fractions: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    title: str = "",
    columns: int | None = None,
) -> Figure:
    """What is lost by learning from a part of a buffer: one panel a title, one line a label.

    Args:
        shares: (n,), how much was kept, rising.
        panels: by title, and then by label, losses (keys, n) as shares of what random actions lose.
            A line is their mean, its shade the 95% interval.
        columns: panels in a row; all, if not given.

    >>> figure = thinning([0.1, 1], {"lake": {"random": [[0.9, 0.2], [0.7, 0.0]]}})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.8, 0.1]
    """
    figure, axes = plot_mean_panels(
        "thinning",
        fractions,
        panels,
        axis_labels=("kept, of distinct states and actions", "lost / lost by random actions"),
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
