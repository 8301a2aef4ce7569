"""Reduced MICo against its definition and its integral form, and the laws that it obeys."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from bisimetric import MDP, InputError, NotConverged, exact, planning, uses, worlds
from tests.exact.test_mico import KEYS, LOOSE, by_linear_solve, chain_of, make_policy
from tests.property_testing import scaled
from tests.rationals import solve_mico
from tests.strategies import deterministic_mdps, stochastic_mdps


def coin() -> MDP:
    P = [[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]]
    return MDP(P, [[0], [0], [1]], discount=0.5, names=["coin", "tails", "heads"])


def reduce(U: Any) -> NDArray[Any]:
    own = np.diagonal(U)
    return np.asarray(U - (own[:, None] + own[None, :]) / 2)


def by_integrals(mdp: MDP, policy: NDArray[Any], steps: int) -> NDArray[Any]:
    """sum_k discount^k * integral (F_k(s) - F_k(t))^2, without the steps after the last."""
    P, R = chain_of(mdp, policy)
    order = np.argsort(R)
    widths = np.diff(R[order])
    total, power = np.zeros((len(R), len(R))), np.eye(len(R))
    for k in range(steps):
        F = np.cumsum(power[:, order], axis=1)[:, :-1]
        total += mdp.discount**k * np.sum(widths * (F[:, None] - F[None, :]) ** 2, axis=2)
        power = power @ P
    return total


@settings(deadline=None, max_examples=scaled(80))
@given(stochastic_mdps(available=True), KEYS)
def test_is_mico_less_the_mean_self_distance(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d = exact.reduced_mico(mdp, policy, tol=LOOSE)
    assert (d.kind, d.error <= LOOSE) == ("reduced_mico", True)
    expected = reduce(by_linear_solve(mdp, policy))
    np.testing.assert_allclose(d.values, expected, rtol=1e-11, atol=d.error + 1e-11)


@settings(deadline=None, max_examples=scaled(40))
@given(stochastic_mdps(discounts=[0.0, 0.5, 0.9]), KEYS)
def test_is_a_sum_of_squared_differences_of_distribution_functions(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d = exact.reduced_mico(mdp, policy, tol=LOOSE)
    expected = by_integrals(mdp, policy, 200)
    tail = mdp.discount**200 * mdp.diameter_bound
    np.testing.assert_allclose(d.values, expected, rtol=1e-9, atol=d.error + tail + 1e-10)


@settings(deadline=None, max_examples=scaled(80))
@given(stochastic_mdps(), KEYS)
def test_its_square_root_is_a_pseudometric(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d, U = exact.reduced_mico(mdp, policy, tol=LOOSE), exact.mico(mdp, policy, tol=LOOSE)
    assert (d.values >= 0).all()
    assert not np.diagonal(d.values).any()
    np.testing.assert_array_equal(d.values, d.values.T)
    assert (d.values <= U.values + U.error + d.error).all()
    lower, upper = (np.sqrt(np.maximum(d.values + by, 0)) for by in (-d.error, d.error))
    detour = np.min(upper[:, :, None] + upper[None, :, :], axis=1)
    assert (lower <= detour * (1 + 1e-12)).all()


@settings(deadline=None, max_examples=scaled(40))
@given(deterministic_mdps(), KEYS)
def test_is_the_on_policy_metric_of_a_deterministic_chain(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, 2 * seed)
    d, metric = exact.reduced_mico(mdp, policy, tol=LOOSE), exact.on_policy(mdp, policy, tol=LOOSE)
    np.testing.assert_allclose(d.values, metric.values, atol=d.error + metric.error, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_holds_against_rational_numbers(seed: int, dtype: Any) -> None:
    mdp = worlds.load("random", states=4, actions=1, successors=3, seed=seed, discount=0.9)
    d = exact.reduced_mico(mdp, dtype=dtype)
    U = solve_mico(mdp)
    for s in range(4):
        for t in range(4):
            true = U[s][t] - (U[s][s] + U[t][t]) / 2
            assert abs(Fraction(float(d.values[s, t])) - true) <= Fraction(d.error)


def test_does_not_bound_values() -> None:
    d, U, V = (
        exact.reduced_mico(coin()),
        exact.mico(coin()),
        planning.policy_values(coin(), [0] * 3),
    )
    gap = abs(V.values[0] - V.values[1])
    assert gap == pytest.approx(0.5)
    assert U("coin", "tails") == pytest.approx(0.5)
    assert d("coin", "tails") == pytest.approx(0.25)
    # So nothing is proven about an aggregation.
    merged = uses.aggregate(coin(), d, clusters=2)
    assert math.isinf(merged.regret_bound)
    assert math.isfinite(uses.aggregate(coin(), U, clusters=2).regret_bound)


def test_the_triangle_inequality_fails_without_the_square_root() -> None:
    """Heads, the coin and tails lie on a line: squared distances 2, 1.25 and 0.25."""
    d = exact.reduced_mico(coin())
    assert d("heads", "tails") > d("heads", "coin") + d("coin", "tails")


def test_single_precision_and_tolerances() -> None:
    mdp = worlds.load("random", states=8, actions=1, successors=2, discount=0.9)
    single, double = exact.reduced_mico(mdp, dtype="float32"), exact.reduced_mico(mdp)
    assert single.values.dtype == np.float32
    np.testing.assert_allclose(
        single.values, double.values, atol=single.error + double.error, rtol=0
    )
    with pytest.raises(NotConverged, match=r"exact.reduced_mico: float32 proves an error"):
        exact.reduced_mico(mdp, dtype="float32", tol=1e-12)
    with pytest.raises(InputError, match=r"exact.reduced_mico: tol is 0"):
        exact.reduced_mico(mdp, tol=0.0)


def test_it_has_no_steps_to_explain() -> None:
    with pytest.raises(InputError, match=r"explain exact.mico"):
        exact.reduced_mico(coin()).explain(0, 1)
