"""Weights in safetensors files: a training run to go on with, and a learned distance."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric.errors import InputError
from bisimetric.files import written_beside
from bisimetric.learned.losses import Kind
from bisimetric.learned.networks import PairNetwork
from bisimetric.learned.training import Settings, State

if TYPE_CHECKING:
    from bisimetric.learned.fitting import Fit

RUN = "bisimetric learning run, version 1"
HISTORY = "history "


def save(path: str | os.PathLike[str], fit: Fit) -> None:
    """Writes all that it takes to go on; the file appears whole or not at all."""
    about = {
        "format": RUN,
        **told(fit.kind, fit.discount, fit.settings, fit.keys),
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    tensors = named(_plain(fit.state))
    tensors |= {f"{HISTORY}{name}": array for name, array in fit.history.items()}
    write(path, tensors, about)


def restored(
    path: str | os.PathLike[str],
    kind: Kind,
    discount: float,
    settings: Settings,
    keys: tuple[int, ...],
    start: State,
) -> tuple[State, dict[str, list[NDArray[np.float64]]]]:
    """The state and the history of a saved run of the same kind, from its file."""
    tensors, about = read(path, RUN, "learning run")
    for name, here in told(kind, discount, settings, keys).items():
        if about.get(name) != here:
            raise InputError(
                f"{path} is of another run: its {name} is {about.get(name)} and here it is {here}; "
                f"resume it with the same {name}, or start anew."
            )
    wanted = named(_plain(start))
    for name, leaf in wanted.items():
        if name not in tensors or tensors[name].shape != leaf.shape:
            found = tensors[name].shape if name in tensors else "missing"
            raise InputError(
                f"{path} is of another network: its {name} is {found} and here it is {leaf.shape}; "
                "resume it with the same network and features, or start anew."
            )
    leaves, tree = jax.tree.flatten(_plain(start))
    plain: State = jax.tree.unflatten(tree, [tensors[name] for name in wanted])
    state = plain._replace(key=jax.random.wrap_key_data(np.asarray(plain.key)))
    state = jax.tree.map(jax.numpy.asarray, state)
    history = {
        name.removeprefix(HISTORY): list(np.moveaxis(array, -1, 0))
        for name, array in tensors.items()
        if name.startswith(HISTORY)
    }
    return state, history


def told(kind: str, discount: float, settings: Settings, keys: tuple[int, ...]) -> dict[str, Any]:
    """What must be the same for a run to go on, in words."""
    how = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name != "network"
    }
    return {
        "kind": kind,
        "discount": discount,
        "network": described(settings.network),
        "keys": list(keys),
        **how,
    }


def described(network: Any) -> Any:
    """A network in words: the widths of its hidden layers, or that it is one's own."""
    return list(network.hidden) if isinstance(network, PairNetwork) else "own"


def named(tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a tree of arrays by their place in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in leaves}


def write(path: str | os.PathLike[str], tensors: dict[str, Any], about: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    with written_beside(path) as beside:
        save_file(whole, beside, metadata={"about": json.dumps(about)})


def read(
    path: str | os.PathLike[str], wanted: str, what: str
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("about", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.get("format") != wanted:
            raise ValueError(f"its format is {about.get('format')!r}")
    except FileNotFoundError:
        raise FileNotFoundError(f"cannot read {path}: there is no such file.") from None
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
    except (SafetensorError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is cut short or no {what} of bisimetric ({error}).") from None
    return tensors, about


def _plain(state: State) -> State:
    """A state whose random keys are plain numbers."""
    return state._replace(key=jax.random.key_data(state.key))
