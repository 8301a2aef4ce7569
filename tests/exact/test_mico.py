"""MICo against loops and a linear solve, and the laws that it obeys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, InputError, InsufficientMemory, NotConverged, exact, planning, worlds
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

KEYS = st.integers(0, 2**16)
LOOSE = 1e-5
"""Float64 proves 1e-5 also at a discount of 0.999 and rewards up to 10."""


def make_policy(mdp: MDP, seed: int) -> NDArray[Any]:
    """Return actions for an even seed; else probabilities, some of them 0."""
    rng = np.random.default_rng(seed)
    allowed = np.ones(mdp.R.shape) if mdp.available is None else mdp.available * 1.0
    if seed % 2 == 0:
        return np.asarray((rng.random(mdp.R.shape) * allowed).argmax(axis=1))
    weights = allowed * rng.choice([0.0, 1.0, 2.0], size=mdp.R.shape) + 1e-9 * allowed
    weights[weights < 1e-6] = 0
    weights += allowed * (weights.sum(axis=1, keepdims=True) == 0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def chain_of(mdp: MDP, policy: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """P^pi, its rows divided by their sums, and R^pi."""
    chain = mdp.apply_policy(policy)
    P = chain.P.toarray()
    return P / P.sum(axis=1, keepdims=True), chain.R[:, 0]


def by_linear_solve(mdp: MDP, policy: NDArray[Any]) -> NDArray[Any]:
    """(I - discount * P x P) U = gaps, over all pairs."""
    P, R = chain_of(mdp, policy)
    gaps = np.abs(R[:, None] - R).ravel()
    system = np.eye(len(gaps)) - mdp.discount * np.kron(P, P)
    return np.linalg.solve(system, gaps).reshape(len(R), len(R))


def once(mdp: MDP, policy: NDArray[Any], U: NDArray[Any]) -> NDArray[Any]:
    """The right side of the equation, as it is written."""
    P, R = chain_of(mdp, policy)
    image, states = np.zeros_like(U), range(len(R))
    for s in states:
        for t in states:
            image[s, t] = abs(R[s] - R[t])
            for x in states:
                for y in states:
                    image[s, t] += mdp.discount * P[s, x] * P[t, y] * U[x, y]
    return image


@settings(deadline=None, max_examples=scaled(150))
@given(stochastic_mdps(available=True), KEYS)
def test_equals_the_linear_solve(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d = exact.mico(mdp, policy, tol=LOOSE)
    assert (d.kind, d.error <= LOOSE) == ("mico", True)
    np.testing.assert_allclose(
        d.values, by_linear_solve(mdp, policy), rtol=1e-11, atol=d.error + 1e-11
    )


@settings(deadline=None, max_examples=scaled(40))
@given(stochastic_mdps(), KEYS)
def test_solves_its_equation(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d = exact.mico(mdp, policy, tol=LOOSE)
    residual = np.abs(once(mdp, policy, d.values) - d.values).max()
    assert residual <= d.error * (1 + mdp.discount) + 1e-12 * d.values.max()


@settings(deadline=None, max_examples=scaled(60))
@given(stochastic_mdps(), KEYS)
def test_bounds_the_values_and_is_symmetric(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d = exact.mico(mdp, policy, tol=LOOSE)
    V = planning.policy_values(mdp, policy, tol=LOOSE)
    gaps = np.abs(V.values[:, None] - V.values)
    assert (gaps <= d.values + d.error + 2 * V.error).all()
    np.testing.assert_array_equal(d.values, d.values.T)


def meets_a_gap(P: NDArray[Any], R: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether states that move on independently from (s, t) ever meet different rewards."""
    moves = (P > 0).astype(int)
    reached = R[:, None] != R
    for _ in range(reached.size):
        reached = reached | (moves @ reached @ moves.T > 0)
    return np.asarray(reached)


