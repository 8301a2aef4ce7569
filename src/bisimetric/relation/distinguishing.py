"""A formula that distinguishes two states which are not bisimilar, from rounds of refinement."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Generator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, compute_comparison_classes, number_by_appearance
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.api import RELATION_TOL, compute_classes, label_rows
from bisimetric.relation.formulas import (
    Condition,
    Formula,
    Model,
    choose_threshold,
    evaluate,
    lump_weights,
)
from bisimetric.relation.lumping import FIXED_POINT_ONE

Request = tuple[int, int]
"""A pair of states for which a formula is needed."""


@dataclasses.dataclass(frozen=True)
class Witness:
    """A formula that the first of two states satisfies and the second does not.

    Attributes:
        mdp: the MDP.
        states: the two state ids.
        formula: the formula, of the least modal depth.
        values: of a formula <a>(condition): the reward, or the probability, that is compared with
            the threshold, in each state; of several actions a the largest (the smallest, if it must
            be below). Otherwise 1 and 0.

    >>> mdp = MDP.deterministic([[0], [1]], [[2], [5]], discount=0.9, actions=["go"])
    >>> witness = distinguish(mdp, 1, 0)
    >>> print(witness.formula), witness.values
    <go>(R >= 4)
    (None, (5.0, 2.0))
    """

    mdp: MDP
    states: tuple[int, int]
    formula: Formula
    values: tuple[float, float]

    def __str__(self) -> str:
        s, t = (self.mdp.state_name(state) for state in self.states)
        lines = [f"satisfied by {s}, not by {t}: {self.formula}"]
        modal = self.formula.negated or self.formula
        if len(modal.conditions) == 1:
            tested = "the reward" if modal.conditions[0].formula is None else "the probability"
            lines.append(f"{tested} is {self.values[0]:.9g} in {s} and {self.values[1]:.9g} in {t}")
        return "\n".join(lines)


def distinguish(
    mdp: MDP,
    s: int | str,
    t: int | str,
    *,
    lax: bool = False,
    tol: float = RELATION_TOL,
    reward_tol: float = 0.0,
) -> Witness:
    """Find a formula of probabilistic modal logic that s satisfies and t does not.

    Two states are bisimilar iff they satisfy the same formulas, so such a formula proves that they
    are not (Larsen & Skou 1991). It has the least modal depth: the number of rounds of partition
    refinement after which s and t are in different classes (Cleaveland 1990, On automatically
    explaining bisimulation inequivalence, CAV). Thresholds lie in the middle third between the
    values of the two states, with few digits. `relation.evaluate` checks the formula; this is done
    before it is returned.

    Args:
        mdp: the MDP.
        s: the state that satisfies the formula, by id or name.
        t: the state that does not.
        lax: distinguish up to `relation.lax` in place of `relation.bisimulation`: formulas then
            name no action ("*" is any). For the relation under a policy, pass
            `mdp.apply_policy(policy)`.
        tol: tolerance on probabilities, as in the relation.
        reward_tol: tolerance on rewards, as in the relation.

    Returns:
        The formula with the two values that it separates.

    Raises:
        InputError: there is no such state, the states are bisimilar, the MDP has observations, or a
            tolerance is out of range.
        InsufficientMemory: the rounds of refinement do not fit into memory.

    >>> P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.4, 0.6]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]]
    >>> mdp = MDP(P, [[0], [0], [0], [1]], discount=0.9, names="stuv", actions=["go"])
    >>> print(distinguish(mdp, "t", "s"))
    satisfied by t, not by s: <go>(P[<go>(R >= 0.5)] >= 0.55)
    the probability is 0.6 in t and 0.5 in s
    """
    caller = "relation.distinguish"
    require_mdp(caller, mdp)
    if mdp.ground_distance is not None:
        raise InputError(
            f"{caller}: formulas test labels, rewards and probabilities, and this MDP has "
            "observations; pass mdp.replace(observations=None, ground_distance=None), or labels."
        )
    first, second = mdp.state(s), mdp.state(t)
    classes = compute_classes(mdp, lax=lax, tol=tol, reward_tol=reward_tol)
    if classes[first] == classes[second]:
        raise InputError(
            f"{caller}: states {mdp.state_name(first)} and {mdp.state_name(second)} are "
            f"{'lax ' if lax else ''}bisimilar, so that no formula distinguishes them."
        )
    representatives = np.unique(classes, return_index=True)[1]
    representatives[classes[[first, second]]] = first, second
    model = Model.from_mdp(mdp, lax=lax)
    small = model.select(representatives, classes)
    pair = int(classes[first]), int(classes[second])
    initial = compute_comparison_classes(mdp, lax=lax)[representatives]
    for probability_tol in (int(tol * FIXED_POINT_ONE), 0):
        rounds = _refine_by_rounds(small, initial, pair, probability_tol, reward_tol)
        if rounds[-1][pair[0]] != rounds[-1][pair[1]]:
            break
    formula = _FormulaBuilder(small, rounds, probability_tol, reward_tol).build(pair)
    satisfied = evaluate(mdp, formula)
    if not satisfied[first] or satisfied[second]:
        raise InputError(
            f"{caller}: within tol={tol:g} and reward_tol={reward_tol:g} classes are not sharp "
            "enough for a formula; pass tol=0 and reward_tol=0."
        )
    values = _compute_values(model, formula, (first, second))
    return Witness(mdp, (first, second), formula, values)


def _compute_values(model: Model, formula: Formula, states: tuple[int, int]) -> tuple[float, float]:
    """Return what the only condition of a modal formula compares, in both states; else 1 and 0."""
    modal = formula.negated or formula
    if modal.action is None or len(modal.conditions) != 1:
        return 1.0, 0.0
    condition = modal.conditions[0]
    quantity, actions = model.compute_quantity(condition), model.find_actions(modal.action)
    found = []
    for state in states:
        offered = quantity[state][model.mask[state] & actions]
        if len(offered) == 0:
            return 1.0, 0.0
        best = float(offered.max() if condition.at_least else offered.min())
        found.append(best if condition.formula is None else best / FIXED_POINT_ONE)
    return found[0], found[1]


def _refine_by_rounds(
    model: Model, initial: NDArray[np.int64], pair: Request, tol: int, reward_tol: float
) -> list[NDArray[np.integer]]:
    """Return the partitions after 0, 1, ... steps, up to the one that separates a pair, if any.

    Signatures are compared by 64-bit hashes: a collision could only delay a split.
    """
    num_actions = model.R.shape[1]
    rows = np.flatnonzero(model.mask)
    source, action = np.divmod(rows, num_actions)
    groups = number_by_appearance(np.unique(model.action_labels, return_inverse=True)[1])
    key = label_rows(model.R.ravel()[rows], groups[action], reward_tol)[0].astype(np.uint64)
    weights = model.weights[rows]
    rounds: list[NDArray[np.integer]] = [number_by_appearance(initial)]
    while rounds[-1][pair[0]] == rounds[-1][pair[1]]:
        previous = rounds[-1]
        num_classes = int(previous.max()) + 1
        lumped = lump_weights(weights, previous, num_classes)
        codes = _number_runs(lumped.data, tol)
        entries = _hash(
            codes.astype(np.uint64) * np.uint64(num_classes) + lumped.indices.astype(np.uint64)
        )
        entries[codes == 0] = 0
        of_row = _hash(np.add.reduceat(entries, lumped.indptr[:-1]) + _hash(key))
        # Equal rows of a state count once. The sum over its rows does not depend on their order.
        order = np.lexsort((of_row, source))
        owner, row = source[order], of_row[order]
        repeated = np.zeros(len(order), np.bool_)
        repeated[1:] = (owner[1:] == owner[:-1]) & (row[1:] == row[:-1])
        row = _hash(row)
        row[repeated] = 0
        of_state = np.add.reduceat(row, np.searchsorted(owner, np.arange(len(previous))))
        refined = number_by_appearance(previous, of_state)
        if int(refined.max()) + 1 == num_classes:
            break
        rounds.append(refined.astype(np.int32))
        if len(rounds) & (len(rounds) - 1) == 0:  # before the number of rounds doubles again
            require_memory(
                f"relation.distinguish: {2 * len(rounds):,} rounds of refinement need",
                4.0 * len(rounds) * len(previous),
                "compare states that differ after fewer steps",
            )
    return rounds


def _number_runs(values: NDArray[np.int64], tol: int) -> NDArray[np.int64]:
    """Number values so that those within `tol` of a neighbour are equal; 0 are those of 0."""
    distinct, back = np.unique(np.append(values, 0), return_inverse=True)
    splits = (np.diff(distinct, prepend=0) > tol).astype(np.int64)
    return np.asarray(np.cumsum(splits)[back[:-1]])


def _hash(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit integers (splitmix64: Steele, Lea & Flood 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


class _FormulaBuilder:
    """Build a formula for a pair of states from the rounds that separate them.

    States that are equal after k rounds satisfy the same formulas of depth k. If the k-th round
    separates two states, then an action of one has a reward, or a probability of a class of round
    k - 1, that no action of the other has; a formula of depth k - 1 describes that class among the
    successors.
    """

    def __init__(
        self, model: Model, rounds: list[NDArray[np.integer]], tol: int, reward_tol: float
    ) -> None:
        self.model, self.rounds = model, rounds
        self.tol, self.reward_tol = tol, reward_tol

    def build(self, pair: Request) -> Formula:
        """Return a formula for a pair; formulas of other pairs are built on request, once each."""
        found: dict[Request, Formula] = {}
        stack = [(pair, self._separate(*pair))]
        answer: Formula | None = None
        while stack:
            current, builder = stack[-1]
            try:
                request = builder.send(answer) if answer is not None else next(builder)
            except StopIteration as finished:
                found[current] = answer = finished.value
                stack.pop()
                continue
            answer = found.get(request)
            if answer is None:
                stack.append((request, self._separate(*request)))
        return found[pair]

    def _separate(self, x: int, y: int) -> Generator[Request, Formula, Formula]:
        """Build a formula that state x satisfies and y does not."""
        model = self.model
        # Separated states stay separated.
        k = bisect.bisect_left(self.rounds, True, key=lambda classes: classes[x] != classes[y])
        if k == 0:
            return self._find_literal(x, y)
        for first, second in ((x, y), (y, x)):
            action = self._find_unmatched(first, second, k - 1)
            if action is None:
                continue
            label = model.action_labels[action]
            rivals = np.flatnonzero(model.mask[second] & model.find_actions(label)).tolist()
            conditions: list[Condition] = []
            while rivals:
                condition = yield from self._build_condition(
                    (first, action), (second, rivals[0]), k - 1
                )
                conditions.append(condition)
                passed = model.check(condition)[second]
                rivals = [each for each in rivals if passed[each]]
            found = Formula(action=label, conditions=tuple(conditions))
            return found if first == x else Formula(negated=found)
        raise AssertionError("a round separates states whose actions all match")

    def _find_literal(self, x: int, y: int) -> Formula:
        """Return a label, or an available action, that only one of two states has."""
        model = self.model
        for name, mask in model.labels.items():
            if mask[x] != mask[y]:
                return _negate(Formula(label=name), not mask[x])
        for label in dict.fromkeys(model.action_labels):
            offered = np.any(model.mask & model.find_actions(label), axis=1)
            if offered[x] != offered[y]:
                return _negate(Formula(action=label), not offered[x])
        raise AssertionError("states of different initial classes have the same labels and actions")

    def _find_unmatched(self, x: int, y: int, k: int) -> int | None:
        """Return the action of x that differs most from those of y in round k, if any does.

        Differences of rewards come first, as they need no formula of successors.
        """
        model, best, found = self.model, (0.0, 0.0), None
        for a in np.flatnonzero(model.mask[x]).tolist():
            rivals = np.flatnonzero(model.mask[y] & model.find_actions(model.action_labels[a]))
            gaps = []
            for b in rivals.tolist():
                reward_gap = abs(float(model.R[x, a]) - float(model.R[y, b]))
                moved = self._compare_rows((x, a), (y, b), k)
                largest = max(map(abs, moved.values()), default=0)
                gaps.append(
                    (
                        reward_gap if reward_gap > self.reward_tol else 0.0,
                        largest if largest > self.tol else 0,
                    )
                )
            if min(gaps) > best:
                best, found = min(gaps), a
        return found

    def _compare_rows(
        self, first: tuple[int, int], second: tuple[int, int], k: int
    ) -> dict[int, int]:
        """Return by class of round k how much more likely it is after the first choice."""
        moved: dict[int, int] = {}
        classes, weights = self.rounds[k], self.model.weights
        for (state, action), sign in ((first, 1), (second, -1)):
            row = state * self.model.R.shape[1] + action
            part = slice(weights.indptr[row], weights.indptr[row + 1])
            pairs = zip(classes[weights.indices[part]], weights.data[part], strict=True)
            for each, weight in pairs:
                moved[int(each)] = moved.get(int(each), 0) + sign * int(weight)
        return moved

    def _build_condition(
        self, first: tuple[int, int], second: tuple[int, int], k: int
    ) -> Generator[Request, Formula, Condition]:
        """Build a condition that the first choice meets and the second does not."""
        model = self.model
        rewards = Fraction(float(model.R[first])), Fraction(float(model.R[second]))
        if abs(rewards[0] - rewards[1]) > self.reward_tol:
            return Condition(choose_threshold(min(rewards), max(rewards)), rewards[0] > rewards[1])
        moved = self._compare_rows(first, second, k)
        target = max(moved, key=lambda each: (abs(moved[each]), moved[each] > 0))
        inside, others = self._find_successors(first, second, k, target)
        conjuncts: list[Formula] = []
        satisfied = np.ones(len(model.R), np.bool_)
        weights = [0, 0]
        for successor in others:
            if satisfied[successor]:
                conjuncts.append((yield inside, successor))
                satisfied &= model.evaluate(conjuncts[-1])
                weights = [self._sum_weights(each, satisfied) for each in (first, second)]
                if 2 * abs(weights[0] - weights[1]) >= abs(moved[target]):
                    break
        formula = conjuncts[0] if len(conjuncts) == 1 else Formula(conjuncts=tuple(conjuncts))
        values = [Fraction(each, FIXED_POINT_ONE) for each in weights]
        return Condition(choose_threshold(min(values), max(values)), values[0] > values[1], formula)

    def _find_successors(
        self, first: tuple[int, int], second: tuple[int, int], k: int, target: int
    ) -> tuple[int, list[int]]:
        """Return a successor in class `target`, and one of each other class, most likely first."""
        classes, weights = self.rounds[k], self.model.weights
        member: dict[int, int] = {}
        mass: dict[int, int] = {}
        for state, action in (first, second):
            row = state * self.model.R.shape[1] + action
            part = slice(weights.indptr[row], weights.indptr[row + 1])
            for successor, weight in zip(weights.indices[part], weights.data[part], strict=True):
                each = int(classes[successor])
                member.setdefault(each, int(successor))
                mass[each] = mass.get(each, 0) + int(weight)
        others = sorted((each for each in member if each != target), key=lambda each: -mass[each])
        return member[target], [member[each] for each in others]

    def _sum_weights(self, choice: tuple[int, int], satisfied: NDArray[np.bool_]) -> int:
        """Return the probability, times 2^62, of the states of a mask after a choice."""
        row = choice[0] * self.model.R.shape[1] + choice[1]
        weights = self.model.weights
        part = slice(weights.indptr[row], weights.indptr[row + 1])
        return int(weights.data[part][satisfied[weights.indices[part]]].sum())


def _negate(formula: Formula, negate: bool) -> Formula:
    return Formula(negated=formula) if negate else formula
