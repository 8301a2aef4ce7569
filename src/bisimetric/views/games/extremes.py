"""How the distances of an episode are spread, with the frames at both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.errors import whole
from bisimetric.views.colours import BARS, SOURCE
from bisimetric.views.games.measured import APART, Measured, measured
from bisimetric.views.layout import number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode

BINS = 50
NEAR = "#009e73"
FAR = "#d55e00"


def extremes(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    count: int = 4,
    apart: int = APART,
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
    whole("extremes", "count", count, 1)
    shown = measured(episode, distances, source=source, values=np.zeros(len(episode)))
    nearest, furthest = shown.ends(count, whole("extremes", "apart", apart, 1))
    columns = max(len(nearest), len(furthest))
    figure = Figure(figsize=(4.6 + 1.5 * columns, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[4.4, 1.5 * columns])[0]
    above, below = left.subplots(2, 1, height_ratios=[1, 1])
    _thumbnail(above, shown, source, f"source, step {source:,}", SOURCE)
    _histogram(below, shown, nearest, furthest)
    panels = right.subplots(2, columns, squeeze=False)
    for row, frames, word, colour in (
        (panels[0], nearest, "nearest", NEAR),
        (panels[1], furthest, "furthest", FAR),
    ):
        for place, axes in enumerate(row):
            if place >= len(frames):
                axes.remove()
                continue
            _thumbnail(axes, shown, frames[place], _caption(shown, frames, place, word), colour)
    figure.suptitle(title or episode.game, fontsize=11)
    return figure


def _caption(shown: Measured, frames: list[int], place: int, word: str) -> str:
    """Which frame it is, and how far; the first says which end it is of."""
    step = f"step {frames[place]:,}"
    written = number_format(shown.distances)(float(shown.distances[frames[place]]))
    return f"{f'{word}: {step}' if not place else step}\ndistance {written}"


def _thumbnail(axes: Axes, shown: Measured, frame: int, words: str, colour: str) -> None:
    axes.imshow(shown.episode.rgb(frame), interpolation="nearest")
    axes.set_title(words, fontsize=8.5)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=2.0)


def _histogram(axes: Axes, shown: Measured, nearest: list[int], furthest: list[int]) -> None:
    axes.hist(shown.distances, bins=BINS, color=BARS)
    for frames, colour in ((nearest, NEAR), (furthest, FAR)):
        axes.plot(
            shown.distances[frames],
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
