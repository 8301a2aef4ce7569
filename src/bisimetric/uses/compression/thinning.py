"""A replay buffer thinned to representatives, and how far each step is from one that was kept."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.transitions import Transitions
from bisimetric.uses.compression.pairs import StateActions, find_state_actions
from bisimetric.uses.covering import k_centre
from bisimetric.uses.proofs import ROUNDING_SLACK, certified_action_values, difference_error

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
