"""Files of distances: an `.npz` readable by plain NumPy, or the folder of a Zarr matrix."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator
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
from bisimetric.mdp import MDP, StateLabels

if TYPE_CHECKING:
    from bisimetric.distance import Distance, DistanceBounds

FORMAT = "bisimetric distance, version 1"
BOUNDS_FORMAT = "bisimetric distance bounds, version 1"


def write(distance: Distance, path: str | os.PathLike[str]) -> None:
    """Write a distance to one `.npz` file."""
    _write(path, {"values": distance.values, **_collect_arrays(distance)})


def write_matrix_metadata(
    distance: Distance, folder: Path, row_index: NDArray[np.integer], argmax: tuple[int, int]
) -> None:
    """Write everything but the matrix into the folder that holds the matrix.

    `row_index` (S,) is the row and column of each state, `argmax` the pair of states at the largest
    distance.
    """
    matrix = {"row_index": row_index, "argmax": np.array(argmax)}
    _write(folder / zarr_matrix.METADATA, {**_collect_arrays(distance), **matrix})


def write_bounds(bounds: DistanceBounds, path: str | os.PathLike[str]) -> None:
    """Write bounds on distances to one `.npz` file."""
    arrays = _collect_arrays(bounds.to_distance())
    about = {
        "format": BOUNDS_FORMAT,
        "kind": bounds.kind,
        "confidence": bounds.confidence,
        "discount": bounds.mdp.discount,
        "metadata": bounds.metadata,
    }
    _write(
        path,
        {
            **arrays,
            "lower": bounds.lower,
            "upper": bounds.upper,
            "about": np.array(json.dumps(about)),
        },
    )


def _write(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    present = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    with write_atomically(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **present)


def _collect_arrays(distance: Distance) -> dict[str, Any]:
    """Collect everything but the matrix, as arrays by name."""
    mdp, coverage = distance.mdp, distance.coverage
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": distance.kind,
        "error": _encode_bound(distance.error),
        "estimate": distance.estimate,
        "discount": mdp.discount,
        "metadata": distance.metadata,
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
        "labels": None if mdp.labels is None else tuple(mdp.labels) or None,
        "label_masks": np.array(list(mdp.labels.values())) if mdp.labels else None,
        "choice_labels": mdp.choice_labels,
        "observations": mdp.observations,
        "ground_distance": None if mdp.ground_distance is None else mdp.ground_distance.encode(),
        "is_empirical": mdp.is_empirical or None,
        "policy": distance.policy,
    }
    if coverage is not None:
        about["coverage"] = {
            "error": _encode_bound(coverage.error),
            "rounding": coverage.rounding,
            "num_paired": coverage.num_paired,
            "num_transition_pairs": coverage.num_transition_pairs,
        }
        arrays |= {
            "known": coverage.known,
            "determined": coverage.determined,
            "visited": coverage.visited,
        }
    return {**arrays, "about": np.array(json.dumps(about))}


def read(path: str | os.PathLike[str], factory: Callable[..., Distance]) -> Distance:
    """Read what `write` wrote; `factory` builds the distance and validates it."""
    folder = Path(path) if zarr_matrix.is_matrix_folder(path) else None
    rows = None if folder is None else zarr_matrix.open_matrix(folder / zarr_matrix.VALUES, "r")
    found = _read_arrays(path if folder is None else folder / zarr_matrix.METADATA, path)
    with _report_wrong_format(path, "distance file", "bisimetric exact ... -o"):
        about = _parse_about(found, FORMAT)
        estimate = about.get("estimate")
        return factory(
            _validate_values(found) if rows is None else _build_matrix(rows, found),
            _decode_bound(about["error"]),
            about["kind"],
            _build_mdp(found, about["discount"]),
            found.get("policy"),
            about["metadata"],
            None if estimate is None else _validate_number("estimate", estimate),
            _build_coverage(found, about),
        )


def read_bounds(
    path: str | os.PathLike[str], factory: Callable[..., DistanceBounds]
) -> DistanceBounds:
    """Read what `write_bounds` wrote; `factory` builds the bounds and validates them."""
    found = _read_arrays(path, path)
    with _report_wrong_format(
        path, "file of distance bounds", "bisimetric exact confidence-bounds -o"
    ):
        about = _parse_about(found, BOUNDS_FORMAT)
        return factory(
            _validate_values(found, "lower"),
            _validate_values(found, "upper"),
            about["kind"],
            _build_mdp(found, about["discount"]),
            found.get("policy"),
            _validate_number("confidence", about["confidence"]),
            about["metadata"],
        )


def _read_arrays(
    path: str | os.PathLike[str], source: str | os.PathLike[str]
) -> dict[str, NDArray[Any]]:
    """Read all arrays of an archive; errors name the source."""
    try:
        with open_archive(path) as opened:
            return {name: opened[name] for name in opened.files}
    except ARCHIVE_ERRORS as error:
        raise InputError(
            f"{source} is cut short or no distance file ({error}); compute it again with "
            "`bisimetric exact ... -o`."
        ) from None


@contextlib.contextmanager
def _report_wrong_format(path: str | os.PathLike[str], what: str, command: str) -> Iterator[None]:
    """Raise InputError about a file whose contents do not fit."""
    try:
        yield
    except METADATA_ERRORS as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is no {what} of bisimetric ({reason}); write one with `{command}`."
        ) from None


def _parse_about(found: dict[str, NDArray[Any]], expected_format: str) -> dict[str, Any]:
    """Return the description of a file of some format."""
    about = parse_object(str(found["about"]))
    if about["format"] != expected_format:
        raise ValueError(f"its format is {about['format']!r}")
    if not isinstance(about["metadata"], dict):
        raise ValueError(f"its metadata is {about['metadata']!r} and must be an object")
    return about


def _encode_bound(bound: float) -> float | None:
    """Encode a bound for JSON, which has no infinity, as None."""
    return bound if math.isfinite(bound) else None


def _decode_bound(number: Any) -> float:
    return math.inf if number is None else _validate_number("error", number)


def _validate_number(name: str, number: Any) -> float:
    """Return a finite number of the metadata as a float."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"its {name} is {number!r} and must be a number")
    if not math.isfinite(number):
        raise ValueError(f"its {name} is {number} and must be finite")
    return float(number)


