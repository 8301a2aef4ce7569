"""The frames of an episode in the order of their distance, as a video."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.views.colours import BARS
from bisimetric.views.games.canvas import (
    CAPTION,
    DOTS_PER_INCH,
    MARGIN,
    Picture,
    Plot,
    blank,
    enlarged,
    plotted,
    put,
    words,
)
from bisimetric.views.games.curve import DISTANCE
from bisimetric.views.games.films import check_film, write
from bisimetric.views.games.measured import Measured, measured
from bisimetric.views.layout import number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode

PLOT = 352
BINS = 50


def ranked_video(
    episode: Episode,
    distances: ArrayLike,
    path: str | os.PathLike[str],
    *,
    source: int = 0,
    fps: int = 10,
    title: str = "",
) -> Path:
    """Writes the frames of an episode as an mp4, from the nearest to the source to the furthest.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        path: of the video, .mp4.
        source: which frame that is.
        fps: frames shown a second; neighbours in distance may differ in all else.
        title: of the video; the game unless given.

    Beside the source and the frame stand the distances in their order, with a cursor, and their
    histogram. Frames of the same distance follow each other as they were played.
    """
    shown = measured(episode, distances, source=source, values=np.zeros(len(episode)))
    check_film(path, fps)
    pictures = panels(shown, title=title or episode.game)
    return write(path, pictures, len(shown), fps=fps)


def panels(shown: Measured, *, title: str = "") -> Iterator[Picture]:
    """The pictures of the video, one a frame; each is the same array, painted over."""
    frame = enlarged(shown.episode.rgb(shown.source))
    high, wide = frame.shape[:2]
    middle, right = 2 * MARGIN + wide, 3 * MARGIN + 2 * wide
    canvas = blank(right + PLOT + MARGIN, 2 * CAPTION + high + 4)
    order = np.argsort(shown.distances, kind="stable")
    plot, written = _plot(shown, order, high), number_format(shown.distances)
    put(canvas, words(f"source: step {shown.source:,}", wide, CAPTION), MARGIN, 0)
    put(canvas, frame, MARGIN, CAPTION)
    put(canvas, words(title, PLOT, CAPTION), right, 0)
    for rank, step in enumerate(order.tolist()):
        put(canvas, words(f"frame of step {step:,}", wide, CAPTION), middle, 0)
        put(canvas, enlarged(shown.episode.rgb(step)), middle, CAPTION)
        put(canvas, plot.at(rank), right, CAPTION)
        far = written(float(shown.distances[step]))
        says = f"distance {far}, rank {rank + 1:,} of {len(shown):,}"
        put(canvas, words(says, wide + PLOT, CAPTION), middle, CAPTION + high)
        yield canvas


def _plot(shown: Measured, order: np.ndarray, height: int) -> Plot:
    """The distances in their order, above their histogram."""
    figure = Figure(
        figsize=(PLOT / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, lower = figure.subplots(2, 1)
    ranked = shown.distances[order]
    upper.plot(np.arange(len(ranked)), ranked, color=DISTANCE, lw=1.4)
    upper.set(xlim=(-0.01 * len(ranked), 1.005 * len(ranked)), xlabel="rank", ylabel="distance")
    upper.set_ylim(bottom=0)
    upper.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    upper.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.hist(shown.distances, bins=BINS, color=BARS)
    lower.set(xlabel="distance", ylabel="frames")
    lower.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    return plotted(figure, upper, upper, {DISTANCE: (upper, ranked)})
