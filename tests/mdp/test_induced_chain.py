"""The chain of a stochastic policy, its rounding, and the errors that must contain it.

The true chain is computed in exact rational arithmetic from the arrays alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, Distance, exact, planning
from bisimetric.errors import NotConverged
from bisimetric.mdp import induce_chain
from bisimetric.mdp.induced_chain import _compute_averages
from tests.property_testing import scaled
from tests.rationals import solve_transport

Rows = list[dict[int, Fraction]]
EVEN: Any = [[0.5, 0.5]]


def distribution(row: NDArray[np.float64]) -> dict[int, Fraction]:
    """The positive entries of a row, divided by their exact sum."""
    masses = {i: Fraction(float(mass)) for i, mass in enumerate(row) if mass > 0}
    return {i: mass / sum(masses.values()) for i, mass in masses.items()}


def exact_chain(mdp: MDP, policy: Any) -> tuple[Rows, list[Fraction]]:
    """P^pi and R^pi as rationals."""
    P = mdp.P.toarray().reshape(mdp.num_states, mdp.num_actions, mdp.num_states)
    rows, rewards = [], []
    for s, choice in enumerate(np.asarray(policy, float)):
        row: dict[int, Fraction] = {}
        reward = Fraction(0)
        for a, weight in distribution(choice).items():
            reward += weight * Fraction(float(mdp.R[s, a]))
            for x, mass in distribution(P[s, a]).items():
                row[x] = row.get(x, Fraction(0)) + weight * mass
        rows.append(row)
        rewards.append(reward)
    return rows, rewards


def solve(system: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """The solution of a linear system, by Gauss-Jordan elimination."""
    table = [[*row, b] for row, b in zip(system, right, strict=True)]
    for i in range(len(table)):
        pivot = next(k for k in range(i, len(table)) if table[k][i])
        table[i], table[pivot] = table[pivot], table[i]
        table[i] = [x / table[i][i] for x in table[i]]
        for k, row in enumerate(table):
            if k != i and row[i]:
                table[k] = [x - row[i] * y for x, y in zip(row, table[i], strict=True)]
    return [row[-1] for row in table]


def exact_values(mdp: MDP, policy: Any) -> list[Fraction]:
    """V^pi."""
    rows, rewards = exact_chain(mdp, policy)
    n, g = len(rows), Fraction(mdp.discount)
    system = [[Fraction(s == x) - g * rows[s].get(x, 0) for x in range(n)] for s in range(n)]
    return solve(system, rewards)


def exact_mico(mdp: MDP, policy: Any) -> list[Fraction]:
    """MICo, U(s, t) at s * S + t."""
    rows, rewards = exact_chain(mdp, policy)
    n, g = len(rows), Fraction(mdp.discount)
    pairs = [(s, t) for s in range(n) for t in range(n)]
    system = [
        [
            Fraction((s, t) == (x, y)) - g * rows[s].get(x, Fraction(0)) * rows[t].get(y, 0)
            for x, y in pairs
        ]
        for s, t in pairs
    ]
    return solve(system, [abs(rewards[s] - rewards[t]) for s, t in pairs])


def exact_residual(mdp: MDP, policy: Any, d: Distance) -> Fraction:
    """The largest |F(d) - d| of d^pi on the true chain."""
    rows, rewards = exact_chain(mdp, policy)
    table = [[Fraction(float(entry)) for entry in row] for row in d.values]
    found = Fraction(0)
    for s in range(len(rows)):
        for t in range(s):
            p, q = rows[s], rows[t]
            send = {x: p[x] - q.get(x, 0) for x in p if p[x] > q.get(x, 0)}
            take = {y: q[y] - p.get(y, 0) for y in q if q[y] > p.get(y, 0)}
            image = abs(rewards[s] - rewards[t]) + Fraction(mdp.discount) * solve_transport(
                table, send, take
            )
            found = max(found, abs(image - table[s][t]))
    return found


def answer(compute: Any, *args: Any) -> Any:
    """What `compute` returns, or what it proved where that is less than was asked for."""
    try:
        return compute(*args)
    except NotConverged as failure:
        return failure.partial


SHORT = st.sampled_from([0.0, 9e-9, -9e-9, 1e-12])
"""How far a row may sum from 1."""
MASSES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 0.5, 0.9, 1.0, 1e-17, 1e-300, 5e-324])
REWARDS = st.sampled_from([0.0, 1.0, -1.0, 0.1, 1 / 3, 9e15, -1e15, 1e300, 5e-324, 1e-310])


@st.composite
def rows(draw: st.DrawFn, size: int) -> NDArray[np.float64]:
    """Probabilities, with a sum that may be off by as much as is allowed."""
    masses = np.array(draw(st.lists(MASSES, min_size=size, max_size=size)))
    if not masses.max() > 1e-10:
        masses[draw(st.integers(0, size - 1))] = 1.0
    return np.asarray(masses / masses.sum() * (1 + draw(SHORT)))


@st.composite
def problems(draw: st.DrawFn) -> tuple[MDP, NDArray[np.float64]]:
    """A small MDP with rewards that cancel and rows that are not quite normalised; a policy."""
    states, actions = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    P = np.array([draw(rows(states)) for _ in range(states * actions)])
    if draw(st.booleans()):
        P = np.eye(states)[P.argmax(axis=1)]
    R = np.array([draw(REWARDS) for _ in range(states * actions)]).reshape(states, actions)
    policy = np.array([draw(rows(actions)) for _ in range(states)])
    discount = draw(st.sampled_from([0.0, 0.5, 0.9, 0.999]))
    return MDP(P.reshape(states, actions, states), R, discount=discount), policy


@settings(max_examples=scaled(300), deadline=None)
@given(problems())
def test_chain_errors_bound_the_rounding_of_rewards_and_rows(
    problem: tuple[MDP, NDArray[np.float64]],
) -> None:
    mdp, policy = problem
    chain = induce_chain(mdp, policy)
    true_rows, true_rewards = exact_chain(mdp, policy)
    for s, (row, reward) in enumerate(zip(true_rows, true_rewards, strict=True)):
        assert abs(Fraction(float(chain.mdp.R[s, 0])) - reward) <= Fraction(chain.reward_error)
        ours = distribution(chain.mdp.P[[s]].toarray()[0])
        none = Fraction(0)
        apart = sum((abs(ours.get(x, none) - row.get(x, none)) for x in {*ours, *row}), none) / 2
        assert apart <= Fraction(chain.mass_error)


@settings(max_examples=scaled(25), deadline=None)
@given(problems())
def test_policy_values_and_mico_contain_the_true_values(
    problem: tuple[MDP, NDArray[np.float64]],
) -> None:
    mdp, policy = problem
    V = answer(planning.policy_values, mdp, policy)
    if math.isfinite(V.error):
        for ours, true in zip(V.values.tolist(), exact_values(mdp, policy), strict=True):
            assert abs(Fraction(ours) - true) <= Fraction(V.error)
    U = answer(exact.mico, mdp, policy)
    for ours, true in zip(U.values.ravel().tolist(), exact_mico(mdp, policy), strict=True):
        assert abs(Fraction(ours) - true) <= Fraction(U.error)


@settings(max_examples=scaled(60), deadline=None)
@given(problems())
def test_the_error_of_d_pi_contains_its_residual_on_the_true_chain(
    problem: tuple[MDP, NDArray[np.float64]],
) -> None:
    mdp, policy = problem
    d = answer(exact.on_policy, mdp, policy)
    R = mdp.R
    diameter = Fraction(float(R.max())) - Fraction(float(R.min()))
    if Fraction(d.error) * (1 - Fraction(mdp.discount)) < diameter:
        proven = Fraction(d.error) * (1 - Fraction(mdp.discount))
        assert exact_residual(mdp, policy, d) <= proven


def test_rewards_that_cancel_are_averaged_in_doubled_precision() -> None:
    rewards = np.array([[9e15, -1e15], [0, 0]])
    mdp = MDP.deterministic([[0, 0], [1, 1]], rewards, discount=0.9)
    policy = np.array([[0.1, 0.9], [1, 0]])
    d = exact.on_policy(mdp, policy)
    true = exact_chain(mdp, policy)[1][0] * 10
    assert abs(Fraction(d(0, 1)) - true) <= Fraction(d.error) <= Fraction(1, 10**9)
    assert d(0, 1) == pytest.approx(0.2775557561562891)


def test_rows_are_normalised_before_they_are_mixed() -> None:
    P = [[[0.5 - 9e-9, 0.5, 0], [0, 0, 1.0]], [[0, 1.0, 0]] * 2, [[0, 0, 1.0]] * 2]
    mdp = MDP(P, [[0, 0], [0, 0], [1, 1]], discount=0.9)
    d = exact.on_policy(mdp, EVEN * 3)
    assert d(0, 1) == pytest.approx(5.806451597731, abs=1e-11)
    result = exact.query(mdp, [(0, 1)], kind="on_policy", policy=EVEN * 3, tol=1e-12)
    assert result(0, 1) == pytest.approx(d(0, 1), abs=1e-11)


def test_policies_are_normalised() -> None:
    mdp = MDP.deterministic([[0, 1], [1, 0]], [[1, 2], [0, 5]], discount=0.9)
    short = np.array([[0.25, 0.75], [0.5, 0.5]]) * (1 - 9e-9)
    full = short / short.sum(axis=1, keepdims=True)
    for compute in (exact.on_policy, exact.mico):
        ours, other = compute(mdp, short), compute(mdp, full)
        assert abs(ours.values - other.values).max() <= ours.error + other.error
    V, W = planning.policy_values(mdp, short), planning.policy_values(mdp, full)
    assert abs(V.values - W.values).max() <= V.error + W.error


def test_a_policy_that_takes_one_action_for_certain_has_no_rounding() -> None:
    mdp = MDP.deterministic([[1, 0], [0, 1]], [[0.1, 7], [0.3, 2]], discount=0.9)
    chain = induce_chain(mdp, np.array([[1 - 9e-9, 0], [0, 1]]))
    assert (chain.reward_error, chain.mass_error) == (0, 0)
    assert chain.mdp.R.ravel().tolist() == [0.1, 2]
    same = induce_chain(mdp.replace(R=[[0.1, 0.1], [0.3, 0.3]]), EVEN * 2)
    assert same.reward_error == 0
    assert same.mdp.R.ravel().tolist() == [0.1, 0.3]


@settings(max_examples=scaled(300), deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            rows(n),
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n).map(
                np.array
            ),
        )
    )
)
def test_averages_are_correct_to_their_bound(
    terms: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    weights, values = terms
    average, error = _compute_averages(weights[None], values[None])
    shares = distribution(weights)
    true = sum((p * Fraction(float(values[i])) for i, p in shares.items()), Fraction(0))
    assert abs(Fraction(float(average[0])) - true) <= Fraction(error)
    # Two roundings, where nothing cancels.
    used = values[weights > 0]
    if (used >= 0).all():
        assert error <= 4 * 2.0**-53 * abs(average[0]) + 1e-28 * used.max() + 2.0**-1074


@pytest.mark.parametrize("compute", [exact.on_policy, exact.mico])
def test_rounding_of_the_rewards_is_part_of_the_error(compute: Any) -> None:
    # R^pi(0) lies next to 2^53 + 1/3, whose neighbours in float64 are 2 apart.
    rewards = np.array([[2.0**53, 2.0**53 + 2], [0, 0]])
    mdp = MDP.deterministic([[0, 0], [1, 1]], rewards, discount=0.5)
    policy = [[5 / 6, 1 / 6], [0.5, 0.5]]
    with pytest.raises(NotConverged) as failure:
        compute(mdp, policy)
    d: Any = failure.value.partial
    true = exact_chain(mdp, policy)[1][0] * 2
    assert 0 < abs(Fraction(d(0, 1)) - true) <= Fraction(d.error)


@pytest.mark.parametrize("compute", [exact.on_policy, exact.mico])
def test_no_error_is_above_the_diameter(compute: Any) -> None:
    # Neighbours in float64 are 4 apart: rounding alone would prove 2 * 2 / (1 - discount) or more.
    low, high = 2.0**54, 2.0**54 + 4
    mdp = MDP.deterministic([[1, 0], [0, 1]], [[low, high], [low, high]], discount=0.9)
    chain = induce_chain(mdp, EVEN * 2)
    assert chain.pair_error(0.0) / (1 - mdp.discount) > mdp.diameter_bound * (1 + 1e-14)
    assert compute(mdp, EVEN * 2, tol=1e9).error <= mdp.diameter_bound * (1 + 1e-14)


def test_a_singular_system_is_reported_without_a_warning() -> None:
    discount = math.nextafter(1, 0)
    P = [[[0.5, 0.5]], [[0.5, 0.5]]]
    mdp = MDP(P, [[1.0], [2.0]], discount=discount)
    V = answer(planning.policy_values, mdp, [0, 0])
    if math.isfinite(V.error):
        for ours, true in zip(V.values.tolist(), exact_values(mdp, [[1.0], [1.0]]), strict=True):
            assert abs(Fraction(ours) - true) <= Fraction(V.error)
