"""Bundle scripts, styles and data into one HTML file."""

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
    """Return one HTML page with the scripts in this order and their data.

    The content security policy lists the hashes of the scripts that a browser may run; anything
    else, such as a name that looks like a script, is text. No network access is allowed.

    >>> text = assemble_page("</title><b>", [], {"names": ["</script><script>alert(1)</script>"]})
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
    """Join modules into one script; each must come after those that it imports from."""
    texts = [(PARTS / name).read_text("utf-8") for name in names]
    bare = [EXPORT_KEYWORDS.sub("", IMPORT_STATEMENTS.sub("", text)) for text in texts]
    return '"use strict";\n(() => {\n' + "\n".join(bare) + "})();\n"


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
