"""Files of learned distances and of training runs: weights in safetensors, metadata in JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric._io import compute_checksum, write_atomically
from bisimetric.errors import InputError
from bisimetric.learned.network_files import CUSTOM_ENCODER, ENCODER_FIELDS, describe_network
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import TrainingState

if TYPE_CHECKING:
    from bisimetric.learned._fit import FitResult

DISTANCE_FORMAT = "bisimetric learned distance, version 2"
RUN_FORMAT = "bisimetric learning run, version 2"
HISTORY_PREFIX = "history "
"""How the names of recorded metrics begin among the tensors."""

CHECKSUM_KEY = "sha256"
"""The name of the checksum beside the metadata of a file."""

DAMAGE_ERRORS = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What damaged metadata or tensors may raise."""

VERSION_1_FORMAT = "bisimetric learned distance, version 1"
VERSION_1_KEYS = {
    "batch": "batch_size",
    "every": "log_every",
    "keys": "seeds",
    "most": "noise_clip",
    "period": "target_update_period",
    "rate": "horizon_growth",
    "steps": "updates",
}
"""Names in the metadata of the paper's networks and curves, which are tracked in git."""

FORMER_KEYS = {"output": "output_activation"}
"""Former names in the metadata of files of version 2."""

FieldCheck = Callable[[Any], bool]


def is_integer(value: Any, minimum: int = 0) -> bool:
    """Return whether a value read from JSON is an integer, at least `minimum`; a boolean is none.

    >>> is_integer(3), is_integer(True), is_integer(3.0)
    (True, False, False)
    """
    return type(value) is int and value >= minimum


def is_number(value: Any) -> bool:
    """Return whether a value read from JSON is a finite number; a boolean is none."""
    return type(value) in (int, float) and math.isfinite(value)


def are_integers(value: Any, minimum: int = 0) -> bool:
    """Return whether a value read from JSON is a list of integers."""
    return isinstance(value, list) and all(is_integer(each, minimum) for each in value)


def are_ascending(value: Any) -> bool:
    """Return whether a value read from JSON is a list of two or more ascending numbers.

    >>> are_ascending([-1.0, 0.0, 1.0]), are_ascending([1.0, 1.0]), are_ascending([0.0])
    (True, False, False)
    """
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(is_number(each) for each in value)
        and all(low < high for low, high in itertools.pairwise(value))
    )


def is_string(value: Any) -> bool:
    return isinstance(value, str)


