"""What an experiment is asked for, checked before it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bisimetric.errors import InputError, near_names


def check_names(where: str, what: str, given: Sequence[str], known: Collection[str]) -> None:
    """Refuses names that are not known, and none at all."""
    if isinstance(given, str) or not given:
        raise InputError(f"{where}: {what}s is {given!r} and must be some of {', '.join(known)}.")
    for name in given:
        if name not in known:
            hint = near_names(str(name), known) or f"; they are {', '.join(known)}."
            raise InputError(f"{where}: there is no {what} {name!r}{hint}")


def check_counts(where: str, steps: Any, seeds: Any) -> None:
    """Refuses less than one step, and less than two seeds; None is for the default."""
    for what, count, least, why in (
        ("steps", steps, 1, ""),
        ("seeds", seeds, 2, ": one run has no interval"),
    ):
        whole = isinstance(count, int | np.integer) and count >= least
        if count is not None and not whole:
            raise InputError(
                f"{where}: {what} is {count!r} and must be a whole number, at least {least}{why}."
            )
