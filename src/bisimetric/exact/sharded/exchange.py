"""Which rows travel between devices, and what is done with each: planned once for a step.

The new row of s is made of the rows of its successors. Device p needs those that others hold; at
shift k it gets them from device p - k, a block of rows at a time. A block is used up before the
next one arrives, so that no device ever holds more of the others' rows. Shifts at which no device
needs anything are left out.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.sharded.layout import Layout


@dataclasses.dataclass(frozen=True)
class ExchangePlan:
    """The exchange of rows for given successors, as the devices of this process see it.

    Attributes:
        own: the places of this process's devices, in the order of the first axes below.
        shifts: the shift of each step after the first, which uses a device's own rows.
        send: (own, steps, travel), the rows that a device sends at each step.
        slot: (own, T, batch), where the rows to use stand: in the block, or among the own rows.
        row: (own, T, batch), the rows that are made of them; `height` or more is nobody's.
        action: (own, T), the action that leads there, one for a batch.
        first: (own, steps + 2), the batches of step i are first[i] to first[i + 1].
        rows: the rows that the busiest device receives.
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
    """The exchange for successors (A, S).

    >>> from bisimetric.exact.sharded.layout import laid_out
    >>> split = laid_out(64, 4, np.dtype("float64"), block=2**12)
    >>> ring = planned((np.arange(64)[None] + 1) % 64, split, [0, 1, 2, 3])
    >>> ring.shifts, ring.rows
    ((3,), 1)
    """
    devices, height = layout.num_devices, layout.rows_per_device
    wanted = [_find_required_rows(successor, layout, p) for p in range(devices)]
    most = np.zeros(devices, np.int64)
    for p, rows in enumerate(wanted):
        counts = np.bincount((p - rows // height) % devices, minlength=devices)
        counts[0] = 0
        most = np.maximum(most, counts)
    blocks = -(-most // layout.block_rows)
    before = np.concatenate([[1], 1 + np.cumsum(blocks[1:])])
    shifts = np.repeat(np.arange(1, devices), blocks[1:])
    steps, longest, jobs = len(shifts), 0, {}
    # Every process must compile the same program: its shapes are those of the busiest device.
    for p in range(devices):
        made = _plan_batches(successor, layout, p, wanted[p], before)
        longest = max(longest, len(made[-1]))
        if p in local_devices:
            jobs[p] = made
    slot = np.zeros((len(local_devices), longest, layout.batch_rows), np.int32)
    row = np.full((len(local_devices), longest, layout.batch_rows), height, np.int32)
    action = np.zeros((len(local_devices), longest), np.int32)
    first = np.zeros((len(local_devices), steps + 2), np.int32)
    for i, p in enumerate(local_devices):
        slots, rows, actions, step = jobs[p]
        slot[i, : len(actions)], row[i, : len(actions)] = slots, rows
        action[i, : len(actions)] = actions
        first[i] = np.searchsorted(step, np.arange(steps + 2))
    busiest = max(int((rows // height != p).sum()) for p, rows in enumerate(wanted))
    send = _plan_sends(wanted, layout, local_devices, before)
    return ExchangePlan(
        local_devices, tuple(shifts.tolist()), send, slot, row, action, first, busiest
    )


def _plan_sends(
    required_rows: list[NDArray[np.int64]],
    layout: Layout,
    local_devices: list[int],
    step_offsets: NDArray[np.int64],
) -> NDArray[np.int32]:
    """(own, steps, travel): to the device k places on, the rows that it wants, block by block."""
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
    """The rows that device p needs, its own among them, sorted."""
    low, high = (
        device * layout.rows_per_device,
        min(layout.num_states, (device + 1) * layout.rows_per_device),
    )
    return np.unique(successor[:, low:high]).astype(np.int64)


def _plan_batches(
    successor: NDArray[np.integer],
    layout: Layout,
    device: int,
    required_rows: NDArray[np.int64],
    step_offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int64], ...]:
    """What device p does: slots and rows (T, batch), and actions and steps (T,), by step."""
    devices, height, travel = layout.num_devices, layout.rows_per_device, layout.block_rows
    low, high = (
        min(device * height, layout.num_states),
        min(layout.num_states, (device + 1) * height),
    )
    ahead = successor[:, low:high].astype(np.int64)
    owner = required_rows // height
    # The place of each wanted row among those of its owner.
    place = np.arange(len(required_rows)) - np.searchsorted(owner, owner)
    shift = (device - owner) % devices
    step = np.where(shift == 0, 0, step_offsets[shift - 1] + place // travel)
    slot = np.where(shift == 0, required_rows - device * height, place % travel)
    at = np.searchsorted(required_rows, ahead.ravel())
    actions, rows = np.divmod(np.arange(ahead.size), max(high - low, 1))
    group = step[at] * len(successor) + actions
    order = np.argsort(group, kind="stable")
    group = group[order]
    # The place of each job in its group of one step and action, and the batch that this makes.
    place = np.arange(len(group)) - np.searchsorted(group, group)
    new = place % layout.batch_rows == 0
    batch = np.cumsum(new) - 1
    shape = (int(new.sum()), layout.batch_rows)
    slots = np.zeros(shape, np.int64)
    # Rows of nobody differ from each other, so that no row of a batch is written twice.
    made = np.broadcast_to(height + np.arange(layout.batch_rows), shape).copy()
    slots[batch, place % layout.batch_rows] = slot[at][order]
    made[batch, place % layout.batch_rows] = rows[order]
    return slots, made, actions[order][new], (group // len(successor))[new]
