"""The plan of a row exchange: which rows devices send each other, and how each is used.

The new row of s is computed from the rows of its successors. Device p needs those that others hold;
at shift k it receives them from device p - k, one block of rows at a time. A block is used before
the next one arrives, so that no device holds more of the others' rows. Shifts at which no device
needs anything are omitted.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.sharded.layout import Layout


@dataclasses.dataclass(frozen=True)
class ExchangePlan:
    """The row exchange for given successors, for the devices of this process.

    Attributes:
        local_devices: the indices of this process's devices, in the order of the first axes below.
        shifts: the shift of each step after the first, which uses a device's own rows.
        send_rows: (local, steps, block), the rows that a device sends in each step.
        source_slots: (local, T, batch), the rows to use, as indices into the block or own rows.
        target_rows: (local, T, batch), the rows to compute; `rows_per_device` or more is padding.
        actions: (local, T), the action of each batch.
        batch_offsets: (local, steps + 2), step i has batches [i] to [i + 1] - 1.
        max_received_rows: the largest number of rows that a device receives.
    """

    local_devices: list[int]
    shifts: tuple[int, ...]
    send_rows: NDArray[np.int32]
    source_slots: NDArray[np.int32]
    target_rows: NDArray[np.int32]
    actions: NDArray[np.int32]
    batch_offsets: NDArray[np.int32]
    max_received_rows: int


def plan_exchange(
    successor: NDArray[np.integer], layout: Layout, local_devices: list[int]
) -> ExchangePlan:
    """Plan the row exchange for successors (A, S).

    >>> from bisimetric.exact.sharded.layout import build_layout
    >>> layout = build_layout(64, 4, np.dtype("float64"), block_bytes=2**12)
    >>> ring = plan_exchange((np.arange(64)[None] + 1) % 64, layout, [0, 1, 2, 3])
    >>> ring.shifts, ring.max_received_rows
    ((3,), 1)
    """
    devices, height = layout.num_devices, layout.rows_per_device
    required = [_find_required_rows(successor, layout, p) for p in range(devices)]
    max_rows = np.zeros(devices, np.int64)
    for p, rows in enumerate(required):
        counts = np.bincount((p - rows // height) % devices, minlength=devices)
        counts[0] = 0
        max_rows = np.maximum(max_rows, counts)
    blocks = -(-max_rows // layout.block_rows)
    step_offsets = np.concatenate([[1], 1 + np.cumsum(blocks[1:])])
    shifts = np.repeat(np.arange(1, devices), blocks[1:])
    steps, max_batches, batches = len(shifts), 0, {}
    # Every process must compile the same kernel: its shapes are those of the busiest device.
    for p in range(devices):
        planned = _plan_batches(successor, layout, p, required[p], step_offsets)
        max_batches = max(max_batches, len(planned[-1]))
        if p in local_devices:
            batches[p] = planned
    slot = np.zeros((len(local_devices), max_batches, layout.batch_rows), np.int32)
    row = np.full((len(local_devices), max_batches, layout.batch_rows), height, np.int32)
    action = np.zeros((len(local_devices), max_batches), np.int32)
    offsets = np.zeros((len(local_devices), steps + 2), np.int32)
    for i, p in enumerate(local_devices):
        slots, rows, actions, step = batches[p]
        slot[i, : len(actions)], row[i, : len(actions)] = slots, rows
        action[i, : len(actions)] = actions
        offsets[i] = np.searchsorted(step, np.arange(steps + 2))
    received = max(int((rows // height != p).sum()) for p, rows in enumerate(required))
    send = _plan_sends(required, layout, local_devices, step_offsets)
    return ExchangePlan(
        local_devices, tuple(shifts.tolist()), send, slot, row, action, offsets, received
    )


def _plan_sends(
    required_rows: list[NDArray[np.int64]],
    layout: Layout,
    local_devices: list[int],
    step_offsets: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return the rows (local, steps, block) that each device sends to device + k, by blocks."""
    devices, height = layout.num_devices, layout.rows_per_device
    send = np.zeros((len(local_devices), step_offsets[-1] - 1, layout.block_rows), np.int32)
    for i, q in enumerate(local_devices):
        for k in range(1, devices):
            rows = required_rows[(q + k) % devices]
            rows = rows[rows // height == q] - q * height
            send[i, step_offsets[k - 1] - 1 : step_offsets[k] - 1].reshape(-1)[: len(rows)] = rows
    return send


def _find_required_rows(
    successor: NDArray[np.integer], layout: Layout, device: int
) -> NDArray[np.int64]:
    """Return the sorted rows that a device needs, including its own."""
    low = device * layout.rows_per_device
    high = min(layout.num_states, (device + 1) * layout.rows_per_device)
    return np.unique(successor[:, low:high]).astype(np.int64)


def _plan_batches(
    successor: NDArray[np.integer],
    layout: Layout,
    device: int,
    required_rows: NDArray[np.int64],
    step_offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int64], ...]:
    """Return a device's batches by step: slots and rows (T, batch), actions and steps (T,)."""
    devices, height, block = layout.num_devices, layout.rows_per_device, layout.block_rows
    low = min(device * height, layout.num_states)
    high = min(layout.num_states, (device + 1) * height)
    successors = successor[:, low:high].astype(np.int64)
    owner = required_rows // height
    # The position of each required row among those of its owner.
    position = np.arange(len(required_rows)) - np.searchsorted(owner, owner)
    shift = (device - owner) % devices
    step = np.where(shift == 0, 0, step_offsets[shift - 1] + position // block)
    slot = np.where(shift == 0, required_rows - device * height, position % block)
    index = np.searchsorted(required_rows, successors.ravel())
    actions, rows = np.divmod(np.arange(successors.size), max(high - low, 1))
    group = step[index] * len(successor) + actions
    order = np.argsort(group, kind="stable")
    group = group[order]
    # The position of each row in its group of one step and action, which determines its batch.
    position = np.arange(len(group)) - np.searchsorted(group, group)
    starts = position % layout.batch_rows == 0
    batch = np.cumsum(starts) - 1
    shape = (int(starts.sum()), layout.batch_rows)
    slots = np.zeros(shape, np.int64)
    # Padding rows differ from each other, so that no row of a batch is written twice.
    targets = np.broadcast_to(height + np.arange(layout.batch_rows), shape).copy()
    slots[batch, position % layout.batch_rows] = slot[index][order]
    targets[batch, position % layout.batch_rows] = rows[order]
    return slots, targets, actions[order][starts], (group // len(successor))[starts]
