"""Minari's data sets: every transition of every episode, from this machine's own store."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import name_input_errors
from bisimetric._memory import require_memory
from bisimetric._optional import import_optional
from bisimetric._progress import show_progress
from bisimetric.datasets.actions import ActionEncoder
from bisimetric.datasets.observations import (
    ObservationEncoder,
    StateOf,
    num_discrete_values,
    unstack_values,
)
from bisimetric.errors import InputError, InsufficientMemory, suggest_names
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions
from bisimetric.transitions._validation import collect_metadata
from bisimetric.worlds import gymnasium_envs
from bisimetric.worlds.gymnasium_envs import make_environment

TOY_TEXT = "gymnasium.envs.toy_text"
"""Where the environments are that `worlds.toy_text` knows the states of."""
MAX_COMPRESSION = 1032
"""The most by which DEFLATE, HDF5's usual filter, shrinks anything."""


def from_minari(dataset: Any, *, state_of: StateOf | None = None) -> Transitions:
    """The transitions of a Minari data set: one that is given, or the id of a local one.

    Local ones lie in the folder MINARI_DATASETS_PATH, by default ~/.minari/datasets. Nothing is
    downloaded: `minari download ID` does that.

    A step that terminated is an end; a truncated one, and the last of every episode that did
    not end, is a cut. Observations, actions and ids of states are kept as `rollout` keeps them;
    `state_of(None, observation)` may tell states apart. Minari's recorder stores images as JPEG,
    unless told otherwise: they come back a little changed.

        from_minari("D4RL/pointmaze/umaze-v2")
    """
    if isinstance(dataset, str | os.PathLike):
        dataset = _load_dataset(os.fspath(dataset))
    if not (hasattr(dataset, "iterate_episodes") and hasattr(dataset, "observation_space")):
        raise InputError(
            f"datasets: {type(dataset).__name__} is no Minari data set; give one, or the id of a "
            "local one."
        )
    where = f"Minari's {dataset.id}"
    space, spec = dataset.observation_space, dataset.env_spec
    known = _describe_toy_text(spec, num_discrete_values(space))
    observer = ObservationEncoder(space, where, state_of, known_states=known)
    actions = ActionEncoder(dataset.action_space, where)
    parts: list[dict[str, Any]] = []
    with show_progress(1.0, where) as progress:
        for number, episode in enumerate(_iterate_episodes(where, dataset)):
            if len(episode.rewards):
                with name_input_errors(where):
                    parts.append(_read_episode(episode, observer, actions))
            progress.set_position((number + 1) / max(1, dataset.total_episodes))
    if not parts:
        raise InputError(f"{where}: has no steps.")
    columns: dict[str, Any] = {
        name: freeze(np.concatenate([part[name] for part in parts])) for name in parts[0]
    }
    with name_input_errors(where):
        return Transitions(
            **columns,
            num_actions=actions.num_actions,
            action_names=known.get("actions"),
            metadata=collect_metadata(
                {
                    "dataset": dataset.id,
                    "environment": None if spec is None else spec.id,
                    "minari": getattr(dataset, "minari_version", None),
                }
            ),
            **observer.describe_states(),
        )


def _iterate_episodes(dataset_name: str, dataset: Any) -> Iterator[Any]:
    """The episodes of a data set, one by one, as its storage gives them."""
    episodes = iter(dataset.iterate_episodes())
    while True:
        try:
            episode = next(episodes)
        except StopIteration:
            return
        except Exception as error:
            # Minari raises what its storage raises, of which there are several.
            why = " ".join(str(error).split())
            raise InputError(f"{dataset_name}: its episodes cannot be read ({why}).") from None
        yield episode


def _load_dataset(name: str) -> Any:
    minari = import_optional("minari", name, "worlds")
    try:
        dataset = minari.load_dataset(name, download=False)
        _check_declared_sizes(name, Path(dataset.storage.data_path) / "main_data.hdf5")
        return dataset
    except InsufficientMemory:
        raise
    except Exception as error:
        # Minari raises what its storage raises, of which there are several.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            local = list(minari.list_local_datasets())
        # Of a data set that is there and damaged, Minari's list only warns.
        if name in local or any(f" {name}:" in str(each.message) for each in caught):
            why = " ".join(str(error).split())
            raise InputError(f"Minari's {name}: cannot be read ({why}).") from None
        near = suggest_names(name, local)
        there = f"there are {', '.join(local)}" if local else "there are none"
        raise InputError(
            f"datasets: Minari has no local data set {name!r}{near.rstrip('?')}; {there}, and "
            "`minari download` fetches others."
        ) from None


def _check_declared_sizes(name: str, path: Path) -> None:
    """Raises where an HDF5 file declares arrays that it cannot hold, or that memory cannot.

    HDF5 allocates what a damaged header declares.
    """
    if not path.is_file():
        return
    import h5py  # comes with Minari's storage

    total = 0

    def add(_: str, node: Any) -> None:
        nonlocal total
        if isinstance(node, h5py.Dataset):
            size = node.size * node.dtype.itemsize
            if size > MAX_COMPRESSION * max(node.id.get_storage_size(), 1):
                raise ValueError(f"{node.name} declares {size:,} bytes, more than the file holds")
            total += size

    with h5py.File(path) as file:
        file.visititems(add)
    require_memory(f"Minari's {name} needs", total, "read fewer episodes of it")


def _describe_toy_text(spec: Any, num_states: int | None) -> dict[str, Any]:
    """Names, positions and actions, where the data are of a toy-text environment."""
    if num_states is None or not str(getattr(spec, "entry_point", None)).startswith(TOY_TEXT):
        return {}
    try:
        return gymnasium_envs.describe_toy_text(
            make_environment(spec.id, dict(spec.kwargs))[0], num_states
        )
    except InputError:
        # Of another version than the one that was recorded: its names are not needed.
        return {}


def _read_episode(
    episode: Any, observer: ObservationEncoder, actions: ActionEncoder
) -> dict[str, NDArray[Any]]:
    """The columns of an episode, by the fields of Transitions."""
    steps = len(episode.rewards)
    for name in ("rewards", "terminations", "truncations"):
        found = np.asarray(getattr(episode, name))
        if found.shape != (steps,) or found.dtype.kind not in "biuf":
            raise InputError(
                f"its {name} are {found.dtype} of shape {found.shape} and must be numbers, "
                f"({steps},)."
            )
    observed, states = observer.encode_batch(unstack_values(episode.observations, steps + 1))
    terminated = np.asarray(episode.terminations, dtype=np.bool_)
    truncated = np.asarray(episode.truncations, dtype=np.bool_) & ~terminated
    truncated[-1] = not terminated[-1]
    columns = {
        "observations": observed[:-1],
        "actions": actions.encode_batch(unstack_values(episode.actions, steps)),
        "rewards": np.asarray(episode.rewards, dtype=np.float64),
        "next_observations": observed[1:],
        "terminated": terminated,
        "truncated": truncated,
    }
    if states is not None:
        columns |= {"states": states[:-1], "next_states": states[1:]}
    return columns
