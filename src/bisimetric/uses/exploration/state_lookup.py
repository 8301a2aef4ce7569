"""Which state of a distance an environment is in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bisimetric.datasets.observations import StateOf, build_array_reader, num_discrete_values
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import MDP, TERMINAL
from bisimetric.worlds import minigrid_states
from bisimetric.worlds.gymnasium_envs import is_minigrid


class StateLookup:
    """The ids that a distance has for the states of an environment.

    `of(environment, observation)` is an id or a name; `names` are those of the distance, in the
    order of ids. The end of an episode is the last state where that is named "end", and else the
    state that was observed. With a `model`, a deterministic MDP, every step is compared with it.
    """

    def __init__(
        self,
        environment_name: str,
        num_states: int,
        names: tuple[str, ...] | None,
        state_of: StateOf,
        model: MDP | None = None,
    ) -> None:
        self._environment_name, self._num_states, self._state_of, self._model = (
            environment_name,
            num_states,
            state_of,
            model,
        )
        self._state = 0
        self._ids = {name: index for index, name in enumerate(names or ())}
        self._names = names or ()
        self.terminal = num_states - 1 if names is not None and names[-1] == TERMINAL else None

    def reset(self, environment: Any, observation: Any) -> int:
        """The state after a reset."""
        if isinstance(self._state_of, MiniGridState):
            self._state_of.require_same_grid(environment)
        self._state = self._find_id(self._state_of(environment, observation))
        return self._state

    def step(self, environment: Any, action: Any, observation: Any, terminated: bool) -> int:
        """The state after a step."""
        if terminated and self.terminal is not None:
            there = self.terminal
        else:
            there = self._find_id(self._state_of(environment, observation))
        if self._model is not None and self._model.next_state[self._state, int(action)] != there:
            name, taken = self._model.state_name, self._model.action_name(int(action))
            raise InputError(
                f"{self._environment_name}: action {taken} led from {name(self._state)} to {name(there)}, and "
                "in the MDP of d it does not: d is of another room; reset with the seed that it "
                "was made with."
            )
        self._state = there
        return there

    def _find_id(self, state: Any) -> int:
        try:
            if state in self._ids:
                return self._ids[state]
            index = int(state)
            if 0 <= index < self._num_states and (index == state or isinstance(state, str)):
                return index
        except (TypeError, ValueError):
            pass
        raise InputError(
            f"{self._environment_name}: is in state {state!r}, and d knows no such one among its "
            f"{self._num_states} states{suggest_names(str(state), self._names) or ';'} take the distance "
            "of this environment, or another state_of."
        )


class DiscreteState:
    """The states of a Discrete space, counted from 0."""

    def __init__(self, start: int) -> None:
        self._start = start

    def __call__(self, environment: Any, observation: Any) -> Hashable:
        return int(observation) - self._start


class MiniGridState:
    """The states of a MiniGrid room by the names that `worlds.enumerate_environment` gives them."""

    def __init__(self, environment_name: str) -> None:
        self._environment_name = environment_name
        self._initial_state: Any = None
        self._grid: bytes | None = None
        self._names: dict[Any, str] = {}

    def __call__(self, environment: Any, observation: Any) -> Hashable:
        state = minigrid_states.read_state(environment.unwrapped)
        if self._initial_state is None:
            self._initial_state = state
        if state not in self._names:
            self._names[state] = minigrid_states.name_states([self._initial_state, state])[1]
        return self._names[state]

    def require_same_grid(self, environment: Any) -> None:
        """Refuses another room than that of the first reset."""
        cells = environment.unwrapped.grid.encode().tobytes()
        if self._grid is None:
            self._grid = cells
        if cells != self._grid:
            raise InputError(
                f"{self._environment_name}: is another room than at its first reset, and d is of one room; "
                "reset it with the same seed every time."
            )


def build_state_lookup(
    environment: Any, environment_name: str, d: Any, num_states: int, state_of: StateOf | None
) -> StateLookup | None:
    """How to find the state of an environment in `d`, or None where its observations have no ids.

    `where` names the environment and `count` is how many states `d` has.
    """
    mdp = getattr(d, "mdp", None)
    names = getattr(d if mdp is None else mdp, "names", None)
    if state_of is not None:
        if not callable(state_of):
            raise InputError(
                f"{environment_name}: state_of is {state_of!r} and must be a function."
            )
        return StateLookup(environment_name, num_states, names, state_of)
    space = environment.observation_space
    size = num_discrete_values(space)
    if size is not None:
        states = StateLookup(environment_name, num_states, names, DiscreteState(int(space.start)))
        if size != (
            num_states if states.terminal is None or size == num_states else num_states - 1
        ):
            raise InputError(
                f"{environment_name}: has {size} states, and d knows {num_states}; take the distance of this "
                "environment, or give a state_of."
            )
        return states
    if is_minigrid(environment) and names is not None:
        sure = mdp is not None and mdp.is_deterministic and mdp.available is None
        return StateLookup(
            environment_name,
            num_states,
            names,
            MiniGridState(environment_name),
            mdp if sure else None,
        )
    return None


class ObservationArray:
    """What makes arrays of the observations of a space, as `Transitions` have them."""

    def __init__(self, space: Any, environment_name: str) -> None:
        self._arguments = space, environment_name
        self._read = build_array_reader(space, environment_name)
        if self._read is None:
            raise InputError(
                f"{environment_name}: its observations are {space} and cannot be made arrays; give a state_of "
                "that finds the states of a table."
            )

    def __call__(self, observation: Any) -> Any:
        return self._read(observation)  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        # The reader of a space is a closure, which no pickle holds.
        return ObservationArray, self._arguments
