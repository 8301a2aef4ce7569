"""Parallel composition: bounds from the components against the metric of the composition."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, InputError, exact, worlds
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps

MODES = ("synchronous", "product", "interleaved")


def test_compositions_follow_their_definition() -> None:
    rng = np.random.default_rng(0)
    one, two = (
        MDP(rng.dirichlet(np.ones(n), (n, 2)), rng.random((n, 2)), discount=0.9) for n in (2, 3)
    )
    P1, P2 = one.P.toarray().reshape(2, 2, 2), two.P.toarray().reshape(3, 2, 3)
    for mode in MODES:
        both = worlds.compose(one, two, mode=mode)  # type: ignore[arg-type]
        P = both.P.toarray().reshape(6, -1, 6)
        for s in range(2):
            for t in range(3):
                state = 3 * s + t
                if mode == "synchronous":
                    row, reward = np.kron(P1[s, 1], P2[t, 1]), one.R[s, 1] + two.R[t, 1]
                    found = P[state, 1], both.R[state, 1]
                elif mode == "product":
                    row, reward = np.kron(P1[s, 1], P2[t, 0]), one.R[s, 1] + two.R[t, 0]
                    found = P[state, 2], both.R[state, 2]
                else:
                    row, reward = np.kron(np.eye(2)[s], P2[t, 1]), two.R[t, 1]
                    found = P[state, 3], both.R[state, 3]
                assert np.allclose(found[0], row)
                assert found[1] == pytest.approx(reward)


@st.composite
def components(draw: st.DrawFn) -> tuple[MDP, MDP]:
    discounts = [draw(st.sampled_from([0.0, 0.5, 0.9]))]
    one, two = (
        draw(stochastic_mdps(max_states=3, max_actions=2, discounts=discounts)) for _ in range(2)
    )
    actions = min(one.num_actions, two.num_actions)
    keep = [
        MDP(
            mdp.P.toarray().reshape(*mdp.R.shape, -1)[:, :actions],
            mdp.R[:, :actions],
            mdp.discount,
        )
        for mdp in (one, two)
    ]
    return keep[0], keep[1]


@settings(max_examples=scaled(40), deadline=None)
@given(components(), st.sampled_from(MODES))
def test_bounds_hold_and_tighten_to_the_metric(mdps: tuple[MDP, MDP], mode: Any) -> None:
    one, two = (exact.bisimulation(mdp) for mdp in mdps)
    bounds = exact.composition_bounds(one, two, mode=mode)
    d = exact.bisimulation(bounds.mdp)
    assert (bounds.lower <= d.values + d.error).all()
    assert (d.values - d.error <= bounds.upper).all()
    if mode == "interleaved" or two.mdp.is_deterministic:
        s = np.arange(one.mdp.num_states) * two.mdp.num_states  # the second component is state 0
        assert np.abs(d.values[np.ix_(s, s)] - one.values).max() <= 1e-5
        assert (bounds.upper - bounds.lower)[np.ix_(s, s)].max() <= 1e-5
    tight = exact.asynchronous(bounds.mdp, start=bounds, tol=1e-6).to_distance()
    assert np.abs(tight.values - d.values).max() <= tight.error + d.error


def test_differences_of_rewards_may_cancel() -> None:
    one = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    d = exact.bisimulation(one)
    bounds = exact.composition_bounds(d, d)
    # (0, 1) and (1, 0) are both paid 1.
    lower, upper = bounds.bounds(1, 2)
    assert (lower, upper) == pytest.approx((0.0, 4.0))
    assert exact.bisimulation(bounds.mdp).values[1, 2] == 0


def test_errors_of_the_components_are_added() -> None:
    mdp = MDP.deterministic([[0], [1], [2]], [[0.0], [1.0], [4.0]], discount=0.5)
    d = dataclasses.replace(exact.bisimulation(mdp), error=0.25)
    assert d.values[0].tolist() == pytest.approx([0, 2, 8])
    bounds = exact.composition_bounds(d, d)
    # (0, 0) and (2, 1): between 8 - 2 and 8 + 2, and an error of 0.25 for each.
    assert bounds.bounds(0, 7) == pytest.approx((5.5, 10.5))
    assert bounds.bounds(0, 5) == pytest.approx((5.5, 10.5))


def test_bounds_hold_in_rational_arithmetic() -> None:
    """Absorbing states are at distance |R - R'| / (1 - discount), also in the composition."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        discount = float(rng.choice([0.1, 0.9, 0.999]))
        scales = 10.0 ** rng.integers(-3, 4, size=2)
        one, two = (
            exact.bisimulation(
                MDP(np.eye(3)[:, None], rng.random((3, 1)) * scale, discount), tol=1e3
            )
            for scale in scales
        )
        bounds = exact.composition_bounds(one, two)
        rewards = [Fraction(r) for r in bounds.mdp.R[:, 0]]
        for s, t in itertools.combinations(range(9), 2):
            true = abs(rewards[s] - rewards[t]) / (1 - Fraction(discount))
            lower, upper = bounds.bounds(s, t)
            assert Fraction(lower) <= true <= Fraction(upper)


def test_starting_from_the_components_saves_updates() -> None:
    mdp = worlds.load("random", states=5, actions=2, successors=1, discount=0.9, seed=3)
    d = exact.bisimulation(mdp)
    bounds = exact.composition_bounds(d, d, mode="product")
    options: dict[str, Any] = {"tol": 1e-3, "schedule": "round_robin"}
    alone = exact.asynchronous(bounds.mdp, **options).metadata["updates"]
    helped = exact.asynchronous(bounds.mdp, start=bounds, **options).metadata["updates"]
    assert helped < alone


def test_what_cannot_be_composed_is_named() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    two_actions = MDP.deterministic([[0, 1], [1, 0]], np.zeros((2, 2)), discount=0.5)
    cases: list[tuple[MDP, dict[str, Any], str]] = [
        (two_actions, {}, "have 1 and 2 actions"),
        (mdp.replace(discount=0.9), {}, "the discounts are 0.5 and 0.9"),
        (mdp.replace(labels=["x", "y"]), {}, "labels"),
        (mdp, {"mode": "parallel"}, "mode is 'parallel'"),
        (
            two_actions.replace(available=[[True, False], [True, True]]),
            {"mode": "product"},
            "every action",
        ),
    ]
    for other, options, message in cases:
        with pytest.raises(InputError, match=message):
            worlds.compose(mdp, other, **options)
    with pytest.raises(InputError, match="a distance is lax"):
        exact.composition_bounds(exact.lax(mdp), exact.lax(mdp))
    estimate = exact.bisimulation(mdp.replace(P=np.full((2, 1, 2), 0.5)), samples=2)
    with pytest.raises(InputError, match="no proven error"):
        exact.composition_bounds(estimate, estimate)
