"""Time sharded sweeps in 1, 2 and 4 processes: `python benchmarks/sharding.py`.

Prints, for random and grid-like successors, the seconds of the best sweep, the rows that a process
receives for it, and the estimate of `exact.sharded.cost` with its two bandwidths fitted to all of
them. Seconds are divided by the number of processes per core.

`python benchmarks/sharding.py 60000 300000/15` times one device, by the CUDA kernel and by XLA:
with all rows of 60,000 states, and with the rows of one of 15 devices that share 300,000 states and
exchange none. On an H200 these are the bandwidths of `cost.H200`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bisimetric.exact.sharded.cost import Machine, SweepTiming, estimate_cost, fit_bandwidths

SIZES = (4000, 8000)
COUNTS = (1, 2, 4)
SWEEPS, DEVICE_SWEEPS = 12, 4
ACTIONS = 4
WORLDS = ("random", "grid")


def world(name: str, states: int) -> Any:
    from bisimetric import worlds

    if name == "random":
        return worlds.load("random", states=states, actions=ACTIONS, discount=0.99)
    columns = round(states**0.5)
    options = {"rows": states // columns, "columns": columns, "obstacles": 0.0}
    return worlds.load("open-grid", discount=0.99, **options)


def time_sweeps(
    group: Any,
    name: str,
    states: int,
    dtype: str = "float32",
    *,
    devices: int = 1,
    sweeps: int = SWEEPS,
    use_cuda: bool = True,
) -> dict[str, Any]:
    """Time the sweeps of one matrix, or of the part of it that one of several devices has."""
    import jax

    from bisimetric.exact._request import build_request
    from bisimetric.exact.sharded.driver import choose_layout
    from bisimetric.exact.sharded.exchange import plan_exchange
    from bisimetric.exact.sharded.layout import build_problem
    from bisimetric.exact.sharded.solver import ShardedRun, create_row_kernels

    request = build_request("bisimulation", None, dtype)
    if devices == 1:
        problem = build_problem(request, world(name, states))
        layout = choose_layout(group, problem.num_states, request.dtype)
    else:
        problem, layout = build_part(name, states, devices, request.dtype)
    run = ShardedRun(group, layout, problem, None)
    kernels, plan = run.kernels, plan_exchange(problem.successor, layout, group.local_devices)
    device_plan = kernels.place_plan(plan)
    successor, R = kernels.replicate(problem.successor), kernels.replicate(problem.reward)
    seconds, cost = [], kernels.place_cost(None)
    rows = create_row_kernels(run, plan) if use_cuda else None
    for _ in range(sweeps + 1):
        start = time.perf_counter()
        if rows is None:
            run.buffer = kernels.sweep(run.d, run.buffer, device_plan, successor, R, cost)
            run.buffer, run.d, _ = kernels.finish_sweep(
                run.d, run.buffer, locate=False, checkpoint_due=False
            )
            jax.block_until_ready((run.d, run.buffer))
        else:
            rows.sweep(run.d, run.buffer, device_plan, cost, False)
            run.d, run.buffer = run.buffer, run.d
        seconds.append(time.perf_counter() - start)
    return {
        "world": name,
        "states": problem.num_states,
        "rows": layout.rows_per_device,
        "processes": group.num_processes,
        "seconds": min(seconds[1:]),
        "received": plan.max_received_rows,
        "kernel": "XLA" if rows is None else "CUDA",
    }


def build_part(name: str, states: int, devices: int, dtype: Any) -> tuple[Any, Any]:
    """Return the rows of the first of several devices, whose successors are among them."""
    from bisimetric.exact.sharded.layout import (
        ACCELERATOR_BLOCK_BYTES,
        ShardedProblem,
        build_layout,
        choose_batch_rows,
    )

    batch = choose_batch_rows(states, devices)
    layout = build_layout(
        states, devices, dtype, block_bytes=ACCELERATOR_BLOCK_BYTES, batch_rows=batch
    )
    rng, rows = np.random.default_rng(0), layout.rows_per_device
    if name == "random":
        successor = rng.integers(0, states, (ACTIONS, states))
    else:
        width = round(states**0.5)
        successor = np.arange(states) + np.array([[1], [-1], [width], [-width]])
    successor %= states
    successor[:, :rows] %= rows
    reward, index = rng.random((ACTIONS, states)), np.arange(states)
    problem = ShardedProblem(successor.astype(np.int32), reward, 0.99, index, index, 1e-6, 0.0)
    return problem, dataclasses.replace(layout, num_devices=1)


def child(folder: Path) -> None:
    """Time all matrices in one of several processes."""
    import jax

    from bisimetric.exact.sharded.process_group import create_process_group

    group = create_process_group()
    with jax.enable_x64(True):
        rows = [time_sweeps(group, name, states) for name in WORLDS for states in SIZES]
    if group.rank == 0:
        (folder / f"{group.num_processes}.json").write_text(json.dumps(rows))


def time_device(sizes: list[str]) -> None:
    """Print the sweep bandwidth of one device, by each kernel."""
    from bisimetric.exact.sharded.process_group import create_process_group

    group = create_process_group()
    print("| states | devices | dtype | successors | kernel | seconds per sweep | GB/s |")
    print("|---|---|---|---|---|---|---|")
    for size, dtype, name in itertools.product(sizes, ("float32", "float64"), WORLDS):
        if print_bandwidth(group, name, size, dtype, use_cuda=True) == "CUDA":
            print_bandwidth(group, name, size, dtype, use_cuda=False)


def print_bandwidth(group: Any, name: str, size: str, dtype: str, *, use_cuda: bool) -> str:
    """Print the best of a few sweeps by a kernel, and return its name."""
    import jax

    states, _, devices = size.partition("/")
    with jax.enable_x64(True):
        row = time_sweeps(
            group,
            name,
            int(states),
            dtype,
            devices=int(devices or 1),
            sweeps=DEVICE_SWEEPS,
            use_cuda=use_cuda,
        )
    processed = (ACTIONS + 1) * row["rows"] * row["states"] * np.dtype(dtype).itemsize
    print(
        f"| {row['states']:,} | {devices or 1} | {dtype} | {name} | {row['kernel']} | "
        f"{row['seconds']:.4f} | {processed / row['seconds'] / 1e9:,.0f} |",
        flush=True,
    )
    return str(row["kernel"])


def build_timing(row: dict[str, Any]) -> SweepTiming:
    """Divide the seconds by the processes per core."""
    per_core = max(1.0, row["processes"] / (os.cpu_count() or 1))
    seconds = row["seconds"] / per_core
    return SweepTiming(row["states"], ACTIONS, row["processes"], row["received"], seconds)


def main() -> None:
    from bisimetric.exact.sharded.launcher import launch

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            if launch(["python", __file__, "child", folder], count):
                raise SystemExit(f"the run with {count} processes failed")
            rows += json.loads(Path(folder, f"{count}.json").read_text())
    rates = fit_bandwidths([build_timing(row) for row in rows])
    machine = Machine(rates[0], rates[1], rates[1], 1, np.inf, 0.0)
    print("| successors | states | processes | received rows | seconds per sweep | by the model |")
    print("|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row["world"], row["states"], row["processes"])):
        timing = build_timing(row)
        estimate = estimate_cost(
            timing.num_states,
            ACTIONS,
            timing.num_devices,
            received_rows=timing.received_rows,
            machine=machine,
        ).sweep_seconds
        print(
            f"| {row['world']} | {row['states']:,} | {row['processes']} | {row['received']:,} | "
            f"{row['seconds']:.3f} | {estimate * row['seconds'] / timing.seconds:.3f} |"
        )
    print(f"\n{rates[0] / 1e9:.2f} GB/s sweep bandwidth, {rates[1] / 1e9:.2f} GB/s link bandwidth")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]))
    elif sys.argv[1:]:
        time_device(sys.argv[1:])
    else:
        main()
