"""The exact distances against their oracles, and the laws that they obey."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, InputError, NotConverged, exact, planning, relation, worlds
from bisimetric._rounding import UNIT
from bisimetric.exact.deterministic.problem import DeterministicProblem
from tests.oracles import (
    apply_bisimulation_operator,
    apply_bisimulation_operator_vectorised,
    apply_lax_operator,
    apply_lax_operator_vectorised,
    solve_bisimulation_by_linear_programme,
    solve_lax_fixed_point,
)
from tests.property_testing import scaled
from tests.rationals import solve_deterministic
from tests.strategies import deterministic_mdps

pair_solver = importlib.import_module("bisimetric.exact.deterministic.policy_iteration")
quick = settings(deadline=None, max_examples=scaled(40))


def random_policy(mdp: MDP, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(mdp.num_actions, size=mdp.num_states)


def solve_as_large(mdp: MDP, **options: Any) -> Distance:
    """Return `exact.bisimulation` of the solver for large MDPs, however small this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_solver, "MAX_SERIAL_STATES", 0)
        d = exact.bisimulation(mdp, **options)
        assert isinstance(d, Distance)
        return d


# Against the oracles.


@pytest.mark.slow
@quick
@given(deterministic_mdps())
def test_bisimulation_solves_the_linear_programme(mdp: MDP) -> None:
    truth, slack = solve_bisimulation_by_linear_programme(mdp)
    assert slack <= 1e-7 * max(1.0, truth.max())
    for d in (exact.bisimulation(mdp), solve_as_large(mdp)):
        np.testing.assert_allclose(d.values, truth, rtol=0, atol=d.error + slack)


@pytest.mark.slow
@quick
@given(deterministic_mdps(discounts=[0.0, 0.3, 0.9], available=True))
def test_states_that_lack_actions_are_far_from_those_that_have_them(mdp: MDP) -> None:
    differ = (mdp.action_mask[:, None] != mdp.action_mask[None]).any(axis=2)
    ahead, gaps = mdp.next_state, np.abs(mdp.R[:, None] - mdp.R[None])
    truth = np.zeros(differ.shape)
    for _ in range(400):
        worth = gaps + mdp.discount * truth[ahead[:, None], ahead[None]]
        most = np.where(mdp.action_mask[:, None], worth, 0.0).max(axis=2)
        truth = np.where(differ, mdp.diameter_bound, most)
    for d in (exact.bisimulation(mdp), solve_as_large(mdp), solve_as_large(mdp, dtype="float32")):
        np.testing.assert_allclose(d.values, truth, rtol=0, atol=d.error + 1e-12)
        assert d.metadata["method"] != "policy iteration over couplings"
        if mdp.discount > 0:
            classes = relation.bisimulation(mdp)
            assert np.array_equal(d.values == 0, classes[:, None] == classes[None])


@quick
@given(deterministic_mdps(discounts=[0.0, 0.3, 0.9], available=True))
def test_a_state_with_missing_actions_matches_with_available_ones(mdp: MDP) -> None:
    ahead, truth = mdp.next_state, np.zeros((mdp.num_states,) * 2)
    gaps = np.abs(mdp.R[:, None, :, None] - mdp.R[None, :, None, :])
    mine, theirs = mdp.action_mask[:, None, :, None], mdp.action_mask[None, :, None, :]
    for _ in range(400):
        worth = gaps + mdp.discount * truth[ahead[:, None, :, None], ahead[None, :, None, :]]
        there = np.where(theirs, worth, np.inf).min(axis=3, where=mine, initial=np.inf)
        back = np.where(mine, worth, np.inf).min(axis=2, where=theirs, initial=np.inf)
        answers = [np.where(np.isfinite(each), each, 0.0).max(axis=2) for each in (there, back)]
        truth = np.maximum(*answers)
    d = exact.lax(mdp)
    np.testing.assert_allclose(d.values, truth, rtol=0, atol=d.error + 1e-12)
    assert d.metadata["method"] != "policy iteration over couplings"


@quick
@given(deterministic_mdps())
def test_bisimulation_satisfies_its_equation(mdp: MDP) -> None:
    for d in (exact.bisimulation(mdp), solve_as_large(mdp)):
        residual = np.abs(apply_bisimulation_operator(mdp, d.values) - d.values).max()
        assert residual <= d.error * (1 + mdp.discount)
        assert d.error <= 1e-6


@quick
@given(deterministic_mdps(max_actions=3))
def test_lax_solves_the_slow_iteration(mdp: MDP) -> None:
    d = exact.lax(mdp)
    np.testing.assert_allclose(d.values, solve_lax_fixed_point(mdp), rtol=0, atol=d.error + 1e-9)
    assert np.abs(apply_lax_operator(mdp, d.values) - d.values).max() <= d.error * (
        1 + mdp.discount
    )
    assert d.error <= 1e-6


