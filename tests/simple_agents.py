"""Small agents for tests of games: cheap, without chance, with and without memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.games import AgentOutput, find_game
from bisimetric.games.environments import OBSERVATION_SHAPE

PATCHES = 16


@dataclasses.dataclass
class Gamer:
    """Acts on a checksum of the observation; sees how bright 16 patches of the last frame are.

    It keeps what it was shown. `patience` steps in a row it takes the same action, and so gets
    about; that needs a memory, of how many observations it has seen in each game.
    """

    of: str
    patience: int = 1
    num_actions: int = 0
    observation_shape: tuple[int, ...] = OBSERVATION_SHAPE
    num_features: int = PATCHES + 1
    name: str = "gamer"
    shown: list[NDArray[np.uint8]] = dataclasses.field(default_factory=list)
    fresh: list[NDArray[np.bool_]] = dataclasses.field(default_factory=list)
    chose: list[NDArray[np.int64]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_actions = self.num_actions or len(find_game(self.of).actions)

    def initial_state(self, num_games: int) -> Any:
        return np.zeros(num_games, np.int64), np.zeros(num_games, np.int64)

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        self.shown.append(observations.copy())
        self.fresh.append(is_first.copy())
        age, last = state
        age = np.where(is_first, 0, age)
        flat = observations.reshape(len(observations), -1)
        sums = (flat * (np.arange(flat.shape[1]) % 251)).sum(axis=1, dtype=np.int64)
        action = np.where(age % self.patience == 0, sums % self.num_actions, last)
        patches = observations[:, -1].reshape(len(observations), 4, 21, 4, 21).mean(axis=(2, 4))
        features = np.column_stack([patches.reshape(-1, PATCHES) / 255, age])
        value = patches.mean(axis=(1, 2)).astype(np.float32)
        self.chose.append(action)
        return AgentOutput(action, features.astype(np.float32), value), (age + 1, action)
