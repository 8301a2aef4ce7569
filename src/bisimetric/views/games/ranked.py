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

from bisimetric.views.colours import LINE_COLOUR
from bisimetric.views.games.canvas import (
    CAPTION_HEIGHT,
    DOTS_PER_INCH,
    MARGIN,
    CursorPlot,
    Picture,
    create_canvas,
    enlarge,
    paste,
    render_cursor_plot,
    render_text,
)
from bisimetric.views.games.curve import DISTANCE_COLOUR
from bisimetric.views.games.films import require_writable_mp4, write_mp4
from bisimetric.views.games.measured import EpisodeDistances, measure_episode
from bisimetric.views.layout import build_number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode

SORTED_PLOT_WIDTH = 352
BINS = 50


def write_sorted_video(
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
    shown = measure_episode(episode, distances, source=source, values=np.zeros(len(episode)))
    require_writable_mp4(path, fps)
    pictures = render_sorted_frames(shown, title=title or episode.game)
    return write_mp4(path, pictures, len(shown), fps=fps)


def render_sorted_frames(
    episode_distances: EpisodeDistances, *, title: str = ""
) -> Iterator[Picture]:
    """The pictures of the video, one a frame; each is the same array, painted over."""
    frame = enlarge(episode_distances.episode.render(episode_distances.source))
    high, wide = frame.shape[:2]
    middle, right = 2 * MARGIN + wide, 3 * MARGIN + 2 * wide
    canvas = create_canvas(right + SORTED_PLOT_WIDTH + MARGIN, 2 * CAPTION_HEIGHT + high + 4)
    order = np.argsort(episode_distances.distances, kind="stable")
    plot, written = (
        _render_sorted_plot(episode_distances, order, high),
        build_number_format(episode_distances.distances),
    )
    paste(
        canvas,
        render_text(f"source: step {episode_distances.source:,}", wide, CAPTION_HEIGHT),
        MARGIN,
        0,
    )
    paste(canvas, frame, MARGIN, CAPTION_HEIGHT)
    paste(canvas, render_text(title, SORTED_PLOT_WIDTH, CAPTION_HEIGHT), right, 0)
    for rank, step in enumerate(order.tolist()):
        paste(canvas, render_text(f"frame of step {step:,}", wide, CAPTION_HEIGHT), middle, 0)
        paste(canvas, enlarge(episode_distances.episode.render(step)), middle, CAPTION_HEIGHT)
        paste(canvas, plot.draw_at(rank), right, CAPTION_HEIGHT)
        far = written(float(episode_distances.distances[step]))
        says = f"distance {far}, rank {rank + 1:,} of {len(episode_distances):,}"
        paste(
            canvas,
            render_text(says, wide + SORTED_PLOT_WIDTH, CAPTION_HEIGHT),
            middle,
            CAPTION_HEIGHT + high,
        )
        yield canvas


def _render_sorted_plot(
    episode_distances: EpisodeDistances, order: np.ndarray, height: int
) -> CursorPlot:
    """The distances in their order, above their histogram."""
    figure = Figure(
        figsize=(SORTED_PLOT_WIDTH / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, lower = figure.subplots(2, 1)
    ranked = episode_distances.distances[order]
    upper.plot(np.arange(len(ranked)), ranked, color=DISTANCE_COLOUR, lw=1.4)
    upper.set(xlim=(-0.01 * len(ranked), 1.005 * len(ranked)), xlabel="rank", ylabel="distance")
    upper.set_ylim(bottom=0)
    upper.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    upper.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.hist(episode_distances.distances, bins=BINS, color=LINE_COLOUR)
    lower.set(xlabel="distance", ylabel="frames")
    lower.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    return render_cursor_plot(figure, upper, upper, {DISTANCE_COLOUR: (upper, ranked)})
