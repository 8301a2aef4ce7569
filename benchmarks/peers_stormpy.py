"""Bisimulation minimisation by Storm, timed: `python peers_stormpy.py mdp.npz [runs]`.

Run it with the interpreter of an environment that holds `stormpy` 2 and NumPy. The file holds
`data`, `indices` and `indptr` of P (S * A, S) and `R` (S, A). Prints the least times of some runs
as JSON: seconds to build the model from the arrays, seconds to minimise it, and the classes found.

The model is passed as an uncompressed UMB archive, in a memory-backed folder if there is one: the
fastest input of stormpy (its SparseMatrixBuilder takes about three times as long).
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
import time
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


def main() -> None:
    with np.load(sys.argv[1]) as stored:
        P = {name: stored[name] for name in ("data", "indices", "indptr")}
        R = stored["R"]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    import_options = storm_io.UmbImportOptions()
    import_options.build_state_valuations = False
    build, minimise, classes = [], [], set()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        path = Path(folder) / "mdp.umb"
        for _ in range(runs):
            start = time.perf_counter()
            write_archive(P, R, path)
            model = stormpy.build_model_from_umb(path, options=import_options)
            build.append(time.perf_counter() - start)
            for by_signatures in (False, True):
                options = transformations.BisimulationOptions()
                options.bisimulation_type = transformations.BisimulationType.STRONG
                options.action_sensitive = True  # action a is matched by action a
                options.preserve_all_rewards = True
                options.state_label_preservation = transformations.StateLabelPreservation.NONE
                options.prefer_signature_refinement = by_signatures
                start = time.perf_counter()
                small = transformations.perform_bisimulation(model, [], options=options)
                minimise.append(time.perf_counter() - start)
                classes.add(int(small.nr_states))
    if len(classes) != 1:
        raise RuntimeError(f"stormpy finds {sorted(classes)} classes, by its two refinements")
    found = {
        "seconds_build": min(build),
        "seconds_minimise": min(minimise),
        "classes": classes.pop(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
