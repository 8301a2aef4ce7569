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

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult, bound_error
from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import cuda, on_policy
from bisimetric.exact.gpu.cuda import GpuDevice
from bisimetric.exact.gpu.workspace import GpuWorkspace, count_cached_columns, require_device_memory

SWEEPS_PER_EVALUATION = 8
"""Sweeps between policies."""
MAX_ROUNDING_STEPS = 2
"""A rise of at most so many is worth a proof."""


def solve(problem: DeterministicProblem, device: GpuDevice | None = None) -> SolverResult:
    """The table of d~."""
    device = cuda.find_device() if device is None else device
    if problem.num_actions == 1:
        return on_policy.solve(problem, device)
    require_device_memory(device, problem)
    rising = BisimulationIteration(
        GpuWorkspace(device, problem, order_by_predecessors(device, problem))
    )
    residual, largest = rising.run()
    how = {
        "method": "policy iteration, sweep" if rising.num_evaluations else "sweep",
        "sweeps": rising.num_sweeps,
        "policies": rising.num_evaluations,
        "device": device.name,
    }
    return SolverResult(
        rising.workspace.fetch_matrix(rising.d, rising.backup), residual, largest, how
    )


class BisimulationIteration:
    """The table that rises, and the one that it becomes."""

    def __init__(self, tables: GpuWorkspace) -> None:
        self.workspace, self.problem = tables, tables.problem
        self.d, self.backup = tables.allocate_matrix(), tables.allocate_matrix()
        if self.problem.discount > 0:
            # Rows are one state a class: different ones are not at distance 0, however small it is.
            self.d += np.finfo(self.problem.dtype).tiny
            self.d.reshape(-1)[:: tables.pitch + 1] = 0
        arrays = tables.device.arrays
        self.row_increase = arrays.zeros(tables.num_states, self.problem.dtype)
        self.num_sweeps = self.num_evaluations = 0

    def run(self) -> tuple[float, float]:
        """The largest |F(d) - d| and F(d) of the table, once they are small enough."""
        p, top = self.problem, max(float(np.ptp(self.problem.reward)), 1e-300)
        with show_progress(1.0, "d~: digits of the error") as shown:
            while True:
                rise = self.sweep()
                top = max(top, rise)
                shown.set_position(
                    convergence_fraction(rise, max(p.residual_tolerance, UNIT), top),
                    f"sweep {self.num_sweeps}",
                )
                due = self.num_sweeps % SWEEPS_PER_EVALUATION == 0
                if due and rise > p.residual_tolerance and self.can_evaluate_policy:
                    self.evaluate_policy()
                # Where a table rises by single roundings, it may do so for long.
                if rise <= p.residual_tolerance or (
                    due and rise <= MAX_ROUNDING_STEPS * self._rounding_unit(top / (1 - p.discount))
                ):
                    residual, largest = self.workspace.compute_residual(self.d)
                    error = bound_error(residual, largest, p.discount)
                    if rise == 0 or error <= self._target_error(largest):
                        return residual, largest

    def _target_error(self, largest: float) -> float:
        """The error to reach: what is allowed, or all that the table's numbers can be held to."""
        allowed = 2 * self.problem.residual_tolerance / (1 - self.problem.discount)
        unavoidable = self._rounding_unit(largest) / (1 - self.problem.discount)
        return allowed if allowed >= unavoidable else 2 * unavoidable

    def _rounding_unit(self, largest: float) -> float:
        """The rounding of such a number in the table."""
        return float(np.spacing(self.problem.dtype.type(largest)))

    def sweep(self) -> float:
        """max(d, F(d)); the largest rise."""
        t = self.workspace
        t.launch(
            "sweep", (t.device.processors,), t.sweep_threads, self.d, self.backup, t.successor, t.reward,
            *t.discounts, t.num_states, t.kernel_pitch, self.problem.num_actions, t.padded_length, t.cached_columns, self.row_increase,
            shared=t.shared_bytes,
        )  # fmt: skip
        t.mirror(self.backup)
        self.d, self.backup = self.backup, self.d
        self.num_sweeps += 1
        rise = np.empty(1, self.problem.dtype)
        t.device.fetch(self.row_increase.max(keepdims=True), rise)
        return float(rise[0])

    @property
    def can_evaluate_policy(self) -> bool:
        """Whether the memory holds the steps of all pairs, twice."""
        return self.num_evaluations > 0 or 2.0 * self._steps_bytes <= self.workspace.device.free

    def evaluate_policy(self) -> None:
        """Raises the table to what its best actions are worth for ever."""
        t, p = self.workspace, self.problem
        discount = weight = np.float64(p.discount)
        steps, further = (t.device.arrays.empty(self._steps_bytes, np.uint8) for _ in range(2))
        t.launch_rows(
            "chosen", t.num_states, self.d, steps, t.successor, t.reward64, discount, t.num_states, t.kernel_pitch,
            p.num_actions, t.padded_length,
        )  # fmt: skip
        for _ in range(count_doublings(p.reward, p.discount, p.residual_tolerance)):
            blocks = (32 * t.device.processors,)
            t.launch("jumped", blocks, t.block_threads, steps, further, weight, t.num_states)
            steps, further = further, steps
            weight = weight * weight
        safe = np.float64(1 - 64 * UNIT)
        t.launch_rows(
            "settled",
            t.num_states,
            self.d,
            self.backup,
            steps,
            weight,
            safe,
            t.num_states,
            t.kernel_pitch,
        )
        t.mirror(self.backup)
        self.d, self.backup = self.backup, self.d
        self.num_evaluations += 1

    @property
    def _steps_bytes(self) -> int:
        """Bytes of the steps of all pairs."""
        return 16 * self.workspace.num_states * (self.workspace.num_states // 2 + 1)


def order_by_predecessors(
    device: GpuDevice, problem: DeterministicProblem
) -> NDArray[np.int64] | None:
    """States with the fewest predecessors last, where shared memory does not hold a whole row."""
    beyond = problem.num_states - count_cached_columns(device, problem)
    if beyond <= 0:
        return None
    count = np.bincount(problem.successor.ravel(), minlength=problem.num_states)
    last = np.zeros(problem.num_states, np.bool_)
    last[np.argsort(count, kind="stable")[:beyond]] = True
    return np.argsort(last, kind="stable")
