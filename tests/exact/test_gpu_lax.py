"""d_lax on a GPU, with the real kernels compiled for the CPU, which emulates a small one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import exact, worlds
from bisimetric._rounding import TINY, UNIT
from bisimetric.cli import main
from bisimetric.errors import InputError, InsufficientMemory, NotConverged
from bisimetric.exact._request import bound_error
from bisimetric.exact.deterministic import lax_solver
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import cuda, lax, workspace
from tests.emulated_cuda import COMPILER, EmulatedDevice, build_problem

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


@pytest.mark.parametrize(
    ("states", "actions", "num_classes"),
    [
        (1, 1, 1),
        (2, 2, 1),
        (3, 1, 1),
        (33, 3, 2),
        *(pytest.param(n, 2, k, marks=pytest.mark.slow) for n, k in ((67, 1), (130, 3))),
    ],
)
def test_the_solution_is_that_of_the_cpu(states: int, actions: int, num_classes: int) -> None:
    p = build_problem(states, actions, num_classes=num_classes, seed=states)
    found, expected = lax.solve(p, EmulatedDevice()), lax_solver.solve(p)
    proven = sum(bound_error(each.residual, each.largest, p.discount) for each in (found, expected))
    assert proven <= 1e-7
    assert abs(found.values - expected.values).max() <= proven
    np.testing.assert_array_equal(found.values, found.values.T)
    assert not found.values.diagonal().any()
    different = p.classes[:, None] != p.classes
    assert (found.values[different] == p.diameter_bound).all()


def compute_exact_residual(p: DeterministicProblem, d: NDArray[np.floating]) -> Fraction:
    """Return the largest |F(d) - d| in rational numbers."""
    actions, states = p.reward.shape
    reward = [[Fraction(each) for each in row] for row in p.reward.tolist()]
    value = [[Fraction(each) for each in row] for row in d.astype(np.float64).tolist()]
    discount, residual = Fraction(p.discount), Fraction(0)
    for s in range(states):
        for t in range(states):
            delta = [
                [
                    abs(reward[a][s] - reward[b][t])
                    + discount * value[p.successor[a, s]][p.successor[b, t]]
                    for b in range(actions)
                ]
                for a in range(actions)
            ]
            columns = list(zip(*delta, strict=True))
            backup = max(*map(min, delta), *map(min, columns), Fraction(0))
            residual = max(residual, abs(backup - value[s][t]))
    return residual


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "discount"), [("ties", 0.9), ("tiny", 0.9), ("large", 0.5), ("slow", 0.999)]
)
def test_the_proven_residual_bounds_the_exact_one(
    name: str, discount: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lax, "FIRST_INTERVAL", 4)
    rng = np.random.default_rng(5)
    successor = rng.integers(0, 7, (2, 7)).astype(np.uint32)
    reward = {
        "ties": rng.integers(0, 2, (2, 7)).astype(np.float64),
        "tiny": np.asarray(rng.integers(0, 3, (2, 7)) * 1e-12, np.float64),
        "large": 1e9 + rng.random((2, 7)),
        "slow": rng.random((2, 7)),
    }[name]
    p = DeterministicProblem(successor, reward, discount, 1e-12, np.dtype(dtype))
    found = lax.solve(p, EmulatedDevice())
    allowed = Fraction(found.residual) + 4 * (Fraction(UNIT) * Fraction(found.largest))
    assert compute_exact_residual(p, found.values) <= allowed + 4 * Fraction(TINY)
    # The residual is a few units of rounding of the largest distance.
    assert found.residual <= max(1e-12, 4 * float(np.finfo(dtype).eps) * found.largest)


@pytest.mark.slow
def test_the_result_is_independent_of_the_device_and_the_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lax, "FIRST_INTERVAL", 4)
    p = build_problem(67, 2, num_classes=2, discount=0.5)
    small, large = EmulatedDevice(shared_bytes=512), EmulatedDevice()
    large.num_multiprocessors = 8
    first = lax.solve(p, small)
    assert first.details["evaluations"] > 0
    expected = first.values
    np.testing.assert_array_equal(lax.solve(p, small).values, expected)
    np.testing.assert_array_equal(lax.solve(p, large).values, expected)
    # Rows in several parts, and 32-bit state ids.
    monkeypatch.setattr(lax, "MAX_GROUPS", {8: 1})
    monkeypatch.setattr(workspace, "MAX_UINT16_STATES", 0)
    np.testing.assert_array_equal(lax.solve(p, small).values, expected)


@pytest.mark.slow
def test_evaluations_save_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    p = build_problem(30, 2, discount=0.95)
    found = lax.solve(p, EmulatedDevice())
    # Sweeps alone, where the steps of all pairs do not fit into memory.
    monkeypatch.setattr(workspace.GpuWorkspace, "can_evaluate_policy", False)
    alone = lax.solve(p, EmulatedDevice())
    assert found.details["sweeps"] < alone.details["sweeps"] / 2
    assert found.details["evaluations"] > 0 == alone.details["evaluations"]
    assert bound_error(alone.residual, alone.largest, p.discount) <= 1e-7


def test_slow_convergence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where evaluations do not help, and a million sweeps would not, the residual is reported."""
    p = build_problem(6, 2, discount=1 - 1e-9, tolerance=1e-12)
    monkeypatch.setattr(lax, "LIMIT_WINDOW", 0)
    monkeypatch.setattr(lax.LaxIteration, "evaluate_choices", lambda self: None)
    found = lax.solve(p, EmulatedDevice())
    assert 1e-12 < compute_exact_residual(p, found.values) <= found.residual * (1 + 1e-9)
    assert found.details["sweeps"] < 1000


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    device = EmulatedDevice()
    monkeypatch.setattr(cuda, "find_device", lambda: device)
    return device


@pytest.mark.usefixtures("gpu")
def test_the_same_distances_as_the_cpu() -> None:
    mdp = worlds.load("random", states=30, actions=3, discount=0.9)
    has = np.random.default_rng(0).random((30, 3)) < 0.7
    mdp = mdp.replace(
        available=has | (np.arange(3) == 0), labels={"x": np.random.default_rng(1).random(30) < 0.5}
    )
    here, there = exact.lax(mdp), exact.lax(mdp, device="gpu", dtype="float32")
    assert there.error <= 1e-4
    assert there.metadata["device"] == "emulated"
    np.testing.assert_allclose(there.values, here.values, rtol=0, atol=here.error + there.error)
    with pytest.raises(NotConverged, match="float32 proves an error of"):
        exact.lax(mdp, device="gpu", dtype="float32", tol=1e-12)


@pytest.mark.usefixtures("gpu")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exact", "lax", "pessimism", "--device", "gpu"]) == 0
    assert "proven" in capsys.readouterr().out
    main(["exact", "lax", "pessimism", "--device", "gpu", "--pairs", "s", "t"])
    assert "--device gpu is for whole" in capsys.readouterr().err


def test_input_that_a_gpu_does_not_support(gpu: EmulatedDevice) -> None:
    with pytest.raises(InputError, match="device is 'tpu' and must be 'cpu' or 'gpu'"):
        exact.lax(worlds.load("pessimism"), device="tpu")
    gpu.free_bytes = 1000.0
    with pytest.raises(InsufficientMemory, match="states need on emulated"):
        exact.lax(worlds.load("pessimism"), device="gpu")
