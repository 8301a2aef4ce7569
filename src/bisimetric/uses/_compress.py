"""Compress a replay buffer to a coreset: greedy k-centre over its distinct states and actions."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._k_centre import k_centre
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.transitions import TERMINAL, Transitions
from bisimetric.uses.certificates import (
    ROUNDING_SLACK,
    certify_action_values,
    difference_error,
    is_network,
    validate_state_distances,
)
from bisimetric.uses.trivial_bounds import bound_range, format_bound, is_vacuous

CALLER = "uses.compress"
BOUNDED_VALUES = {"bisimulation": "Q*", "on_policy": "V^pi", "lax": "V*"}
"""What differs by at most d(s, t) between (s, a) and (t, a), by the kind of distance."""
CHUNK_SIZE = 4096
"""Observations per call of a learned distance."""


@dataclasses.dataclass(frozen=True, eq=False)
class StateActions:
    """Distinct pairs of state and action, in order of first occurrence.

    Attributes:
        first_indices: (p,), the first transition of each pair.
        labels: (n,), the pair of each transition.
        states: (p,), ids of the states; for a learned distance, numbers of the observations.
        actions: (p,).
        distances: (S, S), the distances of the states by id, or None.
        observations: (n, ...), the inputs of a learned distance, or None.
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
        """Return the distances (p,) from one pair to all; infinite where the actions differ."""
        same_action = self.actions == self.actions[pair]
        if self.distances is not None:
            return np.where(same_action, self.distances[self.states[pair]][self.states], np.inf)
        distances = np.full(len(self.first_indices), np.inf)
        distances[same_action] = self._query_network(pair, np.flatnonzero(same_action))
        return distances

    def _query_network(self, pair: int, others: NDArray[np.int64]) -> NDArray[np.floating]:
        """Evaluate the learned distance from one observation to some others."""
        observation = self.observations[self.first_indices[[pair]]]
        distances = np.concatenate(
            [
                np.ravel(
                    self.learned.table(observation, self.observations[self.first_indices[chunk]])
                )
                for chunk in np.split(others, range(CHUNK_SIZE, len(others), CHUNK_SIZE))
            ]
        )
        invalid = ~(np.isfinite(distances) & (distances >= 0))
        if invalid.any():
            worst = int(np.argmax(invalid))
            raise InputError(
                f"is {distances[worst]} between transitions {self.first_indices[pair]} and "
                f"{self.first_indices[others[worst]]} and must be finite and at least 0",
                caller=CALLER,
                argument="d",
            )
        return distances

    def representative_distances(
        self, representatives: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """Return the distances (p,) from each pair to its representative, if there is a matrix."""
        if self.distances is None:
            return None
        return np.asarray(self.distances[self.states, self.states[representatives]], np.float64)


def find_state_actions(caller: str, transitions: Transitions, d: Any) -> StateActions:
    """Find the distinct pairs of state and action, with their distances by d."""
    if is_network(d):
        states = _number_observations(transitions.observations)
        return _group_state_actions(
            states, transitions.actions, observations=transitions.observations, learned=d
        )
    if transitions.states is None:
        raise InputError(
            f"{caller}: observations of shape {transitions.observations.shape[1:]} are no ids of "
            "states, which a distance matrix needs; give states=..., or a learned distance."
        )
    distances = validate_state_distances(caller, d)
    _require_same_states(caller, transitions, d, len(distances))
    return _group_state_actions(transitions.states, transitions.actions, distances=distances)


def _group_state_actions(
    states: NDArray[np.int64], actions: NDArray[np.int64], **distance: Any
) -> StateActions:
    """Number the distinct pairs by first occurrence."""
    codes = states * (int(actions.max()) + 1) + actions
    _, first_indices, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first_indices)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    first_indices = first_indices[order]
    return StateActions(
        first_indices, rank[inverse], states[first_indices], actions[first_indices], **distance
    )


def _number_observations(observations: NDArray[Any]) -> NDArray[np.int64]:
    """Number the distinct observations, compared by 16-byte hashes to save memory."""
    numbers: dict[bytes, int] = {}
    digests = (
        hashlib.blake2b(np.ascontiguousarray(item).tobytes(), digest_size=16).digest()
        for item in observations
    )
    return np.array([numbers.setdefault(item, len(numbers)) for item in digests], np.int64)


