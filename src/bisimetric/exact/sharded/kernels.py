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

from bisimetric.exact.sharded.exchange import ExchangePlan
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.process_group import ROW_AXIS, ProcessGroup

ROW_SPEC, REPLICATED_SPEC = PartitionSpec(ROW_AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class DevicePlan:
    """A plan on the devices."""

    shifts: tuple[int, ...]
    send_rows: jax.Array
    batches: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class SweepStatistics:
    """What a sweep found, of all rows: F(d) against d.

    Attributes:
        up, down: the largest F(d) - d and d - F(d).
        largest: the largest F(d).
        rise: (rows,) the largest F(d) - d of each row, for who seeks it, split over devices.
        steepest: (rows,) where that is, likewise.
        due: whether a process asked for a checkpoint.
    """

    max_increase: float
    max_decrease: float
    max_value: float
    row_increase: jax.Array
    row_argmax: jax.Array
    checkpoint_due: bool


class Kernels:
    """The steps for one table and group, compiled when they are first taken."""

    def __init__(self, group: ProcessGroup, layout: Layout, discount: float) -> None:
        self.group, self.layout, self.discount = group, layout, discount
        self._cached: dict[Any, Any] = {}
        # Several devices that one processor plays wait for each other on too few threads, unless
        # every step is over before the next one starts.
        self._block_each_step = group.platform == "cpu" and len(group.local_devices) > 1

    def replicate(self, array: NDArray[Any]) -> jax.Array:
        """An array that every device holds whole."""
        return jax.make_array_from_callback(
            array.shape, self.group.replicated_sharding(), lambda index: array[index]
        )

    def place_plan(self, plan: ExchangePlan) -> DevicePlan:
        """A plan, put on the devices."""

        def put(own: NDArray[Any]) -> jax.Array:
            return jax.make_array_from_callback(
                (self.layout.num_devices, *own.shape[1:]),
                self.group.row_sharding(),
                lambda index: own[plan.local_devices.index(first_row(index))][None],
            )

        jobs = (
            put(plan.source_slots),
            put(plan.target_rows),
            put(plan.actions),
            put(plan.batch_offsets),
        )
        return DevicePlan(plan.shifts, put(plan.send_rows), jobs)

    def fill(self, value: float) -> jax.Array:
        """A table with `low` off the diagonal, 0 on it and in the padding."""
        height, states = self.layout.rows_per_device, self.layout.num_states

        def local() -> jax.Array:
            s = lax.axis_index(ROW_AXIS) * height + lax.iota(jnp.int32, height)[:, None]
            t = lax.iota(jnp.int32, states)[None]
            return jnp.where((s != t) & (s < states), value, 0.0).astype(self.layout.dtype)

        return self.compile(("filled", value), local, (), ROW_SPEC)()

    def clear(self, values: jax.Array) -> jax.Array:
        """The table made 0 in its place."""
        return self.compile("cleared", jnp.zeros_like, (ROW_SPEC,), ROW_SPEC, donate=(0,))(values)

    def sweep(
        self, d: jax.Array, buffer: jax.Array, plan: DevicePlan, successor: jax.Array, R: jax.Array
    ) -> jax.Array:
        """F(d) in the place of `fresh`, which is 0:

        F(d)(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(next(s, a), next(t, a)).
        """
        return self._exchange_and_apply("sweep", d, buffer, plan, successor, R)

    def double(
        self,
        d: jax.Array,
        buffer: jax.Array,
        plan: DevicePlan,
        successor: jax.Array,
        weight: jax.Array,
    ) -> jax.Array:
        """d(s, t) + weight * d(ahead(s), ahead(t)) in the place of `fresh`."""
        return self._exchange_and_apply("double", d, buffer, plan, successor, weight)

    def finish_sweep(
        self, d: jax.Array, buffer: jax.Array, *, locate: bool, checkpoint_due: bool
    ) -> tuple[jax.Array, jax.Array, SweepStatistics]:
        """The end of a sweep: 0 in the place of d, max(d, F(d)) in that of F(d), and the tally.

        In steps of their own: together the compiler would copy whole tables.
        """
        asked = jax.make_array_from_callback(
            (self.layout.num_devices,),
            self.group.row_sharding(),
            lambda _: np.array([checkpoint_due], np.int32),
        )
        look = self.compile(
            ("looked", locate),
            functools.partial(
                _compute_statistics, batch_rows=self.layout.batch_rows, locate=locate
            ),
            (ROW_SPEC, ROW_SPEC, ROW_SPEC),
            (ROW_SPEC, ROW_SPEC, REPLICATED_SPEC),
        )
        rise, steepest, extremes = look(d, buffer, asked)
        raise_ = self.compile("raised", jnp.maximum, (ROW_SPEC, ROW_SPEC), ROW_SPEC, donate=(1,))
        new = raise_(d, buffer)
        up, down, largest, wanted = np.asarray(extremes).tolist()
        return self.clear(d), new, SweepStatistics(up, down, largest, rise, steepest, wanted > 0)

    def argmax(self, d: jax.Array) -> tuple[int, int]:
        """The row and column of the largest entry."""
        program = self.compile(
            "farthest",
            functools.partial(_row_argmax, batch_rows=self.layout.batch_rows),
            (ROW_SPEC,),
            (REPLICATED_SPEC, REPLICATED_SPEC),
        )
        tops, where = (np.asarray(each)[: self.layout.num_states] for each in program(d))
        s = int(tops.argmax())
        return s, int(where[s])

    def _exchange_and_apply(
        self,
        operation: str,
        d: jax.Array,
        buffer: jax.Array,
        plan: DevicePlan,
        *operands: jax.Array,
    ) -> jax.Array:
        """One pass over all rows that a plan brings: the own ones, then block by block."""
        use = functools.partial(_apply_batches, operation=operation, discount=self.discount)
        many = (REPLICATED_SPEC, REPLICATED_SPEC)

        def own(d: Any, fresh: Any, jobs: Any, a: Any, b: Any) -> Any:
            return use(d, fresh, d, jobs, jnp.int32(0), a, b)

        received = None
        for step, shift in enumerate(plan.shifts):
            if received is None:
                received = self._compile_send(shift)(d, plan.send_rows, np.int32(step))
                continue
            # The next block is on its way while this one is used.
            program = self.compile(
                (operation, shift),
                functools.partial(self._apply_and_send, apply=use, shift=shift),
                (ROW_SPEC, ROW_SPEC, ROW_SPEC, ROW_SPEC, REPLICATED_SPEC, ROW_SPEC, *many),
                (ROW_SPEC, ROW_SPEC),
                donate=(1, 2),
            )
            buffer, received = program(
                d, buffer, received, plan.batches, np.int32(step), plan.send_rows, *operands
            )
        program = self.compile(
            (operation, "own"), own, (ROW_SPEC, ROW_SPEC, ROW_SPEC, *many), ROW_SPEC, donate=(1,)
        )
        buffer = program(d, buffer, plan.batches, *operands)
        if received is None:
            return buffer
        program = self.compile(
            (operation, "last"),
            use,
            (*[ROW_SPEC] * 4, REPLICATED_SPEC, *many),
            ROW_SPEC,
            donate=(1, 2),
        )
        end = np.int32(len(plan.shifts))
        return program(d, buffer, received, plan.batches, end, *operands)

    def _compile_send(self, shift: int) -> Any:
        move = functools.partial(_send_block, shift=shift, devices=self.layout.num_devices)
        return self.compile(("moved", shift), move, (ROW_SPEC, ROW_SPEC, REPLICATED_SPEC), ROW_SPEC)

    def _apply_and_send(
        self, d: Any, buffer: Any, held: Any, batches: Any, step: Any, send: Any, a: Any, b: Any,
        *, apply: Any, shift: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        coming = _send_block(d, send, step, shift=shift, devices=self.layout.num_devices)
        return apply(d, buffer, held, batches, step, a, b), coming

    def compile(
        self,
        name: Any,
        function: Any,
        in_specs: Any,
        out_specs: Any,
        *,
        donate: tuple[int, ...] = (),
    ) -> Any:
        """A step on each device's part, compiled once under a name."""
        if name not in self._cached:
            mapped = jax.shard_map(
                function,
                mesh=self.group.mesh,
                in_specs=in_specs,
                out_specs=out_specs,
                check_vma=False,
            )
            compiled = self.group.jit(mapped, donate_argnums=donate, keep_unused=True)
            self._cached[name] = _wait_for_result(compiled) if self._block_each_step else compiled
        return self._cached[name]


def first_row(index: tuple[slice, ...] | None) -> int:
    """The first row of a part of an array that is split by rows."""
    return 0 if index is None else index[0].start or 0


@functools.lru_cache(8)
def get_kernels(group: ProcessGroup, layout: Layout, discount: float) -> Kernels:
    """The steps for such a table, which several runs may take."""
    return Kernels(group, layout, discount)


def _wait_for_result(step: Any) -> Any:
    return lambda *given: jax.block_until_ready(step(*given))


def _send_block(d: Any, send: Any, step: Any, *, shift: int, devices: int) -> Any:
    """The block of rows that device p gets from device p - shift."""
    way = [(p, (p + shift) % devices) for p in range(devices)]
    return lax.ppermute(d[send[0, step]], ROW_AXIS, way)


def _apply_batches(
    d: Any, buffer: Any, held: Any, batches: Any, step: Any, a: Any, b: Any, *,
    operation: str, discount: float,
) -> Any:  # fmt: skip
    """The rows that the jobs of a step make of the rows held, put into `fresh`."""
    slot, row, action, first = (each[0] for each in batches)
    low = lax.axis_index(ROW_AXIS) * buffer.shape[0]
    zero = first[0].astype(jnp.int64)

    def batch(i: Any, fresh: Any) -> Any:
        rows, act = row[i], action[i]
        ahead = jnp.take(held[slot[i]], a[act], axis=1, mode="clip").astype(jnp.float64)
        if operation == "double":
            value = d[rows] + round_product(b * ahead, zero)
            return fresh.at[rows].set(value.astype(fresh.dtype), mode="drop", unique_indices=True)
        value = jnp.abs(b[act][low + rows][:, None] - b[act][None])
        value = value + round_product(discount * ahead, zero)
        return fresh.at[rows].max(value.astype(fresh.dtype), mode="drop", unique_indices=True)

    return lax.fori_loop(first[step], first[step + 1], batch, buffer)


def round_product(product: Any, zero: Any) -> Any:
    """A product that is rounded before it is added to anything.

    Compilers may join the two roundings of a product and a sum into one, here or there; then bits
    would depend on how the rows are split. `zero` is one that they do not know to be 0.
    """
    bits = lax.bitcast_convert_type(product, jnp.int64) ^ zero
    return lax.bitcast_convert_type(bits, jnp.float64)


def _compute_statistics(
    d: Any, buffer: Any, checkpoint_due: Any, *, batch_rows: int, locate: bool
) -> Any:
    """Goes over the rows once and changes nothing; see `Tally`.

    Extremes are taken column by column first, which processors do for many columns at a time.
    """
    height, states = d.shape
    put = lax.dynamic_update_slice_in_dim

    def some(i: Any, so_far: Any) -> Any:
        highest, steepest, up, down, largest = so_far
        old, new = (
            lax.dynamic_slice_in_dim(each, i * batch_rows, batch_rows) for each in (d, buffer)
        )
        old, new = old.astype(jnp.float64), new.astype(jnp.float64)
        rise = new - old
        if locate:
            highest = put(highest, rise.max(axis=1), i * batch_rows, 0)
            steepest = put(steepest, rise.argmax(axis=1).astype(jnp.int32), i * batch_rows, 0)
        up, down = jnp.maximum(up, rise.max(axis=0)), jnp.minimum(down, rise.min(axis=0))
        largest = jnp.maximum(largest, new.max(axis=0))
        return highest, steepest, up, down, largest

    start = (
        jnp.zeros(height),
        jnp.zeros(height, jnp.int32),
        *[jnp.zeros(states)] * 3,
    )
    looked = lax.fori_loop(0, height // batch_rows, some, start)
    rise, steepest, up, down, largest = looked
    found = [up.max(), -down.min(), largest.max(), checkpoint_due[0].astype(jnp.float64)]
    return rise, steepest, lax.pmax(jnp.stack(found), ROW_AXIS)


def _row_argmax(d: Any, *, batch_rows: int) -> Any:
    """The largest entry of each row and where it is."""

    def some(i: Any, so_far: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(d, i * batch_rows, batch_rows)
        found = rows.max(axis=1).astype(jnp.float64), rows.argmax(axis=1).astype(jnp.int32)
        put = lax.dynamic_update_slice_in_dim
        return tuple(put(a, b, i * batch_rows, 0) for a, b in zip(so_far, found, strict=True))

    height = d.shape[0]
    start = jnp.zeros(height), jnp.zeros(height, jnp.int32)
    tops, where = lax.fori_loop(0, height // batch_rows, some, start)
    return lax.all_gather(tops, ROW_AXIS, tiled=True), lax.all_gather(where, ROW_AXIS, tiled=True)
