"""Read Minari datasets from the local store."""

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
"""The package of the environments whose states have names and positions."""
MAX_COMPRESSION = 1032
"""Upper bound on the compression ratio of DEFLATE, HDF5's usual filter."""


def from_minari(dataset: Any, *, state_of: StateOf | None = None) -> Transitions:
    """Read the transitions of a Minari dataset.

    Local datasets are in the folder MINARI_DATASETS_PATH, by default ~/.minari/datasets. Nothing is
    downloaded: use `minari download ID`. The last step of an episode that did not terminate is
    truncated. Observations, actions and ids are encoded as in `rollout`. Minari stores images as
    JPEG by default, which is lossy.

    Args:
        dataset: a `minari.MinariDataset`, or the id of a local one.
        state_of: state_of(None, observation) returns anything hashable that identifies the state,
            or None.

    Returns:
        The transitions of all episodes.

    Raises:
        InputError: there is no such dataset, or it is damaged or empty.
        InsufficientMemory: its arrays would not fit into memory.

    >>> from_minari("D4RL/pointmaze/umaze-v2")  # doctest: +SKIP
    Transitions(1,000,000 steps, ...)
    """
    if isinstance(dataset, str | os.PathLike):
        dataset = _load_dataset(os.fspath(dataset))
    if not (hasattr(dataset, "iterate_episodes") and hasattr(dataset, "observation_space")):
        raise InputError(
            f"datasets: {type(dataset).__name__} is no Minari dataset; give one, or the id of a "
            "local one."
        )
    name = f"Minari's {dataset.id}"
    space, spec = dataset.observation_space, dataset.env_spec
    known = _describe_toy_text(spec, num_discrete_values(space))
    observer = ObservationEncoder(space, name, state_of, known_states=known)
    actions = ActionEncoder(dataset.action_space, name)
    parts: list[dict[str, Any]] = []
    with show_progress(1.0, name) as progress:
        for number, episode in enumerate(_iterate_episodes(name, dataset)):
            if len(episode.rewards):
                with name_input_errors(name):
                    parts.append(_read_episode(episode, observer, actions))
            progress.set_position((number + 1) / max(1, dataset.total_episodes))
    if not parts:
        raise InputError(f"{name}: has no steps.")
    columns: dict[str, Any] = {
        field: freeze(np.concatenate([part[field] for part in parts])) for field in parts[0]
    }
    with name_input_errors(name):
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
    """Yield the episodes of a dataset; errors of its storage become InputError."""
    episodes = iter(dataset.iterate_episodes())
    while True:
        try:
            episode = next(episodes)
        except StopIteration:
            return
        except Exception as error:
            # Minari raises the errors of its storage, of many types.
            reason = " ".join(str(error).split())
            raise InputError(f"{dataset_name}: its episodes cannot be read ({reason}).") from None
        yield episode


def _load_dataset(name: str) -> Any:
    """Load a local dataset, whose declared sizes are checked first."""
    minari = import_optional("minari", name, "worlds")
    try:
        dataset = minari.load_dataset(name, download=False)
        _require_plausible_sizes(name, Path(dataset.storage.data_path) / "main_data.hdf5")
        return dataset
    except InsufficientMemory:
        raise
    except Exception as error:
        # Minari raises the errors of its storage, of many types.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            local = list(minari.list_local_datasets())
        # For a damaged dataset, Minari's list only warns.
        if name in local or any(f" {name}:" in str(each.message) for each in caught):
            reason = " ".join(str(error).split())
            raise InputError(f"Minari's {name}: cannot be read ({reason}).") from None
        near = suggest_names(name, local)
        there = f"there are {', '.join(local)}" if local else "there are none"
        raise InputError(
            f"datasets: Minari has no local dataset {name!r}{near.rstrip('?')}; {there}, and "
            "`minari download` fetches others."
        ) from None


def _require_plausible_sizes(name: str, path: Path) -> None:
    """Raise if an HDF5 file declares arrays larger than itself or than the memory.

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
    require_memory(f"Minari's {name} needs", total, "read fewer episodes")


def _describe_toy_text(spec: Any, num_states: int | None) -> dict[str, Any]:
    """Return names, positions and actions of the states of a toy-text environment."""
    if num_states is None or not str(getattr(spec, "entry_point", None)).startswith(TOY_TEXT):
        return {}
    try:
        return gymnasium_envs.describe_toy_text(
            make_environment(spec.id, dict(spec.kwargs))[0], num_states
        )
    except InputError:
        # Recorded in another version; names are optional.
        return {}


def _read_episode(
    episode: Any, observer: ObservationEncoder, actions: ActionEncoder
) -> dict[str, NDArray[Any]]:
    """Return the columns of an episode as fields of Transitions."""
    steps = len(episode.rewards)
    for name in ("rewards", "terminations", "truncations"):
        column = np.asarray(getattr(episode, name))
        if column.shape != (steps,) or column.dtype.kind not in "biuf":
            raise InputError(
                f"its {name} are {column.dtype} of shape {column.shape} and must be numbers, "
                f"({steps},)."
            )
    observations, states = observer.encode_batch(unstack_values(episode.observations, steps + 1))
    terminated = np.asarray(episode.terminations, dtype=np.bool_)
    truncated = np.asarray(episode.truncations, dtype=np.bool_) & ~terminated
    truncated[-1] = not terminated[-1]
    columns = {
        "observations": observations[:-1],
        "actions": actions.encode_batch(unstack_values(episode.actions, steps)),
        "rewards": np.asarray(episode.rewards, dtype=np.float64),
        "next_observations": observations[1:],
        "terminated": terminated,
        "truncated": truncated,
    }
    if states is not None:
        columns |= {"states": states[:-1], "next_states": states[1:]}
    return columns
