"""Validate the fields of `Transitions`, and collect the metadata of recordings."""

from __future__ import annotations

import json
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric.errors import InputError
from bisimetric.mdp import TERMINAL
from bisimetric.mdp._validation import freeze

BLOCK_ENTRIES = 2**22
"""Entries validated at a time, which bounds the memory needed for large observations."""


def as_number_array(name: str, values: Any) -> NDArray[Any]:
    """Return numbers as a read-only array of their own type; writable arrays are copied."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"Transitions: {name} must be an array of numbers ({error}).") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"Transitions: {name} are {array.dtype} and must be numbers.")
    require_finite(name, array)
    return freeze(array.copy()) if array.flags.writeable else array


def require_finite(name: str, array: NDArray[Any]) -> None:
    """Raise InputError with the first entry that is infinite or not a number."""
    if array.dtype.kind != "f" or array.size == 0:
        return
    rows = array.reshape(1) if array.ndim == 0 else array
    block = max(1, BLOCK_ENTRIES * len(rows) // rows.size)
    for start in range(0, len(rows), block):
        wrong = ~np.isfinite(rows[start : start + block])
        if wrong.any():
            first = np.argwhere(wrong)[0]
            first[0] += start
            index = ", ".join(map(str, first))
            raise InputError(
                f"Transitions: {name}[{index}] is {rows[tuple(first)]} and must be finite."
            )


def validate_column(name: str, values: Any, num_steps: int) -> NDArray[Any]:
    """Return numbers (n,), one per step."""
    array = as_number_array(name, values)
    require_length(name, array, num_steps)
    if array.ndim != 1:
        raise InputError(
            f"Transitions: {name} have shape {array.shape} and must be ({num_steps},), one per "
            "step."
        )
    return array


def as_float_column(name: str, values: Any, num_steps: int) -> NDArray[np.float64]:
    """Return float64 numbers (n,), one per step."""
    return freeze(validate_column(name, values, num_steps).astype(np.float64, copy=False))


def require_length(name: str, array: NDArray[Any], num_steps: int) -> None:
    """Raise InputError unless an array has one row per step."""
    if array.ndim == 0 or len(array) != num_steps:
        found = "one number" if array.ndim == 0 else f"{len(array)} steps"
        raise InputError(
            f"Transitions: {name} have {found} and observations {num_steps}; give one per step."
        )


def validate_observations(
    observations: Any, next_observations: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return observations and next observations (n, ...) of one shape and kind."""
    one, other = (
        as_number_array("observations", observations),
        as_number_array("next_observations", next_observations),
    )
    if one.ndim == 0 or len(one) == 0:
        raise InputError("Transitions: there are no steps; give at least one.")
    require_length("next_observations", other, len(one))
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        raise InputError(
            f"Transitions: next_observations are {other.dtype} of shape {other.shape} and must be "
            f"like observations, {one.dtype} of shape {one.shape}."
        )
    return one, other


def as_index_array(name: str, array: NDArray[Any], alternative: str = "") -> NDArray[np.int64]:
    """Return nonnegative integers as int64; `alternative` extends the error message."""
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
            f"Transitions: {name}[{first}] is {array[first]} and must be a whole number, at least "
            f"0{alternative}."
        )
    return freeze(array.astype(np.int64))


def validate_flags(name: str, values: Any, num_steps: int) -> NDArray[np.bool_]:
    """Return booleans (n,), one per step; 0 and 1 are accepted."""
    array = validate_column(name, values, num_steps)
    if array.dtype == np.bool_:
        return array
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"Transitions: {name}[{first}] is {array[first]} and must be true or false, or 1 or 0."
        )
    return freeze(array.astype(np.bool_))


def validate_actions(actions: Any, num_steps: int) -> NDArray[Any]:
    """Return actions: (n,) int64 if discrete, (n, k) floats if continuous."""
    array = as_number_array("actions", actions)
    require_length("actions", array, num_steps)
    if array.ndim == 1:
        return as_index_array("actions", array, "; continuous actions have shape (steps, k)")
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind != "f":
        raise InputError(
            f"Transitions: actions are {array.dtype} of shape {array.shape} and must be whole "
            f"numbers of shape ({num_steps},), or floats of shape ({num_steps}, k) where they are "
            "continuous."
        )
    return array


