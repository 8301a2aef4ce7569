"""Exact distances of stochastic MDPs: the equation, the laws, the estimate."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from bisimetric import (
    MDP,
    Distance,
    InputError,
    InsufficientMemory,
    NotConverged,
    exact,
    planning,
    relation,
    worlds,
)
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.stochastic import game_iteration, policy_iteration
from bisimetric.exact.stochastic.policy_evaluation import PolicyEvaluation
from tests.oracles import apply_stochastic_operator, solve_by_linear_programme
from tests.property_testing import scaled
from tests.rationals import compute_residual
from tests.strategies import deterministic_mdps, stochastic_mdps

CALM = [0.0, 0.3, 0.9, 0.99]


def random_mdp(states: int, actions: int, successors: int, seed: int, discount: float = 0.9) -> MDP:
    rng = np.random.default_rng(seed)
    P = np.zeros((states * actions, states))
    for row in P:
        row[rng.choice(states, successors, replace=False)] = rng.dirichlet(np.ones(successors))
    return MDP(sparse.csr_array(P), rng.random((states, actions)), discount)


def kind_of(d: Distance) -> str:
    return "lax" if d.kind == "lax" else "bisimulation"


@pytest.mark.slow
@settings(max_examples=scaled(60), deadline=None)
@given(stochastic_mdps(max_states=4), st.sampled_from(["bisimulation", "lax"]))
def test_distances_agree_with_the_linear_programme(mdp: MDP, kind: str) -> None:
    d = getattr(exact, kind)(mdp, tol=1e-5)
    reference, own_error = solve_by_linear_programme(mdp, kind)
    assume(own_error <= 1e-3 * max(1.0, float(reference.max())))
    assert d.error <= 1e-5
    assert np.abs(d.values - reference).max() <= d.error + own_error


@settings(max_examples=scaled(100), deadline=None)
@given(stochastic_mdps(available=True), st.sampled_from(["bisimulation", "lax"]), st.data())
def test_the_error_holds_in_exact_arithmetic(mdp: MDP, kind: str, data: st.DataObject) -> None:
    scale = data.draw(st.sampled_from([1.0, 1.0, 1e-44, 1e-8, 1e8, 1e45]), label="scale")
    mdp = mdp.replace(R=mdp.R * scale)
    try:
        d = getattr(exact, kind)(mdp, tol=1e-7 * scale)
    except NotConverged as stop:  # then the bound that it carries is claimed
        d = stop.partial
    assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))


def test_the_error_holds_where_the_triangle_inequality_fails_by_rounding() -> None:
    # States 0 and 3 are bisimilar. The distances satisfy the triangle inequality up to 1e-10.
    P = np.zeros((4, 1, 4))
    P[0, 0, :2] = P[3, 0, :2] = P[1, 0, 2:] = 0.5
    P[2, 0, [1, 3]] = 0.6, 0.4
    mdp = MDP(P, np.array([[0.0], [0.0], [-1.0], [0.0]]), discount=0.3)
    d = exact.bisimulation(mdp, tol=1e-7)
    assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))
    farthest = 1 / (1 - 0.15 - 0.03 * 0.15)  # d(1, 2), and d(0, 1) is 0.15 times that
    assert abs(d(1, 2) - farthest) <= d.error + 1e-15
    assert abs(d(0, 1) - 0.15 * farthest) <= d.error + 1e-15


def test_rewards_that_float64_cannot_separate_raise() -> None:
    mdp = random_mdp(4, 1, 2, seed=0)
    with pytest.raises(InputError, match="scale the rewards down"):
        exact.bisimulation(mdp.replace(R=(mdp.R - 0.5) * 1e308 * 3))


def test_rows_that_sum_to_1_only_nearly_mean_the_same_for_values_and_distances() -> None:
    P = np.array([[[0.5, 0.5 + 9e-9]], [[0.5 - 9e-9, 0.5]]])
    mdp = MDP(P, [[1.0], [1.0]], discount=0.999)
    V = planning.optimal_values(mdp)
    assert exact.bisimulation(mdp)(0, 1) == 0.0
    assert abs(V.values[0] - V.values[1]) <= 2 * V.error
    steep = mdp.replace(discount=1 - 1e-9, R=[[1.0], [2.0]])
    assert planning.optimal_values(steep, tol=math.inf).values[1] > 0


def test_rewards_of_actions_that_states_lack_do_not_count() -> None:
    rng = np.random.default_rng(0)
    mdp = MDP(
        rng.dirichlet(np.ones(4), (4, 2)),
        1e8 + rng.random((4, 2)),
        discount=0.99,
        available=[[True, True], [True, True], [True, True], [True, False]],
    )
    assert exact.bisimulation(mdp).error <= 1e-6
    assert exact.lax(mdp).error <= 1e-6


@settings(max_examples=scaled(25), deadline=None)
@given(stochastic_mdps(max_states=4, available=True), st.sampled_from(["bisimulation", "lax"]))
def test_actions_that_a_state_lacks_agree_with_the_linear_programme(mdp: MDP, kind: str) -> None:
    d = getattr(exact, kind)(mdp, tol=1e-5)
    reference, own_error = solve_by_linear_programme(mdp, kind)
    assert np.abs(d.values - reference).max() <= d.error + own_error


@settings(max_examples=scaled(25), deadline=None)
@given(stochastic_mdps(max_states=4), st.data())
def test_on_policy_agrees_with_the_linear_programme(mdp: MDP, data: st.DataObject) -> None:
    weights = data.draw(
        st.lists(st.integers(0, 3), min_size=mdp.R.size, max_size=mdp.R.size), label="weights"
    )
    policy = np.array(weights, float).reshape(mdp.R.shape) + np.eye(mdp.num_actions)[0]
    policy /= policy.sum(axis=1, keepdims=True)
    d = exact.on_policy(mdp, policy, tol=1e-5)
    reference, own_error = solve_by_linear_programme(mdp.apply_policy(policy), "bisimulation")
    assert np.abs(d.values - reference).max() <= d.error + own_error


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_larger_tables_solve_their_equation(kind: str) -> None:
    mdp = random_mdp(12, 2, 5, seed=3)
    d = getattr(exact, kind)(mdp, tol=1e-7)
    # |F(d) - d| <= (1 + discount) |d - d*|, and a linear programme has its own tolerance.
    image = apply_stochastic_operator(mdp, d.values, kind)
    assert np.abs(image - d.values).max() <= 1.9 * d.error + 1e-9


@settings(max_examples=scaled(40), deadline=None)
@given(stochastic_mdps())
def test_laws(mdp: MDP) -> None:
    tilde, lax = exact.bisimulation(mdp, tol=1e-5), exact.lax(mdp, tol=1e-5)
    V = planning.optimal_values(mdp, tol=1e-5)
    gap = np.abs(V.values[:, None] - V.values[None, :])
    assert (gap <= lax.values + lax.error + 2 * V.error).all()
    assert (lax.values <= tilde.values + tilde.error + lax.error).all()
    for d in (tilde, lax):
        assert (d.values == d.values.T).all()
        assert (np.diagonal(d.values) == 0).all()
        through = d.values[:, :, None] + d.values[None, :, :]
        assert (d.values[:, None, :] <= through + 3 * d.error).all()


@settings(max_examples=scaled(40), deadline=None)
@given(stochastic_mdps(), st.data())
def test_on_policy_lies_between_values_and_mico(mdp: MDP, data: st.DataObject) -> None:
    policy = np.array(
        data.draw(
            st.lists(
                st.integers(0, mdp.num_actions - 1),
                min_size=mdp.num_states,
                max_size=mdp.num_states,
            )
        )
    )
    d, mico = exact.on_policy(mdp, policy, tol=1e-5), exact.mico(mdp, policy, tol=1e-5)
    V = planning.policy_values(mdp, policy, tol=1e-5)
    gap = np.abs(V.values[:, None] - V.values[None, :])
    assert (gap <= d.values + d.error + 2 * V.error).all()
    assert (d.values <= mico.values + mico.error + d.error).all()


@settings(max_examples=scaled(40), deadline=None)
@given(stochastic_mdps(available=True, discounts=CALM[1:]))
def test_zero_set_is_the_relation(mdp: MDP) -> None:
    for d, labels in (
        (exact.bisimulation(mdp, tol=1e-5), relation.bisimulation(mdp)),
        (exact.lax(mdp, tol=1e-5), relation.lax(mdp)),
    ):
        alike = labels[:, None] == labels[None, :]
        assert (d.values[alike] == 0).all()
        assert (d.values[~alike] > 0).all()


@settings(max_examples=scaled(40), deadline=None)
@given(deterministic_mdps(discounts=CALM))
def test_the_deterministic_shortcut_agrees_with_the_general_code(mdp: MDP) -> None:
    for kind in ("bisimulation", "lax"):
        d = getattr(exact, kind)(mdp)
        table = policy_iteration.solve(mdp, 1e-8 * (1 - mdp.discount), lax=kind == "lax")
        error = d.error + table.residual / (1 - mdp.discount)
        assert np.abs(table.values - d.values).max() <= error + 1e-9


@settings(max_examples=scaled(25), deadline=None)
@given(stochastic_mdps(discounts=CALM), st.randoms(use_true_random=False))
def test_relabelling_states_changes_nothing(mdp: MDP, random: Any) -> None:
    order = list(range(mdp.num_states))
    random.shuffle(order)
    rows = (np.array(order)[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    other = MDP(sparse.csr_array(mdp.P[rows][:, order]), mdp.R[order], mdp.discount)
    for kind in (exact.bisimulation, exact.lax):
        d, e = kind(mdp), kind(other)
        assert np.abs(d.values[np.ix_(order, order)] - e.values).max() <= d.error + e.error


def test_pairs_of_a_duplicated_grid_are_at_distance_zero() -> None:
    mdp = worlds.load("duplicated-grid")
    d = exact.bisimulation(mdp)
    assert mdp.names is not None
    assert not mdp.is_deterministic
    cells = {name.partition(" ")[2] for name in mdp.names}
    assert len(cells) == 31
    for cell in cells:
        assert d(f"lower {cell}", f"upper {cell}") == 0.0
    single = exact.bisimulation(worlds.load("mirrored-rooms"))
    first = [mdp.state(f"lower {name}") for name in single.mdp.names or ()]
    gap = np.abs(d.values[np.ix_(first, first)] - single.values)
    assert gap.max() <= d.error + single.error


def test_a_support_of_hundreds() -> None:
    rng = np.random.default_rng(0)
    num_stochastic, ends = 12, 250
    states = num_stochastic + ends
    P = np.eye(states)
    P[:num_stochastic] = 0.0
    P[:num_stochastic, num_stochastic:] = rng.dirichlet(np.ones(ends), num_stochastic)
    R = np.concatenate([np.zeros(num_stochastic), rng.random(ends)])
    mdp = MDP(P[:, None, :], R[:, None], discount=0.9)
    d = exact.bisimulation(mdp)
    # The ends are |R(x) - R(y)| / (1 - discount) apart, so W1 is that of distributions on a line.
    order = np.argsort(R[num_stochastic:])
    steps = np.diff(R[num_stochastic:][order])
    for s in range(num_stochastic):
        for t in range(s):
            level = np.cumsum((P[s] - P[t])[num_stochastic:][order])[:-1]
            reference = 0.9 * (np.abs(level) * steps).sum() / 0.1
            assert d(s, t) == pytest.approx(reference, abs=d.error + 1e-12)


def test_single_precision_has_the_error_of_its_rounding() -> None:
    mdp = random_mdp(12, 2, 3, seed=0)
    d, e = exact.bisimulation(mdp), exact.bisimulation(mdp, dtype="float32")
    assert e.values.dtype == np.float32
    assert np.abs(d.values - e.values).max() <= e.error
    assert 1e-8 < e.error < 1e-4
    with pytest.raises(NotConverged, match="float64") as caught:
        exact.bisimulation(mdp, tol=1e-12, dtype="float32")
    assert isinstance(caught.value.partial, Distance)
    assert caught.value.partial.error > 1e-12


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_the_number_of_threads_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = random_mdp(60, 2, 4, seed=6)
    alone = getattr(exact, kind)(mdp)
    asked = []

    def three() -> int:
        asked.append(3)
        return 3

    monkeypatch.setattr("numba.get_num_threads", three)
    assert (getattr(exact, kind)(mdp).values == alone.values).all()
    assert asked


def test_a_range_in_parts_is_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)
    parts = map_chunks(lambda low, high: list(range(low, high)), 101, min_parallel_size=25)
    assert len(parts) > 2
    assert [i for part in parts for i in part] == list(range(101))
    assert map_chunks(lambda low, high: (low, high), 99, min_parallel_size=25) == [(0, 99)]


def test_diverging_evaluations_give_way_to_value_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = random_mdp(10, 2, 3, seed=5, discount=0.7)
    reference = exact.bisimulation(mdp)

    def diverge(self: PolicyEvaluation, *_: object) -> bool:
        self.correction.fill(1e6)
        return True

    monkeypatch.setattr(PolicyEvaluation, "solve", diverge)
    table = policy_iteration.solve(mdp, 1e-8)
    assert table.details["rounds"] > 2 * game_iteration.MIN_FALLBACK_SWEEPS
    assert np.abs(table.values - reference.values).max() <= reference.error + table.residual / 0.3


def test_one_state_and_no_difference() -> None:
    one = MDP([[[1.0]]], [[3.0]], discount=0.9)
    assert exact.bisimulation(one).values.tolist() == [[0.0]]
    same = MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[1.0], [1.0]], discount=0.9)
    for kind in (exact.bisimulation, exact.lax, exact.on_policy):
        d = kind(same)
        assert d.values.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_states_that_differ_in_their_actions_are_at_the_diameter_bound() -> None:
    mdp = MDP.deterministic(
        [[0, 0], [1, 1], [2, 2]],
        [[0.0, 1.0], [0.0, 1.0], [0.0, 5.0]],
        discount=0.5,
        available=[[True, True], [True, True], [True, False]],
    )
    d = exact.bisimulation(mdp)
    assert d(0, 1) == 0.0
    assert d(0, 2) == pytest.approx(1.0 / 0.5)  # 5 is the reward of no action
    assert exact.lax(mdp)(0, 2) == pytest.approx(2.0)
    assert "largest possible" in str(d.explain(0, 2))


def test_a_matrix_too_large_for_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    free = psutil.virtual_memory()._replace(available=100 * 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    mdp = random_mdp(400, 2, 150, seed=0)
    with pytest.raises(InsufficientMemory, match="400 states need"):
        exact.bisimulation(mdp)


def test_samples_give_an_estimate() -> None:
    mdp = random_mdp(20, 2, 8, seed=2)
    reference = exact.bisimulation(mdp)
    few, again, other, many = (
        exact.bisimulation(mdp, samples=samples, seed=seed)
        for samples, seed in ((10, 1), (10, 1), (10, 2), (10_000, 1))
    )
    assert (few.values == again.values).all()
    assert not (few.values == other.values).all()
    for d in (few, many):
        off = np.abs(d.values - reference.values).max()
        assert d.error == math.inf
        assert d.estimate is not None
        assert off / 50 < d.estimate
        assert "an estimate" in repr(d)
        assert d.mdp is mdp
    assert (
        np.abs(many.values - reference.values).max()
        < np.abs(few.values - reference.values).max() / 5
    )


@settings(max_examples=scaled(20), deadline=None)
@given(deterministic_mdps(discounts=CALM))
def test_samples_of_a_deterministic_mdp_change_nothing(mdp: MDP) -> None:
    d, e = exact.bisimulation(mdp), exact.bisimulation(mdp, samples=3, seed=0)
    assert np.abs(d.values - e.values).max() <= 2 * d.error
    assert e.estimate is not None
    assert e.estimate <= 4 * d.error / (1 - mdp.discount) + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples is 0 and must be a whole number, at least 1"),
        ({"samples": 2.5}, "samples is 2.5"),
        ({"samples": 10**30}, "samples need"),
        ({"samples": 5, "seed": -1}, "seed is -1"),
        ({"tol": 0.0}, "tol is 0.0 and must be above 0"),
        ({"dtype": "int8"}, "dtype is int8"),
    ],
)
def test_invalid_requests(options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, InsufficientMemory), match=message):
        exact.bisimulation(random_mdp(5, 1, 2, seed=0), **options)


@pytest.mark.parametrize("discount", [0.0, 0.5])
def test_small_rewards_beside_huge_ones(discount: float) -> None:
    """In the unit of the largest distance the small ones are below the normal numbers."""
    unit = 2.0 ** math.frexp(1e300 / (1 - discount))[1]
    small = 3.4 * (2.0**-1074 * unit)
    assert small / unit * unit < small
    mdp = MDP(np.full((2, 2, 2), 0.5), [[1e300, 0.0], [1e300, small]], discount=discount)
    d = exact.bisimulation(mdp, tol=1e-6)
    assert abs(Fraction(d(0, 1)) - Fraction(small)) <= Fraction(d.error)
