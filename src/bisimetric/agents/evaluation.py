"""How well an agent plays: the scores of whole games, as the game counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import require_integer
from bisimetric.games.environments import AtariGames
from bisimetric.games.names import Game
from bisimetric.games.players import EPSILON, EpsilonGreedyPolicy
from bisimetric.games.protocol import Agent
from bisimetric.progress import show_progress


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
