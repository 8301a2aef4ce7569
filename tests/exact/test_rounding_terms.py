"""The rounding and tolerance terms of proven errors: each case below fails without its term.

The reference is exact, in rationals. Where a term guards against rounding, the case makes rounding
larger than all other terms together, and says so.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, NotConverged, _transport, exact, planning, relation
from bisimetric._rounding import UNIT
from bisimetric._transport import Costs
from bisimetric.exact._request import bound_error
from bisimetric.exact.stochastic import coupling_kernels, policy_iteration
from tests.property_testing import scaled
from tests.rationals import compute_backup
from tests.rationals import solve_transport as transport_cost

TINY = 2.0**-1074
"""The smallest number above 0."""
LOST = 0.99 * 2.0**-54
"""A mass that rounding drops whenever it is added to a float64 sum between 1/2 and 1."""


def compute(solve: Callable[..., Distance], mdp: MDP, *args: Any) -> Distance:
    """The distance, or the partial one: its error is claimed as well."""
    try:
        return solve(mdp, *args)
    except NotConverged as stop:
        return cast("Distance", stop.partial)


def deviation(d: Distance, s: int, t: int, reference: Fraction) -> Fraction:
    return abs(Fraction(float(d.values[s, t])) - reference)


def mdp_with_lost_masses(masses: int, *, reward: float) -> tuple[MDP, Fraction]:
    """An MDP in which sums over the row of state -2 drop all masses but one; the mean reward.

    States 0 to `masses` pay 1, 2, 2 + 2^-30, ... and lead, as state -1 does, to an absorbing state
    that pays 0. State -2 leads to state 0 with mass 1 and to each of the others with mass `LOST`.
    Both of the last two states pay `reward`.
    """
    states = masses + 4
    P = np.zeros((states, 1, states))
    P[:, 0, masses + 1] = 1.0
    P[-2] = 0.0
    P[-2, 0, : masses + 1] = [1.0] + [LOST] * masses
    R = np.full((states, 1), reward)
    R[: masses + 1, 0] = [1.0, *(2.0 + 2.0**-30 * np.arange(masses))]
    R[masses + 1] = 0.0
    mass = [Fraction(1)] + [Fraction(LOST)] * masses
    products = [m * Fraction(float(r)) for m, r in zip(mass, R[: masses + 1, 0], strict=True)]
    mean = sum(products, Fraction(0)) / sum(mass, Fraction(0))
    return MDP(P, R, discount=0.2), mean


@pytest.mark.parametrize("solve", [exact.bisimulation, exact.lax, exact.mico])
def test_sums_over_a_row_round_once_per_term(solve: Callable[..., Distance]) -> None:
    """d(-2, -1) is the discount times the mean reward: what they lead to is at that distance."""
    mdp, mean = mdp_with_lost_masses(250, reward=1.5)
    assert relation.bisimulation(mdp).max() == mdp.num_states - 1
    d = compute(solve, mdp)
    off = deviation(d, -2, -1, Fraction(mdp.discount) * mean)
    assert off > bound_error(0.0, float(d.values.max()), mdp.discount)
    assert off <= d.error


def test_values_round_once_per_successor() -> None:
    """The fixed point of the rounded equation has residual 0, and is not the true one."""
    mdp, mean = mdp_with_lost_masses(1000, reward=0.0)
    V = np.zeros(mdp.num_states)
    for _ in range(4):
        V = planning.action_values(mdp, V)[:, 0]
    assert np.array_equal(V, planning.action_values(mdp, V)[:, 0])
    found = planning._certify_values("optimal_values", V, V, mdp, float("inf"))
    off = abs(Fraction(float(V[-2])) - Fraction(mdp.discount) * mean)
    assert off > 6 * UNIT * float(mdp.R.max() + V.max()) / (1 - mdp.discount)
    assert off <= found.error


@pytest.mark.parametrize("solve", [exact.bisimulation, exact.lax])
def test_probabilities_of_a_class_round_once_per_state(solve: Callable[..., Distance]) -> None:
    """500 copies of state 0, of mass `LOST` each, make one class with it in the quotient."""
    copies = 500
    P = np.zeros((copies + 4, 1, copies + 4))
    P[: copies + 1, 0, 0] = P[-3, 0, -3] = P[-1, 0, -3] = 1.0
    P[-2, 0, : copies + 1] = [0.5] + [LOST] * copies
    P[-2, 0, -3] = 0.5
    R = np.zeros((copies + 4, 1))
    R[: copies + 1] = 1.0
    mdp = MDP(P, R, discount=0.3)
    d = compute(solve, mdp)
    assert d.metadata["classes"] == 3
    half, lost, discount = Fraction(1, 2), copies * Fraction(LOST), Fraction(mdp.discount)
    reference = discount * (half + lost) / (1 + lost) / (1 - discount)
    off = deviation(d, -2, -1, reference)
    # Rows of the quotient have two successors; see `stochastic.policy_iteration`.
    largest = float(d.values.max())
    assert off > bound_error(mdp.discount * (4 * 2 + 8) * UNIT * largest, largest, mdp.discount)
    assert off <= d.error


@pytest.mark.parametrize("solve", [exact.bisimulation, exact.lax])
def test_two_states_of_a_class_may_both_differ_from_its_first(
    solve: Callable[..., Distance],
) -> None:
    """Both probabilities are within the relation's tolerance of the first state's, not of each
    other's, and the three states are one class: the table holds 0 for a distance above it."""
    width = 0.9 * relation.RELATION_TOL
    P = np.zeros((5, 1, 5))
    P[:3, 0, 3] = [0.5, 0.5 + width, 0.5 - width]
    P[:3, 0, 4] = 1 - P[:3, 0, 3]
    P[3, 0, 3] = P[4, 0, 4] = 1.0
    mdp = MDP(P, [[0.0], [0.0], [0.0], [0.0], [1.0]], discount=0.2)
    assert relation.bisimulation(mdp).tolist() == [0, 0, 0, 1, 2]
    d = compute(solve, mdp)
    discount = Fraction(mdp.discount)
    table = [[Fraction(0)] * 5 for _ in range(5)]
    table[3][4] = table[4][3] = 1 / (1 - discount)
    reference = compute_backup(mdp, table, 1, 0, 2, 0)
    assert d(1, 2) == 0.0
    assert reference > discount * Fraction(width) * table[3][4] / (1 - discount)
    assert reference <= d.error


