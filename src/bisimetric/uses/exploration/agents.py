"""A tabular agent: Q-learning, with initial values that may be optimistic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RANDOM_BLOCK = 4096
"""Random numbers that are drawn together."""


@dataclasses.dataclass(frozen=True)
class QLearningConfig:
    """Q(s, a) += rate * (reward + discount max_b Q(t, b) - Q(s, a)), and epsilon-greedy actions.

    `initial` is Q of what was never done. A bonus makes the known look better than it is, and only
    where the unknown looks better still does the agent try it: with 0 it stays where it is.
    """

    discount: float
    initial_value: float = 0.1
    epsilon: float = 0.05
    learning_rate: float = 0.5


class AgentStep(NamedTuple):
    """A step as the world paid it, without a bonus, and whether the episode was over then."""

    state: int
    action: int
    reward: float
    successor: int
    episode_over: bool


def run_q_learning(
    environment: Any, available: NDArray[np.bool_], config: QLearningConfig, *, seed: int
) -> Iterator[AgentStep]:
    """The steps of an agent that learns as it goes, without end; the same key gives the same steps.

    `environment` has ids as observations, and `has` (S, A) says which actions a state has. The
    agent learns from what the environment pays, a bonus included.
    """
    draws = _uniform_stream(np.random.default_rng(seed))
    actions = [np.flatnonzero(row).tolist() for row in available]
    Q = np.where(available, config.initial_value, -np.inf).tolist()
    state, _ = environment.reset(seed=seed)
    while True:
        row = Q[state]
        choices = actions[state]
        if next(draws) >= config.epsilon:
            best = max(row)
            choices = [action for action in choices if row[action] == best]
        action = choices[int(next(draws) * len(choices))]
        successor, paid, terminated, truncated, info = environment.step(action)
        target = paid if terminated else paid + config.discount * max(Q[successor])
        row[action] += config.learning_rate * (target - row[action])
        over = terminated or truncated
        yield AgentStep(state, action, info.get("reward", paid), successor, over)
        state = environment.reset()[0] if over else successor


def _uniform_stream(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(RANDOM_BLOCK).tolist()
