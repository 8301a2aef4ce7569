"""An agent at the controls: what it finds is checked, and at times it slips on purpose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.games.environments import SHAPE
from bisimetric.games.names import Game
from bisimetric.games.protocol import Agent, Seen

EPSILON = 0.001
"""How often an agent that is watched takes any action, all alike."""

BLOCK = 1024
"""Steps whose chance is drawn in one go."""


class Player:
    """An agent that plays `count` games, its memory, and its slips.

    With probability epsilon the action is any one, drawn at random. The chance of a game is that
    of (key, first + i): the same in any company.
    """

    def __init__(
        self, agent: Agent, game: Game, count: int, *, epsilon: float, key: int, first: int = 0
    ) -> None:
        self.agent, self.game, self.count = fitting(agent, game), game, count
        self.epsilon = share(game.name, epsilon)
        self._memory: Any = agent.start(count)
        self._steps = 0
        # Not (place,): the consoles are seeded with that.
        self._random = [
            np.random.default_rng(np.random.SeedSequence(key, spawn_key=(place, 1)))
            for place in range(first, first + count)
        ]

    def look(
        self, observations: NDArray[np.uint8], fresh: NDArray[np.bool_]
    ) -> tuple[Seen, NDArray[np.int64]]:
        """What the agent sees, and what it does next, slips included."""
        found, self._memory = self.agent.see(observations, self._memory, fresh)
        seen = self._checked(found)
        at = self._steps % BLOCK
        if at == 0:
            self._draw()
        self._steps += 1
        slips = self._slip[:, at]
        return seen, np.where(slips, self._any[:, at], seen.action)

    def _draw(self) -> None:
        pairs = [each.random((2, BLOCK)) for each in self._random]
        drawn = np.stack(pairs, axis=1)
        self._slip = drawn[0] < self.epsilon
        self._any = (drawn[1] * len(self.game.actions)).astype(np.int64)

    def _checked(self, seen: Seen) -> Seen:
        """What was seen as arrays of the right shapes, or an error that names the agent."""
        action: NDArray[np.int64] = np.asarray(seen.action)
        features, value = np.asarray(seen.features), np.asarray(seen.value)
        wanted = ((self.count,), (self.count, self.agent.num_features), (self.count,))
        found = (action.shape, features.shape, value.shape)
        if found != wanted or action.dtype.kind not in "iu":
            raise InputError(
                f"{self.agent.name}: action, features and value are {action.dtype} of the shapes "
                f"{found} and must be whole numbers and floats of the shapes {wanted}."
            )
        if action.min() < 0 or action.max() >= self.agent.num_actions:
            wrong = int(action[(action < 0) | (action >= self.agent.num_actions)][0])
            raise InputError(
                f"{self.agent.name}: chose action {wrong} and must choose from 0 to "
                f"{self.agent.num_actions - 1}, among {', '.join(self.game.actions)}."
            )
        if not np.isfinite(features).all():
            raise InputError(
                f"{self.agent.name}: a feature is NaN or infinite; its weights or its input are "
                "broken."
            )
        return Seen(action.astype(np.int64), features.astype(np.float32), value.astype(np.float32))


def fitting(agent: Agent, game: Game) -> Agent:
    """The agent, where it is one for this game."""
    if tuple(agent.shape) != SHAPE:
        raise InputError(
            f"{agent.name}: sees observations of shape {tuple(agent.shape)} and {game.name} shows "
            f"{SHAPE}, four grey frames; give an agent trained on these."
        )
    if agent.num_actions != len(game.actions):
        raise InputError(
            f"{agent.name}: chooses among {agent.num_actions} actions and {game.name} has "
            f"{len(game.actions)}, {', '.join(game.actions)}; give an agent of this game."
        )
    return agent


def share(where: str, epsilon: float) -> float:
    """epsilon, from 0 to 1."""
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and 0 <= epsilon <= 1):
        raise InputError(f"{where}: epsilon is {epsilon!r} and must be a number from 0 to 1.")
    return float(epsilon)
