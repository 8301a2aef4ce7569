"""Time sharded sweeps in 1, 2 and 4 processes: `python benchmarks/sharding.py`.

Prints, for random and grid-like successors, the seconds of the best sweep, the rows that a process
receives for it, and the estimate of `exact.sharded.cost` with its two bandwidths fitted to all of
them. Seconds are divided by the number of processes per core.

`python benchmarks/sharding.py 60000` times the best single device: on an H200 that is
`sweep_bandwidth` of `cost.H200`.
"""

from __future__ import annotations

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
SWEEPS = 12
ACTIONS = 4


def world(name: str, states: int) -> Any:
    from bisimetric import worlds

    if name == "random":
        return worlds.load("random", states=states, actions=ACTIONS, discount=0.99)
    columns = round(states**0.5)
    options = {"rows": states // columns, "columns": columns, "obstacles": 0.0}
    return worlds.load("open-grid", discount=0.99, **options)


def time_sweeps(group: Any, name: str, states: int) -> dict[str, Any]:
    """Time the sweeps of one matrix."""
    import jax

    from bisimetric.exact._request import build_request
    from bisimetric.exact.sharded.driver import choose_layout
    from bisimetric.exact.sharded.exchange import plan_exchange
    from bisimetric.exact.sharded.layout import build_problem
    from bisimetric.exact.sharded.solver import ShardedRun

    request = build_request("bisimulation", None, "float32")
    problem = build_problem(request, world(name, states))
    layout = choose_layout(group, problem.num_states, request.dtype)
    run = ShardedRun(group, layout, problem, None)
    kernels, plan = run.kernels, plan_exchange(problem.successor, layout, group.local_devices)
    device_plan = kernels.place_plan(plan)
    successor, R = kernels.replicate(problem.successor), kernels.replicate(problem.reward)
    seconds, cost = [], kernels.place_cost(None)
    for _ in range(SWEEPS + 1):
        start = time.perf_counter()
        run.buffer = kernels.sweep(run.d, run.buffer, device_plan, successor, R, cost)
        run.buffer, run.d, _ = kernels.finish_sweep(
            run.d, run.buffer, locate=False, checkpoint_due=False
        )
        jax.block_until_ready((run.d, run.buffer))
        seconds.append(time.perf_counter() - start)
    return {
        "world": name,
        "states": problem.num_states,
        "processes": group.num_processes,
        "seconds": min(seconds[1:]),
        "received": plan.max_received_rows,
    }


def child(folder: Path) -> None:
    """Time all matrices in one of several processes."""
    import jax

    from bisimetric.exact.sharded.process_group import create_process_group

    group = create_process_group()
    with jax.enable_x64(True):
        rows = [time_sweeps(group, name, states) for name in ("random", "grid") for states in SIZES]
    if group.rank == 0:
        (folder / f"{group.num_processes}.json").write_text(json.dumps(rows))


def time_device(states: int) -> None:
    """Print the sweep bandwidth of one device with random successors."""
    import jax

    from bisimetric.exact.sharded.process_group import create_process_group

    with jax.enable_x64(True):
        row = time_sweeps(create_process_group(), "random", states)
    unit = Machine(1.0, 1.0, 1.0, 1, np.inf, 0.0)
    rate = estimate_cost(row["states"], ACTIONS, 1, machine=unit).compute_seconds / row["seconds"]
    print(f"{row['states']:,} states: {row['seconds']:.4f} s per sweep, {rate / 1e9:.1f} GB/s")


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
        time_device(int(sys.argv[1]))
    else:
        main()
