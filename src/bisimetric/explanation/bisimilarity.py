"""Whether two states are bisimilar, proven by a relation that is found and checked."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bisimetric.explanation.choices import PairChoices
from bisimetric.mdp import MDP
from bisimetric.successors import normalise

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
