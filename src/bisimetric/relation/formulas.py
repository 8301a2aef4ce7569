"""Formulas of probabilistic modal logic, their text and their evaluation on an MDP.

    phi ::= "label"  |  <a> true  |  <a>(conditions)  |  !phi  |  phi & phi
    condition ::= R >= r  |  R < r  |  P[phi] >= p  |  P[phi] < p

<a>(conditions) holds in a state that has an available action a which meets all conditions on its
reward R, and on its probability P of a successor that satisfies phi. Larsen & Skou (1991),
Bisimulation through probabilistic testing, Information and Computation 94; Parma & Segala (2007),
Logical characterizations of bisimulations for discrete probabilistic systems, FoSSaCS.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._text import shorten
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.lumping import FIXED_POINT_ONE, group_by_successor

ANY_ACTION = "*"
MAX_INLINE_LENGTH = 160
"""Longer formulas are printed with their parts as numbered definitions."""


@dataclasses.dataclass(frozen=True, eq=False)
class Condition:
    """A condition on an action: its reward, or its probability of states that satisfy a formula.

    Attributes:
        threshold: the number to compare with, exactly.
        at_least: whether the quantity must be at least the threshold, or below it.
        formula: of the successors; None compares the reward.

    >>> print(Formula(action="go", conditions=(Condition(Fraction(1), True),)))
    <go>(R >= 1)
    """

    threshold: Fraction
    at_least: bool
    formula: Formula | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Formula:
    """A formula of probabilistic modal logic; exactly one of the first four attributes is given.

    Attributes:
        label: holds in the states with this label.
        action: holds in the states in which some available action with this choice label (or
            name, where the MDP has no choice labels; "*": any) meets all `conditions`.
        negated: holds where this formula does not.
        conjuncts: holds where all of these do.
        conditions: of `action`; none only requires that it is available.

    >>> half = Condition(Fraction(1, 2), True, Formula(label="goal"))
    >>> step = Formula(action="go", conditions=(half,))
    >>> print(step, step.depth)
    <go>(P["goal"] >= 0.5) 1
    >>> print(Formula(negated=Formula(action="go", conditions=(Condition(Fraction(3), False),))))
    !<go>(R < 3)
    """

    label: str | None = None
    action: str | None = None
    negated: Formula | None = None
    conjuncts: tuple[Formula, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def depth(self) -> int:
        """The modal depth: the number of nested steps; <a> true counts as a label."""
        depths: dict[int, int] = {}
        for part in list_parts(self):
            below = [depths[id(child)] for child in part.children]
            depths[id(part)] = max(below, default=0) + bool(part.conditions)
        return depths[id(self)]

    @property
    def children(self) -> tuple[Formula, ...]:
        """The formulas that this one is built from."""
        if self.negated is not None:
            return (self.negated,)
        tested = tuple(
            condition.formula for condition in self.conditions if condition.formula is not None
        )
        return self.conjuncts + tested

    def __str__(self) -> str:
        texts: dict[int, str] = {}
        for part in list_parts(self):
            texts[id(part)] = shorten(_format(part, texts), MAX_INLINE_LENGTH + 4)
        if len(texts[id(self)]) <= MAX_INLINE_LENGTH:
            return texts[id(self)]
        return "\n".join(self._define())

    def _define(self) -> Iterator[str]:
        """Yield one line per part under a modality, the whole formula first."""
        parts = [part for part in list_parts(self) if part.label is None]
        under = {id(child) for part in parts for child in part.children if part.conditions}
        named = [part for part in parts if id(part) in under or part is self][::-1]
        names = {id(part): f"phi{number}" for number, part in enumerate(named)}
        lines: dict[int, str] = {}
        texts: dict[int, str] = {}
        for part in list_parts(self):
            text = _format(part, texts)
            texts[id(part)] = names.get(id(part), text)
            lines[id(part)] = text
        yield from (f"{names[id(part)]} = {lines[id(part)]}" for part in named)


def list_parts(formula: Formula, known: Container[int] = ()) -> list[Formula]:
    """Return a formula and all formulas it is built from, each once, children first.

    Formulas whose id is `known`, and what they are built from, are left out.
    """
    found: list[Formula] = []
    seen: set[int] = set()
    stack = [(formula, False)]
    while stack:
        part, expanded = stack.pop()
        if expanded:
            found.append(part)
        elif id(part) not in seen and id(part) not in known:
            seen.add(id(part))
            stack.append((part, True))
            stack.extend((child, False) for child in part.children)
    return found


def _format(formula: Formula, texts: Mapping[int, str]) -> str:
    """Return the text of a formula from those of its children."""
    if formula.label is not None:
        return f'"{formula.label}"'
    if formula.negated is not None:
        inside = texts[id(formula.negated)]
        return f"!({inside})" if formula.negated.conjuncts else f"!{inside}"
    if formula.action is None:
        return " & ".join(texts[id(each)] for each in formula.conjuncts) or "true"
    if not formula.conditions:
        return f"<{formula.action}> true"
    conditions = [
        f"{'R' if condition.formula is None else f'P[{texts[id(condition.formula)]}]'} "
        f"{'>=' if condition.at_least else '<'} {format_threshold(condition.threshold)}"
        for condition in formula.conditions
    ]
    return f"<{formula.action}>({' & '.join(conditions)})"


def format_threshold(value: Fraction) -> str:
    """Return a number as a decimal, or as a fraction where it has more digits than a float.

    >>> format_threshold(Fraction(1, 4)), format_threshold(Fraction(1, 3))
    ('0.25', '1/3')
    """
    text = repr(float(value)).removesuffix(".0")
    return text if Fraction(text) == value else str(value)


def choose_threshold(low: Fraction, high: Fraction) -> Fraction:
    """Return a number with few decimal digits in the middle third of an interval.

    >>> choose_threshold(Fraction(0), Fraction(1)), choose_threshold(Fraction(0), Fraction("0.03"))
    (Fraction(1, 2), Fraction(1, 50))
    """
    third = (high - low) / 3
    low, high = low + third, high - third
    if low <= 0 <= high:
        return Fraction(0)
    exponent = math.ceil(math.log10(max(abs(low), abs(high)))) + 1
    while True:
        for step in (Fraction(10) ** exponent, Fraction(10) ** exponent / 2):
            found = math.floor(high / step) * step
            if found >= low:
                return found
        exponent -= 1


class Model:
    """The choices of an MDP with integer probabilities, on which formulas are evaluated exactly.

    Attributes:
        weights: (S * A, S), probabilities as multiples of 2^-62, as the relations compare them.
        R: (S, A), rewards.
        mask: (S, A), available actions.
        groups: (A,), equal for actions of the same label.
        labels: a mask (S,) by label.
    """

    def __init__(
        self,
        weights: sparse.csr_array,
        R: NDArray[np.float64],
        mask: NDArray[np.bool_],
        action_labels: tuple[str, ...],
        labels: Mapping[str, NDArray[np.bool_]],
    ) -> None:
        self.weights, self.R, self.mask, self.labels = weights, R, mask, labels
        self.action_labels = action_labels
        self._masks: dict[int, tuple[Formula, NDArray[np.bool_]]] = {}

    @classmethod
    def from_mdp(cls, mdp: MDP, *, lax: bool = False) -> Model:
        """Return the model of an MDP; `lax` gives all actions the same label."""
        offsets, rows, weights = group_by_successor(
            mdp.P.indptr, mdp.P.indices, mdp.P.data, mdp.num_states
        )
        matrix = sparse.csc_array((weights, rows, offsets), mdp.P.shape).tocsr()
        names: tuple[str, ...] = tuple(map(mdp.action_name, range(mdp.num_actions)))
        if lax:
            names = (ANY_ACTION,) * mdp.num_actions
        elif mdp.choice_labels is not None:
            names = mdp.choice_labels
        return cls(matrix, mdp.R, mdp.action_mask, names, mdp.labels or {})

    def select(self, states: NDArray[np.int64], classes: NDArray[np.int64]) -> Model:
        """Return the quotient: the rows of representatives, with exact probabilities of classes."""
        num_actions = self.R.shape[1]
        rows = (states[:, None] * num_actions + np.arange(num_actions)).ravel()
        lumped = lump_weights(self.weights[rows], classes, len(states))
        labels = {name: mask[states] for name, mask in self.labels.items()}
        return Model(lumped, self.R[states], self.mask[states], self.action_labels, labels)

    def compute_quantity(self, condition: Condition) -> NDArray[Any]:
        """Return what a condition compares, (S, A): rewards, or probabilities times 2^62."""
        if condition.formula is None:
            return self.R
        satisfied = self.evaluate(condition.formula).astype(np.int64)
        return np.asarray(self.weights @ satisfied).reshape(self.R.shape)

    def check(self, condition: Condition) -> NDArray[np.bool_]:
        """Return which actions meet a condition, (S, A), exactly."""
        quantity, least = self.compute_quantity(condition), condition.threshold
        bound: float | int
        if condition.formula is None:
            bound = float(least)
            if Fraction(bound) < least:
                bound = math.nextafter(bound, math.inf)
        else:
            bound = math.ceil(least * FIXED_POINT_ONE)
        passed: NDArray[np.bool_] = quantity >= bound
        return passed if condition.at_least else ~passed

    def evaluate(self, formula: Formula) -> NDArray[np.bool_]:
        """Return the states that satisfy a formula, (S,)."""
        for part in list_parts(formula, self._masks):
            # The formula is stored so that its id stays in use.
            self._masks[id(part)] = part, self._evaluate(part)
        return self._masks[id(formula)][1]

    def _evaluate(self, formula: Formula) -> NDArray[np.bool_]:
        if formula.label is not None:
            return np.asarray(self.labels[formula.label])
        if formula.negated is not None:
            return ~self.evaluate(formula.negated)
        if formula.action is None:
            found = np.ones(len(self.R), np.bool_)
            for each in formula.conjuncts:
                found &= self.evaluate(each)
            return found
        passed = self.mask & self.find_actions(formula.action)
        for condition in formula.conditions:
            passed = passed & self.check(condition)
        return np.asarray(passed.any(axis=1))

    def find_actions(self, label: str) -> NDArray[np.bool_]:
        """Return which actions have a label, (A,)."""
        if label == ANY_ACTION and label not in self.action_labels:
            return np.ones(len(self.action_labels), np.bool_)
        return np.array([each == label for each in self.action_labels])


def lump_weights(
    weights: sparse.csr_array, classes: NDArray[np.integer], num_classes: int
) -> sparse.csr_array:
    """Return the probabilities of the classes (rows, C), summed exactly."""
    entries = np.ones(len(classes), np.int64), (np.arange(len(classes)), classes)
    indicator = sparse.csr_array(entries, (len(classes), num_classes))
    lumped = sparse.csr_array(weights @ indicator)
    lumped.sort_indices()
    return lumped


def evaluate(mdp: MDP, formula: Formula) -> NDArray[np.bool_]:
    """Compute the states of an MDP that satisfy a formula of probabilistic modal logic.

    Rows are normalised, probabilities are multiples of 2^-62, as in `relation.bisimulation`, and
    their sums and all comparisons are exact. Bisimilar states satisfy the same formulas, and lax
    bisimilar states the same formulas whose actions are all "*".

    Args:
        mdp: the MDP.
        formula: with labels and actions of the MDP.

    Returns:
        (S,) whether each state satisfies the formula.

    Raises:
        InputError: the MDP has no such label or action.

    >>> mdp = MDP([[[0.25, 0.75]], [[0, 1]]], [[0], [0]], discount=0.9, actions=["go"],
    ...           labels=[(), "goal"])
    >>> evaluate(mdp, Formula(action="go", conditions=(Condition(Fraction("0.8"), True,
    ...                                                Formula(label="goal")),)))
    array([False,  True])
    """
    require_mdp("relation.evaluate", mdp)
    model = Model.from_mdp(mdp)
    for part in list_parts(formula):
        if part.label is not None and part.label not in model.labels:
            raise InputError(f"relation.evaluate: the MDP has no label {part.label!r}.")
        if part.action is not None and not model.find_actions(part.action).any():
            raise InputError(f"relation.evaluate: the MDP has no action {part.action!r}.")
    return model.evaluate(formula).copy()
