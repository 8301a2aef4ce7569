"""Encode arrays and screens (base64, PNG) and bundle them with scripts and styles into one page."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bisimetric._io import write_atomically

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

    >>> encode_distances(np.array([[0.0, 2.0], [2.0, 0.0]]))["encoding"]
    'float64'
    """
    half = values[np.tril_indices(len(values))].astype(np.float64)
    if half.size * 8 * 4 / 3 * num_matrices <= MAX_EXACT_BYTES:
        return {"encoding": "float64", "step": 0.0, "data": encode_array(half, "float64")}
    largest = float(half.max())
    step = largest / QUANTISATION_STEPS if largest > 0 else 1.0
    whole = np.maximum(np.rint(half / step), half > 0).astype("<u4")
    bytes_ = whole.view(np.uint8).reshape(-1, 4)[:, :3]
    return {"encoding": "uint24", "step": step, "data": encode_array(bytes_, "uint8")}


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


HERE = Path(__file__).parent
PARTS, BUILT = HERE / "parts", HERE / "built"
"""Sources, and the scripts that `make explorer` bundles from them."""
STYLES = ("page.css", "map.css", "panels.css", "episode.css", "playground.css")
CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def assemble_page(
    title: str,
    script: str,
    data: Mapping[str, Any],
    *,
    charts: bool = True,
    worker: str | None = None,
) -> str:
    """Return one HTML page with a bundled script and its data.

    The content security policy lists the hashes of the scripts that a browser may run; anything
    else, such as a name that looks like a script, is text. No network access is allowed.

    Args:
        title: of the page.
        script: the name of a bundle, an entry of `tools/bundle_explorer.js`.
        data: for the script.
        charts: whether the script draws charts, so that it is preceded by the bundle for them.
        worker: the name of a bundle for a Worker; its text is added to the data, and the policy
            allows Workers from the script's own memory (`blob:`).

    Returns:
        The HTML.

    >>> text = assemble_page("</title><b>", "page", {"names": ["</script><script>alert(1)"]})
    >>> "alert(1)" in text, "<script>alert(1)" in text, "<b>" in text
    (True, False, False)
    """
    bundles = ["charts", script] if charts else [script]
    run = [(BUILT / f"{name}.js").read_text("utf-8") for name in bundles]
    hashes = " ".join(f"'sha256-{_hash(text)}'" for text in run)
    policy = f"{CONTENT_SECURITY_POLICY}; script-src {hashes}"
    if worker is not None:
        policy += "; worker-src blob:"
        data = {**data, "worker": (BUILT / f"{worker}.js").read_text("utf-8")}
    fields = {
        "policy": policy,
        "title": html.escape(title),
        "style": "".join((PARTS / name).read_text("utf-8") for name in STYLES),
        "data": encode_json(data),
        "scripts": "\n".join(f"<script>{text}</script>" for text in run),
    }
    frame = (PARTS / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: fields[found[1]], frame)


def encode_json(data: Any) -> str:
    """Encode data as JSON without `<`, which could end the surrounding element.

    >>> encode_json({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def save_page(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page; the file is replaced atomically.

    Args:
        page: the HTML.
        path: of the file.

    Raises:
        OSError: the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_page("<!doctype html>", Path(folder, "page.html"))
    ...     Path(folder, "page.html").read_text()
    '<!doctype html>'
    """
    with write_atomically(path) as beside:
        beside.write_text(page, encoding="utf-8", newline="\n")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
