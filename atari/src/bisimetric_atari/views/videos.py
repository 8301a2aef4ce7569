"""Videos of one episode: in the order of play, and in the order of distance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike

from bisimetric.errors import require_integer
from bisimetric.views._figure import LINE_COLOUR, Figure
from bisimetric.views.layout import build_number_format
from bisimetric_atari.views.canvas import (
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
from bisimetric_atari.views.episode_distances import MIN_GAP, EpisodeDistances, measure_episode
from bisimetric_atari.views.episode_figures import (
    DISTANCE_COLOUR,
    VALUE_COLOUR,
    build_curve_handles,
    build_event_handles,
    draw_curves,
    find_events,
)
from bisimetric_atari.views.mp4 import require_writable_mp4, write_mp4

if TYPE_CHECKING:
    from bisimetric_atari.games import Episode


PLOT_WIDTH = 640
"""In pixels."""

SORTED_PLOT_WIDTH = 352
BINS = 50

READING_LABELS = "score\ndistance\nclosest distance\nvalue difference"
EMPTY_GREY = 235
"""Of a panel without a frame yet."""


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
    """Write an episode as an MP4 with four panels, one video frame per step.

    Above are the current frame and the plot of all distances with a cursor; below are the source
    and the closest frame so distance. Needs no display; the file is replaced atomically.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        path: of the video, .mp4.
        source: the index of the source frame.
        values: (n,), V of the frames; those of the agent unless given.
        min_gap: frames within so many steps of the source are not counted as close to it.
        fps: steps measured per second; a game runs at 15.
        title: of the video; the name of the game unless given.

    Returns:
        The path.

    Raises:
        InputError: an argument is out of range, the arrays do not fit the episode, or ffmpeg is not
            installed.
        OSError: the video cannot be written.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=3)
    >>> with TemporaryDirectory() as folder:
    ...     write_video(episode, [0.0, 1.5, 2.5], Path(folder, "pong.mp4")).name
    'pong.mp4'
    """
    measured = measure_episode(episode, distances, source=source, values=values)
    require_integer("write_video", "min_gap", min_gap, 1)
    require_writable_mp4(path, fps)
    pictures = render_video_frames(measured, min_gap=min_gap, title=title or episode.game)
    return write_mp4(path, pictures, len(measured), fps=fps)


def render_video_frames(
    measured: EpisodeDistances, *, min_gap: int = MIN_GAP, title: str = ""
) -> Iterator[Picture]:
    """Render the pictures of the video, one per step; each is the same array, overwritten."""
    frame = enlarge(measured.episode.render(measured.source))
    frame_height, frame_width = frame.shape[:2]
    right = 2 * MARGIN + frame_width
    below = CAPTION_HEIGHT + frame_height + MARGIN
    # The encoder works on blocks of 16 pixels.
    size = (
        _round_up_to_block(right + PLOT_WIDTH + MARGIN),
        _round_up_to_block(below + CAPTION_HEIGHT + frame_height + MARGIN),
    )
    canvas = create_canvas(*size)
    plot = _render_plot(measured, CAPTION_HEIGHT + frame_height)
    paste(
        canvas,
        render_text(f"source: step {measured.source:,}", frame_width, CAPTION_HEIGHT),
        MARGIN,
        below,
    )
    paste(canvas, frame, MARGIN, below + CAPTION_HEIGHT)
    text_left, text_width = right + frame_width + MARGIN, PLOT_WIDTH - frame_width - MARGIN
    legend = _render_legend(measured, text_width)
    paste(canvas, legend, text_left, below + CAPTION_HEIGHT + frame_height - len(legend))
    paste(canvas, render_text(title, text_width, CAPTION_HEIGHT), text_left, below)
    paste(canvas, render_text(READING_LABELS, text_width, 120), text_left, below + CAPTION_HEIGHT)
    closest, score = measured.find_closest_so_far(min_gap), measured.compute_score()
    for step in range(len(measured)):
        near = int(closest[step])
        paste(canvas, render_text(f"step {step:,}", frame_width, CAPTION_HEIGHT), MARGIN, 0)
        paste(canvas, enlarge(measured.episode.render(step)), MARGIN, CAPTION_HEIGHT)
        paste(canvas, plot.draw_at(step), right, 0)
        if step == 0 or near != closest[step - 1]:
            paste(
                canvas,
                render_text(_format_closest(near), frame_width, CAPTION_HEIGHT),
                right,
                below,
            )
            closest_picture = (
                np.full_like(frame, EMPTY_GREY)
                if near < 0
                else enlarge(measured.episode.render(near))
            )
            paste(canvas, closest_picture, right, below + CAPTION_HEIGHT)
        numbers = render_text(_format_readings(measured, step, near, score[step]), 104, 120)
        paste(canvas, numbers, text_left + text_width - 104, below + CAPTION_HEIGHT)
        yield canvas


def _format_readings(
    measured: EpisodeDistances, step: int, closest_frame: int, score: float
) -> str:
    """Format the values beside READING_LABELS."""
    format_number = build_number_format(measured.distances)
    closest = format_number(float(measured.distances[closest_frame])) if closest_frame >= 0 else "-"
    distance = format_number(float(measured.distances[step]))
    return f"{score:,.0f}\n{distance}\n{closest}\n{measured.value_differences[step]:.2f}"


def _format_closest(closest_frame: int) -> str:
    return (
        f"closest so far: step {closest_frame:,}" if closest_frame >= 0 else "closest so far: none"
    )


def _render_plot(measured: EpisodeDistances, height: int) -> CursorPlot:
    figure = Figure(
        figsize=(PLOT_WIDTH / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, right, lower = draw_curves(figure, measured, find_events(measured.episode), size=10)
    curves = {
        VALUE_COLOUR: (right, measured.value_differences),
        DISTANCE_COLOUR: (upper, measured.distances),
    }
    return render_cursor_plot(figure, upper, lower, curves)


def _render_legend(measured: EpisodeDistances, width: int) -> Picture:
    handles = [
        *build_curve_handles(measured),
        *build_event_handles(find_events(measured.episode)),
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


def write_sorted_video(
    episode: Episode,
    distances: ArrayLike,
    path: str | os.PathLike[str],
    *,
    source: int = 0,
    fps: int = 10,
    title: str = "",
) -> Path:
    """Write the frames of an episode as an MP4, from the nearest to the source to the furthest.

    Beside the source and the frame are the sorted distances, with a cursor, and their histogram.
    Frames of equal distance stay in the order of play.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        path: of the video, .mp4.
        source: the index of the source frame.
        fps: frames measured per second; consecutive frames may look very different.
        title: of the video; the name of the game unless given.

    Returns:
        The path.

    Raises:
        InputError: an argument is out of range, the distances do not fit the episode, or ffmpeg is
            not installed.
        OSError: the video cannot be written.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=3)
    >>> with TemporaryDirectory() as folder:
    ...     write_sorted_video(episode, [0.0, 1.5, 2.5], Path(folder, "sorted.mp4")).name
    'sorted.mp4'
    """
    measured = measure_episode(episode, distances, source=source, values=np.zeros(len(episode)))
    require_writable_mp4(path, fps)
    pictures = render_sorted_frames(measured, title=title or episode.game)
    return write_mp4(path, pictures, len(measured), fps=fps)


def render_sorted_frames(measured: EpisodeDistances, *, title: str = "") -> Iterator[Picture]:
    """Render the pictures of the video, one per frame; each is the same array, overwritten."""
    frame = enlarge(measured.episode.render(measured.source))
    frame_height, frame_width = frame.shape[:2]
    middle, right = 2 * MARGIN + frame_width, 3 * MARGIN + 2 * frame_width
    canvas = create_canvas(
        right + SORTED_PLOT_WIDTH + MARGIN, 2 * CAPTION_HEIGHT + frame_height + 4
    )
    order = np.argsort(measured.distances, kind="stable")
    plot, format_number = (
        _render_sorted_plot(measured, order, frame_height),
        build_number_format(measured.distances),
    )
    paste(
        canvas,
        render_text(f"source: step {measured.source:,}", frame_width, CAPTION_HEIGHT),
        MARGIN,
        0,
    )
    paste(canvas, frame, MARGIN, CAPTION_HEIGHT)
    paste(canvas, render_text(title, SORTED_PLOT_WIDTH, CAPTION_HEIGHT), right, 0)
    for rank, step in enumerate(order.tolist()):
        paste(
            canvas, render_text(f"frame of step {step:,}", frame_width, CAPTION_HEIGHT), middle, 0
        )
        paste(canvas, enlarge(measured.episode.render(step)), middle, CAPTION_HEIGHT)
        paste(canvas, plot.draw_at(rank), right, CAPTION_HEIGHT)
        distance = format_number(float(measured.distances[step]))
        caption = f"distance {distance}, rank {rank + 1:,} of {len(measured):,}"
        paste(
            canvas,
            render_text(caption, frame_width + SORTED_PLOT_WIDTH, CAPTION_HEIGHT),
            middle,
            CAPTION_HEIGHT + frame_height,
        )
        yield canvas


def _render_sorted_plot(measured: EpisodeDistances, order: np.ndarray, height: int) -> CursorPlot:
    """Render the sorted distances above their histogram."""
    figure = Figure(
        figsize=(SORTED_PLOT_WIDTH / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, lower = figure.subplots(2, 1)
    ranked = measured.distances[order]
    upper.plot(np.arange(len(ranked)), ranked, color=DISTANCE_COLOUR, lw=1.4)
    upper.set(xlim=(-0.01 * len(ranked), 1.005 * len(ranked)), xlabel="rank", ylabel="distance")
    upper.set_ylim(bottom=0)
    upper.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    upper.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.hist(measured.distances, bins=BINS, color=LINE_COLOUR)
    lower.set(xlabel="distance", ylabel="frames")
    lower.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    return render_cursor_plot(figure, upper, upper, {DISTANCE_COLOUR: (upper, ranked)})
