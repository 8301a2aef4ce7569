"""What a sweep of a sharded table costs: `python benchmarks/sharding.py`, in 1, 2 and 4 processes.

Prints, for random and grid-like successors, the seconds of the best sweep, the rows that a process
receives for it, and what the model of `exact.sharded.cost` says once its two rates are fitted to
all of them. Processes that share a core take turns: their seconds are divided by those.

`python benchmarks/sharding.py 60000` times one device alone, the best there is: on an H200 that is
the rate `passed` of `cost.H200`.
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


def timed(group: Any, name: str, states: int) -> dict[str, Any]:
    """Times the sweeps of one table."""
    import jax

    from bisimetric.exact._request import build_request
    from bisimetric.exact.sharded.driver import choose_layout
    from bisimetric.exact.sharded.exchange import plan_exchange
    from bisimetric.exact.sharded.layout import build_problem
    from bisimetric.exact.sharded.solver import ShardedRun

    wanted = build_request("bisimulation", None, "float32")
    problem = build_problem(wanted, world(name, states))
    split = choose_layout(group, problem.num_states, wanted.dtype)
    run = ShardedRun(group, split, problem, None)
    steps, plan = run.kernels, plan_exchange(problem.successor, split, group.own)
    orders = steps.place_plan(plan)
    successor, R = steps.replicate(problem.successor), steps.replicate(problem.reward)
    seconds = []
    for _ in range(SWEEPS + 1):
        began = time.perf_counter()
        run.buffer = steps.sweep(run.d, run.buffer, orders, successor, R)
        run.buffer, run.d, _ = steps.finish_sweep(
            run.d, run.buffer, locate=False, checkpoint_due=False
        )
        jax.block_until_ready((run.d, run.buffer))
        seconds.append(time.perf_counter() - began)
    return {
        "world": name,
        "states": problem.num_states,
        "processes": group.count,
        "seconds": min(seconds[1:]),
        "received": plan.max_received_rows,
    }


def child(folder: Path) -> None:
    """All tables, in one of several processes."""
    import jax

    from bisimetric.exact.sharded.process_group import create_process_group

    group = create_process_group()
    with jax.enable_x64(True):
        rows = [timed(group, name, states) for name in ("random", "grid") for states in SIZES]
    if group.rank == 0:
        (folder / f"{group.num_processes}.json").write_text(json.dumps(rows))


def here(states: int) -> None:
    """The rate of one device, the best there is here, with random successors."""
    import jax

    from bisimetric.exact.sharded.process_group import create_process_group

    with jax.enable_x64(True):
        row = timed(create_process_group(), "random", states)
    unit = Machine(1.0, 1.0, 1.0, 1, np.inf, 0.0)
    rate = estimate_cost(row["states"], ACTIONS, 1, machine=unit).compute_seconds / row["seconds"]
    print(f"{row['states']:,} states: {row['seconds']:.4f} s a sweep, {rate / 1e9:.1f} GB/s passed")


def measured(row: dict[str, Any]) -> SweepTiming:
    """What a process of its own core would have taken."""
    turns = max(1.0, row["processes"] / (os.cpu_count() or 1))
    seconds = row["seconds"] / turns
    return SweepTiming(row["states"], ACTIONS, row["processes"], row["received"], seconds)


def main() -> None:
    from bisimetric.exact.sharded.launcher import launch

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            if launch(["python", __file__, "child", folder], count):
                raise SystemExit(f"the run with {count} processes failed")
            rows += json.loads(Path(folder, f"{count}.json").read_text())
    rates = fit_bandwidths([measured(row) for row in rows])
    here = Machine(rates[0], rates[1], rates[1], 1, np.inf, 0.0)
    print("| successors | states | processes | rows received | seconds a sweep | by the model |")
    print("|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row["world"], row["states"], row["processes"])):
        each = measured(row)
        told = estimate_cost(
            each.num_states,
            ACTIONS,
            each.num_devices,
            received_rows=each.received_rows,
            machine=here,
        ).sweep_seconds
        print(
            f"| {row['world']} | {row['states']:,} | {row['processes']} | {row['received']:,} | "
            f"{row['seconds']:.3f} | {told * row['seconds'] / each.seconds:.3f} |"
        )
    print(f"\n{rates[0] / 1e9:.2f} GB/s passed over, {rates[1] / 1e9:.2f} GB/s received")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]))
    elif sys.argv[1:]:
        here(int(sys.argv[1]))
    else:
        main()
