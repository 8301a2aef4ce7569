"""The solvers of a sharded matrix: monotone iteration from below for d~, doubling for d^pi.

d~ is the optimal value function of the pair graph. A sweep is one Bellman update per pair, from the
previous matrix, so that the result is the same for any number of devices. For d^pi the first k
terms of the sum double in one pass.

Every few sweeps the greedy actions are evaluated: those of all pairs by pointer doubling, where one
process has all devices, CUDA kernels and enough memory, or else along paths. Sweeps by CUDA kernels
round down, and are followed by those of XLA, which prove the error.

The last sweep proves the error. With new = max(d, F(d)),

    -max(d - F(d)) <= F(new) - new <= discount * max(F(d) - d),

since F is monotone, so that F(new) >= F(d) >= new - max(d - F(d)), and a contraction, so that
F(new) <= F(d) + discount * max(new - d). A float32 matrix holds F(d) with one more rounding.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.cuda_devices import find_shard_devices
from bisimetric.exact.sharded.cuda_rows import RowKernels
from bisimetric.exact.sharded.cycle_evaluation import evaluate_cycles
from bisimetric.exact.sharded.exchange import ExchangePlan, plan_exchange
from bisimetric.exact.sharded.kernels import SweepStatistics, get_kernels
from bisimetric.exact.sharded.layout import CYCLE_EVALUATION_PERIOD, Layout, ShardedProblem
from bisimetric.exact.sharded.process_group import ProcessGroup

MAX_SMALL_SWEEPS = 4 * CYCLE_EVALUATION_PERIOD
"""Sweeps by CUDA kernels at increases near the precision floor, at most."""
FLOAT32_ROUNDOFF = 2.0**-24
"""The unit roundoff of float32."""
FLUSH_ERROR = 4 * float(np.finfo(np.float64).tiny)
"""The error of flushing subnormal numbers to 0, as XLA does."""


@dataclasses.dataclass(frozen=True)
class ShardedSolution:
    """A matrix over the devices, and what its last sweep proves.

    Attributes:
        values: the matrix, its rows split over the devices.
        residual: a bound on |F(d) - d|.
        max_value: the largest F(d).
        argmax: the row and column of the largest entry.
        details: method and counts, for the metadata.
    """

    values: jax.Array
    residual: float
    max_value: float
    argmax: tuple[int, int]
    details: dict[str, Any]


class ShardedRun:
    """The state of a run: its matrix, progress and checkpoint, and the one to resume from."""

    def __init__(
        self,
        group: ProcessGroup,
        layout: Layout,
        problem: ShardedProblem,
        checkpoint: Checkpoint | None,
        resume: Checkpoint | None = None,
        *,
        spare_bytes: float = 0.0,
    ) -> None:
        self.spare_bytes = spare_bytes
        self.group, self.layout, self.problem = group, layout, problem
        self.checkpoint, self.last_checkpoint = checkpoint, time.monotonic()
        self.kernels = get_kernels(group, layout, problem.discount)
        self.progress = dict.fromkeys(
            ("rounds", "sweeps", "cycle_evaluations", "policy_evaluations"), 0
        )
        self.d = self._initialise(resume)
        self.buffer = self.kernels.fill(0.0)

    def _initialise(self, resume: Checkpoint | None) -> jax.Array:
        if resume is not None:
            manifest = resume.read_manifest(self.group)
            self.progress = {**self.progress, **manifest["progress"]}
            return resume.read_values(self.group, self.layout, manifest)
        # There is one row per class: different ones are at a positive distance, however small.
        tiny = float(np.finfo(self.layout.dtype).tiny) if self.problem.discount > 0 else 0.0
        return self.kernels.fill(tiny)

    def write_checkpoint(self, due: bool) -> None:
        """Write a checkpoint if one is due."""
        if due and self.checkpoint is not None:
            self.checkpoint.write(self.group, self.layout, self.d, self.progress)
            self.last_checkpoint = time.monotonic()

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is due, by the clock of the first process."""
        return (
            self.checkpoint is not None
            and self.group.rank == 0
            and time.monotonic() - self.last_checkpoint >= self.checkpoint.checkpoint_every
        )