def _validate_values(found: dict[str, NDArray[Any]], name: str = "values") -> NDArray[np.floating]:
    values = found[name]
    if values.dtype not in (np.float32, np.float64) or not np.isfinite(values).all():
        raise ValueError("its matrix holds values that are not finite floats")
    if values.size == 0:
        raise ValueError("its matrix is empty")
    return values


def _build_matrix(rows: Any, found: dict[str, NDArray[Any]]) -> zarr_matrix.ZarrMatrix:
    index, argmax = found["row_index"], found["argmax"]
    if index.ndim != 1 or not index.size or {index.dtype.kind, argmax.dtype.kind} - {*"iu"}:
        raise ValueError("its row_index is not one row per state")
    s, t = map(int, argmax)
    num_rows = int(index.max()) + 1
    if rows.dtype not in (np.float32, np.float64) or rows.shape != (num_rows, num_rows):
        raise ValueError(
            f"its matrix is {rows.dtype} of shape {rows.shape}, and row_index needs {num_rows} rows"
        )
    if not (index.min() >= 0 and 0 <= s < len(index) and 0 <= t < len(index)):
        raise ValueError("its row_index or argmax is out of range")
    return zarr_matrix.ZarrMatrix(rows, index, (s, t))


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
        labels=_build_labels(found, states),
        choice_labels=found["choice_labels"].tolist() if "choice_labels" in found else None,
        observations=found.get("observations"),
        ground_distance=_build_ground_distance(found),
        is_empirical=bool(found.get("is_empirical", False)),
    )


def _build_labels(found: dict[str, NDArray[Any]], states: int) -> StateLabels | None:
    if "labels" not in found:
        return None
    masks = found["label_masks"]
    if masks.shape != (len(found["labels"]), states) or masks.dtype != np.bool_:
        raise ValueError(f"its label_masks are {masks.dtype} of shape {masks.shape}")
    return StateLabels(dict(zip(found["labels"].tolist(), masks, strict=True)), states)


def _build_ground_distance(found: dict[str, NDArray[Any]]) -> str | NDArray[Any] | None:
    """Return the name of a ground distance, or its matrix."""
    array = found.get("ground_distance")
    return str(array) if array is not None and array.dtype.kind == "U" else array


def _build_coverage(found: dict[str, NDArray[Any]], facts: dict[str, Any]) -> Coverage | None:
    """Build the coverage, or return None if the file holds none."""
    if "coverage" not in facts and not {"known", "determined"} & found.keys():
        return None
    numbers = facts["coverage"]
    return Coverage(
        found["known"],
        found["determined"],
        _decode_bound(numbers["error"]),
        numbers["rounding"],
        numbers["num_paired"],
        numbers["num_transition_pairs"],
        found.get("visited", np.ones(len(found["known"]), np.bool_)),
    )
