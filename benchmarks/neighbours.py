"""Exact distances while other processes occupy every core: `python benchmarks/neighbours.py`.

Each distance is timed quiet and with one busy process per core, in turn, with the default number of
threads. Fair scheduling alone costs a factor of 1.5 to 2. Prints JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from bisimetric import exact, worlds

ROUNDS, REPEAT = 3, 3
THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
)
"""Environment variables that would change the default."""


def distances() -> dict[str, Callable[[], object]]:
    """Return one distance of each kind on some hundred states."""
    mdp = worlds.load("random", states=600, discount=0.99)
    small = worlds.load("random", states=200, discount=0.99)
    policy = np.random.default_rng(0).integers(4, size=600)
    chain = worlds.load("random", states=600, actions=1, successors=2, discount=0.99)
    large = worlds.load("random", states=2_000, discount=0.99)
    return {
        "d~, 600 states": lambda: exact.bisimulation(mdp),
        "d~, 2,000 states": lambda: exact.bisimulation(large),
        "d^pi, 600 states": lambda: exact.on_policy(mdp, policy),
        "d_lax, 200 states": lambda: exact.lax(small),
        "MICo, 600 states, 2 successors": lambda: exact.mico(chain),
    }


@contextlib.contextmanager
def busy(num_processes: int) -> Iterator[None]:
    """Run busy processes."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(num_processes)]
    try:
        time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def times(work: Callable[[], object]) -> list[float]:
    results = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        work()
        results.append(time.perf_counter() - start)
    return results


def measure() -> dict[str, dict[str, float]]:
    """Return the medians of the quiet and of the busy times, in seconds, and the busy maximum."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    results = {}
    for name, work in distances().items():
        work()
        quiet_times, busy_times = [], []
        for _ in range(ROUNDS):
            quiet_times += times(work)
            with busy(cores or 1):
                busy_times += times(work)
        results[name] = {
            "quiet": statistics.median(quiet_times),
            "busy": statistics.median(busy_times),
            "longest": max(busy_times),
        }
    return results


def run_alone() -> dict[str, dict[str, float]]:
    """Run `measure` in a separate process, without thread settings in its environment."""
    environment = {
        name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES
    }
    process_result = subprocess.run(
        [sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    results: dict[str, dict[str, float]] = json.loads(process_result.stdout)
    return results


if __name__ == "__main__":
    print(json.dumps(measure()))
