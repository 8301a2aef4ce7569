"""What a game asks of its player: an observation in; an action, features and a value out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class AgentOutput(NamedTuple):
    """What an agent makes of n observations."""

    action: NDArray[np.int64]
    """(n,): what it does next, greedily."""
    features: NDArray[np.float32]
    """(n, k): what it finds in them."""
    value: NDArray[np.float32]
    """(n,): how good it finds them, max Q or V."""


class Agent(Protocol):
    """One who plays several games at once, with a memory for each or without any."""

    @property
    def name(self) -> str:
        """What to call it in messages and records."""

    @property
    def num_actions(self) -> int:
        """How many actions it chooses from: those of the game, in its order."""

    @property
    def num_features(self) -> int:
        """k, how many features it finds in one observation."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation, (4, 84, 84)."""

    def initial_state(self, num_games: int) -> Any:
        """Its memory at the start of `count` games; None where it has none."""

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        """What it makes of observations (n, *shape), and its memory after them.

        `fresh` (n,) marks the games that have just begun: nothing before them counts.
        """
