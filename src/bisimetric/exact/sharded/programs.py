"""The compiled steps of a sharded table, each the same on every device.

A device holds its rows of the table d, twice: as they are, and as they become. Sums are taken in
float64 whatever the table holds. The result of a sweep is a maximum over actions, in whatever
order the rows arrive, so it does not depend on how many devices there are.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from numpy.typing import NDArray

from bisimetric.exact.sharded.exchange import Plan
from bisimetric.exact.sharded.group import ROWS, Group
from bisimetric.exact.sharded.layout import Layout

SPLIT, EVERYWHERE = PartitionSpec(ROWS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Orders:
    """A plan on the devices."""

    shifts: tuple[int, ...]
    send: jax.Array
    jobs: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class Tally:
    """What a sweep found, of all rows: F(d) against d.

    Attributes:
        up, down: the largest F(d) - d and d - F(d).
        largest: the largest F(d).
        rise: (rows,) the largest F(d) - d of each row, for who seeks it, split over devices.
        steepest: (rows,) where that is, likewise.
        due: whether a process asked for a checkpoint.
    """

    up: float
    down: float
    largest: float
    rise: jax.Array
    steepest: jax.Array
    due: bool


class Programs:
    """The steps for one table and group, compiled when they are first taken."""

    def __init__(self, group: Group, layout: Layout, discount: float) -> None:
        self.group, self.layout, self.discount = group, layout, discount
        self._cached: dict[Any, Any] = {}
        # Several devices that one processor plays wait for each other on too few threads, unless
        # every step is over before the next one starts.
        self._patient = group.platform == "cpu" and len(group.own) > 1

    def everywhere(self, array: NDArray[Any]) -> jax.Array:
        """An array that every device holds whole."""
        return jax.make_array_from_callback(
            array.shape, self.group.everywhere(), lambda index: array[index]
        )

    def orders(self, plan: Plan) -> Orders:
        """A plan, put on the devices."""

        def put(own: NDArray[Any]) -> jax.Array:
            return jax.make_array_from_callback(
                (self.layout.devices, *own.shape[1:]),
                self.group.split(),
                lambda index: own[plan.own.index(first_of(index))][None],
            )

        jobs = (put(plan.slot), put(plan.row), put(plan.action), put(plan.first))
        return Orders(plan.shifts, put(plan.send), jobs)

    def filled(self, low: float) -> jax.Array:
        """A table with `low` off the diagonal, 0 on it and in the padding."""
        height, states = self.layout.height, self.layout.states

        def local() -> jax.Array:
            s = lax.axis_index(ROWS) * height + lax.iota(jnp.int32, height)[:, None]
            t = lax.iota(jnp.int32, states)[None]
            return jnp.where((s != t) & (s < states), low, 0.0).astype(self.layout.dtype)

        return self.mapped(("filled", low), local, (), SPLIT)()

    def cleared(self, table: jax.Array) -> jax.Array:
        """The table made 0 in its place."""
        return self.mapped("cleared", jnp.zeros_like, (SPLIT,), SPLIT, donate=(0,))(table)

    def swept(
        self, d: jax.Array, fresh: jax.Array, orders: Orders, successor: jax.Array, R: jax.Array
    ) -> jax.Array:
        """F(d) in the place of `fresh`, which is 0:

        F(d)(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a)).
        """
        return self._through("sweep", d, fresh, orders, successor, R)

    def doubled(
        self, d: jax.Array, fresh: jax.Array, orders: Orders, ahead: jax.Array, weight: jax.Array
    ) -> jax.Array:
        """d(s, t) + weight * d(ahead(s), ahead(t)) in the place of `fresh`."""
        return self._through("double", d, fresh, orders, ahead, weight)

    def closed(
        self, d: jax.Array, fresh: jax.Array, *, seek: bool, due: bool
    ) -> tuple[jax.Array, jax.Array, Tally]:
        """The end of a sweep: 0 in the place of d, max(d, F(d)) in that of F(d), and the tally.

        In steps of their own: together the compiler would copy whole tables.
        """
        asked = jax.make_array_from_callback(
            (self.layout.devices,), self.group.split(), lambda _: np.array([due], np.int32)
        )
        look = self.mapped(
            ("looked", seek),
            functools.partial(_looked, batch=self.layout.batch, seek=seek),
            (SPLIT, SPLIT, SPLIT),
            (SPLIT, SPLIT, EVERYWHERE),
        )
        rise, steepest, extremes = look(d, fresh, asked)
        raise_ = self.mapped("raised", jnp.maximum, (SPLIT, SPLIT), SPLIT, donate=(1,))
        new = raise_(d, fresh)
        up, down, largest, wanted = np.asarray(extremes).tolist()
        return self.cleared(d), new, Tally(up, down, largest, rise, steepest, wanted > 0)

    def farthest(self, d: jax.Array) -> tuple[int, int]:
        """The row and column of the largest entry."""
        program = self.mapped(
            "farthest",
            functools.partial(_farthest, batch=self.layout.batch),
            (SPLIT,),
            (EVERYWHERE, EVERYWHERE),
        )
        tops, where = (np.asarray(each)[: self.layout.states] for each in program(d))
        s = int(tops.argmax())
        return s, int(where[s])

    def _through(
        self, how: str, d: jax.Array, fresh: jax.Array, orders: Orders, *given: jax.Array
    ) -> jax.Array:
        """One pass over all rows that a plan brings: the own ones, then block by block."""
        use = functools.partial(_used, how=how, discount=self.discount)
        many = (EVERYWHERE, EVERYWHERE)

        def own(d: Any, fresh: Any, jobs: Any, a: Any, b: Any) -> Any:
            return use(d, fresh, d, jobs, jnp.int32(0), a, b)

        received = None
        for step, shift in enumerate(orders.shifts):
            if received is None:
                received = self._moved(shift)(d, orders.send, np.int32(step))
                continue
            # The next block is on its way while this one is used.
            program = self.mapped(
                (how, shift),
                functools.partial(self._used_and_moved, use=use, shift=shift),
                (SPLIT, SPLIT, SPLIT, SPLIT, EVERYWHERE, SPLIT, *many),
                (SPLIT, SPLIT),
                donate=(1, 2),
            )
            fresh, received = program(
                d, fresh, received, orders.jobs, np.int32(step), orders.send, *given
            )
        program = self.mapped((how, "own"), own, (SPLIT, SPLIT, SPLIT, *many), SPLIT, donate=(1,))
        fresh = program(d, fresh, orders.jobs, *given)
        if received is None:
            return fresh
        program = self.mapped(
            (how, "last"), use, (*[SPLIT] * 4, EVERYWHERE, *many), SPLIT, donate=(1, 2)
        )
        end = np.int32(len(orders.shifts))
        return program(d, fresh, received, orders.jobs, end, *given)

    def _moved(self, shift: int) -> Any:
        move = functools.partial(_sent, shift=shift, devices=self.layout.devices)
        return self.mapped(("moved", shift), move, (SPLIT, SPLIT, EVERYWHERE), SPLIT)

    def _used_and_moved(
        self, d: Any, fresh: Any, held: Any, jobs: Any, step: Any, send: Any, a: Any, b: Any,
        *, use: Any, shift: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        coming = _sent(d, send, step, shift=shift, devices=self.layout.devices)
        return use(d, fresh, held, jobs, step, a, b), coming

    def mapped(
        self, name: Any, local: Any, takes: Any, gives: Any, *, donate: tuple[int, ...] = ()
    ) -> Any:
        """A step on each device's part, compiled once under a name."""
        if name not in self._cached:
            mapped = jax.shard_map(
                local, mesh=self.group.mesh, in_specs=takes, out_specs=gives, check_vma=False
            )
            compiled = self.group.jit(mapped, donate_argnums=donate, keep_unused=True)
            self._cached[name] = _waiting(compiled) if self._patient else compiled
        return self._cached[name]


