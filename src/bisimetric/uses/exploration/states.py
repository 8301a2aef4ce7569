"""Which state of a distance an environment is in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bisimetric.datasets.observations import StateOf, discrete, reader
from bisimetric.errors import InputError, near_names
from bisimetric.mdp import MDP
from bisimetric.worlds import minigrid_rooms
from bisimetric.worlds.environments import END, is_minigrid


class States:
    """The ids that a distance has for the states of an environment.

    `of(environment, observation)` is an id or a name; `names` are those of the distance, in the
    order of ids. The end of an episode is the last state where that is named "end", and else the
    state that was observed. With a `model`, a deterministic MDP, every step is compared with it.
    """

    def __init__(
        self,
        where: str,
        count: int,
        names: tuple[str, ...] | None,
        of: StateOf,
        model: MDP | None = None,
    ) -> None:
        self._where, self._count, self._of, self._model = where, count, of, model
        self._here = 0
        self._ids = {name: index for index, name in enumerate(names or ())}
        self._names = names or ()
        self.end = count - 1 if names is not None and names[-1] == END else None

    def start(self, environment: Any, observation: Any) -> int:
        """The state after a reset."""
        if isinstance(self._of, Room):
            self._of.check(environment)
        self._here = self._id(self._of(environment, observation))
        return self._here

    def after(self, environment: Any, action: Any, observation: Any, ended: bool) -> int:
        """The state after a step."""
        if ended and self.end is not None:
            there = self.end
        else:
            there = self._id(self._of(environment, observation))
        if self._model is not None and self._model.next_state[self._here, int(action)] != there:
            name, taken = self._model.name, self._model.action_name(int(action))
            raise InputError(
                f"{self._where}: action {taken} led from {name(self._here)} to {name(there)}, and "
                "in the MDP of d it does not: d is of another room; reset with the seed that it "
                "was made with."
            )
        self._here = there
        return there

    def _id(self, which: Any) -> int:
        try:
            if which in self._ids:
                return self._ids[which]
            index = int(which)
            if 0 <= index < self._count and (index == which or isinstance(which, str)):
                return index
        except (TypeError, ValueError):
            pass
        raise InputError(
            f"{self._where}: is in state {which!r}, and d knows no such one among its "
            f"{self._count} states{near_names(str(which), self._names) or ';'} take the distance "
            "of this environment, or another state_of."
        )


class Counted:
    """The states of a Discrete space, counted from 0."""

    def __init__(self, start: int) -> None:
        self._start = start

    def __call__(self, environment: Any, observation: Any) -> Hashable:
        return int(observation) - self._start


class Room:
    """The states of a MiniGrid room by the names that `worlds.enumerate_environment` gives them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._first: Any = None
        self._cells: bytes | None = None
        self._names: dict[Any, str] = {}

    def __call__(self, environment: Any, observation: Any) -> Hashable:
        state = minigrid_rooms.state_of(environment.unwrapped)
        if self._first is None:
            self._first = state
        if state not in self._names:
            self._names[state] = minigrid_rooms.named([self._first, state])[1]
        return self._names[state]

    def check(self, environment: Any) -> None:
        """Refuses another room than that of the first reset."""
        cells = environment.unwrapped.grid.encode().tobytes()
        if self._cells is None:
            self._cells = cells
        if cells != self._cells:
            raise InputError(
                f"{self._where}: is another room than at its first reset, and d is of one room; "
                "reset it with the same seed every time."
            )


def states_of(
    environment: Any, where: str, d: Any, count: int, state_of: StateOf | None
) -> States | None:
    """How to find the state of an environment in `d`, or None where its observations have no ids.

    `where` names the environment and `count` is how many states `d` has.
    """
    mdp = getattr(d, "mdp", None)
    names = getattr(d if mdp is None else mdp, "names", None)
    if state_of is not None:
        if not callable(state_of):
            raise InputError(f"{where}: state_of is {state_of!r} and must be a function.")
        return States(where, count, names, state_of)
    space = environment.observation_space
    size = discrete(space)
    if size is not None:
        states = States(where, count, names, Counted(int(space.start)))
        if size != (count if states.end is None or size == count else count - 1):
            raise InputError(
                f"{where}: has {size} states, and d knows {count}; take the distance of this "
                "environment, or give a state_of."
            )
        return states
    if is_minigrid(environment) and names is not None:
        sure = mdp is not None and mdp.is_deterministic and mdp.available is None
        return States(where, count, names, Room(where), mdp if sure else None)
    return None


class Observed:
    """What makes arrays of the observations of a space, as `Transitions` have them."""

    def __init__(self, space: Any, where: str) -> None:
        self._given = space, where
        self._read = reader(space, where)
        if self._read is None:
            raise InputError(
                f"{where}: its observations are {space} and cannot be made arrays; give a state_of "
                "that finds the states of a table."
            )

    def __call__(self, observation: Any) -> Any:
        return self._read(observation)  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        # The reader of a space is a closure, which no pickle holds.
        return Observed, self._given