def solve(run: ShardedRun) -> ShardedSolution:
    """Compute d~, or d^pi if there is one action."""
    if run.problem.successor.shape[0] == 1:
        return _solve_by_doubling(run)
    problem, kernels, tolerance = run.problem, run.kernels, run.problem.residual_tolerance
    plan = plan_exchange(problem.successor, run.layout, run.group.local_devices)
    device_plan = kernels.place_plan(plan)
    successor, R = kernels.replicate(problem.successor), kernels.replicate(problem.reward)
    cost = kernels.place_cost(problem.compute_cost_rows)
    # Sweeps cannot reduce a residual below the precision floor; the proven error includes it.
    precision = 2 * FLOAT32_ROUNDOFF if run.layout.dtype == np.float32 else 0.0
    rows = create_row_kernels(run, plan)
    details = {
        "method": "sweeps, cycle evaluation",
        "sweep_kernel": "XLA" if rows is None else f"CUDA on {rows.name}",
        "received_rows": plan.max_received_rows,
    }

    def evaluate(statistics: SweepStatistics) -> None:
        run.d = evaluate_cycles(kernels, run.d, statistics, tolerance, successor, R, cost)
        run.progress["cycle_evaluations"] += 1

    with show_progress(1.0, "d~: digits of the error") as progress:

        def report(increase: float, target: float, largest: float) -> None:
            progress.set_position(
                convergence_fraction(increase, target, max(largest, target)),
                f"sweep {run.progress['sweeps']}",
            )

        num_small = 0
        while rows is not None:
            increase, largest, due = rows.sweep(
                run.d, run.buffer, device_plan, cost, run.checkpoint_due
            )
            run.d, run.buffer = run.buffer, run.d
            run.progress["sweeps"] += 1
            is_due = run.progress["sweeps"] % CYCLE_EVALUATION_PERIOD == 0
            target = max(tolerance, precision * largest)
            num_small = 0 if increase > target else num_small + 1
            # These sweeps round down, and the ones that prove the error, which are slower, to
            # nearest; they need few if little increases here.
            if increase <= max(tolerance, target / 2) or num_small == MAX_SMALL_SWEEPS:
                run.buffer = kernels.clear(run.buffer)
                break
            if is_due and num_small == 0:
                if rows.can_evaluate_policy:
                    rows.evaluate_policy(run.d, run.buffer, cost)
                    run.d, run.buffer = run.buffer, run.d
                    run.progress["policy_evaluations"] += 1
                else:
                    evaluate(kernels.compare(run.buffer, run.d, locate=True))
            report(increase, target, largest)
            run.write_checkpoint(due)
        while True:
            run.buffer = kernels.sweep(run.d, run.buffer, device_plan, successor, R, cost)
            run.progress["sweeps"] += 1
            with_cycles = run.progress["sweeps"] % CYCLE_EVALUATION_PERIOD == 0
            run.buffer, run.d, statistics = kernels.finish_sweep(
                run.d, run.buffer, locate=with_cycles, checkpoint_due=run.checkpoint_due
            )
            increase, largest = statistics.max_increase, statistics.max_value
            target = max(tolerance, precision * largest)
            if not increase > target:
                break
            if with_cycles:
                evaluate(statistics)
            report(increase, target, largest)
            run.write_checkpoint(statistics.checkpoint_due)
    if run.progress["policy_evaluations"]:
        details["method"] = "sweeps, policy evaluation"
    return _build_solution(run, statistics, details)


def create_row_kernels(run: ShardedRun, plan: ExchangePlan) -> RowKernels | None:
    """Return the CUDA kernels of a run, or None if a process has a device that cannot run them."""
    devices = find_shard_devices(run.group)
    if not all(run.group.all_gather(len(devices) > 0)):
        return None
    return RowKernels(run.kernels, run.problem, plan, devices, run.spare_bytes)


def _solve_by_doubling(run: ShardedRun) -> ShardedSolution:
    """Compute d^pi by d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)).

    n_k(s) is the state after k steps.
    """
    problem, kernels, local = run.problem, run.kernels, run.group.local_devices
    rounds = count_doublings(problem.largest_gap, problem.discount, problem.residual_tolerance)
    plan = plan_exchange(problem.successor, run.layout, local)
    R = kernels.replicate(problem.reward)
    successor = kernels.replicate(problem.successor)
    cost = kernels.place_cost(problem.compute_cost_rows)
    received = plan.max_received_rows
    with show_progress(rounds + 2, "doublings") as progress:
        if run.progress["rounds"] == 0:
            # A sweep from 0 gives the first term.
            run.d = kernels.clear(run.d)
            device_plan = kernels.place_plan(plan)
            run.buffer = kernels.sweep(run.d, run.buffer, device_plan, successor, R, cost)
            run.d, run.buffer = run.buffer, run.d
            run.progress["rounds"] = 1
        after_k, weight = problem.successor, problem.discount
        for number in range(1, rounds + 1):
            if number >= run.progress["rounds"]:
                doubling = plan_exchange(after_k, run.layout, local)
                received += doubling.max_received_rows
                run.buffer = kernels.double(
                    run.d,
                    run.buffer,
                    kernels.place_plan(doubling),
                    kernels.replicate(after_k),
                    kernels.replicate(np.array(weight)),
                )
                run.d, run.buffer = run.buffer, run.d
                run.progress["rounds"] = number + 1
                progress.set_position(number)
                run.write_checkpoint(max(run.group.all_gather(run.checkpoint_due)))
            after_k, weight = after_k[:, after_k[0]], weight * weight
        run.buffer = kernels.clear(run.buffer)
        device_plan = kernels.place_plan(plan)
        run.buffer = kernels.sweep(run.d, run.buffer, device_plan, successor, R, cost)
        run.buffer, run.d, statistics = kernels.finish_sweep(
            run.d, run.buffer, locate=False, checkpoint_due=False
        )
    return _build_solution(run, statistics, {"method": "doubling", "received_rows": received})


def _build_solution(
    run: ShardedRun, statistics: SweepStatistics, details: dict[str, Any]
) -> ShardedSolution:
    """Bound the residual of the final matrix by the last sweep; see the module's docstring."""
    residual = (
        max(run.problem.discount * statistics.max_increase, statistics.max_decrease, 0.0)
        + run.problem.rounding_bound
        + FLUSH_ERROR
    )
    if run.layout.dtype == np.float32:
        residual += FLOAT32_ROUNDOFF * statistics.max_value + float(np.finfo(np.float32).tiny)
    counts = {name: number for name, number in run.progress.items() if number}
    argmax = run.kernels.argmax(run.d)
    return ShardedSolution(run.d, residual, statistics.max_value, argmax, {**details, **counts})
