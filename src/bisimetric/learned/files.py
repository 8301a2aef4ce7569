"""The metadata of learned files: which fields there are, and of which type.

Weights in safetensors files: a training run to go on with, and a learned distance.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.metric_networks import FreeNetwork, MetricNetwork, PairQEnsemble
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import Algorithm, TrainingState

if TYPE_CHECKING:
    from bisimetric.learned._fit import FitResult


FieldCheck = Callable[[Any], bool]


def is_integer(value: Any, minimum: int = 0) -> bool:
    """Whether a value read from JSON is an integer, at least `least`; a boolean is none.

    >>> is_whole(3), is_whole(True), is_whole(3.0)
    (True, False, False)
    """
    return type(value) is int and value >= minimum


def is_number(value: Any) -> bool:
    """Whether a value read from JSON is a finite number; a boolean is none."""
    return type(value) in (int, float) and math.isfinite(value)


def are_integers(value: Any, minimum: int = 0) -> bool:
    """Whether a value read from JSON is a list of integers."""
    return isinstance(value, list) and all(is_integer(each, minimum) for each in value)


def is_string(value: Any) -> bool:
    return isinstance(value, str)


def are_strings(value: Any) -> bool:
    """Whether a value read from JSON is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


METADATA_FIELDS: dict[str, tuple[FieldCheck, str]] = {
    "kind": (is_string, "a string"),
    "discount": (is_number, "a number"),
    "form": (is_string, "a string"),
    "network": (lambda value: value == "own" or are_integers(value, 1), "a list of widths"),
    "activation": (is_string, "a string"),
    "output": (is_string, "a string"),
    "init_weights": (is_string, "a string"),
    "groups": (lambda value: is_integer(value, 1), "an integer"),
    "size": (lambda value: is_integer(value, 1), "an integer"),
    "waves": (lambda value: value is None or is_string(value) or is_integer(value), "an integer"),
    "actions": (lambda value: is_integer(value, 1), "an integer"),
    "unit": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "most": (lambda value: is_number(value) and value >= 0, "a number, at least 0"),
    "copies": (lambda value: is_integer(value, 1), "an integer"),
    "taken": (lambda value: are_integers(value) and bool(value), "a list of actions"),
    "ends": (lambda value: isinstance(value, bool), "a boolean"),
    "shape": (lambda value: value is None or are_integers(value), "a list of integers"),
    "names": (lambda value: value is None or are_strings(value), "a list of strings"),
    "made": (lambda value: isinstance(value, dict), "an object"),
    "keys": (are_integers, "a list of integers"),
    "source": (is_string, "a string"),
    "features": (lambda value: is_integer(value, 1), "an integer"),
    "reach": (lambda value: is_integer(value, 1), "an integer"),
    "of": (lambda value: is_integer(value, 1), "an integer"),
    "game": (is_string, "a string"),
    "key": (is_integer, "an integer"),
    "steps": (is_integer, "an integer"),
    "seconds": (is_number, "a number"),
    "settings": (lambda value: isinstance(value, dict), "an object"),
}
"""What each field of the metadata must be, where it is present."""


