"""What transitions must be: the checks at the border, each with a clear error."""

from __future__ import annotations

import json
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp.checks import frozen

END = "end"
"""The name of the state that episodes end in."""

BLOCK = 2**22
"""Entries looked at in one go, so that checking large observations needs little memory."""


def numbers(what: str, given: Any) -> NDArray[Any]:
    """A read-only array of the numbers given, of their own type: a copy where they can change."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise InputError(f"Transitions: {what} must be an array of numbers ({error}).") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"Transitions: {what} are {array.dtype} and must be numbers.")
    refuse_non_finite(what, array)
    return frozen(array.copy()) if array.flags.writeable else array


def refuse_non_finite(what: str, array: NDArray[Any]) -> None:
    if array.dtype.kind != "f" or array.size == 0:
        return
    rows = array.reshape(1) if array.ndim == 0 else array
    block = max(1, BLOCK * len(rows) // rows.size)
    for start in range(0, len(rows), block):
        wrong = ~np.isfinite(rows[start : start + block])
        if wrong.any():
            first = np.argwhere(wrong)[0]
            first[0] += start
            index = ", ".join(map(str, first))
            raise InputError(
                f"Transitions: {what}[{index}] is {rows[tuple(first)]} and must be finite."
            )


def column(what: str, given: Any, steps: int) -> NDArray[Any]:
    """Numbers, one a step: (n,)."""
    array = numbers(what, given)
    refuse_length(what, array, steps)
    if array.ndim != 1:
        raise InputError(
            f"Transitions: {what} have shape {array.shape} and must be ({steps},), one a step."
        )
    return array


def floats(what: str, given: Any, steps: int) -> NDArray[np.float64]:
    """Numbers as float64, one a step."""
    return frozen(column(what, given, steps).astype(np.float64, copy=False))


def refuse_length(what: str, array: NDArray[Any], steps: int) -> None:
    if array.ndim == 0 or len(array) != steps:
        found = "one number" if array.ndim == 0 else f"{len(array)} steps"
        raise InputError(
            f"Transitions: {what} have {found} and observations {steps}; give one a step."
        )


def observed(given: Any, following: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Observations and next observations (n, ...), alike in shape and kind."""
    one, other = numbers("observations", given), numbers("next_observations", following)
    if one.ndim == 0 or len(one) == 0:
        raise InputError("Transitions: there are no steps; give at least one.")
    refuse_length("next_observations", other, len(one))
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        raise InputError(
            f"Transitions: next_observations are {other.dtype} of shape {other.shape} and must be "
            f"like observations, {one.dtype} of shape {one.shape}."
        )
    return one, other


def whole(what: str, array: NDArray[Any], otherwise: str = "") -> NDArray[np.int64]:
    """Whole numbers, none negative, as int64; `otherwise` says what else could be given."""
    if array.dtype == np.int64 and array.min() >= 0:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.int64)
    wrong = (array < 0) | (array >= 2**63)
    if array.dtype.kind == "f":
        wrong |= array != np.floor(array)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"Transitions: {what}[{first}] is {array[first]} and must be a whole number, at least "
            f"0{otherwise}."
        )
    return frozen(array.astype(np.int64))


def flags(what: str, given: Any, steps: int) -> NDArray[np.bool_]:
    """Truths, one a step, also as 0 and 1."""
    array = column(what, given, steps)
    if array.dtype == np.bool_:
        return array
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"Transitions: {what}[{first}] is {array[first]} and must be true or false, or 1 or 0."
        )
    return frozen(array.astype(np.bool_))


def taken(given: Any, steps: int) -> NDArray[Any]:
    """Actions: (n,) int64 where they are discrete, (n, k) floats where they are continuous."""
    array = numbers("actions", given)
    refuse_length("actions", array, steps)
    if array.ndim == 1:
        return whole("actions", array, "; continuous actions have shape (steps, k)")
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind != "f":
        raise InputError(
            f"Transitions: actions are {array.dtype} of shape {array.shape} and must be whole "
            f"numbers of shape ({steps},), or floats of shape ({steps}, k) where they are "
            "continuous."
        )
    return array


def ids(
    observations: NDArray[Any], following: NDArray[Any], states: Any, next_states: Any
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Ids of states (n,) and of next states: those given, or observations that are ids."""
    if (states is None) != (next_states is None):
        lacks = "states" if states is None else "next_states"
        raise InputError(f"Transitions: {lacks} are not given; give both of them, or neither.")
    steps = len(observations)
    if states is not None:
        return (
            whole("states", column("states", states, steps)),
            whole("next_states", column("next_states", next_states, steps)),
        )
    if observations.ndim == 1 and observations.dtype.kind in "iu":
        otherwise = ", the id of a state; give states, or observations of shape (steps, 1)"
        return (
            whole("observations", observations, otherwise),
            whole("next_observations", following, otherwise),
        )
    return None, None


def count(what: str, given: Any, *found: tuple[str, NDArray[np.int64]]) -> int:
    """How many ids there are: as many as given, or up to the largest found."""
    largest = max(int(array.max()) for _, array in found)
    if given is None:
        return largest + 1
    try:
        size = operator.index(given)
    except TypeError:
        size = 0
    if size < 1:
        raise InputError(
            f"Transitions: num_{what} is {given!r} and must be a whole number, at least 1."
        )
    for name, array in found:
        outside = array >= size
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"Transitions: {name}[{first}] is {array[first]} and must be from 0 to {size - 1}; "
                f"there are {size} {what}."
            )
    return size


def names(what: str, given: Any, size: int | None, ends: bool = False) -> tuple[str, ...] | None:
    """One distinct name for each of `size` ids; `ends`: whether "end" is the name of the end."""
    if given is None:
        return None
    texts = tuple(map(str, given))
    if size is None:
        raise InputError(f"Transitions: {what} names need ids of {what}s, and there are none.")
    if len(texts) != size:
        raise InputError(
            f"Transitions: there are {len(texts)} {what} names and must be {size}, as many as "
            f"{what}s; give num_{what}s where some were not seen."
        )
    if len(set(texts)) != size:
        known: set[str] = set()
        twice = next(name for name in texts if name in known or known.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"Transitions: the {what} name {twice!r} occurs twice; names must differ.")
    if ends and END in texts:
        raise InputError(
            f"Transitions: state {texts.index(END)} is named {END!r}, which is the name of the end "
            "of episodes; name it otherwise."
        )
    return texts


def places(given: Any, size: int | None) -> NDArray[np.float64] | None:
    """Positions (num_states, 2), row and column."""
    if given is None:
        return None
    array = numbers("positions", given)
    if size is None:
        raise InputError("Transitions: positions need ids of states, and there are none.")
    if array.shape != (size, 2):
        raise InputError(
            f"Transitions: positions have shape {array.shape} and must be ({size}, 2), a row and a "
            "column a state."
        )
    return frozen(array.astype(np.float64))


def told(made: Any) -> dict[str, Any]:
    """How they were collected, as JSON gives it back."""
    try:
        kept: dict[str, Any] = json.loads(json.dumps(dict(made)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Transitions: made must be a dict of texts, numbers and lists, as JSON has them "
            f"({error})."
        ) from None
    return kept
