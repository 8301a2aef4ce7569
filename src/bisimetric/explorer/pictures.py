"""Screens as PNG files inside of a page, written with nothing but zlib."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR, INDEXED = 0, 2, 3
"""The colour types of the PNG standard (ISO/IEC 15948) that are written here."""


def encode_png(screen: NDArray[np.uint8], palette: NDArray[np.uint8] | None = None) -> bytes:
    """A screen (h, w) in greys or in the colours of a palette (k, 3), or (h, w, 3) in red, green
    and blue, as a PNG file.

    >>> png(np.zeros((2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width = screen.shape[:2]
    kind = COLOUR if screen.ndim == 3 else GREY if palette is None else INDEXED
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    # Every row starts with the number of its filter, 0 for none.
    rows = np.zeros((height, 1 + screen[0].size), np.uint8)
    rows[:, 1:] = screen.reshape(height, -1)
    colours = b"" if palette is None else _chunk(b"PLTE", palette.tobytes())
    return b"".join(
        (
            SIGNATURE,
            _chunk(b"IHDR", header),
            colours,
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def encode_data_url(file: bytes) -> str:
    """A PNG file as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
