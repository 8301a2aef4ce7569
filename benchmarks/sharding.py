"""What a sweep of a sharded table costs: `python benchmarks/sharding.py`, in 1, 2 and 4 processes.

Prints, for random and grid-like successors, the seconds of a sweep, the rows that a process
receives for it, and the two numbers of the model that fits them best (least squares):

    seconds = entries * actions * a + bytes received * b

with the entries that one process computes and the bytes that one process receives.
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

SIZES = (4000, 8000)
COUNTS = (1, 2, 4)
SWEEPS = 5
ACTIONS = 4


def world(name: str, states: int) -> Any:
    from bisimetric import worlds

    if name == "random":
        return worlds.load("random", states=states, actions=ACTIONS, discount=0.99)
    columns = round(states**0.5)
    options = {"rows": states // columns, "columns": columns, "obstacles": 0.0}
    return worlds.load("open-grid", discount=0.99, **options)


def child(folder: Path) -> None:
    """Times the sweeps of every table, in one of several processes."""
    import jax

    from bisimetric.exact.sharded.exchange import planned
    from bisimetric.exact.sharded.group import joined
    from bisimetric.exact.sharded.layout import laid_out
    from bisimetric.exact.sharded.problem import stated
    from bisimetric.exact.sharded.rising import Run
    from bisimetric.exact.table import request

    group, rows = joined(), []
    with jax.enable_x64(True):
        for name in ("random", "grid"):
            for states in SIZES:
                wanted = request("bisimulation", None, "float32")
                problem = stated(wanted, world(name, states))
                split = laid_out(problem.num_states, group.devices, wanted.dtype)
                run = Run(group, split, problem, None)
                steps, plan = run.programs, planned(problem.successor, split, group.own)
                orders = steps.orders(plan)
                successor = steps.everywhere(problem.successor)
                R = steps.everywhere(problem.reward)
                seconds = []
                for _ in range(SWEEPS + 1):
                    began = time.perf_counter()
                    run.fresh = steps.swept(run.d, run.fresh, orders, successor, R)
                    run.fresh, run.d, _ = steps.closed(run.d, run.fresh, 0.0, seek=False, due=False)
                    jax.block_until_ready((run.d, run.fresh))
                    seconds.append(time.perf_counter() - began)
                rows.append(
                    {
                        "world": name,
                        "states": problem.num_states,
                        "processes": group.count,
                        "seconds": float(np.median(seconds[1:])),
                        "entries": split.height * split.states,
                        "received": plan.rows,
                        "bytes": plan.rows * split.row_bytes,
                    }
                )
    if group.index == 0:
        (folder / f"{group.count}.json").write_text(json.dumps(rows))


def fitted(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds for an entry and action, and for a byte received."""
    # Processes take turns on fewer cores: what counts is the work of a core.
    turns = [max(1.0, row["processes"] / (os.cpu_count() or 1)) for row in rows]
    work = [
        [row["entries"] * ACTIONS * turn, row["bytes"] * turn]
        for row, turn in zip(rows, turns, strict=True)
    ]
    relative = np.array(work) / np.array([[row["seconds"]] for row in rows])
    (a, b), *_ = np.linalg.lstsq(relative, np.ones(len(rows)), rcond=None)
    return float(a), float(b)


def main() -> None:
    from bisimetric.exact.sharded.starting import spread

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            if spread(["python", __file__, "child", folder], count):
                raise SystemExit(f"the run with {count} processes failed")
            rows += json.loads(Path(folder, f"{count}.json").read_text())
    print("| successors | states | processes | seconds a sweep | rows received |")
    print("|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row["world"], row["states"], row["processes"])):
        print(
            f"| {row['world']} | {row['states']:,} | {row['processes']} | {row['seconds']:.3f} | "
            f"{row['received']:,} |"
        )
    a, b = fitted(rows)
    print(f"\n{a * 1e9:.2f} ns an entry and action, {b * 1e9:.2f} ns a byte received")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]))
    else:
        main()
