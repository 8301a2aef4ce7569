"""Cycle evaluation of a sharded matrix along paths from the pairs that increased most.

Every few sweeps, the greedy actions are followed from the pair of each row that increased most, all
pairs at once, until they reach cycles. Repeating a cycle is a policy, so its infinite-horizon value
is a lower bound of d~, and so is that of the path into it; if a path ends before a cycle is found,
the matrix bounds the remainder. Rounding down keeps the bounds valid. Each device looks up and
updates its own rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bisimetric._rounding import UNIT
from bisimetric.exact.sharded.kernels import (
    REPLICATED_SPEC,
    ROW_SPEC,
    Kernels,
    SweepStatistics,
    round_product,
)
from bisimetric.exact.sharded.layout import MAX_CYCLE_STEPS, Layout
from bisimetric.exact.sharded.process_group import ROW_AXIS

MAX_PATHS = 2**14
"""Paths that are followed at once, at most."""
BYTES_PER_STEP = 16
"""Bytes per step of a path: two states and a reward gap."""
NEGLIGIBLE_WEIGHT = 1e-9
"""The discount below which the remainder of a path is negligible."""
DOWNWARD_FACTOR = 1 - 4 * UNIT
"""A backup times this is at most the exact one: it has three roundings."""
DOWNWARD_FACTOR_WITH_COST = 1 - 8 * UNIT
"""The same with a cost, which is added by one more."""


def choose_path_shape(layout: Layout, discount: float) -> tuple[int, int]:
    """Choose the number and length of paths, whose memory fits into a block.

    >>> import numpy as np
    >>> from bisimetric.exact.sharded.layout import build_layout
    >>> choose_path_shape(build_layout(100_000, 8, np.dtype("float32")), 0.99)
    (4096, 1024)
    """
    horizon = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE_WEIGHT) / math.log(discount))
    steps = max(1, min(MAX_CYCLE_STEPS, horizon))
    in_block = layout.block_bytes // (BYTES_PER_STEP * steps)
    return max(1, min(layout.num_states, MAX_PATHS, in_block)), steps


def evaluate_cycles(
    kernels: Kernels,
    d: jax.Array,
    statistics: SweepStatistics,
    residual_tolerance: float,
    successor: jax.Array,
    R: jax.Array,
    cost: jax.Array,
) -> jax.Array:
    """Improve lower bounds by cycle evaluation from the pairs that increased most."""
    paths, steps = choose_path_shape(kernels.layout, kernels.discount)
    local = functools.partial(
        _evaluate_cycles,
        paths=paths,
        steps=steps,
        discount=kernels.discount,
        states=kernels.layout.num_states,
    )
    in_specs = (*[ROW_SPEC] * 4, *[REPLICATED_SPEC] * 4)
    kernel = kernels.compile("evaluate cycles", local, in_specs, ROW_SPEC, donate=(0,))
    increase, argmax = statistics.row_increase, statistics.row_argmax
    return kernel(d, increase, argmax, cost, residual_tolerance, successor, R, np.int64(0))


def _evaluate_cycles(
    d: Any, row_increase: Any, row_argmax: Any, cost: Any, residual_tolerance: Any, successor: Any,
    R: Any, zero: Any, *, paths: int, steps: int, discount: float, states: int,
) -> Any:  # fmt: skip
    height = d.shape[0]
    low = lax.axis_index(ROW_AXIS) * height
    downward = DOWNWARD_FACTOR_WITH_COST if cost.shape[1] else DOWNWARD_FACTOR

    def look_up(s: Any, t: Any, matrix: Any = d) -> Any:
        """Look up entries of the whole matrix: one device has each, and the others add 0."""
        local = (s >= low) & (s < low + height)
        found = matrix[jnp.where(local, s - low, 0), t].astype(jnp.float64)
        return lax.psum(jnp.where(local, found, 0.0), ROW_AXIS)

    def take_best_action(s: Any, t: Any) -> tuple[Any, Any, Any]:
        """Return the reward gap and the successors of each pair's greedy action."""
        gaps = jnp.abs(R[:, s] - R[:, t])
        if cost.shape[1]:
            gaps = gaps + look_up(s, t, cost)
        next_s, next_t = successor[:, s], successor[:, t]
        following = round_product(discount * look_up(next_s, next_t), zero)
        best = (gaps + following).argmax(axis=0)
        return tuple(  # type: ignore[return-value]
            jnp.take_along_axis(each, best[None], axis=0)[0] for each in (gaps, next_s, next_t)
        )

    def has_open_paths(state: Any) -> Any:
        return (state[0] < steps) & jnp.any(state[1]["cycle"] == 0)

    def forward(state: Any) -> Any:
        """Extend all paths by one step; Brent's cycle detection, with a mark at powers of 2."""
        k, end, path = state
        gap, s, t = take_best_action(end["s"], end["t"])
        path = {
            "s": path["s"].at[k].set(end["s"]),
            "t": path["t"].at[k].set(end["t"]),
            "gap": path["gap"].at[k].set(gap),
        }
        length = end["length"] + 1
        closed = (s == end["mark_s"]) & (t == end["mark_t"]) & (end["cycle"] == 0)
        move = length == end["power"]
        end = {
            "s": s,
            "t": t,
            "cycle": jnp.where(closed, length, end["cycle"]),
            "mark_s": jnp.where(move, s, end["mark_s"]),
            "mark_t": jnp.where(move, t, end["mark_t"]),
            "length": jnp.where(move, 0, length),
            "power": jnp.where(move, 2 * end["power"], end["power"]),
        }
        return k + 1, end, path

    s, t = _select_starts(row_increase, row_argmax, residual_tolerance, paths, states)
    zeros = jnp.zeros(paths, jnp.int32)
    end = {
        "s": s,
        "t": t,
        "cycle": zeros,
        "mark_s": s,
        "mark_t": t,
        "length": zeros,
        "power": zeros + 1,
    }
    path = {
        "s": jnp.zeros((steps, paths), jnp.int32),
        "t": jnp.zeros((steps, paths), jnp.int32),
        "gap": jnp.zeros((steps, paths)),
    }
    last, end, path = lax.while_loop(has_open_paths, forward, (jnp.int32(0), end, path))
    cycle = end["cycle"]

    def back_up(gap: Any, value: Any) -> Any:
        return round_product((gap + round_product(discount * value, zero)) * downward, zero)

    def back_up_cycle(i: Any, value: Any) -> Any:
        """Back up along the cycle, which is the end of a path."""
        k = last - 1 - i
        return jnp.where(k >= last - cycle, back_up(path["gap"][k], value), value)

    once = lax.fori_loop(0, last, back_up_cycle, jnp.zeros(paths))
    repeated = once / (1.0 - discount ** jnp.maximum(cycle, 1).astype(jnp.float64))
    # The power has a relative error of a few UNIT, and differs from 1 by at least 1 - discount.
    repeated = repeated * (1 - 16 * UNIT / (1 - discount))
    value = jnp.where(cycle > 0, repeated, look_up(end["s"], end["t"]))

    def backward(i: Any, state: Any) -> Any:
        """Back up along a path, and update the rows of this device."""
        d, value = state
        k = last - 1 - i
        value = back_up(path["gap"][k], value)
        bound = _round_down(value, d.dtype)
        for s, t in ((path["s"][k], path["t"][k]), (path["t"][k], path["s"][k])):
            local = (s >= low) & (s < low + height) & (s != t)
            d = d.at[jnp.where(local, s - low, height), t].max(bound, mode="drop")
        return d, value

    return lax.fori_loop(0, last, backward, (d, value))[0]


def _select_starts(
    row_increase: Any, row_argmax: Any, residual_tolerance: Any, paths: int, states: int
) -> tuple[Any, Any]:
    """Select the pairs that increased most, one per row, evenly if there are too many."""
    row_increase = lax.all_gather(row_increase, ROW_AXIS, tiled=True)[:states]
    row_argmax = lax.all_gather(row_argmax, ROW_AXIS, tiled=True)[:states]
    increased = row_increase > residual_tolerance
    order = jnp.argsort(~increased, stable=True).astype(jnp.int32)
    number = jnp.maximum(increased.sum(), 1)
    s = order[(jnp.arange(paths) * number) // paths]
    return s, row_argmax[s]


def _round_down(value: Any, dtype: Any) -> Any:
    """Round a number down to the matrix's type."""
    nearest = value.astype(dtype)
    return jnp.where(nearest > value, jnp.nextafter(nearest, jnp.zeros_like(nearest)), nearest)
