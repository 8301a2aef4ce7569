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

from bisimetric.exact.deterministic.doubling import doublings
from bisimetric.exact.sharded import leaps
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.exchange import planned
from bisimetric.exact.sharded.group import Group
from bisimetric.exact.sharded.layout import LEAP_EVERY, Layout
from bisimetric.exact.sharded.problem import Problem
from bisimetric.exact.sharded.programs import Tally, compiled
from bisimetric.progress import bar, digits

SINGLE = 2.0**-24
"""The unit roundoff of float32."""
FLUSHED = 4 * float(np.finfo(np.float64).tiny)
"""What is lost where numbers too small for a full mantissa count as 0, as XLA has it."""


@dataclasses.dataclass(frozen=True)
class Solved:
    """A table over the devices, and what its last sweep proves of it.

    Attributes:
        residual: a bound on |F(d) - d|.
        largest: the largest F(d).
        farthest: the row and column of the largest entry.
    """

    table: jax.Array
    residual: float
    largest: float
    farthest: tuple[int, int]
    how: dict[str, Any]


class Run:
    """A run: its table, how far it has come, and when it was kept last."""

    def __init__(
        self, group: Group, layout: Layout, problem: Problem, checkpoint: Checkpoint | None
    ) -> None:
        self.group, self.layout, self.problem = group, layout, problem
        self.checkpoint, self.kept = checkpoint, time.monotonic()
        self.programs = compiled(group, layout, problem.discount)
        self.progress = {"rounds": 0, "sweeps": 0, "leaps": 0}
        self.d = self._start()
        self.fresh = self.programs.filled(0.0)

    def _start(self) -> jax.Array:
        manifest = None if self.checkpoint is None else self.checkpoint.found(self.group)
        if manifest is not None and self.checkpoint is not None:
            self.progress = {**self.progress, **manifest["progress"]}
            return self.checkpoint.table(self.group, self.layout, manifest)
        # Rows are one state a class: different ones are not at distance 0, however small it is.
        tiny = float(np.finfo(self.layout.dtype).tiny) if self.problem.discount > 0 else 0.0
        return self.programs.filled(tiny)

    def keep(self, asked: bool) -> None:
        """Writes a checkpoint where one is due."""
        if asked and self.checkpoint is not None:
            self.checkpoint.write(self.group, self.layout, self.d, self.progress)
            self.kept = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint, by the clock of the first process."""
        return (
            self.checkpoint is not None
            and self.group.index == 0
            and time.monotonic() - self.kept >= self.checkpoint.every
        )


def solve(run: Run) -> Solved:
    """d~, or with one action d^pi."""
    if run.problem.successor.shape[0] == 1:
        return _doubled(run)
    p, programs, least = run.problem, run.programs, run.problem.least
    plan = planned(p.successor, run.layout, run.group.own)
    orders = programs.orders(plan)
    successor, R = programs.everywhere(p.successor), programs.everywhere(p.reward)
    # Below the grain of the table no sweep can help; the proven error then says so.
    grain = 2 * SINGLE if run.layout.dtype == np.float32 else 0.0
    with bar(1.0, "d~: digits of the error") as shown:
        while True:
            run.fresh = programs.swept(run.d, run.fresh, orders, successor, R)
            run.progress["sweeps"] += 1
            leaping = run.progress["sweeps"] % LEAP_EVERY == 0
            run.fresh, run.d, tally = programs.closed(run.d, run.fresh, seek=leaping, due=run.due)
            small = max(least, grain * tally.largest)
            if not tally.up > small:
                break
            if leaping:
                run.d = leaps.leapt(programs, run.d, tally, least, successor, R)
                run.progress["leaps"] += 1
            shown.at(
                digits(tally.up, small, max(tally.largest, small)),
                f"sweep {run.progress['sweeps']}",
            )
            run.keep(tally.due)
    return _proven(run, tally, {"method": "sweep, leap", "received": plan.rows})


def _doubled(run: Run) -> Solved:
    """d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)), n_k(s) the state after k steps."""
    p, programs = run.problem, run.programs
    rounds = doublings(p.reward, p.discount, p.least)
    plan = planned(p.successor, run.layout, run.group.own)
    R = programs.everywhere(p.reward)
    successor = programs.everywhere(p.successor)
    received = plan.rows
    with bar(rounds + 2, "doublings") as shown:
        if run.progress["rounds"] == 0:
            # From 0 a sweep gives the first term.
            run.d = programs.cleared(run.d)
            run.fresh = programs.swept(run.d, run.fresh, programs.orders(plan), successor, R)
            run.d, run.fresh = run.fresh, run.d
            run.progress["rounds"] = 1
        ahead, weight = p.successor, p.discount
        for done in range(1, rounds + 1):
            if done >= run.progress["rounds"]:
                step = planned(ahead, run.layout, run.group.own)
                received += step.rows
                run.fresh = programs.doubled(
                    run.d,
                    run.fresh,
                    programs.orders(step),
                    programs.everywhere(ahead),
                    programs.everywhere(np.array(weight)),
                )
                run.d, run.fresh = run.fresh, run.d
                run.progress["rounds"] = done + 1
                shown.at(done)
                run.keep(max(run.group.hear(run.due)))
            ahead, weight = ahead[:, ahead[0]], weight * weight
        run.fresh = programs.cleared(run.fresh)
        run.fresh = programs.swept(run.d, run.fresh, programs.orders(plan), successor, R)
        run.fresh, run.d, tally = programs.closed(run.d, run.fresh, seek=False, due=False)
    return _proven(run, tally, {"method": "doubling", "received": received})


def _proven(run: Run, tally: Tally, how: dict[str, Any]) -> Solved:
    residual = max(run.problem.discount * tally.up, tally.down, 0.0) + run.problem.doubt + FLUSHED
    if run.layout.dtype == np.float32:
        residual += SINGLE * tally.largest + float(np.finfo(np.float32).tiny)
    counted = {name: number for name, number in run.progress.items() if number}
    farthest = run.programs.farthest(run.d)
    return Solved(run.d, residual, tally.largest, farthest, {**how, **counted})
