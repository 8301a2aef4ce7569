"""What the makers of transitions share: counts that must be positive, and how they were made."""

from __future__ import annotations

import json
import operator
from typing import Any

import numpy as np

import bisimetric
from bisimetric.errors import InputError


def counted(where: str, what: str, value: Any, *, least: int = 1) -> int:
    """A whole number, at least `least`.

    >>> counted("FrozenLake-v1", "steps", 0)
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: FrozenLake-v1: steps is 0 and must be a whole number, at least 1.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(
            f"{where}: {what} is {value!r} and must be a whole number, at least {least}."
        )
    return number


def told(how: dict[str, Any]) -> dict[str, Any]:
    """How transitions were made, as JSON has it, with the versions."""
    known = {name: value for name, value in how.items() if value is not None}
    versions = {"bisimetric": bisimetric.__version__, "numpy": np.__version__}
    spoken: dict[str, Any] = json.loads(json.dumps({**known, **versions}, default=repr))
    return spoken
