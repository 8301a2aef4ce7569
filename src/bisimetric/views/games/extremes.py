"""How the distances of an episode are spread, with the frames at both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.errors import require_integer
from bisimetric.views.colours import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.games.measured import MIN_GAP, EpisodeDistances, measure_episode
from bisimetric.views.layout import build_number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode

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
    """The source frame, the histogram of distances to it, and the nearest and furthest frames.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: which frame that is.
        count: of the nearest frames, and of the furthest.
        apart: the least number of steps between two frames of a row, and from the source to the
            nearest: neighbours in time are nearly the same frame. No screen is shown twice in a
            row either: games without chance repeat themselves.
        title: of the figure; the game unless given.

    Triangles under the histogram stand where the frames do.

    >>> from bisimetric.games import play
    >>> from bisimetric.games.idle import Idle
    >>> played = play("Pong", Idle("Pong"), most=3)
    >>> figure = extremes(played, [0.0, 1.5, 2.5], count=1, apart=1)
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['source, step 0', 'nearest: step 1\\ndistance 1.500', 'furthest: step 2\\ndistance 2.500']
    """
    require_integer("extremes", "count", num_frames, 1)
    shown = measure_episode(episode, distances, source=source, values=np.zeros(len(episode)))
    nearest, furthest = shown.find_extremes(
        num_frames, require_integer("extremes", "apart", min_gap, 1)
    )
    columns = max(len(nearest), len(furthest))
    figure = Figure(figsize=(4.6 + 1.5 * columns, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[4.4, 1.5 * columns])[0]
    above, below = left.subplots(2, 1, height_ratios=[1, 1])
    _draw_thumbnail(above, shown, source, f"source, step {source:,}", ACCENT_COLOUR)
    _draw_histogram(below, shown, nearest, furthest)
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
                axes, shown, frames[place], _format_caption(shown, frames, place, word), colour
            )
    figure.suptitle(title or episode.game, fontsize=11)
    return figure


def _format_caption(
    episode_distances: EpisodeDistances, frames: list[int], index: int, word: str
) -> str:
    """Which frame it is, and how far; the first says which end it is of."""
    step = f"step {frames[index]:,}"
    written = build_number_format(episode_distances.distances)(
        float(episode_distances.distances[frames[index]])
    )
    return f"{f'{word}: {step}' if not index else step}\ndistance {written}"


def _draw_thumbnail(
    axes: Axes, episode_distances: EpisodeDistances, frame: int, text: str, colour: str
) -> None:
    axes.imshow(episode_distances.episode.render(frame), interpolation="nearest")
    axes.set_title(text, fontsize=8.5)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=2.0)


def _draw_histogram(
    axes: Axes, episode_distances: EpisodeDistances, nearest: list[int], furthest: list[int]
) -> None:
    axes.hist(episode_distances.distances, bins=BINS, color=LINE_COLOUR)
    for frames, colour in ((nearest, NEAR_COLOUR), (furthest, FAR_COLOUR)):
        axes.plot(
            episode_distances.distances[frames],
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
