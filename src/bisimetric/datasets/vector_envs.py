"""Reset and step one environment or a vector environment through one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bisimetric._optional import import_optional
from bisimetric.errors import InputError
from bisimetric.worlds.gymnasium_envs import is_minigrid
from bisimetric.worlds.minigrid_states import reset_step_count

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""Gymnasium's autoreset modes: in the step after an episode, in the same step, or on request."""


class StepResult(NamedTuple):
    """The result of one step."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool


class EnvironmentBatch(Protocol):
    """Several environments that are stepped together.

    Attributes:
        observations: the current observation of each.
        resetting: whether the next step of each is a reset.
        environments: the argument of `state_of` for each, or None.
        max_episode_steps: truncates episodes, or None.
    """

    observations: list[Any]
    resetting: list[bool]
    environments: list[Any]
    max_episode_steps: int | None

    def reset(self) -> None:
        """Reset all environments."""

    def call_policy(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        """Return the actions of a policy, one per environment."""

    def step(self, actions: list[Any]) -> list[StepResult | None]:
        """Take the actions; the result is None for environments that were reset."""

    def start_next_episodes(self, finished: list[bool]) -> None:
        """Start the next episode of the environments whose episode is over."""


class SingleEnvironment:
    """One environment; MiniGrid's step count is kept at 0, and its limit is applied here."""

    def __init__(
        self, environment: Any, *, seed: int, same_start: bool, max_episode_steps: int | None
    ) -> None:
        self._environment, self._seed, self._same_start = environment, seed, same_start
        self._minigrid = environment.unwrapped if is_minigrid(environment) else None
        self.environments: list[Any] = [environment]
        self.observations: list[Any] = []
        self.resetting = [False]
        self.max_episode_steps = max_episode_steps

    def reset(self) -> None:
        observation, _ = self._environment.reset(seed=self._seed)
        self.observations = [observation]
        if self._minigrid is not None and self.max_episode_steps is None:
            self.max_episode_steps = int(self._minigrid.max_steps)

    def call_policy(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        return [policy(self.observations[0])]

    def step(self, actions: list[Any]) -> list[StepResult | None]:
        if self._minigrid is not None:
            reset_step_count(self._minigrid)
        observation, reward, terminated, truncated, _ = self._environment.step(actions[0])
        self.observations = [observation]
        return [StepResult(observation, float(reward), bool(terminated), bool(truncated))]

    def start_next_episodes(self, finished: list[bool]) -> None:
        if not finished[0]:
            return
        bare = self._environment.unwrapped
        random = bare.np_random if self._same_start else None
        observation, _ = self._environment.reset(seed=self._seed if self._same_start else None)
        if random is not None:
            # Only the start repeats; later random numbers differ.
            bare.np_random = random
        self.observations = [observation]


class VectorEnvironment:
    """A Gymnasium vector environment in any autoreset mode."""

    def __init__(self, environment: Any, environment_name: str, *, seed: int) -> None:
        mode = environment.metadata.get("autoreset_mode")
        self._mode = getattr(mode, "value", mode) or NEXT_STEP
        if self._mode not in (NEXT_STEP, SAME_STEP, DISABLED):
            raise InputError(
                f"{environment_name}: its autoreset_mode is {mode!r} and must be {NEXT_STEP}, "
                f"{SAME_STEP} or {DISABLED}."
            )
        self._environment, self._environment_name, self._seed = environment, environment_name, seed
        self._vector_utils = import_optional("gymnasium.vector.utils", environment_name, "worlds")
        self._num_envs = environment.num_envs
        # The environments may be in other processes, and one step ahead.
        self.environments: list[Any] = [None] * self._num_envs
        self.max_episode_steps: int | None = None
        self.observations: list[Any] = []
        self.resetting = [False] * self._num_envs

    def reset(self) -> None:
        self._set_observations(self._environment.reset(seed=self._seed)[0])

    def call_policy(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        batch = policy(self._batch)
        try:
            actions = list(self._vector_utils.iterate(self._environment.action_space, batch))
        except (TypeError, ValueError, KeyError, IndexError):
            actions = []
        if len(actions) != self._num_envs:
            raise InputError(
                f"{self._environment_name}: the policy returned {batch!r}, which is no batch of "
                f"{self._num_envs} actions, {self._environment.action_space}."
            )
        return actions

    def step(self, actions: list[Any]) -> list[StepResult | None]:
        space = self._environment.single_action_space
        empty = self._vector_utils.create_empty_array(space, self._num_envs)
        batched = self._vector_utils.concatenate(space, actions, empty)
        batch, rewards, terminations, truncations, infos = self._environment.step(batched)
        self._set_observations(batch)
        results: list[StepResult | None] = []
        columns = zip(rewards, terminations, truncations, strict=True)
        for index, (reward, terminated, truncated) in enumerate(columns):
            observation = self.observations[index]
            if self._mode == SAME_STEP and (terminated or truncated):
                observation = self._final_observation(infos, index)
            result = StepResult(observation, float(reward), bool(terminated), bool(truncated))
            results.append(None if self.resetting[index] else result)
        self.resetting = [False] * self._num_envs
        return results

    def start_next_episodes(self, finished: list[bool]) -> None:
        if self._mode == NEXT_STEP:
            self.resetting = finished
        elif self._mode == DISABLED and any(finished):
            options = {"reset_mask": np.array(finished)}
            self._set_observations(self._environment.reset(options=options)[0])

    def _set_observations(self, batch: Any) -> None:
        self._batch = batch
        self.observations = list(
            self._vector_utils.iterate(self._environment.observation_space, batch)
        )

    def _final_observation(self, infos: dict[str, Any], env_index: int) -> Any:
        try:
            return infos["final_obs"][env_index]
        except (KeyError, IndexError):
            raise InputError(
                f"{self._environment_name}: resets in the same step, and its infos have no "
                "final_obs."
            ) from None
