"""Sharded distances in several processes: memory, a killed process, disagreement."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from bisimetric import Distance, InputError, worlds
from bisimetric.exact import sharded
from bisimetric.exact.sharded.launcher import launch
from tests.commands import start_command
from tests.sharded_program import (
    BLOCK,
    WIDE_TOL,
    build_cyclic_policy,
    build_large_ring,
    build_small_grid,
)

TESTS = Path(__file__).parents[2]
PORTS = 2**16 - 2**12
"""The first port that JAX uses under SLURM."""


def start(processes: int, part: str, folder: Path, devices: int = 1) -> subprocess.Popen[str]:
    """Start a part of `sharded_program.py` in several processes."""
    program = ("python", str(TESTS / "sharded_program.py"), part, str(folder), str(devices))
    return start_command("launch", "-n", str(processes), "--", *program, folder=folder)


def wait_for(run: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str]:
    try:
        _, said = run.communicate(timeout=seconds)
    finally:
        run.terminate()
    return run.returncode, said


@dataclasses.dataclass(frozen=True)
class KilledRun:
    """Four processes of which one was killed in their last run, and its output."""

    folder: Path
    code: int
    said: str
    seconds: float
    orphans: int
    manifest: dict[str, Any]

    def of(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{index}.json").read_text())
        return found


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> KilledRun:
    folder = tmp_path_factory.mktemp("four")
    manifest = folder / "run" / "manifest.json"
    run = start(4, "first", folder)
    end = time.monotonic() + 240
    while not manifest.is_file() and time.monotonic() < end and run.poll() is None:
        time.sleep(0.05)
    assert manifest.is_file(), wait_for(run, 1)
    children = psutil.Process(run.pid).children()
    victim = next(each for each in children if each.environ()["BISIMETRIC_PROCESS"] == "2")
    began = time.monotonic()
    victim.kill()
    code, said = wait_for(run, 60)
    seconds = time.monotonic() - began
    orphans = sum(each.is_running() for each in children)
    return KilledRun(folder, code, said, seconds, orphans, json.loads(manifest.read_text()))


@pytest.mark.slow
def test_processes_that_disagree_all_raise(killed_run: KilledRun) -> None:
    said = [killed_run.of(index)["said"] for index in range(4)]
    assert said == [said[0]] * 4
    mdp, version, asked, place, elsewhere, room, disk, fine = said[0]
    assert "InputError: exact.sharded.bisimulation: process 1 of 4 has another MDP" in mdp
    assert "another version of bisimetric than process 0 (0.1.1 and 0.1.0)" in version
    assert "another distance than process 0 (bisimulation to 0.0001 in float64" in asked
    assert "OSError: cannot write" in place
    assert "no first (process 1 of 4)." in place
    assert "another output than process 0 (" in elsewhere
    assert "InsufficientMemory: exact.sharded.bisimulation: 81 states need" in room
    assert "on each of 4 devices" in room
    assert "; use " in room
    full = killed_run.folder / "full"
    assert (
        disk == f"OSError: cannot write {full / 'matrix-000001'}: File too large (process 1 of 4)."
    )
    assert list(full.iterdir()) == []
    assert fine == "no error"


@pytest.mark.slow
def test_four_processes_hold_a_matrix_that_none_of_them_could(killed_run: KilledRun) -> None:
    for index in range(4):
        large = killed_run.of(index)["large"]
        assert large["took"] <= large["bound"]
        assert large["free"] < large["table"]
    together = Distance.load(killed_run.folder / "wide.zarr")
    alone = sharded.bisimulation(build_large_ring(), tol=WIDE_TOL, block_bytes=BLOCK)
    assert together.metadata["processes"] == 4
    assert together.metadata["received_rows"] > 0
    assert together.error == alone.error
    assert np.array_equal(np.asarray(together.values), alone.values)


@pytest.mark.slow
def test_a_killed_process_stops_the_others(killed_run: KilledRun) -> None:
    assert killed_run.seconds < 60
    assert killed_run.orphans == 0
    assert killed_run.code == 128 + signal.SIGKILL
    assert "process 2 of 4 was ended by SIGKILL, and the others were stopped" in killed_run.said
    assert "process 0 of 4 lost another one" in killed_run.said
    assert "start it again and resume from" in killed_run.said


@pytest.mark.slow
def test_a_killed_run_resumes_with_another_number_of_processes(killed_run: KilledRun) -> None:
    assert killed_run.manifest["processes"] == 4
    # As if it had been killed while it wrote the next one.
    (killed_run.folder / "run" / "matrix-000999").mkdir(exist_ok=True)
    code, said = wait_for(start(2, "second", killed_run.folder, devices=2))
    assert code == 0, said
    mdp = build_small_grid()
    d, alone = Distance.load(killed_run.folder / "d.npz"), sharded.bisimulation(mdp)
    assert (d.metadata["processes"], d.metadata["devices"]) == (2, 4)
    assert (
        d.metadata["sweeps"] == alone.metadata["sweeps"] > killed_run.manifest["progress"]["sweeps"]
    )
    assert np.array_equal(d.values, alone.values)
    assert list((killed_run.folder / "run").iterdir()) == []
    d = Distance.load(killed_run.folder / "pi.npz")
    alone = sharded.on_policy(mdp, build_cyclic_policy(mdp), dtype="float32")
    assert d.error == alone.error
    assert np.array_equal(d.values, alone.values)


def build_slurm_variables(index: int) -> dict[str, str]:
    """The variables that `srun -n 2` gives to a process; JAX makes a port of the job's number."""
    count = {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
    place = {"SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)}
    return {**os.environ, **count, **place, "SLURM_JOB_ID": str(free_port() - PORTS)}


@functools.cache
def free_port() -> int:
    for port in range(PORTS, 2**16):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("localhost", port))
            return port
    raise AssertionError("no port is free")


@pytest.mark.slow
def test_a_scheduler_starts_the_same_program(tmp_path: Path) -> None:
    text = (
        "from bisimetric import worlds; from bisimetric.exact import sharded\n"
        "d = sharded.bisimulation(worlds.load('mirrored-rooms'), output='d.npz')\n"
        "assert d.metadata['processes'] == 2"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env=build_slurm_variables(index),
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    for run in runs:
        code, said = wait_for(run, 120)
        assert code == 0, said
    alone = sharded.bisimulation(worlds.load("mirrored-rooms"))
    assert np.array_equal(Distance.load(tmp_path / "d.npz").values, alone.values)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_passed_on(tmp_path: Path, which: signal.Signals) -> None:
    text = "import os, time; open(f'{os.getpid()}.pid', 'w'); time.sleep(60)"
    run = start_command("launch", "-n", "2", "--", "python", "-c", text, folder=tmp_path)
    end = time.monotonic() + 30
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    children = psutil.Process(run.pid).children()
    run.send_signal(which)
    code, said = wait_for(run, 30)
    assert code == 130
    assert "KeyboardInterrupt" in said
    assert len(children) == 2
    assert not any(each.is_running() for each in children)


def test_a_command_that_fails_stops_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bisimetric.exact.sharded.launcher.GRACE_SECONDS", 0.5)
    text = (
        "import os, sys, time\n"
        "if os.environ['BISIMETRIC_PROCESS'] == '1': sys.exit('no such thing')\n"
        "time.sleep(60)"
    )
    began = time.monotonic()
    assert launch(["python", "-c", text], 2) == 1
    assert time.monotonic() - began < 30
    said = capsys.readouterr().err
    assert "process 1 of 2 failed with 1, and the others were stopped: no such thing" in said


def test_commands_that_cannot_be_started_raise() -> None:
    with pytest.raises(InputError, match="-n is 0 and must be a whole number, at least 1"):
        launch(["python"], 0)
    with pytest.raises(InputError, match="there is no command; write it after --"):
        launch([], 2)
    with pytest.raises(InputError, match="cannot start 'no-such-program'"):
        launch(["no-such-program"], 2)
