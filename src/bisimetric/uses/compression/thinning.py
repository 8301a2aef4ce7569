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
from bisimetric.errors import InputError, whole
from bisimetric.transitions import Transitions
from bisimetric.uses.compression.pairs import Pairs, distinct
from bisimetric.uses.covering import k_centre
from bisimetric.uses.proofs import ROUNDING, action_values, difference_error

WHERE = "uses.compress"
VALUES = {"bisimulation": "Q*", "on_policy": "V^pi", "lax": "V*"}
"""What differs by at most d(s, t) between (s, a) and (t, a), by the kind of distance."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compressed:
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
    kept: NDArray[np.int64]
    assigned: NDArray[np.int64]
    distances: NDArray[np.float64]
    radius: float
    radii: NDArray[np.float64]
    pairs: int
    values: str | None
    promised: float
    lost: float | None
    made: dict[str, Any]
    lost_error: float = math.nan

    def __repr__(self) -> str:
        return (
            f"Compressed({len(self.kept):,} of {len(self.assigned):,} steps, "
            f"radius {self.radius:.4g})"
        )


def compress(transitions: Transitions, d: Any, keep: float, *, proof: bool = False) -> Compressed:
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
    number = _number(keep, len(transitions))
    if transitions.num_actions is None:
        raise InputError(
            f"{WHERE}: actions are continuous, {transitions.actions.shape[1:]}, and a kept step "
            "must have the same action as those it stands for; number them from 0."
        )
    pairs = distinct(WHERE, transitions, d)
    values, error = _bounded(d, pairs)
    if proof and values is None:
        raise InputError(
            f"{WHERE}: proof was asked for, and nothing is proven of this distance for these "
            "steps; take one that `exact` made of them, or leave proof out."
        )
    taken = len(np.unique(pairs.actions))
    if number < taken:
        raise InputError(
            f"{WHERE}: keep leaves {number} of {len(transitions):,} steps, and {taken} actions "
            f"were taken, each of which needs one; keep {taken} or more."
        )
    cover = k_centre(pairs.row, number)
    chosen = pairs.first[cover.centres]
    if number > len(chosen):
        chosen = np.concatenate([chosen, _repeated(pairs, chosen, number - len(chosen))])
    kept = np.sort(chosen)
    stands = cover.centres[cover.assigned]
    again = pairs.again(stands)
    apart = cover.distances if again is None else again
    radius = float(apart.max())
    thinned = dataclasses.replace(
        transitions[kept],
        made={**transitions.made, "thinned": {"from": len(transitions), "radius": radius}},
    )
    # Kept steps stand for themselves, also those that repeat a state and an action.
    assigned = pairs.first[stands][pairs.member]
    assigned[kept] = kept
    lost, lost_error = (None, math.nan) if values is None else _lost(values, d, pairs, assigned)
    return Compressed(
        thinned,
        kept,
        assigned,
        apart[pairs.member],
        radius,
        cover.radii,
        len(pairs.first),
        values,
        (1 + ROUNDING) * (radius + error) if values else math.inf,
        lost,
        {"keep": keep, "seconds": time.perf_counter() - started},
        lost_error,
    )


def _number(keep: Any, steps: int) -> int:
    """How many steps are kept."""
    if isinstance(keep, (float, np.floating)):
        if not 0 < keep <= 1:
            raise InputError(
                f"{WHERE}: keep is {keep} and must be a share, above 0 and at most 1.0, or a whole "
                "number of steps."
            )
        return max(1, round(float(keep) * steps))
    number = whole(WHERE, "keep", keep, 1)
    if number > steps:
        raise InputError(
            f"{WHERE}: keep is {number:,} and there are {steps:,} steps; keep at most so many."
        )
    return number


def _bounded(d: Any, pairs: Pairs) -> tuple[str | None, float]:
    """What d is proven to bound, and its error; None where nothing is proven."""
    if not isinstance(d, Distance) or math.isinf(d.error) or d.kind not in VALUES:
        return None, math.inf
    # Of a state that the data of d never lived in, or an action that its MDP does not know there, d
    # says nothing.
    lived = d.coverage is None or bool(d.coverage.lived[pairs.states].all())
    if not lived or not d.mdp.has[pairs.states, pairs.actions].all():
        return None, math.inf
    return VALUES[d.kind], d.error


def _repeated(pairs: Pairs, chosen: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Further steps: the first ones of other states and actions, then second ones, then third."""
    order = np.argsort(pairs.member, kind="stable")
    starts = np.searchsorted(pairs.member[order], np.arange(len(pairs.first)))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - starts[pairs.member[order]]
    turn[chosen] = len(order)
    return np.argsort(turn, kind="stable")[:number]


def _lost(
    values: str, d: Distance, pairs: Pairs, assigned: NDArray[np.int64]
) -> tuple[float, float]:
    """The largest real difference between a step and the one that stands for it, and its error."""
    mdp, states = d.mdp, pairs.states
    if values == "V^pi" and d.policy is not None:
        V = planning.policy_values(mdp, d.policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    worth = V.values[states]
    if values == "Q*":
        V = action_values(mdp, V)
        worth = V.values[states, pairs.actions]
    member = pairs.member
    lost = float(np.abs(worth[member] - worth[member[assigned]]).max())
    return lost, difference_error(V, V, lost)
