"""What a sharded table will cost: memory, exchange and time, before anything is started."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from bisimetric.errors import InputError, require_integer
from bisimetric.exact.sharded.layout import (
    ACCELERATOR_BLOCK_BYTES,
    CYCLE_EVALUATION_PERIOD,
    MAX_CYCLE_STEPS,
    build_layout,
    choose_batch_rows,
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

    sweep_bandwidth: float
    intra_host_bandwidth: float
    inter_host_bandwidth: float
    devices_per_host: int
    device_memory: float
    step_latency: float


H200 = Machine(
    sweep_bandwidth=445e9,
    intra_host_bandwidth=450e9,
    inter_host_bandwidth=50e9,
    devices_per_host=8,
    device_memory=0.9 * 139 * 2**30,
    step_latency=1e-4,
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

    device_bytes: float
    available_bytes: float
    received_bytes: float
    compute_seconds: float
    exchange_seconds: float
    cycle_seconds: float

    @property
    def fits(self) -> bool:
        return self.device_bytes <= self.available_bytes

    @property
    def sweep_seconds(self) -> float:
        """Seconds a sweep."""
        return self.compute_seconds + self.exchange_seconds + self.cycle_seconds

    def hours(self, num_sweeps: float) -> float:
        """Hours of a run of so many sweeps; see `most_sweeps`."""
        return num_sweeps * self.sweep_seconds / 3600


def estimate_cost(
    num_states: int,
    num_actions: int,
    num_devices: int,
    *,
    received_rows: int | None = None,
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
    for name, number in (
        ("states", num_states),
        ("actions", num_actions),
        ("devices", num_devices),
    ):
        require_integer("sharded.cost", name, number, 1)
    if received_rows is not None and not 0 <= received_rows <= num_states:
        raise InputError(
            f"sharded.cost: rows is {received_rows} and must be from 0 to states, {num_states:,}."
        )
    numbers = np.dtype(dtype)
    batch = choose_batch_rows(num_states, num_devices)
    layout = build_layout(
        num_states, num_devices, numbers, block_bytes=ACCELERATOR_BLOCK_BYTES, batch_rows=batch
    )
    received_rows = (
        estimate_random_rows(num_states, num_actions, num_devices)
        if received_rows is None
        else received_rows
    )
    link = (
        machine.intra_host_bandwidth
        if num_devices <= machine.devices_per_host
        else machine.inter_host_bandwidth
    )
    received = 0 if num_devices == 1 else received_rows * layout.row_bytes
    passed = (num_actions + 1) * layout.local_bytes
    # Of each other device, at most one block is not full.
    blocks = 0 if num_devices == 1 else received_rows / layout.block_rows + num_devices - 1
    return Cost(
        device_bytes=layout.device_bytes,
        available_bytes=machine.device_memory,
        received_bytes=received,
        compute_seconds=passed / machine.sweep_bandwidth,
        exchange_seconds=received / link + machine.step_latency * blocks,
        cycle_seconds=machine.step_latency * MAX_CYCLE_STEPS / CYCLE_EVALUATION_PERIOD,
    )


def estimate_random_rows(num_states: int, num_actions: int, num_devices: int) -> int:
    """Rows that a device receives in a sweep where successors are drawn at random.

    Of S states it needs S (1 - e^(-A / n)) in the mean, and holds one in n of them itself.

    >>> random_rows(8000, 4, 2), random_rows(8000, 4, 4)
    (3459, 3793)
    """
    return round(num_states * -math.expm1(-num_actions / num_devices) * (1 - 1 / num_devices))


def estimate_grid_rows(num_states: int, num_devices: int) -> int:
    """Rows that a device receives where successors are neighbours on a square grid.

    >>> grid_rows(7921, 2), grid_rows(7921, 4)
    (89, 178)
    """
    return math.isqrt(num_states) * min(2, num_devices - 1)


def bound_sweeps(discount: float, dtype: DTypeLike = "float32") -> int:
    """Sweeps in which value iteration comes down to the grain of any table, but for rounding.

    After k sweeps d lies within discount^k of the largest distance. Leaps make it fewer.

    >>> most_sweeps(0.99), most_sweeps(0.9)
    (1587, 152)
    """
    grain = float(np.finfo(np.dtype(dtype)).eps)
    return 1 if discount == 0 else math.ceil(math.log(grain) / math.log(discount))


@dataclasses.dataclass(frozen=True)
class SweepTiming:
    """The seconds that a sweep took on each of some devices, and the rows that it received."""

    num_states: int
    num_actions: int
    num_devices: int
    received_rows: int
    seconds: float


def fit_bandwidths(
    timings: Sequence[SweepTiming], dtype: DTypeLike = "float32"
) -> tuple[float, float]:
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
    for each in timings:
        found = estimate_cost(
            each.num_states,
            each.num_actions,
            each.num_devices,
            received_rows=each.received_rows,
            dtype=dtype,
            machine=unit,
        )
        parts.append([found.compute_seconds / each.seconds, found.exchange_seconds / each.seconds])
    a, b = np.linalg.lstsq(np.array(parts), np.ones(len(parts)), rcond=None)[0].tolist()
    return 1 / a, 1 / b
