"""A tabular agent: Q-learning, with initial values that may be optimistic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DRAWS = 4096
"""Random numbers that are drawn together."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """Q(s, a) += rate * (reward + discount max_b Q(t, b) - Q(s, a)), and epsilon-greedy actions.

    `initial` is Q of what was never done. A bonus makes the known look better than it is, and only
    where the unknown looks better still does the agent try it: with 0 it stays where it is.
    """

    discount: float
    initial: float = 0.1
    epsilon: float = 0.05
    rate: float = 0.5


class Step(NamedTuple):
    """A step as the world paid it, without a bonus, and whether the episode was over then."""

    state: int
    action: int
    reward: float
    successor: int
    over: bool


def steps_of(
    environment: Any, has: NDArray[np.bool_], learner: Learner, *, key: int
) -> Iterator[Step]:
    """The steps of an agent that learns as it goes, without end; the same key gives the same steps.

    `environment` has ids as observations, and `has` (S, A) says which actions a state has. The
    agent learns from what the environment pays, a bonus included.
    """
    draws = _draws(np.random.default_rng(key))
    actions = [np.flatnonzero(row).tolist() for row in has]
    Q = np.where(has, learner.initial, -np.inf).tolist()
    state, _ = environment.reset(seed=key)
    while True:
        row = Q[state]
        choices = actions[state]
        if next(draws) >= learner.epsilon:
            best = max(row)
            choices = [action for action in choices if row[action] == best]
        action = choices[int(next(draws) * len(choices))]
        successor, paid, terminated, truncated, info = environment.step(action)
        target = paid if terminated else paid + learner.discount * max(Q[successor])
        row[action] += learner.rate * (target - row[action])
        over = terminated or truncated
        yield Step(state, action, info.get("reward", paid), successor, over)
        state = environment.reset()[0] if over else successor


def _draws(random: np.random.Generator) -> Iterator[float]:
    while True:
        yield from random.random(DRAWS).tolist()
