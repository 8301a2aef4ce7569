"""The page of an episode: how far its frames are from one of them, and which are nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric import __version__
from bisimetric.errors import InputError
from bisimetric.explorer.bundle import assemble_page
from bisimetric.explorer.encoding import encode_array, encode_data_url, encode_distances, encode_png
from bisimetric.uses.certificates import validate_distance_matrix

CALLER = "explorer.episode"
MAX_FRAMES = 600
MAX_BYTES = 12_000_000
"""Of all frames of a page; screens that take more are shown with every other row and column."""
SCRIPTS = ("numbers.js", "elements.js", "tips.js", "theme.js", "curves.js", "episode.js")


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
    """The page of an episode, as HTML: a curve of distances from a frame that can be dragged.

    Args:
        frames: (n, h, w) uint8, greys or places in the palette; or (n, h, w, 3) colours.
        distances: (n, n), of every frame to every other one. A page holds 600 frames: of more,
            some at equal steps.
        times: (n,), rising, when the frames were; default: 0, 1, ...
        palette: (k, 3) uint8, the colours of indexed frames.
        values: (n,), what the agent believes that a frame is worth.
        marks: by time, a word for what happened then, such as "point" or "life lost".
        source: the time of the frame to look from at first; default: the first one.
        of: how many frames the episode has, where these are some of them.
        title, words: of the page, and what to call the distance.

    >>> still = np.zeros((2, 4, 4), np.uint8)
    >>> episode(still, [[0, 1], [1, 0]]).startswith("<!doctype html>")
    True
    """
    screens, table, when = _validate_frames(frames, distances, times)
    colours = None if palette is None else _validate_palette(palette, screens)
    worth = None if values is None else _validate_values("values", values, len(screens))
    start = when[0] if source is None else source
    if not when[0] <= start <= when[-1]:
        raise InputError(
            f"{CALLER}: source is frame {source} and the frames are {when[0]} to {when[-1]}; name "
            "one of them."
        )
    kept = np.unique(np.linspace(0, len(screens) - 1, MAX_FRAMES).round().astype(np.int64))
    notes = []
    total = max(len(screens), total_frames or 0)
    if len(kept) < total:
        notes.append(f"The page shows {len(kept)} of {total:,} frames, at equal steps.")
    pictures, thinned = _encode_screens(screens[kept], colours)
    if thinned > 1:
        notes.append(f"Of the screens, one row and column in {thinned} is shown.")
    data = {
        "title": title,
        "words": distance_name,
        "made": f"bisimetric {__version__}",
        "notes": notes,
        "frames": pictures,
        "times": when[kept].tolist(),
        "shape": list(screens.shape[1:3]),
        "values": encode_distances(table[np.ix_(kept, kept)]),
        "V": None if worth is None else encode_array(worth[kept], "float64"),
        "source": int(np.abs(when[kept] - start).argmin()),
        "marks": [{"at": int(at), "words": str(said)} for at, said in (events or {}).items()],
    }
    return assemble_page(f"{title} · bisimetric", SCRIPTS, data)


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
    table = validate_distance_matrix(CALLER, distances)
    if len(table) != len(screens):
        raise InputError(
            f"{CALLER}: there are {len(screens):,} frames and the table is of {len(table):,}; give "
            "the distances of all frames."
        )
    when = np.arange(len(screens)) if times is None else np.asarray(times)
    if when.shape != (len(screens),) or when.dtype.kind not in "iu" or (np.diff(when) <= 0).any():
        raise InputError(
            f"{CALLER}: times must be {len(screens):,} rising whole numbers, one a frame."
        )
    return screens, table, when.astype(np.int64)


def _validate_palette(palette: ArrayLike, screens: NDArray[np.uint8]) -> NDArray[np.uint8]:
    colours = np.asarray(palette)
    enough = colours.ndim == 2 and colours.shape[1] == 3 and len(colours) <= 256
    if colours.dtype != np.uint8 or not enough or screens.ndim != 3:
        raise InputError(
            f"{CALLER}: the palette is {colours.dtype} of shape {colours.shape} for frames of shape "
            f"{screens.shape}; it must be uint8, (at most 256, 3), and the frames (n, h, w)."
        )
    if screens.max() >= len(colours):
        raise InputError(
            f"{CALLER}: a frame has colour {screens.max()} and the palette has {len(colours)}; give "
            "all colours."
        )
    return colours


def _validate_values(name: str, values: ArrayLike, num_frames: int) -> NDArray[np.float64]:
    found = np.asarray(values, np.float64)
    if found.shape != (num_frames,) or not np.isfinite(found).all():
        raise InputError(f"{CALLER}: {name} must be {num_frames:,} finite numbers, one a frame.")
    return found


def _encode_screens(
    screens: NDArray[np.uint8], palette: NDArray[np.uint8] | None
) -> tuple[list[str], int]:
    """The screens as addresses, and how much they were thinned to fit."""
    thinned = 1
    while True:
        files = [encode_png(screen[::thinned, ::thinned], palette) for screen in screens]
        if sum(map(len, files)) * 4 / 3 <= MAX_BYTES or thinned >= min(screens.shape[1:3]):
            return [encode_data_url(file) for file in files], thinned
        thinned += 1
