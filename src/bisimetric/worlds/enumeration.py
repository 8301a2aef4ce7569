"""Deterministic Gymnasium environments, walked through step by step: every state, every action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.progress import bar
from bisimetric.worlds import minigrid_rooms
from bisimetric.worlds.environments import DISCOUNT, END, actions_of, is_minigrid, made

StateOf = Callable[[Any, Any], Hashable]


def enumerate_environment(
    environment: Any,
    *,
    seed: int = 0,
    discount: float | None = None,
    max_states: int = 100_000,
    state_of: StateOf | None = None,
    **make_options: Any,
) -> MDP:
    """The MDP of a deterministic environment: all that can be reached from `reset(seed=seed)`.

    `environment` is one with Discrete actions, or its id, which `make_options` go with; one that
    is given stays as it is. Breadth first, every action is taken in a copy of every state.
    `state_of(environment, observation)` tells states apart: anything hashable, by default the
    observation; where it is a text, it is also the name of the state.

    Nothing is taken on trust. Every step is repeated with other random numbers, and all steps
    from a state are taken once more where it is reached again: if reward, state or ending
    differ, the environment is random or `state_of` too coarse, and it is refused.
    Endings lead to one state more, "end": absorbing, reward 0 for ever. Limits of time
    (truncation) are no ends and are ignored. `discount` None means 0.99.

    For MiniGrid a state is the whole grid, where the agent stands and looks, and what it carries;
    not the partial observation, and not the clock. Its rewards shrink with the clock, which is
    held at 0 here: reaching the goal pays 1 at any time. States are named such as "1,1 east"
    (row and column), with what has changed: "1,1 east, carrying yellow key". On a map each cell
    is a square of four, north upper left and then clockwise, and changed rooms lie side by side.

    >>> enumerate_environment("MiniGrid-Empty-5x5-v0")
    MDP(33 states, 7 actions, deterministic, discount 0.99)
    """
    found, where = made(environment, make_options)
    actions = actions_of(found, where)
    for option, value, least in (("seed", seed, 0), ("max_states", max_states, 1)):
        if not isinstance(value, int) or value < least:
            raise InputError(
                f"{where}: {option} is {value!r} and must be a whole number, at least {least}."
            )
    if state_of is not None and not callable(state_of):
        raise InputError(f"{where}: state_of is {state_of!r} and must be a function.")
    if not isinstance(environment, str):
        found = _deep_copy(found, where)
    world = _world(found, where, seed, state_of)
    to, pays, states, ended_in = _walk(world, where, actions, max_states)
    if ended_in:
        to.append([-1] * len(actions))
        pays.append([0.0] * len(actions))
    next_state = np.array(to)
    next_state[next_state < 0] = len(to) - 1
    about = world.about(states, ended_in)
    given = DISCOUNT if discount is None else discount
    return MDP.deterministic(next_state, np.array(pays), discount=given, **about)


class World(NamedTuple):
    """An environment as the walk needs it.

    `start()` resets it and returns environment and observation. `keep(environment)` holds its
    state; `back(kept, again)` is an environment in that state, with random numbers of its own
    for every `again` but 0. `whole` says that `state_of` holds all that counts, so that steps
    on the spot need no second look. `about(states, ended_in)` are the names, positions and
    actions, those of an end included where episodes ended in some states.
    """

    start: Callable[[], tuple[Any, Any]]
    keep: Callable[[Any], Any]
    back: Callable[[Any, int], Any]
    state_of: StateOf
    whole: bool
    about: Callable[[list[Any], list[Any]], dict[str, Any]]


class Outcome(NamedTuple):
    """What a step led to: `state_of` it, the reward, and whether the episode ended."""

    state: Hashable
    reward: float
    ended: bool

    def same(self, other: Outcome) -> bool:
        """Whether both are one outcome; all ends are one."""
        alike = (self.reward, self.ended) == (other.reward, other.ended)
        return alike and (self.ended or self.state == other.state)


def _walk(
    world: World, where: str, actions: range, max_states: int
) -> tuple[list[list[int]], list[list[float]], list[Hashable], list[Hashable]]:
    """Successors (-1 for an end) and rewards of all states, the states, and those of ends."""
    environment, observation = world.start()
    ids = {world.state_of(environment, observation): 0}
    waiting = [world.keep(environment)]
    outcomes: list[list[Outcome]] = []
    # What was seen of a state that was reached from a second one before its own turn came.
    seen: dict[int, list[Outcome]] = {}
    twice: set[int] = set()
    ended_in: dict[Hashable, None] = {}
    with bar(1.0, f"states of {where}") as progress:
        for state, kept in enumerate(waiting):
            steps = [_step(world, kept, action, 0) for action in actions]
            outcomes.append([outcome for outcome, _ in steps])
            repeated = [_step(world, kept, action, state + 1)[0] for action in actions]
            _refuse_differing(where, actions, outcomes[state], repeated)
            _refuse_differing(where, actions, outcomes[state], seen.pop(state, repeated))
            for outcome, after in steps:
                if outcome.ended:
                    ended_in[outcome.state] = None
                    continue
                known = ids.setdefault(outcome.state, len(ids))
                if known == len(waiting):
                    if known == max_states:
                        raise InputError(
                            f"{where}: has more than {max_states:,} states; raise max_states, or "
                            "give a state_of that tells fewer of them apart."
                        )
                    waiting.append(after)
                elif known not in twice if known != state else not world.whole:
                    twice |= {known} - {state}
                    again = [_step(world, after, action, state + 1)[0] for action in actions]
                    if known <= state:
                        _refuse_differing(where, actions, outcomes[known], again)
                    else:
                        seen[known] = again
            waiting[state] = None
            progress.at((state + 1) / len(ids), f"{len(ids):,} found")
    to = [[-1 if each.ended else ids[each.state] for each in row] for row in outcomes]
    pays = [[each.reward for each in row] for row in outcomes]
    return to, pays, list(ids), list(ended_in)


def _step(world: World, kept: Any, action: int, again: int) -> tuple[Outcome, Any]:
    environment = world.back(kept, again)
    observation, reward, ended, _, _ = environment.step(action)
    outcome = Outcome(world.state_of(environment, observation), float(reward), bool(ended))
    return outcome, None if again else world.keep(environment)


def _refuse_differing(
    where: str, actions: range, outcomes: list[Outcome], others: list[Outcome]
) -> None:
    for action, one, other in zip(actions, outcomes, others, strict=True):
        if not one.same(other):
            what = "led to different states"
            if (one.reward, one.ended) != (other.reward, other.ended):
                what = f"paid {one.reward:g} and then {other.reward:g}"
                if one.ended != other.ended:
                    what = "ended the episode only once"
            raise InputError(
                f"{where}: action {action}, taken twice in the same state, {what}; the environment "
                "is random, or needs another state_of to tell its states apart."
            )


def _world(environment: Any, where: str, seed: int, state_of: StateOf | None) -> World:
    def start() -> tuple[Any, Any]:
        observation, _ = environment.reset(seed=seed)
        return environment, observation

    def copied(kept: Any, again: int) -> Any:
        another = _deep_copy(kept, where)
        if again:
            another.unwrapped.np_random = np.random.default_rng(again)
        return another

    def named(states: list[Any], ended_in: list[Any]) -> dict[str, Any]:
        texts = all(isinstance(each, str) for each in states)
        return {"names": [*states, *[END][: len(ended_in)]]} if texts else {}

    if is_minigrid(environment):
        return World(*minigrid_rooms.walkable(environment, start, copied, state_of))
    return World(start, lambda kept: kept, copied, state_of or _of_observation, False, named)


def _deep_copy(environment: Any, where: str) -> Any:
    try:
        return copy.deepcopy(environment)
    except Exception as error:
        # What an environment holds, it may refuse to copy in any way.
        raise InputError(
            f"{where}: cannot be copied ({error}), so not be walked through."
        ) from None


def _of_observation(environment: Any, observation: Any) -> Hashable:
    """An observation as a state: arrays by their bytes, dictionaries and tuples part by part."""
    if isinstance(observation, dict):
        return tuple(
            (name, _of_observation(environment, observation[name])) for name in observation
        )
    if isinstance(observation, tuple | list):
        return tuple(_of_observation(environment, part) for part in observation)
    if isinstance(observation, np.ndarray):
        return observation.shape, observation.dtype.str, observation.tobytes()
    return observation  # type: ignore[no-any-return]