def test_states_that_lack_actions_differ_even_where_all_rewards_are_equal() -> None:
    """The largest distance is 0 here, and the table holds a number above 0."""
    has = [[True, True], [True, False]]
    mdp = MDP.deterministic([[0, 0], [1, 1]], [[3, 3], [3, 3]], discount=0.5, available=has)
    d = exact.bisimulation(mdp)
    assert 0.0 < d(0, 1) <= d.error


def mdp_with_near_optimal_coupling() -> tuple[MDP, Fraction]:
    """An MDP in which the first coupling of (7, 8) costs 1, the best one 63 UNIT less; d(7, 8).

    States 1-3 and 4-6 lead to state 0; the action j puts `costs[i, j]` between 4 + i and 1 + j.
    """
    costs = np.ones((3, 3))
    costs[[0, 1, 2], [1, 2, 0]] -= 63 * UNIT
    R = np.zeros((9, 3))
    R[1:4], R[4:7], R[7:] = 0.5 - 0.5 * np.eye(3), costs, 0.5
    P = np.zeros((9, 3, 9))
    P[:7, :, 0], P[7, :, 4:7], P[8, :, 1:4] = 1.0, 1 / 3, 1 / 3
    return MDP(P, R, discount=0.3), Fraction(0.3) * Fraction(1 - 63 * UNIT)


def test_couplings_count_as_optimal_within_a_tolerance() -> None:
    """A reduced cost of 63 UNIT is no pivot."""
    mdp, reference = mdp_with_near_optimal_coupling()
    d = compute(exact.bisimulation, mdp)
    off = deviation(d, 7, 8, reference)
    largest = float(d.values.max())
    assert off > bound_error(mdp.discount * (4 * 3 + 8) * UNIT * largest, largest, mdp.discount)
    assert off <= d.error