def _require_same_states(caller: str, transitions: Transitions, d: Any, num_states: int) -> None:
    """Require a distance of the states of the transitions; it may add their terminal state."""
    names = d.mdp.names if isinstance(d, Distance) else None
    num_known = transitions.num_states
    includes_terminal = num_states == (num_known or 0) + 1 and (
        names is None or names[-1] == TERMINAL
    )
    if num_states != num_known and not includes_terminal:
        raise InputError(
            f"{caller}: the transitions have {num_known:,} states and d has {num_states:,}; use a "
            "distance of the same states, such as one of Transitions.to_mdp(), or pass num_states "
            "to the transitions."
        )
    if names is not None and transitions.names is not None:
        for own_name, other_name in zip(transitions.names, names, strict=False):
            if own_name != other_name:
                raise InputError(
                    f"{caller}: a state is named {own_name!r} in the transitions and "
                    f"{other_name!r} in d; use a distance of the same states."
                )
    if isinstance(d, Distance) and transitions.num_actions != d.mdp.num_actions:
        raise InputError(
            f"{caller}: the transitions have {transitions.num_actions} actions and d.mdp has "
            f"{d.mdp.num_actions}; use a distance of the same actions, or pass num_actions to the "
            "transitions."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Compression:
    """A coreset of a replay buffer, and the representative of each transition.

    Attributes:
        transitions: the selected transitions, in order. They are single transitions: consecutive
            ones need not have been consecutive in the buffer.
        indices: (m,), their indices in the buffer, increasing.
        representatives: (n,), for every transition of the buffer the index, in the buffer, of the
            selected one that represents it, which has the same action.
        distances: (n,), d between the states of the two.
        radius: the largest of these distances.
        radii: (m',), the radius with one selected transition, two, and so on, while above 0.
        num_state_actions: the number of distinct pairs of state and action in the buffer.
        value_function: what `value_bound` bounds: "Q*", "V^pi" for an on-policy distance, "V*" for
            d_lax; None where nothing is proven.
        value_bound: a proven bound on |Q*(s, a) - Q*(t, a)| for every transition (s, a) and its
            representative (t, a): the radius and the error of d. Infinite where nothing is proven.
        value_gap: the largest such difference in d.mdp; None where nothing is proven.
        metadata: the arguments, and the seconds.
        value_gap_error: a proven bound on the error of `value_gap`; NaN where nothing is proven.
        trivial_bound: a proven bound on the range of the same values over the buffer, for Q* of
            each action apart, which no `value_gap` exceeds; infinite where nothing is proven.

    >>> buffer = Transitions([0, 1, 2], [0, 0, 0], [0, 0, 1], [1, 2, 0], [False] * 3)
    >>> coreset = compress(buffer, [[0, 1, 9], [1, 0, 9], [9, 9, 0]], keep=2)
    >>> coreset.indices.tolist(), coreset.distances.tolist(), coreset.radius
    ([0, 2], [0.0, 1.0, 0.0], 1.0)
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
    trivial_bound: float = math.inf

    @property
    def is_vacuous(self) -> bool:
        """Whether `value_bound` is above 0 and at least `trivial_bound`: it proves nothing."""
        return is_vacuous(self.value_bound, self.trivial_bound)

    def __repr__(self) -> str:
        proof = ""
        if self.value_function is not None:
            bound = format_bound(self.value_bound, self.trivial_bound)
            proof = f", {self.value_function} differs by at most {bound}"
        return (
            f"Compression({len(self.indices):,} of {len(self.representatives):,} transitions, "
            f"radius {self.radius:.4g}{proof})"
        )


def compress(
    transitions: Transitions, d: Any, keep: float, *, require_proof: bool = False
) -> Compression:
    """Select transitions so that each has a representative with its action within `radius`.

    The distance of two transitions is that of their states by d, infinite where their actions
    differ. Greedy k-centre on the distinct pairs of state and action, each represented by its first
    transition, gives a radius of at most twice the optimum where d is a metric (Gonzalez 1985).
    Where fewer give radius 0, the rest of `keep` is filled with the first transitions of the other
    pairs, then with second transitions, and so on, each in the order of the buffer.

    For d~ rewards and successors are close as well, by definition: |R(s, a) - R(t, a)| +
    discount * W1(d~)(P(s, a), P(t, a)) <= d~(s, t). As |V*(s) - V*(t)| <= d~(s, t), it follows that
    |Q*(s, a) - Q*(t, a)| <= d~(s, t) <= radius, which bounds the error of a backup from the
    representative. d_lax and d^pi bound values of states only; see `Compression.value_function`.

    Memory is a few numbers per transition; a learned distance is evaluated on one row per selected
    pair.

    Args:
        transitions: the replay buffer, with discrete actions.
        d: a `Distance` of the states with these ids, a matrix (S, S), or a learned distance of
            the observations.
        keep: the number of transitions, or a fraction of them, such as 0.1; 1 is one transition,
            1.0 all of them.
        require_proof: raise InputError if d has no proven error for these transitions.

    Returns:
        A `Compression`.

    Raises:
        InputError: where actions are continuous, d is of other states, `keep` is out of range or
            below the number of actions, or `require_proof` is not satisfied.

    >>> d = [[0, 1, 9], [1, 0, 9], [9, 9, 0]]
    >>> buffer = Transitions([0, 1, 2, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 2, 0, 2], [False] * 4)
    >>> coreset = compress(buffer, d, keep=0.5)
    >>> coreset, coreset.indices.tolist(), coreset.representatives.tolist()
    (Compression(2 of 4 transitions, radius 1), [0, 2], [0, 0, 2, 0])
    """
    start_time = time.perf_counter()
    num_kept = _coreset_size(keep, len(transitions))
    if transitions.num_actions is None:
        raise InputError(
            f"{CALLER}: actions are continuous, of shape {transitions.actions.shape[1:]}, and a "
            "representative must have the same action; use discrete actions, numbered from 0."
        )
    state_actions = find_state_actions(CALLER, transitions, d)
    value_function, error = _certify_values(d, state_actions)
    if require_proof and value_function is None:
        raise InputError(
            "requires a proven error, and d has none for these transitions",
            caller=CALLER,
            argument="require_proof",
            remedy="use a distance from bisimetric.exact, or leave it out",
        )
    num_actions = len(np.unique(state_actions.actions))
    if num_kept < num_actions:
        raise InputError(
            f"leaves {num_kept} of {len(transitions):,} transitions, and each of the {num_actions} "
            "actions needs one",
            caller=CALLER,
            argument="keep",
            remedy=f"keep {num_actions} or more",
        )
    cover = k_centre(state_actions.row, num_kept)
    chosen = state_actions.first_indices[cover.centres]
    if num_kept > len(chosen):
        chosen = np.concatenate(
            [chosen, _select_repeats(state_actions, chosen, num_kept - len(chosen))]
        )
    indices = np.sort(chosen)
    centres = cover.centres[cover.labels]
    exact_distances = state_actions.representative_distances(centres)
    distances = cover.distances if exact_distances is None else exact_distances
    radius = float(distances.max())
    compressed = dataclasses.replace(
        transitions[indices],
        metadata={
            **transitions.metadata,
            "compression": {"original_size": len(transitions), "radius": radius},
        },
    )
    # Selected transitions represent themselves, also those that repeat a pair.
    representatives = state_actions.first_indices[centres][state_actions.labels]
    representatives[indices] = indices
    value_gap, value_gap_error, trivial_bound = (
        (None, math.nan, math.inf)
        if value_function is None
        else _measure_values(value_function, d, state_actions, representatives)
    )
    return Compression(
        compressed,
        indices,
        representatives,
        distances[state_actions.labels],
        radius,
        cover.radii,
        len(state_actions.first_indices),
        value_function,
        (1 + ROUNDING_SLACK) * (radius + error) if value_function else math.inf,
        value_gap,
        {"keep": keep, "seconds": time.perf_counter() - start_time},
        value_gap_error,
        trivial_bound,
    )


def _coreset_size(keep: Any, num_transitions: int) -> int:
    """Return the number of transitions to keep."""
    if isinstance(keep, (float, np.floating)):
        if not 0 < keep <= 1:
            raise InputError(
                f"is {keep} and must be a fraction, above 0 and at most 1.0, or a whole number",
                caller=CALLER,
                argument="keep",
            )
        return max(1, round(float(keep) * num_transitions))
    num_kept = require_integer(CALLER, "keep", keep, 1)
    if num_kept > num_transitions:
        raise InputError(
            f"is {num_kept:,} and must be at most the number of transitions, {num_transitions:,}",
            caller=CALLER,
            argument="keep",
        )
    return num_kept


def _certify_values(d: Any, state_actions: StateActions) -> tuple[str | None, float]:
    """Return the value function that d is proven to bound, or None, and its error."""
    if not isinstance(d, Distance) or math.isinf(d.error) or d.kind not in BOUNDED_VALUES:
        return None, math.inf
    if not d.bounds_values:
        return None, math.inf
    # d proves nothing about unvisited states and unavailable actions.
    visited = d.coverage is None or bool(d.coverage.visited[state_actions.states].all())
    if not visited or not d.mdp.action_mask[state_actions.states, state_actions.actions].all():
        return None, math.inf
    if d.mdp.choice_labels is not None:
        return BOUNDED_VALUES["on_policy" if d.kind == "on_policy" else "lax"], d.error
    return BOUNDED_VALUES[d.kind], d.error


def _select_repeats(
    state_actions: StateActions, chosen: NDArray[np.int64], num_repeats: int
) -> NDArray[np.int64]:
    """Select further transitions: the first of each other pair, then the second, then the third."""
    order = np.argsort(state_actions.labels, kind="stable")
    starts = np.searchsorted(
        state_actions.labels[order], np.arange(len(state_actions.first_indices))
    )
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = np.arange(len(order)) - starts[state_actions.labels[order]]
    occurrence[chosen] = len(order)
    return np.argsort(occurrence, kind="stable")[:num_repeats]


def _measure_values(
    value_function: str,
    d: Distance,
    state_actions: StateActions,
    representatives: NDArray[np.int64],
) -> tuple[float, float, float]:
    """Return the largest value difference to a representative, its error, and its trivial bound."""
    mdp, states = d.mdp, state_actions.states
    if value_function == "V^pi" and d.policy is not None:
        V = planning.policy_values(mdp, d.policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    values, groups = V.values[states], np.zeros_like(states)
    if value_function == "Q*":
        groups = state_actions.actions
        V = certify_action_values(mdp, V)
        values = V.values[states, state_actions.actions]
    labels = state_actions.labels
    value_gap = float(np.abs(values[labels] - values[labels[representatives]]).max())
    trivial_bound = bound_range(values, V.error, groups)
    return value_gap, difference_error(V, V, value_gap), trivial_bound
