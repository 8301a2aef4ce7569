"""The distance of every frame to one of them, over the steps of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.views.colours import ACCENT_COLOUR
from bisimetric.views.games.marks import (
    EventMarks,
    build_event_handles,
    draw_event_lines,
    draw_event_rows,
    find_events,
)
from bisimetric.views.games.measured import EpisodeDistances, measure_episode

if TYPE_CHECKING:
    from bisimetric.games import Episode

DISTANCE_COLOUR = "black"
VALUE_COLOUR = "#0072b2"

OWN_AXIS_RATIO = 6.0
"""How many times the largest of one curve that of the other is, for an axis of its own."""


def plot_episode_curve(
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
    shown = measure_episode(episode, distances, source=source, values=values)
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    found = find_events(episode)
    draw_curves(figure, shown, found)
    figure.suptitle(title or episode.game, fontsize=11)
    handles = [*build_curve_handles(shown), *build_event_handles(found)]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles) if len(handles) <= 4 else -(-len(handles) // 2),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
    )
    return figure


def draw_curves(
    figure: Figure | SubFigure,
    episode_distances: EpisodeDistances,
    events: list[EventMarks],
    *,
    size: float = 9.0,
) -> tuple[Axes, Axes, Axes]:
    """The curves and the events below them; returns the axes of distances, values and events.

    `size` is that of letters, in points; the signs of events are smaller.
    """
    rows = sum(not mark.is_line for mark in events)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[11, max(rows, 1) * size / 11], gridspec_kw={"hspace": 0}
    )
    own = _needs_own_axis(episode_distances)
    right = upper.twinx() if own else upper
    right.plot(episode_distances.value_differences, color=VALUE_COLOUR, lw=1.0, zorder=2)
    upper.plot(episode_distances.distances, color=DISTANCE_COLOUR, lw=1.1, zorder=3)
    upper.plot(
        episode_distances.source,
        episode_distances.distances[episode_distances.source],
        **_source_style(),
        zorder=4,
        clip_on=False,
    )
    draw_event_lines(upper, events)
    if own:
        # The distances stay in front, and their axes must not hide what lies behind.
        upper.set_zorder(right.get_zorder() + 1)
        upper.patch.set_visible(False)
        right.set_ylim(bottom=0)
        right.set_ylabel("difference of values", color=VALUE_COLOUR, fontsize=size)
        right.tick_params(axis="y", colors=VALUE_COLOUR, labelsize=size - 1)
        right.spines[["top", "left", "bottom"]].set_visible(False)
    upper.set_ylim(bottom=0)
    # A start at step 0 must not hide behind the axis.
    upper.set_xlim(-0.01 * len(episode_distances), 1.005 * len(episode_distances))
    upper.set_ylabel("distance to the source" if own else "distance", fontsize=size)
    upper.spines[["top", "right"]].set_visible(False)
    upper.tick_params(labelsize=size - 1, labelbottom=not rows)
    draw_event_rows(lower, events, size / 2)
    lower.set_xlabel("step", fontsize=size)
    lower.tick_params(labelsize=size - 1)
    lower.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    lower.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return upper, right, lower


def build_curve_handles(episode_distances: EpisodeDistances) -> list[Line2D]:
    """What the curves are, for a legend."""
    right = " (right)" if _needs_own_axis(episode_distances) else ""
    return [
        Line2D([], [], color=DISTANCE_COLOUR, lw=1.4, label="distance to the source"),
        Line2D([], [], color=VALUE_COLOUR, lw=1.4, label=f"difference of values{right}"),
        Line2D([], [], **_source_style(), label=f"the source, step {episode_distances.source:,}"),
    ]


def _needs_own_axis(episode_distances: EpisodeDistances) -> bool:
    """Whether one of the curves would lie flat beside the other."""
    low, high = sorted(
        (float(episode_distances.distances.max()), float(episode_distances.value_differences.max()))
    )
    return 0 < low < high / OWN_AXIS_RATIO


def _source_style() -> dict[str, Any]:
    return {"marker": "o", "ms": 6, "mfc": "white", "mec": ACCENT_COLOUR, "mew": 1.6, "ls": "none"}
