"""Distinguishing formulas: evaluated in exact fractions by other code, and of least depth."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, relation, worlds
from bisimetric.relation import Condition, Formula
from bisimetric.relation.formulas import choose_threshold, list_parts
from tests.commands import Run
from tests.labelled_oracle import actions_of, group_of, label_set, random_mdp


def holds(mdp: MDP, formula: Formula, state: int) -> bool:
    """The definition of the logic, one state at a time, in fractions."""
    if formula.label is not None:
        return formula.label in label_set(mdp, state)
    if formula.negated is not None:
        return not holds(mdp, formula.negated, state)
    if formula.action is None:
        return all(holds(mdp, each, state) for each in formula.conjuncts)
    names = mdp.choice_labels or [mdp.action_name(a) for a in range(mdp.num_actions)]
    return any(
        all(passes(mdp, test, state, action) for test in formula.conditions)
        for action in actions_of(mdp, state)
        if formula.action in ("*", names[action])
    )


def passes(mdp: MDP, test: Condition, state: int, action: int) -> bool:
    if test.formula is None:
        quantity = Fraction(float(mdp.R[state, action]))
    else:
        row = mdp.P[[state * mdp.num_actions + action]].toarray().ravel()
        masses = {t: Fraction(float(row[t])) for t in np.flatnonzero(row).tolist()}
        good = sum(mass for t, mass in masses.items() if holds(mdp, test.formula, t))
        quantity = Fraction(good) / sum(masses.values())
    return (quantity >= test.threshold) == test.at_least


def rounds(mdp: MDP, lax: bool) -> list[list[int]]:
    """The partitions after each round of refinement by signatures, in fractions."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    found: list[list[int]] = []
    signatures: list[Any] = [
        (label_set(mdp, s), frozenset(group_of(mdp, a, lax) for a in actions_of(mdp, s)))
        for s in range(states)
    ]
    while True:
        numbers: dict[Any, int] = {}
        classes = [numbers.setdefault(each, len(numbers)) for each in signatures]
        if found and max(found[-1]) == max(classes):
            return found
        found.append(classes)
        signatures = []
        for s in range(states):
            rows = set()
            for a in actions_of(mdp, s):
                masses: dict[int, Fraction] = {}
                for t in np.flatnonzero(P[s, a]).tolist():
                    masses[classes[t]] = masses.get(classes[t], Fraction(0)) + Fraction(P[s, a, t])
                rows.add((group_of(mdp, a, lax), mdp.R[s, a], frozenset(masses.items())))
            signatures.append((classes[s], frozenset(rows)))


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("choices", [True, False])
@pytest.mark.parametrize("lax", [True, False])
def test_only_the_first_state_satisfies_the_formula(
    deterministic: bool, choices: bool, lax: bool
) -> None:
    depths = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(
            rng, deterministic=deterministic, choices=choices, labels=seed % 2 == 0, states=8,
            actions=1 + seed % 3, rewards=1 + seed // 3 % 2,
        )  # fmt: skip
        classes = (relation.lax if lax else relation.bisimulation)(mdp)
        partitions = rounds(mdp, lax)
        for s, t in np.argwhere(classes[:, None] != classes).tolist():
            witness = relation.distinguish(mdp, s, t, lax=lax)
            assert holds(mdp, witness.formula, s)
            assert not holds(mdp, witness.formula, t)
            mask = relation.evaluate(mdp, witness.formula)
            assert mask.tolist() == [holds(mdp, witness.formula, x) for x in range(8)]
            separated = next(k for k, each in enumerate(partitions) if each[s] != each[t])
            assert witness.formula.depth == separated
            depths.add(separated)
    assert max(depths) >= 2


def test_values_are_those_of_the_test() -> None:
    P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.25, 0.75]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]]
    mdp = MDP(P, [[0], [0], [0], [1]], discount=0.9, names="stuv", actions=["go"])
    witness = relation.distinguish(mdp, "s", "t")
    assert witness.values == (0.5, 0.25)
    assert str(witness.formula) == "<go>(P[<go>(R < 0.5)] >= 0.4)"
    assert relation.distinguish(mdp, "t", "s").values == (0.75, 0.5)
    assert relation.distinguish(mdp, "u", "v").values == (0.0, 1.0)
    labelled = mdp.replace(labels=["x", (), (), ()])
    assert str(relation.distinguish(labelled, "t", "s")) == 'satisfied by t, not by s: !"x"'
    assert relation.distinguish(labelled, "s", "t").values == (1.0, 0.0)