def are_strings(value: Any) -> bool:
    """Return whether a value read from JSON is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_positive_integer(value: Any) -> bool:
    return is_integer(value, 1)


METADATA_FIELDS: dict[str, tuple[FieldCheck, str]] = {
    "kind": (is_string, "a string"),
    "discount": (is_number, "a number"),
    "algorithm": (is_string, "a string"),
    "form": (is_string, "a string"),
    "network": (lambda value: value == "own" or are_integers(value, 1), "a list of widths"),
    "activation": (is_string, "a string"),
    "output_activation": (is_string, "a string"),
    "init_weights": (is_string, "a string"),
    "num_groups": (_is_positive_integer, "an integer"),
    "group_size": (_is_positive_integer, "an integer"),
    "fourier_features": (
        lambda value: value is None or is_string(value) or is_integer(value),
        "an integer",
    ),
    "encoder": (
        lambda value: (
            value in (None, "flatten", CUSTOM_ENCODER)
            or (isinstance(value, dict) and value.keys() == set(ENCODER_FIELDS))
        ),
        "an encoder",
    ),
    "num_actions": (_is_positive_integer, "an integer"),
    "unit": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "parametrisation": (is_string, "a string"),
    "beta": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "reward_shift": (is_number, "a number"),
    "reward_scale": (
        lambda value: value is None or (is_number(value) and value >= 0),
        "a number, at least 0",
    ),
    "reduced": (lambda value: isinstance(value, bool), "a boolean"),
    "single_value": (lambda value: isinstance(value, bool), "a boolean"),
    "diameter_bound": (lambda value: is_number(value) and value >= 0, "a number, at least 0"),
    "num_networks": (_is_positive_integer, "an integer"),
    "horizon": (_is_positive_integer, "an integer"),
    "reward_values": (are_ascending, "a list of ascending numbers"),
    "observed_actions": (lambda value: are_integers(value) and bool(value), "a list of actions"),
    "has_terminal": (lambda value: isinstance(value, bool), "a boolean"),
    "shape": (lambda value: value is None or are_integers(value), "a list of integers"),
    "names": (lambda value: value is None or are_strings(value), "a list of strings"),
    "metadata": (lambda value: isinstance(value, dict), "an object"),
    "seeds": (are_integers, "a list of integers"),
    "source": (is_string, "a string"),
    "features": (_is_positive_integer, "an integer"),
    "effective_lookahead": (_is_positive_integer, "an integer"),
    "total_updates": (_is_positive_integer, "an integer"),
    "game": (is_string, "a string"),
    "key": (is_integer, "an integer"),
    "seed": (is_integer, "an integer"),
    "steps": (is_integer, "an integer"),
    "updates": (is_integer, "an integer"),
    "seconds": (is_number, "a number"),
    "settings": (lambda value: isinstance(value, dict), "an object"),
    "config": (lambda value: isinstance(value, dict), "an object"),
}
"""The type of each field of the metadata, where it is present; also of the files of Rainbow."""


def validate_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise a ValueError naming the first field of the wrong type.

    >>> validate_metadata({"discount": True})
    Traceback (most recent call last):
    ...
    ValueError: its discount is True and must be a number
    """
    for name, (is_valid, expected) in METADATA_FIELDS.items():
        if name in metadata and not is_valid(metadata[name]):
            raise ValueError(f"its {name} is {str(metadata[name])[:60]} and must be {expected}")
    observed, actions = metadata.get("observed_actions"), metadata.get("num_actions")
    if observed is not None and actions is not None and max(observed) >= actions:
        raise ValueError(f"its observed_actions reach {max(observed)} of {actions} actions")


def save_run(path: str | os.PathLike[str], result: FitResult, source_digest: str) -> None:
    """Write a checkpoint to resume from; the file appears complete or not at all.

    Args:
        path: the file.
        result: the run so far.
        source_digest: the fingerprint of what is learned from.
    """
    metadata = {
        "format": RUN_FORMAT,
        **describe_run(result.kind, result.discount, result.config, result.seeds),
        "source": source_digest,
        "features": result.source.scaling.num_features,
        "effective_lookahead": result.config.effective_lookahead(result.source, result.network),
        "total_updates": result.updates,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    tensors = name_leaves(_unwrap_key(result.state))
    tensors |= {f"{HISTORY_PREFIX}{name}": array for name, array in result.history.items()}
    write_tensors(path, tensors, metadata)


def restore_run(
    path: str | os.PathLike[str], initial: FitResult, source_digest: str
) -> tuple[TrainingState, dict[str, NDArray[np.float64]]]:
    """Return the state and the history of a checkpoint.

    Args:
        path: the file.
        initial: the same run before its first update.
        source_digest: the fingerprint of what is learned from.

    Raises:
        InputError: when the file is damaged or of another run.
    """
    tensors, metadata = read_tensors(path, RUN_FORMAT, "learning run")
    config = initial.config
    # Castro (2020) had neither of them in earlier files.
    metadata.setdefault("lookahead", 1)
    metadata.setdefault("average_compared", False)
    expected = describe_run(initial.kind, initial.discount, config, initial.seeds)
    for name, here in expected.items():
        # After a divergence one resumes with a smaller learning rate.
        if json.dumps(metadata.get(name)) != json.dumps(here) and name != "learning_rate":
            raise InputError(
                f"{path} is of another run: its {name} is {metadata.get(name)} and here it is "
                f"{here}; resume it with the same {name}, or start a new run."
            )
    leaves = name_leaves(_unwrap_key(initial.state))
    for name, leaf in leaves.items():
        if name not in tensors or tensors[name].shape != leaf.shape:
            shape = tensors[name].shape if name in tensors else "missing"
            raise InputError(
                f"{path} is of another network: its {name} is {shape} and here it is {leaf.shape}; "
                "resume it with the same network and features, or start a new run."
            )
        if tensors[name].dtype != leaf.dtype:
            raise InputError(
                f"{path} is damaged: its {name} is {tensors[name].dtype} and must be {leaf.dtype}; "
                "resume another file, or start a new run."
            )
    if metadata.get("source") != source_digest:
        raise InputError(
            f"{path} is of another run: its source differs from the source here; resume it with "
            "the same, or start a new run."
        )
    if metadata.get("total_updates") != initial.updates and config.decay:
        raise InputError(
            f"{path} is of a run of {metadata.get('total_updates')} updates, at which its learning "
            f"rate decays to 0; resume it with as many updates, or start a new run of "
            f"{initial.updates}."
        )
    completed = read_update_count(path, tensors)
    if completed > initial.updates:
        raise InputError(
            f"{path} holds {completed:,} updates and {initial.updates:,} are requested, including "
            "those; give more updates."
        )
    tree = jax.tree.structure(_unwrap_key(initial.state))
    arrays = [jax.numpy.asarray(tensors[name], leaf.dtype) for name, leaf in leaves.items()]
    plain: TrainingState = jax.tree.unflatten(tree, arrays)
    state = plain._replace(key=jax.random.wrap_key_data(plain.key))
    return state, extract_history(tensors)


def read_update_count(path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]]) -> int:
    """Return the number of updates of a saved run."""
    step = tensors.get(".step")
    if step is None or step.shape != () or step.dtype != np.int32 or step < 0:
        raise InputError(f"{path} is damaged: it has no number of updates; start a new run.")
    return int(step)