def resolve_state_ids(
    observations: NDArray[Any], next_observations: NDArray[Any], states: Any, next_states: Any
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Return ids (n,) of states and next states: the arguments, or integer observations."""
    if (states is None) != (next_states is None):
        lacks = "states" if states is None else "next_states"
        raise InputError(f"Transitions: {lacks} are not given; give both of them, or neither.")
    steps = len(observations)
    if states is not None:
        return (
            as_index_array("states", validate_column("states", states, steps)),
            as_index_array("next_states", validate_column("next_states", next_states, steps)),
        )
    if observations.ndim == 1 and observations.dtype.kind in "iu":
        otherwise = ", the id of a state; give states, or observations of shape (steps, 1)"
        return (
            as_index_array("observations", observations, otherwise),
            as_index_array("next_observations", next_observations, otherwise),
        )
    return None, None


def resolve_num_ids(kind: str, num_ids: Any, *arrays: tuple[str, NDArray[np.int64]]) -> int:
    """Return the number of ids: the argument, or the largest id + 1."""
    largest = max(int(array.max()) for _, array in arrays)
    if num_ids is None:
        return largest + 1
    try:
        size = operator.index(num_ids)
    except TypeError:
        size = 0
    if size < 1:
        raise InputError(
            f"Transitions: num_{kind} is {num_ids!r} and must be a whole number, at least 1."
        )
    for name, array in arrays:
        outside = array >= size
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"Transitions: {name}[{first}] is {array[first]} and must be from 0 to {size - 1}; "
                f"there are {size} {kind}."
            )
    return size


def validate_names(
    kind: str, names: Any, num_ids: int | None, has_terminal: bool = False
) -> tuple[str, ...] | None:
    """Return one distinct name per id; "end" is reserved if there is a terminal state."""
    if names is None:
        return None
    texts = tuple(map(str, names))
    if num_ids is None:
        raise InputError(f"Transitions: {kind} names need ids of {kind}s, and there are none.")
    if len(texts) != num_ids:
        raise InputError(
            f"Transitions: there are {len(texts)} {kind} names and must be {num_ids}, as many as "
            f"{kind}s; give num_{kind}s where some were not seen."
        )
    if len(set(texts)) != num_ids:
        known: set[str] = set()
        twice = next(name for name in texts if name in known or known.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"Transitions: the {kind} name {twice!r} occurs twice; names must differ.")
    if has_terminal and TERMINAL in texts:
        raise InputError(
            f"Transitions: state {texts.index(TERMINAL)} is named {TERMINAL!r}, the name of the "
            "terminal state; rename it."
        )
    return texts


def validate_positions(positions: Any, num_states: int | None) -> NDArray[np.float64] | None:
    """Return positions (num_states, 2), row and column."""
    if positions is None:
        return None
    array = as_number_array("positions", positions)
    if num_states is None:
        raise InputError("Transitions: positions need ids of states, and there are none.")
    if array.shape != (num_states, 2):
        raise InputError(
            f"Transitions: positions have shape {array.shape} and must be ({num_states}, 2), a "
            "row and a column per state."
        )
    return freeze(array.astype(np.float64))


def validate_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata as JSON represents them."""
    try:
        parsed: dict[str, Any] = json.loads(json.dumps(dict(metadata)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Transitions: metadata must be a dict of texts, numbers and lists, as in JSON "
            f"({error})."
        ) from None
    return parsed


def collect_metadata(details: dict[str, Any]) -> dict[str, Any]:
    """Return details of a recording, without None, and the versions of the packages, as in JSON."""
    given = {name: value for name, value in details.items() if value is not None}
    versions = {"bisimetric": bisimetric.__version__, "numpy": np.__version__}
    metadata: dict[str, Any] = json.loads(json.dumps({**given, **versions}, default=repr))
    return metadata
