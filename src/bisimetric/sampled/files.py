"""Checkpoints of sampled runs: one .npz with the values, the sampler's state and the data."""

from __future__ import annotations

import hashlib
import json
import operator
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric._io import (
    ARCHIVE_ERRORS,
    METADATA_ERRORS,
    compute_checksum,
    open_archive,
    parse_object,
    write_atomically,
)
from bisimetric.errors import InputError, require_integer
from bisimetric.sampled.ingest import COLUMNS, TERMINAL, DistinctTransitions
from bisimetric.sampled.samplers import describe_sampler
from bisimetric.sampled.transition_table import TransitionTable

if TYPE_CHECKING:
    from bisimetric.sampled.run import SampledRun

FORMAT = "bisimetric sampled run, version 1"

IDENTITY_FIELDS = ("kind", "discount", "sampler", "seed", "states", "policy")


def write_run(path: str | os.PathLike[str], run: SampledRun) -> None:
    """Write a checkpoint to one `.npz`, atomically."""
    arrays: dict[str, Any] = {"values": run.values, "paired": run.paired}
    arrays |= {f"state_{name}": array for name, array in run.sampler_state.items()}
    data = run.source.data
    if data is not None:
        arrays |= {f"data_{name}": getattr(data, name) for name in COLUMNS}
        present = {name: value for name, value in data.annotations.items() if value is not None}
        arrays |= {f"mdp_{name}": np.asarray(value) for name, value in present.items()}
    header = json.dumps(
        {
            "format": FORMAT,
            **_describe_identity(run),
            "source": run.source.fingerprint,
            "steps": run.steps,
            "data": data and [data.num_steps, data.num_states, data.num_groups],
            "bisimetric": bisimetric.__version__,
        }
    )
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    checksum = np.array(compute_checksum(header, arrays))
    with write_atomically(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, about=np.array(header), checksum=checksum, **arrays)


def read_run(path: str | os.PathLike[str], run: SampledRun) -> tuple[int, dict[str, NDArray[Any]]]:
    """Read the steps and arrays of a checkpoint that has the identity and source of `run`."""
    header, arrays = _read_archive(path)
    try:
        for name, expected in _describe_identity(run).items():
            if header[name] != expected:
                raise InputError(
                    f"{path} is of another run: its {name} is {header[name]} and must be "
                    f"{expected}; resume it with the same {name}, or omit resume."
                )
        if header["source"] != run.source.fingerprint:
            raise InputError(
                f"{path} is of another run: its transitions or their weights differ; resume it "
                "with the same, or omit resume."
            )
        current: dict[str, NDArray[Any]] = {"values": run.values, "paired": run.paired}
        current |= {f"state_{name}": array for name, array in run.sampler_state.items()}
        for name, like in current.items():
            found = arrays[name]
            if (found.shape, found.dtype) != (like.shape, like.dtype):
                raise ValueError(f"its {name} has shape {found.shape}")
        if not (np.isfinite(arrays["values"]).all() and (arrays["values"] >= 0).all()):
            raise ValueError("its values are not all finite and at least 0")
        _validate_state(arrays, run.source.table)
        steps = operator.index(header["steps"])
        if not 0 <= steps < 2**62:
            raise ValueError(f"its steps are {steps}")
        return steps, arrays
    except InputError:
        raise
    except METADATA_ERRORS as error:
        raise _build_error(path, error) from None


def read_data(path: str | os.PathLike[str]) -> DistinctTransitions:
    """Read the transitions that a run on data has seen, to resume a stream."""
    header, arrays = _read_archive(path)
    try:
        if header["data"] is None:
            raise InputError(f"{path} is of a run on an MDP, which a stream cannot resume.")
        num_steps, num_states, num_groups = (
            require_integer(str(path), "data", number) for number in header["data"]
        )
        columns = {name: arrays[f"data_{name}"] for name in COLUMNS}
        _validate_columns(columns, num_states, num_groups)
        annotations: dict[str, Any] = {"positions": arrays.get("mdp_positions")}
        for name in ("names", "actions"):
            found = arrays.get(f"mdp_{name}")
            annotations[name] = None if found is None else tuple(found.tolist())
        return DistinctTransitions(
            **columns,
            num_steps=num_steps,
            num_states=num_states,
            num_groups=num_groups,
            annotations=annotations,
        )
    except InputError:
        raise
    except METADATA_ERRORS as error:
        raise _build_error(path, error) from None


def _validate_columns(columns: dict[str, NDArray[Any]], num_states: int, num_groups: int) -> None:
    """Raise ValueError for ids out of range, which the kernels do not check."""
    lengths = {len(column) if column.ndim == 1 else -1 for column in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise ValueError("its transitions have columns of different lengths")
    for name, lowest, end in (
        ("group", 0, num_groups),
        ("action", 0, 2**62),
        ("state", 0, num_states),
        ("successor", TERMINAL, num_states),
        ("step", 0, 2**62),
    ):
        ids = columns[name]
        valid = ids.dtype == np.int64 and ((ids >= lowest) & (ids < end)).all()
        if not valid:
            raise ValueError(f"its {name} holds ids that are out of range")
    for name in ("reward", "weight"):
        if columns[name].dtype != np.float64 or not np.isfinite(columns[name]).all():
            raise ValueError(f"its {name} holds values that are not finite floats")
    if (columns["weight"] < 0).any():
        raise ValueError("its weight holds numbers below 0")


def _validate_state(arrays: dict[str, NDArray[Any]], table: TransitionTable) -> None:
    """Raise ValueError for a sampler's state with ids out of range."""
    states, missing = table.num_states, np.zeros(0, np.int64)
    seen, num_seen, current, position = (
        arrays.get(f"state_{name}", missing) for name in ("seen", "num_seen", "current", "position")
    )
    invalid = (seen < 0).any() or (seen >= states).any() or (num_seen < 0).any()
    invalid |= (num_seen > states).any() or (current < -1).any() or (position < 0).any()
    if seen.size:
        # Its two halves are permutations of the states, each the inverse of the other.
        identity = np.take_along_axis(seen[1], seen[0], axis=-1) if not invalid else seen[0]
        invalid |= (identity != np.arange(states)).any()
    if current.size and table.mdp is not None:
        invalid |= (current >= states).any()
    if position.size:
        invalid |= position[1] >= table.num_groups
    if invalid:
        raise ValueError("the state of its sampler is damaged")


def _describe_identity(run: SampledRun) -> dict[str, Any]:
    """Return what must be equal for a run to be resumed."""
    policy = run.source.policy
    values = (
        run.kind,
        run.discount,
        describe_sampler(run.sampler),
        run.seed,
        run.source.table.num_states,
        None if policy is None else hashlib.sha256(policy.tobytes()).hexdigest()[:8],
    )
    return dict(zip(IDENTITY_FIELDS, values, strict=True))


def _read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with open_archive(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        text, checksum = str(arrays.pop("about")), str(arrays.pop("checksum"))
        header = parse_object(text)
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
        # Kernels do not check the numbers of a run.
        if checksum != compute_checksum(text, arrays):
            raise ValueError("its checksum does not match its contents")
    except (*ARCHIVE_ERRORS, *METADATA_ERRORS) as error:
        raise _build_error(path, error) from None
    return header, arrays


def _build_error(path: str | os.PathLike[str], error: Exception) -> InputError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"{path} is truncated or not a checkpoint of bisimetric ({reason}); write a new one."
    )
