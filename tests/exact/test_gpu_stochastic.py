"""Stochastic MDPs on a GPU: the real kernels, compiled for the CPU, which emulates a small one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, exact
from bisimetric.errors import InputError, InsufficientMemory, NotConverged
from bisimetric.exact._request import bound_error
from bisimetric.exact.gpu import couplings, cuda, stochastic
from bisimetric.exact.stochastic import game_iteration
from tests.emulated_cuda import COMPILER, EmulatedDevice
from tests.exact.test_rounding_terms import deviation, mdp_with_near_optimal_coupling
from tests.rationals import compute_residual

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """A GPU of few threads, whose kernels are compiled for few sizes."""
    device = EmulatedDevice()
    device.max_threads = 4
    monkeypatch.setattr(cuda, "find_device", lambda: device)
    monkeypatch.setattr(couplings, "SUPPORTS", (6, 20))
    return device


def random_mdp(
    states: int, actions: int = 3, successors: int = 4, *, discount: float = 0.9, seed: int = 0
) -> MDP:
    rng = np.random.default_rng(seed)
    P = np.zeros((states, actions, states))
    for row in P.reshape(-1, states):
        row[rng.choice(states, min(states, successors), replace=False)] = rng.dirichlet(
            np.ones(min(states, successors))
        )
    return MDP(P, rng.random((states, actions)), discount=discount)


def tied_mdp(discount: float) -> MDP:
    """Equal masses and few rewards, so that most couplings and actions are tied."""
    rng = np.random.default_rng(1)
    P = np.zeros((7, 2, 7))
    for row in P.reshape(-1, 7):
        row[rng.choice(7, 4, replace=False)] = 0.25
    return MDP(P, rng.integers(0, 2, (7, 2)).astype(float), discount=discount)


def lopsided_mdp(discount: float) -> MDP:
    """Masses of 1e-12, absorbing states, and states with equal rows."""
    P = np.zeros((6, 2, 6))
    P[0, :, [1, 2, 3]] = np.array([[1 - 2e-12, 1e-12, 1e-12]]).T
    P[1, :, [1, 4]] = np.array([[1 - 1e-12, 1e-12]]).T
    P[2, 0, [0, 4, 5]] = 1e-12, 0.5, 0.5 - 1e-12
    P[2, 1, [0, 3]] = 0.5, 0.5
    P[3] = P[2]
    P[4, :, 4] = P[5, :, 5] = 1.0
    R = np.array([[0.0, 1.0], [0.5, 0.25], [1.0, 1 / 3], [1.0, 1 / 3], [0.0, 0.1], [1e-12, 0.7]])
    return MDP(P, R, discount=discount)


def assert_agrees(there: Distance, here: Distance) -> None:
    assert abs(here.values - there.values).max() <= here.error + there.error
    np.testing.assert_array_equal(there.values, there.values.T)
    assert not there.values.diagonal().any()
    assert there.metadata["device"] == "emulated"
    assert there.metadata["method"] == "policy iteration over couplings"


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_the_same_distances_as_the_cpu(kind: str) -> None:
    mdp = random_mdp(18)
    there = getattr(exact, kind)(mdp, device="gpu")
    assert there.error <= 1e-6
    assert_agrees(there, getattr(exact, kind)(mdp))


def test_policies() -> None:
    mdp = random_mdp(14, discount=0.95)
    policy = np.random.default_rng(0).integers(0, 3, 14)
    assert_agrees(exact.on_policy(mdp, policy, device="gpu"), exact.on_policy(mdp, policy))
    mixed = np.random.default_rng(0).dirichlet(np.ones(3), 14)  # up to 12 successors
    assert_agrees(exact.on_policy(mdp, mixed, device="gpu"), exact.on_policy(mdp, mixed))


@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
@pytest.mark.parametrize("discount", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("build", [tied_mdp, lopsided_mdp])
def test_the_error_holds_in_exact_arithmetic(kind: str, discount: float, build: Any) -> None:
    mdp = build(discount)
    for options in ({}, {"tol": 1e-300}, {"dtype": "float32"}):
        try:
            d = getattr(exact, kind)(mdp, device="gpu", **options)
        except NotConverged as stop:  # then the bound that it carries is claimed
            d = stop.partial
        assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))
        assert d.error <= (1e-6 if d.values.dtype == np.float64 else 1e-4 * d.values.max())


@pytest.mark.slow
def test_discounts_next_to_1_are_evaluated_in_float64() -> None:
    mdp = random_mdp(9, 2, discount=1 - 1e-7)
    here = exact.bisimulation(mdp, normalised_tol=1e-7)
    there = exact.bisimulation(mdp, normalised_tol=1e-7, device="gpu")
    assert_agrees(there, here)
    assert there.metadata["rounds"] <= 2 * here.metadata["rounds"]
    taken = couplings.estimate_device_memory(100, 4, 5, False, mdp.discount)
    assert taken > 1.5 * couplings.estimate_device_memory(100, 4, 5, False, 0.99)


@pytest.mark.parametrize("scale", [1e-300, 1e-44, 1e45])
def test_the_error_holds_at_other_scales(scale: float) -> None:
    mdp = random_mdp(6, 2, 3)
    mdp = mdp.replace(R=mdp.R * scale)
    d = exact.bisimulation(mdp, tol=1e-7 * scale, device="gpu")
    assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))


def test_couplings_count_as_optimal_within_a_tolerance() -> None:
    mdp, reference = mdp_with_near_optimal_coupling()
    d = exact.bisimulation(mdp, device="gpu")
    off = deviation(d, 7, 8, reference)
    assert off > bound_error(0.0, float(d.values.max()), mdp.discount)
    assert off <= d.error


class HurriedDevice(EmulatedDevice):
    """A GPU whose simplex makes no pivot."""

    def compile(self, source: cuda.KernelSource, **macros: int | str) -> Any:
        return super().compile(source, **macros, MAX_PIVOTS=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bisimulation", "lax"])
def test_couplings_that_pivots_left_suboptimal_are_bounded_by_weak_duality(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, mdp = HurriedDevice(), random_mdp(7, 2)
    device.max_threads = 4
    monkeypatch.setattr(cuda, "find_device", lambda: device)
    with pytest.raises(NotConverged) as stop:
        getattr(exact, kind)(mdp, device="gpu")
    d = stop.value.partial
    assert isinstance(d, Distance)
    assert compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))
    # The couplings are not optimal: only that term makes the error hold.
    assert compute_residual(d) > 1e-3


@pytest.mark.slow
def test_the_result_is_independent_of_the_layout(gpu: EmulatedDevice) -> None:
    mdp = random_mdp(12)
    expected = exact.bisimulation(mdp, device="gpu").values
    gpu.shared_bytes = 2**16
    np.testing.assert_array_equal(exact.bisimulation(mdp, device="gpu").values, expected)


def test_missing_actions_and_labels() -> None:
    mdp = random_mdp(16, 3)
    rng = np.random.default_rng(0)
    has = rng.random((16, 3)) < 0.7
    mdp = mdp.replace(available=has | (np.arange(3) == 1), labels={"x": rng.random(16) < 0.3})
    for compute in (exact.bisimulation, exact.lax):
        there = compute(mdp, device="gpu")
        assert_agrees(there, compute(mdp))
        assert (there.values == mdp.diameter_bound).any()
    sets = mdp.replace(available=None, choice_labels=["go", "stay", "go"])
    assert_agrees(exact.bisimulation(sets, device="gpu"), exact.bisimulation(sets))


def test_one_state_and_no_difference() -> None:
    single = MDP([[[1.0]]], [[3.0]], discount=0.9)
    assert stochastic.solve(single, 1e-9, np.dtype("float64")).values.tolist() == [[0.0]]
    equal = random_mdp(8).replace(R=np.zeros((8, 3)))
    assert not exact.bisimulation(equal, device="gpu").values.any()
    # In another order of states, so that they are not merged first.
    d = stochastic.solve(equal, 1e-9, np.dtype("float32"))
    assert d.values.max() == np.finfo(np.float32).tiny
    assert d.values.dtype == np.float32


def test_safeguards_give_way_to_value_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, hold = random_mdp(8, discount=0.5), []
    true = exact.bisimulation(mdp)
    sweep = couplings.CouplingWorkspace.sweep

    def record(workspace: Any, *, hold_actions: bool = False) -> Any:
        hold.append(hold_actions)
        return sweep(workspace, hold_actions=hold_actions)

    def diverge(workspace: Any, *_: float) -> None:
        workspace._start_evaluation()
        workspace._shadow[...] = 0.25 + 0.01 * len(hold)
        workspace._add_change(workspace._shadow)

    monkeypatch.setattr(couplings.CouplingWorkspace, "sweep", record)
    monkeypatch.setattr(couplings.CouplingWorkspace, "evaluate", diverge)
    monkeypatch.setattr(game_iteration, "MAX_RESPONSES", 2)
    there = exact.bisimulation(mdp, device="gpu")
    assert abs(there.values - true.values).max() <= there.error + true.error
    assert there.error <= 1e-6
    assert True in hold


def test_breakdown_of_the_linear_solver_is_a_step_of_value_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mdp = random_mdp(8, discount=0.5)
    rounds = exact.bisimulation(mdp, device="gpu").metadata["rounds"]
    monkeypatch.setattr(couplings, "_divide", lambda *_: 0.0)
    d = exact.bisimulation(mdp, device="gpu")
    assert_agrees(d, exact.bisimulation(mdp))
    assert d.metadata["rounds"] > rounds


def test_held_actions_only_change_couplings(gpu: EmulatedDevice) -> None:
    mdp = random_mdp(10)
    workspace = build_workspace(mdp, gpu)
    largest = workspace.sweep()[1]
    choices = workspace._couplings[0].copy()
    workspace.d *= 0.5
    held = workspace.sweep(hold_actions=True)[1]
    np.testing.assert_array_equal(workspace._couplings[0], choices)
    assert 0 < held < largest


def build_workspace(mdp: MDP, device: EmulatedDevice) -> couplings.CouplingWorkspace:
    from bisimetric.exact.stochastic import policy_iteration

    states = mdp.num_states
    model = policy_iteration.build_kernel_mdp(mdp, np.arange(states), False, mdp.diameter_bound)
    initial = np.random.default_rng(0).random(states)
    return couplings.CouplingWorkspace(device, model, initial, np.dtype("float64"))


def test_an_evaluation_solves_the_linear_system(gpu: EmulatedDevice) -> None:
    workspace = build_workspace(random_mdp(10, 1, discount=0.99), gpu)
    first = workspace.sweep()[0]
    workspace.evaluate(first, 1e-9)
    choices, cells, masses = (each.copy() for each in workspace._couplings)
    # The same couplings at the new distances: what they cost is F(d), but for their tolerance.
    s, t = np.tril_indices(10, -1)
    model, width = workspace.model, couplings.round_support(workspace.model.max_support)
    pairs, d = len(s), workspace.d
    image = abs(model.reward[s, 0] - model.reward[t, 0])
    assert not choices.any()
    for edge in range(2 * width - 1):
        cell = cells[edge * pairs : (edge + 1) * pairs]
        x = model.successors[model.row_starts[s] + cell // width]
        y = model.successors[model.row_starts[t] + cell % width]
        image = image + 0.99 * masses[edge * pairs : (edge + 1) * pairs] * d[x, y]
    assert abs(image - d[s, t]).max() <= 2 * couplings.EVALUATION_TOLERANCE * first
    assert workspace.num_linear_steps > 0


def test_too_many_successors_raise() -> None:
    mdp = random_mdp(30, 1, 24)
    with pytest.raises(InputError, match=r"have 24 successors.* at most 20; leave device out"):
        exact.bisimulation(mdp, device="gpu")


def test_insufficient_memory(gpu: EmulatedDevice) -> None:
    gpu.free_bytes = 1000.0
    with pytest.raises(InsufficientMemory, match=r"exact.lax: 8 states need on emulated"):
        exact.lax(random_mdp(8), device="gpu")


def test_arrays_take_the_estimated_memory(gpu: EmulatedDevice) -> None:
    workspace = build_workspace(random_mdp(40, 4, 5), gpu)
    arrays = [each for each in vars(workspace).values() if isinstance(each, np.ndarray)]
    taken = sum(each.nbytes for each in (*arrays, *workspace._couplings))
    estimate = couplings.estimate_device_memory(40, 4, 5, False, 0.9)
    assert taken == pytest.approx(estimate, rel=0.01)
