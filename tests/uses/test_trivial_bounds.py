"""Trivial bounds against an enumeration of all policies, and the mark of vacuous bounds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, exact, planning, uses, worlds
from bisimetric.uses.certificates import diameter_bound
from bisimetric.uses.replay_policy import solve_replay
from bisimetric.uses.trivial_bounds import bound_any_regret, bound_range
from tests import exact_values
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps
from tests.uses.test_compress import steps_of
from tests.uses.test_exact_bounds import draw_mdp
from tests.uses.test_exact_bounds import largest_regret as exact_regret

MDPS = st.one_of(
    deterministic_mdps(max_states=4, max_actions=2, available=True),
    stochastic_mdps(max_states=4, max_actions=2, available=True),
)


def largest_regret(mdp: MDP, V: planning.ValueFunction) -> tuple[float, float]:
    """Return the largest regret of all deterministic policies, and its error."""
    actions = [np.flatnonzero(row) for row in mdp.action_mask]
    largest, error = -math.inf, 0.0
    for policy in itertools.product(*actions):
        values = planning.policy_values(mdp, np.array(policy), tol=math.inf)
        largest = max(largest, float((V.values - values.values).max()))
        error = max(error, values.error)
    return largest, error + V.error


@settings(deadline=None, max_examples=scaled(60))
@given(mdp=MDPS)
def test_the_trivial_bound_is_the_largest_regret_of_any_policy(mdp: MDP) -> None:
    V = planning.optimal_values(mdp, tol=math.inf)
    found, (largest, error) = bound_any_regret(mdp, V), largest_regret(mdp, V)
    assert largest - error <= found <= diameter_bound(mdp)
    assert found <= largest + 10 * error + 1e-9 * (1 + diameter_bound(mdp))


@settings(deadline=None, max_examples=scaled(40))
@given(mdp=MDPS, policy_seed=st.integers(0, 9))
def test_regret_against_a_policy(mdp: MDP, policy_seed: int) -> None:
    rng = np.random.default_rng(policy_seed)
    pi = np.array([rng.choice(np.flatnonzero(row)) for row in mdp.action_mask])
    V = planning.policy_values(mdp, pi, tol=math.inf)
    largest, error = largest_regret(mdp, V)
    assert largest - error <= bound_any_regret(mdp, V) <= diameter_bound(mdp)


@settings(deadline=None, max_examples=scaled(40))
@given(mdp=MDPS, clusters=st.integers(1, 4))
def test_aggregation(mdp: MDP, clusters: int) -> None:
    d, clusters = exact.lax(mdp), min(clusters, mdp.num_states)
    found = uses.aggregate(mdp, d, clusters=clusters)
    assert found.regret <= found.trivial_bound + found.regret_error
    assert found.trivial_bound <= found.diameter_bound
    assert found.is_vacuous == (0 < found.regret_bound >= found.trivial_bound)
    assert ("vacuous" in repr(found)) == found.is_vacuous
    unsolved = uses.aggregate(mdp, d, clusters=clusters, measure=False)
    assert unsolved.trivial_bound == found.diameter_bound
    assert not unsolved.is_vacuous or found.is_vacuous or found.regret_bound < unsolved.regret_bound
    assert uses.aggregate(mdp, d.values, clusters=clusters).is_vacuous


@settings(deadline=None, max_examples=scaled(40))
@given(source=MDPS, target=MDPS)
def test_transfer(source: MDP, target: MDP) -> None:
    source = source.replace(discount=0.9)
    target = target.replace(discount=0.9)
    found = uses.transfer(source, target)
    assert found.max_regret <= found.trivial_bound + found.regret_error
    assert found.is_vacuous == (0 < found.max_regret_bound >= found.trivial_bound)
    assert ("vacuous" in repr(found)) == ("vacuous" in str(found)) == found.is_vacuous
    better = found.better_than_random
    assert (found.policy_values.values > found.random_values.values)[better].all()


@settings(deadline=None, max_examples=scaled(40))
@given(mdp=MDPS, seed=st.integers(0, 9))
def test_compression(mdp: MDP, seed: int) -> None:
    buffer = steps_of(mdp, 12, seed)
    keep = len(np.unique(buffer.actions))
    for compute in (exact.bisimulation, exact.lax):
        found = uses.compress(buffer, compute(mdp), keep)
        assert found.value_gap is not None
        assert found.value_gap <= found.trivial_bound + found.value_gap_error
        assert found.is_vacuous == (0 < found.value_bound >= found.trivial_bound)
        assert ("vacuous" in repr(found)) == found.is_vacuous
    assert uses.compress(buffer, exact.lax(mdp).values, keep).is_vacuous
    planned = solve_replay(buffer, exact.bisimulation(mdp))
    assert (planned.regret <= planned.trivial_bound + planned.regret_error).all()
    assert planned.is_vacuous == (0 < planned.regret_bound.max() >= planned.trivial_bound)


@pytest.mark.parametrize("seed", [2, 3, 5, 20, 144])
def test_trivial_bounds_against_rational_arithmetic(seed: int) -> None:
    # Each error term is missed in one of these cases: that of V* in 3, of V_min in 20.
    mdp = draw_mdp(np.random.default_rng([seed, 7]))
    true = exact_values.optimal_values(exact_values.rational(mdp))
    V = planning.optimal_values(mdp, tol=math.inf)
    assert Fraction(bound_any_regret(mdp, V)) >= exact_regret(mdp, true)
    labels = np.zeros(mdp.num_states, np.int64)
    assert Fraction(bound_range(V.values, V.error, labels)) >= max(true) - min(true)


def test_ranges_include_the_error() -> None:
    values, labels = np.array([1.0, 4.0, 2.5, 2.5]), np.array([0, 2, 2, 0])
    assert bound_range(values, 0.0, labels) == 1.5
    assert bound_range(values, 0.25, labels) == 2.0
    assert bound_range(values, 0.0, np.zeros(4, np.int64)) == 3.0


def test_the_trivial_bound_depends_on_what_policies_can_reach() -> None:
    # The reward of 1 is paid once, so that no regret exceeds 1, although R / (1 - discount) is 10.
    mdp = worlds.grid("    g", discount=0.9)
    once = MDP.deterministic([[1, 0], [1, 1]], [[1.0, 0.0], [0.0, 0.0]], discount=0.9)
    assert bound_any_regret(once, planning.optimal_values(once)) == pytest.approx(1)
    assert diameter_bound(once) == pytest.approx(10)
    found = uses.aggregate(mdp, exact.bisimulation(mdp), clusters=1)
    assert found.trivial_bound < found.diameter_bound
    assert found.is_vacuous
    # Equal rewards: a bound of 0 is exact.
    equal = mdp.replace(R=np.ones_like(mdp.R))
    found = uses.aggregate(equal, exact.bisimulation(equal), clusters=1)
    assert found.regret_bound == 0
    assert not found.is_vacuous


def test_a_curve_counts_bounds_that_are_not_vacuous() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    pi = planning.greedy_policy(mdp)
    distances = {
        "d~": exact.bisimulation(mdp),
        "d^pi": exact.on_policy(mdp, pi),
        "plain": 1.0 - np.eye(31),
    }
    curve = uses.aggregation_curve(mdp, distances, clusters=[1, 4, 31], rule="complete")
    informative = [curve.min_informative_classes(name) for name in distances]
    assert informative == [31, 4, None]
    assert str(curve).splitlines()[-1] == (
        "fewest classes with a bound that is not vacuous: d~ 31; d^pi 4; plain none"
    )
