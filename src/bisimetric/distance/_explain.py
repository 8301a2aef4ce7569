"""Explain a distance, and prove by a relation that two states are bisimilar."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._rounding import UNIT
from bisimetric.distance import pair_path
from bisimetric.distance.explanation import Explanation, Proof
from bisimetric.distance.pair_path import PairChoices
from bisimetric.implicit_mdp import normalise
from bisimetric.mdp import MDP

MAX_PAIRS = 10_000
"""Pairs in a relation, at most; a larger one is not examined."""


def are_bisimilar(choices: PairChoices, pair: tuple[int, int]) -> bool:
    """Return whether a bisimulation relation that contains the pair is found.

    The relation is the closure of the pair under successors at distance 0 in the matrix (Hopcroft &
    Karp 1971). Every pair in it is then verified: equal labels, observations and rewards, and equal
    probabilities of all classes, as rational numbers. So True is a proof, whatever the error of the
    matrix. For d_lax actions are matched freely.
    """
    mdp, stochastic = choices.mdp, not choices.mdp.is_deterministic
    if choices.known is not None or (choices.kind == "mico" and stochastic):
        return False
    classes = _UnionFind()
    related = [pair] if classes.merge(*pair) else []
    for s, t in related:
        if len(related) > MAX_PAIRS:
            return False
        for a, b in np.argwhere(choices.get_compared_actions((s, t))).tolist():
            if mdp.R[s, a] == mdp.R[t, b]:
                x, y = _successors(mdp, s, a), _successors(mdp, t, b)
                zeros = np.argwhere(choices.values[np.ix_(x, y)] == 0)
                related += [(x[i], y[j]) for i, j in zeros.tolist() if classes.merge(x[i], y[j])]
    return all(_is_consistent(choices, classes, *related_pair) for related_pair in related)


class _UnionFind:
    """Classes of states, initially singletons."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def find(self, state: int) -> int:
        while (parent := self._parent.get(state, state)) != state:
            self._parent[state] = self._parent.get(parent, parent)
            state = parent
        return state

    def merge(self, s: int, t: int) -> bool:
        """Merge the classes of two states; return False if they are the same."""
        first, second = self.find(s), self.find(t)
        self._parent[second] = first
        return first != second


def _is_consistent(choices: PairChoices, classes: _UnionFind, s: int, t: int) -> bool:
    """Whether labels and observations agree, and each action of either state has an equal one."""
    mdp = choices.mdp
    of_s = of_t = np.ones(mdp.num_actions, np.bool_)
    if mdp.available is not None:
        of_s, of_t = mdp.available[s], mdp.available[t]
    if choices.are_incomparable((s, t)):
        return False
    if mdp.ground_distance is not None and mdp.ground_distance(s, t) > 0:
        return False
    equal = choices.get_compared_actions((s, t)) & (mdp.R[s][:, None] == mdp.R[t])
    for a, b in np.argwhere(equal).tolist():
        masses = _compute_class_masses(mdp, classes, s, a)
        equal[a, b] = masses == _compute_class_masses(mdp, classes, t, b)
    return bool((equal.any(axis=1) | ~of_s).all() and (equal.any(axis=0) | ~of_t).all())


def _successors(mdp: MDP, state: int, action: int) -> list[int]:
    row = state * mdp.num_actions + action
    found: list[int] = mdp.P.indices[mdp.P.indptr[row] : mdp.P.indptr[row + 1]].tolist()
    return found


def _compute_class_masses(
    mdp: MDP, classes: _UnionFind, state: int, action: int
) -> dict[int, Fraction]:
    """Compute the probability of each class after a step, as rational numbers."""
    row = state * mdp.num_actions + action
    masses = normalise(mdp.P.data[mdp.P.indptr[row] : mdp.P.indptr[row + 1]].tolist())
    found: dict[int, Fraction] = {}
    for successor, mass in zip(_successors(mdp, state, action), masses, strict=True):
        block = classes.find(successor)
        found[block] = found.get(block, Fraction(0)) + mass
    return found


def explain(
    mdp: MDP,
    values: NDArray[np.floating],
    kind: str,
    policy: NDArray[Any] | None,
    states: tuple[int, int],
    proof: Proof,
) -> Explanation:
    """Explain the distance between a pair of states by the actions and couplings that attain it.

    d~ takes the action with the largest reward gap + discount * distance of the successors; d^pi
    and MICo the policy's; d_lax the action whose best match is worst, and that match. In a
    stochastic MDP the successors are related by the optimal coupling, for MICo by the independent
    one. For incomplete data only actions known in both states are compared, and between recorded
    steps the path ends at one without a successor. `policy` is that of an on-policy distance,
    otherwise None.
    """
    dynamics, known, complete = mdp, proof.known, proof.complete
    if proof.has_successor is not None:
        known, complete = proof.has_successor[:, None], False
    if policy is not None:
        # A policy may choose actions that were never observed; the path does not enter them.
        unrestricted = mdp if proof.complete else mdp.replace(available=None)
        dynamics = unrestricted.apply_policy(policy)
    choices = PairChoices(dynamics, values, kind, _find_policy_actions(policy), known, complete)
    follow = pair_path.follow_path if dynamics.is_deterministic else pair_path.follow_couplings
    path = follow(choices, states)
    gap, gap_error = _compute_value_gap(mdp, policy, states) if complete else (None, 0.0)
    mixed = choices.policy_actions is not None and bool((choices.policy_actions < 0).any())
    return Explanation(
        mdp=mdp,
        kind=kind,
        states=states,
        distance=float(values[states]),
        proof=proof,
        steps=path.steps,
        loop_start=path.loop_start,
        total=path.total,
        value_gap=gap,
        value_gap_error=gap_error,
        mismatched_pair=path.mismatched_pair,
        # A mixed policy's rewards are rounded, so that equality proves nothing.
        bisimilar=path.loop_start is None and not mixed and are_bisimilar(choices, path.final_pair),
    )


def _find_policy_actions(policy: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return the action of each state under a policy, -1 where it mixes several."""
    if policy is None or policy.ndim == 1:
        return policy
    return np.where(np.count_nonzero(policy, axis=1) == 1, policy.argmax(axis=1), -1)


def _compute_value_gap(
    mdp: MDP, policy: NDArray[Any] | None, states: tuple[int, int]
) -> tuple[float, float]:
    """Compute abs(V(s) - V(t)) and a bound on its error, to float64 precision."""
    if policy is not None:
        V = planning.policy_values(mdp, policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    gap = abs(float(V.values[states[0]] - V.values[states[1]]))
    return gap, 0.0 if states[0] == states[1] else 2 * V.error + UNIT * gap
