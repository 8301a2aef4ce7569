"""Steps of one environment or several, one by one, until enough were taken.

A recording: an environment, a policy and the limits, ready to walk; and what becomes of it.
"""

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
    """One step of the environment at one place."""

    env_index: int
    observation: EncodedObservation
    action: Any
    reward: float
    next_observation: EncodedObservation
    terminated: bool
    truncated: bool


@dataclasses.dataclass(frozen=True)
class RolloutLimits:
    """How many steps, and how many episodes, are enough; None means any number."""

    steps: int | None
    episodes: int | None

    def split(self, env_index: int, num_envs: int) -> RolloutLimits:
        """What falls to one of several places.

        >>> [Limits(10, None).share(place, 4).steps for place in range(4)]
        [3, 3, 2, 2]
        """

        def part(whole: int | None) -> int | None:
            return whole if whole is None else whole // num_envs + (env_index < whole % num_envs)

        return RolloutLimits(part(self.steps), part(self.episodes))

    def is_reached(self, steps: int, episodes: int) -> bool:
        return steps == self.steps or episodes == self.episodes


class EnvironmentProgress:
    """Where one environment stands in its share of the walk."""

    def __init__(self, limits: RolloutLimits) -> None:
        self._limits = limits
        self._num_steps = self._num_episodes = self._episode_length = 0
        self.active = not limits.is_reached(0, 0)

    def record_step(self, result: StepResult, max_episode_steps: int | None) -> bool:
        """Counts a step; whether its episode is over."""
        self._episode_length += 1
        over = result.terminated or result.truncated or self._episode_length == max_episode_steps
        self._num_steps += 1
        self._num_episodes += over
        self._episode_length *= not over
        self.active = self.active and not self._limits.is_reached(
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
    """The steps of all environments, in the order of time.

    Each environment takes its share of the limits, so that long episodes count as much as short
    ones. Its last step is truncated, unless the episode ended there.
    """
    environments.reset()
    count = len(environments.observations)
    lanes = [EnvironmentProgress(limits.split(place, count)) for place in range(count)]

    def encode(place: int, observation: Any) -> EncodedObservation:
        return observation_encoder.encode(environments.environments[place], observation)

    seen = [encode(place, environments.observations[place]) for place in range(count)]
    while any(lane.active for lane in lanes):
        acting = [
            lane.active and not environments.resetting[place] for place, lane in enumerate(lanes)
        ]
        chosen = selector.select_actions(seen, acting, environments.call_policy)
        begun = [False] * count
        over = [False] * count
        for place, move in enumerate(environments.step(chosen)):
            lane = lanes[place]
            if move is None:
                begun[place] = True
                continue
            over[place] = lane.record_step(move, environments.max_episode_steps)
            if acting[place]:
                before, seen[place] = seen[place], encode(place, move.observation)
                yield EnvironmentStep(
                    place,
                    before,
                    action_encoder.encode(chosen[place]),
                    move.reward,
                    seen[place],
                    move.terminated,
                    (over[place] or not lane.active) and not move.terminated,
                )
        if not any(lane.active for lane in lanes):
            return
        environments.reset_finished(over)
        for place, lane in enumerate(lanes):
            fresh = begun[place] or (over[place] and not environments.resetting[place])
            if fresh and lane.active:
                seen[place] = encode(place, environments.observations[place])


@dataclasses.dataclass(frozen=True)
class Recorder:
    """Steps that are taken when they are asked for, and what to call their states and actions."""

    environment_name: str
    steps: Iterator[EnvironmentStep]
    is_vector: bool
    observation_encoder: ObservationEncoder
    action_encoder: ActionEncoder
    action_names: Sequence[str] | None
    metadata: dict[str, Any]

    def build_transitions(self, steps: list[EnvironmentStep]) -> Transitions:
        """Steps as Transitions, environment by environment; where there are several, the last
        step of each is a cut, unless the episode ended there."""
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
    """A recording with the arguments of `rollouts.rollout`, all of them checked."""
    options = dict(make_options)
    if isinstance(environment, str) and max_episode_steps is not None:
        # In place of the limit that is registered with the id, which may be shorter.
        options["max_episode_steps"] = max_episode_steps
        require_integer(environment, "max_episode_steps", max_episode_steps, 1)
    found, where = make_environment(environment, options, unwrap=False)
    for what, value, least in (
        ("steps", limits.steps, 1),
        ("episodes", limits.episodes, 1),
        ("max_episode_steps", max_episode_steps, 1),
        ("seed", seed, 0),
        ("seed", seed if environment_seed is None else environment_seed, 0),
    ):
        if value is not None:
            require_integer(where, what, value, least)
    if not isinstance(same_start, bool | np.bool_ | None):
        raise InputError(f"{where}: same_start is {same_start!r} and must be True or False.")
    several = hasattr(found, "single_action_space")
    if several:
        for what, wanted in (("same_start", same_start), ("max_episode_steps", max_episode_steps)):
            if wanted:
                raise InputError(
                    f"{where}: resets itself, as vector environments do, and {what} is for a "
                    "single one; max_episode_steps can be given to gymnasium.make_vec."
                )
    rooms = not several and is_minigrid(found)
    alike = rooms if same_start is None else bool(same_start)
    about: StateDescriber | None = None
    if rooms and alike and state_of is None:
        state_of, about = _minigrid_state, _describe_minigrid_states
    prefix = "single_" if several else ""
    space = getattr(found, f"{prefix}observation_space", None)
    bare = _first_environment(found) if several else found.unwrapped
    known = gymnasium_envs.describe_toy_text(bare, num_discrete_values(space) or 0)
    observer = ObservationEncoder(space, where, state_of, about, known)
    actions = ActionEncoder(getattr(found, f"{prefix}action_space", None), where)
    start = operator.index(seed if environment_seed is None else environment_seed)
    fleet: EnvironmentBatch = (
        VectorEnvironment(found, where, seed=start)
        if several
        else SingleEnvironment(
            found, seed=start, same_start=alike, max_episode_steps=max_episode_steps
        )
    )
    count = found.num_envs if several else 1
    chooser = ActionSelector(policy, actions, observer.num_discrete, operator.index(seed), count)
    steps = iterate_steps(fleet, observer, actions, chooser, limits)
    called = minigrid_states.list_actions(bare) if rooms else known.get("actions", ())
    return Recorder(
        where,
        _close_after(steps, found) if isinstance(environment, str) else steps,
        count > 1,
        observer,
        actions,
        # A wrapper may have left fewer actions, or others.
        called if len(called) == actions.num_actions else None,
        collect_metadata(
            {
                "environment": where,
                "options": make_options or None,
                "policy": chooser.name,
                "seed": seed,
                "environment_seed": start,
                "same_start": alike,
                "max_episode_steps": max_episode_steps,
                "gymnasium": import_optional("gymnasium", where, "worlds").__version__,
            }
        ),
    )


def _close_after(steps: Iterator[EnvironmentStep], environment: Any) -> Iterator[EnvironmentStep]:
    try:
        yield from steps
    finally:
        environment.close()


def _first_environment(environment: Any) -> Any:
    """The first of the environments in a vector environment, or None where it is elsewhere."""
    inside = getattr(environment.unwrapped, "envs", None)
    return inside[0].unwrapped if inside else None


def _minigrid_state(environment: Any, _: Any) -> Hashable:
    return minigrid_states.read_state(environment.unwrapped)


def _describe_minigrid_states(states: list[Any]) -> dict[str, Any]:
    """Names and positions that do not depend on which other states were met.

    Those of `minigrid_rooms.described` do: it numbers states of the same name, and lays rooms in
    which things have changed side by side, in the order of appearance.
    """
    names = minigrid_states.name_states(states)
    if len(set(names)) < len(names):
        return {}
    if any(state[3:] != states[0][3:] for state in states):
        return {"names": names}
    corner = np.array([(state.row - 1, state.column - 1) for state in states])
    offsets = np.array([minigrid_states.DIRECTION_OFFSETS[state.direction] for state in states])
    return {"names": names, "positions": minigrid_states.CELL_SIDE * corner + offsets}
