"""Figures of one episode: distances over its steps with the events, and its extreme frames."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import require_integer
from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR, Figure
from bisimetric.views.layout import build_number_format
from bisimetric_atari.views.episode_distances import MIN_GAP, EpisodeDistances, measure_episode

if TYPE_CHECKING:
    from bisimetric_atari.games import Episode

START_COLOUR = "#009e73"
LEVEL_COLOUR = "#e69f00"
POINT_COLOUR = "0.25"


@dataclasses.dataclass(frozen=True)
class EventMarks:
    """The frames of one kind of event, and how they are drawn.

    Starts are vertical lines; other events have a row of markers below the plot.
    """

    name: str
    frames: NDArray[np.int64]
    is_line: bool
    style: dict[str, Any]

    def format_label(self) -> str:
        """Format the name of the event and its count."""
        return f"{self.name} ({len(self.frames)})"


def find_events(episode: Episode) -> list[EventMarks]:
    """Find the events of an episode: starts first, then lost lives, then points.

    Points and lost lives are marked at the last frame before they show, as in `Episode.events`.

    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=90)
    >>> [event.format_label() for event in find_events(episode)]
    ['game starts (1)', 'points lost (1)']
    """
    levels = np.zeros(0, np.int64) if episode.level_starts is None else episode.level_starts
    won, lost = (np.flatnonzero(sign * episode.rewards > 0) for sign in (1, -1))
    found = (
        EventMarks(
            "game starts", episode.starts, True, {"color": START_COLOUR, "lw": 1.4, "ls": "-"}
        ),
        EventMarks(
            "level starts", levels, True, {"color": LEVEL_COLOUR, "lw": 1.4, "ls": (0, (4, 1.5))}
        ),
        _build_signs("life lost", episode.life_losses, "X", ACCENT_COLOUR),
        _build_signs("points won", won, "^", POINT_COLOUR),
        _build_signs("points lost", lost, "v", LEVEL_COLOUR),
    )
    return [mark for mark in found if len(mark.frames)]


def draw_event_lines(axes: Axes, events: list[EventMarks]) -> None:
    """Draw the starts as vertical lines behind the curves."""
    for mark in events:
        for step in mark.frames if mark.is_line else ():
            axes.axvline(step, **mark.style, zorder=1)


def draw_event_rows(axes: Axes, events: list[EventMarks], size: float) -> None:
    """Draw one row of markers per kind of event, the first on top."""
    rows = [mark for mark in events if not mark.is_line]
    for height, mark in enumerate(reversed(rows)):
        axes.axhline(height, color="0.88", lw=0.6, zorder=0)
        axes.plot(
            mark.frames,
            np.full(len(mark.frames), height),
            **mark.style | {"ms": size},
            clip_on=False,
        )
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def build_event_handles(events: list[EventMarks]) -> list[Line2D]:
    """Build one legend entry per kind of event."""
    return [Line2D([], [], **mark.style, label=mark.format_label()) for mark in events]


def _build_signs(name: str, frames: NDArray[np.int64], marker: str, colour: str) -> EventMarks:
    style = {"color": colour, "ls": "none", "marker": marker, "mec": "none"}
    return EventMarks(name, frames, False, style)


DISTANCE_COLOUR = "black"
VALUE_COLOUR = "#0072b2"

OWN_AXIS_RATIO = 6.0
"""The ratio of the maxima of two curves above which each has its own axis."""


def plot_episode_curve(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    values: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Plot distances to the frame `source` in black and value differences in blue, over steps.

    d(s, t) and |V(s) - V(t)| share one axis, since an on-policy metric bounds the difference of
    values. Only if one is so much larger that the other would look flat do the values get an axis
    on the right. Vertical lines mark the starts of games and levels; markers below the plot show
    lost lives and points.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: the index of the source frame.
        values: (n,), V of the frames; those of the agent unless given.
        title: of the figure; the name of the game unless given.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: the episode is too short, or the arrays do not fit it.

    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=3)
    >>> figure = plot_episode_curve(episode, [0.0, 1.5, 2.5], values=[5.0, 4.0, 3.0])
    >>> [line.get_ydata().tolist() for line in figure.axes[0].lines[:2]]
    [[0.0, 1.0, 2.0], [0.0, 1.5, 2.5]]
    """
    measured = measure_episode(episode, distances, source=source, values=values)
    figure = Figure(figsize=(10.0, 4.4), layout="constrained")
    found = find_events(episode)
    draw_curves(figure, measured, found)
    figure.suptitle(title or episode.game, fontsize=11)
    handles = [*build_curve_handles(measured), *build_event_handles(found)]
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
    measured: EpisodeDistances,
    events: list[EventMarks],
    *,
    size: float = 9.0,
) -> tuple[Axes, Axes, Axes]:
    """Draw the curves and the events below them; return the axes of distances, values and events.

    `size` is the font size in points; event markers are smaller.
    """
    rows = sum(not mark.is_line for mark in events)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[11, max(rows, 1) * size / 11], gridspec_kw={"hspace": 0}
    )
    own = _needs_own_axis(measured)
    right = upper.twinx() if own else upper
    right.plot(measured.value_differences, color=VALUE_COLOUR, lw=1.0, zorder=2)
    upper.plot(measured.distances, color=DISTANCE_COLOUR, lw=1.1, zorder=3)
    upper.plot(
        measured.source,
        measured.distances[measured.source],
        **_source_style(),
        zorder=4,
        clip_on=False,
    )
    draw_event_lines(upper, events)
    if own:
        # The distances stay in front; their background must not hide the values.
        upper.set_zorder(right.get_zorder() + 1)
        upper.patch.set_visible(False)
        right.set_ylim(bottom=0)
        right.set_ylabel("value difference", color=VALUE_COLOUR, fontsize=size)
        right.tick_params(axis="y", colors=VALUE_COLOUR, labelsize=size - 1)
        right.spines[["top", "left", "bottom"]].set_visible(False)
    upper.set_ylim(bottom=0)
    # The axis must not hide a start at step 0.
    upper.set_xlim(-0.01 * len(measured), 1.005 * len(measured))
    upper.set_ylabel("distance to the source" if own else "distance", fontsize=size)
    upper.spines[["top", "right"]].set_visible(False)
    upper.tick_params(labelsize=size - 1, labelbottom=not rows)
    draw_event_rows(lower, events, size / 2)
    lower.set_xlabel("step", fontsize=size)
    lower.tick_params(labelsize=size - 1)
    lower.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    lower.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return upper, right, lower