@settings(deadline=None, max_examples=scaled(100))
@given(stochastic_mdps(discounts=[0.5, 0.9, 0.99]), KEYS)
def test_is_zero_without_reward_gaps(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    P, R = chain_of(mdp, policy)
    d = exact.mico(mdp, policy, tol=LOOSE)
    met = meets_a_gap(P, R)
    assert (d.values[~met] == 0).all()
    # A gap that is met with a tiny probability only may be lost in the error.
    assert (d.values[met & (by_linear_solve(mdp, policy) > d.error)] > 0).all()


@settings(deadline=None, max_examples=scaled(60))
@given(deterministic_mdps(), KEYS)
def test_is_the_on_policy_metric_of_a_deterministic_chain(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, 2 * seed)
    d, metric = exact.mico(mdp, policy, tol=LOOSE), exact.on_policy(mdp, policy, tol=LOOSE)
    np.testing.assert_allclose(d.values, metric.values, atol=d.error + metric.error, rtol=0)
    assert not np.diagonal(d.values).any()


@settings(deadline=None, max_examples=scaled(60))
@given(stochastic_mdps(), KEYS)
def test_is_at_least_the_on_policy_metric(mdp: MDP, seed: int) -> None:
    policy = make_policy(mdp, seed)
    d, metric = exact.mico(mdp, policy, tol=LOOSE), exact.on_policy(mdp, policy, tol=LOOSE)
    assert (metric.values <= d.values + d.error + metric.error).all()


def test_probabilities_are_divided_by_their_sum() -> None:
    P = np.array([[[0.5, 0.5 + 9e-9]], [[0.3, 0.7 - 9e-9]]])
    mdp = MDP(P, [[0.0], [1.0]], discount=0.999)
    d = exact.mico(mdp, tol=1e-8)
    expected = by_linear_solve(mdp, np.zeros(2, dtype=int))
    np.testing.assert_allclose(d.values, expected, rtol=0, atol=d.error)


@pytest.mark.parametrize("shape", ["walk", "scattered", "dense", "one way", "periodic"])
@pytest.mark.parametrize("discount", [0.5, 0.99])
def test_larger_chains_of_every_shape(shape: str, discount: float) -> None:
    states, rng = 40, np.random.default_rng(3)
    i = np.arange(states)
    P = np.zeros((states, states))
    if shape == "walk":
        P[i, np.maximum(i - 1, 0)] += 0.5
        P[i, np.minimum(i + 1, states - 1)] += 0.5
    elif shape == "scattered":
        for column in rng.integers(states, size=(3, states)):
            P[i, column] += 1 / 3
    elif shape == "dense":
        P = rng.dirichlet(np.ones(states), size=states)
    elif shape == "one way":
        P[i, i] += 0.1
        P[i, np.minimum(i + 1, states - 1)] += 0.9
    else:
        P[i, (i + 1) % states] = 1
    mdp = MDP(P[:, None], rng.normal(size=(states, 1)), discount=discount)
    d = exact.mico(mdp)
    expected = by_linear_solve(mdp, np.zeros(states, dtype=int))
    np.testing.assert_allclose(d.values, expected, rtol=0, atol=d.error + 1e-9)
    single = exact.mico(mdp, dtype="float32")
    assert single.values.dtype == np.float32
    np.testing.assert_allclose(single.values, expected, rtol=0, atol=single.error)


def test_a_chain_that_mixes_needs_few_steps() -> None:
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.ones(40), size=(40, 1))
    mdp = MDP(P, rng.normal(size=(40, 1)), discount=0.999)
    made = exact.mico(mdp).metadata
    assert made["doublings"] + made["sweeps"] <= 12  # 18,000 sweeps without the bounds


def test_relabelling_the_states_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(7), size=(7, 2)), rng.normal(size=(7, 2))
    order = rng.permutation(7)
    d = exact.mico(MDP(P, R, discount=0.9), np.zeros(7, dtype=int))
    moved = MDP(P[order][:, :, order], R[order], discount=0.9)
    again = exact.mico(moved, np.zeros(7, dtype=int))
    np.testing.assert_allclose(
        again.values, d.values[np.ix_(order, order)], atol=d.error + again.error
    )


def test_the_default_policy() -> None:
    own = worlds.load("mirrored-rooms-policy")
    assert own.policy is not None
    np.testing.assert_array_equal(exact.mico(own).values, exact.mico(own, own.policy).values)
    np.testing.assert_array_equal(exact.mico(own).policy, own.policy)
    only = worlds.load("random", states=9, actions=1)
    np.testing.assert_array_equal(exact.mico(only).policy, np.zeros(9))
    with pytest.raises(InputError, match=r"exact\.mico: this MDP comes with no policy; pass one"):
        exact.mico(worlds.load("mirrored-rooms"))


def test_invalid_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = worlds.load("mirrored-rooms-policy")
    with pytest.raises(InputError, match=r"exact\.mico: tol is 0 and must be above 0"):
        exact.mico(mdp, tol=0)
    with pytest.raises(InputError, match=r"exact\.mico: dtype is int64"):
        exact.mico(mdp, dtype="int64")
    with pytest.raises(InsufficientMemory, match=r"exact\.mico: 1,000,000 states need"):
        exact.mico(worlds.load("random", states=10**6, actions=1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_not_converged_holds_the_proven_bound(dtype: str) -> None:
    mdp = worlds.load("duplicated-grid", base="mirrored-rooms-policy")
    with pytest.raises(NotConverged, match=rf"{dtype} proves an error of .*larger tol") as refused:
        exact.mico(mdp, tol=1e-15, dtype=dtype)
    partial = refused.value.partial
    assert isinstance(partial, type(exact.mico(mdp)))
    expected = by_linear_solve(mdp, mdp.policy if mdp.policy is not None else np.zeros(1))
    assert np.abs(partial.values - expected).max() <= partial.error