@quick
@given(deterministic_mdps(), st.integers(0, 9))
def test_on_policy_is_the_bisimulation_of_the_chain(mdp: MDP, seed: int) -> None:
    policy = random_policy(mdp, seed)
    d = exact.on_policy(mdp, policy)
    truth, slack = solve_bisimulation_by_linear_programme(mdp.apply_policy(policy))
    np.testing.assert_allclose(d.values, truth, rtol=0, atol=d.error + slack)
    assert (
        np.abs(apply_bisimulation_operator(mdp.apply_policy(policy), d.values) - d.values).max()
        <= 2 * d.error
    )


@pytest.mark.parametrize(
    ("world", "options"),
    [
        ("random", {"states": 300, "seed": 3}),
        ("random", {"states": 300, "actions": 1}),
        ("open-grid", {"rows": 16, "columns": 17}),
        ("mirrored-rooms", {}),
    ],
)
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 0.999])
def test_larger_mdps_satisfy_their_equations(
    world: str, options: dict[str, int], discount: float
) -> None:
    mdp = worlds.load(world, discount=discount, **options)
    tilde = solve_as_large(mdp)
    assert tilde.error <= 1e-6
    image = apply_bisimulation_operator_vectorised(mdp, tilde.values)
    assert np.abs(image - tilde.values).max() <= tilde.error * (1 + discount)
    lax = exact.lax(mdp)
    assert lax.error <= 1e-6
    if mdp.num_states < 290:
        image = apply_lax_operator_vectorised(mdp, lax.values)
        assert np.abs(image - lax.values).max() <= lax.error * (1 + discount)
    slack = tilde.error + lax.error
    assert (lax.values <= tilde.values + slack).all()
    V = planning.optimal_values(mdp)
    gap = np.abs(V.values[:, None] - V.values[None, :])
    assert (gap <= lax.values + lax.error + 2 * V.error).all()


