"""Agents by name: ours, those of other libraries, and Python functions."""

from __future__ import annotations

import importlib
import os
import zipfile
from pathlib import Path
from typing import Any

from bisimetric.errors import InputError
from bisimetric.games.names import INSTALL, Game, find_game
from bisimetric.games.players import validate_agent
from bisimetric.games.protocol import Agent

ACCEPTED_FORMATS = (
    "name a .safetensors file of `bisimetric atari train-agent`, a .zip of Stable-Baselines3, a "
    "checkpoint of Dopamine, or module:function"
)


def load(spec: str | os.PathLike[str] | None, of: str | Game) -> Agent:
    """The agent of that name for a game; None is the one that is shipped.

    A `.safetensors` file is a Rainbow of ours, a `.zip` an agent of Stable-Baselines3, any
    other file a checkpoint of Dopamine, and `module:function` or `file.py:function` a Python
    callable. An agent that sees or does something else than the game asks is refused.

    >>> load("pong.zip", "Pong")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: agents: there is no file 'pong.zip'; name a .safetensors file of
    `bisimetric atari train-agent`, a .zip of Stable-Baselines3, a checkpoint of Dopamine, or
    module:function.
    """
    played = find_game(of)
    agent = validate_agent(_resolve(None if spec is None else os.fspath(spec), played), played)
    trained_on = getattr(agent, "made", {}).get("game", played.name)
    if trained_on != played.name:
        raise InputError(
            f"agents: {spec} was trained on {trained_on} and not on {played.name}; give an agent "
            "of this game."
        )
    return agent


def _resolve(spec: str | None, played: Game) -> Agent:
    agent: Agent
    if spec is None:
        agent = _import_loader("shipped", "agents").shipped(played)
        return agent
    path, count = Path(spec), len(played.actions)
    where, colon, attribute = spec.rpartition(":")
    if path.is_dir():
        inside = ", a checkpoint in it" if any(path.glob("ckpt.*")) else ""
        raise InputError(f"agents: {spec} is a folder; name a file{inside}.")
    if not path.is_file() and colon and where and attribute.isidentifier():
        agent = _import_loader("functions", spec).load(spec, count)
    elif not path.is_file():
        raise InputError(f"agents: there is no file {spec!r}; {ACCEPTED_FORMATS}.")
    elif path.suffix == ".zip":
        agent = _import_loader("stable_baselines", spec).load(path)
    elif path.suffix == ".safetensors":
        agent = _import_loader("rainbow", spec).load(path)
    elif zipfile.is_zipfile(path) or path.suffix == ".py":
        raise InputError(
            f"agents: {spec} holds no agent that can be read here; {ACCEPTED_FORMATS}."
        )
    else:
        agent = _import_loader("dopamine", spec).load(path, count)
    return agent


def _import_loader(name: str, caller: str) -> Any:
    """A module beside this one; what it needs may not be installed."""
    try:
        return importlib.import_module(f"bisimetric.agents.{name}")
    except ImportError as error:
        if error.name is None or error.name.startswith("bisimetric"):
            raise
        raise InputError(f"{caller}: {error.name} is not installed; {INSTALL}.") from None
