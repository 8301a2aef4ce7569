"""What is kept of an observation: an array, and the id of a state where there is one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._optional import import_optional
from bisimetric.errors import InputError

StateOf = Callable[[Any, Any], Hashable]
StateDescriber = Callable[[list[Any]], dict[str, Any]]
ArrayReader = Callable[[Any], NDArray[Any]]


class EncodedObservation(NamedTuple):
    """An observation as it is kept: its array, and the id of its state or None."""

    array: Any
    state: int | None


class ObservationEncoder:
    """Reads the observations of a space one by one, and numbers the states that it meets.

    States of a Discrete space are numbered as the space says, from its start. Others get their
    ids in the order of first appearance: what `state_of(environment, observation)` tells apart
    or, for MultiDiscrete, MultiBinary and Text spaces and for Tuples and Dicts of them, the
    values themselves. All others have no ids. `about(states)` are the names and positions of
    the states met so far; `known` are those of a Discrete space.

    >>> from gymnasium import spaces
    >>> observer = Observer(spaces.MultiDiscrete([3, 3]), "example")
    >>> [observer.see(None, np.array(each)).state for each in ([2, 0], [1, 1], [2, 0])]
    [0, 1, 0]
    >>> observer.about()
    {'num_states': 2, 'names': ['2,0', '1,1']}
    """

    def __init__(
        self,
        space: Any,
        environment_name: str,
        state_of: StateOf | None = None,
        describe_states: StateDescriber | None = None,
        known_states: Mapping[str, Any] | None = None,
    ) -> None:
        if state_of is not None and not callable(state_of):
            raise InputError(
                f"{environment_name}: state_of is {state_of!r} and must be a function."
            )
        self._space, self._environment_name = space, environment_name
        self._read = build_array_reader(space, environment_name)
        self.num_discrete = num_discrete_values(space) if state_of is None else None
        self._state_of = state_of
        if state_of is None and self.num_discrete is None and _is_countable(space):
            self._state_of = lambda _, observation: _to_hashable(observation)
        if self._read is None and self._state_of is None:
            raise InputError(
                f"{environment_name}: its observations are {space} and cannot be made arrays; give a state_of "
                "that tells states apart."
            )
        self._describe_states = describe_states or name_states
        self._known_states = {
            field: known_states[field]
            for field in ("names", "positions")
            if known_states and field in known_states
        }
        self._ids: dict[Hashable, int] = {}
        self._shape: tuple[int, ...] | None = None

    def encode(self, environment: Any, observation: Any) -> EncodedObservation:
        """An observation as it is kept; `environment` is what `state_of` may look at."""
        array = None if self._read is None else self._read_array(self._read, observation)
        if self.num_discrete is not None:
            state = self._discrete_id(array)
            return EncodedObservation(state, state)
        if self._state_of is None:
            return EncodedObservation(array, None)
        state = self._assign_id(self._state_of(environment, observation))
        return EncodedObservation(state if array is None else array, state)

    def encode_batch(self, observations: Iterable[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Many observations without their environment: arrays (n, ...) and ids (n,) or None."""
        if (
            isinstance(observations, np.ndarray)
            and self._state_of is None
            and self.num_discrete is None
        ):
            return observations, None
        return stack_observations(self.encode(None, observation) for observation in observations)

    def describe_states(self) -> dict[str, Any]:
        """How many states there are, so far, with names and positions: fields of Transitions."""
        if self.num_discrete is not None:
            return {"num_states": self.num_discrete, **self._known_states}
        if self._state_of is None:
            return {}
        return {"num_states": len(self._ids), **self._describe_states(list(self._ids))}

    def _assign_id(self, state: Hashable) -> int:
        try:
            return self._ids.setdefault(state, len(self._ids))
        except TypeError:
            raise InputError(
                f"{self._environment_name}: state_of returned {type(state).__name__}, which cannot be hashed; "
                "return a text, a number, or a tuple of them."
            ) from None

    def _discrete_id(self, array: Any) -> int:
        state = int(array)
        if not 0 <= state < (self.num_discrete or 0):
            raise InputError(
                f"{self._environment_name}: an observation is {state + int(self._space.start)}, outside of "
                f"its space {self._space}."
            )
        return state

    def _read_array(self, read: ArrayReader, observation: Any) -> NDArray[Any]:
        try:
            array = read(observation)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise InputError(
                f"{self._environment_name}: an observation does not fit its space {self._space} ({error})."
            ) from None
        if self._shape is None:
            self._shape = array.shape
        if array.shape != self._shape:
            raise InputError(
                f"{self._environment_name}: an observation has shape {array.shape} and the first one "
                f"{self._shape}; observations must keep their shape."
            )
        return array


