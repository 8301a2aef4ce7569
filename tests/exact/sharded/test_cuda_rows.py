"""The CUDA kernels of a sharded matrix, compiled for the CPU, on the memory of JAX's arrays."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, Distance, exact, worlds
from bisimetric.exact import sharded
from bisimetric.exact.sharded import cuda_rows, solver
from bisimetric.exact.sharded.exchange import plan_exchange
from bisimetric.exact.sharded.layout import build_layout
from tests import rationals
from tests.emulated_cuda import COMPILER, EmulatedShardDevice
from tests.exact.sharded.test_processes import start, wait_for
from tests.sharded_program import build_random_mdp

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EmulatedShardDevice:
    device = EmulatedShardDevice()
    monkeypatch.setattr(solver, "find_shard_devices", lambda group: [device])
    return device


def require_same(d: Distance, e: Distance) -> None:
    """Two distances agree within their errors."""
    np.testing.assert_allclose(d.values, e.values, rtol=0, atol=d.error + e.error)
    np.testing.assert_array_equal(d.values, d.values.T)
    assert str(d.metadata["sweep_kernel"]).startswith("CUDA")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("states", [1, 2, 3, 6, pytest.param(71, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_result_is_that_of_exact(states: int, dtype: str) -> None:
    mdp = worlds.load("random", states=states, actions=3, discount=0.9)
    d = sharded.bisimulation(mdp, dtype=dtype)
    require_same(d, exact.bisimulation(mdp))
    assert d.error <= (1e-6 if dtype == "float64" else 1e-4)
    assert states < 6 or d.metadata["policy_evaluations"] > 0


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_error_covers_the_rational_residual(dtype: str) -> None:
    """Rewards that tie, differ by 1e-12 and by 1e3, at discount 0.999."""
    rng = np.random.default_rng(1)
    reward = rng.choice([0.0, 1.0, 1.0 + 1e-12, 1e3], (7, 2))
    mdp = MDP.deterministic(rng.integers(0, 7, (7, 2)), reward, discount=0.999)
    d = sharded.bisimulation(mdp, dtype=dtype)
    assert 0 < rationals.compute_residual(d) <= Fraction(d.error) * (1 - Fraction(mdp.discount))
    true = rationals.solve_deterministic(mdp, "bisimulation")
    assert rationals.compute_largest_error(d.values, true) <= Fraction(d.error)


@pytest.mark.slow
def test_the_result_is_independent_of_the_device(
    gpu: EmulatedShardDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp = worlds.load("random", states=66, actions=2, discount=0.9)
    expected = sharded.bisimulation(mdp).values
    # A row exceeds the shared memory; several blocks per row, and 32-bit state ids.
    gpu.shared_bytes, gpu.num_multiprocessors = 528, 8
    np.testing.assert_array_equal(sharded.bisimulation(mdp).values, expected)
    monkeypatch.setattr(cuda_rows, "PAIR_REGISTERS", 2 * 4)
    monkeypatch.setattr(cuda_rows, "MAX_UINT16_STATES", 0)
    np.testing.assert_array_equal(sharded.bisimulation(mdp).values, expected)
    # Rows that are longer than shared memory.
    monkeypatch.setattr(cuda_rows, "LONG_RATIO", 0)
    np.testing.assert_array_equal(sharded.bisimulation(mdp).values, expected)


@pytest.mark.usefixtures("gpu")
def test_costs_labels_and_missing_actions() -> None:
    rng = np.random.default_rng(0)
    mdp = worlds.load("random", states=21, actions=2, discount=0.8)
    mdp = mdp.replace(
        labels={"x": rng.random(21) < 0.5}, available=(rng.random((21, 2)) < 0.7) | [True, False]
    )
    require_same(sharded.bisimulation(mdp), exact.bisimulation(mdp))
    points = rng.random(21)
    gap = abs(points[:, None] - points)
    for dtype in ("float32", "float64"):
        require_same(
            sharded.bisimulation(mdp, gap=gap, dtype=dtype), exact.bisimulation(mdp, gap=gap)
        )


def compute_sweep(mdp: MDP, d: NDArray[Any]) -> Any:
    ahead = mdp.next_state
    gaps = np.abs(mdp.R[:, None] - mdp.R[None])
    return (gaps + mdp.discount * d[ahead[:, None], ahead[None]]).max(axis=2)


@pytest.mark.usefixtures("gpu")
def test_sweeps_and_evaluations_are_lower_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = worlds.load("random", states=23, actions=2, discount=0.9)
    matrices: list[NDArray[Any]] = []

    def record(method: Any) -> Any:
        def run(self: Any, d: Any, buffer: Any, *arguments: Any) -> Any:
            matrices.append(np.array(d)[:23])
            result = method(self, d, buffer, *arguments)
            matrices.append(np.array(buffer)[:23])
            return result

        return run

    for name in ("sweep", "evaluate_policy"):
        method = getattr(cuda_rows.RowKernels, name)
        monkeypatch.setattr(cuda_rows.RowKernels, name, record(method))
    rough = sharded.bisimulation(mdp, dtype="float32", tol=5.0)
    true = exact.bisimulation(mdp)
    order = np.argsort(solver_row_index(mdp))
    bound = (true.values + true.error)[np.ix_(order, order)]
    assert rough.metadata["sweeps"] > 3
    for old, new in zip(matrices[::2], matrices[1::2], strict=True):
        assert (old <= new).all()
        assert (new <= bound).all()
    # The first sweep, from the smallest positive numbers, gives the differences of rewards.
    first = compute_sweep(mdp, np.zeros((23, 23)))[np.ix_(order, order)]
    np.testing.assert_allclose(matrices[1], first, rtol=1e-6, atol=1e-7)


def solver_row_index(mdp: MDP) -> NDArray[np.int64]:
    from bisimetric.exact._request import build_request
    from bisimetric.exact.sharded.layout import build_problem

    return build_problem(build_request("bisimulation", None, "float32"), mdp).row_index


@pytest.mark.parametrize("devices", [1, 3])
def test_every_successor_is_used_once(devices: int) -> None:
    successor = np.random.default_rng(devices).integers(0, 41, (3, 41))
    layout = build_layout(41, devices, np.dtype("float64"), block_bytes=3 * 41 * 8 * 4)
    plan = plan_exchange(successor, layout, list(range(devices)))
    for local in range(devices):
        num_rows = max(0, min(layout.rows_per_device, 41 - local * layout.rows_per_device))
        seen, opened, closed = set(), set(), set()
        for uses in cuda_rows.list_uses(plan, layout, local):
            for i, (row, stage) in enumerate(zip(uses.rows.tolist(), uses.stages, strict=True)):
                assert (row in opened) == (not stage & 1)
                assert row not in closed
                opened.add(row)
                if stage & 2:
                    closed.add(row)
                for j in range(uses.offsets[i], uses.offsets[i + 1]):
                    assert (row, int(uses.actions[j])) not in seen
                    seen.add((row, int(uses.actions[j])))
        assert len(seen) == 3 * num_rows
        assert opened == closed == set(range(num_rows))


@pytest.mark.usefixtures("gpu")
def test_a_run_resumes(tmp_path: Path) -> None:
    mdp, run = worlds.load("random", states=19, actions=2, discount=0.9), tmp_path / "run"
    sharded.bisimulation(mdp, tol=5.0, checkpoint=run, checkpoint_every=1e-9)
    d = sharded.bisimulation(mdp, checkpoint=run, resume=run)
    require_same(d, exact.bisimulation(mdp))


def test_without_cuda_the_kernel_is_that_of_xla() -> None:
    d = sharded.bisimulation(build_random_mdp())
    assert d.metadata["sweep_kernel"] == "XLA"
    assert "policy_evaluations" not in d.metadata


@pytest.mark.usefixtures("gpu")
def test_policy_evaluation_needs_memory() -> None:
    mdp, block = build_random_mdp(), 2**16
    needed = build_layout(mdp.num_states, 1, np.dtype("float64"), block_bytes=block).device_bytes
    with_steps = sharded.bisimulation(mdp, memory_limit=2 * needed, block_bytes=block)
    without = sharded.bisimulation(mdp, memory_limit=needed, block_bytes=block)
    require_same(without, with_steps)
    assert with_steps.metadata["policy_evaluations"] > 0
    assert "policy_evaluations" not in without.metadata
    assert without.metadata["cycle_evaluations"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(1, 3), (2, 2)])
def test_several_devices(
    processes: int, devices: int, gpu: EmulatedShardDevice, tmp_path: Path
) -> None:
    """Devices of one process read each other's memory; several processes only exchange rows."""
    code, said = wait_for(start(processes, "cuda", tmp_path, devices))
    assert code == 0, said
    d = Distance.load(tmp_path / "d.npz")
    alone = sharded.bisimulation(build_random_mdp(), dtype="float32")
    assert d.metadata["devices"] == processes * devices
    assert d.metadata["received_rows"] > 0
    require_same(d, alone)
    if processes == 1:
        np.testing.assert_array_equal(d.values, alone.values)
    else:
        assert d.metadata["cycle_evaluations"] > 0
