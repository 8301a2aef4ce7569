"""The program of several processes: `python together.py PART FOLDER DEVICES`.

Starting them takes longer than most tests, so one start serves several tests.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

import bisimetric
from bisimetric import MDP, worlds
from bisimetric.exact import sharded
from bisimetric.exact.sharded.layout import build_layout

BLOCK = 2**22
CONSTANT = 2**25
"""Bytes of a process besides its rows and a block: compiled kernels, buffers of files."""
STACKS = 2**26
"""Bytes that the stacks of threads reserve but hardly use."""
WIDE_TOL = 0.1


def wide() -> MDP:
    """A large MDP that needs few sweeps: a ring with steps of one and two."""
    s, states = np.arange(5200), 5200
    successors = np.column_stack([(s + 1) % states, (s + 2) % states])
    return MDP.deterministic(successors, np.column_stack([s, -s]) / states, discount=0.3)


def deep() -> MDP:
    """A small MDP that needs many."""
    return worlds.load("open-grid", rows=9, columns=10, discount=0.6)


def turning(mdp: MDP) -> Any:
    return np.arange(mdp.num_states) % mdp.num_actions


def memory(name: str) -> int:
    """Return a line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def disagreeing(folder: Path, index: int) -> list[str]:
    """Each error of one process is raised in all, with one message."""
    said = []

    def tried(mdp: MDP, **options: Any) -> None:
        try:
            sharded.bisimulation(mdp, **options)
            said.append("no error")
        except (ValueError, OSError, MemoryError) as error:
            said.append(f"{type(error).__name__}: {error}")

    odd, mdp = index == 1, deep()
    tried(mdp.replace(discount=0.8 if odd else 0.6))
    kept, bisimetric.__version__ = bisimetric.__version__, "0.1.1" if odd else "0.1.0"
    tried(mdp)
    bisimetric.__version__ = kept
    tried(mdp, tol=1e-4 if odd else 1e-3)
    tried(mdp, output=folder / ("no/d.zarr" if odd else "d.zarr"))
    tried(mdp, output=folder / ("e.zarr" if odd else "d.zarr"))
    tried(mdp, memory_limit=10_000, block_bytes=1000)
    (folder / "full").mkdir(exist_ok=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if odd:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    tried(mdp, checkpoint=folder / "full", checkpoint_every=1e-9)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    tried(mdp, tol=2.0, output=folder / "rough.zarr")
    return said


def limited(folder: Path, processes: int) -> dict[str, int]:
    """Compute a matrix that is larger than the memory of this process."""
    mdp = wide()
    split = build_layout(mdp.num_states, processes, np.dtype("float64"), block_bytes=BLOCK)
    bound = split.device_bytes + CONSTANT
    free = bound + STACKS
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + free, limits[1]))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    sharded.bisimulation(mdp, tol=WIDE_TOL, block_bytes=BLOCK, output=folder / "wide.zarr")
    took, table = memory("VmHWM") - before, mdp.num_states**2 * 8
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    return {"took": took, "bound": bound, "free": free, "table": table}


def first(folder: Path) -> None:
    """Raise errors, compute a large matrix, then run with a checkpoint per sweep, to be killed."""
    sharded.join()
    import jax

    index = jax.process_index()
    said = disagreeing(folder, index)
    large = limited(folder, jax.process_count())
    (folder / f"{index}.json").write_text(json.dumps({"said": said, "large": large}))
    sharded.bisimulation(deep(), checkpoint=folder / "run", checkpoint_every=1e-9)


def second(folder: Path) -> None:
    """Resume the killed run with any number of processes and devices, and compute a d^pi."""
    mdp = deep()
    run = folder / "run"
    sharded.bisimulation(mdp, checkpoint=run, resume=run, output=folder / "d.npz")
    sharded.on_policy(mdp, turning(mdp), dtype="float32", output=folder / "pi.npz")


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[3]}"
    {"first": first, "second": second}[sys.argv[1]](Path(sys.argv[2]))
