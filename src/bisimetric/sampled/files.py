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
from bisimetric.errors import InputError, whole
from bisimetric.files import (
    MALFORMED,
    UNREADABLE,
    archive,
    compute_checksum,
    parse_object,
    written_beside,
)
from bisimetric.sampled.experience import COLUMNS, END, Experience
from bisimetric.sampled.known import Known
from bisimetric.sampled.samplers import described

if TYPE_CHECKING:
    from bisimetric.sampled.run import Run

FORMAT = "bisimetric sampled run, version 1"

ABOUT = ("kind", "discount", "sampler", "key", "states", "policy")


def save(path: str | os.PathLike[str], run: Run) -> None:
    """Writes one `.npz`; the file appears whole or not at all."""
    arrays: dict[str, Any] = {"values": run.values, "met": run.met}
    arrays |= {f"memory_{name}": array for name, array in run.memory.items()}
    experience = run.source.experience
    if experience is not None:
        arrays |= {f"seen_{name}": getattr(experience, name) for name in COLUMNS}
        called = {name: each for name, each in experience.names.items() if each is not None}
        arrays |= {f"called_{name}": np.asarray(each) for name, each in called.items()}
    about = {
        "format": FORMAT,
        **_told(run),
        "source": run.source.fingerprint,
        "steps": run.steps,
        "data": experience and [experience.steps, experience.living, experience.groups],
        "bisimetric": bisimetric.__version__,
    }
    told = json.dumps(about)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    seal = np.array(compute_checksum(told, arrays))
    with written_beside(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, about=np.array(told), seal=seal, **arrays)


def saved(path: str | os.PathLike[str], run: Run) -> tuple[int, dict[str, NDArray[Any]]]:
    """The steps and the arrays of a file, if it is of the same kind and source as a run."""
    about, arrays = _read(path)
    try:
        for name, here in _told(run).items():
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
        wanted: dict[str, NDArray[Any]] = {"values": run.values, "met": run.met}
        wanted |= {f"memory_{name}": array for name, array in run.memory.items()}
        for name, here in wanted.items():
            found = arrays[name]
            if (found.shape, found.dtype) != (here.shape, here.dtype):
                raise ValueError(f"its {name} has shape {found.shape}")
        if not (np.isfinite(arrays["values"]).all() and (arrays["values"] >= 0).all()):
            raise ValueError("its table holds something else than finite numbers, at least 0")
        _check_memory(arrays, run.source.known)
        steps = operator.index(about["steps"])
        if not 0 <= steps < 2**62:
            raise ValueError(f"its steps are {steps}")
        return steps, arrays
    except InputError:
        raise
    except MALFORMED as error:
        raise _no_run(path, error) from None


def saved_experience(path: str | os.PathLike[str]) -> Experience:
    """What a run on data had seen, for a stream to go on with."""
    about, arrays = _read(path)
    try:
        if about["data"] is None:
            raise InputError(f"{path} is of a run on a model, and no stream can go on with it.")
        steps, living, groups = (whole(str(path), "data", each) for each in about["data"])
        columns = {name: arrays[f"seen_{name}"] for name in COLUMNS}
        _check_columns(columns, living, groups)
        names: dict[str, Any] = {"positions": arrays.get("called_positions")}
        for name in ("names", "actions"):
            found = arrays.get(f"called_{name}")
            names[name] = None if found is None else tuple(found.tolist())
        return Experience(**columns, steps=steps, living=living, groups=groups, names=names)
    except InputError:
        raise
    except MALFORMED as error:
        raise _no_run(path, error) from None


def _check_columns(columns: dict[str, NDArray[Any]], living: int, groups: int) -> None:
    """Refuses transitions whose ids lead outside of the tables: kernels look nothing up twice."""
    lengths = {len(each) if each.ndim == 1 else -1 for each in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise ValueError("its transitions have columns of different lengths")
    for name, lowest, end in (
        ("group", 0, groups),
        ("action", 0, 2**62),
        ("state", 0, living),
        ("successor", END, living),
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


def _check_memory(arrays: dict[str, NDArray[Any]], known: Known) -> None:
    """Refuses the memory of a sampler that leads outside of the tables."""
    states, none = known.states, np.zeros(0, np.int64)
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
        wrong |= position[1] >= known.groups
    if wrong:
        raise ValueError("the memory of its sampler is damaged")


def _told(run: Run) -> dict[str, Any]:
    """What must be the same for a run to go on, in words."""
    policy = run.source.policy
    found = (
        run.kind,
        run.discount,
        described(run.sampler),
        run.key,
        run.source.known.states,
        None if policy is None else hashlib.sha256(policy.tobytes()).hexdigest()[:8],
    )
    return dict(zip(ABOUT, found, strict=True))


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with archive(path) as opened:
            arrays = {name: opened[name] for name in opened.files}
        told, seal = str(arrays.pop("about")), str(arrays.pop("seal"))
        about = parse_object(told)
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        # Kernels trust the numbers of a run without looking.
        if seal != compute_checksum(told, arrays):
            raise ValueError("it was changed after it was saved")
    except (*UNREADABLE, *MALFORMED) as error:
        raise _no_run(path, error) from None
    return about, arrays


def _no_run(path: str | os.PathLike[str], error: Exception) -> InputError:
    what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"{path} is cut short or no saved run of bisimetric ({what}); make one with checkpoint=."
    )
