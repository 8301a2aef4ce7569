"""A problem and its distance matrices in the memory of a GPU."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu.cuda import GpuDevice, format_c_type

SWEEP_THREADS, BLOCK_THREADS = 1024, 256
"""Threads per block of the sweep kernel, and of all others."""
PAIR_REGISTERS = 32
"""Registers (4 bytes) that a thread may use for its pairs."""
MAX_UINT16_STATES = 2**16
"""The largest number of states whose ids fit into 16 bits."""
TILE_SIZE, LEVEL_TILE_ROWS = 64, 32
"""The side of the tiles in which matrices are transposed; the rows of those of a level."""
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
    """

    def __init__(
        self,
        device: GpuDevice,
        problem: DeterministicProblem,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        states, dtype = problem.num_states, problem.dtype
        self._position = None if order is None else np.argsort(order)
        if order is not None and self._position is not None:
            problem = dataclasses.replace(
                problem,
                successor=self._position[problem.successor[:, order]].astype(np.uint32),
                reward=problem.reward[:, order],
                cost=None if problem.cost is None else problem.cost[np.ix_(order, order)],
            )
        threads = min(SWEEP_THREADS, device.max_threads)
        self.block_threads = min(BLOCK_THREADS, device.max_threads)
        self.device, self.problem, self.num_states = device, problem, states
        self.pitch = _round_up(states, ROW_ALIGNMENT)
        quads = math.ceil((states / 2 + 4) / (4 * threads))
        quads = max(1, min(quads, PAIR_REGISTERS // dtype.itemsize))
        self.sweep_threads = threads
        self.padded_length = _round_up(2 * states + 4 * quads * threads, ROW_ALIGNMENT)
        self.cached_columns = count_cached_columns(device, problem)
        self.shared_bytes = max(self.cached_columns * dtype.itemsize, threads * dtype.itemsize)
        state_bits = 16 if states <= MAX_UINT16_STATES else 32
        self.kernels = device.compile(
            VALUE_TYPE=format_c_type(dtype),
            STATE_BITS=state_bits,
            SWEEP_THREADS=threads,
            QUADS=quads,
            TILE_SIZE=TILE_SIZE,
            LEVEL_TILE_ROWS=LEVEL_TILE_ROWS,
            HAS_COST=int(problem.cost is not None),
        )
        self.state_dtype = np.uint16 if state_bits == 16 else np.uint32
        self.successor = self.upload(
            _wrap_columns(problem.successor, self.padded_length), self.state_dtype
        )
        self.reward64 = self.upload(_wrap_columns(problem.reward, self.padded_length), np.float64)
        self.reward = self.upload(
            _wrap_columns(_centre_rewards(problem.reward, dtype), self.padded_length), dtype
        )
        cost = np.zeros((1, 1))
        if problem.cost is not None:
            cost = np.pad(problem.cost, ((0, 0), (0, self.pitch - states)))
        self.cost = self.upload(cost, np.float64)
        first = dtype.type(problem.discount)
        self.discounts = first, dtype.type(problem.discount - float(first))

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
        converted = (np.int32(each) if type(each) is int else each for each in arguments)
        self.kernels.launch(name, grid, threads, *converted, shared_bytes=shared_bytes)

    @property
    def kernel_pitch(self) -> np.int64:
        """The pitch as a 64-bit integer, the type of the kernels' argument."""
        return np.int64(self.pitch)

    def mirror(self, matrix: Any) -> None:
        """Copy the computed pairs of each row across the diagonal."""
        tiles = math.ceil(self.num_states / TILE_SIZE)
        self.launch(
            "mirror", (tiles, tiles), self.block_threads, matrix, self.num_states, self.kernel_pitch
        )

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


def count_cached_columns(device: GpuDevice, problem: DeterministicProblem) -> int:
    """Return how many numbers of a row fit into shared memory."""
    pitch, size = _round_up(problem.num_states, ROW_ALIGNMENT), problem.dtype.itemsize
    return min(pitch, device.shared_bytes // 16 * 16 // size)


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


def _centre_rewards(reward: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return rewards (A, S) as kernels subtract them; in float32 centred per action.

    Only differences within an action matter, and large rewards may differ by little.
    """
    if dtype != np.float32:
        return reward
    middle = reward.min(axis=1, keepdims=True) / 2 + reward.max(axis=1, keepdims=True) / 2
    return np.asarray(reward - middle)


def _wrap_columns(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Repeat the columns cyclically up to a length."""
    return np.take(array, np.arange(length), axis=1, mode="wrap")
