"""The CUDA kernels of a sharded matrix, launched by CuPy on the buffers of JAX's arrays.

JAX allocates the matrix and exchanges its rows; the kernels read and write the parts of this
process's devices in place. JAX and CuPy have separate streams, so every launch waits for JAX's
arrays, and JAX continues when the kernels have ended.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.exact.deterministic.doubling import count_doublings
from bisimetric.exact.gpu.cuda import ROWS, KernelModule, KernelSource, format_c_type
from bisimetric.exact.gpu.plan import plan_sweep
from bisimetric.exact.gpu.workspace import TILE_SIZE
from bisimetric.exact.sharded.cuda_devices import ShardDevice
from bisimetric.exact.sharded.exchange import ExchangePlan
from bisimetric.exact.sharded.kernels import REPLICATED_SPEC, ROW_SPEC, DevicePlan, Kernels
from bisimetric.exact.sharded.layout import Layout, ShardedProblem
from bisimetric.exact.sharded.process_group import ROW_AXIS

ROW_KERNELS = KernelSource(
    Path(__file__).with_name("row_kernels.cu"),
    ("sweep_rows", "sweep_long_rows", "select_steps", "compose_row_steps", "apply_step_values"),
    ROWS,
)
MIN_ROW_THREADS, MAX_ROW_THREADS, STEP_THREADS = 128, 1024, 256
"""Threads per block of `sweep_rows`, at least and at most, and of all other kernels."""
PAIR_REGISTERS = 32
"""Registers (4 bytes) that a thread of `sweep_rows` may use for its pairs."""
LONG_COLUMNS = 8
"""Columns that a thread of `sweep_long_rows` visits at a time."""
LONG_RATIO = 1.1
"""Rows are long if this many times the shared memory cannot hold them."""
COPY_BYTES, PREFETCH_BYTES = 2**14, 2**16
"""Bytes per bulk copy into shared memory, and bytes of the next row to bring into the L2 cache."""
MAX_UINT16_STATES = 2**16
"""The largest number of states whose ids fit into 16 bits."""


@dataclasses.dataclass(frozen=True)
class RowShape:
    """How a kernel divides a row.

    Attributes:
        kernel: `sweep_rows` or `sweep_long_rows`.
        threads: threads per block.
        quads: groups of 4 columns per thread of `sweep_rows`.
        chunks: blocks per row.
        cached_columns: columns of a row in shared memory: of the row that is read, or of the long
            row that is written.
        shared_bytes: shared memory per block.
        blocks: blocks that run at once, a multiple of `chunks`.
        padded_length: length of the arrays of successors and rewards.
        prefetch_bytes: bytes of the next row that are fetched into the L2 cache.
    """

    kernel: str
    threads: int
    quads: int
    chunks: int
    cached_columns: int
    shared_bytes: int
    blocks: int
    padded_length: int
    prefetch_bytes: int

    @property
    def is_long(self) -> bool:
        """Whether a row is longer than shared memory."""
        return self.kernel == "sweep_long_rows"


def choose_row_shape(device: ShardDevice, num_states: int, dtype: np.dtype[Any]) -> RowShape:
    """Choose the kernel and its shape for rows of a length."""
    size, resident = dtype.itemsize, device.num_multiprocessors
    # Up to 3 numbers before a row are copied with it; a barrier takes 16 bytes.
    capacity = (device.shared_bytes - 16) // 16 * 16 // size - 4
    most = min(MAX_ROW_THREADS, device.max_threads)
    if num_states > LONG_RATIO * capacity:
        chunks = -(-num_states // capacity)
        width = -(-num_states // chunks)
        shared = max(-(-width * size // 16) * 16, 2 * most * size)
        blocks = max(1, resident // chunks) * chunks
        return RowShape("sweep_long_rows", most, 1, chunks, width, shared, blocks, num_states, 0)
    quads = PAIR_REGISTERS // size
    threads = min(MIN_ROW_THREADS, most)
    while 4 * threads * quads < num_states + 3 and threads < most:
        threads *= 2
    chunks = -(-(num_states + 3) // (4 * threads * quads))
    quads = -(-(num_states + 3) // (4 * threads * chunks))
    cached = min(num_states, capacity)
    shared = 16 + max(-(-(cached + 4) * size // 16) * 16, 2 * threads * size)
    per_multiprocessor = max(1, min(1024 // threads, device.shared_bytes // (shared + 1024)))
    blocks = max(1, resident * per_multiprocessor // chunks) * chunks
    # Blocks of the same row would evict what each other prefetches.
    prefetch = PREFETCH_BYTES if chunks == 1 else 0
    length = chunks * quads * 4 * threads
    return RowShape("sweep_rows", threads, quads, chunks, cached, shared, blocks, length, prefetch)


@dataclasses.dataclass(frozen=True)
class StepUses:
    """What a step of the exchange is used for; see `sweep_rows`."""

    rows: NDArray[np.int32]
    stages: NDArray[np.int32]
    offsets: NDArray[np.int32]
    slots: NDArray[np.int32]
    actions: NDArray[np.int32]


def list_uses(plan: ExchangePlan, layout: Layout, local: int) -> list[StepUses]:
    """List the uses of the rows in each step, by row, for the device `local` of the plan.

    >>> from bisimetric.exact.sharded.exchange import plan_exchange
    >>> from bisimetric.exact.sharded.layout import build_layout
    >>> layout = build_layout(4, 2, np.dtype("float64"))
    >>> plan = plan_exchange(np.array([[1, 2, 3, 0], [0, 1, 2, 3]]), layout, [0, 1])
    >>> own, received = list_uses(plan, layout, 0)
    >>> own.rows.tolist(), own.stages.tolist(), own.slots.tolist()
    ([0, 1], [3, 1], [0, 1, 1])
    >>> received.rows.tolist(), received.stages.tolist()
    ([1], [2])
    """
    found = []
    for step in range(len(plan.shifts) + 1):
        low, high = plan.batch_offsets[local, step : step + 2]
        slots, targets = (each[local, low:high] for each in (plan.source_slots, plan.target_rows))
        actions = np.broadcast_to(plan.actions[local, low:high, None], targets.shape)
        used = targets < layout.rows_per_device
        found.append((targets[used], slots[used], actions[used]))
    first = np.full(layout.rows_per_device, len(found))
    last = np.full(layout.rows_per_device, -1)
    for step, (targets, _, _) in enumerate(found):
        np.minimum.at(first, targets, step)
        np.maximum.at(last, targets, step)
    return [
        _order_uses(*arrays, (first == step) + 2 * (last == step))
        for step, arrays in enumerate(found)
    ]


def _order_uses(
    targets: NDArray[np.int32],
    slots: NDArray[np.int32],
    actions: NDArray[np.int32],
    stages: NDArray[np.int64],
) -> StepUses:
    """Order the uses of a step by row, such that neighbours use the same row where possible."""
    order = np.lexsort((slots, targets))
    targets, slots, actions = targets[order], slots[order], actions[order]
    rows, starts, counts = np.unique(targets, return_index=True, return_counts=True)
    if len(rows) and (counts == counts[0]).all() and counts[0] > 1:
        plan = plan_sweep(slots.reshape(len(rows), -1).T)
        rows, slots = rows[plan.order], plan.visits[:, :, 0].ravel()
        position = plan.visits[:, :, 1].astype(np.int64) + starts[plan.order, None]
        actions, counts = actions[position.ravel()], counts[plan.order]
    else:
        by_slot = np.argsort(slots[starts], kind="stable")
        rows, starts, counts = rows[by_slot], starts[by_slot], counts[by_slot]
        position = np.arange(len(slots)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        slots, actions = slots[position], actions[position]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    arrays = (rows, stages[rows], offsets, slots, actions)
    return StepUses(*(each.astype(np.int32) for each in arrays))


@dataclasses.dataclass(frozen=True)
class DeviceProblem:
    """A problem on one device, and the kernels compiled for it.

    Attributes:
        device: the device.
        index: its index among all.
        shape: how a kernel divides a row.
        module: the kernels.
        successor, reward: (4, A, padded) for `sweep_rows`, or (A, padded) for long rows.
        reward64: (A, S) in float64.
        visits: the columns of long rows in the order of `sort_columns`.
        uses: the arrays of `StepUses` per step.
        extremes: (2,) in float64.
    """

    device: ShardDevice
    index: int
    shape: RowShape
    module: KernelModule
    successor: Any
    reward: Any
    reward64: Any
    visits: tuple[Any, ...]
    uses: list[tuple[Any, ...]]
    extremes: Any


class RowKernels:
    """Sweeps and policy evaluation of d~ by CUDA kernels."""

    def __init__(
        self,
        kernels: Kernels,
        problem: ShardedProblem,
        plan: ExchangePlan,
        devices: list[ShardDevice],
        spare_bytes: float = 0.0,
    ) -> None:
        self.kernels, self.problem, self.layout = kernels, problem, kernels.layout
        self.name = devices[0].name
        self._shifts = plan.shifts
        states, dtype = problem.num_states, self.layout.dtype
        self._parts = []
        first = dtype.type(problem.discount)
        self._discounts = first, dtype.type(problem.discount - float(first))
        state_bits = 16 if states <= MAX_UINT16_STATES else 32
        state_dtype = np.dtype(f"uint{state_bits}")
        self._step_bytes = (
            max(dtype.itemsize + state_bits // 4, 2 * dtype.itemsize)
            * self.layout.rows_per_device
            * max(1, states // 2)
        )
        for local, device in enumerate(devices):
            shape = choose_row_shape(device, states, dtype)
            successor, reward = problem.successor, _centre(problem.reward, dtype)
            visits: tuple[NDArray[Any], ...] = ()
            if shape.is_long:
                columns = sort_columns(successor, reward, shape)
                visits = (
                    columns[0].astype(state_dtype),
                    columns[1].astype(dtype),
                    columns[2].astype(np.uint16),
                )
            else:
                successor, reward = (
                    _shift_columns(each, shape.padded_length) for each in (successor, reward)
                )
            with device.activate():
                module = device.compile(
                    ROW_KERNELS,
                    VALUE_TYPE=format_c_type(dtype),
                    VALUE_BITS=8 * dtype.itemsize,
                    STATE_BITS=state_bits,
                    SWEEP_THREADS=shape.threads,
                    QUADS=shape.quads,
                    LONG_COLUMNS=LONG_COLUMNS,
                    COPY_BYTES=COPY_BYTES,
                    PREFETCH_BYTES=shape.prefetch_bytes,
                    WHOLE_ROWS=int(shape.cached_columns >= states),
                    HAS_COST=int(problem.cost is not None),
                    TILE_SIZE=TILE_SIZE,
                )
                self._parts.append(
                    DeviceProblem(
                        device,
                        plan.local_devices[local],
                        shape,
                        module,
                        device.upload(successor.astype(state_dtype)),
                        device.upload(reward.astype(dtype)),
                        device.upload(problem.reward),
                        tuple(device.upload(each) for each in visits),
                        [
                            tuple(device.upload(each) for each in dataclasses.astuple(uses))
                            for uses in list_uses(plan, self.layout, local)
                        ],
                        device.upload(np.zeros(2)),
                    )
                )
        extra = self._step_bytes * (1 if self._step_bytes <= self.layout.local_bytes else 2)
        self.can_evaluate_policy = (
            kernels.group.num_processes == 1
            and states > 1
            and extra <= spare_bytes
            and all(device.reads_peers for device in devices)
        )

    def sweep(
        self, d: jax.Array, buffer: jax.Array, plan: DevicePlan, cost: jax.Array, due: bool
    ) -> tuple[float, float, bool]:
        """Set `buffer` to max(d, F(d)); return the largest F(d) - d and F(d), and any `due`.

        Numbers are rounded down. The next block is sent while one is used.
        """
        jax.block_until_ready((d, buffer, cost))
        for part in self._parts:
            with part.device.activate():
                part.extremes[:] = 0
        received = self._send(d, plan, 0)
        self._launch_sweep(0, d, d, buffer, cost)
        for step in range(1, len(self._shifts) + 1):
            available = jax.block_until_ready(received)
            received = self._send(d, plan, step)
            # At most two received blocks exist at once.
            self._synchronize()
            self._launch_sweep(step, available, d, buffer, cost)
        self._synchronize()
        return self._combine_extremes(due)

    def _send(self, d: jax.Array, plan: DevicePlan, step: int) -> Any:
        if step == len(self._shifts):
            return None
        return self.kernels.compile_send(self._shifts[step])(d, plan.send_rows, np.int32(step))

    def _launch_sweep(
        self, step: int, available: jax.Array, d: jax.Array, buffer: jax.Array, cost: jax.Array
    ) -> None:
        states = self.layout.num_states
        views = zip(
            self._view(available), self._view(d), self._view(buffer),
            self._view(cost, np.float64), strict=True,
        )  # fmt: skip
        for part, (rows, old, new, added) in zip(self._parts, views, strict=True):
            uses, shape = part.uses[step], part.shape
            count = len(uses[0])
            if count == 0:
                continue
            arguments = (
                rows, old, new, *uses, np.int32(count),
                np.int32(part.index * self.layout.rows_per_device),
            )  # fmt: skip
            length, cached = np.int32(shape.padded_length), np.int32(shape.cached_columns)
            if shape.is_long:
                arguments += (
                    *part.visits, part.reward, added, *self._discounts, np.int32(states), length,
                    cached, part.extremes,
                )  # fmt: skip
            else:
                arguments += (
                    part.successor, part.reward, added, *self._discounts, np.int32(states),
                    np.int32(len(self.problem.reward)), length, cached, part.extremes,
                )  # fmt: skip
            grid = (min(shape.blocks, count * shape.chunks),)
            with part.device.activate():
                part.module.launch(
                    shape.kernel, grid, shape.threads, *arguments, shared_bytes=shape.shared_bytes
                )

    def _combine_extremes(self, due: bool) -> tuple[float, float, bool]:
        """Return the maxima over all devices."""
        local = []
        for part in self._parts:
            with part.device.activate():
                local.append([*part.device.fetch(part.extremes), float(due)])
        if self.kernels.group.num_processes == 1:
            increase, largest, any_due = np.max(local, axis=0).tolist()
            return increase, largest, any_due > 0
        placed = self.kernels.place_parts(np.array(local))
        reduce = self.kernels.compile(
            "extremes", lambda each: lax.pmax(each[0], ROW_AXIS), (ROW_SPEC,), REPLICATED_SPEC
        )
        increase, largest, any_due = np.asarray(reduce(placed)).tolist()
        return increase, largest, any_due > 0

    def evaluate_policy(self, d: jax.Array, buffer: jax.Array, cost: jax.Array) -> None:
        """Set `buffer` to the infinite-horizon value of the greedy actions of d, or d if larger.

        The number of steps of all pairs doubles until the truncation error is negligible. Devices
        read the steps of other rows from each other's memory.
        """
        p, layout = self.problem, self.layout
        doublings = count_doublings(p.largest_gap, p.discount, p.residual_tolerance)
        scratch = self._allocate_steps()
        in_buffer = self._step_bytes <= layout.local_bytes
        other = buffer if in_buffer else self._allocate_steps()
        # The last steps must not be in the buffer, which takes the result.
        steps, composed = (scratch, other) if doublings % 2 == 0 else (other, scratch)
        jax.block_until_ready((d, buffer, cost, scratch, other))
        states, height = np.int32(layout.num_states), np.int32(layout.rows_per_device)
        costs = self._view(cost, np.float64)
        # No sum of costs reaches 2^32 / scale.
        scale = np.float64(2**32 * (1 - 2.0**-20) * (1 - p.discount) / max(p.largest_gap, 1e-300))
        for i, (part, count, grid) in enumerate(self._list_parts()):
            low = np.int32(part.index * layout.rows_per_device)
            self._launch(
                part, "select_steps", grid, self._table(part, d), self._view(steps)[i],
                part.successor, part.reward64, costs[i], np.float64(p.discount), scale, states,
                height, low, count, np.int32(len(p.reward)), np.int32(part.shape.padded_length),
            )  # fmt: skip
        self._synchronize()
        weight = p.discount
        for _ in range(doublings):
            for i, (part, count, _) in enumerate(self._list_parts()):
                blocks = (32 * part.device.num_multiprocessors,)
                self._launch(
                    part, "compose_row_steps", blocks, self._table(part, steps),
                    self._view(steps)[i], self._view(composed)[i], np.float64(weight), states,
                    height, count,
                )  # fmt: skip
            self._synchronize()
            steps, composed = composed, steps
            weight = weight * weight
        rounding_factor = np.float64(1 - 64 * UNIT)
        for i, (part, count, grid) in enumerate(self._list_parts()):
            low = np.int32(part.index * layout.rows_per_device)
            self._launch(
                part, "apply_step_values", grid, self._table(part, d), self._view(buffer)[i],
                self._table(part, steps), np.float64(weight), rounding_factor, scale, states,
                height, low, count,
            )  # fmt: skip
        self._synchronize()

    def _list_parts(self) -> list[tuple[DeviceProblem, np.int32, tuple[int, int]]]:
        """Return each device with its number of rows, and a grid over its pairs."""
        found = []
        for part in self._parts:
            low = part.index * self.layout.rows_per_device
            count = max(0, min(self.layout.rows_per_device, self.layout.num_states - low))
            if count:
                columns = -(-self.layout.num_states // (4 * STEP_THREADS))
                found.append((part, np.int32(count), (columns, min(count, 2**15))))
        return found

    def _launch(
        self, part: DeviceProblem, name: str, grid: tuple[int, ...], *arguments: Any
    ) -> None:
        threads = min(STEP_THREADS, part.device.max_threads)
        with part.device.activate():
            part.module.launch(name, grid, threads, *arguments)

    def _view(self, array: jax.Array, dtype: Any = None) -> list[Any]:
        """Return the buffers of an array on the devices of this process."""
        parts = {first: part.data for first, part in _list_shards(array)}
        return [
            device.view(parts[first], dtype or self.layout.dtype)
            for device, first in zip(
                (part.device for part in self._parts), sorted(parts), strict=True
            )
        ]

    def _table(self, part: DeviceProblem, array: jax.Array) -> Any:
        """Return the addresses of an array on all devices, as an array on one."""
        addresses = [shard.data.unsafe_buffer_pointer() for _, shard in _list_shards(array)]
        with part.device.activate():
            return part.device.upload(np.array(addresses, np.uint64))

    def _allocate_steps(self) -> jax.Array:
        allocate = functools.partial(jnp.zeros, (1, self._step_bytes), jnp.uint8)
        return self.kernels.compile("steps", allocate, (), ROW_SPEC)()

    def _synchronize(self) -> None:
        for part in self._parts:
            with part.device.activate():
                part.device.synchronize()


def _list_shards(array: jax.Array) -> list[tuple[int, Any]]:
    """Return the first row and the part of each device of this process, in the order of rows."""
    shards = [(shard.index[0].start or 0, shard) for shard in array.addressable_shards]
    return sorted(shards, key=lambda each: each[0])


def _shift_columns(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return (4, A, length) from (A, S): copy m has column t at m + t, and 0 elsewhere."""
    shifted = np.zeros((4, len(array), length), array.dtype)
    for m in range(4):
        shifted[m, :, m : m + array.shape[1]] = array
    return shifted


def sort_columns(
    successor: NDArray[np.integer], reward: NDArray[np.float64], shape: RowShape
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.int64]]:
    """Return successors, rewards and columns (A, S), the columns of each block by successor.

    Columns are counted from the first one of the block.
    """
    block = np.arange(successor.shape[1]) // shape.cached_columns
    order = np.stack([np.lexsort((each, block)) for each in successor])
    sorted_arrays = (np.take_along_axis(each, order, axis=1) for each in (successor, reward))
    first_column = block * shape.cached_columns
    return (*sorted_arrays, order - first_column)  # type: ignore[return-value]


def _centre(reward: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return rewards (A, S) as kernels subtract them; in float32 centred per action."""
    if dtype != np.float32:
        return reward
    middle = reward.min(axis=1, keepdims=True) / 2 + reward.max(axis=1, keepdims=True) / 2
    return np.asarray(reward - middle)