def stack_observations(
    observations: Iterable[EncodedObservation],
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Observations as one array (n, ...), and the ids of their states (n,), or None."""
    arrays, states = zip(*observations, strict=True)
    return np.stack(arrays), None if states[0] is None else np.array(states, dtype=np.int64)


def unstack_values(values: Any, num_rows: int) -> Any:
    """Values of a space that are stored part by part, one for each step; arrays as they are.

    >>> rows({"place": np.array([4, 5]), "wind": (np.array([0.1, 0.2]),)}, 2)[1]
    {'place': np.int64(5), 'wind': (np.float64(0.2),)}
    """
    if isinstance(values, dict):
        parts = {name: unstack_values(part, num_rows) for name, part in values.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(num_rows)]
    if isinstance(values, tuple):
        return list(zip(*(unstack_values(part, num_rows) for part in values), strict=True))
    return values


def build_array_reader(space: Any, environment_name: str) -> ArrayReader | None:
    """What makes arrays of the values of a space, or None where nothing can.

    Arrays are copied as they are, Discrete values counted from 0. Of MiniGrid's observations it
    is the image. Tuples and Dicts are flattened into one vector, in which a Discrete part is
    a 1 among 0s.

    >>> from gymnasium import spaces
    >>> reader(spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))), "example")((1, 0)).tolist()
    [0, 1, 0, 1, 0]
    """
    spaces = import_optional("gymnasium", environment_name, "worlds").spaces
    if not isinstance(space, spaces.Space):
        raise InputError(
            f"{environment_name}: its space is {space!r} and must be one of Gymnasium's."
        )
    if isinstance(space, spaces.Discrete):
        return lambda value: np.array(value).reshape(()) - space.start
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return lambda value: np.array(value)
    if isinstance(space, spaces.Dict) and {"image", "mission"} <= set(space.spaces):
        return lambda value: np.array(value["image"])
    try:
        if not isinstance(spaces.flatten_space(space), spaces.Box):
            return None
    except NotImplementedError:
        return None
    return lambda value: np.array(spaces.flatten(space, value))


def num_discrete_values(space: Any) -> int | None:
    """How many values a Discrete space has, or None for others."""
    return int(space.n) if _has_type_name(space, "Discrete") else None


def name_states(states: list[Any]) -> dict[str, Any]:
    """The names of states that are texts, numbers, or tuples of them; else nothing.

    >>> spelled(["door", (14, 10, 0)])
    {'names': ['door', '14,10,0']}
    """
    names = [_format_state(state) for state in states]
    return {"names": names} if None not in names and len(set(names)) == len(names) else {}


def _format_state(state: Any) -> str | None:
    if isinstance(state, str | int | float | np.number | np.bool_):
        return str(state)
    if type(state) is tuple and state:
        parts = [_format_state(part) for part in state]
        return None if None in parts else ",".join(map(str, parts))
    return None


def _has_type_name(space: Any, *type_names: str) -> bool:
    return any(each.__name__ in type_names for each in type(space).__mro__)


def _is_countable(space: Any) -> bool:
    """Whether a space has finitely many values, or texts."""
    if _has_type_name(space, "Tuple", "Dict"):
        parts = getattr(space.spaces, "values", lambda: space.spaces)()
        return all(map(_is_countable, parts))
    return _has_type_name(space, "Discrete", "MultiDiscrete", "MultiBinary", "Text")


def _to_hashable(observation: Any) -> Hashable:
    """A value of a countable space as numbers, texts and tuples."""
    if isinstance(observation, dict):
        return tuple(_to_hashable(observation[name]) for name in sorted(observation))
    if isinstance(observation, tuple | list):
        return tuple(map(_to_hashable, observation))
    if isinstance(observation, np.ndarray | np.generic):
        return _to_hashable(observation.tolist())
    return observation  # type: ignore[no-any-return]
