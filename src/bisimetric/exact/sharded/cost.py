"""What a sharded table will cost: memory, exchange and time, before anything is started."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from bisimetric.errors import InputError, whole
from bisimetric.exact.sharded.layout import (
    LARGE_BLOCK,
    LEAP_EVERY,
    LEAP_STEPS,
    batch_of,
    laid_out,
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices, and the links between them.

    Attributes:
        passed: bytes a second that one device passes over in a sweep: each entry is read once for
            every action and written once.
        inside: bytes a second that a device receives from others of its host.
        between: likewise, from other hosts.
        host: devices of a host.
        memory: bytes that a device may hold.
        step: seconds that a block or a step of a leap takes, however small.
    """

    passed: float
    inside: float
    between: float
    host: int
    memory: float
    step: float


H200 = Machine(
    passed=445e9, inside=450e9, between=50e9, host=8, memory=0.9 * 139 * 2**30, step=1e-4
)
"""Hosts of eight H200: `passed` was measured on one, and `step` for a leap. Assumed are the links
(NVLink inside a host, 400 Gbit/s a device between hosts), and that blocks and sums over devices
take no longer than a step of a leap."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one sweep of a table costs each device, and what it holds.

    Attributes:
        memory: bytes on a device.
        free: bytes that it may hold.
        received: bytes that it receives in a sweep.
        computing, exchanging, leaping: seconds a sweep, one after the other; leaps come every few
            sweeps, and their time is shared out.
    """

    memory: float
    free: float
    received: float
    computing: float
    exchanging: float
    leaping: float

    @property
    def fits(self) -> bool:
        return self.memory <= self.free

    @property
    def sweep(self) -> float:
        """Seconds a sweep."""
        return self.computing + self.exchanging + self.leaping

    def hours(self, sweeps: float) -> float:
        """Hours of a run of so many sweeps; see `most_sweeps`."""
        return sweeps * self.sweep / 3600


def cost(
    states: int,
    actions: int,
    devices: int,
    *,
    rows: int | None = None,
    dtype: DTypeLike = "float32",
    machine: Machine = H200,
) -> Cost:
    """The cost of d~ with its rows split over devices, by a model with one term for each part.

    seconds a sweep = (actions + 1) * entries of a device * bytes a number / passed
                      + bytes received / slowest link + step * (blocks + steps of a leap / 8)

    Between hosts the slowest link is the one that leads there: all devices send at the same time,
    to the device so many places on, and wait for each other.

    Args:
        states: one for each class, see `relation.bisimulation`.
        rows: rows that a device receives in a sweep; default: as many as with random successors,
            the most there can be in the mean. `grid_rows` are those of a grid, and a run says its
            own in `made["received"]`.

    >>> planned = cost(300_000, 4, 8)
    >>> round(planned.memory / 2**30), planned.fits, round(planned.sweep, 2)
    (86, True, 0.83)
    >>> cost(1_000_000, 4, 32).fits
    False
    """
    for name, number in (("states", states), ("actions", actions), ("devices", devices)):
        whole("sharded.cost", name, number, 1)
    if rows is not None and not 0 <= rows <= states:
        raise InputError(f"sharded.cost: rows is {rows} and must be from 0 to states, {states:,}.")
    numbers = np.dtype(dtype)
    batch = batch_of(states, devices)
    layout = laid_out(states, devices, numbers, block=LARGE_BLOCK, batch=batch)
    rows = random_rows(states, actions, devices) if rows is None else rows
    link = machine.inside if devices <= machine.host else machine.between
    received = 0 if devices == 1 else rows * layout.row_bytes
    passed = (actions + 1) * layout.own_bytes
    # Of each other device, at most one block is not full.
    blocks = 0 if devices == 1 else rows / layout.travel + devices - 1
    return Cost(
        memory=layout.needed,
        free=machine.memory,
        received=received,
        computing=passed / machine.passed,
        exchanging=received / link + machine.step * blocks,
        leaping=machine.step * LEAP_STEPS / LEAP_EVERY,
    )


def random_rows(states: int, actions: int, devices: int) -> int:
    """Rows that a device receives in a sweep where successors are drawn at random.

    Of S states it needs S (1 - e^(-A / n)) in the mean, and holds one in n of them itself.

    >>> random_rows(8000, 4, 2), random_rows(8000, 4, 4)
    (3459, 3793)
    """
    return round(states * -math.expm1(-actions / devices) * (1 - 1 / devices))


def grid_rows(states: int, devices: int) -> int:
    """Rows that a device receives where successors are neighbours on a square grid.

    >>> grid_rows(7921, 2), grid_rows(7921, 4)
    (89, 178)
    """
    return math.isqrt(states) * min(2, devices - 1)


def most_sweeps(discount: float, dtype: DTypeLike = "float32") -> int:
    """Sweeps in which value iteration comes down to the grain of any table, but for rounding.

    After k sweeps d lies within discount^k of the largest distance. Leaps make it fewer.

    >>> most_sweeps(0.99), most_sweeps(0.9)
    (1587, 152)
    """
    grain = float(np.finfo(np.dtype(dtype)).eps)
    return 1 if discount == 0 else math.ceil(math.log(grain) / math.log(discount))


@dataclasses.dataclass(frozen=True)
class Measured:
    """The seconds that a sweep took on each of some devices, and the rows that it received."""

    states: int
    actions: int
    devices: int
    rows: int
    seconds: float


def fitted(measured: Sequence[Measured], dtype: DTypeLike = "float32") -> tuple[float, float]:
    """Bytes a second that are passed over and received, by which sweeps took what they took.

    The least squares of relative errors; a machine of one's own is `Machine(*fitted(...), ...)`.

    >>> told = Machine(2e9, 1e9, 1e9, 8, 2**30, 0.0)
    >>> sizes = [(s, n, random_rows(s, 4, n)) for s in (4000, 8000) for n in (1, 2, 4)]
    >>> times = [cost(s, 4, n, rows=rows, machine=told).sweep for s, n, rows in sizes]
    >>> measured = [Measured(s, 4, n, r, t) for (s, n, r), t in zip(sizes, times)]
    >>> [round(rate / 1e9, 2) for rate in fitted(measured)]
    [2.0, 1.0]
    """
    unit = Machine(1.0, 1.0, 1.0, 1, 1.0, 0.0)
    parts = []
    for each in measured:
        found = cost(
            each.states, each.actions, each.devices, rows=each.rows, dtype=dtype, machine=unit
        )
        parts.append([found.computing / each.seconds, found.exchanging / each.seconds])
    a, b = np.linalg.lstsq(np.array(parts), np.ones(len(parts)), rcond=None)[0].tolist()
    return 1 / a, 1 / b
