"""Leaps: what the best actions are worth for ever, set at once instead of one discount a sweep.

From the pair of each row that rose most, the best actions by the table as it is are followed, all
pairs in step, until they run in cycles. Going round a cycle for ever is a policy, so its value is
a lower bound of d~, and so is that of the path which leads there; where a path ends before a
cycle is found, the table itself bounds what follows. Roundings go down. Whoever holds a row
answers for it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bisimetric.exact.sharded.group import ROWS
from bisimetric.exact.sharded.layout import LEAP_STEPS, Layout
from bisimetric.exact.sharded.programs import EVERYWHERE, SPLIT, Programs, Tally, rounded
from bisimetric.rounding import UNIT

MOST = 2**14
"""Paths at a time."""
STEP = 16
"""Bytes that are kept of a step of a path: two states and a gap."""
NEGLIGIBLE = 1e-9
"""What follows a path counts for nothing when it is discounted by this."""
DOWN = 1 - 4 * UNIT
"""A sum of a gap and what follows it, times this, is not above the true one: three roundings."""


def shape_of(layout: Layout, discount: float) -> tuple[int, int]:
    """How many paths, and how long; all that is kept of them fits into a block.

    >>> import numpy as np
    >>> from bisimetric.exact.sharded.layout import laid_out
    >>> shape_of(laid_out(100_000, 8, np.dtype("float32")), 0.99)
    (4096, 1024)
    """
    far = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE) / math.log(discount))
    steps = max(1, min(LEAP_STEPS, far))
    return max(1, min(layout.states, MOST, layout.block // (STEP * steps))), steps


def leapt(
    programs: Programs, d: jax.Array, tally: Tally, least: float, successor: jax.Array, R: jax.Array
) -> jax.Array:
    """The table, raised along paths from the pairs that rose most in the last sweep."""
    paths, steps = shape_of(programs.layout, programs.discount)
    local = functools.partial(
        _leapt,
        paths=paths,
        steps=steps,
        discount=programs.discount,
        states=programs.layout.states,
    )
    takes = (SPLIT, SPLIT, SPLIT, *[EVERYWHERE] * 4)
    program = programs.mapped("leapt", local, takes, SPLIT, donate=(0,))
    given = (tally.rise, tally.steepest, least, successor, R, np.int64(0))
    return program(d, *given)


def _leapt(
    d: Any, rise: Any, steepest: Any, least: Any, successor: Any, R: Any, zero: Any, *,
    paths: int, steps: int, discount: float, states: int,
) -> Any:  # fmt: skip
    height = d.shape[0]
    low = lax.axis_index(ROWS) * height

    def looked_up(s: Any, t: Any) -> Any:
        """Entries of the whole table: one device has each, and the others add 0."""
        mine = (s >= low) & (s < low + height)
        found = d[jnp.where(mine, s - low, 0), t].astype(jnp.float64)
        return lax.psum(jnp.where(mine, found, 0.0), ROWS)

    def stepped(s: Any, t: Any) -> tuple[Any, Any, Any]:
        """The best action of each pair: its reward gap and where it leads."""
        gaps = jnp.abs(R[:, s] - R[:, t])
        to_s, to_t = successor[:, s], successor[:, t]
        ahead = rounded(discount * looked_up(to_s, to_t), zero)
        best = (gaps + ahead).argmax(axis=0)
        return tuple(  # type: ignore[return-value]
            jnp.take_along_axis(each, best[None], axis=0)[0] for each in (gaps, to_s, to_t)
        )

    def going(state: Any) -> Any:
        return (state[0] < steps) & jnp.any(state[1]["cycle"] == 0)

    def forward(state: Any) -> Any:
        """One step of all paths; Brent's search for cycles, with a mark at powers of 2."""
        k, at, path = state
        gap, s, t = stepped(at["s"], at["t"])
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

    s, t = _starts(rise, steepest, least, paths, states)
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
    last, at, path = lax.while_loop(going, forward, (jnp.int32(0), at, path))
    cycle = at["cycle"]

    def backed_up(gap: Any, worth: Any) -> Any:
        return rounded((gap + rounded(discount * worth, zero)) * DOWN, zero)

    def around(i: Any, worth: Any) -> Any:
        """Once round the cycle, which the last steps of a path are."""
        k = last - 1 - i
        return jnp.where(k >= last - cycle, backed_up(path["gap"][k], worth), worth)

    once = lax.fori_loop(0, last, around, jnp.zeros(paths))
    endless = once / (1.0 - discount ** jnp.maximum(cycle, 1).astype(jnp.float64))
    # A power is known to a few units, and its distance from 1 is at least 1 - discount.
    endless = endless * (1 - 16 * UNIT / (1 - discount))
    worth = jnp.where(cycle > 0, endless, looked_up(at["s"], at["t"]))

    def backward(i: Any, so_far: Any) -> Any:
        d, worth = so_far
        k = last - 1 - i
        worth = backed_up(path["gap"][k], worth)
        for s, t in ((path["s"][k], path["t"][k]), (path["t"][k], path["s"][k])):
            mine = (s >= low) & (s < low + height) & (s != t)
            d = d.at[jnp.where(mine, s - low, height), t].max(_below(worth, d.dtype), mode="drop")
        return d, worth

    return lax.fori_loop(0, last, backward, (d, worth))[0]


def _starts(rise: Any, steepest: Any, least: Any, paths: int, states: int) -> tuple[Any, Any]:
    """The steepest pairs of rows that rose, evenly chosen where there are more than paths."""
    rise = lax.all_gather(rise, ROWS, tiled=True)[:states]
    steepest = lax.all_gather(steepest, ROWS, tiled=True)[:states]
    rose = rise > least
    order = jnp.argsort(~rose, stable=True).astype(jnp.int32)
    number = jnp.maximum(rose.sum(), 1)
    s = order[(jnp.arange(paths) * number) // paths]
    return s, steepest[s]


def _below(value: Any, dtype: Any) -> Any:
    """A number in the table's type, rounded down."""
    near = value.astype(dtype)
    return jnp.where(near > value, jnp.nextafter(near, jnp.zeros_like(near)), near)
