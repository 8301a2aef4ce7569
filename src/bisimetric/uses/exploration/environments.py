"""Gymnasium classes, imported only where Gymnasium is installed: bonus wrapper, MDP environment."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from bisimetric.errors import InputError, require_integer
from bisimetric.mdp import MDP
from bisimetric.uses.exploration.state_lookup import ObservationArray, StateLookup
from bisimetric.uses.exploration.visit_counts import EpisodicMemory, VisitCounts


class BonusWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Add `bonus_scale` times the novelty bonus of the next state to the reward.

    `info["reward"]` is the environment's own reward, `info["bonus"]` the added bonus. A reset is
    counted as a visit without reward; visits persist across episodes. `visits` is the whole state
    of the wrapper: save it to resume later, replace it to start again.

    Args:
        env: the environment.
        visits: `VisitCounts` with a `StateLookup`, `EpisodicMemory` with an `ObservationArray`.
        lookup: finds the state or the array of an observation.
        bonus_scale: of the bonus.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        visits: VisitCounts | EpisodicMemory,
        lookup: Any,
        bonus_scale: float,
    ) -> None:
        super().__init__(env)
        self.visits: Any = visits
        self.bonus_scale = bonus_scale
        self._lookup: StateLookup | ObservationArray = lookup

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        state: Any
        if isinstance(self._lookup, StateLookup):
            state = self._lookup.reset(self.env, observation)
        else:
            state = self._lookup(observation)
        _, self.visits = self.visits.visit(state)
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        state: Any
        if isinstance(self._lookup, StateLookup):
            state = self._lookup.step(self.env, action, observation, bool(terminated))
        else:
            # For a learned distance None is the terminal state.
            state = None if terminated else self._lookup(observation)
        bonus, self.visits = self.visits.visit(state)
        own_reward, scaled_bonus = float(reward), self.bonus_scale * bonus
        augmented = {**info, "reward": own_reward, "bonus": scaled_bonus}
        return observation, own_reward + scaled_bonus, terminated, truncated, augmented


class MDPEnvironment(gymnasium.Env[int, int]):
    """Simulate an MDP from one start state: observations and actions are ids.

    A step pays R(s, a) and moves to a successor sampled from P(s, a). An absorbing state with
    reward 0 terminates the episode; after `max_episode_steps` it is truncated. An unavailable
    action is a self-loop with reward 0.

    >>> environment = MDPEnvironment(MDP.deterministic([[1], [1]], [[3.0], [0.0]], discount=0.9))
    >>> environment.reset(seed=0), environment.step(0)
    ((0, {}), (1, 3.0, True, False, {}))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - so it is called in Gymnasium

    def __init__(
        self, mdp: MDP, start: int | str = 0, max_episode_steps: int | None = None
    ) -> None:
        self.observation_space = gymnasium.spaces.Discrete(mdp.num_states)  # type: ignore[assignment]
        self.action_space = gymnasium.spaces.Discrete(mdp.num_actions)  # type: ignore[assignment]
        self._start = mdp.state(start)
        self._max_episode_steps = (
            None
            if max_episode_steps is None
            else require_integer("MDPEnvironment", "max_episode_steps", max_episode_steps, 1)
        )
        self._rewards = mdp.R.tolist()
        # Cumulative probabilities over all rows; a sample is offset by the sum of the rows before.
        self._row_starts = mdp.P.indptr
        self._successors = mdp.P.indices
        self._cumulative = np.cumsum(mdp.normalised_probabilities.data)
        self._terminal = find_terminal_states(mdp)
        if self._terminal[self._start]:
            raise InputError(
                f"MDPEnvironment: start is {mdp.state_name(self._start)}, a terminal state; start "
                "in another one."
            )
        self._state, self._num_steps = self._start, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._num_steps = self._start, 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, SupportsFloat, bool, bool, dict[str, Any]]:
        rewards = self._rewards[self._state]
        row = self._state * len(rewards) + int(action)
        first, last = int(self._row_starts[row]), int(self._row_starts[row + 1]) - 1
        if first < last:
            offset = self._cumulative[first - 1] if first else 0.0
            threshold = offset + self.np_random.random() * (self._cumulative[last] - offset)
            index = first + int(
                np.searchsorted(self._cumulative[first:last], threshold, side="right")
            )
        else:
            index = first
        self._state = int(self._successors[index])
        self._num_steps += 1
        terminated = bool(self._terminal[self._state])
        truncated = self._num_steps == self._max_episode_steps and not terminated
        return self._state, rewards[int(action)], terminated, truncated, {}


def find_terminal_states(mdp: MDP) -> Any:
    """Return which states are absorbing with reward 0, (S,).

    >>> mdp = MDP.deterministic([[1, 0], [1, 1]], [[0, 0], [0, 0]], discount=0.9)
    >>> find_terminal_states(mdp).tolist()
    [False, True]
    """
    sources = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    has_exit = np.zeros(mdp.num_states, bool)
    has_exit[sources[mdp.P.indices != sources]] = True
    return ~has_exit & (mdp.R == 0).all(axis=1)
