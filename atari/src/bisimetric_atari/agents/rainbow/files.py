"""Files of Rainbow: checkpoints of training runs, and agents in half precision."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import bisimetric
from bisimetric.errors import InputError
from bisimetric.learned.files import (
    HISTORY_PREFIX,
    extract_history,
    name_leaves,
    read_tensors,
    rename_keys,
    write_tensors,
)
from bisimetric_atari.agents.rainbow.network import RainbowAgent, RainbowNetwork

if TYPE_CHECKING:
    from bisimetric_atari.agents.rainbow.training import RainbowRun

RUN_FORMAT = "bisimetric Rainbow run, version 1"
AGENT_FORMAT = "bisimetric Rainbow agent, version 1"
FORMER_KEYS = {"num_games": "num_envs", "min_replay_size": "learning_starts"}
"""Former names in the configurations of files."""


def save_checkpoint(path: str | os.PathLike[str], run: RainbowRun) -> None:
    """Write a checkpoint of a run, atomically."""
    tensors = name_leaves(run.state) | {
        f"{HISTORY_PREFIX}{name}": values for name, values in run.history.items()
    }
    write_tensors(path, tensors, {"format": RUN_FORMAT, **_describe(run)})


def load_checkpoint(path: str | os.PathLike[str], initial: RainbowRun) -> RainbowRun:
    """Read a checkpoint; `initial` is the same run before its first step."""
    tensors, about = read_tensors(path, RUN_FORMAT, "Rainbow run")
    if isinstance(about.get("config"), dict):
        about["config"] = rename_keys(about["config"], FORMER_KEYS)
    for name in ("game", "seed", "config"):
        here = _describe(initial)[name]
        if json.dumps(about.get(name)) != json.dumps(here):
            raise InputError(
                f"{path} is of another run: its {name} is {about.get(name)} and here it is {here}; "
                f"resume it with the same {name}, or start again."
            )
    _require_fields(path, about, ("steps", "seconds"))
    expected = name_leaves(initial.state)
    if any(
        name not in tensors
        or tensors[name].shape != leaf.shape
        or tensors[name].dtype != leaf.dtype
        for name, leaf in expected.items()
    ):
        raise InputError(f"{path} is of another network; start again.")
    leaves = [jnp.asarray(tensors[name], leaf.dtype) for name, leaf in expected.items()]
    state = jax.tree.unflatten(jax.tree.structure(initial.state), leaves)
    return dataclasses.replace(
        initial,
        state=state,
        steps=about["steps"],
        seconds=float(about["seconds"]),
        history=extract_history(tensors),
    )


def save(
    path: str | os.PathLike[str], run: RainbowRun, evaluation: Mapping[str, Any] | None = None
) -> None:
    """Write the agent of a run in half precision, with its history and its evaluation.

    Args:
        path: the `.safetensors` file to write, atomically.
        run: the training run.
        evaluation: JSON-compatible results to store with it, such as its scores.

    >>> import tempfile
    >>> from bisimetric_atari.agents.rainbow import RainbowConfig, RainbowRun
    >>> from bisimetric_atari.agents.rainbow.learner import init_state
    >>> network, config = RainbowNetwork(3), RainbowConfig()
    >>> state = init_state(network, config, jax.random.key(0))
    >>> run = RainbowRun("Pong", network, config, 0, state, 0, 0.0, {})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/agent.safetensors", run)
    ...     load(f"{folder}/agent.safetensors").name
    'rainbow of Pong'
    """
    tensors: dict[str, Any] = {
        f"{layer}.{part}": np.asarray(array, np.float16)
        for layer, parts in run.state.parameters.items()
        for part, array in parts.items()
    }
    tensors |= {f"{HISTORY_PREFIX}{name}": values for name, values in run.history.items()}
    write_tensors(
        path,
        tensors,
        {"format": AGENT_FORMAT, **_describe(run), "evaluation": dict(evaluation or {})},
    )


def load(path: str | os.PathLike[str]) -> RainbowAgent:
    """Read an agent that `save` wrote; its `metadata` are those of the file.

    Args:
        path: the `.safetensors` file.

    Returns:
        The agent, in single precision.

    Raises:
        InputError: if the file holds no complete agent.

    >>> from bisimetric_atari.agents.api import WEIGHTS_FOLDER
    >>> load(WEIGHTS_FOLDER / "Pong.safetensors").metadata["game"]
    'Pong'
    """
    tensors, about = read_tensors(path, AGENT_FORMAT, "Rainbow agent")
    _require_fields(path, about, ("game", "actions"))
    num_actions = about["actions"]
    if isinstance(num_actions, bool) or not isinstance(num_actions, int) or num_actions < 1:
        raise InputError(
            f"{path} is damaged: its actions is {num_actions} and must be an integer, at least 1; "
            "download it again, or train another."
        )
    history = extract_history(tensors)
    network = RainbowNetwork(num_actions)
    parameters = {}
    for layer, shape in network.kernel_shapes().items():
        expected = {"kernel": shape, "bias": shape[-1:]}
        for part, size in expected.items():
            found = tensors.get(f"{layer}.{part}")
            if found is None or found.shape != size or found.dtype.kind != "f":
                raise InputError(
                    f"{path} is no complete agent: {layer}.{part} is missing or not {size}; "
                    "download it again, or train another."
                )
        parameters[layer] = {
            part: jnp.asarray(tensors[f"{layer}.{part}"], jnp.float32) for part in expected
        }
    return RainbowAgent(
        f"rainbow of {about['game']}", network, parameters, metadata=about, history=history
    )


def _require_fields(
    path: str | os.PathLike[str], about: Mapping[str, Any], fields: tuple[str, ...]
) -> None:
    """Raise InputError if the header of a file lacks a field."""
    for name in fields:
        if name not in about:
            raise InputError(
                f"{path} is damaged: it has no {name}; download it again, or train another."
            )


def _describe(run: RainbowRun) -> dict[str, Any]:
    """Return the header of a file: configuration, progress, device and versions."""
    return {
        "game": run.game,
        "actions": run.network.num_actions,
        "seed": run.seed,
        "config": dataclasses.asdict(run.config),
        "steps": run.steps,
        "seconds": round(run.seconds, 1),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
