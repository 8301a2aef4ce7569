"""The distinct states and actions of a buffer, and how far they are from each other.

A replay buffer thinned to representatives, and how far each step is from one that was kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.transitions import TERMINAL, Transitions
from bisimetric.uses.certificates import (
    ROUNDING_SLACK,
    certified_action_values,
    difference_error,
    validate_state_distances,
)
from bisimetric.uses.k_centre import k_centre

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


CALLER = "uses.compress"
BOUNDED_VALUES = {"bisimulation": "Q*", "on_policy": "V^pi", "lax": "V*"}
"""What differs by at most d(s, t) between (s, a) and (t, a), by the kind of distance."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compression:
    """A thinned replay buffer: what was kept, and which kept step stands for which other.

    Attributes:
        transitions: the kept steps, in their order. They are single steps: two that follow each
            other need not have done so in the recording.
        kept: (m,), their indices in the buffer, rising.
        assigned: (n,), for every step of the buffer the index, in the buffer, of the kept step
            that stands for it: one with the same action.
        distances: (n,), d of the states of the two.
        radius: the largest of these distances; those of a table are looked up again at the end.
        radii: (m',), the radius with one kept step, two, and so on, while it was above 0.
        pairs: how many distinct states and actions the buffer has.
        values: what `promised` is about: "Q*", or "V^pi" of an on-policy distance, "V*" of d_lax;
            None where nothing is proven.
        promised: |Q*(s, a) - Q*(t, a)| is at most this for every step (s, a) and the kept (t, a)
            that stands for it: the radius and the error of d. Infinite where nothing is proven.
        lost: the largest such difference that there really is; None where nothing is proven.
            Both are about the values of d.mdp.
        made: what was asked for, and the seconds.
        lost_error: a proven bound on the error of `lost`; NaN where nothing is proven.
    """

    transitions: Transitions
    indices: NDArray[np.int64]
    representatives: NDArray[np.int64]
    distances: NDArray[np.float64]
    radius: float
    radii: NDArray[np.float64]
    num_state_actions: int
    value_function: str | None
    value_bound: float
    value_gap: float | None
    metadata: dict[str, Any]
    value_gap_error: float = math.nan

    def __repr__(self) -> str:
        return (
            f"Compressed({len(self.indices):,} of {len(self.representatives):,} steps, "
            f"radius {self.radius:.4g})"
        )


def compress(transitions: Transitions, d: Any, keep: float, *, proof: bool = False) -> Compression:
    """Steps that stand for all: every step has a kept one with its action, at most `radius` away.

    Two steps are as far apart as their states are by d, infinitely far where their actions differ.
    Greedy k-centre on the distinct states and actions, each kept as its first step, makes the
    radius at most twice the least that so many steps could have, where d is a metric (Gonzalez
    1985). Where fewer make it 0, what is left of `keep` goes to the first steps of the others, then
    to second steps, and so on, each in the order of the buffer.

    For d~ rewards and successors are close as well, by definition: |R(s, a) - R(t, a)| +
    discount * W1(d~)(P(s, a), P(t, a)) <= d~(s, t). As |V*(s) - V*(t)| <= d~(s, t), it follows that
    |Q*(s, a) - Q*(t, a)| <= d~(s, t) <= radius: what a step would be worth, backed up from the kept
    one, is off by at most that. d_lax and d^pi bound values of states only, and `values` says so.

    Args:
        d: a `Distance` of the states with these ids, an array (S, S), or a learned distance of
            the observations.
        keep: how many steps, or a share of them, such as 0.1; 1 is one step, and 1.0 all of them.
        proof: refuse a distance of which nothing is proven.

    Memory is a few numbers a step; of a learned distance one row is computed for each kept step.

    >>> d = [[0, 1, 9], [1, 0, 9], [9, 9, 0]]
    >>> steps = Transitions([0, 1, 2, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 2, 0, 2], [False] * 4)
    >>> found = compress(steps, d, keep=0.5)
    >>> found, found.kept.tolist(), found.assigned.tolist()
    (Compressed(2 of 4 steps, radius 1), [0, 2], [0, 0, 2, 0])
    """
    started = time.perf_counter()
    number = _num_kept(keep, len(transitions))
    if transitions.num_actions is None:
        raise InputError(
            f"{CALLER}: actions are continuous, {transitions.actions.shape[1:]}, and a kept step "
            "must have the same action as those it stands for; number them from 0."
        )
    pairs = find_state_actions(CALLER, transitions, d)
    values, error = _certify_values(d, pairs)
    if proof and values is None:
        raise InputError(
            f"{CALLER}: proof was asked for, and nothing is proven of this distance for these "
            "steps; take one that `exact` made of them, or leave proof out."
        )
    taken = len(np.unique(pairs.actions))
    if number < taken:
        raise InputError(
            f"{CALLER}: keep leaves {number} of {len(transitions):,} steps, and {taken} actions "
            f"were taken, each of which needs one; keep {taken} or more."
        )
    cover = k_centre(pairs.row, number)
    chosen = pairs.first_indices[cover.centres]
    if number > len(chosen):
        chosen = np.concatenate([chosen, _select_repeats(pairs, chosen, number - len(chosen))])
    kept = np.sort(chosen)
    stands = cover.centres[cover.labels]
    again = pairs.representative_distances(stands)
    apart = cover.distances if again is None else again
    radius = float(apart.max())
    thinned = dataclasses.replace(
        transitions[kept],
        metadata={**transitions.metadata, "thinned": {"from": len(transitions), "radius": radius}},
    )
    # Kept steps stand for themselves, also those that repeat a state and an action.
    assigned = pairs.first_indices[stands][pairs.labels]
    assigned[kept] = kept
    lost, lost_error = (
        (None, math.nan) if values is None else _measure_value_gap(values, d, pairs, assigned)
    )
    return Compression(
        thinned,
        kept,
        assigned,
        apart[pairs.labels],
        radius,
        cover.radii,
        len(pairs.first_indices),
        values,
        (1 + ROUNDING_SLACK) * (radius + error) if values else math.inf,
        lost,
        {"keep": keep, "seconds": time.perf_counter() - started},
        lost_error,
    )


