"""The cheapest agent there is: one that looks on, for examples and to measure what others cost."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from bisimetric.games.environments import OBSERVATION_SHAPE
from bisimetric.games.names import Game, find_game
from bisimetric.games.protocol import AgentOutput

NUM_BANDS = 12
"""Bands of seven rows each that a frame is cut into."""


@dataclasses.dataclass(frozen=True)
class IdleAgent:
    """An agent that does nothing, and sees how bright the bands of the last frame are.

    >>> from bisimetric.games.environments import Games
    >>> seen, _ = Idle("Pong").see(Games("Pong", 2).reset().observations, None, np.ones(2, bool))
    >>> seen.action.tolist(), seen.features.shape
    ([0, 0], (2, 12))
    """

    game: str | Game

    @property
    def num_features(self) -> int:
        return NUM_BANDS

    @property
    def name(self) -> str:
        return "idle"

    @property
    def num_actions(self) -> int:
        return len(find_game(self.game).actions)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return OBSERVATION_SHAPE

    def initial_state(self, num_games: int) -> None:
        """None: it remembers nothing."""

    def act(
        self, observations: NDArray[np.uint8], state: None, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, None]:
        count = len(observations)
        bands = observations[:, -1].reshape(count, NUM_BANDS, -1)
        bright = bands.mean(axis=2, dtype=np.float32) / np.float32(255)
        return AgentOutput(np.zeros(count, np.int64), bright, np.zeros(count, np.float32)), None
