"""d~ on a GPU: lower bounds that rise by sweeps and leaps; see `exact/deterministic/rising.py`.

A sweep gives every pair its best action once, from the table before it. A leap follows the best
actions from the steepest pair of each row into their cycles, all side by side. What comes out does
not depend on the order in which the GPU does its work. The proof is a pass of its own, in float64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic.problem import Problem
from bisimetric.exact.gpu import cuda, levels
from bisimetric.exact.gpu.cuda import Device
from bisimetric.exact.gpu.tables import Tables, held, require_room
from bisimetric.exact.table import Table, proven_error
from bisimetric.planning import UNIT
from bisimetric.progress import bar, digits

EVERY = 4
"""Sweeps between leaps."""
LONGEST = 1024
"""Steps of a path."""
MOST = 2**16
"""Paths at a time."""
STEP = 8
"""Bytes that are kept of a step of a path."""
NEGLIGIBLE = 1e-9
"""What follows a path counts for nothing when it is discounted by this."""


def solve(problem: Problem, device: Device | None = None) -> Table:
    """The table of d~."""
    device = cuda.found() if device is None else device
    if problem.num_actions == 1:
        return levels.solve(problem, device)
    paths, steps = _paths(problem)
    require_room(device, problem, STEP * paths * steps)
    rising = _Rising(Tables(device, problem, _order(device, problem)), paths, steps)
    least, goal = problem.least, 2 * problem.least / (1 - problem.discount)
    rising.until(least)
    residual, largest = rising.proven()
    if proven_error(residual, largest, problem.discount) > goal:
        # In float32 roundings may take what is left of the error allowed; then nothing may rise.
        rising.until(0.0)
        residual, largest = rising.proven()
    how = {
        "method": "sweep, leap",
        "sweeps": rising.sweeps,
        "leaps": rising.leaps,
        "device": device.name,
    }
    return Table(rising.tables.fetched(rising.d, rising.fresh), residual, largest, how)


class _Rising:
    """The table that rises, and the one that it becomes."""

    def __init__(self, tables: Tables, paths: int, steps: int) -> None:
        self.tables, self.problem = tables, tables.problem
        self.paths, self.steps = paths, steps
        self.d, self.fresh = tables.empty(), tables.empty()
        if self.problem.discount > 0:
            # Rows are one state a class: different ones are not at distance 0, however small it is.
            self.d += np.finfo(self.problem.dtype).tiny
            self.d.reshape(-1)[:: tables.pitch + 1] = 0
        arrays = tables.device.arrays
        self.rise = arrays.zeros(tables.states, self.problem.dtype)
        self.steepest = arrays.zeros(tables.states, np.int32)
        self.sweeps = self.leaps = 0

    def until(self, least: float) -> None:
        """Sweeps and leaps until no pair rises by more than `least`."""
        largest = max(float(np.ptp(self.problem.reward)), 1e-300)
        with bar(1.0, "d~: digits of the error") as shown:
            while True:
                rise = self.sweep()
                if not rise.max() > least:
                    return
                largest = max(largest, float(rise.max()))
                shown.at(
                    digits(float(rise.max()), max(least, UNIT), largest), f"sweep {self.sweeps}"
                )
                if self.sweeps % EVERY == 0:
                    self.leap(rise, least)

    def sweep(self) -> NDArray[np.floating]:
        """max(d, F(d)); the largest rise of each row."""
        t = self.tables
        t.launch(
            "sweep", (t.device.processors,), t.threads, self.d, self.fresh, t.next, t.reward,
            *t.discounts, t.states, t.apart, self.problem.num_actions, t.reach, t.held, self.rise,
            self.steepest, shared=t.shared,
        )  # fmt: skip
        t.mirror(self.fresh)
        self.d, self.fresh = self.fresh, self.d
        self.sweeps += 1
        rise = np.empty(t.states, self.problem.dtype)
        t.device.fetch(self.rise, rise)
        return rise

    def leap(self, rise: NDArray[np.floating], least: float) -> None:
        """Raises the table along paths from the steepest pairs of rows that rose."""
        t, discount = self.tables, np.float64(self.problem.discount)
        rows = np.flatnonzero(rise > least)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), self.paths)).astype(np.int64)]
        paths, grid = len(rows), (math.ceil(len(rows) / 64),)
        arrays = t.device.arrays
        starts = t.put(rows, np.int32)
        path = arrays.empty((self.steps, paths), np.uint64)
        length, cycle = (arrays.empty(paths, np.int32) for _ in range(2))
        ends = arrays.empty(paths, np.float64)
        t.launch(
            "walk", grid, 64, self.d, t.next, t.reward64, discount, t.apart,
            self.problem.num_actions, t.reach, starts, self.steepest[starts], paths, self.steps,
            path, length, cycle,
        )  # fmt: skip
        t.launch("ends_of", grid, 64, self.d, t.next, t.apart, t.reach, paths, path, length, ends)
        safe = np.float64(1 - 16 * UNIT / (1 - self.problem.discount))
        t.launch(
            "lift", grid, 64, self.d, t.next, t.reward64, discount, safe, t.apart, t.reach, paths,
            path, length, cycle, ends,
        )  # fmt: skip
        self.leaps += 1

    def proven(self) -> tuple[float, float]:
        return self.tables.proven(self.d)


def _paths(problem: Problem) -> tuple[int, int]:
    """How many paths there are, and how long they may be."""
    discount = problem.discount
    far = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE) / math.log(discount))
    return min(problem.num_states, MOST), max(1, min(LONGEST, far))


def _order(device: Device, problem: Problem) -> NDArray[np.int64] | None:
    """States with the fewest predecessors last, where shared memory does not hold a whole row."""
    beyond = problem.num_states - held(device, problem)
    if beyond <= 0:
        return None
    count = np.bincount(problem.successor.ravel(), minlength=problem.num_states)
    last = np.zeros(problem.num_states, np.bool_)
    last[np.argsort(count, kind="stable")[:beyond]] = True
    return np.argsort(last, kind="stable")
