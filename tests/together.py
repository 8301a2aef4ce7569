"""What several processes run together, one part for each test: `python together.py PART FOLDER`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

import bisimetric
from bisimetric import MDP, worlds
from bisimetric.exact import sharded
from bisimetric.exact.sharded.layout import laid_out

BLOCK = 2**22
CONSTANT = 3 * 2**25
"""Bytes that a process may take besides its rows and a block: compiled steps, buffers of files."""
STACKS = 2**26
"""Bytes that the stacks of threads reserve, and hardly use."""


def wide() -> MDP:
    return worlds.load("open-grid", rows=70, columns=100, obstacles=0.0, discount=0.5)


def deep() -> MDP:
    return worlds.load("open-grid", rows=18, columns=25, discount=0.95)


def memory(name: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def limited(folder: Path) -> None:
    """A table that is larger than what the process may take from here on."""
    mdp = wide()
    sharded.join()
    # The first table brings what JAX takes once; the steps of the second are compiled anew.
    sharded.bisimulation(mdp.replace(discount=0.4), tol=1.0, block=BLOCK, output=folder / "0.zarr")
    import jax

    split = laid_out(mdp.num_states, jax.process_count(), np.dtype("float64"), block=BLOCK)
    promised = split.needed + CONSTANT
    free = promised + STACKS
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + free,) * 2)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    sharded.bisimulation(mdp, tol=1e-2, block=BLOCK, output=folder / "d.zarr")
    took, table = memory("VmHWM") - before, mdp.num_states**2 * 8
    said = {"took": took, "promised": promised, "free": free, "table": table}
    (folder / f"{jax.process_index()}.json").write_text(json.dumps(said))


def killed(folder: Path) -> None:
    """A run that is kept at every sweep, to be killed in between."""
    sharded.bisimulation(deep(), checkpoint=folder / "run", every=1e-9)


def resumed(folder: Path) -> None:
    """The same program again, with whatever number of processes."""
    sharded.bisimulation(deep(), checkpoint=folder / "run", output=folder / "d.npz")


def disagreeing(folder: Path) -> None:
    """Each mistake of one process is that of all, in one sentence."""
    sharded.join()
    import jax

    index = jax.process_index()
    said = []

    def tried(mdp: MDP, **options: Any) -> None:
        try:
            sharded.bisimulation(mdp, **options)
            said.append("no error")
        except (ValueError, OSError, MemoryError) as error:
            said.append(f"{type(error).__name__}: {error}")

    rooms = worlds.load("mirrored-rooms", discount=0.9)
    tried(rooms.replace(discount=0.9 - index / 10))
    bisimetric.__version__ = f"0.1.{index}"
    tried(rooms)
    bisimetric.__version__ = "0.1.0"
    tried(rooms, tol=[1e-3, 1e-4][index])
    tried(rooms, limit=3000, block=1000)
    (folder / "run").mkdir(exist_ok=True)
    grid = worlds.load("open-grid", rows=12, columns=14, discount=0.95)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if index == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    tried(grid, checkpoint=folder / "run", every=1e-9)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    tried(rooms)
    (folder / f"{index}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    part = {"limited": limited, "killed": killed, "resumed": resumed, "disagreeing": disagreeing}
    part[sys.argv[1]](Path(sys.argv[2]))
