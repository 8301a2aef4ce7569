"""Policy iteration over couplings: its caches, linear solver, threads and memory."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, Distance, exact, worlds
from bisimetric._transport import Costs
from bisimetric.exact.stochastic import move_cache, policy_iteration
from bisimetric.exact.stochastic.policy_evaluation import EVALUATION_TOLERANCE, PolicyEvaluation
from tests.oracles import apply_stochastic_operator
from tests.property_testing import scaled
from tests.rationals import compute_residual


def adversarial_mdp(seed: int, *, discount: float, states: int = 5, actions: int = 2) -> MDP:
    """Return an MDP with tied rewards and rows, and masses of 1e-12."""
    rng = np.random.default_rng(seed)
    P = rng.integers(0, 3, (states, actions, states)).astype(float)
    P[rng.random(P.shape) < 0.2] = 1e-12
    P[..., 0] += P.sum(axis=-1) == 0
    P[1] = P[0]
    P /= P.sum(axis=-1, keepdims=True)
    return MDP(P, rng.integers(0, 3, (states, actions)) / 2, discount)


def run(kind: str, mdp: MDP) -> Distance:
    if kind == "on_policy":
        return exact.on_policy(mdp, np.full(mdp.R.shape, 1 / mdp.num_actions), normalised_tol=1e-9)
    solve = exact.lax if kind == "lax" else exact.bisimulation
    return solve(mdp, normalised_tol=1e-9)


@pytest.mark.parametrize("discount", [0.9, 0.999, 0.9999])
@pytest.mark.parametrize("kind", ["bisimulation", "lax", "on_policy"])
def test_ties_and_tiny_masses_have_the_proven_residual(kind: str, discount: float) -> None:
    """At 0.9999 vectors and masses are float64, below float32 and 16 bits."""
    for seed in range(3):
        d = run(kind, adversarial_mdp(seed, discount=discount))
        assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(discount))


def test_more_than_16_successors_solve_the_equation() -> None:
    """Two nodes of a tree no longer share a byte."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(18), (18, 1))
    mdp = MDP(P, rng.random((18, 1)), discount=0.7)
    d = exact.bisimulation(mdp, tol=1e-7)
    # |F(d) - d| <= (1 + discount) |d - d*|, and a linear programme has its own tolerance.
    image = apply_stochastic_operator(mdp, d.values, "bisimulation")
    assert np.abs(image - d.values).max() <= 1.7 * d.error + 1e-9


