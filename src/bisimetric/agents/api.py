"""The agents that come with the package: Rainbows of ours, trained on three games.

Agents by name: ours, those of other libraries, and Python functions.

How well an agent plays: the scores of whole games, as the game counts them.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._optional import import_optional
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.games.agent import EPSILON, Agent, EpsilonGreedyPolicy, validate_agent
from bisimetric.games.environments import AtariGames, Game, find_game

WEIGHTS_FOLDER = Path(__file__).parent / "trained"
"""One file a game: `<game>.safetensors`."""


def pretrained(of: str | Game) -> Agent:
    """The agent for a game; its `made` says how it was trained, and what it scored.

    >>> shipped("Pong").name
    'rainbow of Pong'
    """
    from bisimetric.agents import rainbow

    played = find_game(of)
    path = WEIGHTS_FOLDER / f"{played.name}.safetensors"
    if not path.exists():
        there = ", ".join(sorted(each.stem for each in WEIGHTS_FOLDER.glob("*.safetensors")))
        raise InputError(
            f"{played.name}: no agent is shipped for it, only for {there}; train one with "
            f"`bisimetric atari train-agent {played.name}`, or name yours with --agent."
        )
    return rainbow.load(path)


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
    """Import a loader of this package; the packages that it needs may not be installed."""
    return import_optional(f"bisimetric.agents.{name}", caller, "atari")


def evaluate(
    name: str | Game,
    agent: Agent,
    *,
    num_episodes: int = 30,
    seed: int = 0,
    epsilon: float = EPSILON,
) -> NDArray[np.float64]:
    """The scores (episodes,) of games played side by side to their end, not clipped.

    A share `epsilon` of the actions is random, so that no two games are the same.
    """
    count = require_integer("scores", "episodes", num_episodes, 1)
    games = AtariGames(name, count, seed=seed)
    player = EpsilonGreedyPolicy(agent, games.game, count, epsilon=epsilon, seed=seed)
    earned, over = np.zeros(count), np.zeros(count, np.bool_)
    moves = games.reset()
    with show_progress(count, f"playing {games.game.name}") as progress:
        while not over.all():
            _, action = player.act(moves.observations, moves.is_first)
            moves = games.step(action)
            earned += np.where(over, 0.0, moves.rewards)
            over |= moves.terminated | moves.truncated
            progress.set_position(float(over.sum()))
    return earned


def summarise_evaluation(
    name: str | Game,
    agent: Agent,
    *,
    num_episodes: int = 30,
    seed: int = 0,
    epsilon: float = EPSILON,
) -> dict[str, Any]:
    """What `scores` says, in words that JSON has, and how it was found."""
    found = evaluate(name, agent, num_episodes=num_episodes, seed=seed, epsilon=epsilon)
    how = {"episodes": num_episodes, "key": seed, "epsilon": epsilon}
    return {**how, "mean": float(found.mean()), "scores": found.tolist()}
