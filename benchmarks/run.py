"""Run the benchmarks: `make bench`, or `python benchmarks/run.py [--write] [name ...]`.

Every speed-up is a ratio of two times of one run, after compilation. `--write` puts the results of
all benchmarks into docs/reports/benchmarks.md, with the machine that they were measured on.
Comparisons with other programs are in peers.py.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import numpy as np
import psutil

import neighbours as busy_cores
import report
from bisimetric import MDP, Transitions, exact, relation, sampled, worlds
from rivals import chain_sweeps, numpy_rows, plain_loop, plain_updates, value_iteration

TOL = 1e-6
PAGE = report.REPORTS / "benchmarks.md"
Row = tuple[str, str, str]


def measure_seconds(
    work: Callable[[], object], repeat: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the least time of some runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def small() -> Iterator[Row]:
    """The paper's 31 states against the plain triple loop."""
    mdp = worlds.load("mirrored-rooms", discount=0.99)
    ours = measure_seconds(lambda: exact.bisimulation(mdp, tol=TOL), 200)
    loop = measure_seconds(lambda: plain_loop(mdp, TOL))
    yield (
        "d~, 31 states, against the plain triple loop on Python lists",
        f"{loop / ours:,.0f} times faster",
        f"{ours * 1e3:.2f} ms against {loop:.2f} s",
    )


def large() -> Iterator[Row]:
    """Two worlds of thousands of states against value iteration with our own best sweep."""
    for name, options in (("open-grid", {}), ("random", {"states": 3000})):
        mdp = worlds.load(name, discount=0.99, **options)
        d = exact.bisimulation(mdp, tol=TOL)
        ours = measure_seconds(lambda mdp=mdp: exact.bisimulation(mdp, tol=TOL), 3)  # type: ignore[misc]
        start = time.perf_counter()
        values, sweeps = value_iteration(mdp, TOL)
        rival = time.perf_counter() - start
        if np.abs(values - d.values).max() > TOL + d.error:
            raise RuntimeError(f"{name}: the two distances differ")
        yield (
            f"d~, {name}, {mdp.num_states:,} states, against value iteration",
            f"{rival / ours:.1f} times faster",
            f"{ours:.2f} s and {d.metadata['sweeps']} sweeps against {rival:.1f} s and {sweeps} "
            f"sweeps; other seeds, ours: {time_other_seeds(name, options)}",
        )


def time_other_seeds(name: str, options: dict[str, int]) -> str:
    """Time our solver on five more MDPs of the family."""
    seconds = []
    for seed in range(1, 6):
        mdp = worlds.load(name, discount=0.99, seed=seed, **options)
        seconds.append(measure_seconds(lambda mdp=mdp: exact.bisimulation(mdp, tol=TOL)))  # type: ignore[misc]
    return f"{min(seconds):.1f} to {max(seconds):.1f} s, mean {np.mean(seconds):.1f} s"


def seeds() -> Iterator[Row]:
    """Ten random MDPs against value iteration: the smallest ratio counts."""
    yield compare_seeds(3_000, time.perf_counter, "times")


def seeds_one_core() -> Iterator[Row]:
    """The same in CPU seconds on one core, which other work on the machine changes less."""
    available = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield compare_seeds(1_000, time.process_time, "CPU seconds on one core")
    finally:
        numba.set_num_threads(available)


def compare_seeds(states: int, clock: Callable[[], float], unit: str) -> Row:
    """Compare our solver with value iteration on ten random MDPs."""
    exact.bisimulation(worlds.load("random", states=300, discount=0.99))
    value_iteration(worlds.load("random", states=300, discount=0.5), TOL)
    ratios, seconds = [], []
    for seed in range(10):
        mdp = worlds.load("random", states=states, discount=0.99, seed=seed)
        seconds.append(
            measure_seconds(lambda mdp=mdp: exact.bisimulation(mdp, tol=TOL), 3, clock)  # type: ignore[misc]
        )
        rival = measure_seconds(lambda mdp=mdp: value_iteration(mdp, TOL), 1, clock)  # type: ignore[misc]
        ratios.append(rival / seconds[-1])
    return (
        f"d~, ten random MDPs of {states:,} states, against value iteration, {unit}",
        f"{min(ratios):.1f} to {max(ratios):.1f} times faster, median {np.median(ratios):.1f}",
        f"ours: {min(seconds):.2f} to {max(seconds):.2f} s",
    )


