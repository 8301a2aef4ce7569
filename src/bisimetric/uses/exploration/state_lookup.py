"""Find the state of a distance that an environment is in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bisimetric.datasets.observations import StateOf, build_array_reader, num_discrete_values
from bisimetric.distance import Distance
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import MDP, TERMINAL
from bisimetric.uses.certificates import ListedDistance
from bisimetric.worlds import minigrid_states
from bisimetric.worlds.gymnasium_envs import is_minigrid


class StateLookup:
    """Map the states of an environment to the ids of a distance.

    `state_of(environment, observation)` is an id or a name; `names` are those of the distance, in
    the order of ids. A terminated episode is in the last state where that is named as the terminal
    state, and else in the observed state. With a `model`, a deterministic MDP, every step is
    checked against it.
    """

    def __init__(
        self,
        environment_name: str,
        num_states: int,
        names: tuple[str, ...] | None,
        state_of: StateOf,
        model: MDP | None = None,
    ) -> None:
        self._environment_name, self._num_states = environment_name, num_states
        self._state_of, self._model = state_of, model
        self._state = 0
        self._ids = {name: index for index, name in enumerate(names or ())}
        self._names = names or ()
        self.terminal = num_states - 1 if names is not None and names[-1] == TERMINAL else None

    def reset(self, environment: Any, observation: Any) -> int:
        """Return the id after a reset."""
        if isinstance(self._state_of, MiniGridState):
            self._state_of.require_same_grid(environment)
        self._state = self._find_id(self._state_of(environment, observation))
        return self._state

    def step(self, environment: Any, action: Any, observation: Any, terminated: bool) -> int:
        """Return the id after a step."""
        if terminated and self.terminal is not None:
            state = self.terminal
        else:
            state = self._find_id(self._state_of(environment, observation))
        if self._model is not None and self._model.next_state[self._state, int(action)] != state:
            name, action_name = self._model.state_name, self._model.action_name(int(action))
            raise InputError(
                f"{self._environment_name}: action {action_name} led from {name(self._state)} to "
                f"{name(state)}, which contradicts the MDP of d: d is of another grid; reset with "
                "the seed that it was computed with."
            )
        self._state = state
        return state

    def _find_id(self, state: Any) -> int:
        """Return the id of a state given by name or id."""
        try:
            if state in self._ids:
                return self._ids[state]
            index = int(state)
            if 0 <= index < self._num_states and (index == state or isinstance(state, str)):
                return index
        except (TypeError, ValueError):
            pass
        raise InputError(
            f"{self._environment_name}: is in state {state!r}, which is none of the "
            f"{self._num_states} states of d{suggest_names(str(state), self._names) or ';'} use a "
            "distance of this environment, or another state_of."
        )


class DiscreteState:
    """A picklable `state_of` for a Discrete space: ids from 0."""

    def __init__(self, start: int) -> None:
        self._start = start

    def __call__(self, environment: Any, observation: Any) -> Hashable:
        return int(observation) - self._start


class MiniGridState:
    """A picklable `state_of` for MiniGrid: the state names of `worlds.enumerate_environment`."""

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
        """Raise InputError if the grid differs from that of the first reset."""
        grid = environment.unwrapped.grid.encode().tobytes()
        if self._grid is None:
            self._grid = grid
        if grid != self._grid:
            raise InputError(
                f"{self._environment_name}: the grid differs from that of the first reset, and d "
                "is of one grid; reset with the same seed every time."
            )


def build_state_lookup(
    environment: Any, environment_name: str, d: Any, num_states: int, state_of: StateOf | None
) -> StateLookup | None:
    """Return the lookup of an environment in `d`, or None where its observations have no ids.

    `num_states` is the number of states of `d`; `environment_name` is for messages.
    """
    mdp = d.mdp if isinstance(d, Distance | ListedDistance) else None
    named = d if mdp is None and isinstance(d, ListedDistance) else mdp
    names = None if named is None else named.names
    if state_of is not None:
        if not callable(state_of):
            raise InputError(
                f"{environment_name}: state_of is {state_of!r} and must be a function."
            )
        return StateLookup(environment_name, num_states, names, state_of)
    space = environment.observation_space
    num_observed = num_discrete_values(space)
    if num_observed is not None:
        lookup = StateLookup(environment_name, num_states, names, DiscreteState(int(space.start)))
        if num_observed != (
            num_states if lookup.terminal is None or num_observed == num_states else num_states - 1
        ):
            raise InputError(
                f"{environment_name}: has {num_observed} states, and d has {num_states}; use a "
                "distance of this environment, or pass state_of."
            )
        return lookup
    if is_minigrid(environment) and names is not None:
        is_checkable = mdp is not None and mdp.is_deterministic and mdp.available is None
        return StateLookup(
            environment_name,
            num_states,
            names,
            MiniGridState(environment_name),
            mdp if is_checkable else None,
        )
    return None


class ObservationArray:
    """Convert the observations of a space to arrays, as `Transitions` do; picklable."""

    def __init__(self, space: Any, environment_name: str) -> None:
        self._arguments = space, environment_name
        self._read = build_array_reader(space, environment_name)
        if self._read is None:
            raise InputError(
                f"{environment_name}: its observations are {space} and cannot be converted to "
                "arrays; pass state_of to find the states of a matrix."
            )

    def __call__(self, observation: Any) -> Any:
        return self._read(observation)  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        # The reader of a space is a closure, which cannot be pickled.
        return ObservationArray, self._arguments
