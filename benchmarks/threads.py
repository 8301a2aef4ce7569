"""Exact distances by number of cores: `python benchmarks/threads.py [name ...] [--cores 1 2 4]`.

Each number of cores is a separate process that is restricted to them, after compilation. The
matrices of all of them must be bit-identical. Random MDPs with 4 actions; discount 0.99 for
deterministic ones, 0.9 for stochastic ones with 5 successors. The error is at most 1e-6.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import report
from bisimetric import MDP, Distance, exact, worlds

TOL = 1e-6
THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
DISTANCES: dict[str, tuple[str, int, int, Callable[[MDP], Distance]]] = {
    "bisimulation": ("d~, deterministic", 5_000, 1, lambda mdp: exact.bisimulation(mdp, tol=TOL)),
    "lax": ("d_lax, deterministic", 2_000, 1, lambda mdp: exact.lax(mdp, tol=TOL)),
    "stochastic": ("d~, stochastic", 1_200, 5, lambda mdp: exact.bisimulation(mdp, tol=TOL)),
    "on-policy": (
        "d^pi, stochastic",
        2_000,
        5,
        lambda mdp: exact.on_policy(
            mdp, np.random.default_rng(0).integers(4, size=mdp.num_states), tol=TOL
        ),
    ),
}
"""Names, with the distance, the number of states and of successors, and the solver."""


def load(states: int, successors: int) -> MDP:
    """Return a random MDP with 4 actions."""
    discount = 0.99 if successors == 1 else 0.9
    return worlds.load("random", states=states, successors=successors, discount=discount)


def measure(name: str, states: int, runs: int) -> None:
    """Print the smallest time of some runs, and a digest of the matrix, as JSON."""
    _, _, successors, solve = DISTANCES[name]
    solve(load(300 if successors == 1 else 30, successors))  # compiles
    mdp = load(states, successors)
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        d = solve(mdp)
        seconds.append(time.perf_counter() - start)
    digest = hashlib.sha256(np.ascontiguousarray(d.values).tobytes()).hexdigest()
    print(json.dumps({"seconds": min(seconds), "digest": digest, "error": d.error}))


def run_measurement(name: str, states: int, runs: int, cores: int) -> dict[str, object]:
    """Measure in a separate process that may use so many cores."""
    # Numba reads its number of threads at import, and no more threads than cores should start.
    threads = dict.fromkeys(THREAD_VARIABLES, str(cores))
    options = {"--measure": cores, "--states": states, "--runs": runs}
    done = subprocess.run(
        [sys.executable, __file__, name, *(str(part) for each in options.items() for part in each)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **threads},
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}, {cores} cores: {found['seconds']:.3g} s", file=sys.stderr, flush=True)
    return found


def spread(cores: list[int], count: int) -> list[int]:
    """Return some of the cores, far apart: neighbours may be threads of one core.

    >>> spread([0, 1, 2, 3, 4, 5, 6, 7], 3)
    [0, 2, 5]
    """
    return [cores[len(cores) * k // count] for k in range(min(count, len(cores)))]


def list_cores() -> list[int]:
    """Return 1, 2, 4, ... and the available cores."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = available or 1
    return [*(2**k for k in range(count.bit_length()) if 2**k < count), count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*DISTANCES, []], metavar="name")
    parser.add_argument("--cores", type=int, nargs="+", default=list_cores())
    parser.add_argument("--states", type=int, help="instead of those of the table")
    parser.add_argument("--runs", type=int, default=2, help="the smallest time counts")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, spread(sorted(os.sched_getaffinity(0)), arguments.measure))
        measure(arguments.names[0], arguments.states, arguments.runs)
        return
    header = ["seconds by number of cores", *map(str, arguments.cores), "speed-up", "bit-identical"]
    print(report.describe_machine(), "", report.format_row(header), sep="\n")
    print(report.format_row(["---", *["---:"] * (len(header) - 2), "---"]), flush=True)
    for name in arguments.names or DISTANCES:
        title, states, _, _ = DISTANCES[name]
        states = arguments.states or states
        found = [run_measurement(name, states, arguments.runs, cores) for cores in arguments.cores]
        seconds = [float(str(each["seconds"])) for each in found]
        identical = len({each["digest"] for each in found}) == 1
        print(
            report.format_row(
                [
                    f"{title}, {states:,} states",
                    *(f"{each:.3g}" for each in seconds),
                    f"{seconds[0] / min(seconds):.1f} times",
                    "yes" if identical else "NO",
                ]
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
