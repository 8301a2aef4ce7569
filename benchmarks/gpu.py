"""Exact distances on a GPU: `python benchmarks/gpu.py [--states 60000] [--double 20000]`.

Four actions, discount 0.99, rewards uniform in [0, 1]; random successors, and those of a grid. The
effective bandwidth of a sweep of d~ counts five matrices (four read, one written), and is compared
with a copy of a matrix in the same run. The kernel reads fewer than four rows per state, because
states share those of their successors, and half of the old matrix. No two states are bisimilar
here, so that the quotient is the MDP.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from bisimetric.exact._request import SolverResult, bound_error
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import bisimulation, cuda, lax, on_policy
from bisimetric.exact.gpu.plan import plan_sweep
from bisimetric.exact.gpu.workspace import GpuWorkspace

DISCOUNT, ACTIONS = 0.99, 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def problems(
    states: int, actions: int, dtype: str, tol: float
) -> Iterator[tuple[str, DeterministicProblem]]:
    """Yield random successors, and those of a grid of about as many cells."""
    rng = np.random.default_rng(0)
    height = math.isqrt(states)
    while states % height:
        height -= 1
    row, column = np.divmod(np.arange(states), states // height)
    grid = [
        np.clip(row + y, 0, height - 1) * (states // height)
        + np.clip(column + x, 0, states // height - 1)
        for y, x in MOVES[:actions]
    ]
    rewards = rng.random((actions, states))
    residual_tolerance = tol * (1 - DISCOUNT) / 2
    for name, successor in (
        ("random", rng.integers(0, states, (actions, states))),
        (f"grid, {height} x {states // height}", np.stack(grid)),
    ):
        yield (
            name,
            DeterministicProblem(
                successor.astype(np.uint32), rewards, DISCOUNT, residual_tolerance, np.dtype(dtype)
            ),
        )


def seconds(device: cuda.GpuDevice, work: Callable[[], object], times: int) -> float:
    """Return the mean time of several calls, after a first one."""
    work()
    device.arrays.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    device.arrays.cuda.Device().synchronize()
    return (time.perf_counter() - start) / times


def measure_sweep(device: cuda.GpuDevice, name: str, problem: DeterministicProblem) -> None:
    """Measure the bandwidth of a sweep, against that of a copy."""
    workspace = GpuWorkspace(device, problem, bisimulation.order_by_predecessors(device, problem))
    run = bisimulation.BisimulationIteration(workspace)
    size = problem.num_states * workspace.pitch * problem.dtype.itemsize
    copy = 2 * size / seconds(device, lambda: device.arrays.copyto(run.backup, run.d), 5)
    one = seconds(device, run.sweep, 5)
    speed = (problem.num_actions + 1) * size / one
    rows = plan_sweep(workspace.problem.successor).visits[:, :, 0].ravel()
    rows_per_state = (1 + np.count_nonzero(np.diff(rows.astype(np.int64)))) / problem.num_states
    print(
        f"{name}: a sweep takes {one * 1e3:.1f} ms, {speed / 1e9:,.0f} GB/s, {speed / copy:.0%} of "
        f"a copy, which moves {copy / 1e9:,.0f} GB/s; {rows_per_state:.2f} rows read per state",
        flush=True,
    )


def measure_lax_sweep(device: cuda.GpuDevice, name: str, problem: DeterministicProblem) -> None:
    """Measure a sweep and a policy evaluation of d_lax."""
    order = bisimulation.order_by_predecessors(device, problem)
    run = lax.LaxIteration(GpuWorkspace(device, problem, order, compare_actions=True))
    sweep = seconds(device, run.sweep, 5)
    evaluation = seconds(device, run.evaluate_choices, 2)
    print(
        f"{name}: a sweep takes {sweep * 1e3:.1f} ms, "
        f"a policy evaluation {evaluation * 1e3:.0f} ms",
        flush=True,
    )


def measure_solve(
    device: cuda.GpuDevice,
    name: str,
    problem: DeterministicProblem,
    solve: Callable[[DeterministicProblem, cuda.GpuDevice], SolverResult],
) -> None:
    """Measure the time of a whole solution, and of its transfer to the host."""
    fetch_seconds = []
    fetch_matrix = GpuWorkspace.fetch_matrix

    def time_fetch(self: GpuWorkspace, *arguments: object) -> object:
        device.arrays.cuda.Device().synchronize()
        start = time.perf_counter()
        values = fetch_matrix(self, *arguments)
        fetch_seconds.append(time.perf_counter() - start)
        return values

    GpuWorkspace.fetch_matrix = time_fetch  # type: ignore[assignment,method-assign]
    start = time.perf_counter()
    solution = solve(problem, device)
    elapsed = time.perf_counter() - start
    GpuWorkspace.fetch_matrix = fetch_matrix  # type: ignore[method-assign]
    error = bound_error(solution.residual, solution.largest, problem.discount)
    counted = ("sweeps", "evaluations", "rounds", "levels")
    statistics = ", ".join(
        f"{value:,} {name}" for name, value in solution.details.items() if value and name in counted
    )
    transfer = fetch_seconds[0]
    print(
        f"{name}: {elapsed - transfer:.3f} s, and {transfer:.2f} s to fetch the matrix; "
        f"error {error:.1e} of {solution.largest:.1f}; {statistics}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--states", type=int, default=60_000, help="for float32")
    parser.add_argument("--double", type=int, default=20_000, help="for float64")
    names = ("d^pi", "d~", "d_lax")
    parser.add_argument("--distances", nargs="+", default=names, choices=names)
    arguments = parser.parse_args()
    device = cuda.find_device()
    print(f"{device.name}; {arguments.states:,} states in float32 to 1e-3")
    if "d^pi" in arguments.distances:
        for name, problem in problems(arguments.states, 1, "float32", 1e-3):
            measure_solve(device, f"d^pi, {name}, first", problem, on_policy.solve)
            measure_solve(device, f"d^pi, {name}", problem, on_policy.solve)
    if "d~" in arguments.distances:
        for name, problem in problems(arguments.states, ACTIONS, "float32", 1e-3):
            measure_sweep(device, f"d~, {name}", problem)
            measure_solve(device, f"d~, {name}", problem, bisimulation.solve)
    print(f"{arguments.double:,} states in float64 to 1e-6")
    for name, problem in problems(arguments.double, ACTIONS, "float64", 1e-6):
        if "d~" in arguments.distances:
            measure_sweep(device, f"d~, {name}", problem)
            measure_solve(device, f"d~, {name}", problem, bisimulation.solve)
        if "d_lax" in arguments.distances:
            measure_lax_sweep(device, f"d_lax, {name}", problem)
            measure_solve(device, f"d_lax, {name}", problem, lax.solve)


if __name__ == "__main__":
    main()
