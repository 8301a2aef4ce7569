"""Whether two states are bisimilar, proven by a relation that is found and checked.

Why two states are as far apart as they are: the steps whose reward gaps add up to it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._rounding import UNIT
from bisimetric.distance import pair_path
from bisimetric.distance.explanation import Explanation, Match, PairStep, Proof, describe_unseen
from bisimetric.distance.pair_path import PairChoices
from bisimetric.implicit_mdp import normalise
from bisimetric.mdp import MDP

MAX_PAIRS = 10_000
"""Pairs that a relation may be made of; with more, nothing is said."""


def are_bisimilar(choices: PairChoices, pair: tuple[int, int]) -> bool:
    """Whether a relation that holds for the pair is found to be a bisimulation.

    The relation starts from the pair. Successors at distance 0 in the table are related as well,
    and so on (Hopcroft & Karp 1971). Then every pair in it is checked: equal rewards, and equal
    probabilities of all classes, as rational numbers. So the answer is yes only if it is true,
    whatever the error of the table. For d_lax actions are matched freely.
    """
    mdp, stochastic = choices.mdp, not choices.mdp.is_deterministic
    if choices.known is not None or (choices.kind == "mico" and stochastic):
        return False
    classes = _UnionFind()
    related = [pair] if classes.merge(*pair) else []
    for s, t in related:
        if len(related) > MAX_PAIRS:
            return False
        for a, b in np.argwhere(choices.compared_actions((s, t))).tolist():
            if mdp.R[s, a] == mdp.R[t, b]:
                x, y = _successors(mdp, s, a), _successors(mdp, t, b)
                near = np.argwhere(choices.values[np.ix_(x, y)] == 0)
                related += [(x[i], y[j]) for i, j in near.tolist() if classes.merge(x[i], y[j])]
    return all(_is_consistent(choices, classes, *each) for each in related)


class _UnionFind:
    """Classes of states, each its own at first (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def find(self, state: int) -> int:
        while (parent := self._parent.get(state, state)) != state:
            self._parent[state] = self._parent.get(parent, parent)
            state = parent
        return state

    def merge(self, s: int, t: int) -> bool:
        """Makes the classes of two states one; False if they are."""
        one, two = self.find(s), self.find(t)
        self._parent[two] = one
        return one != two


def _is_consistent(choices: PairChoices, classes: _UnionFind, s: int, t: int) -> bool:
    """Whether each action of either state has one of the other with equal reward and classes."""
    mdp = choices.mdp
    ours = theirs = np.ones(mdp.num_actions, np.bool_)
    if mdp.available is not None:
        ours, theirs = mdp.available[s], mdp.available[t]
    if choices.kind != "lax" and (ours != theirs).any():
        return False
    equal = choices.compared_actions((s, t)) & (mdp.R[s][:, None] == mdp.R[t])
    for a, b in np.argwhere(equal).tolist():
        equal[a, b] = _compute_class_masses(mdp, classes, s, a) == _compute_class_masses(
            mdp, classes, t, b
        )
    return bool((equal.any(axis=1) | ~ours).all() and (equal.any(axis=0) | ~theirs).all())


def _successors(mdp: MDP, state: int, action: int) -> list[int]:
    row = state * mdp.num_actions + action
    found: list[int] = mdp.P.indices[mdp.P.indptr[row] : mdp.P.indptr[row + 1]].tolist()
    return found


def _compute_class_masses(
    mdp: MDP, classes: _UnionFind, state: int, action: int
) -> dict[int, Fraction]:
    """The probability of each class after a step."""
    row = state * mdp.num_actions + action
    masses = normalise(mdp.P.data[mdp.P.indptr[row] : mdp.P.indptr[row + 1]].tolist())
    found: dict[int, Fraction] = {}
    for successor, mass in zip(_successors(mdp, state, action), masses, strict=True):
        place = classes.find(successor)
        found[place] = found.get(place, Fraction(0)) + mass
    return found


__all__ = ["Explanation", "Match", "PairStep", "Proof", "describe_unseen", "explain"]


def explain(
    mdp: MDP,
    values: NDArray[np.floating],
    kind: str,
    policy: NDArray[Any] | None,
    states: tuple[int, int],
    proof: Proof,
) -> Explanation:
    """Follows, from a pair of states, the choices that the distance makes.

    d~ takes the action with the largest gap + discount * distance of the successors; d^pi and MICo
    the policy's; d_lax the action that the other state answers worst, and its best answer. Where
    successors branch their distance is that of the best coupling, or for MICo of the independent
    one. Where not all transitions were seen, the actions are those known in both states. `policy`
    is that of an on-policy distance, else None.
    """
    dynamics = mdp
    if policy is not None:
        # A policy may take actions that were never seen; no step is taken there.
        whole = mdp if proof.complete else mdp.replace(available=None)
        dynamics = whole.apply_policy(policy)
    choices = PairChoices(
        dynamics, values, kind, _find_policy_actions(policy), proof.known, proof.complete
    )
    follow = pair_path.follow_path if dynamics.is_deterministic else pair_path.follow_couplings
    way = follow(choices, states)
    gap, gap_error = _compute_value_gap(mdp, policy, states) if proof.complete else (None, 0.0)
    rounded = choices.policy_actions is not None and bool((choices.policy_actions < 0).any())
    return Explanation(
        mdp=mdp,
        kind=kind,
        states=states,
        distance=float(values[states]),
        proof=proof,
        steps=way.steps,
        loop_start=way.loop_start,
        total=way.total,
        value_gap=gap,
        value_gap_error=gap_error,
        mismatched_pair=way.mismatched_pair,
        bisimilar=way.loop_start is None and not rounded and are_bisimilar(choices, way.final_pair),
    )


def _find_policy_actions(policy: NDArray[Any] | None) -> NDArray[Any] | None:
    """The action of each state under a policy, -1 where it mixes several."""
    if policy is None or policy.ndim == 1:
        return policy
    return np.where(np.count_nonzero(policy, axis=1) == 1, policy.argmax(axis=1), -1)


def _compute_value_gap(
    mdp: MDP, policy: NDArray[Any] | None, states: tuple[int, int]
) -> tuple[float, float]:
    """abs(V(s) - V(t)), and a bound on its error: as small as float64 lets it be."""
    if policy is not None:
        V = planning.policy_values(mdp, policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    gap = abs(float(V.values[states[0]] - V.values[states[1]]))
    return gap, 0.0 if states[0] == states[1] else 2 * V.error + UNIT * gap
