"""Run the published code of Castro and co-authors, unchanged: `peers_published.py FOLDER TASK OUT`.

FOLDER is a checkout of github.com/google-research/google-research. Run it with the interpreter of
an environment that holds POT and NumPy. The modules import TensorFlow, gin, absl and Matplotlib for
functions that are not called here, and for reading and writing files; stand-ins take their place.

Tasks: `rooms TOL`, `policy TOL` and `sampled ITERATIONS` (bisimulation_aaai2020), `bisimulation
TOL` and `lax TOL` (rl_metrics_aaai2021), `mico STATES` (ksme). Prints CPU seconds and iterations as
JSON, and writes the distance matrix, with the random MDP that it is for, to OUT.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

DISCOUNT = 0.9
"""The discount of the random MDPs."""


def install_stand_ins() -> None:
    """Let the modules import TensorFlow, gin, absl and Matplotlib where these are not installed."""

    def open_file(path: str, mode: str = "r") -> Any:
        return open(path, mode + "b" if mode == "w" else mode)  # pickles are written as text there

    def make_folder(path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    files = mock.MagicMock(GFile=open_file, Open=open_file)
    files.Exists = files.exists = lambda path: Path(path).exists()
    files.MakeDirs = files.makedirs = make_folder
    tensorflow = mock.MagicMock(gfile=files)
    tensorflow.io.gfile = files
    tensorflow.compat.v1 = tensorflow
    gin = mock.MagicMock(configurable=lambda decorated: decorated)
    modules = {
        "tensorflow": tensorflow,
        "tensorflow.compat": tensorflow.compat,
        "tensorflow.compat.v1": tensorflow,
        "tensorflow.contrib": mock.MagicMock(),
        "gin": gin,
        "gin.tf": gin.tf,
    }
    for name in ("absl", "matplotlib"):
        modules[name] = mock.MagicMock()
    modules["matplotlib.pyplot"] = modules["matplotlib"].pyplot
    sys.modules.update(modules)


def run_grid(folder: Path, task: str, amount: float, base: str) -> tuple[dict[str, Any], Any]:
    """Run GridWorld.compute_exact_metric or compute_sampled_metric on the 31 states."""
    module = importlib.import_module("bisimulation_aaai2020.grid_world.grid_world")
    name = "mirrored_rooms_policy.grid" if task == "policy" else "mirrored_rooms.grid"
    path = folder / "bisimulation_aaai2020" / "grid_world" / "configs" / name
    grid = module.GridWorld(base, grid_file=str(path), gamma=0.99)
    if task != "sampled":
        start = time.process_time()
        grid.compute_exact_metric(tolerance=amount)
        seconds = time.process_time() - start
        iterations = len(grid.statistics["exact"]["metric_differences"])
        return {"seconds": seconds, "iterations": iterations}, {"values": grid.bisim_metric}
    grid.compute_exact_metric()
    grid.num_iterations = int(amount)
    np.random.seed(0)  # noqa: NPY002  (the published code samples by it)
    start = time.process_time()
    grid.compute_sampled_metric()
    seconds = time.process_time() - start
    errors = next(
        each["exact_metric_errors"]
        for each in grid.statistics.values()
        if "exact_metric_errors" in each
    )
    found = {"seconds": seconds, "iterations": len(errors), "least": float(min(errors))}
    return found, {"values": grid.sampled_bisim_metric}


def run_random(task: str, amount: float, base: str) -> tuple[dict[str, Any], Any]:
    """Run a metric class on a random MDP of the same publication."""
    np.random.seed(0)  # noqa: NPY002  (the published code samples by it)
    if task == "mico":
        env = importlib.import_module("ksme.random_mdps.random_mdp").RandomMDP(int(amount), 2)
        env.gamma = DISCOUNT
        metric = importlib.import_module("ksme.random_mdps.mico").MICo("mico", "", env, base)
    else:
        env = importlib.import_module("rl_metrics_aaai2021.random_mdp").RandomMDP(20, 2)
        name, kind = {
            "bisimulation": ("bisimulation", "Bisimulation"),
            "lax": ("lax_bisimulation", "LaxBisimulation"),
        }[task]
        module = importlib.import_module(f"rl_metrics_aaai2021.{name}")
        metric = getattr(module, kind)(name, "", env, base, gamma=DISCOUNT)
    start = time.process_time()
    metric.compute(tolerance=amount, save_and_reload=False)
    found = {"seconds": time.process_time() - start}
    arrays = {"values": metric.metric, "P": env.transition_probs, "R": env.rewards}
    return found, {**arrays, "policy": getattr(env, "policy", np.zeros(0)), "discount": DISCOUNT}


def main() -> None:
    folder, task, amount, out = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
    install_stand_ins()
    sys.path.insert(0, str(folder))
    with tempfile.TemporaryDirectory() as base, contextlib.redirect_stdout(io.StringIO()):
        if task in ("rooms", "policy", "sampled"):
            found, arrays = run_grid(folder, task, amount, base)
        else:
            found, arrays = run_random(task, amount, base)
    np.savez(out, **arrays)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
