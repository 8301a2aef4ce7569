"""Encode observations as arrays, and number the states where a space has them."""

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
    """The array of an observation, and the id of its state or None."""

    array: Any
    state: int | None


class ObservationEncoder:
    """Encodes the observations of a space, and numbers the states that occur.

    States of a Discrete space keep the numbers of the space, from its start. Others get ids in the
    order of first occurrence: the values of `state_of(environment, observation)` or, for
    MultiDiscrete, MultiBinary and Text spaces and for Tuples and Dicts of them, the observations
    themselves. All others have no ids.

    Args:
        space: a Gymnasium space.
        environment_name: for messages.
        state_of: identifies the state, or None.
        describe_states: returns names and positions of the states so far, or None.
        known_states: names and positions of the states of a Discrete space, or None.

    >>> from gymnasium import spaces
    >>> encoder = ObservationEncoder(spaces.MultiDiscrete([3, 3]), "example")
    >>> [encoder.encode(None, np.array(each)).state for each in ([2, 0], [1, 1], [2, 0])]
    [0, 1, 0]
    >>> encoder.describe_states()
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
                f"{environment_name}: its observations are {space} and cannot become arrays; "
                "give a state_of that identifies states."
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
        """Encode one observation; `environment` is the argument of `state_of`."""
        array = None if self._read is None else self._read_array(self._read, observation)
        if self.num_discrete is not None:
            state = self._discrete_id(array)
            return EncodedObservation(state, state)
        if self._state_of is None:
            return EncodedObservation(array, None)
        state = self._assign_id(self._state_of(environment, observation))
        return EncodedObservation(state if array is None else array, state)

    def encode_batch(self, observations: Iterable[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Encode observations without their environment: arrays (n, ...) and ids (n,) or None."""
        if (
            isinstance(observations, np.ndarray)
            and self._state_of is None
            and self.num_discrete is None
        ):
            return observations, None
        return stack_observations(self.encode(None, observation) for observation in observations)

    def describe_states(self) -> dict[str, Any]:
        """Return the number, names and positions of the states so far, as fields of Transitions."""
        if self.num_discrete is not None:
            return {"num_states": self.num_discrete, **self._known_states}
        if self._state_of is None:
            return {}
        return {"num_states": len(self._ids), **self._describe_states(list(self._ids))}

    def _assign_id(self, state: Hashable) -> int:
        """Return the id of a state, a new one on first occurrence."""
        try:
            return self._ids.setdefault(state, len(self._ids))
        except TypeError:
            raise InputError(
                f"{self._environment_name}: state_of returned {type(state).__name__}, which "
                "cannot be hashed; return a string, a number, or a tuple of them."
            ) from None

    def _discrete_id(self, array: Any) -> int:
        """Return the number of a Discrete observation, which must be in its space."""
        state = int(array)
        if not 0 <= state < (self.num_discrete or 0):
            raise InputError(
                f"{self._environment_name}: an observation is {state + int(self._space.start)}, "
                f"outside of its space {self._space}."
            )
        return state

    def _read_array(self, read: ArrayReader, observation: Any) -> NDArray[Any]:
        """Convert an observation; all must have one shape."""
        try:
            array = read(observation)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise InputError(
                f"{self._environment_name}: an observation does not fit its space {self._space} "
                f"({error})."
            ) from None
        if self._shape is None:
            self._shape = array.shape
        if array.shape != self._shape:
            raise InputError(
                f"{self._environment_name}: an observation has shape {array.shape} and the first "
                f"one {self._shape}; all must have one shape."
            )
        return array


def stack_observations(
    observations: Iterable[EncodedObservation],
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Stack observations into one array (n, ...), and the ids of their states (n,) or None."""
    arrays, states = zip(*observations, strict=True)
    return np.stack(arrays), None if states[0] is None else np.array(states, dtype=np.int64)


def unstack_values(values: Any, num_rows: int) -> Any:
    """Turn a dict or tuple of columns into a list of values per step; arrays stay as they are.

    >>> unstack_values({"place": np.array([4, 5]), "wind": (np.array([0.1, 0.2]),)}, 2)[1]
    {'place': np.int64(5), 'wind': (np.float64(0.2),)}
    """
    if isinstance(values, dict):
        parts = {name: unstack_values(part, num_rows) for name, part in values.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(num_rows)]
    if isinstance(values, tuple):
        return list(zip(*(unstack_values(part, num_rows) for part in values), strict=True))
    return values


def build_array_reader(space: Any, environment_name: str) -> ArrayReader | None:
    """Return a function that converts values of a space into arrays, or None if there is none.

    Arrays are copied, Discrete values counted from 0, and MiniGrid's observations reduced to the
    image. Tuples and Dicts are flattened into one vector, with Discrete parts one-hot encoded.

    >>> from gymnasium import spaces
    >>> read = build_array_reader(spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))), "example")
    >>> read((1, 0)).tolist()
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
    """Return the number of values of a Discrete space, or None for others."""
    return int(space.n) if _has_type_name(space, "Discrete") else None


def name_states(states: list[Any]) -> dict[str, Any]:
    """Name states that are strings, numbers, or tuples of them; return {} for others.

    >>> name_states(["door", (14, 10, 0)])
    {'names': ['door', '14,10,0']}
    """
    names = [_format_state(state) for state in states]
    return {"names": names} if None not in names and len(set(names)) == len(names) else {}


def _format_state(state: Any) -> str | None:
    """Return the name of a state, or None."""
    if isinstance(state, str | int | float | np.number | np.bool_):
        return str(state)
    if type(state) is tuple and state:
        parts = [_format_state(part) for part in state]
        return None if None in parts else ",".join(map(str, parts))
    return None


def _has_type_name(space: Any, *type_names: str) -> bool:
    """Whether a class of that name is among the bases of the space; Gymnasium is not imported."""
    return any(each.__name__ in type_names for each in type(space).__mro__)


def _is_countable(space: Any) -> bool:
    """Whether the values of a space are countable."""
    if _has_type_name(space, "Tuple", "Dict"):
        parts = getattr(space.spaces, "values", lambda: space.spaces)()
        return all(map(_is_countable, parts))
    return _has_type_name(space, "Discrete", "MultiDiscrete", "MultiBinary", "Text")


def _to_hashable(observation: Any) -> Hashable:
    """Convert a value of a countable space to numbers, strings and tuples."""
    if isinstance(observation, dict):
        return tuple(_to_hashable(observation[name]) for name in sorted(observation))
    if isinstance(observation, tuple | list):
        return tuple(map(_to_hashable, observation))
    if isinstance(observation, np.ndarray | np.generic):
        return _to_hashable(observation.tolist())
    return observation  # type: ignore[no-any-return]
