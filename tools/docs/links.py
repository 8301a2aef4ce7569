"""Check the links of the built site: pages, anchors, images and other files must exist."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The targets of the links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect `href` and `src` as targets, `id` and `name` as anchors."""
        values = dict(attributes)
        self.anchors |= {values[key] or "" for key in ("id", "name") if key in values}
        # The theme's own links have no meaning in files on a disk.
        if tag != "link":
            self.targets += [values[key] or "" for key in ("href", "src") if key in values]


def find_dead_links(site: Path) -> Iterator[str]:
    """Yield one message per target of a link that does not exist: a page, an anchor or a file.

    Args:
        site: the folder of the built site.

    Yields:
        The first page with that link, and the target.
    """
    seen: set[tuple[Path, str]] = set()
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            linked = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if linked.is_dir():
                linked = linked / "index.html"
            if (linked, parts.fragment) in seen:
                continue
            seen.add((linked, parts.fragment))
            where = f"{path.relative_to(site.resolve())}: {target}"
            if not linked.exists():
                yield f"{where} does not exist"
            elif parts.fragment and linked in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[linked].anchors and not anchor.startswith("__"):
                    yield f"{where}: no such anchor"
