"""d~ on a GPU: lower bounds that rise by sweeps, and by the value of the best actions for ever.

A sweep gives every pair its best action once, from the table before it. Every few sweeps those best
actions, a policy of the pair graph, are followed for ever: the first steps of all pairs are doubled
until what is left out counts for nothing (policy iteration by pointer doubling). What comes out
does not depend on the order in which the GPU does its work. The proof is a pass of its own, in
float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic.doubling import doublings
from bisimetric.exact.deterministic.problem import Problem
from bisimetric.exact.gpu import cuda, levels
from bisimetric.exact.gpu.cuda import Device
from bisimetric.exact.gpu.tables import Tables, held, require_room
from bisimetric.exact.table import Table, proven_error
from bisimetric.progress import bar, digits
from bisimetric.rounding import UNIT

EVERY = 8
"""Sweeps between policies."""
ROUNDINGS = 2
"""A rise of at most so many is worth a proof."""


def solve(problem: Problem, device: Device | None = None) -> Table:
    """The table of d~."""
    device = cuda.found() if device is None else device
    if problem.num_actions == 1:
        return levels.solve(problem, device)
    require_room(device, problem)
    rising = Rising(Tables(device, problem, by_predecessors(device, problem)))
    residual, largest = rising.risen()
    how = {
        "method": "policy iteration, sweep" if rising.policies else "sweep",
        "sweeps": rising.sweeps,
        "policies": rising.policies,
        "device": device.name,
    }
    return Table(rising.tables.fetched(rising.d, rising.fresh), residual, largest, how)


class Rising:
    """The table that rises, and the one that it becomes."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.problem = tables, tables.problem
        self.d, self.fresh = tables.empty(), tables.empty()
        if self.problem.discount > 0:
            # Rows are one state a class: different ones are not at distance 0, however small it is.
            self.d += np.finfo(self.problem.dtype).tiny
            self.d.reshape(-1)[:: tables.pitch + 1] = 0
        arrays = tables.device.arrays
        self.rise = arrays.zeros(tables.states, self.problem.dtype)
        self.sweeps = self.policies = 0

    def risen(self) -> tuple[float, float]:
        """The largest |F(d) - d| and F(d) of the table, once they are small enough."""
        p, top = self.problem, max(float(np.ptp(self.problem.reward)), 1e-300)
        with bar(1.0, "d~: digits of the error") as shown:
            while True:
                rise = self.sweep()
                top = max(top, rise)
                shown.at(digits(rise, max(p.least, UNIT), top), f"sweep {self.sweeps}")
                due = self.sweeps % EVERY == 0
                if due and rise > p.least and self.has_room:
                    self.follow()
                # Where a table rises by single roundings, it may do so for long.
                if rise <= p.least or (
                    due and rise <= ROUNDINGS * self._rounding(top / (1 - p.discount))
                ):
                    residual, largest = self.tables.proven(self.d)
                    error = proven_error(residual, largest, p.discount)
                    if rise == 0 or error <= self._goal(largest):
                        return residual, largest

    def _goal(self, largest: float) -> float:
        """The error to reach: what is allowed, or all that the table's numbers can be held to."""
        allowed = 2 * self.problem.least / (1 - self.problem.discount)
        unavoidable = self._rounding(largest) / (1 - self.problem.discount)
        return allowed if allowed >= unavoidable else 2 * unavoidable

    def _rounding(self, largest: float) -> float:
        """The rounding of such a number in the table."""
        return float(np.spacing(self.problem.dtype.type(largest)))

    def sweep(self) -> float:
        """max(d, F(d)); the largest rise."""
        t = self.tables
        t.launch(
            "sweep", (t.device.processors,), t.threads, self.d, self.fresh, t.next, t.reward,
            *t.discounts, t.states, t.apart, self.problem.num_actions, t.reach, t.held, self.rise,
            shared=t.shared,
        )  # fmt: skip
        t.mirror(self.fresh)
        self.d, self.fresh = self.fresh, self.d
        self.sweeps += 1
        rise = np.empty(1, self.problem.dtype)
        t.device.fetch(self.rise.max(keepdims=True), rise)
        return float(rise[0])

    @property
    def has_room(self) -> bool:
        """Whether the memory holds the steps of all pairs, twice."""
        return self.policies > 0 or 2.0 * self._steps_size <= self.tables.device.free

    def follow(self) -> None:
        """Raises the table to what its best actions are worth for ever."""
        t, p = self.tables, self.problem
        discount = weight = np.float64(p.discount)
        steps, further = (t.device.arrays.empty(self._steps_size, np.uint8) for _ in range(2))
        t.by_rows(
            "chosen", t.states, self.d, steps, t.next, t.reward64, discount, t.states, t.apart,
            p.num_actions, t.reach,
        )  # fmt: skip
        for _ in range(doublings(p.reward, p.discount, p.least)):
            blocks = (32 * t.device.processors,)
            t.launch("jumped", blocks, t.others, steps, further, weight, t.states)
            steps, further = further, steps
            weight = weight * weight
        safe = np.float64(1 - 64 * UNIT)
        t.by_rows("settled", t.states, self.d, self.fresh, steps, weight, safe, t.states, t.apart)
        t.mirror(self.fresh)
        self.d, self.fresh = self.fresh, self.d
        self.policies += 1

    @property
    def _steps_size(self) -> int:
        """Bytes of the steps of all pairs."""
        return 16 * self.tables.states * (self.tables.states // 2 + 1)


def by_predecessors(device: Device, problem: Problem) -> NDArray[np.int64] | None:
    """States with the fewest predecessors last, where shared memory does not hold a whole row."""
    beyond = problem.num_states - held(device, problem)
    if beyond <= 0:
        return None
    count = np.bincount(problem.successor.ravel(), minlength=problem.num_states)
    last = np.zeros(problem.num_states, np.bool_)
    last[np.argsort(count, kind="stable")[:beyond]] = True
    return np.argsort(last, kind="stable")
