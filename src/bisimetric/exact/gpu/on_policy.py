"""d^pi on a GPU: what runs in cycles first, then what leads there, one step further at a time.

A chain of single successors ends in cycles. Once the distances of their states are known, those
of states k steps before a cycle follow from those of states k - 1 steps before it and nearer ones,
in one pass over the table: d(s, t) = |R(s) - R(t)| + discount * d(next(s), next(t)). In cycles the
first terms of the sum are doubled, as on the processor.
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
    """The table of a problem with one action."""
    device = cuda.find_device() if device is None else device
    require_device_memory(device, problem)
    depth = compute_cycle_depths(problem.successor[0])
    order = np.argsort(depth, kind="stable")
    # The states of level k are those from first[k] to first[k + 1]; level 0 runs in cycles.
    first = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2)).tolist()
    tables = GpuWorkspace(device, problem, order)
    cyclic = dataclasses.replace(
        tables.problem,
        successor=tables.problem.successor[:, : first[1]],
        reward=tables.problem.reward[:, : first[1]],
    )
    found, rounds = _solve_cycles(device, cyclic)
    d, spare = tables.allocate_matrix(), tables.allocate_matrix()
    d[: first[1], : first[1]] = found
    del found
    with show_progress(len(first) - 1, "d^pi: levels") as shown:
        for k in range(1, len(first) - 1):
            _fill_level(tables, d, first[k], first[k + 1], *tables.discounts)
            shown.set_position(k)
    residual, largest = tables.compute_residual(d)
    how = {
        "method": "doubling, levels",
        "rounds": rounds,
        "levels": len(first) - 2,
        "device": device.name,
    }
    return SolverResult(tables.fetch_matrix(d, spare), residual, largest, how)


def compute_cycle_depths(successor: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """How many steps each state is from those that are visited again and again.

    >>> steps_to_cycle(np.array([1, 2, 1, 0], np.uint32))
    array([1, 0, 0, 2])
    """
    ahead = [np.asarray(successor, np.int64)]
    while 2 ** (len(ahead) - 1) < len(successor):
        ahead.append(ahead[-1][ahead[-1]])
    inside = np.zeros(len(successor), np.bool_)
    inside[ahead[-1]] = True
    # The most steps that lead to a state outside, by their binary digits.
    at, outside = np.arange(len(successor)), np.zeros(len(successor), np.int64)
    for k, jump in reversed(list(enumerate(ahead))):
        stays = ~inside[jump[at]]
        at, outside = np.where(stays, jump[at], at), outside + np.where(stays, 2**k, 0)
    return np.where(inside, 0, outside + 1)


def _solve_cycles(device: GpuDevice, problem: DeterministicProblem) -> tuple[Any, int]:
    """The distances where all states run in cycles, and how often their terms were doubled."""
    if 16.0 * problem.num_states**2 < device.free / 2:
        # A sum of sums has many roundings; in float64 they do not count.
        problem = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    tables = GpuWorkspace(device, problem)
    d, spare, count = tables.allocate_matrix(), tables.allocate_matrix(), problem.num_states
    none = problem.dtype.type(0)
    _fill_level(tables, d, 0, count, none, none)
    ahead, weight = problem.successor[0], problem.discount
    rounds = doubling.count_doublings(problem.reward, weight, problem.residual_tolerance)
    for _ in range(rounds):
        tables.launch_rows(
            "doubled", count, d, spare, tables.upload(ahead, tables.state_dtype), np.float64(weight),
            tables.kernel_pitch, count,
        )  # fmt: skip
        d, spare = spare, d
        ahead, weight = ahead[ahead], weight * weight
    return d[:, :count], rounds


def _fill_level(
    tables: GpuWorkspace, d: Any, low: int, high: int, discount: Any, excess: Any
) -> None:
    grid = math.ceil(high / TILE_SIZE), math.ceil((high - low) / LEVEL_TILE_ROWS)
    tables.launch(
        "level", grid, tables.block_threads, d, tables.successor, tables.reward, discount, excess,
        tables.kernel_pitch, low, high,
    )  # fmt: skip
