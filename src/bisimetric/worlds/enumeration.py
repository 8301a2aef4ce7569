"""Deterministic Gymnasium environments, walked through step by step: every state, every action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from bisimetric._progress import show_progress
from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, TERMINAL
from bisimetric.worlds import minigrid_states
from bisimetric.worlds.gymnasium_envs import (
    is_minigrid,
    make_environment,
    read_actions,
)

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
    found, where = make_environment(environment, make_options)
    actions = read_actions(found, where)
    for option, value, least in (("seed", seed, 0), ("max_states", max_states, 1)):
        if not isinstance(value, int) or value < least:
            raise InputError(
                f"{where}: {option} is {value!r} and must be a whole number, at least {least}."
            )
    if state_of is not None and not callable(state_of):
        raise InputError(f"{where}: state_of is {state_of!r} and must be a function.")
    if not isinstance(environment, str):
        found = _deep_copy(found, where)
    world = _build_simulator(found, where, seed, state_of)
    to, pays, states, ended_in = _enumerate_states(world, where, actions, max_states)
    if ended_in:
        to.append([-1] * len(actions))
        pays.append([0.0] * len(actions))
    next_state = np.array(to)
    next_state[next_state < 0] = len(to) - 1
    about = world.describe(states, ended_in)
    given = DEFAULT_DISCOUNT if discount is None else discount
    return MDP.deterministic(next_state, np.array(pays), discount=given, **about)


class Simulator(NamedTuple):
    """An environment as the walk needs it.

    `start()` resets it and returns environment and observation. `keep(environment)` holds its
    state; `back(kept, again)` is an environment in that state, with random numbers of its own
    for every `again` but 0. `whole` says that `state_of` holds all that counts, so that steps
    on the spot need no second look. `about(states, ended_in)` are the names, positions and
    actions, those of an end included where episodes ended in some states.
    """

    reset: Callable[[], tuple[Any, Any]]
    snapshot: Callable[[Any], Any]
    restore: Callable[[Any, int], Any]
    state_of: StateOf
    is_full_state: bool
    describe: Callable[[list[Any], list[Any]], dict[str, Any]]


class StepOutcome(NamedTuple):
    """What a step led to: `state_of` it, the reward, and whether the episode ended."""

    state: Hashable
    reward: float
    terminated: bool

    def matches(self, other: StepOutcome) -> bool:
        """Whether both are one outcome; all ends are one."""
        alike = (self.reward, self.terminated) == (other.reward, other.terminated)
        return alike and (self.terminated or self.state == other.state)


def _enumerate_states(
    simulator: Simulator, caller: str, actions: range, max_states: int
) -> tuple[list[list[int]], list[list[float]], list[Hashable], list[Hashable]]:
    """Successors (-1 for an end) and rewards of all states, the states, and those of ends."""
    environment, observation = simulator.reset()
    ids = {simulator.state_of(environment, observation): 0}
    waiting = [simulator.snapshot(environment)]
    outcomes: list[list[StepOutcome]] = []
    # What was seen of a state that was reached from a second one before its own turn came.
    seen: dict[int, list[StepOutcome]] = {}
    twice: set[int] = set()
    ended_in: dict[Hashable, None] = {}
    with show_progress(1.0, f"states of {caller}") as progress:
        for state, kept in enumerate(waiting):
            steps = [_step(simulator, kept, action, 0) for action in actions]
            outcomes.append([outcome for outcome, _ in steps])
            repeated = [_step(simulator, kept, action, state + 1)[0] for action in actions]
            _require_equal_outcomes(caller, actions, outcomes[state], repeated)
            _require_equal_outcomes(caller, actions, outcomes[state], seen.pop(state, repeated))
            for outcome, after in steps:
                if outcome.terminated:
                    ended_in[outcome.state] = None
                    continue
                known = ids.setdefault(outcome.state, len(ids))
                if known == len(waiting):
                    if known == max_states:
                        raise InputError(
                            f"{caller}: has more than {max_states:,} states; raise max_states, or "
                            "give a state_of that tells fewer of them apart."
                        )
                    waiting.append(after)
                elif known not in twice if known != state else not simulator.is_full_state:
                    twice |= {known} - {state}
                    again = [_step(simulator, after, action, state + 1)[0] for action in actions]
                    if known <= state:
                        _require_equal_outcomes(caller, actions, outcomes[known], again)
                    else:
                        seen[known] = again
            waiting[state] = None
            progress.set_position((state + 1) / len(ids), f"{len(ids):,} found")
    to = [[-1 if each.terminated else ids[each.state] for each in row] for row in outcomes]
    pays = [[each.reward for each in row] for row in outcomes]
    return to, pays, list(ids), list(ended_in)


def _step(simulator: Simulator, saved: Any, action: int, reseed: int) -> tuple[StepOutcome, Any]:
    environment = simulator.restore(saved, reseed)
    observation, reward, ended, _, _ = environment.step(action)
    outcome = StepOutcome(simulator.state_of(environment, observation), float(reward), bool(ended))
    return outcome, None if reseed else simulator.snapshot(environment)


def _require_equal_outcomes(
    caller: str, actions: range, outcomes: list[StepOutcome], others: list[StepOutcome]
) -> None:
    for action, one, other in zip(actions, outcomes, others, strict=True):
        if not one.matches(other):
            what = "led to different states"
            if (one.reward, one.terminated) != (other.reward, other.terminated):
                what = f"paid {one.reward:g} and then {other.reward:g}"
                if one.terminated != other.terminated:
                    what = "ended the episode only once"
            raise InputError(
                f"{caller}: action {action}, taken twice in the same state, {what}; the environment "
                "is random, or needs another state_of to tell its states apart."
            )


def _build_simulator(
    environment: Any, caller: str, seed: int, state_of: StateOf | None
) -> Simulator:
    def reset() -> tuple[Any, Any]:
        observation, _ = environment.reset(seed=seed)
        return environment, observation

    def restore(saved: Any, reseed: int) -> Any:
        another = _deep_copy(saved, caller)
        if reseed:
            another.unwrapped.np_random = np.random.default_rng(reseed)
        return another

    def describe(states: list[Any], terminal_states: list[Any]) -> dict[str, Any]:
        texts = all(isinstance(each, str) for each in states)
        return {"names": [*states, *[TERMINAL][: len(terminal_states)]]} if texts else {}

    if is_minigrid(environment):
        return Simulator(
            *minigrid_states.simulator_functions(environment, reset, restore, state_of)
        )
    return Simulator(
        reset, lambda kept: kept, restore, state_of or _hash_observation, False, describe
    )


def _deep_copy(environment: Any, caller: str) -> Any:
    try:
        return copy.deepcopy(environment)
    except Exception as error:
        # What an environment holds, it may refuse to copy in any way.
        raise InputError(
            f"{caller}: cannot be copied ({error}), so not be walked through."
        ) from None


def _hash_observation(environment: Any, observation: Any) -> Hashable:
    """An observation as a state: arrays by their bytes, dictionaries and tuples part by part."""
    if isinstance(observation, dict):
        return tuple(
            (name, _hash_observation(environment, observation[name])) for name in observation
        )
    if isinstance(observation, tuple | list):
        return tuple(_hash_observation(environment, part) for part in observation)
    if isinstance(observation, np.ndarray):
        return observation.shape, observation.dtype.str, observation.tobytes()
    return observation  # type: ignore[no-any-return]
