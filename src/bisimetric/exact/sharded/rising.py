"""d~ of a sharded table: lower bounds that rise by sweeps and leaps. d^pi: doubled, swept once.

d~ is the optimal value function of the pair graph. Every sweep gives every pair its best action
once, from the table before it, so that the answer is the same for any number of devices; every
few sweeps the best actions are followed into their cycles (`leaps.py`). For d^pi the first k terms
of the sum double in one pass.

The last sweep proves the error. With new = max(d, F(d)),

    |F(new) - new| <= discount * max(F(d) - d) + max(d - F(d)),

since F is a contraction and monotone; in float32 new also differs from its F(d) by one rounding.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from bisimetric.exact.sharded import leaps
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.exchange import planned
from bisimetric.exact.sharded.group import Group
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.problem import Problem
from bisimetric.exact.sharded.programs import Tally, compiled
from bisimetric.planning import UNIT
from bisimetric.progress import bar, digits

SINGLE = 2.0**-24
"""The unit roundoff of float32."""


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
        self.travelled = 0

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
    tally: Tally
    with bar(1.0, "d~: digits of the error") as shown:
        while True:
            run.fresh = programs.swept(run.d, run.fresh, orders, successor, R)
            run.progress["sweeps"] += 1
            leaping = run.progress["sweeps"] % leaps.EVERY == 0
            run.fresh, run.d, tally = programs.closed(
                run.d, run.fresh, least, seek=leaping, due=run.due
            )
            if tally.rose == 0:
                break
            if leaping:
                run.d = leaps.leapt(programs, run.d, tally, least, successor, R)
                run.progress["leaps"] += 1
            shown.at(
                digits(tally.up, least, max(tally.largest, least)),
                f"sweep {run.progress['sweeps']}",
            )
            run.keep(tally.due)
    return _proven(run, tally, {"method": "sweep, leap", "rows received": plan.rows})


def _doubled(run: Run) -> Solved:
    """d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)), n_k(s) the state after k steps."""
    p, programs = run.problem, run.programs
    # What is left out after k terms is at most discount^k times the largest distance.
    small = p.least * (1 - p.discount) / max(float(np.ptp(p.reward)), 1e-300)
    enough = max(min(small, 1.0), UNIT)
    terms = 1.0 if p.discount == 0 else max(1.0, math.log(enough) / math.log(p.discount))
    rounds = math.ceil(math.log2(terms))
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
        run.fresh, run.d, tally = programs.closed(run.d, run.fresh, p.least, seek=False, due=False)
    return _proven(run, tally, {"method": "doubling", "rows received": received})


def _proven(run: Run, tally: Tally, how: dict[str, Any]) -> Solved:
    residual = run.problem.discount * max(tally.up, 0.0) + max(tally.down, 0.0)
    if run.layout.dtype == np.float32:
        residual += SINGLE * tally.largest + float(np.finfo(np.float32).tiny)
    counted = {name: number for name, number in run.progress.items() if number}
    farthest = run.programs.farthest(run.d)
    return Solved(run.d, residual, tally.largest, farthest, {**how, **counted})
