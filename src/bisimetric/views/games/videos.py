"""An episode as a video: the source, the frame of the moment, the closest so far, and the plot.

The frames of an episode in the order of their distance, as a video.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.errors import require_integer
from bisimetric.views._figure import LINE_COLOUR
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
    render_figure,
    render_text,
)
from bisimetric.views.games.episode_distances import MIN_GAP, EpisodeDistances, measure_episode
from bisimetric.views.games.episode_figures import (
    DISTANCE_COLOUR,
    VALUE_COLOUR,
    build_curve_handles,
    build_event_handles,
    draw_curves,
    find_events,
)
from bisimetric.views.games.mp4 import require_writable_mp4, write_mp4
from bisimetric.views.layout import build_number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode


PLOT_WIDTH = 640
"""Pixels of the plot, across."""

READING_LABELS = "score\ndistance\nclosest distance\ndifference of values"
EMPTY_GREY = 235
"""The grey of a panel that has nothing to show yet."""


def write_video(
    episode: Episode,
    distances: ArrayLike,
    path: str | os.PathLike[str],
    *,
    source: int = 0,
    values: ArrayLike | None = None,
    min_gap: int = MIN_GAP,
    fps: int = 30,
    title: str = "",
) -> Path:
    """Writes an episode as an mp4 of four panels, one frame a step.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        path: of the video, .mp4.
        source: which frame that is.
        values: (n,), how good the frames are; as the agent found them unless given.
        apart: frames within so many steps of the source do not count as close to it.
        fps: steps shown a second; a game runs at 15.
        title: of the video; the game unless given.

    Above the frame of the moment, and the plot of all distances with a cursor at it; below the
    source, and the closest frame so far. Needs no display, and leaves nothing half-written.
    """
    shown = measure_episode(episode, distances, source=source, values=values)
    require_integer("video", "apart", min_gap, 1)
    require_writable_mp4(path, fps)
    pictures = render_video_frames(shown, min_gap=min_gap, title=title or episode.game)
    return write_mp4(path, pictures, len(shown), fps=fps)


def render_video_frames(
    episode_distances: EpisodeDistances, *, min_gap: int = MIN_GAP, title: str = ""
) -> Iterator[Picture]:
    """The pictures of the video, one a step; each is the same array, painted over."""
    frame = enlarge(episode_distances.episode.render(episode_distances.source))
    high, wide = frame.shape[:2]
    right = 2 * MARGIN + wide
    below = CAPTION_HEIGHT + high + MARGIN
    # Blocks of 16 pixels are what the encoder works on.
    size = (
        _round_up_to_block(right + PLOT_WIDTH + MARGIN),
        _round_up_to_block(below + CAPTION_HEIGHT + high + MARGIN),
    )
    canvas = create_canvas(*size)
    plot = _render_plot(episode_distances, CAPTION_HEIGHT + high)
    paste(
        canvas,
        render_text(f"source: step {episode_distances.source:,}", wide, CAPTION_HEIGHT),
        MARGIN,
        below,
    )
    paste(canvas, frame, MARGIN, below + CAPTION_HEIGHT)
    aside, room = right + wide + MARGIN, PLOT_WIDTH - wide - MARGIN
    legend = _render_legend(episode_distances, room)
    paste(canvas, legend, aside, below + CAPTION_HEIGHT + high - len(legend))
    paste(canvas, render_text(title, room, CAPTION_HEIGHT), aside, below)
    paste(canvas, render_text(READING_LABELS, room, 120), aside, below + CAPTION_HEIGHT)
    closest, score = (
        episode_distances.find_closest_so_far(min_gap),
        episode_distances.compute_score(),
    )
    for step in range(len(episode_distances)):
        near = int(closest[step])
        paste(canvas, render_text(f"step {step:,}", wide, CAPTION_HEIGHT), MARGIN, 0)
        paste(canvas, enlarge(episode_distances.episode.render(step)), MARGIN, CAPTION_HEIGHT)
        paste(canvas, plot.draw_at(step), right, 0)
        if step == 0 or near != closest[step - 1]:
            paste(canvas, render_text(_format_closest(near), wide, CAPTION_HEIGHT), right, below)
            found = (
                np.full_like(frame, EMPTY_GREY)
                if near < 0
                else enlarge(episode_distances.episode.render(near))
            )
            paste(canvas, found, right, below + CAPTION_HEIGHT)
        numbers = render_text(
            _format_readings(episode_distances, step, near, score[step]), 104, 120
        )
        paste(canvas, numbers, aside + room - 104, below + CAPTION_HEIGHT)
        yield canvas


def _format_readings(
    episode_distances: EpisodeDistances, step: int, closest_frame: int, score: float
) -> str:
    """What stands beside the READINGS."""
    written = build_number_format(episode_distances.distances)
    closest = (
        written(float(episode_distances.distances[closest_frame])) if closest_frame >= 0 else "-"
    )
    distance = written(float(episode_distances.distances[step]))
    return f"{score:,.0f}\n{distance}\n{closest}\n{episode_distances.value_differences[step]:.2f}"


def _format_closest(closest_frame: int) -> str:
    return (
        f"closest so far: step {closest_frame:,}"
        if closest_frame >= 0
        else "closest so far: none yet"
    )


def _render_plot(episode_distances: EpisodeDistances, height: int) -> CursorPlot:
    figure = Figure(
        figsize=(PLOT_WIDTH / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, right, lower = draw_curves(
        figure, episode_distances, find_events(episode_distances.episode), size=10
    )
    curves = {
        VALUE_COLOUR: (right, episode_distances.value_differences),
        DISTANCE_COLOUR: (upper, episode_distances.distances),
    }
    return render_cursor_plot(figure, upper, lower, curves)


def _render_legend(episode_distances: EpisodeDistances, width: int) -> Picture:
    handles = [
        *build_curve_handles(episode_distances),
        *build_event_handles(find_events(episode_distances.episode)),
    ]
    height = 24 * len(handles) + 8
    figure = Figure(figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 0),
        borderaxespad=0,
        borderpad=0,
        frameon=False,
        fontsize=11,
        handlelength=2.0,
    )
    return render_figure(figure)


def _round_up_to_block(pixels: int) -> int:
    return -(-pixels // 16) * 16


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
