"""Bisimulation minimisation by Storm, timed: `python peers_stormpy.py TASK FILE [runs]`.

Run it with the interpreter of an environment that holds `stormpy` 2 and NumPy. Tasks:

- `arrays mdp.npz`: an MDP with `data`, `indices` and `indptr` of P (S * A, S) and `R` (S, A).
- `files chain.tra`: a DTMC with labels in explicit files, `chain.tra` and `chain.lab`.
- `symbolic model.pm`: a DTMC as PRISM source, by decision diagrams; the label is "failed".

Prints the least CPU seconds of some runs as JSON, to build the model and to minimise it, with the
numbers of states and classes. Arrays are passed as an uncompressed UMB archive, in a memory-backed
folder if there is one: the fastest input of stormpy (its SparseMatrixBuilder takes about three
times as long).
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import stormpy  # type: ignore[import-not-found]
from stormpy import io as storm_io
from stormpy import transformations

MEMORY = Path("/dev/shm")


def write_archive(P: dict[str, Any], R: Any, path: Path) -> None:
    """Write the MDP as a UMB archive, with R as rewards of choices."""
    states, actions = R.shape
    double = {"type": "double", "size": 64}
    counts = {
        "#states": states,
        "#initial-states": 1,
        "#players": 1,
        "#choices": R.size,
        "#choice-actions": 0,
        "#branches": len(P["data"]),
        "#branch-actions": 0,
        "#observations": 0,
    }
    index = {
        "format-version": 1,
        "format-revision": 0,
        "transition-system": {"time": "discrete", "branch-probability-type": double, **counts},
        "annotations": {
            "rewards": {"r": {"alias": "r", "applies-to": ["choices"], "type": double}}
        },
    }
    initial = np.zeros(-(-states // 64), np.uint64)
    initial[0] = 1
    files = {
        "index.json": json.dumps(index).encode(),
        "state-is-initial.bin": initial,
        "state-to-choices.bin": np.arange(0, R.size + 1, actions, dtype=np.uint64),
        "choice-to-branches.bin": P["indptr"].astype(np.uint64),
        "branch-to-target.bin": P["indices"].astype(np.uint64),
        "branch-to-probability.bin": np.ascontiguousarray(P["data"]),
        "annotations/rewards/r/choices/values.bin": np.ascontiguousarray(R),
    }
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            view = memoryview(content).cast("B")
            entry.size = view.nbytes
            tar.addfile(entry, io.BytesIO(view))


def minimise(model: Any, labels: bool, by_signatures: bool) -> Any:
    """Return the quotient of a sparse model by strong bisimulation."""
    preserve = transformations.StateLabelPreservation
    options = transformations.BisimulationOptions()
    options.bisimulation_type = transformations.BisimulationType.STRONG
    options.action_sensitive = not labels  # action a is matched by action a
    options.preserve_all_rewards = not labels
    options.state_label_preservation = preserve.ALL if labels else preserve.NONE
    options.prefer_signature_refinement = by_signatures
    return transformations.perform_bisimulation(model, [], options=options)


def time_sparse(build: Callable[[], Any], labels: bool, runs: int) -> dict[str, float]:
    """Time the construction, and the better of the two refinements, of a sparse model."""
    building, minimising, classes = [], [], set()
    for _ in range(runs):
        start = time.process_time()
        model = build()
        building.append(time.process_time() - start)
        for by_signatures in (False,) if labels else (False, True):
            start = time.process_time()
            small = minimise(model, labels, by_signatures)
            minimising.append(time.process_time() - start)
            classes.add(int(small.nr_states))
    if len(classes) != 1:
        raise RuntimeError(f"stormpy finds {sorted(classes)} classes, by its two refinements")
    found = {"build": min(building), "minimise": min(minimising), "classes": classes.pop()}
    return {**found, "states": int(model.nr_states), "transitions": int(model.nr_transitions)}


def time_arrays(path: Path, runs: int) -> dict[str, float]:
    with np.load(path) as stored:
        P = {name: stored[name] for name in ("data", "indices", "indptr")}
        R = stored["R"]
    options = storm_io.UmbImportOptions()
    options.build_state_valuations = False
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        archive = Path(folder) / "mdp.umb"

        def build() -> Any:
            write_archive(P, R, archive)
            return stormpy.build_model_from_umb(archive, options=options)

        return time_sparse(build, labels=False, runs=runs)


def time_files(path: Path, runs: int) -> dict[str, float]:
    files = str(path), str(path.with_suffix(".lab"))
    return time_sparse(lambda: stormpy.build_model_from_explicit(*files), labels=True, runs=runs)


def time_symbolic(path: Path) -> dict[str, float]:
    start = time.process_time()
    program = stormpy.parse_prism_program(str(path))
    properties = stormpy.parse_properties('P=? [F "failed"]', program)
    model = stormpy.build_symbolic_model(program, properties)
    build = time.process_time() - start
    start = time.process_time()
    small = transformations.perform_bisimulation(
        model, properties, quotient_format=transformations.QuotientFormat.SPARSE
    )
    seconds = time.process_time() - start
    found = {"build": build, "minimise": seconds, "classes": int(small.nr_states)}
    return {**found, "states": int(model.nr_states), "transitions": int(model.nr_transitions)}


def main() -> None:
    task, path = sys.argv[1], Path(sys.argv[2])
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    if task == "symbolic":
        found = time_symbolic(path)
    else:
        found = {"arrays": time_arrays, "files": time_files}[task](path, runs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