@pytest.mark.parametrize(
    ("kind", "states", "discount"),
    [("bisimulation", 260, 0.9), ("on_policy", 260, 0.9995), ("lax", 190, 0.9)],
)
def test_one_two_and_three_threads_give_the_same_bits(
    kind: str, states: int, discount: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums of the linear solver are over blocks of a fixed size."""
    mdp = worlds.load("random", states=states, actions=2, successors=3, discount=discount)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("numba.get_num_threads", lambda threads=threads: threads)
        found.append(run(kind, mdp))
    assert all((d.values == found[0].values).all() for d in found)
    assert len({d.error for d in found}) == 1


@settings(max_examples=scaled(300), deadline=None)
@given(st.floats(-1e5, 1e5))
def test_bounds_of_16_bits_are_rounded_up(bound: float) -> None:
    found = move_cache.decode_bound(move_cache.encode_bound(bound))
    # The rounding to float32 is in the margin.
    margin = move_cache.FLOAT32_MARGIN * abs(bound)
    assert bound <= found + margin
    if abs(bound) < move_cache.MAX_BOUND:
        assert found - bound <= 2**-10 * abs(bound) + 2**-23
    assert move_cache.decode_bound(move_cache.UNBOUNDED) == math.inf


def test_shifted_bounds_stay_bounds() -> None:
    bounds = np.linspace(-2.0, 2.0, 101)
    codes = np.array([move_cache.encode_bound(bound) for bound in bounds], np.uint16)
    codes[0] = move_cache.UNBOUNDED
    move_cache.shift_bounds(codes, 1.25, 0, len(codes))
    found = np.array([move_cache.decode_bound(code) for code in codes])
    assert found[0] == math.inf
    assert (found[1:] >= bounds[1:] + 1.25).all()
    assert (found[1:] <= bounds[1:] + 1.25 + 1e-2).all()


@pytest.mark.parametrize("lax", [False, True])
def test_a_large_drift_becomes_part_of_the_bounds(
    lax: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = worlds.load("random", states=12, actions=3, successors=3, discount=0.9)
    reference = policy_iteration.solve(mdp, 1e-8, lax=lax)
    monkeypatch.setattr(policy_iteration, "MAX_DRIFT", 0.0)
    found = policy_iteration.solve(mdp, 1e-8, lax=lax)
    error = (reference.residual + found.residual) / 0.1
    assert np.abs(found.values - reference.values).max() <= error


@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_an_evaluation_solves_its_linear_system(discount: float) -> None:
    """P is read from the couplings, and compared with the sweep that wrote them."""
    states = 7
    mdp = worlds.load("random", states=states, actions=2, successors=3, discount=discount)
    model = policy_iteration.build_kernel_mdp(mdp, np.arange(states), False, mdp.diameter_bound)
    pairs = states * (states - 1) // 2
    rng = np.random.default_rng(0)
    costs = Costs(np.append(0.0, rng.random(pairs)), np.empty(0, np.int64), states)
    iteration = policy_iteration._CouplingIteration(model, costs, 1e-6)
    residual, _ = iteration.sweep()
    evaluation, choice = iteration.evaluation, iteration.cache.choice
    system = np.empty((pairs, pairs))
    for pair in range(pairs):
        unit = np.zeros(pairs, evaluation.residual.dtype)
        unit[pair] = 1.0
        image = np.empty_like(unit)
        evaluation._multiply(choice, iteration.pairs, unit, image)
        system[:, pair] = image
    # Rows of P sum to 1 but for the common mass of two rows.
    P = (np.eye(pairs) - system) / discount
    assert P.min() >= -1e-6
    assert P.sum(axis=1).max() == pytest.approx(1.0, abs=1e-4)
    r = evaluation.residual.astype(float)
    # F(d) = gap + discount * P d, so that F(d) - d + (I - discount * P) d is the gap.
    gap = r + system @ costs.values[1:]
    s, t = np.tril_indices(states, -1)
    gaps = np.abs(mdp.R[s] - mdp.R[t])[np.arange(pairs), choice.astype(int)]
    assert np.abs(gap - gaps).max() <= 1e-4
    assert evaluation.solve(choice, iteration.pairs, residual, 1e-12)
    left = r - system @ evaluation.correction
    assert np.linalg.norm(left) <= 1.5 * EVALUATION_TOLERANCE * np.linalg.norm(r)


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_a_linear_solver_that_fails_gives_way_to_value_iteration(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = worlds.load("random", states=10, actions=2, successors=3, discount=0.9)
    reference = run(kind, mdp)

    def fail(self: PolicyEvaluation, *_: object) -> bool:
        self.residual.fill(math.nan)
        return False

    monkeypatch.setattr(PolicyEvaluation, "solve", fail)
    found = run(kind, mdp)
    assert np.abs(found.values - reference.values).max() <= found.error + reference.error


@pytest.mark.parametrize(
    ("actions", "successors", "lax", "discount"),
    [(4, 5, False, 0.9), (1, 5, False, 0.9995), (3, 4, True, 0.9), (2, 20, False, 0.9)],
)
def test_the_memory_is_what_the_estimate_says(
    actions: int, successors: int, lax: bool, discount: float
) -> None:
    mdp = worlds.load(
        "random", states=300, actions=actions, successors=successors, discount=discount
    )
    policy_iteration.solve(mdp, 1e-2, lax=lax)  # compiles
    tracemalloc.start()
    policy_iteration.solve(mdp, 1e-2, lax=lax)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    estimate = policy_iteration.estimate_memory(mdp, lax=lax)
    assert 0.8 * estimate <= peak <= 1.15 * estimate
    if (actions, successors, lax) == (4, 5, False):
        assert peak <= 6 * 8 * mdp.num_states**2
