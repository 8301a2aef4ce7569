"""A problem and its distance matrices in the memory of a GPU."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult
from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu.cuda import MATRIX_KERNELS, GpuDevice, KernelModule, format_c_type
from bisimetric.exact.gpu.plan import SweepPlan, plan_sweep

SWEEP_THREADS, BLOCK_THREADS = 1024, 256
"""Threads per block of the sweep kernel, and of all others."""
PAIR_REGISTERS = 32
"""Registers (4 bytes) that a thread may use for its pairs."""
MAX_UINT16_STATES = 2**16
"""The largest number of states whose ids fit into 16 bits."""
TILE_SIZE, LEVEL_TILE_ROWS = 64, 32
"""The side of the tiles in which matrices are transposed; the rows of those of a level."""
COPY_BYTES, PREFETCH_BYTES = 2**15, 2**16
"""Bytes per bulk copy into shared memory, and of the following row fetched into the L2 cache."""
BARRIER_BYTES = 16
"""Shared memory behind a row, for the barrier of its copies."""
RESERVED_BYTES = 2.0**29
"""Bytes that are needed besides distance matrices."""
ROW_ALIGNMENT = 32
"""The pitch of a matrix is a multiple of this many numbers."""


class GpuWorkspace:
    """A problem on a GPU, and the operations that all solvers share.

    Attributes:
        problem: with its states in the given order, if any.
        pitch: numbers from one row of a matrix to the next.
        successor, reward: (A, padded_length), columns repeated cyclically.
        reward64: the rewards in float64; `reward` has the dtype of the matrix, centred in float32.
        cost: (S, pitch) in float64, or one 0 where the problem has none.
        discounts: two numbers of the matrix's dtype whose sum approximates the discount.
        cached_columns: numbers of a row that fit into shared memory.
        macros: those of rows.cu.

    Args:
        device: the GPU.
        problem: the problem.
        order: (S,), the order of the states on the device, or None for that of the problem.
        compare_actions: whether rewards of different actions are compared, as in d_lax.
    """

    def __init__(
        self,
        device: GpuDevice,
        problem: DeterministicProblem,
        order: NDArray[np.int64] | None = None,
        *,
        compare_actions: bool = False,
    ) -> None:
        states, dtype = problem.num_states, problem.dtype
        self._position = None if order is None else np.argsort(order)
        if order is not None and self._position is not None:
            problem = dataclasses.replace(
                problem,
                successor=self._position[problem.successor[:, order]].astype(np.uint32),
                reward=problem.reward[:, order],
                comparison_classes=problem.classes[order],
                cost=None if problem.cost is None else problem.cost[np.ix_(order, order)],
            )
        threads = min(SWEEP_THREADS, device.max_threads)
        self.block_threads = min(BLOCK_THREADS, device.max_threads)
        self.device, self.problem, self.num_states = device, problem, states
        self.pitch = _round_up(states, ROW_ALIGNMENT)
        quads = math.ceil((states / 2 + 4) / (4 * threads))
        quads = max(1, min(quads, PAIR_REGISTERS // dtype.itemsize))
        self.sweep_threads = threads
        self.padded_length = _round_up(2 * states + 4 * quads * threads + 4, ROW_ALIGNMENT)
        self.cached_columns = count_cached_columns(device, problem)
        self.shared_bytes = dtype.itemsize * max(self.cached_columns, threads) + BARRIER_BYTES
        state_bits = 16 if states <= MAX_UINT16_STATES else 32
        self.macros: dict[str, int | str] = {
            "VALUE_TYPE": format_c_type(dtype),
            "STATE_BITS": state_bits,
            "SWEEP_THREADS": threads,
            "TILE_SIZE": TILE_SIZE,
            "COPY_BYTES": COPY_BYTES,
            "PREFETCH_BYTES": PREFETCH_BYTES,
            "WHOLE_ROWS": int(self.cached_columns >= states),
            "HAS_COST": int(problem.cost is not None),
        }
        self.kernels = device.compile(
            MATRIX_KERNELS, QUADS=quads, LEVEL_TILE_ROWS=LEVEL_TILE_ROWS, **self.macros
        )
        self.state_dtype = np.uint16 if state_bits == 16 else np.uint32
        self.successor = self.upload(
            _wrap_columns(problem.successor, self.padded_length), self.state_dtype
        )
        self.reward64 = self.upload(_wrap_columns(problem.reward, self.padded_length), np.float64)
        centred = _centre_rewards(problem.reward, dtype, None if compare_actions else 1)
        self.reward = self.upload(_wrap_columns(centred, self.padded_length), dtype)
        cost = np.zeros((1, 1))
        if problem.cost is not None:
            cost = np.pad(problem.cost, ((0, 0), (0, self.pitch - states)))
        self.cost = self.upload(cost, np.float64)
        first = dtype.type(problem.discount)
        self.discounts = first, dtype.type(problem.discount - float(first))

    @functools.cached_property
    def plan(self) -> SweepPlan:
        """The order in which a sweep computes states and their actions."""
        plan = plan_sweep(self.problem.successor)
        return SweepPlan(*(self.upload(each, each.dtype) for each in plan))

    def upload(self, array: NDArray[Any], dtype: Any) -> Any:
        """Copy an array to the device."""
        return self.device.arrays.asarray(np.ascontiguousarray(array, dtype=dtype))

    def allocate_matrix(self) -> Any:
        """Allocate a distance matrix of zeros."""
        return self.device.arrays.zeros((self.num_states, self.pitch), self.problem.dtype)

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Launch a kernel; Python integers are passed as C's int, other arguments unchanged."""
        launch_kernel(self.kernels, name, grid, threads, *arguments, shared_bytes=shared_bytes)

    @property
    def kernel_pitch(self) -> np.int64:
        """The pitch as a 64-bit integer, the type of the kernels' argument."""
        return np.int64(self.pitch)

    def mirror(self, matrix: Any) -> None:
        """Copy the computed pairs of each row across the diagonal."""
        self.launch(
            "mirror", self.tile_grid, self.block_threads, matrix, self.num_states, self.kernel_pitch
        )

    @property
    def tile_grid(self) -> tuple[int, int]:
        """The grid of blocks with one pair of tiles each, see `TilePair` in rows.cu."""
        tiles = math.ceil(self.num_states / TILE_SIZE)
        return tiles // 2 + 1, tiles

    @property
    def can_evaluate_policy(self) -> bool:
        """Whether the steps of all pairs fit into memory, twice."""
        return 2.0 * self._steps_bytes <= self.device.free_bytes

    @property
    def _steps_bytes(self) -> int:
        """The size of the steps of all pairs; `Step` in rows.cu.

        Costs are in float64 even where the matrix is float32: the last evaluation raises it to
        within one rounding of the value, where sweeps, which round down, would stop earlier.
        """
        return 16 * self.num_states * (self.num_states // 2 + 1)

    def evaluate_policy(
        self, select: Callable[[Any], None], d: Any, backup: Any, *, keep_larger: bool
    ) -> None:
        """Write the infinite-horizon value of a policy of the pair graph, by pointer doubling.

        Args:
            select: fills an array on the device with the first step of every pair.
            d: the matrix, the value of the pairs where the last steps end.
            backup: the matrix that is written.
            keep_larger: whether it is at least d, and rounded down.
        """
        p, weight = self.problem, np.float64(self.problem.discount)
        steps, composed = (self.device.arrays.empty(self._steps_bytes, np.uint8) for _ in range(2))
        select(steps)
        for _ in range(count_doublings(p.largest_gap, p.discount, p.residual_tolerance)):
            blocks = (32 * self.device.num_multiprocessors,)
            self.launch(
                "compose_steps", blocks, self.block_threads, steps, composed, weight,
                self.num_states,
            )  # fmt: skip
            steps, composed = composed, steps
            weight = weight * weight
        factor = np.float64(1 - 64 * UNIT if keep_larger else 1.0)
        self.launch_rows(
            "apply_policy_value", self.num_states, d, backup, steps, weight, factor,
            int(keep_larger), self.num_states, self.kernel_pitch,
        )  # fmt: skip
        self.mirror(backup)

    def compute_residual(self, matrix: Any) -> tuple[float, float]:
        """Return the largest |F(d) - d| and F(d), in float64."""
        maxima = self.device.arrays.zeros(2, np.float64)
        self.launch(
            "compute_residual", (8 * self.device.num_multiprocessors,), self.block_threads, matrix,
            self.successor, self.reward64, self.cost, np.float64(self.problem.discount),
            self.num_states, self.kernel_pitch, self.problem.num_actions, self.padded_length,
            maxima[:1], maxima[1:],
        )  # fmt: skip
        residual, largest = self.device.fetch(maxima, np.empty(2))
        return float(residual), float(largest)

    def fetch_matrix(self, matrix: Any, scratch: Any) -> NDArray[np.floating]:
        """Copy a matrix to the host, in the original order of states."""
        if self._position is not None:
            position = self.upload(self._position, self.state_dtype)
            self.launch_rows(
                "reorder",
                self.num_states,
                matrix,
                scratch,
                position,
                self.kernel_pitch,
                self.num_states,
            )
            matrix = scratch
        values = np.empty((self.num_states, self.num_states), self.problem.dtype)
        return self.device.fetch(matrix, values)

    def launch_rows(self, name: str, rows: int, *arguments: Any) -> None:
        """Launch a kernel whose blocks iterate over rows, each over a part of their columns."""
        grid = math.ceil(rows / 256), min(rows, 2**15)
        self.launch(name, grid, self.block_threads, *arguments)


class MatrixIteration(Protocol):
    """An iteration over a distance matrix on a GPU.

    Attributes:
        workspace: the problem on the GPU.
        d: the distance matrix.
        backup: another matrix.
        num_sweeps: sweeps so far.
        num_evaluations: policy evaluations so far.
    """

    workspace: GpuWorkspace
    d: Any
    backup: Any
    num_sweeps: int
    num_evaluations: int

    def run(self) -> tuple[float, float]:
        """Iterate until the error is small enough; return the largest |F(d) - d| and F(d)."""


def solve_matrix(iteration: MatrixIteration) -> SolverResult:
    """Run an iteration and fetch its matrix."""
    residual, largest = iteration.run()
    evaluated = iteration.num_evaluations > 0
    details = {
        "method": "value iteration, policy evaluation" if evaluated else "value iteration",
        "sweeps": iteration.num_sweeps,
        "evaluations": iteration.num_evaluations,
        "device": iteration.workspace.device.name,
    }
    values = iteration.workspace.fetch_matrix(iteration.d, iteration.backup)
    return SolverResult(values, residual, largest, details)


def launch_kernel(
    kernels: KernelModule,
    name: str,
    grid: tuple[int, ...],
    threads: int,
    *arguments: Any,
    shared_bytes: int = 0,
) -> None:
    """Launch a kernel; Python integers are passed as C's int, other arguments unchanged."""
    converted = (np.int32(each) if type(each) is int else each for each in arguments)
    kernels.launch(name, grid, threads, *converted, shared_bytes=shared_bytes)


def count_cached_columns(device: GpuDevice, problem: DeterministicProblem) -> int:
    """Return how many numbers of a row fit into shared memory."""
    pitch, size = _round_up(problem.num_states, ROW_ALIGNMENT), problem.dtype.itemsize
    return min(pitch, (device.shared_bytes - BARRIER_BYTES) // 16 * 16 // size)


def require_device_memory(device: GpuDevice, problem: DeterministicProblem) -> None:
    """Raise InsufficientMemory before anything is allocated that the GPU cannot hold."""
    pitch = _round_up(problem.num_states, ROW_ALIGNMENT)
    # A cost is in float64; d^pi copies that of the recurrent states.
    cost_bytes = 0.0 if problem.cost is None else 16.0 if problem.num_actions == 1 else 8.0
    entry_bytes = 2.0 * problem.dtype.itemsize + cost_bytes
    require_memory(
        f"exact: {problem.num_states:,} states need on {device.name}",
        problem.num_states * pitch * entry_bytes + RESERVED_BYTES,
        "leave device out, try dtype='float32', or shard the rows over several GPUs: "
        "bisimetric.exact.sharded",
        free=device.free_bytes,
    )


def _round_up(count: int, unit: int) -> int:
    """Return the next multiple of a unit."""
    return -(-count // unit) * unit


def _centre_rewards(
    reward: NDArray[np.float64], dtype: np.dtype[Any], axis: int | None
) -> NDArray[np.float64]:
    """Return rewards (A, S) as kernels subtract them; in float32 centred, by default per action.

    Only differences within an action, or all actions (axis None), matter, and large rewards may
    differ by little.
    """
    if dtype != np.float32:
        return reward
    middle = reward.min(axis=axis, keepdims=True) / 2 + reward.max(axis=axis, keepdims=True) / 2
    return np.asarray(reward - middle)


def _wrap_columns(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Repeat the columns cyclically up to a length."""
    return np.take(array, np.arange(length), axis=1, mode="wrap")
