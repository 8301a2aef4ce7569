"""A run in one .npz file: the table, what was drawn together, the sampler's memory, its source."""

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

IDENTITY_FIELDS = ("kind", "discount", "sampler", "key", "states", "policy")


def write_run(path: str | os.PathLike[str], run: SampledRun) -> None:
    """Writes one `.npz`; the file appears whole or not at all."""
    arrays: dict[str, Any] = {"values": run.values, "met": run.paired}
    arrays |= {f"memory_{name}": array for name, array in run.sampler_state.items()}
    experience = run.source.data
    if experience is not None:
        arrays |= {f"seen_{name}": getattr(experience, name) for name in COLUMNS}
        called = {name: each for name, each in experience.annotations.items() if each is not None}
        arrays |= {f"called_{name}": np.asarray(each) for name, each in called.items()}
    about = {
        "format": FORMAT,
        **_describe_identity(run),
        "source": run.source.fingerprint,
        "steps": run.steps,
        "data": experience and [experience.num_steps, experience.num_states, experience.num_groups],
        "bisimetric": bisimetric.__version__,
    }
    told = json.dumps(about)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    seal = np.array(compute_checksum(told, arrays))
    with write_atomically(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, about=np.array(told), seal=seal, **arrays)


def read_run(path: str | os.PathLike[str], run: SampledRun) -> tuple[int, dict[str, NDArray[Any]]]:
    """The steps and the arrays of a file, if it is of the same kind and source as a run."""
    about, arrays = _read_archive(path)
    try:
        for name, here in _describe_identity(run).items():
            if about[name] != here:
                raise InputError(
                    f"{path} is of another run: its {name} is {about[name]} and here it is {here}; "
                    f"resume it with the same {name}, or start anew."
                )
        if about["source"] != run.source.fingerprint:
            raise InputError(
                f"{path} is of another run: its transitions or their weights differ from those "
                "here; resume it with the same, or start anew."
            )
        wanted: dict[str, NDArray[Any]] = {"values": run.values, "met": run.paired}
        wanted |= {f"memory_{name}": array for name, array in run.sampler_state.items()}
        for name, here in wanted.items():
            found = arrays[name]
            if (found.shape, found.dtype) != (here.shape, here.dtype):
                raise ValueError(f"its {name} has shape {found.shape}")
        if not (np.isfinite(arrays["values"]).all() and (arrays["values"] >= 0).all()):
            raise ValueError("its table holds something else than finite numbers, at least 0")
        _check_memory(arrays, run.source.table)
        steps = operator.index(about["steps"])
        if not 0 <= steps < 2**62:
            raise ValueError(f"its steps are {steps}")
        return steps, arrays
    except InputError:
        raise
    except METADATA_ERRORS as error:
        raise _malformed_run(path, error) from None


def read_data(path: str | os.PathLike[str]) -> DistinctTransitions:
    """What a run on data had seen, for a stream to go on with."""
    about, arrays = _read_archive(path)
    try:
        if about["data"] is None:
            raise InputError(f"{path} is of a run on a model, and no stream can go on with it.")
        steps, living, groups = (require_integer(str(path), "data", each) for each in about["data"])
        columns = {name: arrays[f"seen_{name}"] for name in COLUMNS}
        _check_columns(columns, living, groups)
        names: dict[str, Any] = {"positions": arrays.get("called_positions")}
        for name in ("names", "actions"):
            found = arrays.get(f"called_{name}")
            names[name] = None if found is None else tuple(found.tolist())
        return DistinctTransitions(
            **columns, num_steps=steps, num_states=living, num_groups=groups, annotations=names
        )
    except InputError:
        raise
    except METADATA_ERRORS as error:
        raise _malformed_run(path, error) from None


def _check_columns(columns: dict[str, NDArray[Any]], living: int, groups: int) -> None:
    """Refuses transitions whose ids lead outside of the tables: kernels look nothing up twice."""
    lengths = {len(each) if each.ndim == 1 else -1 for each in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise ValueError("its transitions have columns of different lengths")
    for name, lowest, end in (
        ("group", 0, groups),
        ("action", 0, 2**62),
        ("state", 0, living),
        ("successor", TERMINAL, living),
        ("step", 0, 2**62),
    ):
        found = columns[name]
        inside = found.dtype == np.int64 and ((found >= lowest) & (found < end)).all()
        if not inside:
            raise ValueError(f"its {name} holds ids that are none")
    for name in ("reward", "weight"):
        if columns[name].dtype != np.float64 or not np.isfinite(columns[name]).all():
            raise ValueError(f"its {name} holds something else than finite numbers")
    if (columns["weight"] < 0).any():
        raise ValueError("its weight holds numbers below 0")


def _check_memory(arrays: dict[str, NDArray[Any]], known: TransitionTable) -> None:
    """Refuses the memory of a sampler that leads outside of the tables."""
    states, none = known.num_states, np.zeros(0, np.int64)
    seen, count = arrays.get("memory_seen", none), arrays.get("memory_count", none)
    at, position = arrays.get("memory_at", none), arrays.get("memory_position", none)
    wrong = (seen < 0).any() or (seen >= states).any() or (count < 0).any()
    wrong |= (count > states).any() or (at < -1).any() or (position < 0).any()
    if seen.size:
        # Its two halves are permutations of the states, each the inverse of the other.
        there = np.take_along_axis(seen[1], seen[0], axis=-1) if not wrong else seen[0]
        wrong |= (there != np.arange(states)).any()
    if at.size and known.mdp is not None:
        wrong |= (at >= states).any()
    if position.size:
        wrong |= position[1] >= known.num_groups
    if wrong:
        raise ValueError("the memory of its sampler is damaged")


def _describe_identity(run: SampledRun) -> dict[str, Any]:
    """What must be the same for a run to go on, in words."""
    policy = run.source.policy
    found = (
        run.kind,
        run.discount,
        describe_sampler(run.sampler),
        run.seed,
        run.source.table.num_states,
        None if policy is None else hashlib.sha256(policy.tobytes()).hexdigest()[:8],
    )
    return dict(zip(IDENTITY_FIELDS, found, strict=True))


def _read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with open_archive(path) as opened:
            arrays = {name: opened[name] for name in opened.files}
        told, seal = str(arrays.pop("about")), str(arrays.pop("seal"))
        about = parse_object(told)
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        # Kernels trust the numbers of a run without looking.
        if seal != compute_checksum(told, arrays):
            raise ValueError("it was changed after it was saved")
    except (*ARCHIVE_ERRORS, *METADATA_ERRORS) as error:
        raise _malformed_run(path, error) from None
    return about, arrays


def _malformed_run(path: str | os.PathLike[str], error: Exception) -> InputError:
    what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"{path} is cut short or no saved run of bisimetric ({what}); make one with checkpoint=."
    )
