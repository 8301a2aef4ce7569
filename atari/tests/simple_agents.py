"""A cheap deterministic agent for tests of games, recurrent or not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric_atari.games import AgentOutput, find_game
from bisimetric_atari.games.environments import OBSERVATION_SHAPE

NUM_PATCHES = 16


@dataclasses.dataclass
class ChecksumAgent:
    """Act on a checksum of the observation; features are the brightness of 16 patches and the age.

    Records its inputs and actions. Repeats each action for `repeat` steps, which needs a recurrent
    state: the number of observations of each episode so far (the age) and the last action.
    """

    game: str
    repeat: int = 1
    num_actions: int = 0
    observation_shape: tuple[int, ...] = OBSERVATION_SHAPE
    num_features: int = NUM_PATCHES + 1
    name: str = "checksum"
    observations: list[NDArray[np.uint8]] = dataclasses.field(default_factory=list)
    is_first: list[NDArray[np.bool_]] = dataclasses.field(default_factory=list)
    actions: list[NDArray[np.int64]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_actions = self.num_actions or len(find_game(self.game).actions)

    def initial_state(self, num_envs: int) -> Any:
        return np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        self.observations.append(observations.copy())
        self.is_first.append(is_first.copy())
        age, last = state
        age = np.where(is_first, 0, age)
        flat = observations.reshape(len(observations), -1)
        sums = (flat * (np.arange(flat.shape[1]) % 251)).sum(axis=1, dtype=np.int64)
        action = np.where(age % self.repeat == 0, sums % self.num_actions, last)
        patches = observations[:, -1].reshape(len(observations), 4, 21, 4, 21).mean(axis=(2, 4))
        features = np.column_stack([patches.reshape(-1, NUM_PATCHES) / 255, age])
        value = patches.mean(axis=(1, 2)).astype(np.float32)
        self.actions.append(action)
        return AgentOutput(action, features.astype(np.float32), value), (age + 1, action)