def on_policy() -> Iterator[Row]:
    """d^pi of 10,000 states against plain sweeps."""
    mdp = worlds.load("random", states=10_000, discount=0.99)
    policy = np.random.default_rng(0).integers(4, size=10_000)
    chain = mdp.apply_policy(policy)
    chain_sweeps(chain, 1)
    exact.on_policy(mdp, policy, tol=TOL)
    ours = measure_seconds(lambda: exact.on_policy(mdp, policy, tol=TOL), 3)
    sweep = measure_seconds(lambda: chain_sweeps(chain, 10), 2) / 10
    yield (
        "d^pi, random, 10,000 states, against plain sweeps",
        f"the time of {ours / sweep:.1f} sweeps",
        f"{ours:.2f} s; a sweep takes {sweep:.3f} s",
    )


def recorded() -> Iterator[Row]:
    """d^pi between 20,000 recorded steps of 20 episodes against rows in NumPy."""
    steps, length = 20_000, 1_000
    x = np.arange(steps + 1.0)[:, None]
    rewards = np.random.default_rng(0).random(steps)
    ended = np.arange(steps) % length == length - 1
    data = Transitions(x[:-1], np.zeros(steps, int), rewards, x[1:], ended)
    exact.recorded(data[:length], discount=0.99)
    error = exact.recorded(data, discount=0.99).error
    ours = measure_seconds(lambda: exact.recorded(data, discount=0.99), 3)
    few = data[: 5 * length]
    d = exact.recorded(few, discount=0.99)
    part = measure_seconds(lambda: exact.recorded(few, discount=0.99), 3)
    start = time.perf_counter()
    values = numpy_rows(few.rewards, few.terminated, 0.99)
    rival = time.perf_counter() - start
    if np.abs(values - d.values[:-1, :-1]).max() > 1e-9:
        raise RuntimeError("recorded: the two distances differ")
    yield (
        f"d^pi between 20,000 recorded steps, discount 0.99, error {error:.0e}",
        f"{ours:.1f} s; 5,000 steps: {rival / part:.1f} times faster than rows in NumPy",
        f"5,000 steps: {part:.2f} s against {rival:.2f} s",
    )


def growth() -> Iterator[Row]:
    """d~ of 1,000 to 10,000 random states: time and peak memory, in separate processes."""
    for states in (1_000, 2_000, 5_000, 10_000):
        seen = run_measurement(states, 1, 0.99)
        yield (
            f"d~, random, {states:,} states, error 1e-6",
            f"{seen['seconds']:.1f} s, {seen['matrices']:.2f} matrices of memory",
            f"{seen['peak'] / 2**20:,.0f} MiB, a matrix is {seen['matrix'] / 2**20:,.0f} MiB; "
            f"{seen['sweeps']} sweeps; error {seen['error']:.1g}",
        )


def run_measurement(states: int, successors: int, discount: float) -> dict[str, float]:
    """Measure time and memory of d~ on a random MDP, in a separate process."""
    options = [str(states), str(successors), str(discount)]
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(states: int, successors: int, discount: float) -> None:
    """Print one measurement as JSON; memory is counted above that of the compiled library."""
    options = {"successors": successors, "discount": discount}
    exact.bisimulation(worlds.load("random", states=300 if successors == 1 else 20, **options))
    mdp = worlds.load("random", states=states, **options)
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    d = exact.bisimulation(mdp, tol=TOL)
    seconds = time.perf_counter() - start
    peak = peak_memory() - before
    matrix = d.values.nbytes
    rounds = {key: d.metadata[key] for key in ("sweeps", "rounds") if key in d.metadata}
    found = {"seconds": seconds, "peak": peak, "matrix": matrix, "matrices": peak / matrix}
    print(json.dumps({**found, **rounds, "error": d.error}))


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage includes the memory of the parent before exec
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def relations() -> Iterator[Row]:
    """Recover the planted classes of a million states."""
    rng = np.random.default_rng(0)
    small_mdp = worlds.load("random", states=1_000)
    copies = rng.permutation(np.arange(1_000_000) % 1_000)
    members = np.argsort(copies, kind="stable").reshape(1_000, 1_000)
    successor_class = small_mdp.next_state[copies]
    successor = members[successor_class, rng.integers(1_000, size=successor_class.shape)]
    mdp = MDP.deterministic(successor, small_mdp.R[copies] > 0.5, discount=0.99)
    planted = relation.bisimulation(
        MDP.deterministic(small_mdp.next_state, small_mdp.R > 0.5, discount=0.99)
    )[copies]
    for kind in (relation.bisimulation, relation.lax):
        labels = kind(mdp)
        seconds = measure_seconds(lambda kind=kind: kind(mdp))  # type: ignore[misc]
        both = len(np.unique(labels * (planted.max() + 1) + planted))
        is_exact = both == labels.max() + 1 == planted.max() + 1
        yield (
            f"relation.{kind.__name__}, 1,000,000 states, 4 actions",
            f"{seconds:.1f} s",
            f"{labels.max() + 1:,} classes, the planted ones: {'yes' if is_exact else 'no'}",
        )


