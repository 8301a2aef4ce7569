"""d~ of a sharded table: lower bounds that rise by sweeps and leaps. d^pi: doubled, swept once.

d~ is the optimal value function of the pair graph. Every sweep gives every pair its best action
once, from the table before it, so that the answer is the same for any number of devices; every
few sweeps the best actions are followed into their cycles (`leaps.py`). For d^pi the first k terms
of the sum double in one pass.

The last sweep proves the error. With new = max(d, F(d)),

    -max(d - F(d)) <= F(new) - new <= discount * max(F(d) - d),

since F is monotone, so that F(new) >= F(d) >= new - max(d - F(d)), and a contraction, so that
F(new) <= F(d) + discount * max(new - d). In float32 the table holds F(d) with one rounding more.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.sharded import leaps
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.exchange import plan_exchange
from bisimetric.exact.sharded.group import ProcessGroup
from bisimetric.exact.sharded.layout import CYCLE_EVALUATION_PERIOD, Layout
from bisimetric.exact.sharded.problem import ShardedProblem
from bisimetric.exact.sharded.programs import SweepStatistics, get_kernels
from bisimetric.progress import convergence_fraction, show_progress

FLOAT32_ROUNDOFF = 2.0**-24
"""The unit roundoff of float32."""
FLUSH_ERROR = 4 * float(np.finfo(np.float64).tiny)
"""What is lost where numbers too small for a full mantissa count as 0, as XLA has it."""


@dataclasses.dataclass(frozen=True)
class ShardedSolution:
    """A table over the devices, and what its last sweep proves of it.

    Attributes:
        residual: a bound on |F(d) - d|.
        largest: the largest F(d).
        farthest: the row and column of the largest entry.
    """

    values: jax.Array
    residual: float
    max_value: float
    argmax: tuple[int, int]
    details: dict[str, Any]


class ShardedRun:
    """A run: its table, how far it has come, and when it was kept last."""

    def __init__(
        self,
        group: ProcessGroup,
        layout: Layout,
        problem: ShardedProblem,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.group, self.layout, self.problem = group, layout, problem
        self.checkpoint, self.last_checkpoint = checkpoint, time.monotonic()
        self.kernels = get_kernels(group, layout, problem.discount)
        self.progress = {"rounds": 0, "sweeps": 0, "leaps": 0}
        self.d = self._initialise()
        self.buffer = self.kernels.fill(0.0)

    def _initialise(self) -> jax.Array:
        manifest = None if self.checkpoint is None else self.checkpoint.find_manifest(self.group)
        if manifest is not None and self.checkpoint is not None:
            self.progress = {**self.progress, **manifest["progress"]}
            return self.checkpoint.read_values(self.group, self.layout, manifest)
        # Rows are one state a class: different ones are not at distance 0, however small it is.
        tiny = float(np.finfo(self.layout.dtype).tiny) if self.problem.discount > 0 else 0.0
        return self.kernels.fill(tiny)

    def write_checkpoint(self, due: bool) -> None:
        """Writes a checkpoint where one is due."""
        if due and self.checkpoint is not None:
            self.checkpoint.write(self.group, self.layout, self.d, self.progress)
            self.last_checkpoint = time.monotonic()

    @property
    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint, by the clock of the first process."""
        return (
            self.checkpoint is not None
            and self.group.rank == 0
            and time.monotonic() - self.last_checkpoint >= self.checkpoint.checkpoint_every
        )


def solve(run: ShardedRun) -> ShardedSolution:
    """d~, or with one action d^pi."""
    if run.problem.successor.shape[0] == 1:
        return _solve_by_doubling(run)
    p, programs, least = run.problem, run.kernels, run.problem.residual_tolerance
    plan = plan_exchange(p.successor, run.layout, run.group.local_devices)
    orders = programs.place_plan(plan)
    successor, R = programs.replicate(p.successor), programs.replicate(p.reward)
    # Below the grain of the table no sweep can help; the proven error then says so.
    grain = 2 * FLOAT32_ROUNDOFF if run.layout.dtype == np.float32 else 0.0
    with show_progress(1.0, "d~: digits of the error") as shown:
        while True:
            run.buffer = programs.sweep(run.d, run.buffer, orders, successor, R)
            run.progress["sweeps"] += 1
            leaping = run.progress["sweeps"] % CYCLE_EVALUATION_PERIOD == 0
            run.buffer, run.d, tally = programs.finish_sweep(
                run.d, run.buffer, locate=leaping, checkpoint_due=run.checkpoint_due
            )
            small = max(least, grain * tally.max_value)
            if not tally.max_increase > small:
                break
            if leaping:
                run.d = leaps.evaluate_cycles(programs, run.d, tally, least, successor, R)
                run.progress["leaps"] += 1
            shown.set_position(
                convergence_fraction(tally.max_increase, small, max(tally.max_value, small)),
                f"sweep {run.progress['sweeps']}",
            )
            run.write_checkpoint(tally.checkpoint_due)
    return _build_solution(
        run, tally, {"method": "sweep, leap", "received": plan.max_received_rows}
    )


def _solve_by_doubling(run: ShardedRun) -> ShardedSolution:
    """d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)), n_k(s) the state after k steps."""
    p, programs = run.problem, run.kernels
    rounds = count_doublings(p.reward, p.discount, p.residual_tolerance)
    plan = plan_exchange(p.successor, run.layout, run.group.local_devices)
    R = programs.replicate(p.reward)
    successor = programs.replicate(p.successor)
    received = plan.max_received_rows
    with show_progress(rounds + 2, "doublings") as shown:
        if run.progress["rounds"] == 0:
            # From 0 a sweep gives the first term.
            run.d = programs.clear(run.d)
            run.buffer = programs.sweep(run.d, run.buffer, programs.place_plan(plan), successor, R)
            run.d, run.buffer = run.buffer, run.d
            run.progress["rounds"] = 1
        ahead, weight = p.successor, p.discount
        for done in range(1, rounds + 1):
            if done >= run.progress["rounds"]:
                step = plan_exchange(ahead, run.layout, run.group.local_devices)
                received += step.max_received_rows
                run.buffer = programs.double(
                    run.d,
                    run.buffer,
                    programs.place_plan(step),
                    programs.replicate(ahead),
                    programs.replicate(np.array(weight)),
                )
                run.d, run.buffer = run.buffer, run.d
                run.progress["rounds"] = done + 1
                shown.set_position(done)
                run.write_checkpoint(max(run.group.all_gather(run.checkpoint_due)))
            ahead, weight = ahead[:, ahead[0]], weight * weight
        run.buffer = programs.clear(run.buffer)
        run.buffer = programs.sweep(run.d, run.buffer, programs.place_plan(plan), successor, R)
        run.buffer, run.d, tally = programs.finish_sweep(
            run.d, run.buffer, locate=False, checkpoint_due=False
        )
    return _build_solution(run, tally, {"method": "doubling", "received": received})


def _build_solution(
    run: ShardedRun, statistics: SweepStatistics, details: dict[str, Any]
) -> ShardedSolution:
    residual = (
        max(run.problem.discount * statistics.max_increase, statistics.max_decrease, 0.0)
        + run.problem.rounding_bound
        + FLUSH_ERROR
    )
    if run.layout.dtype == np.float32:
        residual += FLOAT32_ROUNDOFF * statistics.max_value + float(np.finfo(np.float32).tiny)
    counted = {name: number for name, number in run.progress.items() if number}
    farthest = run.kernels.argmax(run.d)
    return ShardedSolution(run.d, residual, statistics.max_value, farthest, {**details, **counted})
