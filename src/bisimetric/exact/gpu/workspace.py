"""A problem and its tables in the memory of a GPU."""

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
"""Of a block that sweeps a row, and of one that does anything else."""
PAIR_REGISTERS = 32
"""Words of 4 bytes that a thread may keep for its pairs."""
MAX_UINT16_STATES = 2**16
"""States whose numbers have 16 bits."""
TILE_SIZE, LEVEL_TILE_ROWS = 64, 32
"""Of tiles in which tables are turned over; those of a level are lower."""
RESERVED_BYTES = 2.0**29
"""Bytes that are needed beside tables."""
ROW_ALIGNMENT = 32
"""Rows are a multiple of so many numbers apart."""


class GpuWorkspace:
    """A problem on a GPU, and what all solvers do with its tables.

    Attributes:
        problem: with its states in the order that was asked for, if any.
        pitch: numbers from one row of a table to the next.
        next, reward: (A, reach), which go round once more at their end.
        reward64: the rewards as they are; `reward` is in the table's type, and centred in float32.
        discounts: two numbers of the table's type whose sum is the discount, as nearly as may be.
        held: numbers of a row that shared memory holds.
    """

    def __init__(
        self,
        device: GpuDevice,
        problem: DeterministicProblem,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        states, kind = problem.num_states, problem.dtype
        self._place = None if order is None else np.argsort(order)
        if order is not None and self._place is not None:
            problem = dataclasses.replace(
                problem,
                successor=self._place[problem.successor[:, order]].astype(np.uint32),
                reward=problem.reward[:, order],
            )
        threads, self.block_threads = (
            min(SWEEP_THREADS, device.threads),
            min(BLOCK_THREADS, device.threads),
        )
        self.device, self.problem, self.num_states = device, problem, states
        self.pitch = _round_up(states, ROW_ALIGNMENT)
        fours = math.ceil((states / 2 + 4) / (4 * threads))
        fours = max(1, min(fours, PAIR_REGISTERS // kind.itemsize))
        self.sweep_threads = threads
        self.padded_length = _round_up(2 * states + 4 * fours * threads, ROW_ALIGNMENT)
        self.cached_columns = count_cached_columns(device, problem)
        self.shared_bytes = max(self.cached_columns * kind.itemsize, threads * kind.itemsize)
        word = 16 if states <= MAX_UINT16_STATES else 32
        self.program = device.program(
            NUMBER=format_c_type(kind),
            WORD=word,
            THREADS=threads,
            FOURS=fours,
            SIDE=TILE_SIZE,
            LOW=LEVEL_TILE_ROWS,
        )
        self.state_dtype = np.uint16 if word == 16 else np.uint32
        self.successor = self.upload(
            _wrap_columns(problem.successor, self.padded_length), self.state_dtype
        )
        self.reward64 = self.upload(_wrap_columns(problem.reward, self.padded_length), np.float64)
        self.reward = self.upload(
            _wrap_columns(_centre_rewards(problem.reward, kind), self.padded_length), kind
        )
        first = kind.type(problem.discount)
        self.discounts = first, kind.type(problem.discount - float(first))

    def upload(self, array: NDArray[Any], dtype: Any) -> Any:
        """An array on the device."""
        return self.device.arrays.asarray(np.ascontiguousarray(array, dtype=dtype))

    def allocate_matrix(self) -> Any:
        """A table that holds nothing yet."""
        return self.device.arrays.zeros((self.num_states, self.pitch), self.problem.dtype)

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *given: Any, shared: int = 0
    ) -> None:
        """Starts a kernel; whole numbers are passed as C's int, other numbers as they are."""
        passed = (np.int32(each) if type(each) is int else each for each in given)
        self.program.launch(name, grid, threads, *passed, shared=shared)

    @property
    def kernel_pitch(self) -> np.int64:
        """The pitch, as kernels take it."""
        return np.int64(self.pitch)

    def mirror(self, table: Any) -> None:
        """Copies the pairs that rows have in hand across the diagonal."""
        tiles = math.ceil(self.num_states / TILE_SIZE)
        self.launch(
            "mirror", (tiles, tiles), self.block_threads, table, self.num_states, self.kernel_pitch
        )

    def compute_residual(self, table: Any) -> tuple[float, float]:
        """The largest |F(d) - d| and F(d), in float64."""
        found = self.device.arrays.zeros(2, np.float64)
        self.launch(
            "prove", (8 * self.device.processors,), self.block_threads, table, self.successor, self.reward64,
            np.float64(self.problem.discount), self.num_states, self.kernel_pitch, self.problem.num_actions,
            self.padded_length, found[:1], found[1:],
        )  # fmt: skip
        told = np.empty(2)
        self.device.fetch(found, told)
        return float(told[0]), float(told[1])

    def fetch_matrix(self, table: Any, spare: Any) -> NDArray[np.floating]:
        """A table in the memory of this process, by the numbers that its states came with."""
        if self._place is not None:
            place = self.upload(self._place, self.state_dtype)
            self.launch_rows(
                "placed", self.num_states, table, spare, place, self.kernel_pitch, self.num_states
            )
            table = spare
        values = np.empty((self.num_states, self.num_states), self.problem.dtype)
        self.device.fetch(table, values)
        return values

    def launch_rows(self, name: str, rows: int, *given: Any) -> None:
        """Starts a kernel whose blocks go through some rows, each through a part of them."""
        grid = math.ceil(rows / 256), min(rows, 2**15)
        self.launch(name, grid, self.block_threads, *given)


def count_cached_columns(device: GpuDevice, problem: DeterministicProblem) -> int:
    """How many numbers of a row shared memory holds."""
    pitch, size = _round_up(problem.num_states, ROW_ALIGNMENT), problem.dtype.itemsize
    return min(pitch, device.shared // 16 * 16 // size)


def require_device_memory(device: GpuDevice, problem: DeterministicProblem) -> None:
    """Refuses, before anything is allocated, what the GPU cannot hold."""
    pitch = _round_up(problem.num_states, ROW_ALIGNMENT)
    require_memory(
        f"exact: {problem.num_states:,} states need on {device.name}",
        2.0 * problem.num_states * pitch * problem.dtype.itemsize + RESERVED_BYTES,
        "leave device out, try dtype='float32', or share the rows of several GPUs: "
        "bisimetric.exact.sharded",
        free=device.free,
    )


def _round_up(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-count // unit) * unit


def _centre_rewards(reward: NDArray[np.float64], kind: np.dtype[Any]) -> NDArray[np.float64]:
    """Rewards (A, S) as kernels subtract them; in float32 less the middle of each action's range.

    Only differences within an action matter, and large rewards may differ by little.
    """
    if kind != np.float32:
        return reward
    middle = reward.min(axis=1, keepdims=True) / 2 + reward.max(axis=1, keepdims=True) / 2
    return np.asarray(reward - middle)


def _wrap_columns(array: NDArray[Any], reach: int) -> NDArray[Any]:
    """Columns that start again at their end, until there are `reach` of them."""
    return np.take(array, np.arange(reach), axis=1, mode="wrap")
