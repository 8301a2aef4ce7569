"""Each rounding term of the bounds of the uses, alone: a case in which the bound needs it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, exact, planning, uses
from bisimetric.planning import ValueFunction
from bisimetric.uses.aggregation.aggregate_mdp import solve_aggregate_mdp
from bisimetric.uses.aggregation.bounds import CertifiedDistance, bound_value_errors
from bisimetric.uses.aggregation.clustering import Clustering
from bisimetric.uses.certificates import add_upward, diameter_bound, multiply_upward, round_upward
from bisimetric.uses.policy_transfer import action_bounds, imitation
from bisimetric.uses.policy_transfer.action_bounds import TIE_TOLERANCE
from bisimetric.uses.policy_transfer.imitation import ImitationDistance
from tests import exact_values

HALF = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("compute", [exact.mico, exact.on_policy])
@pytest.mark.parametrize("tol", [20.0, 5.0, 1.0, 1e-6])
def test_a_representative_that_mixes_actions_needs_the_error_of_d(compute: Any, tol: float) -> None:
    # No two states are merged: all that is lost is lost by taking one action for a mixture.
    mdp = MDP.deterministic([[0, 0], [1, 0]], [[3, 2], [0, 2]], discount=0.9)
    d = compute(mdp, HALF, tol=tol)
    found = uses.aggregate(mdp, d, clusters=2)
    here = exact_values.rational(mdp)
    best = exact_values.policy_values(here, HALF)
    kept = exact_values.policy_values(here, found.policy)
    lost = max(x - y for x, y in zip(best, kept, strict=True))
    assert lost <= Fraction(found.regret_bound)
    assert abs(Fraction(found.regret) - lost) <= Fraction(found.regret_error)
    # Where d is known, the bound is below that of any policy.
    assert tol > 1 or found.regret_bound < found.diameter_bound


def test_a_certain_row_of_probabilities_is_an_action() -> None:
    mdp = MDP.deterministic([[0, 0], [1, 0]], [[3, 2], [0, 2]], discount=0.9)
    rows = [[0.0, 1.0], [1.0, 0.0]]
    found = uses.aggregate(mdp, exact.on_policy(mdp, rows, tol=20.0), clusters=2)
    assert found.policy.tolist() == [1, 0]
    assert (found.regret_bound, found.regret) == (0, 0)


def test_the_diameter_is_rounded_up() -> None:
    draw, below = np.random.default_rng(0), 0
    for _ in range(200):
        discount = float(draw.choice([0.1, 0.3, 0.9, 0.999999]))
        mdp = MDP.deterministic([[0, 0]], draw.normal(size=(1, 2)), discount=discount)
        diameter = exact_values.rational(mdp).diameter
        assert diameter <= Fraction(diameter_bound(mdp)) <= diameter * (1 + Fraction(1, 2**51))
        below += diameter > Fraction(mdp.diameter_bound)
    assert below > 20


def test_sums_and_products_are_rounded_upward() -> None:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(500, 3)) * 10.0 ** draw.integers(-320, 20, (500, 3))
    for x, y, z in numbers.tolist():
        assert Fraction(add_upward(x, y, z)) >= Fraction(x) + Fraction(y) + Fraction(z)
        assert Fraction(multiply_upward(abs(x), abs(y))) >= abs(Fraction(x) * Fraction(y))
    assert add_upward(0.0, 0.0) == multiply_upward(0.5, 0.0) == multiply_upward(0.0, 1.0) == 0
    assert add_upward(np.array([1.0, -np.inf]), 1.0).tolist() == [2.0, -np.inf]


def test_accumulated_errors_are_rounded_upward() -> None:
    draw = np.random.default_rng(0)
    for off, discount in zip(draw.random(500).tolist(), draw.random(500).tolist(), strict=True):
        share = Fraction(discount)
        exactly = (1 + share) / (1 - share) * Fraction(off)
        assert Fraction(action_bounds.accumulate_error(off, discount)) >= exactly


def test_values_of_the_aggregated_mdp_need_the_rounding_of_its_rows() -> None:
    # State 0 leads to 300 absorbing states: the rows of the aggregated MDP are scaled once more.
    draw, size, discount = np.random.default_rng(1), 300, 0.5
    P = np.eye(size + 1)
    P[0, 1:], P[0, 0] = draw.dirichlet(np.ones(size)) * (1 - 9e-9), 0.0
    R = np.concatenate([[0.0], 1e15 * draw.random(size)])[:, None]
    mdp = MDP(P[:, None], R, discount=discount)
    everyone = np.arange(size + 1)
    groups = Clustering(everyone, everyone, np.zeros(size + 1), np.zeros(size + 1))
    small = solve_aggregate_mdp(mdp, groups, None)

    def first_value(each: MDP) -> Fraction:
        row = [Fraction(float(p)) for p in each.P.toarray()[0]]
        paid = [Fraction(float(r)) for r in R[:, 0]]
        total = sum((p * r for p, r in zip(row, paid, strict=True)), Fraction(0))
        return total / sum(row, Fraction(0))

    here, there = first_value(mdp), first_value(small.mdp)
    values = 2 * R[:, 0]
    values[0] = float(there)
    small = small._replace(
        values=ValueFunction(values, round_upward(abs(Fraction(values[0]) - there)))
    )
    bound = bound_value_errors(
        CertifiedDistance(mdp, "lax", 0.0, None), groups, small, np.zeros(size + 1)
    )
    assert abs(here - Fraction(values[0])) > Fraction(small.values.error)
    assert abs(here - Fraction(values[0])) <= Fraction(float(bound[0]))


def test_imitation_includes_the_rounding_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    # A chain of three states that pays in its second; the target pays `gap` less. Values and
    # distances are exact, and only their difference is rounded: 5/8 (paid - gap) is between floats.
    paid, gap, discount = 2.0**52 + 8, 1.0, 0.625
    chain = [[1], [2], [2]]
    source = MDP.deterministic(chain, [[0.0], [paid], [0.0]], discount=discount)
    target = MDP.deterministic(chain, [[0.0], [paid - gap], [0.0]], discount=discount)
    V = np.array([discount * paid, paid, 0.0])
    apart = np.full((3, 3), 1e17)
    np.fill_diagonal(apart, [discount * gap, gap, 0.0])
    alike = ImitationDistance(apart, np.zeros((3, 3), np.int64), 0.0)
    monkeypatch.setattr(imitation, "solve_imitation", lambda *_, **__: alike)
    monkeypatch.setattr(planning, "policy_values", lambda *_, **__: ValueFunction(V, 0.0))
    found = imitation.choose_by_imitation(source, target, np.zeros(3, np.int64))
    there = exact_values.policy_values(exact_values.rational(target), found.policy)
    assert Fraction(float(V[0] - (1 + TIE_TOLERANCE) * apart[0, 0])) > there[0]
    assert all(
        Fraction(x) <= y for x, y in zip(found.value_lower_bound.tolist(), there, strict=True)
    )
