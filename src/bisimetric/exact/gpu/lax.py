"""d_lax on a GPU: value iteration, with policy evaluation of both players' greedy choices.

A sweep computes the Hausdorff distance of the actions of every pair from the matrix before it:
first one direction per row, then the larger of the two. Every few sweeps the greedy choices of both
players are evaluated by pointer doubling (a Newton step; Pollatschek & Avi-Itzhak 1969). In games
such a step may diverge: after each one without gain, twice as many sweeps precede the next. Value
iteration converges from any matrix, so that the whole does. A separate pass in float64 proves the
error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu import cuda
from bisimetric.exact.gpu.bisimulation import order_by_predecessors
from bisimetric.exact.gpu.cuda import GpuDevice
from bisimetric.exact.gpu.workspace import (
    GpuWorkspace,
    launch_kernel,
    require_device_memory,
    solve_matrix,
)

FIRST_INTERVAL = 48
"""Sweeps before the first two policy evaluations: fewer leave more steps without gain."""
MAX_GROUPS = {4: 8, 8: 10}
"""Groups of columns in the registers of a thread of a sweep, by the bytes of a number."""
GROUP_BYTES = 16
"""Bytes of columns that a thread reads at once."""
LIMIT_WINDOW = 1024
"""Sweeps over which the rate of convergence is measured."""


def solve(problem: DeterministicProblem, device: GpuDevice | None = None) -> SolverResult:
    """Compute d_lax."""
    device = cuda.find_device() if device is None else device
    require_device_memory(device, problem)
    order = order_by_predecessors(device, problem)
    return solve_matrix(LaxIteration(GpuWorkspace(device, problem, order, compare_actions=True)))


class LaxIteration:
    """The matrix d, and that of the next sweep."""

    def __init__(self, workspace: GpuWorkspace) -> None:
        self.workspace, self.problem = workspace, workspace.problem
        p, width = self.problem, GROUP_BYTES // self.problem.dtype.itemsize
        self.d, self.backup = workspace.allocate_matrix(), workspace.allocate_matrix()
        groups = math.ceil(p.num_states / (width * workspace.sweep_threads))
        self.kernels = workspace.device.compile(
            cuda.LAX_KERNELS,
            GROUPS=min(groups, MAX_GROUPS[p.dtype.itemsize]),
            HAS_CLASSES=int(bool(p.classes.any())),
            **workspace.macros,
        )
        self.classes = workspace.upload(p.classes, np.int32)
        self.diameter, self.discount = np.float64(p.diameter_bound), np.float64(p.discount)
        self.num_sweeps = self.num_evaluations = 0

    def run(self) -> tuple[float, float]:
        """Iterate until the error is small enough; return the largest |F(d) - d| and F(d)."""
        p, interval, since, previous = self.problem, FIRST_INTERVAL, 0, math.inf
        precision_floor = 2 * float(np.finfo(p.dtype).eps)
        evaluating, limit = True, SweepLimit(LIMIT_WINDOW)
        with show_progress(1.0, "d_lax: digits of the error") as progress:
            while True:
                residual, largest = self.sweep()
                since += 1
                floor = precision_floor * largest
                tolerance = max(p.residual_tolerance, floor)
                if residual <= tolerance:
                    proven, largest = self.compute_residual()
                    if proven <= tolerance or residual <= floor:
                        return proven, largest
                elif limit.is_exceeded(self.num_sweeps, residual, tolerance):
                    if not evaluating:
                        return self.compute_residual()
                    evaluating, limit = False, SweepLimit(LIMIT_WINDOW)
                elif evaluating and since >= interval:
                    if residual > previous * p.discount**since:
                        interval *= 2
                    previous, since = residual, 0
                    evaluating = self.num_evaluations > 0 or self.workspace.can_evaluate_policy
                    if evaluating:
                        self.evaluate_choices()
                progress.set_position(
                    convergence_fraction(residual, tolerance, largest), f"sweep {self.num_sweeps}"
                )

    def sweep(self) -> tuple[float, float]:
        """Set d to F(d); return the largest |F(d) - d| and F(d)."""
        t, arrays = self.workspace, self.workspace.device.arrays
        self._launch(
            "sweep_lax", (t.device.num_multiprocessors,), t.sweep_threads, self.d, self.backup,
            t.successor, t.reward, *t.plan, *t.discounts, t.num_states, t.kernel_pitch,
            self.problem.num_actions, t.padded_length, t.cached_columns,
            shared_bytes=t.shared_bytes,
        )  # fmt: skip
        maxima = arrays.zeros(2, np.float64)
        self._launch(
            "combine_directions", t.tile_grid, t.block_threads, self.d, self.backup, t.cost,
            self.classes, self.diameter, t.num_states, t.kernel_pitch, maxima[:1], maxima[1:],
        )  # fmt: skip
        self.d, self.backup = self.backup, self.d
        self.num_sweeps += 1
        return self._fetch_maxima(maxima)

    def evaluate_choices(self) -> None:
        """Set d to the infinite-horizon value of the greedy choices of both players."""
        t = self.workspace

        def select(steps: Any) -> None:
            grid = math.ceil(t.num_states / 256), min(t.num_states, 2**15)
            self._launch(
                "select_choices", grid, t.block_threads, self.d, steps, t.successor, t.reward64,
                t.cost, self.classes, self.diameter, self.discount, t.num_states, t.kernel_pitch,
                self.problem.num_actions, t.padded_length,
            )  # fmt: skip

        t.evaluate_policy(select, self.d, self.backup, keep_larger=False)
        self.d, self.backup = self.backup, self.d
        self.num_evaluations += 1

    def compute_residual(self) -> tuple[float, float]:
        """Return the largest |F(d) - d| and F(d), in float64."""
        t, maxima = self.workspace, self.workspace.device.arrays.zeros(2, np.float64)
        self._launch(
            "compute_lax_residual", (8 * t.device.num_multiprocessors,), t.block_threads, self.d,
            t.successor, t.reward64, t.cost, self.classes, self.diameter, self.discount,
            t.num_states, t.kernel_pitch, self.problem.num_actions, t.padded_length, maxima[:1],
            maxima[1:],
        )  # fmt: skip
        return self._fetch_maxima(maxima)

    def _fetch_maxima(self, maxima: Any) -> tuple[float, float]:
        residual, largest = self.workspace.device.fetch(maxima, np.empty(2))
        return float(residual), float(largest)

    def _launch(self, name: str, *arguments: Any, shared_bytes: int = 0) -> None:
        launch_kernel(self.kernels, name, *arguments, shared_bytes=shared_bytes)
