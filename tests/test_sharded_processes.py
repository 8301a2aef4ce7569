"""Sharded tables in several processes on this machine: memory, a killed process, disagreement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from bisimetric import Distance
from bisimetric.exact import sharded
from commands import started
from together import BLOCK, deep, wide

HERE = Path(__file__).parent


def spread(processes: int, part: str, folder: Path) -> subprocess.Popen[str]:
    program = ("python", str(HERE / "together.py"), part, str(folder))
    return started("spread", "-n", str(processes), "--", *program, folder=folder)


def finished(run: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str]:
    try:
        _, said = run.communicate(timeout=seconds)
    finally:
        run.terminate()
    return run.returncode, said


def test_four_processes_hold_a_table_that_none_of_them_could(tmp_path: Path) -> None:
    code, said = finished(spread(4, "limited", tmp_path))
    assert code == 0, said
    for index in range(4):
        each = json.loads((tmp_path / f"{index}.json").read_text())
        assert each["took"] <= each["promised"]
        assert each["free"] < each["table"]
    together = Distance.load(tmp_path / "d.zarr")
    alone = sharded.bisimulation(wide(), tol=1e-2, block=BLOCK)
    assert together.made["processes"] == 4
    assert together.error == alone.error
    assert np.array_equal(np.asarray(together.values), alone.values)


def test_a_killed_process_stops_the_others_and_the_run_goes_on(tmp_path: Path) -> None:
    manifest = tmp_path / "run" / "manifest.json"
    run = spread(4, "killed", tmp_path)
    end = time.monotonic() + 120
    while not manifest.is_file() and time.monotonic() < end and run.poll() is None:
        time.sleep(0.05)
    assert manifest.is_file(), finished(run, 1)
    children = psutil.Process(run.pid).children()
    victim = next(each for each in children if each.environ()["BISIMETRIC_PROCESS"] == "2")
    began = time.monotonic()
    victim.kill()
    code, said = finished(run, 60)
    assert time.monotonic() - began < 60
    assert code == 128 + signal.SIGKILL
    assert "process 2 of 4 was ended by SIGKILL, and the others were stopped" in said
    assert "process 0 of 4 lost another one" in said
    assert "start it again to go on from" in said
    assert not any(each.is_running() for each in children)
    kept = json.loads(manifest.read_text())
    assert kept["processes"] == 4
    code, said = finished(spread(3, "resumed", tmp_path))
    assert code == 0, said
    d, alone = Distance.load(tmp_path / "d.npz"), sharded.bisimulation(deep())
    assert d.made["processes"] == 3
    assert d.made["sweeps"] == alone.made["sweeps"] > kept["progress"]["sweeps"]
    assert np.array_equal(d.values, alone.values)
    assert list((tmp_path / "run").glob("*.json")) == []


def test_processes_that_disagree_all_say_so(tmp_path: Path) -> None:
    code, said = finished(spread(2, "disagreeing", tmp_path))
    assert code == 0, said
    first, second = (json.loads((tmp_path / f"{index}.json").read_text()) for index in (0, 1))
    assert first == second
    mdp, version, asked, room, disk, fine = first
    assert "InputError: exact.sharded.bisimulation: process 1 of 2 has another MDP" in mdp
    assert "another version of bisimetric than process 0 (0.1.1 and 0.1.0)" in version
    assert "another distance than process 0 (bisimulation to 0.0001 in float64" in asked
    assert "TableTooLarge: exact.sharded.bisimulation: 31 states need" in room
    assert "on each of 2 devices" in room
    assert "of them would do" in room
    assert "OSError: cannot write the checkpoint" in disk
    assert "(process 1 of 2)" in disk
    assert fine == "no error"


def test_the_answer_is_the_same_bit_for_bit_on_four_devices() -> None:
    code = """
import numpy as np
from bisimetric import worlds
from bisimetric.exact import sharded
import jax
assert len(jax.devices()) == {0}
mdp = worlds.load("random", discount=0.8, states=150, actions=3)
d = sharded.bisimulation(mdp, block=2**15)
p = sharded.on_policy(mdp, np.arange(mdp.num_states) % 2, dtype="float32")
print(d.error, d.made["sweeps"], d.values.tobytes().hex(), p.values.tobytes().hex())
"""
    said = []
    for devices in (1, 4):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code.format(devices)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **flags},
        )
        said.append(done.stdout)
    assert len(said[0].splitlines()) == 1
    assert said[0] == said[1]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_passed_on(tmp_path: Path, which: signal.Signals) -> None:
    text = "import os, time; open(f'{os.getpid()}.pid', 'w'); time.sleep(60)"
    run = started("spread", "-n", "2", "--", "python", "-c", text, folder=tmp_path)
    end = time.monotonic() + 30
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    children = psutil.Process(run.pid).children()
    run.send_signal(which)
    code, said = finished(run, 30)
    assert code == 130
    assert "KeyboardInterrupt" in said
    assert len(children) == 2
    assert not any(each.is_running() for each in children)


def test_a_command_that_fails_stops_the_others(tmp_path: Path) -> None:
    text = (
        "import os, sys, time\n"
        "if os.environ['BISIMETRIC_PROCESS'] == '1': sys.exit('no such thing')\n"
        "time.sleep(60)"
    )
    run = started("spread", "-n", "2", "--", "python", "-c", text, folder=tmp_path)
    code, said = finished(run, 40)
    assert code == 1
    assert "process 1 of 2 failed with 1, and the others were stopped: no such thing" in said


def test_what_cannot_be_started(tmp_path: Path) -> None:
    for words, match in (
        (["-n", "0", "--", "python"], "-n is 0 and must be a whole number, at least 1"),
        (["-n", "2", "--", "no-such-program"], "cannot start 'no-such-program'"),
    ):
        code, said = finished(started("spread", *words, folder=tmp_path), 30)
        assert code == 2
        assert match in said
