"""The protocol of agents, an idle agent, and the epsilon-greedy policy of any agent.

An agent maps observations to greedy actions, features and values.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari.games.environments import (
    OBSERVATION_SHAPE,
    Game,
    Observes,
    find_game,
    get_observation_shape,
    validate_probability,
)


class AgentOutput(NamedTuple):
    """Outputs of an agent for n observations.

    Attributes:
        action: (n,) integers, the greedy or sampled actions.
        features: (n, k) float32, the state representation.
        value: (n,) float32, max Q or V.

    >>> AgentOutput(np.zeros(1, np.int64), np.ones((1, 3), np.float32), np.zeros(1, np.float32))[0]
    array([0])
    """

    action: NDArray[np.int64]
    features: NDArray[np.float32]
    value: NDArray[np.float32]


class BatchContext(NamedTuple):
    """What else an agent may need to act in n games.

    Attributes:
        executed_actions: (n,) integers, the actions that the games executed in the step before:
            the agent's own, or random ones; -1 where an episode begins.
        rngs: n generators, one per game, for agents that sample; each depends on the seed and the
            index of its game alone.

    >>> BatchContext(np.array([-1]), [np.random.default_rng(0)]).executed_actions.tolist()
    [-1]
    """

    executed_actions: NDArray[np.int64]
    rngs: Sequence[np.random.Generator]


class Agent(Protocol):
    """An agent that plays several games in parallel, recurrent or not.

    An agent with an attribute `observes = "screen"` observes the RGB screen; the default is
    "stacked", four grey frames. An `act` with a fourth positional parameter receives a
    `BatchContext` there: the actions that were executed, and generators of random numbers.

    >>> agent: Agent = IdleAgent("Pong")
    >>> agent.name, agent.num_actions, agent.num_features
    ('idle', 6, 12)
    """

    @property
    def name(self) -> str:
        """Name in messages and metadata."""

    @property
    def num_actions(self) -> int:
        """Number of actions: those of the game, in its order."""

    @property
    def num_features(self) -> int:
        """Number of features k per observation."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation: (4, 84, 84), or that of the screen, (210, 160, 3)."""

    def initial_state(self, num_envs: int) -> Any:
        """Return the recurrent state before the first step.

        Args:
            num_envs: number of parallel games n.

        Returns:
            The state of all games; None for an agent without one.
        """

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        """Compute actions, features and values.

        Args:
            observations: (n, *observation_shape).
            state: the state that the last call returned.
            is_first: (n,), where an episode begins; the state before it must be ignored there.

        Returns:
            The outputs and the next state.
        """


NUM_BANDS = 12
"""Horizontal bands of seven rows each per frame."""