def first_of(index: tuple[slice, ...] | None) -> int:
    """The first row of a part of an array that is split by rows."""
    return 0 if index is None else index[0].start or 0


@functools.lru_cache(8)
def compiled(group: Group, layout: Layout, discount: float) -> Programs:
    """The steps for such a table, which several runs may take."""
    return Programs(group, layout, discount)


def _waiting(step: Any) -> Any:
    return lambda *given: jax.block_until_ready(step(*given))


def _sent(d: Any, send: Any, step: Any, *, shift: int, devices: int) -> Any:
    """The block of rows that device p gets from device p - shift."""
    way = [(p, (p + shift) % devices) for p in range(devices)]
    return lax.ppermute(d[send[0, step]], ROWS, way)


def _used(
    d: Any, fresh: Any, held: Any, jobs: Any, step: Any, a: Any, b: Any, *,
    how: str, discount: float,
) -> Any:  # fmt: skip
    """The rows that the jobs of a step make of the rows held, put into `fresh`."""
    slot, row, action, first = (each[0] for each in jobs)
    low = lax.axis_index(ROWS) * fresh.shape[0]
    zero = first[0].astype(jnp.int64)

    def batch(i: Any, fresh: Any) -> Any:
        rows, act = row[i], action[i]
        ahead = jnp.take(held[slot[i]], a[act], axis=1, mode="clip").astype(jnp.float64)
        if how == "double":
            value = d[rows] + rounded(b * ahead, zero)
            return fresh.at[rows].set(value.astype(fresh.dtype), mode="drop", unique_indices=True)
        value = jnp.abs(b[act][low + rows][:, None] - b[act][None])
        value = value + rounded(discount * ahead, zero)
        return fresh.at[rows].max(value.astype(fresh.dtype), mode="drop", unique_indices=True)

    return lax.fori_loop(first[step], first[step + 1], batch, fresh)