def _num_kept(keep: Any, num_transitions: int) -> int:
    """How many steps are kept."""
    if isinstance(keep, (float, np.floating)):
        if not 0 < keep <= 1:
            raise InputError(
                f"{CALLER}: keep is {keep} and must be a share, above 0 and at most 1.0, or a whole "
                "number of steps."
            )
        return max(1, round(float(keep) * num_transitions))
    number = require_integer(CALLER, "keep", keep, 1)
    if number > num_transitions:
        raise InputError(
            f"{CALLER}: keep is {number:,} and there are {num_transitions:,} steps; keep at most so many."
        )
    return number


def _certify_values(d: Any, state_actions: StateActions) -> tuple[str | None, float]:
    """What d is proven to bound, and its error; None where nothing is proven."""
    if not isinstance(d, Distance) or math.isinf(d.error) or d.kind not in BOUNDED_VALUES:
        return None, math.inf
    # Of a state that the data of d never lived in, or an action that its MDP does not know there, d
    # says nothing.
    lived = d.coverage is None or bool(d.coverage.visited[state_actions.states].all())
    if not lived or not d.mdp.action_mask[state_actions.states, state_actions.actions].all():
        return None, math.inf
    return BOUNDED_VALUES[d.kind], d.error


def _select_repeats(
    state_actions: StateActions, chosen: NDArray[np.int64], num_repeats: int
) -> NDArray[np.int64]:
    """Further steps: the first ones of other states and actions, then second ones, then third."""
    order = np.argsort(state_actions.labels, kind="stable")
    starts = np.searchsorted(
        state_actions.labels[order], np.arange(len(state_actions.first_indices))
    )
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - starts[state_actions.labels[order]]
    turn[chosen] = len(order)
    return np.argsort(turn, kind="stable")[:num_repeats]


def _measure_value_gap(
    value_function: str,
    d: Distance,
    state_actions: StateActions,
    representatives: NDArray[np.int64],
) -> tuple[float, float]:
    """The largest real difference between a step and the one that stands for it, and its error."""
    mdp, states = d.mdp, state_actions.states
    if value_function == "V^pi" and d.policy is not None:
        V = planning.policy_values(mdp, d.policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    worth = V.values[states]
    if value_function == "Q*":
        V = certified_action_values(mdp, V)
        worth = V.values[states, state_actions.actions]
    member = state_actions.labels
    lost = float(np.abs(worth[member] - worth[member[representatives]]).max())
    return lost, difference_error(V, V, lost)