def make_shaped_worlds() -> dict[str, MDP]:
    """Worlds on whose shape one or the other move of the solver works badly."""
    rng = np.random.default_rng(0)
    size = 300
    s = np.arange(size)
    chain = np.minimum(s + 1, size - 1)
    ring = np.stack([(s + 1) % size, (s - 1) % size], axis=1)
    funnel = np.stack([0 * s, rng.integers(2, size=size), rng.integers(size, size=size)], axis=1)
    sticky = np.stack([s, s, s, rng.integers(size, size=size)], axis=1)
    islands = s[:, None] // 15 * 15 + rng.integers(15, size=(size, 3))
    bits = rng.integers(2, size=(size, 4)).astype(float)
    ends = (s == size - 1).astype(float)
    shapes = {
        "chain": (chain[:, None], ends[:, None]),
        "chain with a way back": (np.stack([chain, 0 * s], axis=1), np.stack([ends, ends], axis=1)),
        "ring": (ring, rng.random((size, 2))),
        "funnel": (funnel, rng.random((size, 3))),
        "sticky": (sticky, bits),
        "islands": (islands, rng.random((size, 3)) * (s[:, None] // 15)),
        "few rewards": (rng.integers(size, size=(size, 4)), bits),
    }
    return {name: MDP.deterministic(n, R, discount=0.98) for name, (n, R) in shapes.items()}


@pytest.mark.parametrize("shape", list(make_shaped_worlds()))
def test_mdps_on_which_one_solver_move_is_slow(shape: str) -> None:
    mdp = make_shaped_worlds()[shape]
    d = solve_as_large(mdp)
    assert d.error <= 1e-6
    image = apply_bisimulation_operator_vectorised(mdp, d.values)
    assert np.abs(image - d.values).max() <= d.error * (1 + mdp.discount)
    assert d.metadata.get("sweeps", 0) <= 60


def test_the_two_solvers_agree_on_an_mdp_with_many_cycles() -> None:
    n = np.random.default_rng(5).integers(150, size=(150, 3))
    R = np.random.default_rng(6).choice([0.0, 1.0], size=(150, 3))
    mdp = MDP.deterministic(n, R, discount=0.995)
    small, large = exact.bisimulation(mdp), solve_as_large(mdp)
    assert small.metadata["method"] != large.metadata["method"]
    assert np.abs(small.values - large.values).max() <= small.error + large.error


# Laws.


@quick
@given(deterministic_mdps(), st.integers(0, 9))
def test_every_distance_is_a_pseudometric(mdp: MDP, seed: int) -> None:
    policy = random_policy(mdp, seed)
    for d in (exact.bisimulation(mdp), exact.lax(mdp), exact.on_policy(mdp, policy)):
        assert (d.values >= 0).all()
        assert (d.values == d.values.T).all()
        assert (np.diagonal(d.values) == 0).all()
        detour = (d.values[:, :, None] + d.values[None, :, :]).min(axis=1)
        assert (d.values <= detour + 3 * d.error).all()


@quick
@given(deterministic_mdps(), st.integers(0, 9))
def test_distances_bound_values(mdp: MDP, seed: int) -> None:
    tilde, lax = exact.bisimulation(mdp), exact.lax(mdp)
    V = planning.optimal_values(mdp)
    gap = np.abs(V.values[:, None] - V.values[None, :])
    assert (gap <= lax.values + lax.error + 2 * V.error).all()
    assert (lax.values <= tilde.values + lax.error + tilde.error).all()
    policy = random_policy(mdp, seed)
    on_policy, V = exact.on_policy(mdp, policy), planning.policy_values(mdp, policy)
    gap = np.abs(V.values[:, None] - V.values[None, :])
    assert (gap <= on_policy.values + on_policy.error + 2 * V.error).all()


@quick
@given(deterministic_mdps(discounts=[0.3, 0.9, 0.99]), st.integers(0, 9))
def test_zero_set_is_the_relation(mdp: MDP, seed: int) -> None:
    """The exact distance is 0 for related states alone, and the computed one up to its error.

    The exact distances are rational numbers, so rewards may be arbitrarily close. Related states
    are computed as 0; states whose distance exceeds the error are not.
    """
    policy = random_policy(mdp, seed)
    tilde, lax = solve_deterministic(mdp, "bisimulation"), solve_deterministic(mdp, "lax")
    on_policy = solve_deterministic(mdp.apply_policy(policy), "bisimulation")
    for d, reference, labels in (
        (exact.bisimulation(mdp), tilde, relation.bisimulation(mdp)),
        (solve_as_large(mdp), tilde, relation.bisimulation(mdp)),
        (exact.lax(mdp), lax, relation.lax(mdp)),
        (exact.on_policy(mdp, policy), on_policy, relation.on_policy(mdp, policy)),
    ):
        related = labels[:, None] == labels[None, :]
        np.testing.assert_array_equal(np.array(reference) == 0, related)
        assert (d.values[related] == 0).all()
        exceeds_error = np.array(reference) > Fraction(d.error)
        assert (d.values[exceeds_error] > 0).all()


@quick
@given(deterministic_mdps(), st.randoms(use_true_random=False))
def test_relabelling_states_changes_nothing(mdp: MDP, random: object) -> None:
    order = np.arange(mdp.num_states)
    random.shuffle(order)  # type: ignore[attr-defined]
    place = np.argsort(order)
    moved = MDP.deterministic(place[mdp.next_state[order]], mdp.R[order], discount=mdp.discount)
    for kind in (exact.bisimulation, exact.lax):
        d, e = kind(mdp), kind(moved)
        np.testing.assert_allclose(
            e.values, d.values[np.ix_(order, order)], rtol=0, atol=d.error + e.error
        )


@quick
@given(deterministic_mdps())
def test_scaling_rewards_scales_distances(mdp: MDP) -> None:
    d = exact.bisimulation(mdp)
    scaled = 4.0 * mdp.R + 1.0
    e = exact.bisimulation(mdp.replace(R=scaled), tol=4e-6)
    rounded = 2 * UNIT * np.abs(scaled).max() / (1 - mdp.discount)
    np.testing.assert_allclose(e.values, 4 * d.values, rtol=0, atol=4 * d.error + e.error + rounded)


# The paper's examples.


def test_pessimism_example() -> None:
    mdp = worlds.load("pessimism", discount=0.9)
    V = planning.optimal_values(mdp).values
    assert V[:2] == pytest.approx([10, 10])
    d = exact.bisimulation(mdp)
    assert d("s", "t") == pytest.approx(10, abs=d.error)
    assert exact.lax(mdp)("s", "t") == 0.0
    assert exact.on_policy(mdp, planning.greedy_policy(mdp))("s", "t") == 0.0


def test_mirrored_rooms_have_the_distances_of_the_paper() -> None:
    d = exact.bisimulation(worlds.load("mirrored-rooms"))
    assert d.values.max() == pytest.approx(150.25, abs=0.005)


def test_own_policy_is_the_default() -> None:
    mdp = worlds.load("mirrored-rooms-policy")
    assert mdp.policy is not None
    d, e = exact.on_policy(mdp), exact.on_policy(mdp, mdp.policy)
    np.testing.assert_array_equal(d.values, e.values)
    with pytest.raises(InputError, match="comes with no policy"):
        exact.on_policy(worlds.load("pessimism"))


# Numbers.


@pytest.mark.parametrize("world", ["mirrored-rooms", "random"])
@pytest.mark.parametrize("kind", ["bisimulation", "lax", "on_policy"])
def test_float32_proves_its_rounding(world: str, kind: str) -> None:
    mdp = worlds.load(world, **({"states": 300} if world == "random" else {}))
    mdp = mdp.replace(policy=random_policy(mdp, 1))
    double = getattr(exact, kind)(mdp)
    single = getattr(exact, kind)(mdp, dtype="float32")
    assert single.values.dtype == np.float32
    assert np.abs(single.values - double.values).max() <= single.error + double.error
    assert 1e-6 < single.error < 0.02
    with pytest.raises(NotConverged, match="float64") as caught:
        getattr(exact, kind)(mdp, dtype="float32", tol=1e-9)
    assert isinstance(caught.value.partial, Distance)
    assert caught.value.partial.error > 1e-9


def test_tol_below_rounding_raises_with_the_true_bound() -> None:
    mdp = worlds.load("mirrored-rooms")
    for kind in (exact.bisimulation, exact.lax):
        with pytest.raises(NotConverged, match="tol=1e-15") as caught:
            kind(mdp, tol=1e-15)
        assert 1e-15 < caught.value.partial.error < 1e-9


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-9])
def test_tol_bounds_the_true_error(tol: float) -> None:
    mdp = worlds.load("random", states=300, discount=0.95)
    best = solve_as_large(mdp, tol=1e-10)
    d = solve_as_large(mdp, tol=tol)
    assert d.error <= tol
    assert np.abs(d.values - best.values).max() <= d.error + best.error


