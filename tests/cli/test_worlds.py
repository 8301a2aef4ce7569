"""Worlds of others on the command line: ids, files, options, notes and mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Distance, worlds
from bisimetric.cli import main
from bisimetric.errors import InputError

MODEL = "3 4 4\n0 0 1 1 go\n0 1 0 1 stay\n1 0 2 1 go\n2 0 2 1 go\n"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(words.split())
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("words", "states"),
    [
        ("FrozenLake-v1 --set map_name=8x8 is_slippery=False", 64),
        ("FrozenLake-v1 --set is_slippery=false desc=['SF','FG']", 4),
        ("CliffWalking-v1 --plot-map map.png", 48),
        ("MiniGrid-Empty-5x5-v0 --plot-map map.png --from 0", 33),
        ("MiniGrid-DoorKey-5x5-v0 --set seed=3 max_states=5000", None),
    ],
)
def test_environments(capsys: pytest.CaptureFixture[str], words: str, states: int | None) -> None:
    code, out, err = run(capsys, f"exact bisimulation {words} -o d.npz")
    assert (code, err) == (0, "")
    assert f"world      {words.split()[0]}: " in out
    d = Distance.load("d.npz")
    assert states in (None, d.mdp.num_states)
    assert os.path.exists("map.png") == ("--plot-map" in words)


@pytest.mark.slow
def test_warnings_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "relation on-policy FrozenLake-v1 --set is_slippery=False")
    assert (code, err) == (0, "")
    code, _, err = run(capsys, "relation on-policy FrozenLake-v1")
    assert code == 0
    assert re.fullmatch(r"warning: FrozenLake-v1: .* 3 of 64 states .*\n", err)
    Path("model.tra").write_text(MODEL)
    Path("model.srew").write_text("3 1\n2 1\n")
    code, out, err = run(capsys, "relation on-policy model.tra")
    assert code == 0
    assert err.startswith("warning: model.tra: 2 of 3 states lack some actions; ")
    assert err.count("\n") == 1
    assert "world      model.tra: 3 states, 2 actions" in out


def test_a_prism_model_and_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    Path("chain.tra").write_text("3 3\n0 1 1\n1 2 1\n2 2 1\n")
    Path("chain.lab").write_text('0="init" 1="done"\n0: 0\n2: 1\n')
    code, out, err = run(capsys, "exact bisimulation chain.tra --set observe=done -o d.npz")
    assert (code, err) == (0, "")
    labels = Distance.load("d.npz").mdp.labels
    assert labels is not None
    assert labels.of(2) == ("done",)
    assert "3 states" in out


def test_matrices(capsys: pytest.CaptureFixture[str]) -> None:
    P = np.array([np.eye(2), np.eye(2)[::-1]])
    np.savez("model.npz", P=P, R=np.array([[0.0, 1.0], [2.0, 3.0]]))
    code, _, err = run(capsys, "exact lax model.npz")
    assert code == 2
    assert "first_axis=actions" in err
    code, out, _ = run(capsys, "exact lax model.npz --set first_axis=actions --discount 0.5")
    assert code == 0
    assert "2 states, 2 actions, deterministic, discount 0.5" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("exact lax CartPole-v1", "no transition table"),
        ("exact lax Taxi-v3", "there is Taxi-v4"),
        ("exact lax FrozenLake", "did you mean 'FrozenLake"),
        ("exact lax MiniGrid-Empty-5x5", "did you mean 'MiniGrid-Empty-5x5-v0'"),
        ("exact lax FrozenLake-v1 --set rows=3", "rows"),
        ("exact lax MiniGrid-Empty-5x5-v0 --set max_states=3", "raise max_states"),
        ("exact lax MiniGrid-Empty-5x5-v0 --set seed=x", "seed is 'x'"),
        ("exact lax none.tra", "none.tra: there is no such file"),
        ("exact lax none.npz", "none.npz: there is no such file"),
        ("exact lax none.npz --set rows=3", "matrix file none.npz: there is no option 'rows'"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], words: str, complaint: str
) -> None:
    code, out, err = run(capsys, words)
    assert (code, out) == (2, "")
    assert err.startswith("bisimetric: ")
    assert err.count("\n") == 1
    assert complaint in err


def test_worlds_tells_of_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "worlds")
    for word in ("FrozenLake-v1", "MiniGrid-Empty-5x5-v0", "model.tra", "model.npz", "rooms.txt"):
        assert word in out
    assert "pip install 'bisimetric[worlds]'" in out
    assert max(map(len, out.partition("Or load your own")[2].splitlines())) <= 100


def test_built_in_worlds_need_no_gymnasium() -> None:
    code = """
import sys
from bisimetric import worlds
worlds.load("mirrored-rooms")
print([name for name in ("gymnasium", "minigrid", "pygame") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_minigrid_says_nothing_on_standard_output() -> None:
    code = "from bisimetric import worlds; worlds.load('MiniGrid-Empty-5x5-v0')"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYGAME")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_every_way_in_is_listed_where_it_is_missed() -> None:
    with pytest.raises(InputError, match="Gymnasium environment, or the path"):
        worlds.load("nothing-like-it")
