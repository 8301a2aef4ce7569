"""The numbers of settings, checked."""

from __future__ import annotations

import math
from typing import Any

from bisimetric.errors import InputError, whole


def check(settings: Any, counts: dict[str, int], positive: tuple[str, ...]) -> None:
    """Makes counts whole numbers and the others floats; refuses what is too small.

    `counts` are the least that each may be; those of `positive` must be above 0.
    """
    for name, least in counts.items():
        count = whole("Settings", name, getattr(settings, name), least)
        object.__setattr__(settings, name, count)
    for name in positive:
        value = number(name, getattr(settings, name), above=True)
        object.__setattr__(settings, name, value)


def number(name: str, value: Any, above: bool) -> float:
    """A finite number, above 0 or at least 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and (found > 0 if above else found >= 0)):
        least = "above 0" if above else "at least 0"
        raise InputError(f"Settings: {name} is {value!r} and must be a number, {least}.")
    return found
