"""A recording: an environment, a policy and the limits, ready to walk; and what becomes of it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from bisimetric.datasets.actions import ActionEncoder, ActionSelector
from bisimetric.datasets.checks import collect_metadata
from bisimetric.datasets.fleets import EnvironmentBatch, SingleEnvironment, VectorEnvironment
from bisimetric.datasets.observations import (
    ObservationEncoder,
    StateDescriber,
    StateOf,
    num_discrete_values,
    stack_observations,
)
from bisimetric.datasets.walks import EnvironmentStep, RolloutLimits, iterate_steps
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp.checks import freeze
from bisimetric.transitions import Transitions
from bisimetric.worlds import minigrid_rooms, toy_text
from bisimetric.worlds.environments import import_optional, is_minigrid, make_environment


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
        ("key", seed, 0),
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
    known = toy_text.describe_toy_text(bare, num_discrete_values(space) or 0)
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
    called = minigrid_rooms.list_actions(bare) if rooms else known.get("actions", ())
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
                "key": seed,
                "seed": start,
                "same_start": alike,
                "max_episode_steps": max_episode_steps,
                "gymnasium": import_optional("gymnasium", where).__version__,
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
    return minigrid_rooms.read_state(environment.unwrapped)


def _describe_minigrid_states(states: list[Any]) -> dict[str, Any]:
    """Names and positions that do not depend on which other states were met.

    Those of `minigrid_rooms.described` do: it numbers states of the same name, and lays rooms in
    which things have changed side by side, in the order of appearance.
    """
    names = minigrid_rooms.name_states(states)
    if len(set(names)) < len(names):
        return {}
    if any(state[3:] != states[0][3:] for state in states):
        return {"names": names}
    corner = np.array([(state.row - 1, state.column - 1) for state in states])
    offsets = np.array([minigrid_rooms.DIRECTION_OFFSETS[state.direction] for state in states])
    return {"names": names, "positions": minigrid_rooms.CELL_SIDE * corner + offsets}
