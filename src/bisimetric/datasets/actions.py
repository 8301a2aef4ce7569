"""What is done: actions at random, by a table or by a policy, checked before they are taken."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.datasets.observations import Seen, discrete, reader
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, checked_policy

Ask = Callable[[Callable[[Any], Any]], Sequence[Any]]


class Actions:
    """The actions of a space: as an environment takes them, and as they are kept."""

    def __init__(self, space: Any, where: str) -> None:
        self.space, self.count, self.where = space, discrete(space), where
        self._start = int(space.start) if self.count is not None else 0
        read = reader(space, where)
        if read is None:
            raise InputError(f"{where}: its actions are {space} and cannot be made arrays.")
        self._read = read

    def numbered(self, number: int) -> int:
        """A discrete action by its number from 0 on, as the environment takes it."""
        return self._start + number

    def kept(self, action: Any) -> Any:
        """A discrete action by its number from 0 on, any other as a vector of floats."""
        array = self._read(action)
        if self.count is not None:
            return int(array)
        return array.ravel() if array.dtype.kind == "f" else array.ravel().astype(np.float64)

    def kept_all(self, actions: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Many actions as they are kept: (n,) numbers, or (n, k) floats."""
        return np.stack([self.kept(action) for action in actions])

    def checked(self, action: Any, when: str) -> Any:
        """What a policy returned, as the environment takes it; `when` is for the message."""
        found = self._converted(action)
        if found is None or not self.space.contains(found):
            raise InputError(
                f"{self.where}: the policy returned {action!r} {when}, which is not in "
                f"{self.space}."
            )
        return found

    def _converted(self, action: Any) -> Any:
        """Numbers of any library as NumPy's, of the type that the space has."""
        if self.count is None and type(self.space).__name__ != "Box":
            return action
        try:
            array = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        if self.count is None:
            return array.astype(self.space.dtype)
        return int(array.item()) if array.size == 1 and array.item() % 1 == 0 else None


class Chooser:
    """Chooses the actions in one or more environments, each with random numbers of its own.

    A policy is None (any action, at random), a table (S,) of actions or (S, A) of
    probabilities, numbered from 0 on, or a function of what the environment observes.
    `states` says how many ids of its own the environment has, or None.
    """

    def __init__(
        self, policy: Any, actions: Actions, states: int | None, key: int, places: int
    ) -> None:
        self._policy, self._actions = policy, actions
        self._several = places > 1
        # Not default_rng(key): the environment draws its own numbers from that.
        self._random = [
            np.random.default_rng(np.random.SeedSequence(key, spawn_key=(place,)))
            for place in range(places)
        ]
        self._spaces = [copy.deepcopy(actions.space) for _ in range(places)]
        for space, random in zip(self._spaces, self._random, strict=True):
            space.seed(int(random.integers(2**31)))
        self._last = [space.sample() for space in self._spaces]
        self._taken = [0] * places
        self._table: Any = None
        if policy is not None and not callable(policy):
            self._table = _table(policy, actions, states)

    @property
    def name(self) -> str:
        """What to call the policy."""
        if self._policy is None:
            return "random"
        kind = type(self._policy).__name__
        return "table" if self._table is not None else getattr(self._policy, "__name__", kind)

    def choose(self, seen: Sequence[Seen], acting: Sequence[bool], ask: Ask) -> list[Any]:
        """An action for each environment; those that do not act are given their last again.

        `ask` puts what is observed to a policy and returns its actions, one an environment.
        """
        given = ask(self._policy) if callable(self._policy) else None
        for place, acts in enumerate(acting):
            if acts:
                self._last[place] = (
                    self._drawn(place, seen[place])
                    if given is None
                    else self._actions.checked(given[place], self._when(place))
                )
                self._taken[place] += 1
        return list(self._last)

    def _drawn(self, place: int, seen: Seen) -> Any:
        random = self._random[place]
        if self._table is None:
            if self._actions.count is None:
                return self._spaces[place].sample()
            return self._actions.numbered(int(random.integers(self._actions.count)))
        choice = self._table[seen.state]
        if choice.ndim:
            choice = np.searchsorted(choice, random.random(), side="right")
        return self._actions.numbered(int(choice))

    def _when(self, place: int) -> str:
        of = f" of environment {place}" if self._several else ""
        return f"at step {self._taken[place]}{of}"


def _table(policy: Any, actions: Actions, states: int | None) -> NDArray[Any]:
    """Actions (S,), or probabilities (S, A) summed up from the left."""
    if states is None or actions.count is None:
        lacks = "actions" if actions.count is None else "observations"
        raise InputError(
            f"{actions.where}: a policy given as a table needs {lacks} that are Discrete; give a "
            "function of the observation."
        )
    nowhere = np.zeros((states, actions.count), dtype=np.int64)
    table = checked_policy(MDP.deterministic(nowhere, nowhere, discount=0.0), policy)
    if table.ndim == 1:
        return table
    sums = table.cumsum(axis=1)
    return np.asarray(sums / sums[:, -1:])
