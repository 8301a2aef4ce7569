"""Atari games: played by an agent, as experience to learn from and as episodes to look at.

>>> from bisimetric import games
>>> games.game("pong").name
'Pong'
"""

from __future__ import annotations

from bisimetric.games.environments import AtariGames, VectorStep
from bisimetric.games.episodes import play
from bisimetric.games.experience import collect
from bisimetric.games.names import Game, find_game
from bisimetric.games.protocol import Agent, AgentOutput
from bisimetric.games.recordings import Episode

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