def validate_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise a ValueError naming the first field of the wrong type.

    >>> check_metadata({"discount": True})
    Traceback (most recent call last):
    ...
    ValueError: its discount is True and must be a number
    """
    for name, (right, what) in METADATA_FIELDS.items():
        if name in metadata and not right(metadata[name]):
            raise ValueError(f"its {name} is {str(metadata[name])[:60]} and must be {what}")
    taken, actions = metadata.get("taken"), metadata.get("actions")
    if taken is not None and actions is not None and max(taken) >= actions:
        raise ValueError(f"its taken is {max(taken)} and there are {actions} actions")


RUN_FORMAT = "bisimetric learning run, version 1"
HISTORY_PREFIX = "history "


def save_run(path: str | os.PathLike[str], result: FitResult, source_digest: str) -> None:
    """Writes all that it takes to go on; the file appears whole or not at all.

    `source` is the fingerprint of what is learned from.
    """
    about = {
        "format": RUN_FORMAT,
        **describe_run(result.kind, result.discount, result.config, result.seeds),
        "source": source_digest,
        "features": result.source.scaling.num_features,
        "reach": result.config.effective_lookahead(result.source, result.network),
        "of": result.updates,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    tensors = name_leaves(_unwrap_key(result.state))
    tensors |= {f"{HISTORY_PREFIX}{name}": array for name, array in result.history.items()}
    write_tensors(path, tensors, about)


def restore_run(
    path: str | os.PathLike[str],
    kind: LearnedKind,
    discount: float,
    config: Algorithm,
    seeds: tuple[int, ...],
    source_digest: str,
    initial_state: TrainingState,
    updates: int,
) -> tuple[TrainingState, dict[str, NDArray[np.float64]]]:
    """The state and the history of a saved run of the same kind, from its file."""
    tensors, about = read_tensors(path, RUN_FORMAT, "learning run")
    for name, here in describe_run(kind, discount, config, seeds).items():
        # After a divergence one goes on with a smaller one.
        if json.dumps(about.get(name)) != json.dumps(here) and name != "learning_rate":
            raise InputError(
                f"{path} is of another run: its {name} is {about.get(name)} and here it is {here}; "
                f"resume it with the same {name}, or start anew."
            )
    wanted = name_leaves(_unwrap_key(initial_state))
    for name, leaf in wanted.items():
        if name not in tensors or tensors[name].shape != leaf.shape:
            found = tensors[name].shape if name in tensors else "missing"
            raise InputError(
                f"{path} is of another network: its {name} is {found} and here it is {leaf.shape}; "
                "resume it with the same network and features, or start anew."
            )
        if tensors[name].dtype != leaf.dtype:
            raise InputError(
                f"{path} is damaged: its {name} is {tensors[name].dtype} and must be {leaf.dtype}; "
                "resume another file, or start anew."
            )
    if about.get("source") != source_digest:
        raise InputError(
            f"{path} is of another run: what it learns from differs from the source here; resume "
            "it with the same, or start anew."
        )
    if about.get("of") != updates and config.decay:
        raise InputError(
            f"{path} is of a run of {about.get('of')} steps, and its learning rate falls to 0 "
            f"there; resume it with as many, or start anew with {updates}."
        )
    tree = jax.tree.structure(_unwrap_key(initial_state))
    arrays = [jax.numpy.asarray(tensors[name], leaf.dtype) for name, leaf in wanted.items()]
    plain: TrainingState = jax.tree.unflatten(tree, arrays)
    read_update_count(path, tensors)
    state = plain._replace(key=jax.random.wrap_key_data(plain.key))
    return state, extract_history(tensors)


def read_update_count(path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]]) -> int:
    """How many steps a saved run has taken."""
    step = tensors.get(".step")
    if step is None or step.shape != () or step.dtype != np.int32 or step < 0:
        raise InputError(f"{path} is damaged: it does not say how many steps it took; start anew.")
    return int(step)


def extract_history(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """The metrics among the tensors of a file, by name."""
    return {
        name.removeprefix(HISTORY_PREFIX): array
        for name, array in tensors.items()
        if name.startswith(HISTORY_PREFIX)
    }


def compute_fingerprint(source: TrainingSource) -> str:
    """Tells one source from another: a digest of its numbers."""
    scale = source.scaling
    digest = hashlib.sha256(repr((type(source).__name__, scale.has_terminal)).encode())
    if isinstance(source, StateSource):
        digest.update(repr((source.noise, source.noise_clip)).encode())
    for leaf in (scale.shift, scale.width, *jax.tree.leaves(source)):
        array = np.ascontiguousarray(leaf)
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe_run(kind: str, discount: float, config: Any, seeds: tuple[int, ...]) -> dict[str, Any]:
    """What must be the same for a run to go on, in words."""
    how = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name != "network"
    }
    return {
        "kind": kind,
        "discount": discount,
        **describe_network(config.network),
        "keys": list(seeds),
        **how,
    }


def describe_network(network: Any) -> dict[str, Any]:
    """A network in words: the widths of its hidden layers, and what else tells it from others."""
    if isinstance(network, PairQEnsemble):
        sizes = {name: getattr(network, name) for name in ENSEMBLE_FIELDS}
        return {**describe_network(network.network), **sizes}
    for form, shape in NETWORK_FIELDS.items():
        if isinstance(network, form):
            how = {name: getattr(network, name) for name in shape}
            return {"form": NETWORK_FORMS[form], "network": list(network.hidden), **how}
    return {"network": "own"}


def build_network(metadata: dict[str, Any]) -> Any:
    """The network that `described` tells of."""
    names = {name: form for form, name in NETWORK_FORMS.items()}
    form = names[metadata.get("form", "pairs")]
    how = {name: metadata[name] for name in NETWORK_FIELDS[form] if name in metadata}
    if form is PairNetwork:
        return PairNetwork(tuple(metadata["network"]), **{"output": "relu", **how})
    network = form(tuple(metadata["network"]), **how)
    return PairQEnsemble(network, **{name: metadata[name] for name in ENSEMBLE_FIELDS})


ENSEMBLE_FIELDS = ("actions", "unit", "most", "copies", "taken")
NETWORK_FORMS: dict[Any, str] = {PairNetwork: "pairs", MetricNetwork: "metric", FreeNetwork: "free"}
NETWORK_FIELDS: dict[Any, tuple[str, ...]] = {
    PairNetwork: ("activation", "output", "init_weights"),
    MetricNetwork: ("groups", "size", "waves", "activation"),
    FreeNetwork: ("waves",),
}


def name_leaves(tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a tree of arrays by their place in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in leaves}


CHECKSUM_KEY = "sha256"
"""The name of the checksum beside the metadata of a file."""


def write_tensors(
    path: str | os.PathLike[str], tensors: dict[str, Any], about: dict[str, Any]
) -> None:
    """Write tensors and metadata with their checksum; the file appears whole or not at all."""
    from safetensors.numpy import save_file

    whole = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    if (wrong := _find_non_finite(whole)) is not None:
        raise InputError(
            f"cannot write {path}: {wrong} holds NaN or infinity; train with a smaller "
            "learning rate."
        )
    text = json.dumps(about)
    metadata = {"about": text, CHECKSUM_KEY: compute_checksum(text, whole)}
    with write_atomically(path) as beside:
        save_file(whole, beside, metadata=metadata)


def read_tensors(
    path: str | os.PathLike[str], expected_format: str, description: str
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read the tensors and the metadata of a file of the format `wanted`.

    A checksum must match. Files without one are older; of these, as of all, every tensor but the
    history must be finite, and the metadata must be of the right types.

    Raises:
        InputError: where the file is damaged or of another format; it is named.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            text = metadata.get("about", "{}")
            about = json.loads(text)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.get("format") != expected_format:
            raise ValueError(f"its format is {about.get('format')!r}")
        others = metadata.keys() - {"about"}
        if others and metadata.get(CHECKSUM_KEY) != compute_checksum(text, tensors):
            raise ValueError("its checksum does not match: it was changed after it was saved")
        if (wrong := _find_non_finite(tensors)) is not None:
            raise ValueError(f"its {wrong} holds NaN or infinity")
        _validate_history(extract_history(tensors))
        validate_metadata(about)
    except FileNotFoundError:
        raise FileNotFoundError(f"cannot read {path}: there is no such file.") from None
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
    except (SafetensorError, *DAMAGE_ERRORS) as error:
        raise InputError(
            f"{path} is cut short or no {description} of bisimetric ({error})."
        ) from None
    return tensors, about


DAMAGE_ERRORS = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What damaged metadata or tensors may raise."""


def _validate_history(history: dict[str, NDArray[Any]]) -> None:
    """Raise a ValueError unless every metric is floats, one per recorded step."""
    step = history.get("step", np.zeros(0))
    if step.ndim != 1 or not np.isfinite(step).all():
        raise ValueError("its history has steps that are no numbers")
    for name, array in history.items():
        if array.dtype != np.float64 or array.ndim not in (1, 2) or array.shape[-1] != len(step):
            raise ValueError(f"its history of {name} is {array.dtype} of shape {array.shape}")


def _find_non_finite(tensors: dict[str, NDArray[Any]]) -> str | None:
    """The first tensor with NaN or infinity; a history may have gaps, which are NaN."""
    for name, array in tensors.items():
        number = (
            name.startswith(HISTORY_PREFIX) or array.dtype.kind != "f" or np.isfinite(array).all()
        )
        if not number:
            return name
    return None


def _unwrap_key(state: TrainingState) -> TrainingState:
    """A state whose random keys are plain numbers."""
    return state._replace(key=jax.random.key_data(state.key))
