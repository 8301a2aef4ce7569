"""Runs that SIGKILL ends: what is kept is whole, and the resumed result is the same bit for bit.

This file is also the program that is killed: `python test_killed_runs.py PART FOLDER MOMENT`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent


def run_sampled(folder: Path, resume: bool) -> dict[str, Any]:
    from bisimetric import sampled, worlds
    from bisimetric.sampled import Trajectories, limits

    limits.CHECKPOINT_SECONDS, limits.STEPS_PER_CHUNK = 0.0, 500
    file = folder / "run.npz"
    d = sampled.bisimulation(
        worlds.load("mirrored-rooms"),
        sampler=Trajectories(),
        seed=3,
        steps=60_000,
        checkpoint=file,
        resume=file if resume else None,
    )
    return {"values": d.values, "error": d.error}


def run_learned(folder: Path, resume: bool) -> dict[str, Any]:
    from bisimetric import worlds
    from bisimetric.learned import RunOptions, _fit, files, fit, source_from_mdp
    from bisimetric.learned.castro2020 import Castro2020Config, PairNetwork

    _fit.CHECKPOINT_SECONDS = 0.0
    file = folder / "run.safetensors"
    done = fit(
        "bisimulation",
        source_from_mdp("bisimulation", worlds.load("pessimism")),
        discount=0.9,
        updates=240,
        config=Castro2020Config(PairNetwork((5,)), batch_size=6, target_update_period=4),
        options=RunOptions(log_every=4, checkpoint=file, resume=file if resume else None),
    )
    return {
        **files.name_leaves(done.state.parameters),
        **files.name_leaves(done.state.optimiser),
    } | {f"history {name}": each for name, each in done.history.items()}


def run_sharded(folder: Path, resume: bool) -> dict[str, Any]:
    from bisimetric import worlds
    from bisimetric.exact import sharded

    mdp = worlds.load("open-grid", rows=9, columns=10, discount=0.95)
    run = folder / "run"
    d = sharded.bisimulation(
        mdp, checkpoint=run, checkpoint_every=1e-9, resume=run if resume else None
    )
    return {"values": d.values, "error": d.error, "sweeps": d.metadata["sweeps"]}


PARTS = {"sampled": run_sampled, "learned": run_learned, "sharded": run_sharded}
KEPT = {"sampled": "run.npz", "learned": "run.safetensors", "sharded": "run/manifest.json"}


def arrange_death(moment: str) -> None:
    """Kills this process at a moment: `none`, seconds after a write, or a stage of the n-th one.

    Stages: `half` of the bytes are written, `before` or `after` the new file replaces the old.
    """
    stage, _, number = moment.partition(":")
    if stage == "none":
        return
    writes = 0
    replace, chmod = Path.replace, Path.chmod

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def patch_chmod(self: Path, *args: Any, **options: Any) -> None:
        nonlocal writes
        writes += 1
        if stage == "half" and writes == int(number):
            os.truncate(self, self.stat().st_size // 2)
            die()
        chmod(self, *args, **options)

    def patch_replace(self: Path, target: Any) -> Path:
        due = stage in ("before", "after") and writes == int(number)
        if due and stage == "before":
            die()
        found = replace(self, target)
        if due:
            die()
        if stage == "seconds" and writes == 1:
            threading.Timer(float(number), die).start()
        return found

    Path.replace, Path.chmod = patch_replace, patch_chmod  # type: ignore[method-assign,assignment]


def start(part: str, folder: Path, moment: str) -> int:
    """The exit status of the program in a process of its own; negative for a signal."""
    found = subprocess.run(
        [sys.executable, __file__, part, str(folder), moment],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode in (0, -signal.SIGKILL), found.stderr
    return found.returncode


def moments(part: str) -> list[str]:
    """Seeded moments: while it computes, and in all stages of a write."""
    rng = np.random.default_rng(sorted(PARTS).index(part))
    at_write = [f"{stage}:{rng.integers(2, 6)}" for stage in ("half", "before", "after")]
    return [*at_write, *(f"seconds:{each:.3f}" for each in rng.uniform(0, 0.3, 2))]


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_killed_run_is_resumed_to_the_same_bits(part: str, tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.mkdir()
    torn.mkdir()
    assert start(part, whole, "none") == 0
    kills = 0
    for moment in moments(part):
        code = start(part, torn, moment)
        if code == 0:  # A moment behind the end of the run.
            break
        assert (torn / KEPT[part]).is_file()
        kills += 1
    assert kills >= 3
    assert start(part, torn, "none") == 0
    with np.load(whole / "result.npz") as wanted, np.load(torn / "result.npz") as found:
        assert sorted(wanted.files) == sorted(found.files)
        for name in wanted.files:
            assert wanted[name].tobytes() == found[name].tobytes(), name


if __name__ == "__main__":
    name, where, when = sys.argv[1:]
    arrange_death(when)
    result = PARTS[name](Path(where), (Path(where) / KEPT[name]).is_file())
    arrays: dict[str, Any] = {key: np.asarray(each) for key, each in result.items()}
    np.savez(Path(where) / "result.npz", **arrays)
