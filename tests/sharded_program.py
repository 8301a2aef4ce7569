"""The program of several processes: `python sharded_program.py PART FOLDER DEVICES`.

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
CONSTANT = 2**26
"""Bytes of a process besides its rows and a block: compiled kernels, buffers of files."""
STACKS = 2**26
"""Bytes that the stacks of threads reserve but hardly use."""
WIDE_TOL = 0.1


def build_large_ring() -> MDP:
    """A large MDP that needs few sweeps: a ring with steps of one and two."""
    states = 7000
    s = np.arange(states)
    successors = np.column_stack([(s + 1) % states, (s + 2) % states])
    return MDP.deterministic(successors, np.column_stack([s, -s]) / states, discount=0.3)


def build_small_grid() -> MDP:
    """A small MDP that needs many."""
    return worlds.load("open-grid", rows=9, columns=10, discount=0.6)


def build_random_mdp() -> MDP:
    """An MDP whose rows are all exchanged."""
    return worlds.load("random", states=26, actions=2, discount=0.8)


def build_cyclic_policy(mdp: MDP) -> Any:
    return np.arange(mdp.num_states) % mdp.num_actions


def read_memory(name: str) -> int:
    """Return a line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def raise_disagreements(folder: Path, index: int) -> list[str]:
    """Each error of one process is raised in all, with one message."""
    said = []

    def record_error(mdp: MDP, **options: Any) -> None:
        try:
            sharded.bisimulation(mdp, **options)
            said.append("no error")
        except (ValueError, OSError, MemoryError) as error:
            said.append(f"{type(error).__name__}: {error}")

    odd, mdp = index == 1, build_small_grid()
    record_error(mdp.replace(discount=0.8 if odd else 0.6))
    kept, bisimetric.__version__ = bisimetric.__version__, "0.1.1" if odd else "0.1.0"
    record_error(mdp)
    bisimetric.__version__ = kept
    record_error(mdp, tol=1e-4 if odd else 1e-3)
    record_error(mdp, output=folder / ("no/d.zarr" if odd else "d.zarr"))
    record_error(mdp, output=folder / ("e.zarr" if odd else "d.zarr"))
    record_error(mdp, memory_limit=10_000, block_bytes=1000)
    (folder / "full").mkdir(exist_ok=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if odd:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    record_error(mdp, checkpoint=folder / "full", checkpoint_every=1e-9)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    record_error(mdp, tol=2.0, output=folder / "rough.zarr")
    return said


def solve_with_memory_limit(folder: Path, processes: int) -> dict[str, int]:
    """Compute a matrix that is larger than the memory of this process."""
    mdp = build_large_ring()
    split = build_layout(mdp.num_states, processes, np.dtype("float64"), block_bytes=BLOCK)
    bound = split.device_bytes + CONSTANT
    free = bound + STACKS
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (read_memory("VmData") + free, limits[1]))
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    sharded.bisimulation(mdp, tol=WIDE_TOL, block_bytes=BLOCK, output=folder / "wide.zarr")
    took, table = read_memory("VmHWM") - before, mdp.num_states**2 * 8
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    return {"took": took, "bound": bound, "free": free, "table": table}


def run_first_part(folder: Path) -> None:
    """Raise errors, compute a large matrix, then run with a checkpoint per sweep, to be killed."""
    sharded.join()
    import jax

    index = jax.process_index()
    said = raise_disagreements(folder, index)
    large = solve_with_memory_limit(folder, jax.process_count())
    (folder / f"{index}.json").write_text(json.dumps({"said": said, "large": large}))
    sharded.bisimulation(build_small_grid(), checkpoint=folder / "run", checkpoint_every=1e-9)


def run_second_part(folder: Path) -> None:
    """Resume the killed run with any number of processes and devices, and compute a d^pi."""
    mdp = build_small_grid()
    run = folder / "run"
    sharded.bisimulation(mdp, checkpoint=run, resume=run, output=folder / "d.npz")
    sharded.on_policy(mdp, build_cyclic_policy(mdp), dtype="float32", output=folder / "pi.npz")


def run_cuda_part(folder: Path) -> None:
    """Compute a distance by the CUDA kernels on emulated devices, with small blocks of rows."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from bisimetric.exact.sharded import solver
    from tests.emulated_cuda import EmulatedShardDevice

    def find_emulated_devices(group: Any) -> list[Any]:
        return [EmulatedShardDevice() for _ in group.local_devices]

    solver.find_shard_devices = find_emulated_devices  # type: ignore[attr-defined]
    mdp = build_random_mdp()
    block = 3 * 4 * 4 * mdp.num_states
    sharded.bisimulation(mdp, dtype="float32", block_bytes=block, output=folder / "d.npz")


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[3]}"
    parts = {"first": run_first_part, "second": run_second_part, "cuda": run_cuda_part}
    parts[sys.argv[1]](Path(sys.argv[2]))
