"""What an experiment is asked for, checked before it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bisimetric.errors import InputError, suggest_names


def validate_names(caller: str, noun: str, names: Sequence[str], known: Collection[str]) -> None:
    """Refuses names that are not known, and none at all."""
    if isinstance(names, str) or not names:
        raise InputError(f"{caller}: {noun}s is {names!r} and must be some of {', '.join(known)}.")
    for name in names:
        if name not in known:
            hint = suggest_names(str(name), known) or f"; they are {', '.join(known)}."
            raise InputError(f"{caller}: there is no {noun} {name!r}{hint}")


def validate_counts(caller: str, updates: Any, num_seeds: Any) -> None:
    """Refuses less than one step, and less than two seeds; None is for the default."""
    for what, count, least, why in (
        ("steps", updates, 1, ""),
        ("seeds", num_seeds, 2, ": one run has no interval"),
    ):
        whole = isinstance(count, int | np.integer) and count >= least
        if count is not None and not whole:
            raise InputError(
                f"{caller}: {what} is {count!r} and must be a whole number, at least {least}{why}."
            )
