"""The distinct states and actions of a buffer, and how far they are from each other."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.transitions import END, Transitions
from bisimetric.uses.tables import states_table

CHUNK = 4096
"""Observations that a learned distance looks at in one go."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs:
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

    first: NDArray[np.int64]
    member: NDArray[np.int64]
    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    table: NDArray[np.floating] | None = None
    observed: Any = None
    learned: Any = None

    def row(self, pair: int) -> NDArray[np.floating]:
        """The distances (p,) from one of them to all; infinite where the actions differ."""
        same = self.actions == self.actions[pair]
        if self.table is not None:
            return np.where(same, self.table[self.states[pair]][self.states], np.inf)
        far = np.full(len(self.first), np.inf)
        far[same] = self._asked(pair, np.flatnonzero(same))
        return far

    def _asked(self, pair: int, others: NDArray[np.int64]) -> NDArray[np.floating]:
        """What the learned distance says of one observation and some others."""
        one = self.observed[self.first[[pair]]]
        far = np.concatenate(
            [
                np.ravel(self.learned.table(one, self.observed[self.first[part]]))
                for part in np.split(others, range(CHUNK, len(others), CHUNK))
            ]
        )
        wrong = ~(np.isfinite(far) & (far >= 0))
        if wrong.any():
            there = int(np.argmax(wrong))
            raise InputError(
                f"uses.compress: the learned distance of steps {self.first[pair]} and "
                f"{self.first[others[there]]} is {far[there]} and must be finite and at least 0."
            )
        return far

    def again(self, stands: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The distances (p,) from each to the one that stands for it, where there is a table."""
        if self.table is None:
            return None
        return np.asarray(self.table[self.states, self.states[stands]], np.float64)


def distinct(where: str, steps: Transitions, d: Any) -> Pairs:
    """The distinct states and actions of steps, with the distances that d has for them."""
    if not isinstance(d, Distance) and hasattr(d, "table"):
        states = _numbered(steps.observations)
        return _pairs(states, steps.actions, observed=steps.observations, learned=d)
    if steps.states is None:
        raise InputError(
            f"{where}: observations {steps.observations.shape[1:]} are no ids of states, which a "
            "table of distances needs; give states=..., or a learned distance."
        )
    table = states_table(where, d)
    _refuse_other_states(where, steps, d, len(table))
    return _pairs(steps.states, steps.actions, table=table)


def _pairs(states: NDArray[np.int64], actions: NDArray[np.int64], **source: Any) -> Pairs:
    both = states * (int(actions.max()) + 1) + actions
    _, first, member = np.unique(both, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first = first[order]
    return Pairs(first, place[member], states[first], actions[first], **source)


def _numbered(observations: NDArray[Any]) -> NDArray[np.int64]:
    """Equal observations get equal numbers; told by a hash of 16 bytes, so that few are held."""
    seen: dict[bytes, int] = {}
    hashed = (
        hashlib.blake2b(np.ascontiguousarray(each).tobytes(), digest_size=16).digest()
        for each in observations
    )
    return np.array([seen.setdefault(each, len(seen)) for each in hashed], np.int64)


def _refuse_other_states(where: str, steps: Transitions, d: Any, size: int) -> None:
    """Refuses a distance whose ids are not those of the steps; it may know their end as well."""
    names = d.mdp.names if isinstance(d, Distance) else None
    known = steps.num_states
    ended = size == (known or 0) + 1 and (names is None or names[-1] == END)
    if size != known and not ended:
        raise InputError(
            f"{where}: the data has {known:,} states and the distance {size:,}; give that of the "
            "same states, such as one of Transitions.to_mdp(), or num_states to the data."
        )
    if names is not None and steps.names is not None:
        for one, other in zip(steps.names, names, strict=False):
            if one != other:
                raise InputError(
                    f"{where}: a state is called {one!r} by the data and {other!r} by the "
                    "distance; give that of the same states."
                )
    if isinstance(d, Distance) and steps.num_actions != d.mdp.num_actions:
        raise InputError(
            f"{where}: the data has {steps.num_actions} actions and the MDP of the distance "
            f"{d.mdp.num_actions}; give that of the same actions, or num_actions to the data."
        )
