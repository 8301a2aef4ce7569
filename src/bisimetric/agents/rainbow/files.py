"""Files of Rainbow: a training run to go on with, and an agent in half the bytes."""

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
from bisimetric.agents.rainbow.network import RainbowAgent, RainbowNetwork
from bisimetric.errors import InputError
from bisimetric.learned.files import (
    HISTORY_PREFIX,
    extract_history,
    name_leaves,
    read_tensors,
    write_tensors,
)

if TYPE_CHECKING:
    from bisimetric.agents.rainbow.training import RainbowRun

RUN_FORMAT = "bisimetric Rainbow run, version 1"
AGENT_FORMAT = "bisimetric Rainbow agent, version 1"


def save_checkpoint(path: str | os.PathLike[str], run: RainbowRun) -> None:
    """Writes a run to go on with; the file appears whole or not at all."""
    tensors = name_leaves(run.state) | {
        f"{HISTORY_PREFIX}{name}": each for name, each in run.history.items()
    }
    write_tensors(path, tensors, {"format": RUN_FORMAT, **_describe(run)})


def load_checkpoint(path: str | os.PathLike[str], initial: RainbowRun) -> RainbowRun:
    """A run as its file has it; `start` is the same run before its first step."""
    tensors, about = read_tensors(path, RUN_FORMAT, "Rainbow run")
    for name in ("game", "key", "settings"):
        here = _describe(initial)[name]
        if json.dumps(about.get(name)) != json.dumps(here):
            raise InputError(
                f"{path} is of another run: its {name} is {about.get(name)} and here it is {here}; "
                f"resume it with the same {name}, or start anew."
            )
    _require_fields(path, about, ("steps", "seconds"))
    wanted = name_leaves(initial.state)
    if any(
        name not in tensors
        or tensors[name].shape != each.shape
        or tensors[name].dtype != each.dtype
        for name, each in wanted.items()
    ):
        raise InputError(f"{path} is of another network; start anew.")
    leaves = [jnp.asarray(tensors[name], each.dtype) for name, each in wanted.items()]
    learner = jax.tree.unflatten(jax.tree.structure(initial.state), leaves)
    return dataclasses.replace(
        initial,
        state=learner,
        steps=about["steps"],
        seconds=float(about["seconds"]),
        history=extract_history(tensors),
    )


def save(
    path: str | os.PathLike[str], run: RainbowRun, evaluation: Mapping[str, Any] | None = None
) -> None:
    """Writes the agent of a run as 16-bit floats, with its history and its evaluation."""
    tensors: dict[str, Any] = {
        f"{layer}.{part}": np.asarray(array, np.float16)
        for layer, parts in run.state.parameters.items()
        for part, array in parts.items()
    }
    tensors |= {f"{HISTORY_PREFIX}{name}": each for name, each in run.history.items()}
    write_tensors(
        path,
        tensors,
        {"format": AGENT_FORMAT, **_describe(run), "evaluation": dict(evaluation or {})},
    )


def load(path: str | os.PathLike[str]) -> RainbowAgent:
    """An agent from its file; what was said about it is its `made`."""
    tensors, about = read_tensors(path, AGENT_FORMAT, "Rainbow agent")
    _require_fields(path, about, ("game", "actions"))
    history = extract_history(tensors)
    network = RainbowNetwork(about["actions"])
    parameters = {}
    for layer, shape in network.kernel_shapes().items():
        wanted = {"kernel": shape, "bias": shape[-1:]}
        for part, size in wanted.items():
            found = tensors.get(f"{layer}.{part}")
            if found is None or found.shape != size or found.dtype.kind != "f":
                raise InputError(
                    f"{path} is no whole agent: {layer}.{part} is missing or not {size}; fetch it "
                    "again, or train it anew."
                )
        parameters[layer] = {
            part: jnp.asarray(tensors[f"{layer}.{part}"], jnp.float32) for part in wanted
        }
    return RainbowAgent(
        f"rainbow of {about['game']}", network, parameters, metadata=about, history=history
    )


def _require_fields(
    path: str | os.PathLike[str], about: Mapping[str, Any], fields: tuple[str, ...]
) -> None:
    for name in fields:
        if name not in about:
            raise InputError(f"{path} is damaged: it has no {name}; fetch it again, or train anew.")


def _describe(run: RainbowRun) -> dict[str, Any]:
    return {
        "game": run.game,
        "actions": run.network.num_actions,
        "key": run.seed,
        "settings": dataclasses.asdict(run.config),
        "steps": run.steps,
        "seconds": round(run.seconds, 1),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
