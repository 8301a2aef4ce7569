"""A cost model of sharded distances: memory, exchange and time, before anything is started."""

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
        sweep_bandwidth: bytes per second that a device processes in a sweep, where each entry is
            read once per action and written once.
        intra_host_bandwidth: bytes per second that a device receives from others of its host.
        inter_host_bandwidth: bytes per second that a device receives from other hosts.
        devices_per_host: devices of a host.
        device_memory: bytes that a device may use.
        step_latency: minimum seconds of an exchanged block or a step of cycle evaluation.
        long_row_bandwidth: the sweep bandwidth for rows of more than `short_row_bytes`; None is the
            same for all.
        short_row_bytes: bytes of the longest row that is read from shared memory.
    """

    sweep_bandwidth: float
    intra_host_bandwidth: float
    inter_host_bandwidth: float
    devices_per_host: int
    device_memory: float
    step_latency: float
    long_row_bandwidth: float | None = None
    short_row_bytes: float = math.inf

    def find_sweep_bandwidth(self, row_bytes: int) -> float:
        """Return the sweep bandwidth for rows of a length."""
        if self.long_row_bandwidth is None or row_bytes <= self.short_row_bytes:
            return self.sweep_bandwidth
        return self.long_row_bandwidth


H200 = Machine(
    sweep_bandwidth=2427e9,
    intra_host_bandwidth=450e9,
    inter_host_bandwidth=50e9,
    devices_per_host=8,
    device_memory=0.9 * 139 * 2**30,
    step_latency=1e-4,
    long_row_bandwidth=1052e9,
    short_row_bytes=255_000,
)
"""Hosts of eight H200. Measured on one, with random successors and CUDA kernels: the bandwidth for
60,000 states, the one for 20,000 rows of 300,000 states (long rows), and `step_latency` for cycle
evaluation. Assumed are the links (NVLink inside a host, 400 Gbit/s per device between hosts), and
that blocks and sums over devices have the same latency."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """The memory of a device, and its time per sweep.

    Attributes:
        device_bytes: bytes on a device.
        available_bytes: bytes that it may use.
        received_bytes: bytes that it receives per sweep.
        compute_seconds: seconds of computation per sweep.
        exchange_seconds: seconds of exchange per sweep.
        cycle_seconds: seconds of cycle evaluation, divided by the sweeps between two of them.
    """

    device_bytes: float
    available_bytes: float
    received_bytes: float
    compute_seconds: float
    exchange_seconds: float
    cycle_seconds: float

    @property
    def fits(self) -> bool:
        """Whether the rows fit into the memory of a device."""
        return self.device_bytes <= self.available_bytes

    @property
    def sweep_seconds(self) -> float:
        """Seconds per sweep."""
        return self.compute_seconds + self.exchange_seconds + self.cycle_seconds

    def hours(self, num_sweeps: float) -> float:
        """Return the hours of a run.

        Args:
            num_sweeps: the number of sweeps; see `bound_sweeps`.

        Returns:
            Hours.
        """
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
    """Estimate memory and time of a sharded d~.

    seconds per sweep = (actions + 1) * entries per device * bytes per entry / sweep bandwidth
                        + received bytes / slowest link
                        + latency * (blocks + steps of cycle evaluation / 8)

    All devices send at the same time, each to the device at the same shift, and wait for each
    other, so the slowest link decides.

    Args:
        num_states: the number of classes of bisimilar states; see `relation.bisimulation`.
        num_actions: the number of actions.
        num_devices: the number of devices.
        received_rows: rows that a device receives per sweep; default: the mean for random
            successors, the worst case. `estimate_grid_rows` is that of a grid, and the metadata of
            a run have its own.
        dtype: "float32" or "float64", the type of the matrix.
        machine: bandwidths and memory; default: hosts of eight H200.

    Returns:
        The estimated `Cost`.

    Raises:
        InputError: if a number is out of range.

    >>> cost = estimate_cost(300_000, 4, 8)
    >>> round(cost.device_bytes / 2**30), cost.fits, round(cost.sweep_seconds, 2)
    (86, True, 0.54)
    >>> estimate_cost(1_000_000, 4, 32).fits
    False
    """
    for name, number in (
        ("num_states", num_states),
        ("num_actions", num_actions),
        ("num_devices", num_devices),
    ):
        require_integer("sharded.estimate_cost", name, number, 1)
    if received_rows is not None and not 0 <= received_rows <= num_states:
        raise InputError(
            f"is {received_rows} and must be from 0 to num_states, {num_states:,}",
            caller="sharded.estimate_cost",
            argument="received_rows",
        )
    batch = choose_batch_rows(num_states, num_devices)
    layout = build_layout(
        num_states,
        num_devices,
        np.dtype(dtype),
        block_bytes=ACCELERATOR_BLOCK_BYTES,
        batch_rows=batch,
    )
    if received_rows is None:
        received_rows = estimate_random_rows(num_states, num_actions, num_devices)
    link = (
        machine.intra_host_bandwidth
        if num_devices <= machine.devices_per_host
        else machine.inter_host_bandwidth
    )
    received = 0 if num_devices == 1 else received_rows * layout.row_bytes
    processed = (num_actions + 1) * layout.local_bytes
    # At most one block per other device is not full.
    blocks = 0 if num_devices == 1 else received_rows / layout.block_rows + num_devices - 1
    return Cost(
        device_bytes=layout.device_bytes,
        available_bytes=machine.device_memory,
        received_bytes=received,
        compute_seconds=processed / machine.find_sweep_bandwidth(layout.row_bytes),
        exchange_seconds=received / link + machine.step_latency * blocks,
        cycle_seconds=machine.step_latency * MAX_CYCLE_STEPS / CYCLE_EVALUATION_PERIOD,
    )


def estimate_random_rows(num_states: int, num_actions: int, num_devices: int) -> int:
    """Estimate the rows that a device receives per sweep if successors are random.

    Of S states it needs S (1 - e^(-A / n)) on average, and holds one in n of them itself.

    >>> estimate_random_rows(8000, 4, 2), estimate_random_rows(8000, 4, 4)
    (3459, 3793)
    """
    return round(num_states * -math.expm1(-num_actions / num_devices) * (1 - 1 / num_devices))


def estimate_grid_rows(num_states: int, num_devices: int) -> int:
    """Estimate the rows that a device receives if successors are neighbours on a square grid.

    >>> estimate_grid_rows(7921, 2), estimate_grid_rows(7921, 4)
    (89, 178)
    """
    return math.isqrt(num_states) * min(2, num_devices - 1)


def bound_sweeps(discount: float, dtype: DTypeLike = "float32") -> int:
    """Bound the sweeps in which value iteration reaches the precision floor of the matrix.

    After k sweeps d is within discount^k of the largest distance. Cycle evaluation saves sweeps.

    >>> bound_sweeps(0.99), bound_sweeps(0.9)
    (1587, 152)
    """
    precision = float(np.finfo(np.dtype(dtype)).eps)
    return 1 if discount == 0 else math.ceil(math.log(precision) / math.log(discount))


@dataclasses.dataclass(frozen=True)
class SweepTiming:
    """A measured sweep: seconds, and the rows that each device received."""

    num_states: int
    num_actions: int
    num_devices: int
    received_rows: int
    seconds: float


def fit_bandwidths(
    timings: Sequence[SweepTiming], dtype: DTypeLike = "float32"
) -> tuple[float, float]:
    """Fit the sweep and link bandwidth, in bytes per second, to measured sweeps.

    The fit minimises squared relative errors; `Machine(*fit_bandwidths(...), ...)` uses it.

    >>> machine = Machine(2e9, 1e9, 1e9, 8, 2**30, 0.0)
    >>> timings = []
    >>> for s, n in [(4000, 1), (4000, 2), (4000, 4), (8000, 1), (8000, 2), (8000, 4)]:
    ...     rows = estimate_random_rows(s, 4, n)
    ...     cost = estimate_cost(s, 4, n, received_rows=rows, machine=machine)
    ...     timings.append(SweepTiming(s, 4, n, rows, cost.sweep_seconds))
    >>> [round(bandwidth / 1e9, 2) for bandwidth in fit_bandwidths(timings)]
    [2.0, 1.0]
    """
    unit = Machine(1.0, 1.0, 1.0, 1, 1.0, 0.0)
    shares = []
    for timing in timings:
        cost = estimate_cost(
            timing.num_states,
            timing.num_actions,
            timing.num_devices,
            received_rows=timing.received_rows,
            dtype=dtype,
            machine=unit,
        )
        shares.append(
            [cost.compute_seconds / timing.seconds, cost.exchange_seconds / timing.seconds]
        )
    a, b = np.linalg.lstsq(np.array(shares), np.ones(len(shares)), rcond=None)[0].tolist()
    return 1 / a, 1 / b
