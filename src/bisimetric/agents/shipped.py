"""The agents that come with the package: Rainbows of ours, trained on three games."""

from __future__ import annotations

from pathlib import Path

from bisimetric.errors import InputError
from bisimetric.games.names import Game, find_game
from bisimetric.games.protocol import Agent

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
