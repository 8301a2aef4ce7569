"""d~ of layered Markov chains, against random ones: `python benchmarks/structured_chains.py`.

The chains are two protocols of the PRISM benchmark suite, written here as transition functions:
NAND multiplexing (von Neumann 1956; Han & Jonker 2002), whose pairs of states have no cycles, and
the Crowds protocol (Reiter & Rubin 1998), whose strongly connected components are small. Random
chains and MDPs have one large component, and some have large supports. "one level" solves all pairs
together, without their topological order. With `--baseline FOLDER`, the `src` folder of another
checkout, the same distances are computed there too, in turn. Times are CPU seconds of all threads,
the least of some runs after compilation, all in one run; the two distances of a model must agree
within their errors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from scipy import sparse

import report
from bisimetric import MDP, exact, worlds

State = TypeVar("State", bound=Hashable)
Outcomes = list[tuple[float, State]]
NandState = tuple[str, int, int, int, int, int, int, int]
CrowdsState = tuple[str, int, tuple[int, ...], int]

FAULT, STIMULATED = 0.02, 0.9
"""NAND multiplexing: the probabilities that a gate is faulty, and that an input is 1."""
FORWARD, BAD = 0.8, 0.167
"""Crowds: the probabilities that a member forwards a message, and that it is corrupt."""
HEADER = ("model", "states", "classes", "levels", "rounds", "error", "s", "one level", "ratio")


def build_chain(
    start: State,
    step: Callable[[State], Outcomes[State]],
    label: Callable[[State], Sequence[str]],
    discount: float,
) -> MDP:
    """Build the labelled chain of all states that are reachable from a start, without rewards."""
    ids, states = {start: 0}, [start]
    entries: list[tuple[int, int, float]] = []
    for number, state in enumerate(states):  # the list grows
        for probability, successor in step(state):
            if successor not in ids:
                ids[successor] = len(states)
                states.append(successor)
            entries.append((number, ids[successor], probability))
    rows, columns, masses = zip(*entries, strict=True)
    P = sparse.coo_array((masses, (rows, columns)), (len(states), len(states))).tocsr()
    return MDP(P, np.zeros((len(states), 1)), discount, labels=[label(state) for state in states])


def nand_multiplexing(inputs: int = 5, restorations: int = 2, discount: float = 0.99) -> MDP:
    """Build NAND multiplexing: 2 * restorations + 1 stages of one gate per input of a bundle.

    A state holds what happens next, the stage, its finished gates, their outputs that are 1, the
    unused outputs of the last stage that are 1, for both inputs, and the inputs x, y of the gate.
    """
    last = 2 * restorations + 1

    def step(state: NandState) -> Outcomes[NandState]:
        phase, stage, gates, ones, for_x, for_y, x, y = state
        if phase == "next":
            if gates < inputs:
                return [(1.0, ("x", stage, gates, ones, for_x, for_y, x, y))]
            if stage < last:
                return [(1.0, ("x", stage + 1, 0, 0, ones, ones, x, y))]
            return [(1.0, ("end", stage, gates, ones, 0, 0, 0, 0))]
        if phase == "x":
            # The order of the outputs is random for y alone, which is enough.
            share = STIMULATED if stage == 1 else float(for_x > 0)
            used = int(stage > 1)
            outcomes = [
                (share, ("y", stage, gates, ones, for_x - used, for_y, 1, y)),
                (1 - share, ("y", stage, gates, ones, for_x, for_y, 0, y)),
            ]
        elif phase == "y":
            share = STIMULATED if stage == 1 else for_y / (inputs - gates)
            used = int(stage > 1)
            outcomes = [
                (share, ("gate", stage, gates, ones, for_x, for_y - used, x, 1)),
                (1 - share, ("gate", stage, gates, ones, for_x, for_y, x, 0)),
            ]
        elif phase == "gate":
            correct = 1 - x * y
            outcomes = [
                (1 - FAULT, ("next", stage, gates + 1, ones + correct, for_x, for_y, 0, 0)),
                (FAULT, ("next", stage, gates + 1, ones + 1 - correct, for_x, for_y, 0, 0)),
            ]
        else:
            return [(1.0, state)]
        return [outcome for outcome in outcomes if outcome[0] > 0]

    def label(state: NandState) -> list[str]:
        return ["end"] * (state[0] == "end") + ["target"] * (state[0] == "end" and state[3] == 0)

    return build_chain(("next", 1, 0, 0, 0, 0, 0, 0), step, label, discount)


def crowds(members: int = 5, runs: int = 5, discount: float = 0.99) -> MDP:
    """Build the Crowds protocol: a message is forwarded at random among members of a crowd.

    A state holds what happens next, the number of runs so far, how often each member was observed
    by a corrupt one, and the member that was seen last. Labels say who was observed twice.
    """

    def step(state: CrowdsState) -> Outcomes[CrowdsState]:
        phase, run, observed, seen = state
        if phase == "start":
            return [(1.0, state if run == runs else ("choose", run + 1, observed, 0))]
        if phase == "choose":
            return [(1 - BAD, ("good", run, observed, seen)), (BAD, ("bad", run, observed, seen))]
        if phase == "good":
            return [(1 / members, ("forward", run, observed, m)) for m in range(members)]
        if phase == "bad":
            counts = tuple(n + (m == seen) for m, n in enumerate(observed))
            return [(1.0, ("deliver", run, counts, 0))]
        if phase == "deliver":
            return [(1.0, ("start", run, observed, 0))]
        choose, deliver = ("choose", run, observed, seen), ("deliver", run, observed, 0)
        return [(FORWARD, choose), (1 - FORWARD, deliver)]

    def label(state: CrowdsState) -> list[str]:
        phase, run, observed, _ = state
        twice = [f"observed{m}" for m, n in enumerate(observed) if n > 1]
        return twice + ["end"] * (phase == "start" and run == runs)

    return build_chain(("start", 0, (0,) * members, 0), step, label, discount)


def encode_labels_as_actions(chain: MDP) -> MDP:
    """Replace each label of a chain by an action: a self-loop that pays 1 where it holds."""
    if chain.labels is None:
        raise ValueError("the chain has no labels")
    masks = [chain.labels[name] for name in chain.labels]
    states, actions = chain.num_states, 1 + len(masks)
    P: Any = sparse.vstack([chain.P, *[sparse.eye_array(states)] * len(masks)], format="csr")
    rows = (np.arange(states)[:, None] + states * np.arange(actions)).ravel()
    R = np.stack([np.zeros(states), *masks], axis=1)
    return MDP(P[rows], R, chain.discount)


MODELS: dict[str, Callable[[], MDP]] = {
    "NAND multiplexing, 5 inputs, 2 restorations": nand_multiplexing,
    "NAND multiplexing, 5 inputs, 3 restorations": lambda: nand_multiplexing(5, 3),
    "labels as actions: NAND multiplexing, 5 inputs, 2 restorations, discount 0.9": lambda: (
        encode_labels_as_actions(nand_multiplexing(discount=0.9))
    ),
    "Crowds, 5 members, 4 runs": lambda: crowds(5, 4),
    "Crowds, 5 members, 5 runs": crowds,
    "random chain, 5 successors": lambda: worlds.load(
        "random", states=1_000, actions=1, successors=5, discount=0.99
    ),
    "random MDP, 4 actions, 5 successors": lambda: worlds.load(
        "random", states=500, actions=4, successors=5, discount=0.99
    ),
    "large supports: random MDP, 4 actions, 100 successors, discount 0.9": lambda: worlds.load(
        "random", states=120, actions=4, successors=100, discount=0.9
    ),
    "large supports: random chain, 300 successors, discount 0.9": lambda: worlds.load(
        "random", states=310, actions=1, successors=300, discount=0.9
    ),
}


def measure(mdp: MDP, runs: int, *, one_level: bool = False) -> dict[str, Any]:
    """Return the least CPU seconds of d~, with its statistics and values."""
    seconds = []
    target = "bisimetric.exact.stochastic.policy_iteration.order_pairs"
    successors = min(20, int(np.diff(mdp.P.indptr).max()))  # kernels are compiled by support
    exact.bisimulation(worlds.load("random", states=40, successors=successors))
    with mock.patch(target, return_value=[]) if one_level else contextlib.nullcontext():
        for _ in range(runs):
            start = time.process_time()
            d = exact.bisimulation(mdp)
            seconds.append(time.process_time() - start)
    found = {key: d.metadata.get(key) for key in ("classes", "levels", "rounds")}
    return {**found, "seconds": min(seconds), "error": d.error, "values": d.values}


def measure_elsewhere(source: Path, name: str, runs: int) -> dict[str, Any]:
    """Measure with the sources of another checkout, in another process."""
    with tempfile.TemporaryDirectory() as folder:
        table = str(Path(folder, "table.npy"))
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        command = [sys.executable, __file__, "--runs", str(runs), "--measure", name, table]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        return {**json.loads(done.stdout), "values": np.load(table)}


def compare(names: Sequence[str], runs: int, baseline: Path | None) -> Iterator[tuple[str, ...]]:
    """Yield one row per model; raise if distances differ by more than their errors."""
    for name in names:
        mdp = MODELS[name]()
        ours = measure(mdp, runs)
        others = [measure(mdp, runs, one_level=True)]
        others += [measure_elsewhere(baseline, name, runs)] if baseline else []
        cells = [name, f"{mdp.num_states:,}", f"{ours['classes']:,}", f"{ours['levels']:,}"]
        cells += [str(ours["rounds"]), f"{ours['error']:.0e}", f"{ours['seconds']:.2f}"]
        for other in others:
            if np.abs(ours["values"] - other["values"]).max() > ours["error"] + other["error"]:
                raise RuntimeError(f"{name}: the two distances differ")
            cells.append(f"{other['seconds']:.2f} ({other['rounds']} rounds)")
            cells.append(f"{other['seconds'] / ours['seconds']:.1f}")
        yield tuple(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models that begin with one of these words")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="the src folder of another checkout")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, table = options.measure
        found = measure(MODELS[name](), options.runs)
        np.save(table, found.pop("values"))
        print(json.dumps(found))
        return
    names = [name for name in MODELS if name.startswith(tuple(options.names) or "")]
    header = HEADER + ("baseline", "ratio") * (options.baseline is not None)
    print(report.describe_machine(), "", sep="\n")
    print(report.format_row(header))
    print(report.format_row(["---"] + ["---:"] * (len(header) - 1)), flush=True)
    for row in compare(names, options.runs, options.baseline):
        print(report.format_row(row), flush=True)


if __name__ == "__main__":
    main()
