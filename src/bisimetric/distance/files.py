"""The file of a distance: one `.npz`, readable by plain NumPy; or the folder of a stored table."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._io import (
    ARCHIVE_ERRORS,
    METADATA_ERRORS,
    open_archive,
    parse_object,
    validate_csr,
    write_atomically,
)
from bisimetric.distance import zarr_matrix
from bisimetric.distance.coverage import Coverage
from bisimetric.errors import InputError
from bisimetric.mdp import MDP

if TYPE_CHECKING:
    from bisimetric.distance import Distance

FORMAT = "bisimetric distance, version 1"


def write(distance: Distance, path: str | os.PathLike[str]) -> None:
    """Writes the table with all that it knows of itself."""
    _write(path, {"values": distance.values, **_collect_arrays(distance)})


def write_matrix_metadata(
    distance: Distance, folder: Path, row_index: NDArray[np.integer], argmax: tuple[int, int]
) -> None:
    """Writes all that a distance knows besides its table, into the folder of that table."""
    more = {"place": row_index, "farthest": np.array(argmax)}
    _write(folder / zarr_matrix.METADATA, {**_collect_arrays(distance), **more})


def _write(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    present = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    with write_atomically(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, **present)


def _collect_arrays(distance: Distance) -> dict[str, Any]:
    """What a distance knows besides its table, as arrays by name."""
    mdp, coverage = distance.mdp, distance.coverage
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": distance.kind,
        "error": _encode_bound(distance.error),
        "estimate": distance.estimate,
        "discount": mdp.discount,
        "made": distance.metadata,
    }
    arrays: dict[str, Any] = {
        "rewards": mdp.R,
        "successors": mdp.P.indices,
        "probabilities": mdp.P.data,
        "rows": mdp.P.indptr,
        "names": mdp.names,
        "actions": mdp.actions,
        "positions": mdp.positions,
        "features": mdp.features,
        "world_policy": mdp.policy,
        "available": mdp.available,
        "label_actions": mdp.label_actions or None,
        "is_empirical": mdp.is_empirical or None,
        "policy": distance.policy,
    }
    if coverage is not None:
        about["coverage"] = {
            "error": _encode_bound(coverage.error),
            "rounding": coverage.rounding,
            "met": coverage.num_paired,
            "pairs": coverage.num_transition_pairs,
        }
        arrays |= {
            "known": coverage.known,
            "determined": coverage.determined,
            "lived": coverage.visited,
        }
    return {**arrays, "about": np.array(json.dumps(about))}


def read(path: str | os.PathLike[str], factory: Callable[..., Distance]) -> Distance:
    """Reads what `write` wrote; `make` makes a distance of it, and checks it."""
    folder = Path(path) if zarr_matrix.is_matrix_folder(path) else None
    rows = None if folder is None else zarr_matrix.open_matrix(folder / zarr_matrix.VALUES, "r")
    try:
        with open_archive(path if folder is None else folder / zarr_matrix.METADATA) as opened:
            found = {name: opened[name] for name in opened.files}
    except ARCHIVE_ERRORS as error:
        raise InputError(
            f"{path} is cut short or no distance file ({error}); make it again with "
            "`bisimetric exact ... -o`."
        ) from None
    try:
        about = parse_object(str(found["about"]))
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        made, estimate = about["made"], about.get("estimate")
        if not isinstance(made, dict):
            raise ValueError(f"its 'made' is {made!r} and must be an object")
        return factory(
            _validate_values(found) if rows is None else _build_matrix(rows, found),
            _decode_bound(about["error"]),
            about["kind"],
            _build_mdp(found, about["discount"]),
            found.get("policy"),
            made,
            None if estimate is None else _validate_number("estimate", estimate),
            _build_coverage(found, about),
        )
    except METADATA_ERRORS as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is no distance file of bisimetric ({what}); make one with "
            "`bisimetric exact ... -o`."
        ) from None


def _encode_bound(bound: float) -> float | None:
    """A bound as JSON knows it, which has no infinity."""
    return bound if math.isfinite(bound) else None


def _decode_bound(number: Any) -> float:
    return math.inf if number is None else _validate_number("error", number)


def _validate_number(name: str, number: Any) -> float:
    """A number of the metadata as a float."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"its {name} is {number!r} and must be a number")
    if not math.isfinite(number):
        raise ValueError(f"its {name} is {number} and must be finite")
    return float(number)


def _validate_values(found: dict[str, NDArray[Any]]) -> NDArray[np.floating]:
    values = found["values"]
    if values.dtype not in (np.float32, np.float64) or not np.isfinite(values).all():
        raise ValueError("its table holds something else than finite numbers")
    if values.size == 0:
        raise ValueError("its table is empty")
    return values


def _build_matrix(rows: Any, found: dict[str, NDArray[Any]]) -> zarr_matrix.ZarrMatrix:
    place, farthest = found["place"], found["farthest"]
    if place.ndim != 1 or not place.size or {place.dtype.kind, farthest.dtype.kind} - {*"iu"}:
        raise ValueError("its states have no place in its rows")
    s, t = map(int, farthest)
    if rows.dtype not in (np.float32, np.float64) or rows.shape != (int(place.max()) + 1,) * 2:
        raise ValueError(f"its rows are {rows.shape} of {rows.dtype}, and its states want others")
    if not (place.min() >= 0 and 0 <= s < len(place) and 0 <= t < len(place)):
        raise ValueError("its states have no place in its rows")
    return zarr_matrix.ZarrMatrix(rows, place, (s, t))


def _build_mdp(found: dict[str, NDArray[Any]], discount: float) -> MDP:
    states, actions = found["rewards"].shape
    for name, kinds in {"successors": "iu", "rows": "iu", "probabilities": "f"}.items():
        if found[name].ndim != 1 or found[name].dtype.kind not in kinds:
            raise ValueError(f"its {name} are {found[name].dtype} of shape {found[name].shape}")
    validate_csr(found["probabilities"], found["successors"], found["rows"], states)
    P = sparse.csr_array(
        (found["probabilities"], found["successors"], found["rows"]), (states * actions, states)
    )
    names, action_names = found.get("names"), found.get("actions")
    return MDP(
        P,
        found["rewards"],
        discount,
        names=None if names is None else tuple(names.tolist()),
        actions=None if action_names is None else tuple(action_names.tolist()),
        positions=found.get("positions"),
        features=found.get("features"),
        policy=found.get("world_policy"),
        available=found.get("available"),
        label_actions=tuple(found.get("label_actions", np.empty(0)).tolist()),
        is_empirical=bool(found.get("is_empirical", False)),
    )


def _build_coverage(found: dict[str, NDArray[Any]], facts: dict[str, Any]) -> Coverage | None:
    """The coverage of a table, or None where the file holds nothing of one."""
    if "coverage" not in facts and not {"known", "determined"} & found.keys():
        return None
    numbers = facts["coverage"]
    return Coverage(
        found["known"],
        found["determined"],
        _decode_bound(numbers["error"]),
        numbers["rounding"],
        numbers["met"],
        numbers["pairs"],
        found.get("lived", np.ones(len(found["known"]), np.bool_)),
    )
