"""Exact distances beside processes that keep every core busy: `python benchmarks/neighbours.py`.

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
SETTINGS = ("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
"""Environment variables that would change the default."""


def distances() -> dict[str, Callable[[], object]]:
    """One distance of each kind on some hundred states."""
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
def busy(count: int) -> Iterator[None]:
    """So many processes that compute until the end."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(count)]
    try:
        time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def times(work: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(REPEAT):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


def measure() -> dict[str, dict[str, float]]:
    """The medians of the quiet and of the busy times, in seconds, and the longest of the latter."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    seen = {}
    for name, work in distances().items():
        work()
        quiet, beside = [], []
        for _ in range(ROUNDS):
            quiet += times(work)
            with busy(cores or 1):
                beside += times(work)
        seen[name] = {
            "quiet": statistics.median(quiet),
            "busy": statistics.median(beside),
            "longest": max(beside),
        }
    return seen


def run_alone() -> dict[str, dict[str, float]]:
    """`measure` in a process of its own, without settings of threads in its environment."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, __file__], env=kept, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(measure()))