def stochastic() -> Iterator[Row]:
    """d~ of 50 to 2,000 random states with 4 actions and 5 successors."""
    for states in (50, 100, 200, 500, 1_000, 2_000):
        seen = run_measurement(states, 5, 0.9)
        yield (
            f"d~, random, {states:,} states, 4 actions, 5 successors, error 1e-6",
            f"{seen['seconds']:.2g} s",
            f"{seen['peak'] / 2**20:,.0f} MiB, a matrix is {seen['matrix'] / 2**20:,.1f} MiB; "
            f"{seen['rounds']} rounds; error {seen['error']:.1g}",
        )


def query() -> Iterator[Row]:
    """One pair of a million states, explored to the depth that the discount requires."""
    mdp = worlds.load("open-grid", rows=1_000, columns=1_000, obstacles=0.0, discount=0.9)
    answer = exact.query(mdp, [(0, 5)], tol=TOL)
    seconds = measure_seconds(lambda: exact.query(mdp, [(0, 5)], tol=TOL), 5)
    yield (
        "d~ of one pair, open-grid, 1,000,000 states, 4 actions, error 1e-6",
        f"{seconds:.2g} s",
        f"{answer.num_explored:,} pairs explored of {500_000 * 999_999:,}",
    )


def sampling() -> Iterator[Row]:
    """Updates per second of the sampled algorithm on 1,000 states, against a plain loop."""
    mdp = worlds.load("random", states=1_000, discount=0.99)
    loop = 2_000_000 / measure_seconds(lambda: plain_updates(mdp, 2_000_000, 0))
    for sampler in (
        sampled.Uniform(),
        sampled.AllActions(),
        sampled.Trajectories(),
        sampled.Prioritised(),
    ):
        run = sampled.SampledRun("bisimulation", mdp, sampler=sampler)
        run.advance(1_000)
        steps = 1_000_000 if isinstance(sampler, sampled.Prioritised) else 20_000_000
        ours = steps / measure_seconds(lambda run=run, steps=steps: run.advance(steps), 3)  # type: ignore[misc]
        yield (
            f"sampled.bisimulation, {type(sampler).__name__}, 1,000 states, 4 actions",
            f"{ours / 1e6:.2g} million updates per second, {ours / loop:.2g} times a plain loop's",
            f"the loop: {loop / 1e6:.2g} million per second",
        )


def neighbours() -> Iterator[Row]:
    """Exact distances beside one busy process per core, against the same on a quiet machine."""
    for name, seen in busy_cores.run_alone().items():
        yield (
            f"{name}, beside one busy process per core",
            f"{seen['busy'] / seen['quiet']:.1f} times the quiet time",
            f"{seen['busy']:.2g} s against {seen['quiet']:.2g} s, medians; maximum "
            f"{seen['longest']:.2g} s",
        )


BENCHMARKS = {
    "small": small,
    "large": large,
    "seeds": seeds,
    "seeds-one-core": seeds_one_core,
    "on-policy": on_policy,
    "recorded": recorded,
    "growth": growth,
    "relations": relations,
    "stochastic": stochastic,
    "query": query,
    "sampling": sampling,
    "neighbours": neighbours,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="name")
    parser.add_argument("--write", action="store_true", help=f"write the results to {PAGE.name}")
    parser.add_argument("--measure", nargs=3, type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        states, successors, discount = arguments.measure
        measure(int(states), int(successors), discount)
        return
    if arguments.write and arguments.names:
        parser.error("--write replaces the whole table: it takes no names")
    lines = [report.describe_machine(), "", "| what | result | measurements |", "|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    for name in arguments.names or BENCHMARKS:
        for row in BENCHMARKS[name]():
            lines.append(report.format_row(row))
            print(lines[-1], flush=True)
    if arguments.write:
        report.write_results(PAGE, lines)


if __name__ == "__main__":
    main()
