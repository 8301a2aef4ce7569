"""The compiled kernels of a sharded distance matrix, the same on every device.

A device holds its rows of the matrix d twice: the current ones, and a buffer for the next ones.
Sums are in float64 for any type of the matrix. A sweep is a maximum over actions, which does not
depend on the order in which rows arrive, so the result is the same for any number of devices.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
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
    """An exchange plan as arrays on the devices."""

    shifts: tuple[int, ...]
    send_rows: jax.Array
    batches: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class SweepStatistics:
    """Comparison of F(d) with d over all rows.

    Attributes:
        max_increase: the largest F(d) - d.
        max_decrease: the largest d - F(d).
        max_value: the largest F(d).
        row_increase: (rows,) the largest F(d) - d per row, split over devices, if located.
        row_argmax: (rows,) its column, likewise.
        checkpoint_due: whether a process requests a checkpoint.
    """

    max_increase: float
    max_decrease: float
    max_value: float
    row_increase: jax.Array
    row_argmax: jax.Array
    checkpoint_due: bool


class Kernels:
    """The kernels for one layout and process group, compiled at their first use."""

    def __init__(self, group: ProcessGroup, layout: Layout, discount: float) -> None:
        self.group, self.layout, self.discount = group, layout, discount
        self._cached: dict[Any, Any] = {}
        # Several virtual devices on one CPU deadlock on too few threads, unless every kernel ends
        # before the next one starts.
        self._block_each_step = group.platform == "cpu" and len(group.local_devices) > 1

    def replicate(self, array: NDArray[Any]) -> jax.Array:
        """Copy an array to every device."""
        return jax.make_array_from_callback(
            array.shape, self.group.replica_sharding(), lambda index: array[index]
        )

    def place_plan(self, plan: ExchangePlan) -> DevicePlan:
        """Copy a plan to the devices."""

        batches = (
            self.place_parts(plan.source_slots),
            self.place_parts(plan.target_rows),
            self.place_parts(plan.actions),
            self.place_parts(plan.batch_offsets),
        )
        return DevicePlan(plan.shifts, self.place_parts(plan.send_rows), batches)

    def place_parts(self, local: NDArray[Any]) -> jax.Array:
        """Copy the parts of this process's devices, (local, ...), to them: (devices, ...)."""
        devices = self.group.local_devices
        return jax.make_array_from_callback(
            (self.layout.num_devices, *local.shape[1:]),
            self.group.row_sharding(),
            lambda index: local[devices.index(first_row(index))][None],
        )

    def fill(self, value: float) -> jax.Array:
        """Create a matrix with `value` off the diagonal, 0 on it and in the padding."""
        height, states = self.layout.rows_per_device, self.layout.num_states

        def local() -> jax.Array:
            s = lax.axis_index(ROW_AXIS) * height + lax.iota(jnp.int32, height)[:, None]
            t = lax.iota(jnp.int32, states)[None]
            return jnp.where((s != t) & (s < states), value, 0.0).astype(self.layout.dtype)

        return self.compile(("fill", value), local, (), ROW_SPEC)()

    def place_cost(
        self, compute_rows: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None
    ) -> jax.Array:
        """Place the rows of a cost on the devices; without one, rows without columns."""
        height, states = self.layout.rows_per_device, self.layout.num_states
        width = 0 if compute_rows is None else states

        def build(index: tuple[slice, ...] | None) -> NDArray[np.float64]:
            low = first_row(index)
            local = np.zeros((height, width))
            rows = np.arange(low, min(low + height, states))
            if compute_rows is not None and len(rows):
                local[: len(rows)] = compute_rows(rows)
            return local

        shape = (self.layout.num_devices * height, width)
        return jax.make_array_from_callback(shape, self.group.row_sharding(), build)

    def clear(self, values: jax.Array) -> jax.Array:
        """Set a matrix to 0 in place."""
        return self.compile("clear", jnp.zeros_like, (ROW_SPEC,), ROW_SPEC, donate=(0,))(values)

    def sweep(
        self,
        d: jax.Array,
        buffer: jax.Array,
        plan: DevicePlan,
        successor: jax.Array,
        R: jax.Array,
        cost: jax.Array,
    ) -> jax.Array:
        """Compute F(d) into `buffer`, which must be 0; `cost` is from `place_cost`.

        F(d)(s, t) = max_a |R(s, a) - R(t, a)| + cost(s, t) + discount * d(next(s, a), next(t, a))
        """
        return self._exchange_and_apply("sweep", d, buffer, plan, successor, R, cost)

    def double(
        self,
        d: jax.Array,
        buffer: jax.Array,
        plan: DevicePlan,
        successor: jax.Array,
        weight: jax.Array,
    ) -> jax.Array:
        """Compute d(s, t) + weight * d(successor(s), successor(t)) into `buffer`."""
        no_cost = self.place_cost(None)
        return self._exchange_and_apply("double", d, buffer, plan, successor, weight, no_cost)

    def finish_sweep(
        self, d: jax.Array, buffer: jax.Array, *, locate: bool, checkpoint_due: bool
    ) -> tuple[jax.Array, jax.Array, SweepStatistics]:
        """Set d to 0 and the buffer from F(d) to max(d, F(d)); return both and the statistics.

        In separate kernels: in one, the compiler would copy whole matrices.
        """
        statistics = self.compare(d, buffer, locate=locate, checkpoint_due=checkpoint_due)
        maximum = self.compile("maximum", jnp.maximum, (ROW_SPEC, ROW_SPEC), ROW_SPEC, donate=(1,))
        new = maximum(d, buffer)
        return self.clear(d), new, statistics

    def compare(
        self, d: jax.Array, new: jax.Array, *, locate: bool, checkpoint_due: bool = False
    ) -> SweepStatistics:
        """Compute the statistics of a sweep from d to `new`."""
        due = self.place_parts(
            np.full((len(self.group.local_devices), 1), checkpoint_due, np.int32)
        )
        compare = self.compile(
            ("compare", locate),
            functools.partial(
                _compute_statistics, batch_rows=self.layout.batch_rows, locate=locate
            ),
            (ROW_SPEC, ROW_SPEC, ROW_SPEC),
            (ROW_SPEC, ROW_SPEC, REPLICATED_SPEC),
        )
        row_increase, row_argmax, extremes = compare(d, new, due)
        increase, decrease, largest, num_due = np.asarray(extremes).tolist()
        return SweepStatistics(increase, decrease, largest, row_increase, row_argmax, num_due > 0)

    def argmax(self, d: jax.Array) -> tuple[int, int]:
        """Return the row and column of the largest entry."""
        kernel = self.compile(
            "argmax",
            functools.partial(_row_argmax, batch_rows=self.layout.batch_rows),
            (ROW_SPEC,),
            (REPLICATED_SPEC, REPLICATED_SPEC),
        )
        maxima, columns = (np.asarray(each)[: self.layout.num_states] for each in kernel(d))
        s = int(maxima.argmax())
        return s, int(columns[s])

    def _exchange_and_apply(
        self,
        operation: str,
        d: jax.Array,
        buffer: jax.Array,
        plan: DevicePlan,
        *operands: jax.Array,
    ) -> jax.Array:
        """Apply an operation to all rows of a plan: received blocks and the device's own rows."""
        apply = functools.partial(_apply_batches, operation=operation, discount=self.discount)
        operand_specs = (REPLICATED_SPEC, REPLICATED_SPEC, ROW_SPEC)

        def apply_own(d: Any, buffer: Any, batches: Any, a: Any, b: Any, cost: Any) -> Any:
            return apply(d, buffer, d, batches, jnp.int32(0), a, b, cost)

        received = None
        for step, shift in enumerate(plan.shifts):
            if received is None:
                received = self.compile_send(shift)(d, plan.send_rows, np.int32(step))
                continue
            # The next block is sent while this one is applied.
            kernel = self.compile(
                (operation, shift),
                functools.partial(self._apply_and_send, apply=apply, shift=shift),
                (*[ROW_SPEC] * 4, REPLICATED_SPEC, ROW_SPEC, *operand_specs),
                (ROW_SPEC, ROW_SPEC),
                donate=(1, 2),
            )
            buffer, received = kernel(
                d, buffer, received, plan.batches, np.int32(step), plan.send_rows, *operands
            )
        kernel = self.compile(
            (operation, "own"), apply_own, (*[ROW_SPEC] * 3, *operand_specs), ROW_SPEC, donate=(1,)
        )
        buffer = kernel(d, buffer, plan.batches, *operands)
        if received is None:
            return buffer
        kernel = self.compile(
            (operation, "last"),
            apply,
            (*[ROW_SPEC] * 4, REPLICATED_SPEC, *operand_specs),
            ROW_SPEC,
            donate=(1, 2),
        )
        last = np.int32(len(plan.shifts))
        return kernel(d, buffer, received, plan.batches, last, *operands)

    def compile_send(self, shift: int) -> Any:
        """Compile the exchange of a block; its arguments are d, the rows to send and the step."""
        send = functools.partial(_send_block, shift=shift, devices=self.layout.num_devices)
        return self.compile(("send", shift), send, (ROW_SPEC, ROW_SPEC, REPLICATED_SPEC), ROW_SPEC)

    def _apply_and_send(
        self, d: Any, buffer: Any, held: Any, batches: Any, step: Any, send: Any, a: Any, b: Any,
        cost: Any, *, apply: Any, shift: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        received = _send_block(d, send, step, shift=shift, devices=self.layout.num_devices)
        return apply(d, buffer, held, batches, step, a, b, cost), received

    def compile(
        self,
        name: Any,
        function: Any,
        in_specs: Any,
        out_specs: Any,
        *,
        donate: tuple[int, ...] = (),
    ) -> Any:
        """Compile a function of each device's part, once per name."""
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
    """Return the first row of a device's part of an array that is split by rows."""
    return 0 if index is None else index[0].start or 0


@functools.lru_cache(8)
def get_kernels(group: ProcessGroup, layout: Layout, discount: float) -> Kernels:
    """Return the kernels for a layout, which several runs may share."""
    return Kernels(group, layout, discount)


def _wait_for_result(kernel: Any) -> Any:
    return lambda *arguments: jax.block_until_ready(kernel(*arguments))


def _send_block(d: Any, send: Any, step: Any, *, shift: int, devices: int) -> Any:
    """Send a block of rows from each device p to device p + shift."""
    permutation = [(p, (p + shift) % devices) for p in range(devices)]
    return lax.ppermute(d[send[0, step]], ROW_AXIS, permutation)


def _apply_batches(
    d: Any, buffer: Any, held: Any, batches: Any, step: Any, a: Any, b: Any, cost: Any, *,
    operation: str, discount: float,
) -> Any:  # fmt: skip
    """Apply the batches of a step to the rows in `held`, and write the results to `buffer`.

    `a` are successors; `b` are rewards for "sweep", and a weight for "double"; `cost` are the
    costs of this device's rows, or has no columns.
    """
    slots, targets, actions, offsets = (each[0] for each in batches)
    low = lax.axis_index(ROW_AXIS) * buffer.shape[0]
    zero = offsets[0].astype(jnp.int64)

    def apply_batch(i: Any, buffer: Any) -> Any:
        rows, action = targets[i], actions[i]
        following = jnp.take(held[slots[i]], a[action], axis=1, mode="clip").astype(jnp.float64)
        if operation == "double":
            value = d[rows] + round_product(b * following, zero)
            return buffer.at[rows].set(value.astype(buffer.dtype), mode="drop", unique_indices=True)
        value = jnp.abs(b[action][low + rows][:, None] - b[action][None])
        if cost.shape[1]:
            value = value + cost[rows]
        value = value + round_product(discount * following, zero)
        return buffer.at[rows].max(value.astype(buffer.dtype), mode="drop", unique_indices=True)

    return lax.fori_loop(offsets[step], offsets[step + 1], apply_batch, buffer)


def round_product(product: Any, zero: Any) -> Any:
    """Force the rounding of a product before it is added to anything.

    Compilers may fuse a product and a sum into one rounding, depending on the context; then bits
    would depend on how the rows are split. `zero` is a 0 that is not a compile-time constant.
    """
    bits = lax.bitcast_convert_type(product, jnp.int64) ^ zero
    return lax.bitcast_convert_type(bits, jnp.float64)


def _compute_statistics(
    d: Any, buffer: Any, checkpoint_due: Any, *, batch_rows: int, locate: bool
) -> Any:
    """Compute the arrays and numbers of `SweepStatistics` in one pass over the rows.

    Extremes are taken per column first, for vector instructions.
    """
    height, states = d.shape
    update = lax.dynamic_update_slice_in_dim

    def compare_batch(i: Any, state: Any) -> Any:
        row_increase, row_argmax, increase, decrease, largest = state
        old, new = (
            lax.dynamic_slice_in_dim(each, i * batch_rows, batch_rows) for each in (d, buffer)
        )
        old, new = old.astype(jnp.float64), new.astype(jnp.float64)
        change = new - old
        if locate:
            row_increase = update(row_increase, change.max(axis=1), i * batch_rows, 0)
            columns = change.argmax(axis=1).astype(jnp.int32)
            row_argmax = update(row_argmax, columns, i * batch_rows, 0)
        increase = jnp.maximum(increase, change.max(axis=0))
        decrease = jnp.minimum(decrease, change.min(axis=0))
        largest = jnp.maximum(largest, new.max(axis=0))
        return row_increase, row_argmax, increase, decrease, largest

    start = (
        jnp.zeros(height),
        jnp.zeros(height, jnp.int32),
        *[jnp.zeros(states)] * 3,
    )
    state = lax.fori_loop(0, height // batch_rows, compare_batch, start)
    row_increase, row_argmax, increase, decrease, largest = state
    due = checkpoint_due[0, 0].astype(jnp.float64)
    extremes = [increase.max(), -decrease.min(), largest.max(), due]
    return row_increase, row_argmax, lax.pmax(jnp.stack(extremes), ROW_AXIS)


def _row_argmax(d: Any, *, batch_rows: int) -> Any:
    """Return the largest entry of each row and its column."""

    def scan_batch(i: Any, state: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(d, i * batch_rows, batch_rows)
        found = rows.max(axis=1).astype(jnp.float64), rows.argmax(axis=1).astype(jnp.int32)
        update = lax.dynamic_update_slice_in_dim
        return tuple(update(a, b, i * batch_rows, 0) for a, b in zip(state, found, strict=True))

    height = d.shape[0]
    start = jnp.zeros(height), jnp.zeros(height, jnp.int32)
    state = lax.fori_loop(0, height // batch_rows, scan_batch, start)
    maxima, columns = (lax.all_gather(each, ROW_AXIS, tiled=True) for each in state)
    return maxima, columns
