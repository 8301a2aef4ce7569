"""Numbers as a page carries them: base64, and of a symmetric table one half.

Screens as PNG files inside of a page, written with nothing but zlib.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTISATION_STEPS = 2**24 - 1
"""How many steps there are from 0 to the largest number of a table of 24 bits."""
MAX_EXACT_BYTES = 4_000_000
"""Bytes of base64 up to which a table keeps all of its digits."""


def encode_array(array: NDArray[Any], dtype: str) -> str:
    """An array as base64, its bytes little-endian.

    >>> packed(np.array([1, 256]), "uint16")
    'AQAAAQ=='
    """
    little = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def encode_bits(mask: NDArray[np.bool_]) -> str:
    """A mask as base64, eight entries a byte, the first one lowest."""
    return encode_array(np.packbits(np.ravel(mask), bitorder="little"), "uint8")


def encode_distances(values: NDArray[np.floating], num_matrices: int = 1) -> dict[str, Any]:
    """A symmetric table (n, n), as the entries [s, t] with t <= s, row by row.

    Small ones keep their digits. Of others each number is a multiple of `step`, in 24 bits: it is
    off by half a step at most, or by one where it is so small that it would be taken for 0.

    >>> packed_table(np.array([[0.0, 2.0], [2.0, 0.0]]))["form"]
    'float64'
    """
    half = values[np.tril_indices(len(values))].astype(np.float64)
    if half.size * 8 * 4 / 3 * num_matrices <= MAX_EXACT_BYTES:
        return {"form": "float64", "step": 0.0, "data": encode_array(half, "float64")}
    largest = float(half.max())
    step = largest / QUANTISATION_STEPS if largest > 0 else 1.0
    whole = np.maximum(np.rint(half / step), half > 0).astype("<u4")
    bytes_ = whole.view(np.uint8).reshape(-1, 4)[:, :3]
    return {"form": "uint24", "step": step, "data": encode_array(bytes_, "uint8")}


def encode_lower_triangle(mask: NDArray[np.bool_]) -> str:
    """A symmetric mask (n, n), as the bits [s, t] with t <= s, row by row."""
    return encode_bits(mask[np.tril_indices(len(mask))])


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
