"""Values and policies against slow loops, for deterministic and stochastic MDPs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bisimetric import MDP, InputError, NotConverged, exact, planning, worlds
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps


@st.composite
def stochastic_mdps(draw: st.DrawFn) -> MDP:
    """The rows of a deterministic MDP, mixed with those of its states in reverse."""
    mdp = draw(deterministic_mdps(max_states=4, max_actions=2, discounts=[0.0, 0.5, 0.9]))
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    share = draw(st.sampled_from([0.25, 0.5, 1e-9]))
    return MDP((1 - share) * P + share * P[::-1], mdp.R, discount=mdp.discount)


def slow_values(mdp: MDP, sweeps: int) -> np.ndarray:
    """Value iteration, as it is written."""
    V = np.zeros(mdp.num_states)
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    for _ in range(sweeps):
        V = np.array(
            [
                max(
                    mdp.R[s, a]
                    + mdp.discount * sum(P[s, a, u] * V[u] for u in range(mdp.num_states))
                    for a in range(mdp.num_actions)
                )
                for s in range(mdp.num_states)
            ]
        )
    return V


@settings(deadline=None, max_examples=scaled(50))
@given(st.one_of(stochastic_mdps(), deterministic_mdps(4, 2, [0.0, 0.5, 0.9])))
def test_optimal_values_are_those_of_value_iteration(mdp: MDP) -> None:
    V = planning.optimal_values(mdp)
    left_out = mdp.discount**200 * np.abs(mdp.R).max() / (1 - mdp.discount)
    np.testing.assert_allclose(
        V.values, slow_values(mdp, 200), rtol=0, atol=V.error + left_out + 1e-9
    )
    assert V.error <= 1e-6


@settings(deadline=None, max_examples=scaled(50))
@given(st.one_of(stochastic_mdps(), deterministic_mdps(4, 2)))
def test_the_optimum_is_the_best_of_all_policies(mdp: MDP) -> None:
    V = planning.optimal_values(mdp)
    all_policies = itertools.product(range(mdp.num_actions), repeat=mdp.num_states)
    values = [planning.policy_values(mdp, policy) for policy in all_policies]
    best = np.max([value.values for value in values], axis=0)
    slack = V.error + max(value.error for value in values)
    np.testing.assert_allclose(V.values, best, rtol=0, atol=slack)
    own = planning.policy_values(mdp, planning.greedy_policy(mdp))
    assert (own.values >= V.values - 1e-6 - own.error - V.error).all()


@settings(deadline=None, max_examples=scaled(50))
@given(st.one_of(stochastic_mdps(), deterministic_mdps()), st.integers(0, 9))
def test_policy_values_put_back_into_their_equation(mdp: MDP, key: int) -> None:
    policy = np.random.default_rng(key).dirichlet(np.ones(mdp.num_actions), mdp.num_states)
    V = planning.policy_values(mdp, policy)
    chain = mdp.apply_policy(policy)
    image = chain.R[:, 0] + mdp.discount * chain.P.toarray() @ V.values
    assert np.abs(image - V.values).max() <= V.error * (1 + mdp.discount)


@settings(deadline=None, max_examples=scaled(50))
@given(st.one_of(stochastic_mdps(), deterministic_mdps()))
def test_action_values_put_back_into_their_equation(mdp: MDP) -> None:
    V = planning.optimal_values(mdp)
    Q = planning.action_values(mdp, V)
    assert (np.isneginf(Q) == ~mdp.action_mask).all()
    assert np.abs(Q.max(axis=1) - V.values).max() <= V.error * (1 + mdp.discount)
    for s, a in np.argwhere(mdp.action_mask):
        row = mdp.P[[s * mdp.num_actions + a]].toarray()[0]
        expected = mdp.R[s, a] + mdp.discount * row @ V.values
        assert Q[s, a] == pytest.approx(expected, abs=1e-9 * (1 + np.abs(V.values).max()))


def test_greedy_for_given_values() -> None:
    mdp = worlds.load("pessimism")
    np.testing.assert_array_equal(planning.greedy_policy(mdp, [0.0, 0.0, 100.0]), [1, 0, 0])
    V = planning.optimal_values(mdp)
    np.testing.assert_array_equal(planning.greedy_policy(mdp, V)[:2], [0, 1])
    np.testing.assert_array_equal(np.asarray(V), V.values)


def unavailable(*_: object) -> None:
    raise AssertionError("not this solver")


def test_well_connected_graphs_are_not_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisimetric.planning.linalg.splu", unavailable)
    mdp = worlds.load("random", states=6000, actions=3, successors=5)
    V = planning.optimal_values(mdp)
    assert V.error <= 1e-9
    assert np.abs(planning.action_values(mdp, V).max(axis=1) - V.values).max() <= 2 * V.error


@pytest.mark.parametrize("scale", [1.0, 1e300, 1e-300])
def test_a_long_chain_is_solved_directly(scale: float) -> None:
    states = 3000
    here = np.arange(states)
    ahead = np.minimum(here + 1, states - 1)
    P = sparse.csr_array((np.full(2 * states, 0.5), (np.tile(here, 2), np.append(here, ahead))))
    chain = MDP(P, np.append(np.zeros(states - 1), scale)[:, None], discount=0.999)
    V = planning.optimal_values(chain, tol=scale)
    assert V.error <= 1e-8 * scale
    # Of one step, half stays: V(s) = discount / (2 - discount) V(s + 1).
    ratios = V.values[-1000:-1] / V.values[-999:]
    np.testing.assert_allclose(ratios, 0.999 / 1.001, rtol=1e-6)


def test_what_float64_cannot_prove_is_reported() -> None:
    with pytest.raises(NotConverged, match="tol=1e-16") as caught:
        planning.optimal_values(worlds.load("mirrored-rooms"), tol=1e-16)
    assert isinstance(caught.value.partial, planning.ValueFunction)
    assert 1e-16 < caught.value.partial.error < 1e-10


@pytest.mark.parametrize("discount", [0.1, 0.3, 0.7])
def test_the_error_covers_sums_that_underflow(discount: float) -> None:
    # Of V = r + discount * V, float64 loses the second term: r is its smallest number.
    tiny = 2.0**-1074
    mdp = MDP.deterministic([[0], [1]], [[tiny], [0.0]], discount=discount)
    true = Fraction(tiny) / (1 - Fraction(discount))
    for V in (planning.optimal_values(mdp), planning.policy_values(mdp, [0, 0])):
        assert abs(Fraction(float(V.values[0])) - true) <= Fraction(V.error)


def test_values_that_float64_cannot_hold_are_an_input_error() -> None:
    P = [[[0.5, 0.5]], [[0, 1]]]
    mdp = MDP(P, [[1e308], [-1e308]], discount=0.5)
    for compute in (
        planning.optimal_values,
        planning.greedy_policy,
        lambda mdp: planning.policy_values(mdp, [0, 0]),
        exact.mico,
    ):
        with pytest.raises(InputError, match="scale the rewards down"):
            compute(mdp)
