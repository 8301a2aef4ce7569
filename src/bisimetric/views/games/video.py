"""An episode as a video: the source, the frame of the moment, the closest so far, and the plot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bisimetric.errors import whole
from bisimetric.views.games.canvas import (
    CAPTION,
    DOTS_PER_INCH,
    MARGIN,
    Picture,
    Plot,
    blank,
    drawn,
    enlarged,
    plotted,
    put,
    words,
)
from bisimetric.views.games.curve import DISTANCE, VALUES, curve_handles, draw
from bisimetric.views.games.films import check_film, write
from bisimetric.views.games.marks import legend_handles, marks
from bisimetric.views.games.measured import APART, Measured, measured
from bisimetric.views.layout import number_format

if TYPE_CHECKING:
    from bisimetric.games import Episode

PLOT = 640
"""Pixels of the plot, across."""

READINGS = "score\ndistance\nclosest distance\ndifference of values"
NOTHING = 235
"""The grey of a panel that has nothing to show yet."""


def video(
    episode: Episode,
    distances: ArrayLike,
    path: str | os.PathLike[str],
    *,
    source: int = 0,
    values: ArrayLike | None = None,
    apart: int = APART,
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
    shown = measured(episode, distances, source=source, values=values)
    whole("video", "apart", apart, 1)
    check_film(path, fps)
    pictures = panels(shown, apart=apart, title=title or episode.game)
    return write(path, pictures, len(shown), fps=fps)


def panels(shown: Measured, *, apart: int = APART, title: str = "") -> Iterator[Picture]:
    """The pictures of the video, one a step; each is the same array, painted over."""
    frame = enlarged(shown.episode.rgb(shown.source))
    high, wide = frame.shape[:2]
    right = 2 * MARGIN + wide
    below = CAPTION + high + MARGIN
    # Blocks of 16 pixels are what the encoder works on.
    size = (_blocks(right + PLOT + MARGIN), _blocks(below + CAPTION + high + MARGIN))
    canvas = blank(*size)
    plot = _plot(shown, CAPTION + high)
    put(canvas, words(f"source: step {shown.source:,}", wide, CAPTION), MARGIN, below)
    put(canvas, frame, MARGIN, below + CAPTION)
    aside, room = right + wide + MARGIN, PLOT - wide - MARGIN
    legend = _legend(shown, room)
    put(canvas, legend, aside, below + CAPTION + high - len(legend))
    put(canvas, words(title, room, CAPTION), aside, below)
    put(canvas, words(READINGS, room, 120), aside, below + CAPTION)
    closest, score = shown.closest_so_far(apart), shown.score()
    for step in range(len(shown)):
        near = int(closest[step])
        put(canvas, words(f"step {step:,}", wide, CAPTION), MARGIN, 0)
        put(canvas, enlarged(shown.episode.rgb(step)), MARGIN, CAPTION)
        put(canvas, plot.at(step), right, 0)
        if step == 0 or near != closest[step - 1]:
            put(canvas, words(_closest(near), wide, CAPTION), right, below)
            found = np.full_like(frame, NOTHING) if near < 0 else enlarged(shown.episode.rgb(near))
            put(canvas, found, right, below + CAPTION)
        numbers = words(_numbers(shown, step, near, score[step]), 104, 120)
        put(canvas, numbers, aside + room - 104, below + CAPTION)
        yield canvas


def _numbers(shown: Measured, step: int, near: int, score: float) -> str:
    """What stands beside the READINGS."""
    written = number_format(shown.distances)
    closest = written(float(shown.distances[near])) if near >= 0 else "-"
    distance = written(float(shown.distances[step]))
    return f"{score:,.0f}\n{distance}\n{closest}\n{shown.differences[step]:.2f}"


def _closest(near: int) -> str:
    return f"closest so far: step {near:,}" if near >= 0 else "closest so far: none yet"


def _plot(shown: Measured, height: int) -> Plot:
    figure = Figure(
        figsize=(PLOT / DOTS_PER_INCH, height / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    upper, right, lower = draw(figure, shown, marks(shown.episode), size=10)
    curves = {VALUES: (right, shown.differences), DISTANCE: (upper, shown.distances)}
    return plotted(figure, upper, lower, curves)


def _legend(shown: Measured, width: int) -> Picture:
    handles = [*curve_handles(shown), *legend_handles(marks(shown.episode))]
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
    return drawn(figure)


def _blocks(pixels: int) -> int:
    return -(-pixels // 16) * 16
