"""Atari games played by an agent: transitions to learn from and recorded episodes to inspect.

>>> from bisimetric_atari import games
>>> games.find_game("pong").name
'Pong'
"""

from __future__ import annotations

from bisimetric_atari.games._collect import collect
from bisimetric_atari.games._play import play
from bisimetric_atari.games.agent import Agent, AgentOutput, BatchContext, IdleAgent
from bisimetric_atari.games.environments import AtariGames, Game, VectorStep, find_game, list_games
from bisimetric_atari.games.episode import Episode

__all__ = [
    "Agent",
    "AgentOutput",
    "AtariGames",
    "BatchContext",
    "Episode",
    "Game",
    "IdleAgent",
    "VectorStep",
    "collect",
    "find_game",
    "list_games",
    "play",
]