def extract_history(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Return the recorded metrics among the tensors of a file, by name."""
    return {
        name.removeprefix(HISTORY_PREFIX): array
        for name, array in tensors.items()
        if name.startswith(HISTORY_PREFIX)
    }


def compute_fingerprint(source: TrainingSource) -> str:
    """Return a digest of the arrays of a source."""
    scaling = source.scaling
    digest = hashlib.sha256(repr((type(source).__name__, scaling.has_terminal)).encode())
    if isinstance(source, StateSource):
        digest.update(repr((source.noise, source.noise_clip)).encode())
    arrays = jax.tree.leaves(dataclasses.replace(source, scaling=None))  # type: ignore[arg-type]
    for leaf in (scaling.shift, scaling.width, *arrays):
        array = np.ascontiguousarray(leaf)
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe_run(kind: str, discount: float, config: Any, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return as JSON what must be equal for a run to be resumed."""
    hyperparameters = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name != "network"
    }
    return {
        "kind": kind,
        "discount": discount,
        "algorithm": config.name,
        **describe_network(config.network),
        "seeds": list(seeds),
        **hyperparameters,
    }


def name_leaves(tree: Any, half_precision: bool = False) -> dict[str, NDArray[Any]]:
    """Return the leaves of a tree of arrays by their path, optionally rounded to float16.

    Raises:
        InputError: when a weight is beyond the range of float16.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    if not half_precision:
        return arrays
    largest = max((float(np.abs(array).max(initial=0)) for array in arrays.values()), default=0.0)
    if largest > float(np.finfo(np.float16).max):
        raise InputError(
            f"LearnedDistance: a weight is {largest:.3g}, beyond half precision; leave out "
            "half_precision."
        )
    return {name: array.astype(np.float16) for name, array in arrays.items()}


def write_tensors(
    path: str | os.PathLike[str], tensors: dict[str, Any], metadata: dict[str, Any]
) -> None:
    """Write tensors and metadata with their checksum; the file appears complete or not at all."""
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    if (name := _find_non_finite(arrays)) is not None:
        raise InputError(
            f"cannot write {path}: {name} holds NaN or infinity; train with a smaller "
            "learning rate."
        )
    text = json.dumps(metadata)
    header = {"about": text, CHECKSUM_KEY: compute_checksum(text, arrays)}
    with write_atomically(path) as temporary:
        save_file(arrays, temporary, metadata=header)


def read_tensors(
    path: str | os.PathLike[str], expected_format: str, description: str
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read the tensors and the metadata of a file of the expected format.

    A checksum must match; files of version 1 may have none. Every tensor except the history must
    be finite, and the fields of the metadata must have the right types.

    Raises:
        InputError: when the file is damaged or of another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            header = file.metadata() or {}
            text = header.get("about", "{}")
            metadata = json.loads(text)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if expected_format == DISTANCE_FORMAT and metadata.get("format") == VERSION_1_FORMAT:
            metadata = _rename_version_1_keys(metadata)
        elif metadata.get("format") != expected_format:
            raise ValueError(f"its format is {metadata.get('format')!r}")
        metadata = _rename_former_keys(metadata)
        others = header.keys() - {"about"}
        if others and header.get(CHECKSUM_KEY) != compute_checksum(text, tensors):
            raise ValueError("its checksum does not match: it was changed after it was saved")
        if (name := _find_non_finite(tensors)) is not None:
            raise ValueError(f"its {name} holds NaN or infinity")
        _validate_history(extract_history(tensors))
        validate_metadata(metadata)
    except FileNotFoundError:
        raise FileNotFoundError(f"cannot read {path}: there is no such file.") from None
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
    except (SafetensorError, *DAMAGE_ERRORS) as error:
        raise InputError(
            f"{path} is damaged or no {description} of bisimetric ({error})."
        ) from None
    return tensors, metadata


def rename_keys(metadata: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata with other names for some keys, in the same order.

    >>> rename_keys({"batch": 64, "seed": 1}, {"batch": "batch_size"})
    {'batch_size': 64, 'seed': 1}
    """
    return {names.get(name, name): each for name, each in metadata.items()}


