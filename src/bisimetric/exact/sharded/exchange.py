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
class Plan:
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

    own: list[int]
    shifts: tuple[int, ...]
    send: NDArray[np.int32]
    slot: NDArray[np.int32]
    row: NDArray[np.int32]
    action: NDArray[np.int32]
    first: NDArray[np.int32]
    rows: int


def planned(successor: NDArray[np.integer], layout: Layout, own: list[int]) -> Plan:
    """The exchange for successors (A, S).

    >>> from bisimetric.exact.sharded.layout import laid_out
    >>> split = laid_out(64, 4, np.dtype("float64"), block=2**12)
    >>> ring = planned((np.arange(64)[None] + 1) % 64, split, [0, 1, 2, 3])
    >>> ring.shifts, ring.rows
    ((3,), 1)
    """
    devices, height = layout.devices, layout.height
    wanted = [_wanted(successor, layout, p) for p in range(devices)]
    most = np.zeros(devices, np.int64)
    for p, rows in enumerate(wanted):
        counts = np.bincount((p - rows // height) % devices, minlength=devices)
        counts[0] = 0
        most = np.maximum(most, counts)
    blocks = -(-most // layout.travel)
    before = np.concatenate([[1], 1 + np.cumsum(blocks[1:])])
    shifts = np.repeat(np.arange(1, devices), blocks[1:])
    steps, longest, jobs = len(shifts), 0, {}
    # Every process must compile the same program: its shapes are those of the busiest device.
    for p in range(devices):
        made = _jobs(successor, layout, p, wanted[p], before)
        longest = max(longest, len(made[-1]))
        if p in own:
            jobs[p] = made
    slot = np.zeros((len(own), longest, layout.batch), np.int32)
    row = np.full((len(own), longest, layout.batch), height, np.int32)
    action = np.zeros((len(own), longest), np.int32)
    first = np.zeros((len(own), steps + 2), np.int32)
    for i, p in enumerate(own):
        slots, rows, actions, step = jobs[p]
        slot[i, : len(actions)], row[i, : len(actions)] = slots, rows
        action[i, : len(actions)] = actions
        first[i] = np.searchsorted(step, np.arange(steps + 2))
    busiest = max(int((rows // height != p).sum()) for p, rows in enumerate(wanted))
    send = _send(wanted, layout, own, before)
    return Plan(own, tuple(shifts.tolist()), send, slot, row, action, first, busiest)


def _send(
    wanted: list[NDArray[np.int64]], layout: Layout, own: list[int], before: NDArray[np.int64]
) -> NDArray[np.int32]:
    """(own, steps, travel): to the device k places on, the rows that it wants, block by block."""
    devices, height = layout.devices, layout.height
    send = np.zeros((len(own), before[-1] - 1, layout.travel), np.int32)
    for i, q in enumerate(own):
        for k in range(1, devices):
            rows = wanted[(q + k) % devices]
            rows = rows[rows // height == q] - q * height
            send[i, before[k - 1] - 1 : before[k] - 1].reshape(-1)[: len(rows)] = rows
    return send


def _wanted(successor: NDArray[np.integer], layout: Layout, p: int) -> NDArray[np.int64]:
    """The rows that device p needs, its own among them, sorted."""
    low, high = p * layout.height, min(layout.states, (p + 1) * layout.height)
    return np.unique(successor[:, low:high]).astype(np.int64)


def _jobs(
    successor: NDArray[np.integer],
    layout: Layout,
    p: int,
    wanted: NDArray[np.int64],
    before: NDArray[np.int64],
) -> tuple[NDArray[np.int64], ...]:
    """What device p does: slots and rows (T, batch), and actions and steps (T,), by step."""
    devices, height, travel = layout.devices, layout.height, layout.travel
    low, high = min(p * height, layout.states), min(layout.states, (p + 1) * height)
    ahead = successor[:, low:high].astype(np.int64)
    owner = wanted // height
    # The place of each wanted row among those of its owner.
    place = np.arange(len(wanted)) - np.searchsorted(owner, owner)
    shift = (p - owner) % devices
    step = np.where(shift == 0, 0, before[shift - 1] + place // travel)
    slot = np.where(shift == 0, wanted - p * height, place % travel)
    at = np.searchsorted(wanted, ahead.ravel())
    actions, rows = np.divmod(np.arange(ahead.size), max(high - low, 1))
    group = step[at] * len(successor) + actions
    order = np.argsort(group, kind="stable")
    group = group[order]
    # The place of each job in its group of one step and action, and the batch that this makes.
    place = np.arange(len(group)) - np.searchsorted(group, group)
    new = place % layout.batch == 0
    batch = np.cumsum(new) - 1
    shape = (int(new.sum()), layout.batch)
    slots = np.zeros(shape, np.int64)
    # Rows of nobody differ from each other, so that no row of a batch is written twice.
    made = np.broadcast_to(height + np.arange(layout.batch), shape).copy()
    slots[batch, place % layout.batch] = slot[at][order]
    made[batch, place % layout.batch] = rows[order]
    return slots, made, actions[order][new], (group // len(successor))[new]
