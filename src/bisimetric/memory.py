"""What the free memory cannot hold is refused before it is allocated."""

from __future__ import annotations

import psutil

from bisimetric.errors import TableTooLarge

NEVER_MIND = 2**26
"""Bytes that are always to be had."""


def require_memory(what: str, needed: float, remedy: str, free: float | None = None) -> None:
    """Raises TableTooLarge where `needed` bytes are not free: what needs them, and what to do.

    `free` is what another device has free, where it is not the machine's own memory.

    >>> require_memory("a thimble needs", 1e18, "use a thimble")
    Traceback (most recent call last):
    ...
    bisimetric.errors.TableTooLarge: a thimble needs 888 PiB of memory and ... are free; use a
    thimble.
    """
    if not (fits(needed) if free is None else needed <= free):
        free = psutil.virtual_memory().available if free is None else free
        raise TableTooLarge(
            f"{what} {_size(needed)} of memory and {_size(free)} are free; {remedy}."
        )


def fits(needed: float) -> bool:
    """Whether so many bytes are free."""
    return needed < NEVER_MIND or needed <= psutil.virtual_memory().available


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} PiB"
