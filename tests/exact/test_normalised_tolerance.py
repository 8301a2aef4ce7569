"""`normalised_tol`: a proven bound on the error of (1 - discount) d, at discounts near 1."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, NotConverged, Transitions, exact, worlds
from bisimetric.exact._request import resolve_tol
from tests.rationals import (
    compute_largest_error,
    compute_residual,
    solve_deterministic,
    solve_mico,
)

NEAR_ONE = [0.999, 0.9999, 0.99999]
TOL = 1e-6
POLICY_KINDS = ("on_policy", "mico", "reduced_mico")


def deterministic_mdp(seed: int, discount: float, actions: int = 2) -> MDP:
    rng = np.random.default_rng(seed)
    successors, rewards = rng.integers(6, size=(6, actions)), rng.random((6, actions))
    return MDP.deterministic(successors, rewards, discount=discount)


def stochastic_mdp(seed: int, discount: float, actions: int = 1) -> MDP:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(4, 0.5), size=(4, actions))
    return MDP(P, rng.random((4, actions)), discount)


def compute(kind: str, mdp: MDP, **options: Any) -> Distance:
    policy = (np.zeros(mdp.num_states, int),) if kind in POLICY_KINDS else ()
    d: Distance = getattr(exact, kind)(mdp, *policy, **options)
    return d


def assert_normalised_error(d: Distance, true_error: Fraction, tol: float = TOL) -> None:
    """Assert that the true error is at most the proven one, and that at most the tolerance."""
    assert true_error <= Fraction(d.error)
    assert Fraction(d.error) * (1 - Fraction(d.mdp.discount)) <= Fraction(tol)


@pytest.mark.parametrize("discount", NEAR_ONE)
@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
@pytest.mark.parametrize("seed", range(4))
def test_deterministic_distances_against_fractions(kind: str, discount: float, seed: int) -> None:
    mdp = deterministic_mdp(seed, discount)
    truth = solve_deterministic(mdp, kind)
    d = compute(kind, mdp, normalised_tol=TOL)
    assert_normalised_error(d, compute_largest_error(d.values, truth))
    assert d.metadata["normalised_tol"] == TOL
    pairs = [(1, 0), (5, 2)]
    query = exact.query(mdp, pairs, kind=kind, normalised_tol=TOL)  # type: ignore[arg-type]
    for (s, t), value in zip(pairs, query.values.tolist(), strict=True):
        assert abs(Fraction(value) - truth[s][t]) <= Fraction(query.error)
    assert Fraction(query.error) * (1 - Fraction(discount)) <= Fraction(TOL)


@pytest.mark.parametrize("discount", NEAR_ONE)
@pytest.mark.parametrize("kind", ["bisimulation", "lax", "on_policy"])
@pytest.mark.parametrize("seed", range(3))
def test_stochastic_distances_against_their_equation_in_fractions(
    kind: str, discount: float, seed: int
) -> None:
    d = compute(kind, stochastic_mdp(seed, discount, 2), normalised_tol=TOL)
    if d.policy is not None:
        d = Distance(d.values, d.error, d.kind, d.mdp.apply_policy(d.policy), None, d.metadata)
    assert_normalised_error(d, compute_residual(d) / (1 - Fraction(discount)))


@pytest.mark.parametrize("discount", NEAR_ONE)
@pytest.mark.parametrize("seed", range(3))
def test_mico_against_fractions(discount: float, seed: int) -> None:
    mdp = stochastic_mdp(seed, discount)
    truth = solve_mico(mdp)
    d = compute("mico", mdp, normalised_tol=TOL)
    assert_normalised_error(d, compute_largest_error(d.values, truth))
    reduced = [
        [entry - (truth[s][s] + truth[t][t]) / 2 for t, entry in enumerate(row)]
        for s, row in enumerate(truth)
    ]
    d = compute("reduced_mico", mdp, normalised_tol=TOL)
    assert_normalised_error(d, compute_largest_error(d.values, reduced))


@pytest.mark.parametrize("discount", NEAR_ONE)
def test_chains_and_float32(discount: float) -> None:
    mdp = deterministic_mdp(0, discount, actions=1)
    truth = solve_deterministic(mdp, "bisimulation")
    d = compute("on_policy", mdp, normalised_tol=TOL)
    assert_normalised_error(d, compute_largest_error(d.values, truth))
    d = compute("bisimulation", mdp, normalised_tol=1e-2, dtype="float32")
    assert_normalised_error(d, compute_largest_error(d.values, truth), tol=1e-2)


@pytest.mark.parametrize("kind", ["bisimulation", "lax", "on_policy", "mico", "reduced_mico"])
def test_a_refused_tolerance_names_a_normalised_one_that_is_proven(kind: str) -> None:
    mdp = worlds.load("random", states=20, actions=2, successors=3, discount=0.99999)
    with pytest.raises(NotConverged, match=r"larger tol, or normalised_tol=.* \(1 - discount\) d"):
        compute(kind, mdp, tol=1e-9)
    try:
        compute(kind, mdp, tol=1e-7)
    except NotConverged as refused:
        found = re.search(r"normalised_tol=([^,]+),", str(refused))
        assert found is not None
        suggested = float(found[1])
        assert suggested < 1e-8
        d = compute(kind, mdp, normalised_tol=suggested)
        assert d.error * (1 - mdp.discount) <= suggested
        with pytest.raises(NotConverged, match=r"of \(1 - discount\) d, and not normalised_tol="):
            compute(kind, mdp, normalised_tol=suggested / 1_000)
    else:
        pytest.fail("1e-7 was proven, so that nothing was tested")


def test_a_normalised_tolerance_stops_earlier_than_an_absolute_one() -> None:
    mdp = worlds.load("random", states=40, actions=1, successors=4, discount=0.9999)
    absolute, normalised = exact.mico(mdp), exact.mico(mdp, normalised_tol=1e-6)
    assert normalised.metadata["sweeps"] < absolute.metadata["sweeps"]
    assert np.abs(absolute.values - normalised.values).max() <= absolute.error + normalised.error
    assert normalised.metadata["tol"] == pytest.approx(1e-2)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 1 / 3, *NEAR_ONE])
@pytest.mark.parametrize("tol", [1e-6, 0.1, 1 / 3, 7e-9])
def test_the_absolute_tolerance_never_exceeds_the_quotient(discount: float, tol: float) -> None:
    found = resolve_tol("exact.lax", None, tol, discount)
    assert found is not None
    exactly = Fraction(tol) / (1 - Fraction(discount))
    assert exactly * (1 - Fraction(1, 10**15)) < Fraction(found) <= exactly


def test_recorded_steps_take_a_normalised_tolerance() -> None:
    x = np.arange(301.0)[:, None]
    rewards = np.random.default_rng(0).random(300)
    steps = Transitions(x[:-1], np.zeros(300, int), rewards, x[1:], np.zeros(300, bool))
    options: dict[str, Any] = {"discount": 0.9, "reward_range": (0, 1)}
    d = exact.recorded(steps, normalised_tol=1e-3, **options)
    e = exact.recorded(steps, tol=1e-2, **options)
    assert d.error == e.error <= 1e-2
    with pytest.raises(NotConverged, match="normalised_tol=1e-18; pass a larger one"):
        exact.recorded(steps[:290], normalised_tol=1e-18, discount=0.1, reward_range=(0, 1))


def test_sharded_distances_take_a_normalised_tolerance() -> None:
    mdp = deterministic_mdp(1, 0.99999)
    truth = solve_deterministic(mdp, "bisimulation")
    d = exact.sharded.bisimulation(mdp, normalised_tol=TOL)
    assert_normalised_error(d, compute_largest_error(d.values, truth))


def test_invalid_arguments() -> None:
    mdp = deterministic_mdp(0, 0.9)
    with pytest.raises(InputError, match="normalised_tol bounds the same error as tol; leave one"):
        exact.bisimulation(mdp, tol=1e-6, normalised_tol=1e-6)
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match=r"normalised_tol is .* and must be above 0"):
            exact.query(mdp, [(0, 1)], normalised_tol=wrong)
