"""Time to read a DRN file, and by Storm if stormpy is installed.

python benchmarks/drn.py [--states 100000]
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import MDP, worlds


def build_mdp(num_states: int, seed: int = 0) -> MDP:
    """Return a random MDP with two actions, four successors each, names and a label."""
    rng = np.random.default_rng(seed)
    rows = 2 * num_states
    # Six digits, like most files.
    weights = rng.dirichlet(np.ones(4), rows).round(6) + 1e-6
    offsets = np.arange(0, 4 * rows + 1, 4)
    successors = rng.integers(num_states, size=4 * rows)
    P = sparse.csr_array((weights.ravel(), successors, offsets), shape=(rows, num_states))
    P.sum_duplicates()
    sums: NDArray[np.float64] = np.repeat(P.sum(axis=1), np.diff(P.indptr))
    return MDP(
        sparse.csr_array((P.data / sums, P.indices, P.indptr), shape=P.shape),
        rng.integers(3, size=(num_states, 2)),
        0.9,
        names=[f"x={state} & y={state % 7}" for state in range(num_states)],
        actions=["a", "b"],
        labels={"goal": rng.random(num_states) < 0.1},
    )


def measure(read: Callable[[], object], repeats: int = 3) -> float:
    """Return the least time of several runs, after one that compiles."""
    read()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=100_000)
    num_states = parser.parse_args().states
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.drn")
        worlds.to_drn(build_mdp(num_states), path)
        print(f"{num_states:,} states, {path.stat().st_size / 1e6:.1f} MB")
        seconds = measure(lambda: worlds.from_drn(path, observe="goal"))
        print(f"worlds.from_drn {seconds:.2f} s")
        try:
            stormpy = importlib.import_module("stormpy")
        except ImportError:
            print("stormpy is not installed")
            return
        options = stormpy.io.DirectEncodingParserOptions()
        options.build_choice_labeling = True
        seconds = measure(lambda: stormpy.build_model_from_drn(str(path), options=options))
        print(f"Storm {seconds:.2f} s")


if __name__ == "__main__":
    main()