def rounded(product: Any, zero: Any) -> Any:
    """A product that is rounded before it is added to anything.

    Compilers may join the two roundings of a product and a sum into one, here or there; then bits
    would depend on how the rows are split. `zero` is one that they do not know to be 0.
    """
    bits = lax.bitcast_convert_type(product, jnp.int64) ^ zero
    return lax.bitcast_convert_type(bits, jnp.float64)


def _looked(d: Any, fresh: Any, due: Any, *, batch: int, seek: bool) -> Any:
    """Goes over the rows once and changes nothing; see `Tally`.

    Extremes are taken column by column first, which processors do for many columns at a time.
    """
    height, states = d.shape
    put = lax.dynamic_update_slice_in_dim

    def some(i: Any, so_far: Any) -> Any:
        highest, steepest, up, down, largest = so_far
        old, new = (lax.dynamic_slice_in_dim(each, i * batch, batch) for each in (d, fresh))
        old, new = old.astype(jnp.float64), new.astype(jnp.float64)
        rise = new - old
        if seek:
            highest = put(highest, rise.max(axis=1), i * batch, 0)
            steepest = put(steepest, rise.argmax(axis=1).astype(jnp.int32), i * batch, 0)
        up, down = jnp.maximum(up, rise.max(axis=0)), jnp.minimum(down, rise.min(axis=0))
        largest = jnp.maximum(largest, new.max(axis=0))
        return highest, steepest, up, down, largest

    start = (
        jnp.zeros(height),
        jnp.zeros(height, jnp.int32),
        *[jnp.zeros(states)] * 3,
    )
    looked = lax.fori_loop(0, height // batch, some, start)
    rise, steepest, up, down, largest = looked
    found = [up.max(), -down.min(), largest.max(), due[0].astype(jnp.float64)]
    return rise, steepest, lax.pmax(jnp.stack(found), ROWS)


def _farthest(d: Any, *, batch: int) -> Any:
    """The largest entry of each row and where it is."""

    def some(i: Any, so_far: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(d, i * batch, batch)
        found = rows.max(axis=1).astype(jnp.float64), rows.argmax(axis=1).astype(jnp.int32)
        put = lax.dynamic_update_slice_in_dim
        return tuple(put(a, b, i * batch, 0) for a, b in zip(so_far, found, strict=True))

    height = d.shape[0]
    start = jnp.zeros(height), jnp.zeros(height, jnp.int32)
    tops, where = lax.fori_loop(0, height // batch, some, start)
    return lax.all_gather(tops, ROWS, tiled=True), lax.all_gather(where, ROWS, tiled=True)