def test_missing_actions_distinguish() -> None:
    mdp = MDP.deterministic(
        [[0, 0], [1, 1]], [[0, 0], [0, 0]], discount=0.5, actions=["a", "b"],
        available=[[True, False], [True, True]],
    )  # fmt: skip
    assert str(relation.distinguish(mdp, 0, 1).formula) == "!<b> true"
    with pytest.raises(InputError, match="0 and 1 are lax bisimilar"):
        relation.distinguish(mdp, 0, 1, lax=True)


def test_several_choices_need_several_tests() -> None:
    # State 0 has a choice of reward 1 that reaches "x"; state 1 has one of each kind, not both.
    n, R = [[2, 3], [2, 3], [2, 2], [3, 3]], [[1, 0], [0, 1], [0, 0], [0, 0]]
    mdp = MDP.deterministic(n, R, discount=0.5, labels=[(), (), "x", ()], choice_labels=["a", "a"])
    formula = relation.distinguish(mdp, 0, 1).formula
    assert [len(part.conditions) for part in list_parts(formula)][-1] == 2
    assert relation.evaluate(mdp, formula).tolist() == [True, False, False, False]


def test_long_chains_need_no_recursion_and_share_parts() -> None:
    n = 1500
    rewards = (np.arange(n) == n - 1).astype(float)[:, None]
    mdp = MDP.deterministic(np.minimum(np.arange(n) + 1, n - 1)[:, None], rewards, discount=0.9)
    witness = relation.distinguish(mdp, 1, 0)
    assert witness.formula.depth == n - 1
    assert str(witness.formula).startswith("phi0 = <0>(P[phi1] >= 0.5)\nphi1 = <0>(P[phi2]")
    assert str(witness.formula).endswith("phi1498 = <0>(R >= 0.5)")


def test_rounding_is_no_reason() -> None:
    # The rows of 0 and 1 sum to 1 with other roundings; 2 and 3 differ in their rewards.
    P = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0, 0, 1, 0], [0, 0, 0, 1]])
    mdp = MDP(P[:, None], [[0], [0], [0], [1]], discount=0.9)
    formula = relation.distinguish(mdp, 1, 0).formula
    assert [float(test.threshold) for part in list_parts(formula) for test in part.conditions] == [
        0.5, 0.8,
    ]  # fmt: skip
    noisy = mdp.replace(R=[[0.1 + 0.2], [0.3], [0], [1]])
    assert str(relation.distinguish(noisy, 1, 0).formula).startswith("<0>(R < ")
    merged = relation.distinguish(noisy, 1, 0, reward_tol=1e-12).formula
    assert relation.evaluate(noisy, merged)[:2].tolist() == [False, True]
    assert merged.depth == 2


@pytest.mark.parametrize(
    ("low", "high"), [("0", "1"), ("-3", "2"), ("0.3", "0.30000000000000004"), ("-1e300", "-9e299")]
)
def test_thresholds_lie_in_the_middle_third(low: str, high: str) -> None:
    left, right = Fraction(low), Fraction(high)
    found = choose_threshold(left, right)
    assert 3 * (found - left) >= right - left
    assert 3 * (right - found) >= right - left
    assert len(str(float(found))) <= 20


def test_errors(run: Run) -> None:
    mdp = worlds.load("pessimism")
    with pytest.raises(InputError, match="states s and s are bisimilar"):
        relation.distinguish(mdp, "s", "s")
    with pytest.raises(InputError, match="there is no state"):
        relation.distinguish(mdp, "s", "x")
    with pytest.raises(InputError, match="has no label 'goal'"):
        relation.evaluate(mdp, Formula(label="goal"))
    with pytest.raises(InputError, match="has no action 'c'"):
        relation.evaluate(mdp, Formula(negated=Formula(action="c")))
    result = run("relation", "distinguish", "pessimism")
    assert result.code != 0
    assert "--pairs is missing" in result.err
