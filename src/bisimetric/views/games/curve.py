"""The distance of every frame to one of them, over the steps of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.views.colours import SOURCE
from bisimetric.views.games.marks import Mark, draw_lines, draw_rows, legend_handles, marks
from bisimetric.views.games.measured import Measured, measured

if TYPE_CHECKING:
    from bisimetric.games import Episode

DISTANCE = "black"
VALUES = "#0072b2"

APART = 6.0
"""How many times the largest of one curve that of the other is, for an axis of its own."""


def curve(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    values: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Distances to the frame `source` in black, and differences of values in blue, over steps.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: which frame that is.
        values: (n,), how good the frames are; as the agent found them unless given.
        title: of the figure; the name of the game unless given.

    d(s, t) and |V(s) - V(t)| are drawn against one axis, since an on-policy metric bounds the
    difference of values; only where one is so much larger that the other would lie flat do the
    values get an axis of their own, on the right. Lines mark where games and levels start; signs
    below the plot mark lost lives and points.

    >>> from bisimetric.games import play
    >>> from bisimetric.games.idle import Idle
    >>> played = play("Pong", Idle("Pong"), most=3)
    >>> figure = curve(played, [0.0, 1.5, 2.5], values=[5.0, 4.0, 3.0])
    >>> [line.get_ydata().tolist() for line in figure.axes[0].lines[:2]]
    [[0.0, 1.0, 2.0], [0.0, 1.5, 2.5]]
    """
    shown = measured(episode, distances, source=source, values=values)
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    found = marks(episode)
    draw(figure, shown, found)
    figure.suptitle(title or episode.game, fontsize=11)
    handles = [*curve_handles(shown), *legend_handles(found)]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles) if len(handles) <= 4 else -(-len(handles) // 2),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
    )
    return figure


def draw(
    figure: Figure | SubFigure, shown: Measured, found: list[Mark], *, size: float = 9.0
) -> tuple[Axes, Axes, Axes]:
    """The curves and the events below them; returns the axes of distances, values and events.

    `size` is that of letters, in points; the signs of events are smaller.
    """
    rows = sum(not mark.line for mark in found)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[11, max(rows, 1) * size / 11], gridspec_kw={"hspace": 0}
    )
    own = _own_axis(shown)
    right = upper.twinx() if own else upper
    right.plot(shown.differences, color=VALUES, lw=1.0, zorder=2)
    upper.plot(shown.distances, color=DISTANCE, lw=1.1, zorder=3)
    upper.plot(shown.source, shown.distances[shown.source], **_source(), zorder=4, clip_on=False)
    draw_lines(upper, found)
    if own:
        # The distances stay in front, and their axes must not hide what lies behind.
        upper.set_zorder(right.get_zorder() + 1)
        upper.patch.set_visible(False)
        right.set_ylim(bottom=0)
        right.set_ylabel("difference of values", color=VALUES, fontsize=size)
        right.tick_params(axis="y", colors=VALUES, labelsize=size - 1)
        right.spines[["top", "left", "bottom"]].set_visible(False)
    upper.set_ylim(bottom=0)
    # A start at step 0 must not hide behind the axis.
    upper.set_xlim(-0.01 * len(shown), 1.005 * len(shown))
    upper.set_ylabel("distance to the source" if own else "distance", fontsize=size)
    upper.spines[["top", "right"]].set_visible(False)
    upper.tick_params(labelsize=size - 1, labelbottom=not rows)
    draw_rows(lower, found, size / 2)
    lower.set_xlabel("step", fontsize=size)
    lower.tick_params(labelsize=size - 1)
    lower.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    lower.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return upper, right, lower


def curve_handles(shown: Measured) -> list[Line2D]:
    """What the curves are, for a legend."""
    right = " (right)" if _own_axis(shown) else ""
    return [
        Line2D([], [], color=DISTANCE, lw=1.4, label="distance to the source"),
        Line2D([], [], color=VALUES, lw=1.4, label=f"difference of values{right}"),
        Line2D([], [], **_source(), label=f"the source, step {shown.source:,}"),
    ]


def _own_axis(shown: Measured) -> bool:
    """Whether one of the curves would lie flat beside the other."""
    low, high = sorted((float(shown.distances.max()), float(shown.differences.max())))
    return 0 < low < high / APART


def _source() -> dict[str, Any]:
    return {"marker": "o", "ms": 6, "mfc": "white", "mec": SOURCE, "mew": 1.6, "ls": "none"}
