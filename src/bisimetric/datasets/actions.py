"""Encode actions as numbers, and select them: at rng, from a table, or by a policy."""

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
    """Converts the actions of a space between the environment's form and numbers."""

    def __init__(self, space: Any, environment_name: str) -> None:
        self.space, self.environment_name = space, environment_name
        self.num_actions = num_discrete_values(space)
        self._start = int(space.start) if self.num_actions is not None else 0
        read = build_array_reader(space, environment_name)
        if read is None:
            raise InputError(
                f"{environment_name}: its actions are {space} and cannot become arrays."
            )
        self._read = read

    def decode(self, index: int) -> int:
        """Return a discrete action, given by its number from 0, as the environment takes it."""
        return self._start + index

    def encode(self, action: Any) -> Any:
        """Return a discrete action as its number from 0, any other as a vector of floats."""
        array = self._read(action)
        if self.num_actions is not None:
            return int(array)
        return array.ravel() if array.dtype.kind == "f" else array.ravel().astype(np.float64)

    def encode_batch(self, actions: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Encode several actions: (n,) numbers, or (n, k) floats."""
        return np.stack([self.encode(action) for action in actions])

    def validate(self, action: Any, step_label: str) -> Any:
        """Return the action of a policy as the environment takes it; it must be in the space."""
        converted = self._convert(action)
        if converted is None or not self.space.contains(converted):
            raise InputError(
                f"{self.environment_name}: the policy returned {action!r} {step_label}, which is "
                f"not in {self.space}."
            )
        return converted

    def _convert(self, action: Any) -> Any:
        """Return numbers of any library as NumPy numbers of the type of the space."""
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
    """Selects the actions of one or more environments, each with its own rng generator.

    A policy is None (uniformly rng), a table of actions (S,) or probabilities (S, A), or a
    function of the observation. `num_states` is the size of a Discrete observation space, or None.
    """

    def __init__(
        self, policy: Any, actions: ActionEncoder, num_states: int | None, seed: int, num_envs: int
    ) -> None:
        self._policy, self._actions = policy, actions
        self._is_vector = num_envs > 1
        # Not default_rng(seed), from which the environment draws its own numbers.
        self._generators = [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
            for index in range(num_envs)
        ]
        self._spaces = [copy.deepcopy(actions.space) for _ in range(num_envs)]
        for space, rng in zip(self._spaces, self._generators, strict=True):
            space.seed(int(rng.integers(2**31)))
        self._last_actions = [space.sample() for space in self._spaces]
        self._steps_taken = [0] * num_envs
        self._table: Any = None
        if policy is not None and not callable(policy):
            self._table = _build_policy_table(policy, actions, num_states)

    @property
    def name(self) -> str:
        """The name of the policy, for metadata."""
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
        """Return one action per environment; those that do not act repeat their last one.

        Args:
            observations: of all environments.
            acting: whether each environment acts.
            call_policy: passes the observations to a policy and returns one action per environment.
        """
        actions = call_policy(self._policy) if callable(self._policy) else None
        for index, acts in enumerate(acting):
            if acts:
                self._last_actions[index] = (
                    self._sample_action(index, observations[index])
                    if actions is None
                    else self._actions.validate(actions[index], self._format_step(index))
                )
                self._steps_taken[index] += 1
        return list(self._last_actions)

    def _sample_action(self, env_index: int, observation: EncodedObservation) -> Any:
        """Draw an action of the table, or any at rng."""
        rng = self._generators[env_index]
        if self._table is None:
            if self._actions.num_actions is None:
                return self._spaces[env_index].sample()
            return self._actions.decode(int(rng.integers(self._actions.num_actions)))
        choice = self._table[observation.state]
        if choice.ndim:
            choice = np.searchsorted(choice, rng.random(), side="right")
        return self._actions.decode(int(choice))

    def _format_step(self, env_index: int) -> str:
        """Return the step and environment for a message."""
        suffix = f" of environment {env_index}" if self._is_vector else ""
        return f"at step {self._steps_taken[env_index]}{suffix}"


def _build_policy_table(
    policy: Any, actions: ActionEncoder, num_states: int | None
) -> NDArray[Any]:
    """Return actions (S,), or cumulative probabilities (S, A)."""
    if num_states is None or actions.num_actions is None:
        kind = "actions" if actions.num_actions is None else "observations"
        raise InputError(
            f"{actions.environment_name}: a policy given as a table needs {kind} that are "
            "Discrete; give a function of the observation."
        )
    zeros = np.zeros((num_states, actions.num_actions), dtype=np.int64)
    table = validate_policy(MDP.deterministic(zeros, zeros, discount=0.0), policy)
    if table.ndim == 1:
        return table
    sums = table.cumsum(axis=1)
    return np.asarray(sums / sums[:, -1:])
