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
from bisimetric.agents.rainbow.agent import RainbowAgent
from bisimetric.agents.rainbow.network import Network
from bisimetric.errors import InputError
from bisimetric.learned.files import HISTORY, history_in, named, read, write

if TYPE_CHECKING:
    from bisimetric.agents.rainbow.training import Training

RUN = "bisimetric Rainbow run, version 1"
AGENT = "bisimetric Rainbow agent, version 1"


def keep(path: str | os.PathLike[str], run: Training) -> None:
    """Writes a run to go on with; the file appears whole or not at all."""
    tensors = named(run.learner) | {f"{HISTORY}{name}": each for name, each in run.history.items()}
    write(path, tensors, {"format": RUN, **_told(run)})


def resumed(path: str | os.PathLike[str], start: Training) -> Training:
    """A run as its file has it; `start` is the same run before its first step."""
    tensors, about = read(path, RUN, "Rainbow run")
    for name in ("game", "key", "settings"):
        here = _told(start)[name]
        if json.dumps(about.get(name)) != json.dumps(here):
            raise InputError(
                f"{path} is of another run: its {name} is {about.get(name)} and here it is {here}; "
                f"resume it with the same {name}, or start anew."
            )
    _require(path, about, ("steps", "seconds"))
    wanted = named(start.learner)
    if any(
        name not in tensors
        or tensors[name].shape != each.shape
        or tensors[name].dtype != each.dtype
        for name, each in wanted.items()
    ):
        raise InputError(f"{path} is of another network; start anew.")
    leaves = [jnp.asarray(tensors[name], each.dtype) for name, each in wanted.items()]
    learner = jax.tree.unflatten(jax.tree.structure(start.learner), leaves)
    return dataclasses.replace(
        start,
        learner=learner,
        steps=about["steps"],
        seconds=float(about["seconds"]),
        history=history_in(tensors),
    )


def save(
    path: str | os.PathLike[str], run: Training, evaluation: Mapping[str, Any] | None = None
) -> None:
    """Writes the agent of a run as 16-bit floats, with its history and its evaluation."""
    tensors: dict[str, Any] = {
        f"{layer}.{part}": np.asarray(array, np.float16)
        for layer, parts in run.learner.parameters.items()
        for part, array in parts.items()
    }
    tensors |= {f"{HISTORY}{name}": each for name, each in run.history.items()}
    write(path, tensors, {"format": AGENT, **_told(run), "evaluation": dict(evaluation or {})})


def load(path: str | os.PathLike[str]) -> RainbowAgent:
    """An agent from its file; what was said about it is its `made`."""
    tensors, about = read(path, AGENT, "Rainbow agent")
    _require(path, about, ("game", "actions"))
    history = history_in(tensors)
    network = Network(about["actions"])
    parameters = {}
    for layer, shape in network.shapes().items():
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
        f"rainbow of {about['game']}", network, parameters, made=about, history=history
    )


def _require(
    path: str | os.PathLike[str], about: Mapping[str, Any], fields: tuple[str, ...]
) -> None:
    for name in fields:
        if name not in about:
            raise InputError(f"{path} is damaged: it has no {name}; fetch it again, or train anew.")


def _told(run: Training) -> dict[str, Any]:
    return {
        "game": run.game,
        "actions": run.network.actions,
        "key": run.key,
        "settings": dataclasses.asdict(run.settings),
        "steps": run.steps,
        "seconds": round(run.seconds, 1),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
