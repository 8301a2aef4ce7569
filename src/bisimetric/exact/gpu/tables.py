"""A problem and its tables in the memory of a GPU."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic.problem import Problem
from bisimetric.exact.gpu.cuda import Device, number
from bisimetric.memory import require_memory

THREADS, OTHERS = 1024, 256
"""Of a block that sweeps a row, and of one that does anything else."""
REGISTERS = 32
"""Words of 4 bytes that a thread may keep for its pairs."""
SHORT = 2**16
"""States whose numbers have 16 bits."""
SIDE, LOW = 64, 32
"""Of tiles in which tables are turned over; those of a level are lower."""
ELSE = 2.0**29
"""Bytes that are needed beside tables."""
UNIT = 32
"""Rows are a multiple of so many numbers apart."""


class Tables:
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
        self, device: Device, problem: Problem, order: NDArray[np.int64] | None = None
    ) -> None:
        states, kind = problem.num_states, problem.dtype
        self._place = None if order is None else np.argsort(order)
        if order is not None and self._place is not None:
            problem = dataclasses.replace(
                problem,
                successor=self._place[problem.successor[:, order]].astype(np.uint32),
                reward=problem.reward[:, order],
            )
        threads, self.others = min(THREADS, device.threads), min(OTHERS, device.threads)
        self.device, self.problem, self.states = device, problem, states
        self.pitch = _up(states, UNIT)
        fours = math.ceil((states / 2 + 4) / (4 * threads))
        fours = max(1, min(fours, REGISTERS // kind.itemsize))
        self.threads = threads
        self.reach = _up(2 * states + 4 * fours * threads, UNIT)
        self.held = held(device, problem)
        self.shared = max(self.held * kind.itemsize, threads * kind.itemsize)
        word = 16 if states <= SHORT else 32
        self.program = device.program(
            NUMBER=number(kind), WORD=word, THREADS=threads, FOURS=fours, SIDE=SIDE, LOW=LOW
        )
        self.state = np.uint16 if word == 16 else np.uint32
        self.next = self.put(_round(problem.successor, self.reach), self.state)
        self.reward64 = self.put(_round(problem.reward, self.reach), np.float64)
        self.reward = self.put(_round(_centred(problem.reward, kind), self.reach), kind)
        first = kind.type(problem.discount)
        self.discounts = first, kind.type(problem.discount - float(first))

    def put(self, array: NDArray[Any], dtype: Any) -> Any:
        """An array on the device."""
        return self.device.arrays.asarray(np.ascontiguousarray(array, dtype=dtype))

    def empty(self) -> Any:
        """A table that holds nothing yet."""
        return self.device.arrays.zeros((self.states, self.pitch), self.problem.dtype)

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *given: Any, shared: int = 0
    ) -> None:
        """Starts a kernel; whole numbers are passed as C's int, other numbers as they are."""
        passed = (np.int32(each) if type(each) is int else each for each in given)
        self.program.launch(name, grid, threads, *passed, shared=shared)

    @property
    def apart(self) -> np.int64:
        """The pitch, as kernels take it."""
        return np.int64(self.pitch)

    def mirror(self, table: Any) -> None:
        """Copies the pairs that rows have in hand across the diagonal."""
        tiles = math.ceil(self.states / SIDE)
        self.launch("mirror", (tiles, tiles), self.others, table, self.states, self.apart)

    def proven(self, table: Any) -> tuple[float, float]:
        """The largest |F(d) - d| and F(d), in float64."""
        found = self.device.arrays.zeros(2, np.float64)
        self.launch(
            "prove", (8 * self.device.processors,), self.others, table, self.next, self.reward64,
            np.float64(self.problem.discount), self.states, self.apart, self.problem.num_actions,
            self.reach, found[:1], found[1:],
        )  # fmt: skip
        told = np.empty(2)
        self.device.fetch(found, told)
        return float(told[0]), float(told[1])

    def fetched(self, table: Any, spare: Any) -> NDArray[np.floating]:
        """A table in the memory of this process, by the numbers that its states came with."""
        if self._place is not None:
            place = self.put(self._place, self.state)
            self.by_rows("placed", self.states, table, spare, place, self.apart, self.states)
            table = spare
        values = np.empty((self.states, self.states), self.problem.dtype)
        self.device.fetch(table, values)
        return values

    def by_rows(self, name: str, rows: int, *given: Any) -> None:
        """Starts a kernel whose blocks go through some rows, each through a part of them."""
        grid = math.ceil(rows / 256), min(rows, 2**15)
        self.launch(name, grid, self.others, *given)


def held(device: Device, problem: Problem) -> int:
    """How many numbers of a row shared memory holds."""
    pitch, size = _up(problem.num_states, UNIT), problem.dtype.itemsize
    return min(pitch, device.shared // 16 * 16 // size)


def require_room(device: Device, problem: Problem) -> None:
    """Refuses, before anything is allocated, what the GPU cannot hold."""
    pitch = _up(problem.num_states, UNIT)
    require_memory(
        f"exact: {problem.num_states:,} states need on {device.name}",
        2.0 * problem.num_states * pitch * problem.dtype.itemsize + ELSE,
        "leave device out, try dtype='float32', or share the rows of several GPUs: "
        "bisimetric.exact.sharded",
        free=device.free,
    )


def _up(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-count // unit) * unit


def _centred(reward: NDArray[np.float64], kind: np.dtype[Any]) -> NDArray[np.float64]:
    """Rewards (A, S) as kernels subtract them; in float32 less the middle of each action's range.

    Only differences within an action matter, and large rewards may differ by little.
    """
    if kind != np.float32:
        return reward
    middle = reward.min(axis=1, keepdims=True) / 2 + reward.max(axis=1, keepdims=True) / 2
    return np.asarray(reward - middle)


def _round(array: NDArray[Any], reach: int) -> NDArray[Any]:
    """Columns that start again at their end, until there are `reach` of them."""
    return np.take(array, np.arange(reach), axis=1, mode="wrap")
