"""Leaps: what the best actions are worth for ever, set at once instead of one discount a sweep.

From the pair of each row that rose most, the best actions by the table as it is are followed, all
pairs in step, until they run in cycles. Going round a cycle for ever is a policy, so its value is
a lower bound of d~, and so is that of the path which leads there; where a path ends before a
cycle is found, the table itself bounds what follows. Roundings go down. Whoever holds a row
answers for it.

d~ of a sharded table: lower bounds that rise by sweeps and leaps. d^pi: doubled, swept once.

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
import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._rounding import UNIT
from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.exchange import plan_exchange
from bisimetric.exact.sharded.kernels import (
    REPLICATED_SPEC,
    ROW_SPEC,
    Kernels,
    SweepStatistics,
    get_kernels,
    round_product,
)
from bisimetric.exact.sharded.layout import (
    CYCLE_EVALUATION_PERIOD,
    MAX_CYCLE_STEPS,
    Layout,
    ShardedProblem,
)
from bisimetric.exact.sharded.process_group import ROW_AXIS, ProcessGroup

MAX_PATHS = 2**14
"""Paths at a time."""
BYTES_PER_STEP = 16
"""Bytes that are kept of a step of a path: two states and a gap."""
NEGLIGIBLE_WEIGHT = 1e-9
"""What follows a path counts for nothing when it is discounted by this."""
DOWNWARD_FACTOR = 1 - 4 * UNIT
"""A sum of a gap and what follows it, times this, is not above the true one: three roundings."""


def choose_path_shape(layout: Layout, discount: float) -> tuple[int, int]:
    """How many paths, and how long; all that is kept of them fits into a block.

    >>> import numpy as np
    >>> from bisimetric.exact.sharded.layout import laid_out
    >>> shape_of(laid_out(100_000, 8, np.dtype("float32")), 0.99)
    (4096, 1024)
    """
    far = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE_WEIGHT) / math.log(discount))
    steps = max(1, min(MAX_CYCLE_STEPS, far))
    return max(
        1, min(layout.num_states, MAX_PATHS, layout.block_bytes // (BYTES_PER_STEP * steps))
    ), steps


def evaluate_cycles(
    kernels: Kernels,
    d: jax.Array,
    statistics: SweepStatistics,
    residual_tolerance: float,
    successor: jax.Array,
    R: jax.Array,
) -> jax.Array:
    """The table, raised along paths from the pairs that rose most in the last sweep."""
    paths, steps = choose_path_shape(kernels.layout, kernels.discount)
    local = functools.partial(
        _evaluate_cycles,
        paths=paths,
        steps=steps,
        discount=kernels.discount,
        states=kernels.layout.num_states,
    )
    takes = (ROW_SPEC, ROW_SPEC, ROW_SPEC, *[REPLICATED_SPEC] * 4)
    program = kernels.compile("leapt", local, takes, ROW_SPEC, donate=(0,))
    given = (
        statistics.row_increase,
        statistics.row_argmax,
        residual_tolerance,
        successor,
        R,
        np.int64(0),
    )
    return program(d, *given)


def _evaluate_cycles(
    d: Any, row_increase: Any, row_argmax: Any, residual_tolerance: Any, successor: Any, R: Any, zero: Any, *,
    paths: int, steps: int, discount: float, states: int,
) -> Any:  # fmt: skip
    height = d.shape[0]
    low = lax.axis_index(ROW_AXIS) * height

    def look_up(s: Any, t: Any) -> Any:
        """Entries of the whole table: one device has each, and the others add 0."""
        mine = (s >= low) & (s < low + height)
        found = d[jnp.where(mine, s - low, 0), t].astype(jnp.float64)
        return lax.psum(jnp.where(mine, found, 0.0), ROW_AXIS)

    def take_best_action(s: Any, t: Any) -> tuple[Any, Any, Any]:
        """The best action of each pair: its reward gap and where it leads."""
        gaps = jnp.abs(R[:, s] - R[:, t])
        to_s, to_t = successor[:, s], successor[:, t]
        ahead = round_product(discount * look_up(to_s, to_t), zero)
        best = (gaps + ahead).argmax(axis=0)
        return tuple(  # type: ignore[return-value]
            jnp.take_along_axis(each, best[None], axis=0)[0] for each in (gaps, to_s, to_t)
        )

    def is_unfinished(state: Any) -> Any:
        return (state[0] < steps) & jnp.any(state[1]["cycle"] == 0)

    def forward(state: Any) -> Any:
        """One step of all paths; Brent's search for cycles, with a mark at powers of 2."""
        k, at, path = state
        gap, s, t = take_best_action(at["s"], at["t"])
        path = {
            "s": path["s"].at[k].set(at["s"]),
            "t": path["t"].at[k].set(at["t"]),
            "gap": path["gap"].at[k].set(gap),
        }
        length = at["length"] + 1
        back = (s == at["mark_s"]) & (t == at["mark_t"]) & (at["cycle"] == 0)
        move = length == at["power"]
        following = {
            "s": s,
            "t": t,
            "cycle": jnp.where(back, length, at["cycle"]),
            "mark_s": jnp.where(move, s, at["mark_s"]),
            "mark_t": jnp.where(move, t, at["mark_t"]),
            "length": jnp.where(move, 0, length),
            "power": jnp.where(move, 2 * at["power"], at["power"]),
        }
        return k + 1, following, path

    s, t = _select_starts(row_increase, row_argmax, residual_tolerance, paths, states)
    none = jnp.zeros(paths, jnp.int32)
    at = {
        "s": s,
        "t": t,
        "cycle": none,
        "mark_s": s,
        "mark_t": t,
        "length": none,
        "power": none + 1,
    }
    path = {
        "s": jnp.zeros((steps, paths), jnp.int32),
        "t": jnp.zeros((steps, paths), jnp.int32),
        "gap": jnp.zeros((steps, paths)),
    }
    last, at, path = lax.while_loop(is_unfinished, forward, (jnp.int32(0), at, path))
    cycle = at["cycle"]

    def back_up(gap: Any, worth: Any) -> Any:
        return round_product((gap + round_product(discount * worth, zero)) * DOWNWARD_FACTOR, zero)

    def back_up_cycle(i: Any, worth: Any) -> Any:
        """Once round the cycle, which the last steps of a path are."""
        k = last - 1 - i
        return jnp.where(k >= last - cycle, back_up(path["gap"][k], worth), worth)

    once = lax.fori_loop(0, last, back_up_cycle, jnp.zeros(paths))
    endless = once / (1.0 - discount ** jnp.maximum(cycle, 1).astype(jnp.float64))
    # A power is known to a few units, and its distance from 1 is at least 1 - discount.
    endless = endless * (1 - 16 * UNIT / (1 - discount))
    worth = jnp.where(cycle > 0, endless, look_up(at["s"], at["t"]))

    def backward(i: Any, so_far: Any) -> Any:
        d, worth = so_far
        k = last - 1 - i
        worth = back_up(path["gap"][k], worth)
        for s, t in ((path["s"][k], path["t"][k]), (path["t"][k], path["s"][k])):
            mine = (s >= low) & (s < low + height) & (s != t)
            d = d.at[jnp.where(mine, s - low, height), t].max(
                _round_down(worth, d.dtype), mode="drop"
            )
        return d, worth

    return lax.fori_loop(0, last, backward, (d, worth))[0]


def _select_starts(
    row_increase: Any, row_argmax: Any, residual_tolerance: Any, paths: int, states: int
) -> tuple[Any, Any]:
    """The steepest pairs of rows that rose, evenly chosen where there are more than paths."""
    row_increase = lax.all_gather(row_increase, ROW_AXIS, tiled=True)[:states]
    row_argmax = lax.all_gather(row_argmax, ROW_AXIS, tiled=True)[:states]
    rose = row_increase > residual_tolerance
    order = jnp.argsort(~rose, stable=True).astype(jnp.int32)
    number = jnp.maximum(rose.sum(), 1)
    s = order[(jnp.arange(paths) * number) // paths]
    return s, row_argmax[s]


def _round_down(value: Any, dtype: Any) -> Any:
    """A number in the table's type, rounded down."""
    near = value.astype(dtype)
    return jnp.where(near > value, jnp.nextafter(near, jnp.zeros_like(near)), near)


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
                run.d = evaluate_cycles(programs, run.d, tally, least, successor, R)
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
