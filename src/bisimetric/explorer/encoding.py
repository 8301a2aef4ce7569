"""Encode arrays and screens for a page: base64, half of a symmetric matrix, PNG."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

QUANTISATION_STEPS = 2**24 - 1
"""Steps from 0 to the largest value of a matrix in 24 bits."""
MAX_EXACT_BYTES = 4_000_000
"""The largest size in base64 of a matrix that keeps all digits."""


def encode_array(array: NDArray[Any], dtype: str) -> str:
    """Encode an array as base64 of its little-endian bytes.

    >>> encode_array(np.array([1, 256]), "uint16")
    'AQAAAQ=='
    """
    little = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def encode_bits(mask: NDArray[np.bool_]) -> str:
    """Encode a mask as base64, eight entries per byte, the first one lowest."""
    return encode_array(np.packbits(np.ravel(mask), bitorder="little"), "uint8")


def encode_distances(values: NDArray[np.floating], num_matrices: int = 1) -> dict[str, Any]:
    """Encode a symmetric matrix (n, n) as the entries [s, t] with t <= s, row by row.

    Small matrices keep all digits. In others each value is a 24-bit multiple of `step`: its
    error is at most half a step, or one step where it would otherwise become 0.

    >>> encode_distances(np.array([[0.0, 2.0], [2.0, 0.0]]))["form"]
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
    """Encode a symmetric mask (n, n) as the bits [s, t] with t <= s, row by row."""
    return encode_bits(mask[np.tril_indices(len(mask))])


def encode_png(screen: NDArray[np.uint8], palette: NDArray[np.uint8] | None = None) -> bytes:
    """Encode a screen (h, w) of grey levels or palette (k, 3) indices, or (h, w, 3) RGB, as PNG.

    >>> encode_png(np.zeros((2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    image = Image.fromarray(np.ascontiguousarray(screen))
    if palette is not None:
        image.putpalette(palette.tobytes(), "RGB")
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def encode_data_url(file: bytes) -> str:
    """Return a PNG file as a data URL."""
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")
