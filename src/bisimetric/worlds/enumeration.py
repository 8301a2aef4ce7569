"""Enumerate the states of deterministic Gymnasium environments by breadth-first search."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from bisimetric._progress import show_progress
from bisimetric.errors import InputError
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, TERMINAL
from bisimetric.worlds import minigrid_states
from bisimetric.worlds.gymnasium_envs import is_minigrid, make_environment, read_actions

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
    """Build the MDP of a deterministic environment: all states reachable from `reset(seed=seed)`.

    By breadth-first search, every action is taken in a copy of every state. Determinism is checked:
    every step is repeated with other random numbers, and all steps from a state are repeated where
    it is reached again. If reward, state or termination differ, the environment is stochastic or
    `state_of` merges different states, and an error is raised.

    Terminating transitions lead to one more state, "end": absorbing, with reward 0. Truncation is
    not termination and is ignored.

    For MiniGrid a state is the whole grid, the agent's cell and direction, and the object it
    carries; not the partial observation, and not the step count. Its rewards decrease with the step
    count, which is held at 0 here: reaching the goal always pays 1. States have names such as
    "1,1 east" (row and column), with all changes: "1,1 east, carrying yellow key". On a map each
    cell is a square of four, north upper left and then clockwise, and changed rooms lie side by
    side.

    Args:
        environment: one with Discrete actions, which is not modified, or its id.
        seed: of the reset.
        discount: of the MDP; None means 0.99.
        max_states: the largest number of states.
        state_of: `state_of(environment, observation)` returns a hashable that identifies the state;
            a string is also its name. None takes the observation.
        **make_options: for `gymnasium.make`, if an id is given.

    Returns:
        The MDP.

    Raises:
        InputError: an argument is invalid, the environment cannot be made or copied, is not
            deterministic, or has more than `max_states` states.

    >>> enumerate_environment("MiniGrid-Empty-5x5-v0")
    MDP(33 states, 7 actions, deterministic, discount 0.99)
    """
    instance, caller = make_environment(environment, make_options)
    actions = read_actions(instance, caller)
    for option, value, minimum in (("seed", seed, 0), ("max_states", max_states, 1)):
        if not isinstance(value, int) or value < minimum:
            raise InputError(
                f"{caller}: {option} is {value!r} and must be a whole number, at least {minimum}."
            )
    if state_of is not None and not callable(state_of):
        raise InputError(f"{caller}: state_of is {state_of!r} and must be a function.")
    if not isinstance(environment, str):
        instance = _deep_copy(instance, caller)
    simulator = _build_simulator(instance, caller, seed, state_of)
    successors, rewards, states, terminal_states = _enumerate_states(
        simulator, caller, actions, max_states
    )
    if terminal_states:
        successors.append([-1] * len(actions))
        rewards.append([0.0] * len(actions))
    next_state = np.array(successors)
    next_state[next_state < 0] = len(successors) - 1
    attributes = simulator.describe(states, terminal_states)
    used_discount = DEFAULT_DISCOUNT if discount is None else discount
    return MDP.deterministic(next_state, np.array(rewards), discount=used_discount, **attributes)


class Simulator(NamedTuple):
    """An environment whose states can be saved and restored.

    Attributes:
        reset: returns the environment and its first observation.
        snapshot: saves the state of an environment.
        restore: `restore(saved, reseed)` returns an environment in that state, with other random
            numbers for each `reseed` other than 0.
        state_of: identifies the state of an environment and observation.
        is_full_state: whether `state_of` determines the future, so that self-loops need no check.
        describe: `describe(states, terminal_states)` returns names, positions and actions, with
            those of a terminal state if there are terminal states.
    """

    reset: Callable[[], tuple[Any, Any]]
    snapshot: Callable[[Any], Any]
    restore: Callable[[Any, int], Any]
    state_of: StateOf
    is_full_state: bool
    describe: Callable[[list[Any], list[Any]], dict[str, Any]]


class StepOutcome(NamedTuple):
    """The result of a step: its state, reward, and whether the episode terminated."""

    state: Hashable
    reward: float
    terminated: bool

    def matches(self, other: StepOutcome) -> bool:
        """Tell whether both are the same outcome; all terminations are."""
        alike = (self.reward, self.terminated) == (other.reward, other.terminated)
        return alike and (self.terminated or self.state == other.state)


def _enumerate_states(
    simulator: Simulator, caller: str, actions: range, max_states: int
) -> tuple[list[list[int]], list[list[float]], list[Hashable], list[Hashable]]:
    """Return successors (-1: terminal) and rewards of all states, the states, and terminal ones."""
    environment, observation = simulator.reset()
    ids = {simulator.state_of(environment, observation): 0}
    queue = [simulator.snapshot(environment)]
    outcomes: list[list[StepOutcome]] = []
    # Outcomes of states reached a second time before they were expanded themselves.
    early_outcomes: dict[int, list[StepOutcome]] = {}
    checked_again: set[int] = set()
    terminal_states: dict[Hashable, None] = {}
    with show_progress(1.0, f"states of {caller}") as progress:
        for state, saved in enumerate(queue):
            steps = [_step(simulator, saved, action, 0) for action in actions]
            outcomes.append([outcome for outcome, _ in steps])
            repeated = [_step(simulator, saved, action, state + 1)[0] for action in actions]
            _require_equal_outcomes(caller, actions, outcomes[state], repeated)
            _require_equal_outcomes(
                caller, actions, outcomes[state], early_outcomes.pop(state, repeated)
            )
            for outcome, after in steps:
                if outcome.terminated:
                    terminal_states[outcome.state] = None
                    continue
                known = ids.setdefault(outcome.state, len(ids))
                if known == len(queue):
                    if known == max_states:
                        raise InputError(
                            f"{caller}: has more than {max_states:,} states; raise max_states, or "
                            "give a state_of that merges some of them."
                        )
                    queue.append(after)
                elif known not in checked_again if known != state else not simulator.is_full_state:
                    checked_again |= {known} - {state}
                    outcomes_again = [
                        _step(simulator, after, action, state + 1)[0] for action in actions
                    ]
                    if known <= state:
                        _require_equal_outcomes(caller, actions, outcomes[known], outcomes_again)
                    else:
                        early_outcomes[known] = outcomes_again
            queue[state] = None
            progress.set_position((state + 1) / len(ids), f"{len(ids):,} found")
    successors = [[-1 if each.terminated else ids[each.state] for each in row] for row in outcomes]
    rewards = [[each.reward for each in row] for row in outcomes]
    return successors, rewards, list(ids), list(terminal_states)


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
                f"{caller}: action {action}, taken twice in the same state, {what}; the "
                "environment is stochastic, or needs a state_of that separates its states."
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
        # The members of an environment may raise anything when copied.
        raise InputError(
            f"{caller}: cannot be copied ({error}), so it cannot be enumerated."
        ) from None


def _hash_observation(environment: Any, observation: Any) -> Hashable:
    """Convert an observation to a hashable: arrays by their bytes, containers by parts."""
    if isinstance(observation, dict):
        return tuple(
            (name, _hash_observation(environment, observation[name])) for name in observation
        )
    if isinstance(observation, tuple | list):
        return tuple(_hash_observation(environment, part) for part in observation)
    if isinstance(observation, np.ndarray):
        return observation.shape, observation.dtype.str, observation.tobytes()
    return observation  # type: ignore[no-any-return]
