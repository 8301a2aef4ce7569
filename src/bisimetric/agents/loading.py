"""Agents by name: ours, those of other libraries, and Python functions."""

from __future__ import annotations

import importlib
import os
import zipfile
from pathlib import Path
from typing import Any

from bisimetric.errors import InputError
from bisimetric.games.names import INSTALL, Game, game
from bisimetric.games.players import fitting
from bisimetric.games.protocol import Agent

NAMED = (
    "name a .safetensors file of `bisimetric atari train-agent`, a .zip of Stable-Baselines3, a "
    "checkpoint of Dopamine, or module:function"
)


def load(named: str | os.PathLike[str] | None, of: str | Game) -> Agent:
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
    played = game(of)
    agent = fitting(_found(None if named is None else os.fspath(named), played), played)
    trained_on = getattr(agent, "made", {}).get("game", played.name)
    if trained_on != played.name:
        raise InputError(
            f"agents: {named} was trained on {trained_on} and not on {played.name}; give an agent "
            "of this game."
        )
    return agent


def _found(named: str | None, played: Game) -> Agent:
    agent: Agent
    if named is None:
        agent = _module("shipped", "agents").shipped(played)
        return agent
    path, count = Path(named), len(played.actions)
    where, colon, attribute = named.rpartition(":")
    if path.is_dir():
        inside = ", a checkpoint in it" if any(path.glob("ckpt.*")) else ""
        raise InputError(f"agents: {named} is a folder; name a file{inside}.")
    if not path.is_file() and colon and where and attribute.isidentifier():
        agent = _module("functions", named).load(named, count)
    elif not path.is_file():
        raise InputError(f"agents: there is no file {named!r}; {NAMED}.")
    elif path.suffix == ".zip":
        agent = _module("stable_baselines", named).load(path)
    elif path.suffix == ".safetensors":
        agent = _module("rainbow", named).load(path)
    elif zipfile.is_zipfile(path) or path.suffix == ".py":
        raise InputError(f"agents: {named} holds no agent that can be read here; {NAMED}.")
    else:
        agent = _module("dopamine", named).load(path, count)
    return agent


def _module(name: str, wanted: str) -> Any:
    """A module beside this one; what it needs may not be installed."""
    try:
        return importlib.import_module(f"bisimetric.agents.{name}")
    except ImportError as error:
        if error.name is None or error.name.startswith("bisimetric"):
            raise
        raise InputError(f"{wanted}: {error.name} is not installed; {INSTALL}.") from None