def test_the_quotient_is_solved_and_expanded() -> None:
    small = worlds.load("random", states=40, seed=2)
    copies = np.random.default_rng(0).integers(40, size=500)
    copies[:40] = np.arange(40)
    n = small.next_state[copies]
    big = MDP.deterministic(n, small.R[copies], discount=small.discount)
    d, e = exact.bisimulation(big), exact.bisimulation(small)
    assert d.metadata["classes"] == 40
    np.testing.assert_array_equal(d.values, e.values[np.ix_(copies, copies)])


# Bad input.


@pytest.mark.parametrize("tol", [0.0, -1.0, float("nan"), float("inf")])
def test_tol_must_be_positive(tol: float) -> None:
    with pytest.raises(InputError, match="tol"):
        exact.bisimulation(worlds.load("pessimism"), tol=tol)


def test_dtype_must_be_a_float() -> None:
    with pytest.raises(InputError, match="float64 or float32"):
        exact.lax(worlds.load("pessimism"), dtype="int32")


def test_distances_beyond_the_dtype_raise() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1e37]], discount=0.99)
    assert exact.bisimulation(mdp, tol=1e30).values.max() == pytest.approx(1e39)
    for distance in (exact.bisimulation, exact.on_policy, exact.lax):
        with pytest.raises(InputError, match="distances that float32 cannot hold; scale"):
            distance(mdp, dtype="float32")


def test_a_matrix_too_large_raises_before_it_is_allocated() -> None:
    states = 2_000_000
    n = np.zeros((states, 1), dtype=int)
    mdp = MDP.deterministic(n, np.zeros((states, 1)), discount=0.9)
    with pytest.raises(MemoryError, match=r"2,000,000 states need 29\.1 TiB"):
        exact.bisimulation(mdp)


def test_diverging_evaluations_give_way_to_value_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    lax_solver = importlib.import_module("bisimetric.exact.deterministic.lax_solver")

    def diverge(d: np.ndarray, *_: object) -> None:
        d[:] = 1e9
        np.fill_diagonal(d, 0)

    monkeypatch.setattr(lax_solver.evaluation_kernels, "evaluate_choices", diverge)
    mdp = worlds.load("random", states=12, discount=0.9)
    problem = DeterministicProblem(
        np.ascontiguousarray(mdp.next_state.T, dtype=np.uint32),
        np.ascontiguousarray(mdp.R.T),
        0.9,
        1e-10,
        np.dtype(np.float64),
    )
    solution = lax_solver.solve(problem)
    assert solution.details["evaluations"] > 1
    np.testing.assert_allclose(solution.values, solve_lax_fixed_point(mdp), rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_distances_beyond_the_largest_float_are_an_input_error(kind: str) -> None:
    # Also where states lack actions, whose distance is the diameter bound itself.
    rewards = np.array([[1e308, 0.0], [-1e308, 0.0], [0.0, 0.0]])
    for has in (None, np.array([[True, True], [True, False], [True, True]])):
        mdp = MDP.deterministic([[0, 1], [1, 1], [2, 0]], rewards, discount=0.9, available=has)
        with pytest.raises(InputError, match="scale the rewards down"):
            getattr(exact, kind)(mdp)
