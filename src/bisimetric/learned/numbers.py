"""The numbers of settings, checked."""

from __future__ import annotations

import math
from typing import Any

from bisimetric.errors import InputError, require_integer


def validate_fields(config: Any, minimums: dict[str, int], positive: tuple[str, ...]) -> None:
    """Makes counts whole numbers and the others floats; refuses what is too small.

    `counts` are the least that each may be; those of `positive` must be above 0.
    """
    for name, least in minimums.items():
        count = require_integer("Settings", name, getattr(config, name), least)
        object.__setattr__(config, name, count)
    for name in positive:
        value = validate_number(name, getattr(config, name), positive=True)
        object.__setattr__(config, name, value)


def validate_number(name: str, value: Any, positive: bool) -> float:
    """A finite number, above 0 or at least 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and (found > 0 if positive else found >= 0)):
        least = "above 0" if positive else "at least 0"
        raise InputError(f"Settings: {name} is {value!r} and must be a number, {least}.")
    return found
