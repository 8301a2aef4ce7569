"""A recording: an environment, a policy and the limits, ready to walk; and what becomes of it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from bisimetric.datasets.actions import Actions, Chooser
from bisimetric.datasets.checks import told
from bisimetric.datasets.fleets import Fleet, Single, Vector
from bisimetric.datasets.observations import About, Observer, StateOf, discrete, stacked
from bisimetric.datasets.walks import Limits, Step, walk
from bisimetric.errors import InputError, whole
from bisimetric.mdp.checks import frozen
from bisimetric.transitions import Transitions
from bisimetric.worlds import minigrid_rooms, toy_text
from bisimetric.worlds.environments import imported, is_minigrid, made


@dataclasses.dataclass(frozen=True)
class Recording:
    """Steps that are taken when they are asked for, and what to call their states and actions."""

    where: str
    steps: Iterator[Step]
    several: bool
    observer: Observer
    actions: Actions
    action_names: Sequence[str] | None
    how: dict[str, Any]

    def transitions(self, steps: list[Step]) -> Transitions:
        """Steps as Transitions, environment by environment; where there are several, the last
        step of each is a cut, unless the episode ended there."""
        ordered = sorted(steps, key=lambda step: step.place)
        terminated = np.array([step.terminated for step in ordered])
        truncated = np.array([step.truncated for step in ordered])
        if self.several:
            last = np.diff([step.place for step in ordered], append=-1) != 0
            truncated |= last & ~terminated
        observations, states = stacked(step.before for step in ordered)
        following, next_states = stacked(step.after for step in ordered)
        taken = [step.action for step in ordered]
        return Transitions(
            frozen(observations),
            frozen(np.array(taken) if self.actions.count is not None else np.stack(taken)),
            frozen(np.array([step.reward for step in ordered])),
            frozen(following),
            frozen(terminated),
            frozen(truncated),
            states=states,
            next_states=next_states,
            num_actions=self.actions.count,
            action_names=self.action_names,
            made=self.how,
            **self.observer.about(),
        )


def record(
    environment: Any,
    policy: Any,
    limits: Limits,
    *,
    key: int,
    seed: int | None,
    same_start: bool | None,
    state_of: StateOf | None,
    max_episode_steps: int | None,
    make_options: dict[str, Any],
) -> Recording:
    """A recording with the arguments of `rollouts.rollout`, all of them checked."""
    options = dict(make_options)
    if isinstance(environment, str) and max_episode_steps is not None:
        # In place of the limit that is registered with the id, which may be shorter.
        options["max_episode_steps"] = max_episode_steps
        whole(environment, "max_episode_steps", max_episode_steps, 1)
    found, where = made(environment, options, bare=False)
    for what, value, least in (
        ("steps", limits.steps, 1),
        ("episodes", limits.episodes, 1),
        ("max_episode_steps", max_episode_steps, 1),
        ("key", key, 0),
        ("seed", key if seed is None else seed, 0),
    ):
        if value is not None:
            whole(where, what, value, least)
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
    about: About | None = None
    if rooms and alike and state_of is None:
        state_of, about = _of_room, _about_rooms
    prefix = "single_" if several else ""
    space = getattr(found, f"{prefix}observation_space", None)
    bare = _first(found) if several else found.unwrapped
    known = toy_text.about(bare, discrete(space) or 0)
    observer = Observer(space, where, state_of, about, known)
    actions = Actions(getattr(found, f"{prefix}action_space", None), where)
    start = operator.index(key if seed is None else seed)
    fleet: Fleet = (
        Vector(found, where, seed=start)
        if several
        else Single(found, seed=start, same_start=alike, longest=max_episode_steps)
    )
    count = found.num_envs if several else 1
    chooser = Chooser(policy, actions, observer.own, operator.index(key), count)
    steps = walk(fleet, observer, actions, chooser, limits)
    called = minigrid_rooms.action_names(bare) if rooms else known.get("actions", ())
    return Recording(
        where,
        _closing(steps, found) if isinstance(environment, str) else steps,
        count > 1,
        observer,
        actions,
        # A wrapper may have left fewer actions, or others.
        called if len(called) == actions.count else None,
        told(
            {
                "environment": where,
                "options": make_options or None,
                "policy": chooser.name,
                "key": key,
                "seed": start,
                "same_start": alike,
                "max_episode_steps": max_episode_steps,
                "gymnasium": imported("gymnasium", where).__version__,
            }
        ),
    )


def _closing(steps: Iterator[Step], environment: Any) -> Iterator[Step]:
    try:
        yield from steps
    finally:
        environment.close()


def _first(environment: Any) -> Any:
    """The first of the environments in a vector environment, or None where it is elsewhere."""
    inside = getattr(environment.unwrapped, "envs", None)
    return inside[0].unwrapped if inside else None


def _of_room(environment: Any, _: Any) -> Hashable:
    return minigrid_rooms.state_of(environment.unwrapped)


def _about_rooms(states: list[Any]) -> dict[str, Any]:
    """Names and positions that do not depend on which other states were met.

    Those of `minigrid_rooms.described` do: it numbers states of the same name, and lays rooms in
    which things have changed side by side, in the order of appearance.
    """
    names = minigrid_rooms.named(states)
    if len(set(names)) < len(names):
        return {}
    if any(state[3:] != states[0][3:] for state in states):
        return {"names": names}
    corner = np.array([(state.row - 1, state.column - 1) for state in states])
    offsets = np.array([minigrid_rooms.OFFSETS[state.direction] for state in states])
    return {"names": names, "positions": minigrid_rooms.SIDE * corner + offsets}
