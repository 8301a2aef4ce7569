"""Atari games: played by an agent, as experience to learn from and as episodes to look at.

>>> from bisimetric import games
>>> games.game("pong").name
'Pong'
"""

from __future__ import annotations

from bisimetric.games._collect import collect
from bisimetric.games._play import play
from bisimetric.games.agent import Agent, AgentOutput
from bisimetric.games.environments import AtariGames, Game, VectorStep, find_game
from bisimetric.games.episode import Episode

__all__ = [
    "Agent",
    "AgentOutput",
    "AtariGames",
    "Episode",
    "Game",
    "VectorStep",
    "collect",
    "find_game",
    "play",
]
