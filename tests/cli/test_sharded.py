"""`bisimetric sharded`: checkpoints are written by --checkpoint and continued by --resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Distance, exact, worlds
from bisimetric.exact import sharded
from tests.commands import Run, assert_input_error

WORLD = ("mirrored-rooms", "--discount", "0.9")
EAGER = ("--checkpoint", "run", "--checkpoint-every", "1e-9")


@pytest.mark.parametrize("kind", ["bisimulation", "on-policy"])
def test_a_run_resumes_from_its_checkpoint(run: Run, kind: str) -> None:
    policy = () if kind == "bisimulation" else ("--policy", "optimal")
    words = ("sharded", kind, *WORLD, *policy)
    assert run(*words, "--tol", "5", *EAGER).code == 0
    progress = json.loads(Path("run/manifest.json").read_text())["progress"]
    assert_input_error(run(*words, *EAGER), "run holds a run; resume from it")
    assert run(*words, "--resume", "run", "-o", "resumed.npz").code == 0
    assert run(*words, "-o", "whole.npz").code == 0
    resumed, whole = (Distance.load(f"{name}.npz") for name in ("resumed", "whole"))
    np.testing.assert_allclose(resumed.values, whole.values, atol=resumed.error + whole.error)
    for name in ("sweeps", "rounds"):
        assert resumed.metadata.get(name, 0) >= progress[name]
    assert Path("run/manifest.json").is_file()
    assert run(*words, "--resume", "run", "--checkpoint", "run", "-o", "d.npz").code == 0
    assert list(Path("run").iterdir()) == []


def test_what_cannot_be_resumed_is_refused(run: Run) -> None:
    words = ("sharded", "bisimulation", *WORLD)
    assert_input_error(
        run(*words, "--resume", "run"), "cannot resume from run: it holds no checkpoint"
    )
    assert run(*words, *EAGER).code == 0
    other = ("sharded", "bisimulation", "mirrored-rooms", "--discount", "0.5")
    assert_input_error(run(*other, "--resume", "run"), "run holds a run with another MDP")


def test_ctrl_c_names_the_checkpoint_and_how_to_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = sharded.bisimulation

    def interrupted(*args: object, **options: object) -> None:
        honest(*args, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(sharded, "bisimulation", interrupted)
    words = ("sharded", "bisimulation", *WORLD)
    code, out, err = run(*words, *EAGER)
    assert (code, out) == (130, "")
    command = f"bisimetric {' '.join((*words, *EAGER))} --resume run"
    assert err == f"bisimetric: interrupted; resume with `{command}`.\n"
    assert "; --checkpoint FOLDER would save such a run." in run(*words).err


def test_the_distances_are_exact(run: Run) -> None:
    assert run("sharded", "bisimulation", *WORLD, "-o", "d.npz").code == 0
    d = Distance.load("d.npz")
    expected = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    np.testing.assert_allclose(d.values, expected.values, atol=d.error + expected.error)
