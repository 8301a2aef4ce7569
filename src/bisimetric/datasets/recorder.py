"""Step environments under a policy and turn the steps into `Transitions`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bisimetric._optional import import_optional
from bisimetric.datasets.actions import ActionEncoder, ActionSelector
from bisimetric.datasets.observations import (
    EncodedObservation,
    ObservationEncoder,
    StateDescriber,
    StateOf,
    num_discrete_values,
    stack_observations,
)
from bisimetric.datasets.vector_envs import (
    EnvironmentBatch,
    SingleEnvironment,
    StepResult,
    VectorEnvironment,
)
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions
from bisimetric.transitions._validation import collect_metadata
from bisimetric.worlds import gymnasium_envs, minigrid_states
from bisimetric.worlds.gymnasium_envs import is_minigrid, make_environment


class EnvironmentStep(NamedTuple):
    """One step of one of the environments."""

    env_index: int
    observation: EncodedObservation
    action: Any
    reward: float
    next_observation: EncodedObservation
    terminated: bool
    truncated: bool


@dataclasses.dataclass(frozen=True)
class RolloutLimits:
    """The number of steps and of episodes to record; None is no limit."""

    steps: int | None
    episodes: int | None

    def split(self, env_index: int, num_envs: int) -> RolloutLimits:
        """Return the share of one of several environments.

        >>> [RolloutLimits(10, None).split(index, 4).steps for index in range(4)]
        [3, 3, 2, 2]
        """

        def part(whole: int | None) -> int | None:
            return whole if whole is None else whole // num_envs + (env_index < whole % num_envs)

        return RolloutLimits(part(self.steps), part(self.episodes))

    def should_stop(self, steps: int, episodes: int) -> bool:
        """Whether a limit is reached."""
        return steps == self.steps or episodes == self.episodes


class EnvironmentProgress:
    """Counts the steps and episodes of one environment."""

    def __init__(self, limits: RolloutLimits) -> None:
        self._limits = limits
        self._num_steps = self._num_episodes = self._episode_length = 0
        self.active = not limits.should_stop(0, 0)

    def record_step(self, result: StepResult, max_episode_steps: int | None) -> bool:
        """Count a step and return whether its episode is over."""
        self._episode_length += 1
        over = result.terminated or result.truncated or self._episode_length == max_episode_steps
        self._num_steps += 1
        self._num_episodes += over
        self._episode_length *= not over
        self.active = self.active and not self._limits.should_stop(
            self._num_steps, self._num_episodes
        )
        return over


def iterate_steps(
    environments: EnvironmentBatch,
    observation_encoder: ObservationEncoder,
    action_encoder: ActionEncoder,
    selector: ActionSelector,
    limits: RolloutLimits,
) -> Iterator[EnvironmentStep]:
    """Yield the steps of all environments in chronological order.

    Every environment gets its share of the limits, so that long episodes are not
    under-represented. Its last step is truncated unless the episode terminated with it.
    """
    environments.reset()
    num_envs = len(environments.observations)
    progress = [EnvironmentProgress(limits.split(index, num_envs)) for index in range(num_envs)]

    def encode(index: int, observation: Any) -> EncodedObservation:
        return observation_encoder.encode(environments.environments[index], observation)

    encoded = [encode(index, environments.observations[index]) for index in range(num_envs)]
    while any(env_progress.active for env_progress in progress):
        acting = [
            env_progress.active and not environments.resetting[index]
            for index, env_progress in enumerate(progress)
        ]
        selected = selector.select_actions(encoded, acting, environments.call_policy)
        was_reset = [False] * num_envs
        finished = [False] * num_envs
        for index, result in enumerate(environments.step(selected)):
            env_progress = progress[index]
            if result is None:
                was_reset[index] = True
                continue
            finished[index] = env_progress.record_step(result, environments.max_episode_steps)
            if acting[index]:
                before, encoded[index] = encoded[index], encode(index, result.observation)
                yield EnvironmentStep(
                    index,
                    before,
                    action_encoder.encode(selected[index]),
                    result.reward,
                    encoded[index],
                    result.terminated,
                    (finished[index] or not env_progress.active) and not result.terminated,
                )
        if not any(env_progress.active for env_progress in progress):
            return
        environments.start_next_episodes(finished)
        for index, env_progress in enumerate(progress):
            restarted = was_reset[index] or (finished[index] and not environments.resetting[index])
            if restarted and env_progress.active:
                encoded[index] = encode(index, environments.observations[index])


@dataclasses.dataclass(frozen=True)
class Recorder:
    """A lazy iterator of steps, and the encoders that turn them into `Transitions`."""

    environment_name: str
    steps: Iterator[EnvironmentStep]
    is_vector: bool
    observation_encoder: ObservationEncoder
    action_encoder: ActionEncoder
    action_names: Sequence[str] | None
    metadata: dict[str, Any]

    def build_transitions(self, steps: list[EnvironmentStep]) -> Transitions:
        """Build transitions, environment by environment.

        In a vector environment the last step of each environment is truncated unless the episode
        terminated with it.
        """
        ordered = sorted(steps, key=lambda step: step.env_index)
        terminated = np.array([step.terminated for step in ordered])
        truncated = np.array([step.truncated for step in ordered])
        if self.is_vector:
            last = np.diff([step.env_index for step in ordered], append=-1) != 0
            truncated |= last & ~terminated
        observations, states = stack_observations(step.observation for step in ordered)
        following, next_states = stack_observations(step.next_observation for step in ordered)
        taken = [step.action for step in ordered]
        return Transitions(
            freeze(observations),
            freeze(
                np.array(taken) if self.action_encoder.num_actions is not None else np.stack(taken)
            ),
            freeze(np.array([step.reward for step in ordered])),
            freeze(following),
            freeze(terminated),
            freeze(truncated),
            states=states,
            next_states=next_states,
            num_actions=self.action_encoder.num_actions,
            action_names=self.action_names,
            metadata=self.metadata,
            **self.observation_encoder.describe_states(),
        )


def build_recorder(
    environment: Any,
    policy: Any,
    limits: RolloutLimits,
    *,
    seed: int,
    environment_seed: int | None,
    same_start: bool | None,
    state_of: StateOf | None,
    max_episode_steps: int | None,
    make_options: dict[str, Any],
) -> Recorder:
    """Build a recorder from the arguments of `rollout`, which are validated."""
    options = dict(make_options)
    if isinstance(environment, str) and max_episode_steps is not None:
        # Replaces the limit that is registered with the id, which may be shorter.
        options["max_episode_steps"] = max_episode_steps
        require_integer(environment, "max_episode_steps", max_episode_steps, 1)
    env, name = make_environment(environment, options, unwrap=False)
    for argument, value, minimum in (
        ("steps", limits.steps, 1),
        ("episodes", limits.episodes, 1),
        ("max_episode_steps", max_episode_steps, 1),
        ("seed", seed, 0),
        ("environment_seed", environment_seed, 0),
    ):
        if value is not None:
            require_integer(name, argument, value, minimum)
    if not isinstance(same_start, bool | np.bool_ | None):
        raise InputError(f"{name}: same_start is {same_start!r} and must be True or False.")
    is_vector = hasattr(env, "single_action_space")
    if is_vector:
        for argument, value in (
            ("same_start", same_start),
            ("max_episode_steps", max_episode_steps),
        ):
            if value:
                raise InputError(
                    f"{name}: is a vector environment, which resets itself, and {argument} is "
                    "for a single one; pass max_episode_steps to gymnasium.make_vec."
                )
    uses_minigrid = not is_vector and is_minigrid(env)
    resets_alike = uses_minigrid if same_start is None else bool(same_start)
    describe_states: StateDescriber | None = None
    if uses_minigrid and resets_alike and state_of is None:
        state_of, describe_states = _minigrid_state, _describe_minigrid_states
    prefix = "single_" if is_vector else ""
    space = getattr(env, f"{prefix}observation_space", None)
    bare = _first_environment(env) if is_vector else env.unwrapped
    known = gymnasium_envs.describe_toy_text(bare, num_discrete_values(space) or 0)
    observer = ObservationEncoder(space, name, state_of, describe_states, known)
    actions = ActionEncoder(getattr(env, f"{prefix}action_space", None), name)
    reset_seed = operator.index(seed if environment_seed is None else environment_seed)
    environments: EnvironmentBatch = (
        VectorEnvironment(env, name, seed=reset_seed)
        if is_vector
        else SingleEnvironment(
            env, seed=reset_seed, same_start=resets_alike, max_episode_steps=max_episode_steps
        )
    )
    num_envs = env.num_envs if is_vector else 1
    selector = ActionSelector(
        policy, actions, observer.num_discrete, operator.index(seed), num_envs
    )
    steps = iterate_steps(environments, observer, actions, selector, limits)
    action_names = minigrid_states.list_actions(bare) if uses_minigrid else known.get("actions", ())
    return Recorder(
        name,
        _close_after(steps, env) if isinstance(environment, str) else steps,
        num_envs > 1,
        observer,
        actions,
        # A wrapper may have changed the actions.
        action_names if len(action_names) == actions.num_actions else None,
        collect_metadata(
            {
                "environment": name,
                "options": make_options or None,
                "policy": selector.name,
                "seed": seed,
                "environment_seed": reset_seed,
                "same_start": resets_alike,
                "max_episode_steps": max_episode_steps,
                "gymnasium": import_optional("gymnasium", name, "worlds").__version__,
            }
        ),
    )


def _close_after(steps: Iterator[EnvironmentStep], environment: Any) -> Iterator[EnvironmentStep]:
    """Yield the steps, then close the environment."""
    try:
        yield from steps
    finally:
        environment.close()


def _first_environment(environment: Any) -> Any:
    """Return the first environment of a vector environment, or None if it is in another process."""
    inside = getattr(environment.unwrapped, "envs", None)
    return inside[0].unwrapped if inside else None


def _minigrid_state(environment: Any, _: Any) -> Hashable:
    """Read the state of a MiniGrid environment."""
    return minigrid_states.read_state(environment.unwrapped)


def _describe_minigrid_states(states: list[Any]) -> dict[str, Any]:
    """Return names and positions that do not depend on which other states were visited.

    Those of an enumerated environment do: states of one name are numbered, and changed rooms are
    laid out side by side, in the order of first occurrence.
    """
    names = minigrid_states.name_states(states)
    if len(set(names)) < len(names):
        return {}
    if any(state[3:] != states[0][3:] for state in states):
        return {"names": names}
    corner = np.array([(state.row - 1, state.column - 1) for state in states])
    offsets = np.array([minigrid_states.DIRECTION_OFFSETS[state.direction] for state in states])
    return {"names": names, "positions": minigrid_states.CELL_SIDE * corner + offsets}