@dataclasses.dataclass(frozen=True)
class IdleAgent:
    """An agent that never acts; its features are the mean brightness of bands of the last frame.

    For examples, and as the baseline for the cost of other agents.

    Attributes:
        game: the game or its name.

    >>> from bisimetric_atari.games import AtariGames
    >>> first = AtariGames("Pong", 2).reset()
    >>> output, _ = IdleAgent("Pong").act(first.observations, None, first.is_first)
    >>> output.action.tolist(), output.features.shape
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

    def initial_state(self, num_envs: int) -> None:
        """Return no state.

        Args:
            num_envs: number of parallel games; ignored.
        """

    def act(
        self, observations: NDArray[np.uint8], state: None, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, None]:
        """Return no-op actions, band brightnesses and zero values.

        Args:
            observations: (n, 4, 84, 84).
            state: ignored.
            is_first: ignored.

        Returns:
            The outputs and no state.
        """
        n = len(observations)
        bands = observations[:, -1].reshape(n, NUM_BANDS, -1)
        brightness = bands.mean(axis=2, dtype=np.float32) / np.float32(255)
        return AgentOutput(np.zeros(n, np.int64), brightness, np.zeros(n, np.float32)), None


EPSILON = 0.001
"""Default probability of a uniformly random action."""

RANDOM_BLOCK = 1024
"""Steps whose random numbers are sampled at once."""


class EpsilonGreedyPolicy:
    """Epsilon-greedy policy of an agent in `num_envs` games, with the agent's recurrent state.

    With probability epsilon an action is uniformly random. The random numbers of game i depend on
    (seed, first_index + i) alone, not on the other games.
    """

    def __init__(
        self,
        agent: Agent,
        game: Game,
        num_envs: int,
        *,
        epsilon: float,
        seed: int,
        first_index: int = 0,
    ) -> None:
        self.agent, self.game, self.num_envs = validate_agent(agent, game), game, num_envs
        self.epsilon = validate_probability(game.name, "epsilon", epsilon)
        self._state: Any = agent.initial_state(num_envs)
        self._steps = 0
        indices = range(first_index, first_index + num_envs)
        # The emulators are seeded by (i,).
        self._generators, self._rngs = (
            [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i, n))) for i in indices]
            for n in (1, 2)
        )
        self._initial_states = [rng.bit_generator.state for rng in self._rngs]
        self._takes_context = takes_context(agent.act, 3)
        self._executed = np.full(num_envs, -1)

    @property
    def has_sampled(self) -> bool:
        """Whether the agent has drawn random numbers."""
        states = [rng.bit_generator.state for rng in self._rngs]
        return states != self._initial_states

    def act(
        self, observations: NDArray[np.uint8], is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, NDArray[np.int64]]:
        """Return the agent's outputs and the actions to take, random ones included."""
        act: Callable[..., Any] = self.agent.act
        context = BatchContext(np.where(is_first, -1, self._executed), self._rngs)
        arguments = (observations, self._state, is_first, context)
        raw, self._state = act(*(arguments if self._takes_context else arguments[:3]))
        output = self._validate_output(raw)
        column = self._steps % RANDOM_BLOCK
        if column == 0:
            self._sample_block()
        self._steps += 1
        explore = self._explore[:, column]
        self._executed = np.where(explore, self._random_actions[:, column], output.action)
        return output, self._executed

    def _sample_block(self) -> None:
        """Sample where to explore, and the random actions, for the next block of steps."""
        pairs = [generator.random((2, RANDOM_BLOCK)) for generator in self._generators]
        uniform = np.stack(pairs, axis=1)
        self._explore = uniform[0] < self.epsilon
        self._random_actions = (uniform[1] * len(self.game.actions)).astype(np.int64)

    def _validate_output(self, output: AgentOutput) -> AgentOutput:
        """Return the outputs as arrays of the right types and shapes."""
        action: NDArray[np.int64] = np.asarray(output.action)
        features, value = np.asarray(output.features), np.asarray(output.value)
        expected = ((self.num_envs,), (self.num_envs, self.agent.num_features), (self.num_envs,))
        found = (action.shape, features.shape, value.shape)
        if found != expected or action.dtype.kind not in "iu":
            raise InputError(
                f"{self.agent.name}: action, features and value are {action.dtype} of the shapes "
                f"{found} and must be whole numbers and floats of the shapes {expected}."
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
    """Raise InputError if the agent does not fit the game; otherwise return the agent."""
    observes = get_observes(agent)
    shape = get_observation_shape(game, observes)
    if tuple(agent.observation_shape) != shape:
        kind = "four grey frames" if observes == "stacked" else "the RGB screen"
        other = "; for the RGB screen, set its attribute observes to 'screen'"
        raise InputError(
            f"{agent.name}: expects observations of shape {tuple(agent.observation_shape)} and "
            f"{game.name} has {shape}, {kind}; give an agent trained on them"
            f"{other if observes == 'stacked' else ''}."
        )
    if agent.num_actions != len(game.actions):
        raise InputError(
            f"{agent.name}: chooses among {agent.num_actions} actions and {game.name} has "
            f"{len(game.actions)}, {', '.join(game.actions)}; give an agent of this game."
        )
    return agent


def get_observes(agent: Any) -> Observes:
    """Return what an agent observes; "stacked" unless it says otherwise."""
    observes: Observes = getattr(agent, "observes", "stacked")
    return observes


def takes_context(function: Callable[..., Any], num_arguments: int) -> bool:
    """Return whether a function has one more positional parameter than `num_arguments`.

    >>> takes_context(lambda observation, state, context: None, 2)
    True
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters) > num_arguments