def _rename_former_keys(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a file with the present names of its keys."""
    renamed = rename_keys(metadata, FORMER_KEYS)
    if isinstance(renamed.get("metadata"), dict):
        renamed["metadata"] = rename_keys(renamed["metadata"], FORMER_KEYS)
    return renamed


def _rename_version_1_keys(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a file of version 1, all of which are of Castro (2020)."""
    for name in ("made", "ends"):
        if name not in metadata:
            raise ValueError(f"it has no {name}")
    if not isinstance(metadata["made"], dict):
        raise ValueError(f"its metadata is {str(metadata['made'])[:60]} and must be an object")
    details = rename_keys(metadata["made"], VERSION_1_KEYS)
    others = {name: each for name, each in metadata.items() if name not in ("made", "ends")}
    return {
        **others,
        "has_terminal": metadata["ends"],
        "metadata": {**details, "algorithm": "castro2020"},
    }


def _validate_history(history: dict[str, NDArray[Any]]) -> None:
    """Raise a ValueError unless every metric holds floats, one per record."""
    step = history.get("step", np.zeros(0))
    if step.ndim != 1 or not np.isfinite(step).all():
        raise ValueError("its history has steps that are no numbers")
    for name, array in history.items():
        if array.dtype != np.float64 or array.ndim not in (1, 2) or array.shape[-1] != len(step):
            raise ValueError(f"its history of {name} is {array.dtype} of shape {array.shape}")


def _find_non_finite(tensors: dict[str, NDArray[Any]]) -> str | None:
    """Return the first tensor with NaN or infinity; missing entries of a history are NaN."""
    for name, array in tensors.items():
        checked = array.dtype.kind == "f" and not name.startswith(HISTORY_PREFIX)
        if checked and not np.isfinite(array).all():
            return name
    return None


def _unwrap_key(state: TrainingState) -> TrainingState:
    """Return the state with its random keys as plain integers."""
    return state._replace(key=jax.random.key_data(state.key))