@settings(max_examples=scaled(50), deadline=None)
@given(st.lists(st.integers(1, 64), min_size=9, max_size=9))
def test_a_coupling_that_pivots_left_suboptimal_is_bounded_by_weak_duality(
    costs: list[int],
) -> None:
    """`optimise_tree` only computes potentials here, as if its pivots had run out."""

    def potentials_only(room: Any, n: int, m: int, _: float) -> tuple[float, float, int]:
        _transport._compute_potentials(room, n, m)
        parent, potential = room.ints[_transport.PARENT], room.reals[_transport.POTENTIAL]
        outside = [
            room.cost[i * m + j] - potential[i] - potential[n + j]
            for i in range(n)
            for j in range(m)
            if parent[i] != n + j and parent[n + j] != i
        ]
        return min(outside), float(np.abs(potential[: n + m]).max()), 0

    P = np.zeros((8, 1, 8))
    P[:6, 0, :6] = np.eye(6)
    P[6, 0, :3] = P[7, 0, 3:6] = 1 / 3
    mdp = MDP(P, np.zeros((8, 1)), discount=0.5)
    table = np.zeros((8, 8))
    table[:3, 3:6] = np.array(costs).reshape(3, 3) / 64
    table += table.T
    model = policy_iteration.build_kernel_mdp(mdp, np.arange(8), False, 0.0)
    distances = np.append(0.0, table[np.tril_indices(8, -1)])
    costs_of_pairs = Costs(distances, np.empty(0, np.int64), 8)
    run = policy_iteration._CouplingIteration(model, costs_of_pairs, 1e-6)
    pair = 7 * 6 // 2 + 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_transport, "optimise_tree", potentials_only)
        compute: Any = coupling_kernels._evaluate_move
        value, doubt, is_optimal, is_new = compute.py_func(
            model, run.cache, _transport.allocate_workspace(3), costs_of_pairs, pair, 7, 6, 0, 0,
            0.0, -1.0,
        )  # fmt: skip
    third = Fraction(1, 3)
    exactly = [[Fraction(float(entry)) for entry in row] for row in table]
    best = transport_cost(exactly, dict.fromkeys((3, 4, 5), third), dict.fromkeys(range(3), third))
    assert is_optimal
    assert is_new
    # All rewards are 0 and the discount is 1/2, so the coupling costs twice its worth.
    assert 2 * Fraction(float(value)) - Fraction(float(doubt)) <= best


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_a_tolerance_below_rounding_ends(kind: str) -> None:
    """In a separate process: an endless loop in a compiled kernel cannot be interrupted."""
    code = f"""
import numpy as np
from bisimetric import MDP, NotConverged, exact
for seed in range(20):
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 8)), int(rng.integers(2, 4))
    successors, rewards = rng.integers(0, states, (states, actions)), rng.random((states, actions))
    for discount in (0.3, 0.7, 0.9, 0.99):
        try:
            exact.{kind}(MDP.deterministic(successors, rewards, discount=discount), tol=1e-300)
        except NotConverged as stop:
            assert stop.partial.error < 1e-9
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_products_of_denormal_numbers_round_by_up_to_half_of_the_smallest() -> None:
    """d(0, 1) is 3 / 0.7 of the smallest number above 0, and the table holds 4 of it."""
    mdp = MDP.deterministic([[0], [1]], [[0.0], [3 * TINY]], discount=0.3)
    d = compute(exact.bisimulation, mdp)
    off = deviation(d, 0, 1, Fraction(3 * TINY) / (1 - Fraction(0.3)))
    assert 0 < off <= d.error


SIZES = st.floats(1e-200, 1e200)


@settings(max_examples=scaled(500), deadline=None)
@given(SIZES, SIZES, st.floats(0, 1, exclude_max=True))
def test_the_error_is_rounded_up(residual: float, largest: float, discount: float) -> None:
    bound = Fraction(residual) + 4 * (Fraction(UNIT) * Fraction(largest) + Fraction(TINY))
    found = bound_error(residual, largest, discount)
    assert Fraction(found) >= bound / (1 - Fraction(discount))


@settings(max_examples=scaled(300), deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(0, 1, exclude_max=True))
def test_the_error_of_values_is_rounded_up(value: float, image: float, discount: float) -> None:
    mdp = MDP.deterministic([[0]], [[1.0]], discount=discount)
    V, Q = np.array([value]), np.array([image])
    found = planning._certify_values("optimal_values", V, Q, mdp, float("inf")).error
    bound = Fraction(abs(image - value)) + 8 * Fraction(UNIT) * Fraction(1.0 + abs(value))
    assert Fraction(found) >= bound / (1 - Fraction(discount))


def test_a_policy_is_greedy_only_if_no_other_is_better_by_more_than_tol() -> None:
    """A gain of 60 UNIT of the largest value per round trip changes no action, and adds up.

    State 0 may stay for 1, or go to state 1, which comes back and pays for both steps.
    """
    discount = 0.9999
    largest = 2 / (1 - discount)
    gain = 30 * UNIT * largest
    back = (1 + discount + gain) / discount
    R = np.array([[1.0, 0.0], [back, back]])
    mdp = MDP.deterministic([[0, 1], [0, 0]], R, discount=discount)
    unit = UNIT * largest / (1 - discount)
    exactly = Fraction(discount)
    best = exactly * Fraction(back) / (1 - exactly**2)
    loss = best - 1 / (1 - exactly)
    for tol in (2 * unit, 5 * unit, 9 * unit, 12 * unit, 20 * unit, 60 * unit):
        try:
            policy = planning.greedy_policy(mdp, tol=tol)
        except NotConverged:
            continue
        assert (loss if policy[0] == 0 else -loss) <= tol
