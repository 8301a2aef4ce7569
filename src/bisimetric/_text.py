"""Format counts with their nouns, lists of names, ranges, and the tables of notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

MAX_SHOWN_NAMES = 6
MAX_NAME_LENGTH = 30
MAX_CELL_LENGTH = 200


def pluralise(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    >>> pluralise(1, "class", "classes"), pluralise(1200, "state")
    ('1 class', '1,200 states')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def format_names(count: int, names: Sequence[str] | None) -> str:
    """Return a count and the first names, if there are any, shortened where they are long.

    >>> format_names(2, ("s", "t")), format_names(1200, None)
    ('2: s; t', '1,200')
    """
    if not names:
        return f"{count:,}"
    shown = [shorten(name, MAX_NAME_LENGTH) for name in names[:MAX_SHOWN_NAMES]]
    return f"{count:,}: {'; '.join(shown)}{'; ...' if len(names) > MAX_SHOWN_NAMES else ''}"


def format_range(low: float, high: float) -> str:
    """Return a range of numbers, or the one number.

    >>> format_range(-1, 0.5), format_range(2, 2)
    ('-1 to 0.5', '2')
    """
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def shorten(text: str, max_length: int) -> str:
    """Cut a text to a length, with an ellipsis.

    >>> shorten("a long text", 9)
    'a long...'
    """
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def render_html_table(title: str, rows: Mapping[str, str]) -> str:
    """Render a small HTML table for a notebook, with one row per property; all text is escaped.

    >>> render_html_table("MDP", {"states": "<3"})
    '<table><caption>MDP</caption><tr><th scope="row">states</th><td>&lt;3</td></tr></table>'
    """
    lines = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        f"<td>{html.escape(shorten(value, MAX_CELL_LENGTH))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{lines}</table>"
