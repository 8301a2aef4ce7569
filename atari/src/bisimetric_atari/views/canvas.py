"""Pictures as arrays: enlarged frames, text, and plots rendered once for a moving cursor."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from bisimetric.views._figure import ACCENT_COLOUR

Picture = NDArray[np.uint8]

FRAME_SCALE = 2
"""Video pixels per screen pixel in each direction."""

MARGIN = 16
CAPTION_HEIGHT = 28
"""Pixels above a panel, for its text."""

DOTS_PER_INCH = 100
DOT_RADIUS = 5
"""In pixels, with its white rim."""

TEXT_COLOUR = "0.1"
FADED_OPACITY = 0.35
"""Of the plot beyond the cursor."""


def create_canvas(width: int, height: int) -> Picture:
    """Create a white picture (height, width, 3)."""
    return np.full((height, width, 3), 255, np.uint8)


def enlarge(frame: Picture, scale: int = FRAME_SCALE) -> Picture:
    """Repeat every pixel `scale` times in both directions.

    >>> enlarge(np.zeros((210, 160, 3), np.uint8)).shape
    (420, 320, 3)
    """
    return frame.repeat(scale, axis=0).repeat(scale, axis=1)


def paste(picture: Picture, part: Picture, left: int, top: int) -> None:
    """Copy a part into a picture, its corner at (left, top)."""
    picture[top : top + part.shape[0], left : left + part.shape[1]] = part


@functools.lru_cache(maxsize=64)
def render_text(
    text: str, width: int, height: int, *, size: int = 15, colour: str = TEXT_COLOUR
) -> Picture:
    """Render lines of text in black on white, (height, width, 3); what does not fit is cut off."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).multiline_text(
        (0, 7), text, font=_load_font(size), fill=_to_rgb(colour), spacing=6
    )
    written = np.array(image)
    written.flags.writeable = False
    return written


@functools.cache
def _build_disc(size: int) -> NDArray[np.bool_]:
    """Return a mask of the disc in a square of side 2 `size`."""
    across = np.arange(2 * size) - size + 0.5
    return np.asarray(np.hypot(across[:, None], across) <= size)


@functools.cache
def _load_font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(findfont(FontProperties(family="DejaVu Sans")), size)


def _to_rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (round(255 * part) for part in to_rgb(colour))
    return red, green, blue


def render_figure(figure: Figure) -> Picture:
    """Render a figure as a picture."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


@dataclasses.dataclass(frozen=True, eq=False)
class CursorPlot:
    """A plot that is rendered once, for a cursor that moves over it.

    Attributes:
        picture: the plot.
        faded: the plot to the right of the cursor.
        columns: (n,), the pixel column of each of n steps.
        top: the upper end of the cursor.
        bottom: the lower end of the cursor.
        dots: by colour, the pixel rows (n,) of a curve at each step.
    """

    picture: Picture
    faded: Picture
    columns: NDArray[np.int64]
    top: int
    bottom: int
    dots: dict[str, NDArray[np.int64]]

    def draw_at(self, step: int) -> Picture:
        """Return the plot with its cursor at a step, faded beyond it."""
        column = int(self.columns[step])
        shown = self.picture.copy()
        across, ahead = slice(self.top, self.bottom), slice(column, int(self.columns[-1]) + 1)
        shown[across, ahead] = self.faded[across, ahead]
        shown[across, column - 1 : column + 1] = _to_rgb(ACCENT_COLOUR)
        for colour, rows in self.dots.items():
            row = max(int(rows[step]), DOT_RADIUS)
            for size, paint in ((DOT_RADIUS, (255, 255, 255)), (DOT_RADIUS - 1, _to_rgb(colour))):
                disc = _build_disc(size)
                part = shown[row - size : row + size, column - size : column + size]
                # At the edge of the picture the disc is cut off.
                part[disc[: part.shape[0], : part.shape[1]]] = paint
        return shown


def render_cursor_plot(
    figure: Figure,
    upper: Axes,
    lower: Axes,
    curves: dict[str, tuple[Axes, NDArray[np.float64]]],
) -> CursorPlot:
    """Render a figure for a cursor from the top of `upper` to the bottom of `lower`.

    The axes share their steps; `curves` (n,), by colour, get dots at the cursor.
    """
    picture = render_figure(figure)
    height = len(picture)
    count = max(len(numbers) for _, numbers in curves.values())
    across = upper.transData.transform(np.column_stack([np.arange(count), np.zeros(count)]))[:, 0]
    dots = {
        colour: height
        - panel.transData.transform(np.column_stack([np.zeros(count), numbers]))[:, 1].round()
        for colour, (panel, numbers) in curves.items()
    }
    pale = (255 - FADED_OPACITY * (255.0 - picture)).round().astype(np.uint8)
    return CursorPlot(
        picture,
        pale,
        across.round().astype(np.int64),
        height - round(upper.get_window_extent().y1),
        height - round(lower.get_window_extent().y0),
        {colour: rows.astype(np.int64) for colour, rows in dots.items()},
    )
