"""The parts of a page, put together into one file: scripts, styles and data, and nothing run."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bisimetric._io import write_atomically

HERE = Path(__file__).parent
PARTS, VENDOR = HERE / "parts", HERE / "vendor"
STYLES = ("page.css", "map.css", "panels.css", "episode.css")
CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
LIBRARIES = ("d3.min.js", "plot.min.js")
IMPORT_STATEMENTS = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT_KEYWORDS = re.compile(r"^export ", re.MULTILINE)


def assemble_page(
    title: str, scripts: Sequence[str], data: Mapping[str, Any], *, charts: bool = True
) -> str:
    """One HTML page: the scripts in this order, with what they draw.

    What a browser may run is listed by its hash in the policy of the page; all else, such as a
    name that looks like a script, is text to it, and it may ask the network for nothing.

    >>> text = assembled("</title><b>", [], {"names": ["</script><script>alert(1)</script>"]})
    >>> "alert(1)" in text, "<script>alert(1)" in text, "<b>" in text
    (True, False, False)
    """
    libraries = [(VENDOR / name).read_text("utf-8") for name in LIBRARIES] if charts else []
    run = [*libraries, join_modules(scripts)]
    hashes = " ".join(f"'sha256-{_hash(text)}'" for text in run)
    filled = {
        "policy": f"{CONTENT_SECURITY_POLICY}; script-src {hashes}",
        "title": html.escape(title),
        "style": "".join((PARTS / name).read_text("utf-8") for name in STYLES),
        "data": encode_json(data),
        "scripts": "\n".join(f"<script>{text}</script>" for text in run),
    }
    frame = (PARTS / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], frame)


def join_modules(names: Sequence[str]) -> str:
    """Modules as one script: what they import from each other stands above them."""
    texts = [(PARTS / name).read_text("utf-8") for name in names]
    bare = [EXPORT_KEYWORDS.sub("", IMPORT_STATEMENTS.sub("", text)) for text in texts]
    return '"use strict";\n(() => {\n' + "\n".join(bare) + "})();\n"


def encode_json(data: Any) -> str:
    """JSON that may stand inside of an element: no `<` in it ends the element.

    >>> as_json({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def save_page(page: str, path: str | os.PathLike[str]) -> None:
    """Writes a page; the file appears whole or not at all."""
    with write_atomically(path) as beside:
        beside.write_text(page, encoding="utf-8", newline="\n")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
