"""How well an agent plays: the scores of whole games, as the game counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import whole
from bisimetric.games.environments import Games
from bisimetric.games.names import Game
from bisimetric.games.players import EPSILON, Player
from bisimetric.games.protocol import Agent
from bisimetric.progress import bar


def scores(
    name: str | Game, agent: Agent, *, episodes: int = 30, key: int = 0, epsilon: float = EPSILON
) -> NDArray[np.float64]:
    """The scores (episodes,) of games played side by side to their end, not clipped.

    A share `epsilon` of the actions is random, so that no two games are the same.
    """
    count = whole("scores", "episodes", episodes, 1)
    games = Games(name, count, key=key)
    player = Player(agent, games.game, count, epsilon=epsilon, key=key)
    earned, over = np.zeros(count), np.zeros(count, np.bool_)
    moves = games.reset()
    with bar(count, f"playing {games.game.name}") as progress:
        while not over.all():
            _, action = player.look(moves.observations, moves.fresh)
            moves = games.step(action)
            earned += np.where(over, 0.0, moves.rewards)
            over |= moves.terminated | moves.truncated
            progress.at(float(over.sum()))
    return earned


def judged(
    name: str | Game, agent: Agent, *, episodes: int = 30, key: int = 0, epsilon: float = EPSILON
) -> dict[str, Any]:
    """What `scores` says, in words that JSON has, and how it was found."""
    found = scores(name, agent, episodes=episodes, key=key, epsilon=epsilon)
    how = {"episodes": episodes, "key": key, "epsilon": epsilon}
    return {**how, "mean": float(found.mean()), "scores": found.tolist()}
