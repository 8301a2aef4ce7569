"""Format counts with their nouns."""

from __future__ import annotations


def pluralise(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    >>> pluralise(1, "class", "classes"), pluralise(1200, "state")
    ('1 class', '1,200 states')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
