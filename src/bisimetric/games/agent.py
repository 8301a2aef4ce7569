"""What a game asks of its player: an observation in; an action, features and a value out.

The cheapest agent there is: one that looks on, for examples and to measure what others cost.

An agent at the controls: what it finds is checked, and at times it slips on purpose.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.games.environments import OBSERVATION_SHAPE, Game, find_game


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


EPSILON = 0.001
"""How often an agent that is watched takes any action, all alike."""

RANDOM_BLOCK = 1024
"""Steps whose chance is drawn in one go."""


class EpsilonGreedyPolicy:
    """An agent that plays `count` games, its memory, and its slips.

    With probability epsilon the action is any one, drawn at random. The chance of a game is that
    of (key, first + i): the same in any company.
    """

    def __init__(
        self,
        agent: Agent,
        game: Game,
        num_games: int,
        *,
        epsilon: float,
        seed: int,
        first_index: int = 0,
    ) -> None:
        self.agent, self.game, self.num_games = validate_agent(agent, game), game, num_games
        self.epsilon = validate_epsilon(game.name, epsilon)
        self._state: Any = agent.initial_state(num_games)
        self._steps = 0
        # Not (place,): the consoles are seeded with that.
        self._generators = [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place, 1)))
            for place in range(first_index, first_index + num_games)
        ]

    def act(
        self, observations: NDArray[np.uint8], is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, NDArray[np.int64]]:
        """What the agent sees, and what it does next, slips included."""
        found, self._state = self.agent.act(observations, self._state, is_first)
        seen = self._validate_output(found)
        at = self._steps % RANDOM_BLOCK
        if at == 0:
            self._sample_block()
        self._steps += 1
        slips = self._explore[:, at]
        return seen, np.where(slips, self._random_actions[:, at], seen.action)

    def _sample_block(self) -> None:
        pairs = [each.random((2, RANDOM_BLOCK)) for each in self._generators]
        drawn = np.stack(pairs, axis=1)
        self._explore = drawn[0] < self.epsilon
        self._random_actions = (drawn[1] * len(self.game.actions)).astype(np.int64)

    def _validate_output(self, output: AgentOutput) -> AgentOutput:
        """What was seen as arrays of the right shapes, or an error that names the agent."""
        action: NDArray[np.int64] = np.asarray(output.action)
        features, value = np.asarray(output.features), np.asarray(output.value)
        wanted = ((self.num_games,), (self.num_games, self.agent.num_features), (self.num_games,))
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
        return AgentOutput(
            action.astype(np.int64), features.astype(np.float32), value.astype(np.float32)
        )


def validate_agent(agent: Agent, game: Game) -> Agent:
    """The agent, where it is one for this game."""
    if tuple(agent.observation_shape) != OBSERVATION_SHAPE:
        raise InputError(
            f"{agent.name}: sees observations of shape {tuple(agent.observation_shape)} and {game.name} shows "
            f"{OBSERVATION_SHAPE}, four grey frames; give an agent trained on these."
        )
    if agent.num_actions != len(game.actions):
        raise InputError(
            f"{agent.name}: chooses among {agent.num_actions} actions and {game.name} has "
            f"{len(game.actions)}, {', '.join(game.actions)}; give an agent of this game."
        )
    return agent


def validate_epsilon(caller: str, epsilon: float) -> float:
    """epsilon, from 0 to 1."""
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and 0 <= epsilon <= 1):
        raise InputError(f"{caller}: epsilon is {epsilon!r} and must be a number from 0 to 1.")
    return float(epsilon)
