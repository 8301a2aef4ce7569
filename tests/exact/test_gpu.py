"""Distances on a GPU, with the real kernels compiled for the CPU, which emulates a small one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import exact, worlds
from bisimetric.cli import main
from bisimetric.errors import InputError, InsufficientMemory, NotConverged
from bisimetric.exact._request import SolverResult, bound_error
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import bisimulation, cuda, on_policy, plan, workspace
from tests.emulated_cuda import COMPILER, EmulatedDevice, build_problem

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


def solve_reference(p: DeterministicProblem) -> NDArray[np.float64]:
    """Plain value iteration, until nothing changes."""
    d = np.zeros((p.num_states, p.num_states))
    while True:
        new = np.max(
            [
                abs(r[:, None] - r[None]) + p.discount * d[np.ix_(n, n)]
                for n, r in zip(p.successor, p.reward, strict=True)
            ],
            axis=0,
        )
        if abs(new - d).max() <= 1e-15 * new.max():
            return np.asarray(new)
        d = new


def off(found: SolverResult, p: DeterministicProblem) -> float:
    """Return the true error, which must be within the proven one."""
    true = solve_reference(p)
    error = float(abs(found.values - true).max())
    # Distinct rows are at least the smallest normal number apart, even if states are bisimilar.
    assert error <= bound_error(found.residual, found.largest, p.discount) + 1e-13
    np.testing.assert_array_equal(found.values, found.values.T)
    assert not found.values.diagonal().any()
    assert found.values.dtype == p.dtype
    return error


@pytest.mark.parametrize(
    "states", [1, 2, 3, *(pytest.param(each, marks=pytest.mark.slow) for each in (67, 130))]
)
@pytest.mark.parametrize("actions", [1, 2, 3])
def test_the_solution_is_the_fixed_point(states: int, actions: int) -> None:
    p = build_problem(states, actions, seed=states)
    assert off(bisimulation.solve(p, EmulatedDevice()), p) <= 1e-7


@pytest.mark.parametrize("actions", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_float32_proves_what_its_roundings_allow(actions: int) -> None:
    p = build_problem(65, actions, "float32", tolerance=1e-6)
    found = bisimulation.solve(p, EmulatedDevice())
    assert off(found, p) <= 2e-5
    assert bound_error(found.residual, found.largest, p.discount) <= 2e-5


def test_float32_is_within_one_rounding_of_the_fixed_point() -> None:
    """Evaluations in float64 get closer than sweeps, which round each product down."""
    rng, cells = np.random.default_rng(0), np.arange(40)
    row, column = np.divmod(cells, 8)
    successor = [np.maximum(row - 1, 0) * 8 + column, np.minimum(row + 1, 4) * 8 + column]
    successor += [row * 8 + np.maximum(column - 1, 0), row * 8 + np.minimum(column + 1, 7)]
    p = DeterministicProblem(
        np.array(successor, np.uint32), rng.random((4, 40)), 0.99, 5e-6, np.dtype("float32")
    )
    found = bisimulation.solve(p, EmulatedDevice())
    assert found.residual <= 1.01 * float(np.spacing(np.float32(found.largest)))


def test_a_discount_of_zero_leaves_one_step() -> None:
    p = build_problem(5, 2, discount=0.0)
    assert off(bisimulation.solve(p, EmulatedDevice()), p) == 0


@pytest.mark.slow
def test_the_result_is_independent_of_the_device_and_the_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = build_problem(67, 2)
    small, large = EmulatedDevice(), EmulatedDevice(shared_bytes=4096)
    large.num_multiprocessors = 8
    expected = bisimulation.solve(p, small).values
    np.testing.assert_array_equal(bisimulation.solve(p, large).values, expected)
    # Rows in two parts, and 32-bit state ids.
    monkeypatch.setattr(workspace, "PAIR_REGISTERS", 2)
    monkeypatch.setattr(workspace, "MAX_UINT16_STATES", 0)
    np.testing.assert_array_equal(bisimulation.solve(p, small).values, expected)
    chain = build_problem(67, 1)
    monkeypatch.undo()
    expected = on_policy.solve(chain, small).values
    monkeypatch.setattr(workspace, "MAX_UINT16_STATES", 0)
    np.testing.assert_array_equal(on_policy.solve(chain, large).values, expected)


@pytest.mark.slow
def test_evaluations_stay_below_and_save_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    p = build_problem(20, 2)
    run, true = (
        bisimulation.BisimulationIteration(workspace.GpuWorkspace(EmulatedDevice(), p)),
        solve_reference(p),
    )
    for _ in range(2):
        run.sweep()
        run.evaluate_policy()
        assert (run.d[:, :20] <= true * (1 + 1e-12)).all()
        np.testing.assert_array_equal(run.d[:, :20], run.d[:, :20].T)
    found = bisimulation.solve(p, EmulatedDevice())
    # Sweeps alone, where the steps of all pairs do not fit into memory.
    monkeypatch.setattr(bisimulation.BisimulationIteration, "can_evaluate_policy", False)
    alone = bisimulation.solve(p, EmulatedDevice())
    assert found.details["sweeps"] < alone.details["sweeps"] / 4
    assert alone.details["evaluations"] == 0
    assert off(alone, p) <= 1e-7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("actions", [1, 4])
def test_sweeps_visit_every_state_and_action_once(actions: int, seed: int) -> None:
    states = 200
    successor = np.random.default_rng(seed).integers(0, states, (actions, states))
    order, visits = plan.plan_sweep(successor)
    assert sorted(order) == list(range(states))
    for s, (rows, taken) in zip(order, visits.transpose(0, 2, 1), strict=True):
        assert sorted(taken) == list(range(actions))
        np.testing.assert_array_equal(rows, successor[taken, s])
    rows = visits[:, :, 0].ravel()
    num_reads = 1 + np.count_nonzero(np.diff(rows))
    # In the order of the ids, only chance makes neighbours share a row.
    assert num_reads < (0.85 if actions > 1 else 0.75) * successor.size


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mirror(dtype: str) -> None:
    """Every pair is copied from the row that it belongs to, in any number of tiles."""
    for states in (1, 2, 63, 64, 65, 128, 129, 200, 257, 320):
        t = workspace.GpuWorkspace(EmulatedDevice(), build_problem(states, 1, dtype))
        s, offset = np.indices((states, states // 2 + 1)).reshape(2, -1)
        matrix = t.allocate_matrix()
        expected = np.zeros((states, states), dtype)
        value = np.minimum(s, (s + offset) % states) * states + offset
        matrix[s, (s + offset) % states] = value * (offset > 0)
        expected[s, (s + offset) % states] = value * (offset > 0)
        expected[(s + offset) % states, s] = value * (offset > 0)
        t.mirror(matrix)
        np.testing.assert_array_equal(matrix[:, :states], expected)


def test_sweeps_of_some_rows() -> None:
    """A shard of the rows, against all other states, from rows in another order."""
    p, first, count = build_problem(45, 3), 11, 20
    t = workspace.GpuWorkspace(EmulatedDevice(), p)
    run = bisimulation.BisimulationIteration(t)
    for _ in range(3):
        run.sweep()
    d = run.d
    shuffled = np.random.default_rng(0).permutation(45)
    shard = plan.plan_sweep(np.argsort(shuffled)[p.successor[:, first : first + count]])
    backup = np.zeros((count, t.pitch))
    increase = np.zeros(t.device.num_multiprocessors)
    t.launch(
        "sweep", (t.device.num_multiprocessors,), t.sweep_threads, d[shuffled],
        d[first : first + count], backup, t.successor, t.reward, t.cost,
        shard.order + np.int32(first), shard.visits, *t.discounts, 45, first, count, 44,
        t.kernel_pitch, 3, t.padded_length, t.cached_columns, increase, shared_bytes=t.shared_bytes,
    )  # fmt: skip
    assert run.sweep() >= increase.max() > 0
    np.testing.assert_array_equal(backup[:, :45], run.d[first : first + count, :45])


@pytest.mark.parametrize("seed", range(5))
def test_cycle_depths(seed: int) -> None:
    states = 30
    successor = np.random.default_rng(seed).integers(0, states, states).astype(np.uint32)
    for s, steps in enumerate(on_policy.compute_cycle_depths(successor)):
        path = [s]
        while path.count(path[-1]) < 2:
            path.append(int(successor[path[-1]]))
        assert steps == path.index(path[-1])


def test_a_long_path_and_a_large_cycle() -> None:
    states = 70
    line = np.maximum(np.arange(states) - 1, 0)[None].astype(np.uint32)
    ring = ((np.arange(states) + 1) % states)[None].astype(np.uint32)
    reward = np.random.default_rng(0).random((1, states))
    for successor in (line, ring):
        p = DeterministicProblem(successor, reward, 0.9, 1e-12, np.dtype("float64"))
        found = on_policy.solve(p, EmulatedDevice())
        assert off(found, p) <= 1e-10
    assert found.details["levels"] == 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    device = EmulatedDevice()
    monkeypatch.setattr(cuda, "find_device", lambda: device)
    return device


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_the_same_distances_as_the_cpu() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    here, there = exact.bisimulation(mdp), exact.bisimulation(mdp, device="gpu")
    assert abs(here.values - there.values).max() <= here.error + there.error
    assert there.error <= 1e-6
    assert there.metadata["device"] == "emulated"
    mdp = worlds.load("mirrored-rooms-policy", discount=0.9)
    here, there = exact.on_policy(mdp), exact.on_policy(mdp, device="gpu", dtype="float32")
    assert abs(here.values - there.values).max() <= here.error + there.error
    with pytest.raises(NotConverged, match="float32 proves an error of"):
        exact.on_policy(mdp, device="gpu", dtype="float32", tol=1e-12)


@pytest.mark.usefixtures("gpu")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exact", "bisimulation", "pessimism", "--device", "gpu"]) == 0
    main(["exact", "on-policy", "pessimism", "--policy", "optimal", "--device", "gpu"])
    assert capsys.readouterr().out.count("proven") >= 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu' and must be 'cpu' or 'gpu'"),
        ({"device": "gpu", "samples": 3}, "leave samples out, or the device"),
    ],
)
def test_unsupported_options_of_a_device(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact.bisimulation(worlds.load("pessimism"), **given)


@pytest.mark.usefixtures("gpu")
def test_missing_actions() -> None:
    mdp = worlds.load("random", states=40, actions=3, discount=0.9)
    has = np.random.default_rng(0).random((40, 3)) < 0.7
    mdp = mdp.replace(available=has | (np.arange(3) == 0))
    here, there = exact.bisimulation(mdp), exact.bisimulation(mdp, device="gpu")
    np.testing.assert_allclose(there.values, here.values, rtol=0, atol=here.error + there.error)
    assert (there.values == mdp.diameter_bound).any()


@pytest.mark.usefixtures("gpu")
def test_labels() -> None:
    mdp = worlds.load("random", states=40, actions=2, discount=0.9)
    mdp = mdp.replace(labels={"x": np.random.default_rng(0).random(40) < 0.5})
    policy = np.zeros(40, int)
    here, there = exact.bisimulation(mdp), exact.bisimulation(mdp, device="gpu")
    np.testing.assert_allclose(there.values, here.values, rtol=0, atol=here.error + there.error)
    here, there = exact.on_policy(mdp, policy), exact.on_policy(mdp, policy, device="gpu")
    np.testing.assert_allclose(there.values, here.values, rtol=0, atol=here.error + there.error)


def test_insufficient_memory(gpu: EmulatedDevice) -> None:
    gpu.free_bytes = 1000.0
    with pytest.raises(InsufficientMemory, match=r"3 states need on emulated .*exact.sharded"):
        exact.bisimulation(worlds.load("pessimism"), device="gpu")


def test_no_gpu_here() -> None:
    with pytest.raises(InputError, match=r"device='gpu'.*(not installed|finds no GPU)"):
        exact.bisimulation(worlds.load("pessimism"), device="gpu")


def test_a_gpu_for_two_states_only(capsys: pytest.CaptureFixture[str]) -> None:
    main(["exact", "bisimulation", "pessimism", "--device", "gpu", "--pairs", "s", "t"])
    assert "--device gpu is for whole" in capsys.readouterr().err
