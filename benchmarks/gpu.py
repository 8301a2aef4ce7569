"""Exact tables on a GPU: `python benchmarks/gpu.py [--states 60000] [--double 20000]`.

Four actions, discount 0.99, rewards drawn from 0 to 1; successors drawn at random, and those of a
grid. A sweep is told as the bytes of five tables (four that are read, one that is written) over its
time, against a copy of a table in the same run. No two states are alike here, so that the solvers
are given all of them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from bisimetric.exact._request import bound_error
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import bisimulation, cuda, on_policy
from bisimetric.exact.gpu.workspace import GpuWorkspace

DISCOUNT, ACTIONS = 0.99, 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def problems(
    states: int, actions: int, dtype: str, tol: float
) -> Iterator[tuple[str, DeterministicProblem]]:
    """Random successors, and those of a grid of about as many cells."""
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
    least = tol * (1 - DISCOUNT) / 2
    for name, successor in (
        ("random", rng.integers(0, states, (actions, states))),
        (f"grid, {height} x {states // height}", np.stack(grid)),
    ):
        yield (
            name,
            DeterministicProblem(
                successor.astype(np.uint32), rewards, DISCOUNT, least, np.dtype(dtype)
            ),
        )


def seconds(device: cuda.GpuDevice, work: Callable[[], object], times: int) -> float:
    """Of one piece of work, in the mean of several after a first one."""
    work()
    device.arrays.cuda.Device().synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    device.arrays.cuda.Device().synchronize()
    return (time.perf_counter() - began) / times


def sweep(device: cuda.GpuDevice, name: str, problem: DeterministicProblem) -> None:
    """The speed of a sweep, against that of a copy."""
    tables = GpuWorkspace(device, problem, bisimulation.order_by_predecessors(device, problem))
    run = bisimulation.BisimulationIteration(tables)
    size = problem.num_states * tables.pitch * problem.dtype.itemsize
    copy = 2 * size / seconds(device, lambda: device.arrays.copyto(run.backup, run.d), 5)
    one = seconds(device, run.sweep, 5)
    speed = (problem.num_actions + 1) * size / one
    print(
        f"{name}: a sweep takes {one * 1e3:.1f} ms, {speed / 1e9:,.0f} GB/s; "
        f"a copy moves {copy / 1e9:,.0f} GB/s",
        flush=True,
    )


def whole(device: cuda.GpuDevice, name: str, problem: DeterministicProblem) -> None:
    """The time of a whole table, and that of fetching it."""
    fetching = []
    fetched = GpuWorkspace.fetch_matrix

    def timed(self: GpuWorkspace, *given: object) -> object:
        device.arrays.cuda.Device().synchronize()
        began = time.perf_counter()
        values = fetched(self, *given)
        fetching.append(time.perf_counter() - began)
        return values

    GpuWorkspace.fetch_matrix = timed  # type: ignore[assignment,method-assign]
    began = time.perf_counter()
    table = (on_policy if problem.num_actions == 1 else bisimulation).solve(problem, device)
    took = time.perf_counter() - began
    GpuWorkspace.fetch_matrix = fetched  # type: ignore[method-assign]
    error = bound_error(table.residual, table.largest, problem.discount)
    how = ", ".join(f"{count:,} {what}" for what, count in table.details.items() if count and what in
                    ("sweeps", "policies", "rounds", "levels"))  # fmt: skip
    print(
        f"{name}: {took - fetching[0]:.3f} s, and {fetching[0]:.2f} s to fetch the table; "
        f"error {error:.1e} of {table.largest:.1f}; {how}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--states", type=int, default=60_000, help="of tables in float32")
    parser.add_argument("--double", type=int, default=20_000, help="of tables in float64")
    given = parser.parse_args()
    device = cuda.find_device()
    print(f"{device.name}; {given.states:,} states in float32 to 1e-3")
    for name, problem in problems(given.states, 1, "float32", 1e-3):
        whole(device, f"d^pi, {name}, first", problem)
        whole(device, f"d^pi, {name}", problem)
    for name, problem in problems(given.states, ACTIONS, "float32", 1e-3):
        sweep(device, f"d~, {name}", problem)
        whole(device, f"d~, {name}", problem)
    print(f"{given.double:,} states in float64 to 1e-6")
    for name, problem in problems(given.double, ACTIONS, "float64", 1e-6):
        sweep(device, f"d~, {name}", problem)
        whole(device, f"d~, {name}", problem)


if __name__ == "__main__":
    main()
