"""The metadata of learned files: which fields there are, and of which type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

FieldCheck = Callable[[Any], bool]


def is_integer(value: Any, minimum: int = 0) -> bool:
    """Whether a value read from JSON is an integer, at least `least`; a boolean is none.

    >>> is_whole(3), is_whole(True), is_whole(3.0)
    (True, False, False)
    """
    return type(value) is int and value >= minimum


def is_number(value: Any) -> bool:
    """Whether a value read from JSON is a finite number; a boolean is none."""
    return type(value) in (int, float) and math.isfinite(value)


def are_integers(value: Any, minimum: int = 0) -> bool:
    """Whether a value read from JSON is a list of integers."""
    return isinstance(value, list) and all(is_integer(each, minimum) for each in value)


def is_string(value: Any) -> bool:
    return isinstance(value, str)


def are_strings(value: Any) -> bool:
    """Whether a value read from JSON is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


METADATA_FIELDS: dict[str, tuple[FieldCheck, str]] = {
    "kind": (is_string, "a string"),
    "discount": (is_number, "a number"),
    "form": (is_string, "a string"),
    "network": (lambda value: value == "own" or are_integers(value, 1), "a list of widths"),
    "activation": (is_string, "a string"),
    "output": (is_string, "a string"),
    "init_weights": (is_string, "a string"),
    "groups": (lambda value: is_integer(value, 1), "an integer"),
    "size": (lambda value: is_integer(value, 1), "an integer"),
    "waves": (lambda value: value is None or is_string(value) or is_integer(value), "an integer"),
    "actions": (lambda value: is_integer(value, 1), "an integer"),
    "unit": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "most": (lambda value: is_number(value) and value >= 0, "a number, at least 0"),
    "copies": (lambda value: is_integer(value, 1), "an integer"),
    "taken": (lambda value: are_integers(value) and bool(value), "a list of actions"),
    "ends": (lambda value: isinstance(value, bool), "a boolean"),
    "shape": (lambda value: value is None or are_integers(value), "a list of integers"),
    "names": (lambda value: value is None or are_strings(value), "a list of strings"),
    "made": (lambda value: isinstance(value, dict), "an object"),
    "keys": (are_integers, "a list of integers"),
    "source": (is_string, "a string"),
    "features": (lambda value: is_integer(value, 1), "an integer"),
    "reach": (lambda value: is_integer(value, 1), "an integer"),
    "of": (lambda value: is_integer(value, 1), "an integer"),
    "game": (is_string, "a string"),
    "key": (is_integer, "an integer"),
    "steps": (is_integer, "an integer"),
    "seconds": (is_number, "a number"),
    "settings": (lambda value: isinstance(value, dict), "an object"),
}
"""What each field of the metadata must be, where it is present."""


def validate_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise a ValueError naming the first field of the wrong type.

    >>> check_metadata({"discount": True})
    Traceback (most recent call last):
    ...
    ValueError: its discount is True and must be a number
    """
    for name, (right, what) in METADATA_FIELDS.items():
        if name in metadata and not right(metadata[name]):
            raise ValueError(f"its {name} is {str(metadata[name])[:60]} and must be {what}")
    taken, actions = metadata.get("taken"), metadata.get("actions")
    if taken is not None and actions is not None and max(taken) >= actions:
        raise ValueError(f"its taken is {max(taken)} and there are {actions} actions")
