"""Format counts with their nouns, and sizes with their units."""

from __future__ import annotations


def pluralise(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    >>> pluralise(1, "class", "classes"), pluralise(1200, "state")
    ('1 class', '1,200 states')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def format_bytes(num_bytes: float) -> str:
    """Format a number of bytes with a binary unit.

    >>> format_bytes(3 * 2**29), format_bytes(2**20)
    ('1.5 GiB', '1 MiB')
    """
    num_bytes = min(num_bytes, 1e300)  # a larger int is no float
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.3g} PiB"
