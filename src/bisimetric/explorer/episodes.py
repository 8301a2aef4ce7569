"""The page of an episode: distances of its frames from one of them, and the nearest frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric import __version__
from bisimetric.errors import InputError
from bisimetric.explorer.bundle import (
    assemble_page,
    encode_array,
    encode_data_url,
    encode_distances,
    encode_png,
)
from bisimetric.uses.certificates import validate_distance_matrix

CALLER = "explorer.render_episode"
MAX_FRAMES = 600
MAX_BYTES = 12_000_000
"""Of all frames of a page; larger screens are subsampled."""


def render_episode(
    frames: ArrayLike,
    distances: Any,
    *,
    times: ArrayLike | None = None,
    palette: ArrayLike | None = None,
    values: ArrayLike | None = None,
    events: Mapping[int, str] | None = None,
    source: int | None = None,
    total_frames: int | None = None,
    title: str = "An episode",
    distance_name: str = "distance",
) -> str:
    """Render the page of an episode: a curve of distances from a frame that can be dragged.

    Args:
        frames: (n, h, w) uint8, grey levels or indices into the palette; or (n, h, w, 3) colours.
        distances: (n, n), of every frame to every other one. A page holds 600 frames; longer
            episodes are subsampled at equal steps.
        times: (n,), increasing, the steps of the frames; default: 0, 1, ...
        palette: (k, 3) uint8, the colours of indexed frames.
        values: (n,), the agent's value of each frame.
        events: by time, a short text, such as "point" or "life lost".
        source: the time of the initial source frame; default: the first one.
        total_frames: of the episode, if these are only some of them.
        title: of the page.
        distance_name: what to call the distance.

    Returns:
        The HTML.

    Raises:
        InputError: an array has a wrong type or shape, or the source is outside of the episode.

    >>> still = np.zeros((2, 4, 4), np.uint8)
    >>> render_episode(still, [[0, 1], [1, 0]]).startswith("<!doctype html>")
    True
    """
    screens, matrix, steps = _validate_frames(frames, distances, times)
    colours = None if palette is None else _validate_palette(palette, screens)
    V = None if values is None else _validate_values("values", values, len(screens))
    start = steps[0] if source is None else source
    if not steps[0] <= start <= steps[-1]:
        raise InputError(
            f"{CALLER}: source is frame {source} and the frames are {steps[0]} to {steps[-1]}; "
            "name one of them."
        )
    shown = np.unique(np.linspace(0, len(screens) - 1, MAX_FRAMES).round().astype(np.int64))
    notes = []
    total = max(len(screens), total_frames or 0)
    if len(shown) < total:
        notes.append(f"The page shows {len(shown)} of {total:,} frames, at equal steps.")
    pictures, stride = _encode_screens(screens[shown], colours)
    if stride > 1:
        notes.append(f"One row and column in {stride} of the screens is shown.")
    data = {
        "title": title,
        "distanceName": distance_name,
        "generator": f"bisimetric {__version__}",
        "notes": notes,
        "frames": pictures,
        "times": steps[shown].tolist(),
        "shape": list(screens.shape[1:3]),
        "values": encode_distances(matrix[np.ix_(shown, shown)]),
        "V": None if V is None else encode_array(V[shown], "float64"),
        "source": int(np.abs(steps[shown] - start).argmin()),
        "events": [{"time": int(time), "text": str(text)} for time, text in (events or {}).items()],
    }
    return assemble_page(f"{title} · bisimetric", "episode", data)


def _validate_frames(
    frames: ArrayLike, distances: Any, times: ArrayLike | None
) -> tuple[NDArray[np.uint8], NDArray[np.floating], NDArray[np.int64]]:
    screens = np.asarray(frames)
    fits = screens.ndim == 3 or (screens.ndim == 4 and screens.shape[3] == 3)
    if screens.dtype != np.uint8 or not fits or 0 in screens.shape:
        raise InputError(
            f"{CALLER}: the frames are {screens.dtype} of shape {screens.shape} and must be uint8, "
            "(n, h, w) or (n, h, w, 3)."
        )
    matrix = validate_distance_matrix(CALLER, distances)
    if len(matrix) != len(screens):
        raise InputError(
            f"{CALLER}: there are {len(screens):,} frames and the matrix has {len(matrix):,} "
            "rows; give the distances of all frames."
        )
    steps = np.arange(len(screens)) if times is None else np.asarray(times)
    if (
        steps.shape != (len(screens),)
        or steps.dtype.kind not in "iu"
        or (np.diff(steps) <= 0).any()
    ):
        raise InputError(
            f"{CALLER}: times must be {len(screens):,} increasing integers, one per frame."
        )
    return screens, matrix, steps.astype(np.int64)


def _validate_palette(palette: ArrayLike, screens: NDArray[np.uint8]) -> NDArray[np.uint8]:
    colours = np.asarray(palette)
    enough = colours.ndim == 2 and colours.shape[1] == 3 and len(colours) <= 256
    if colours.dtype != np.uint8 or not enough or screens.ndim != 3:
        raise InputError(
            f"{CALLER}: the palette is {colours.dtype} of shape {colours.shape} for frames of "
            f"shape {screens.shape}; it must be uint8, (at most 256, 3), and the frames (n, h, w)."
        )
    if screens.max() >= len(colours):
        raise InputError(
            f"{CALLER}: a frame has colour {screens.max()} and the palette has {len(colours)}; "
            "give all colours."
        )
    return colours


def _validate_values(name: str, values: ArrayLike, num_frames: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.shape != (num_frames,) or not np.isfinite(array).all():
        raise InputError(f"{CALLER}: {name} must be {num_frames:,} finite numbers, one per frame.")
    return array


def _encode_screens(
    screens: NDArray[np.uint8], palette: NDArray[np.uint8] | None
) -> tuple[list[str], int]:
    """Return the screens as data URLs, and the factor by which they were subsampled to fit."""
    stride = 1
    while True:
        files = [encode_png(screen[::stride, ::stride], palette) for screen in screens]
        if sum(map(len, files)) * 4 / 3 <= MAX_BYTES or stride >= min(screens.shape[1:3]):
            return [encode_data_url(file) for file in files], stride
        stride += 1
