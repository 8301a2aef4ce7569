"""d^pi on a GPU: recurrent states first, then transient ones by their distance to a cycle.

A deterministic chain ends in cycles. Once the distances of their states are known, those of states
k steps before a cycle follow from those of states at most k - 1 steps before one, in one pass over
the matrix: d(s, t) = |R(s) - R(t)| + discount * d(next(s), next(t)). In cycles the number of summed
terms doubles per round, as on the CPU. A cost of the pair is added to the difference of rewards.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric.exact._request import SolverResult
from bisimetric.exact.deterministic import doubling
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import cuda
from bisimetric.exact.gpu.cuda import GpuDevice
from bisimetric.exact.gpu.workspace import (
    LEVEL_TILE_ROWS,
    TILE_SIZE,
    GpuWorkspace,
    require_device_memory,
)


def solve(problem: DeterministicProblem, device: GpuDevice | None = None) -> SolverResult:
    """Compute the distances of a problem with one action."""
    device = cuda.find_device() if device is None else device
    require_device_memory(device, problem)
    depth = compute_cycle_depths(problem.successor[0])
    order = np.argsort(depth, kind="stable")
    # The states of level k are starts[k] to starts[k + 1]; level 0 is recurrent.
    starts = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2)).tolist()
    workspace = GpuWorkspace(device, problem, order)
    recurrent_problem = dataclasses.replace(
        workspace.problem,
        successor=workspace.problem.successor[:, : starts[1]],
        reward=workspace.problem.reward[:, : starts[1]],
        cost=None
        if workspace.problem.cost is None
        else workspace.problem.cost[: starts[1], : starts[1]],
    )
    recurrent, rounds = _solve_cycles(device, recurrent_problem)
    d, scratch = workspace.allocate_matrix(), workspace.allocate_matrix()
    d[: starts[1], : starts[1]] = recurrent
    del recurrent
    with show_progress(len(starts) - 1, "d^pi: levels") as progress:
        for k in range(1, len(starts) - 1):
            _fill_level(workspace, d, starts[k], starts[k + 1], *workspace.discounts)
            progress.set_position(k)
    residual, largest = workspace.compute_residual(d)
    details = {
        "method": "doubling, levels",
        "rounds": rounds,
        "levels": len(starts) - 2,
        "device": device.name,
    }
    return SolverResult(workspace.fetch_matrix(d, scratch), residual, largest, details)


def compute_cycle_depths(successor: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """Return the number of steps from each state to a recurrent one.

    >>> compute_cycle_depths(np.array([1, 2, 1, 0], np.uint32))
    array([1, 0, 0, 2])
    """
    jumps = [np.asarray(successor, np.int64)]
    while 2 ** (len(jumps) - 1) < len(successor):
        jumps.append(jumps[-1][jumps[-1]])
    is_recurrent = np.zeros(len(successor), np.bool_)
    is_recurrent[jumps[-1]] = True
    # The largest number of steps that stay transient, by its binary digits.
    state, num_steps = np.arange(len(successor)), np.zeros(len(successor), np.int64)
    for k, jump in reversed(list(enumerate(jumps))):
        stays_transient = ~is_recurrent[jump[state]]
        state, num_steps = (
            np.where(stays_transient, jump[state], state),
            num_steps + np.where(stays_transient, 2**k, 0),
        )
    return np.where(is_recurrent, 0, num_steps + 1)


def _solve_cycles(device: GpuDevice, problem: DeterministicProblem) -> tuple[Any, int]:
    """Compute the distances of recurrent states, and the number of doublings."""
    if 16.0 * problem.num_states**2 < device.free_bytes / 2:
        # A sum of sums has many roundings; in float64 they are negligible.
        problem = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    workspace = GpuWorkspace(device, problem)
    d, scratch, num_states = (
        workspace.allocate_matrix(),
        workspace.allocate_matrix(),
        problem.num_states,
    )
    zero = problem.dtype.type(0)
    _fill_level(workspace, d, 0, num_states, zero, zero)
    jumps, weight = problem.successor[0], problem.discount
    rounds = doubling.count_doublings(problem.largest_gap, weight, problem.residual_tolerance)
    for _ in range(rounds):
        workspace.launch_rows(
            "double_horizon", num_states, d, scratch,
            workspace.upload(jumps, workspace.state_dtype), np.float64(weight),
            workspace.kernel_pitch, num_states,
        )  # fmt: skip
        d, scratch = scratch, d
        jumps, weight = jumps[jumps], weight * weight
    return d[:, :num_states], rounds


def _fill_level(
    workspace: GpuWorkspace, d: Any, low: int, high: int, discount: Any, excess: Any
) -> None:
    grid = math.ceil(high / TILE_SIZE), math.ceil((high - low) / LEVEL_TILE_ROWS)
    workspace.launch(
        "fill_level", grid, workspace.block_threads, d, workspace.successor, workspace.reward,
        workspace.cost, discount, excess, workspace.kernel_pitch, low, high,
    )  # fmt: skip
