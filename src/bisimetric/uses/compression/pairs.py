"""The distinct states and actions of a buffer, and how far they are from each other."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.transitions import TERMINAL, Transitions
from bisimetric.uses.tables import validate_state_distances

CHUNK_SIZE = 4096
"""Observations that a learned distance looks at in one go."""


@dataclasses.dataclass(frozen=True, eq=False)
class StateActions:
    """Distinct states and actions, in the order in which they first occur.

    Attributes:
        first: (p,), the step that each occurs at first.
        member: (n,), which of them each step is.
        states: (p,), ids of the states; of a learned distance, numbers of the observations.
        actions: (p,).
        table: (S, S), the distances of the states by id, or None.
        observed: (n, ...), what a learned distance is asked for, or None.
        learned: that distance, or None.
    """

    first_indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    distances: NDArray[np.floating] | None = None
    observations: Any = None
    learned: Any = None

    def row(self, pair: int) -> NDArray[np.floating]:
        """The distances (p,) from one of them to all; infinite where the actions differ."""
        same = self.actions == self.actions[pair]
        if self.distances is not None:
            return np.where(same, self.distances[self.states[pair]][self.states], np.inf)
        far = np.full(len(self.first_indices), np.inf)
        far[same] = self._query_learned(pair, np.flatnonzero(same))
        return far

    def _query_learned(self, pair: int, others: NDArray[np.int64]) -> NDArray[np.floating]:
        """What the learned distance says of one observation and some others."""
        one = self.observations[self.first_indices[[pair]]]
        far = np.concatenate(
            [
                np.ravel(self.learned.table(one, self.observations[self.first_indices[part]]))
                for part in np.split(others, range(CHUNK_SIZE, len(others), CHUNK_SIZE))
            ]
        )
        wrong = ~(np.isfinite(far) & (far >= 0))
        if wrong.any():
            there = int(np.argmax(wrong))
            raise InputError(
                f"uses.compress: the learned distance of steps {self.first_indices[pair]} and "
                f"{self.first_indices[others[there]]} is {far[there]} and must be finite and at least 0."
            )
        return far

    def representative_distances(
        self, representatives: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """The distances (p,) from each to the one that stands for it, where there is a table."""
        if self.distances is None:
            return None
        return np.asarray(self.distances[self.states, self.states[representatives]], np.float64)


def find_state_actions(caller: str, transitions: Transitions, d: Any) -> StateActions:
    """The distinct states and actions of steps, with the distances that d has for them."""
    if not isinstance(d, Distance) and hasattr(d, "table"):
        states = _number_observations(transitions.observations)
        return _group_state_actions(
            states, transitions.actions, observed=transitions.observations, learned=d
        )
    if transitions.states is None:
        raise InputError(
            f"{caller}: observations {transitions.observations.shape[1:]} are no ids of states, which a "
            "table of distances needs; give states=..., or a learned distance."
        )
    table = validate_state_distances(caller, d)
    _require_same_states(caller, transitions, d, len(table))
    return _group_state_actions(transitions.states, transitions.actions, table=table)


def _group_state_actions(
    states: NDArray[np.int64], actions: NDArray[np.int64], **source: Any
) -> StateActions:
    both = states * (int(actions.max()) + 1) + actions
    _, first, member = np.unique(both, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first = first[order]
    return StateActions(first, place[member], states[first], actions[first], **source)


def _number_observations(observations: NDArray[Any]) -> NDArray[np.int64]:
    """Equal observations get equal numbers; told by a hash of 16 bytes, so that few are held."""
    seen: dict[bytes, int] = {}
    hashed = (
        hashlib.blake2b(np.ascontiguousarray(each).tobytes(), digest_size=16).digest()
        for each in observations
    )
    return np.array([seen.setdefault(each, len(seen)) for each in hashed], np.int64)


def _require_same_states(caller: str, transitions: Transitions, d: Any, num_states: int) -> None:
    """Refuses a distance whose ids are not those of the steps; it may know their end as well."""
    names = d.mdp.names if isinstance(d, Distance) else None
    known = transitions.num_states
    ended = num_states == (known or 0) + 1 and (names is None or names[-1] == TERMINAL)
    if num_states != known and not ended:
        raise InputError(
            f"{caller}: the data has {known:,} states and the distance {num_states:,}; give that of the "
            "same states, such as one of Transitions.to_mdp(), or num_states to the data."
        )
    if names is not None and transitions.names is not None:
        for one, other in zip(transitions.names, names, strict=False):
            if one != other:
                raise InputError(
                    f"{caller}: a state is called {one!r} by the data and {other!r} by the "
                    "distance; give that of the same states."
                )
    if isinstance(d, Distance) and transitions.num_actions != d.mdp.num_actions:
        raise InputError(
            f"{caller}: the data has {transitions.num_actions} actions and the MDP of the distance "
            f"{d.mdp.num_actions}; give that of the same actions, or num_actions to the data."
        )
