"""d~ on a GPU: monotone iteration from below, by Bellman sweeps and policy evaluation.

A sweep is one Bellman update per pair, from the matrix before it. Every few sweeps the greedy
actions, a policy of the pair graph, are evaluated: the number of steps of all pairs doubles until
the truncation error is negligible (policy iteration by pointer doubling). The result does not
depend on the order in which the GPU runs its threads. A separate pass in float64 proves the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SolverResult, bound_error
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import cuda, on_policy
from bisimetric.exact.gpu.cuda import GpuDevice
from bisimetric.exact.gpu.workspace import (
    GpuWorkspace,
    count_cached_columns,
    require_device_memory,
    solve_matrix,
)

SWEEPS_PER_EVALUATION = 8
"""Sweeps between policy evaluations."""
MAX_ROUNDING_STEPS = 2
"""The residual is computed once increases are at most this many units of rounding."""


def solve(problem: DeterministicProblem, device: GpuDevice | None = None) -> SolverResult:
    """Compute d~."""
    device = cuda.find_device() if device is None else device
    if problem.num_actions == 1:
        return on_policy.solve(problem, device)
    require_device_memory(device, problem)
    order = order_by_predecessors(device, problem)
    return solve_matrix(BisimulationIteration(GpuWorkspace(device, problem, order)))


class BisimulationIteration:
    """The lower bounds d, and the matrix of the next ones."""

    def __init__(self, workspace: GpuWorkspace) -> None:
        self.workspace, self.problem = workspace, workspace.problem
        self.d, self.backup = workspace.allocate_matrix(), workspace.allocate_matrix()
        if self.problem.discount > 0:
            # States of different classes are not at distance 0, however small it is.
            self.d += np.finfo(self.problem.dtype).tiny
            self.d.reshape(-1)[:: workspace.pitch + 1] = 0
        arrays = workspace.device.arrays
        self.block_increase = arrays.zeros(workspace.device.num_multiprocessors, self.problem.dtype)
        self.num_sweeps = self.num_evaluations = 0

    def run(self) -> tuple[float, float]:
        """Iterate until the error is small enough; return the largest |F(d) - d| and F(d)."""
        p, largest_increase = self.problem, max(self.problem.largest_gap, 1e-300)
        with show_progress(1.0, "d~: digits of the error") as progress:
            while True:
                increase = self.sweep()
                largest_increase = max(largest_increase, increase)
                progress.set_position(
                    convergence_fraction(
                        increase, max(p.residual_tolerance, UNIT), largest_increase
                    ),
                    f"sweep {self.num_sweeps}",
                )
                is_due = self.num_sweeps % SWEEPS_PER_EVALUATION == 0
                if is_due and increase > p.residual_tolerance and self.can_evaluate_policy:
                    self.evaluate_policy()
                # Increases by single units of rounding may take long to end.
                if increase <= p.residual_tolerance or (
                    is_due
                    and increase
                    <= MAX_ROUNDING_STEPS * self._rounding_unit(largest_increase / (1 - p.discount))
                ):
                    residual, largest = self.workspace.compute_residual(self.d)
                    error = bound_error(residual, largest, p.discount)
                    if increase == 0 or error <= self._target_error(largest):
                        return residual, largest

    def _target_error(self, largest: float) -> float:
        """Return the error to reach: the allowed one, or the precision floor of the dtype."""
        allowed = 2 * self.problem.residual_tolerance / (1 - self.problem.discount)
        unavoidable = self._rounding_unit(largest) / (1 - self.problem.discount)
        return allowed if allowed >= unavoidable else 2 * unavoidable

    def _rounding_unit(self, largest: float) -> float:
        """Return the unit of rounding of a number in the matrix."""
        return float(np.spacing(self.problem.dtype.type(largest)))

    def sweep(self) -> float:
        """Set d to max(d, F(d)); return the largest increase."""
        t = self.workspace
        t.launch(
            "sweep", (t.device.num_multiprocessors,), t.sweep_threads, self.d, self.d, self.backup,
            t.successor, t.reward, t.cost, *t.plan, *t.discounts, t.num_states, 0, t.num_states,
            t.num_states // 2, t.kernel_pitch, self.problem.num_actions, t.padded_length,
            t.cached_columns, self.block_increase, shared_bytes=t.shared_bytes,
        )  # fmt: skip
        t.mirror(self.backup)
        self.d, self.backup = self.backup, self.d
        self.num_sweeps += 1
        increase = t.device.fetch(
            self.block_increase.max(keepdims=True), np.empty(1, self.problem.dtype)
        )
        return float(increase[0])

    @property
    def can_evaluate_policy(self) -> bool:
        """Whether the steps of all pairs fit into memory, twice."""
        return self.num_evaluations > 0 or self.workspace.can_evaluate_policy

    def evaluate_policy(self) -> None:
        """Raise d to the infinite-horizon value of its greedy actions."""
        t, p = self.workspace, self.problem

        def select(steps: Any) -> None:
            t.launch_rows(
                "select_actions", t.num_states, self.d, steps, t.successor, t.reward64, t.cost,
                np.float64(p.discount), t.num_states, t.kernel_pitch, p.num_actions,
                t.padded_length,
            )  # fmt: skip

        t.evaluate_policy(select, self.d, self.backup, keep_larger=True)
        self.d, self.backup = self.backup, self.d
        self.num_evaluations += 1


def order_by_predecessors(
    device: GpuDevice, problem: DeterministicProblem
) -> NDArray[np.int64] | None:
    """Order states with the fewest predecessors last, where a row exceeds the shared memory."""
    num_uncached = problem.num_states - count_cached_columns(device, problem)
    if num_uncached <= 0:
        return None
    num_predecessors = np.bincount(problem.successor.ravel(), minlength=problem.num_states)
    is_uncached = np.zeros(problem.num_states, np.bool_)
    is_uncached[np.argsort(num_predecessors, kind="stable")[:num_uncached]] = True
    return np.argsort(is_uncached, kind="stable")
