"""What is done: actions at random, by a table or by a policy, checked before they are taken."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.datasets.observations import (
    EncodedObservation,
    build_array_reader,
    num_discrete_values,
)
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, validate_policy

PolicyCaller = Callable[[Callable[[Any], Any]], Sequence[Any]]


class ActionEncoder:
    """The actions of a space: as an environment takes them, and as they are kept."""

    def __init__(self, space: Any, environment_name: str) -> None:
        self.space, self.num_actions, self.environment_name = (
            space,
            num_discrete_values(space),
            environment_name,
        )
        self._start = int(space.start) if self.num_actions is not None else 0
        read = build_array_reader(space, environment_name)
        if read is None:
            raise InputError(
                f"{environment_name}: its actions are {space} and cannot be made arrays."
            )
        self._read = read

    def decode(self, index: int) -> int:
        """A discrete action by its number from 0 on, as the environment takes it."""
        return self._start + index

    def encode(self, action: Any) -> Any:
        """A discrete action by its number from 0 on, any other as a vector of floats."""
        array = self._read(action)
        if self.num_actions is not None:
            return int(array)
        return array.ravel() if array.dtype.kind == "f" else array.ravel().astype(np.float64)

    def encode_batch(self, actions: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Many actions as they are kept: (n,) numbers, or (n, k) floats."""
        return np.stack([self.encode(action) for action in actions])

    def validate(self, action: Any, step_label: str) -> Any:
        """What a policy returned, as the environment takes it; `when` is for the message."""
        found = self._convert(action)
        if found is None or not self.space.contains(found):
            raise InputError(
                f"{self.environment_name}: the policy returned {action!r} {step_label}, which is not in "
                f"{self.space}."
            )
        return found

    def _convert(self, action: Any) -> Any:
        """Numbers of any library as NumPy's, of the type that the space has."""
        if self.num_actions is None and type(self.space).__name__ != "Box":
            return action
        try:
            array = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        if self.num_actions is None:
            return array.astype(self.space.dtype)
        return int(array.item()) if array.size == 1 and array.item() % 1 == 0 else None


class ActionSelector:
    """Chooses the actions in one or more environments, each with random numbers of its own.

    A policy is None (any action, at random), a table (S,) of actions or (S, A) of
    probabilities, numbered from 0 on, or a function of what the environment observes.
    `states` says how many ids of its own the environment has, or None.
    """

    def __init__(
        self, policy: Any, actions: ActionEncoder, num_states: int | None, seed: int, num_envs: int
    ) -> None:
        self._policy, self._actions = policy, actions
        self._is_vector = num_envs > 1
        # Not default_rng(key): the environment draws its own numbers from that.
        self._generators = [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place,)))
            for place in range(num_envs)
        ]
        self._spaces = [copy.deepcopy(actions.space) for _ in range(num_envs)]
        for space, random in zip(self._spaces, self._generators, strict=True):
            space.seed(int(random.integers(2**31)))
        self._last_actions = [space.sample() for space in self._spaces]
        self._steps_taken = [0] * num_envs
        self._table: Any = None
        if policy is not None and not callable(policy):
            self._table = _build_policy_table(policy, actions, num_states)

    @property
    def name(self) -> str:
        """What to call the policy."""
        if self._policy is None:
            return "random"
        kind = type(self._policy).__name__
        return "table" if self._table is not None else getattr(self._policy, "__name__", kind)

    def select_actions(
        self,
        observations: Sequence[EncodedObservation],
        acting: Sequence[bool],
        call_policy: PolicyCaller,
    ) -> list[Any]:
        """An action for each environment; those that do not act are given their last again.

        `ask` puts what is observed to a policy and returns its actions, one an environment.
        """
        given = call_policy(self._policy) if callable(self._policy) else None
        for place, acts in enumerate(acting):
            if acts:
                self._last_actions[place] = (
                    self._sample_action(place, observations[place])
                    if given is None
                    else self._actions.validate(given[place], self._format_step(place))
                )
                self._steps_taken[place] += 1
        return list(self._last_actions)

    def _sample_action(self, env_index: int, observation: EncodedObservation) -> Any:
        random = self._generators[env_index]
        if self._table is None:
            if self._actions.num_actions is None:
                return self._spaces[env_index].sample()
            return self._actions.decode(int(random.integers(self._actions.num_actions)))
        choice = self._table[observation.state]
        if choice.ndim:
            choice = np.searchsorted(choice, random.random(), side="right")
        return self._actions.decode(int(choice))

    def _format_step(self, env_index: int) -> str:
        of = f" of environment {env_index}" if self._is_vector else ""
        return f"at step {self._steps_taken[env_index]}{of}"


def _build_policy_table(
    policy: Any, actions: ActionEncoder, num_states: int | None
) -> NDArray[Any]:
    """Actions (S,), or probabilities (S, A) summed up from the left."""
    if num_states is None or actions.num_actions is None:
        lacks = "actions" if actions.num_actions is None else "observations"
        raise InputError(
            f"{actions.environment_name}: a policy given as a table needs {lacks} that are Discrete; give a "
            "function of the observation."
        )
    nowhere = np.zeros((num_states, actions.num_actions), dtype=np.int64)
    table = validate_policy(MDP.deterministic(nowhere, nowhere, discount=0.0), policy)
    if table.ndim == 1:
        return table
    sums = table.cumsum(axis=1)
    return np.asarray(sums / sums[:, -1:])