def build_curve_handles(measured: EpisodeDistances) -> list[Line2D]:
    """Build the legend entries of the curves."""
    right = " (right)" if _needs_own_axis(measured) else ""
    return [
        Line2D([], [], color=DISTANCE_COLOUR, lw=1.4, label="distance to the source"),
        Line2D([], [], color=VALUE_COLOUR, lw=1.4, label=f"value difference{right}"),
        Line2D([], [], **_source_style(), label=f"the source, step {measured.source:,}"),
    ]


def _needs_own_axis(measured: EpisodeDistances) -> bool:
    """Tell whether one of the curves would look flat beside the other."""
    low, high = sorted((float(measured.distances.max()), float(measured.value_differences.max())))
    return 0 < low < high / OWN_AXIS_RATIO


def _source_style() -> dict[str, Any]:
    return {"marker": "o", "ms": 6, "mfc": "white", "mec": ACCENT_COLOUR, "mew": 1.6, "ls": "none"}


BINS = 50
NEAR_COLOUR = "#009e73"
FAR_COLOUR = "#d55e00"


def plot_extremes(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    num_frames: int = 4,
    min_gap: int = MIN_GAP,
    title: str = "",
) -> Figure:
    """Plot the source frame, the histogram of distances to it, and the nearest and furthest frames.

    Triangles under the histogram mark the distances of the frames measured.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: the index of the source frame.
        num_frames: of the nearest frames, and of the furthest.
        min_gap: the least number of steps between two frames of a row, and from the source to the
            nearest: consecutive frames are nearly the same. No screen is measured twice in a row
            either: deterministic games repeat themselves.
        title: of the figure; the name of the game unless given.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: an argument is out of range, or the distances do not fit the episode.

    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=3)
    >>> figure = plot_extremes(episode, [0.0, 1.5, 2.5], num_frames=1, min_gap=1)
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['source, step 0', 'nearest: step 1\\ndistance 1.500', 'furthest: step 2\\ndistance 2.500']
    """
    require_integer("plot_extremes", "num_frames", num_frames, 1)
    measured = measure_episode(episode, distances, source=source, values=np.zeros(len(episode)))
    nearest, furthest = measured.find_extremes(
        num_frames, require_integer("plot_extremes", "min_gap", min_gap, 1)
    )
    columns = max(len(nearest), len(furthest))
    figure = Figure(figsize=(4.6 + 1.5 * columns, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[4.4, 1.5 * columns])[0]
    above, below = left.subplots(2, 1, height_ratios=[1, 1])
    _draw_thumbnail(above, measured, source, f"source, step {source:,}", ACCENT_COLOUR)
    _draw_histogram(below, measured, nearest, furthest)
    panels = right.subplots(2, columns, squeeze=False)
    for row, frames, word, colour in (
        (panels[0], nearest, "nearest", NEAR_COLOUR),
        (panels[1], furthest, "furthest", FAR_COLOUR),
    ):
        for place, axes in enumerate(row):
            if place >= len(frames):
                axes.remove()
                continue
            _draw_thumbnail(
                axes,
                measured,
                frames[place],
                _format_caption(measured, frames, place, word),
                colour,
            )
    figure.suptitle(title or episode.game, fontsize=11)
    return figure


def _format_caption(measured: EpisodeDistances, frames: list[int], index: int, word: str) -> str:
    """Format the step and the distance of a frame; the first of a row names the row."""
    step = f"step {frames[index]:,}"
    written = build_number_format(measured.distances)(float(measured.distances[frames[index]]))
    return f"{f'{word}: {step}' if not index else step}\ndistance {written}"


def _draw_thumbnail(
    axes: Axes, measured: EpisodeDistances, frame: int, text: str, colour: str
) -> None:
    axes.imshow(measured.episode.render(frame), interpolation="nearest")
    axes.set_title(text, fontsize=8.5)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=2.0)


def _draw_histogram(
    axes: Axes, measured: EpisodeDistances, nearest: list[int], furthest: list[int]
) -> None:
    axes.hist(measured.distances, bins=BINS, color=LINE_COLOUR)
    for frames, colour in ((nearest, NEAR_COLOUR), (furthest, FAR_COLOUR)):
        axes.plot(
            measured.distances[frames],
            np.full(len(frames), -0.035),
            "^",
            color=colour,
            ms=5,
            mec="none",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )
    axes.tick_params(axis="x", pad=8)
    axes.set_xlabel("distance to the source")
    axes.set_ylabel("frames")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
