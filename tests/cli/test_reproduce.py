"""`bisimetric reproduce`: figures of the paper, their numbers, and the check that they pass."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from bisimetric import MDP, Distance, exact
from tests.commands import Run, assert_input_error


@pytest.mark.slow
def test_convergence_is_measured_told_and_drawn(run: Run, tmp_path: Path) -> None:
    small = ("--num-seeds", "2", "--steps", "50k", "--target-error", "0.1", "--discount", "0.5")
    words = ("reproduce", "convergence", "-o", "new/folder", *small)
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out.count("  prioritised ") == 2
    assert out.count("holds ") == 2
    for name in ("convergence.png", "convergence.json"):
        assert f"saved      new/folder/{name}\n" in out
    made = json.loads((tmp_path / "new" / "folder" / "convergence.json").read_text())["metadata"]
    again = shlex.split(made["command"])
    assert again[0] == "bisimetric"
    assert run(*again[1:]).out == out


def test_convergence_fails_where_a_table_exceeds_the_metric(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = exact.on_policy

    def too_small(mdp: MDP, *, tol: float) -> Distance:
        d = honest(mdp, tol=tol)
        return dataclasses.replace(d, values=d.values / 2)

    monkeypatch.setattr(exact, "on_policy", too_small)
    code, out, _ = run("reproduce", "convergence", "--num-seeds", "2", "--steps", "20k")
    assert code == 1
    assert "FAILS   d_n <= d" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--num-seeds 1", "--num-seeds is 1"),
        ("--steps 10", "--steps is 10"),
        ("--steps few", "--steps is few"),
        ("--target-error 0", "--target-error is 0.0"),
        ("--discount 1", "discount is 1.0"),
        ("-o note.txt", "note.txt: it is a file"),
    ],
)
def test_convergence_refuses_bad_input(run: Run, words: str, complaint: str) -> None:
    Path("note.txt").touch()
    assert_input_error(run("reproduce", "convergence", *words.split()), complaint)


@pytest.mark.slow
def test_gridworld_is_measured_told_and_drawn(run: Run, tmp_path: Path) -> None:
    small = ("--quick", "--updates", "6", "--num-seeds", "2", "--parts", "no-noise", "policy")
    words = ("reproduce", "gridworld", "-o", "new/folder", *small)
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["variant", "updates"]
    assert [line.split()[:4] for line in lines[1:4:2]] == [
        ["d~,", "noise", "off", "6"],
        ["d^pi,", "noise", "off", "6"],
    ]
    figures = ("errors.png", "tables.png", "on-policy-errors.png", "gridworld.json")
    assert lines[5:] == [f"saved      new/folder/{name}" for name in figures]
    for name in (*figures, "policy.npz", "policy.safetensors"):
        assert (tmp_path / "new" / "folder" / name).exists()
    record = json.loads((tmp_path / "new" / "folder" / "gridworld.json").read_text())
    again = shlex.split(record["policy"]["metadata"]["command"])
    assert again[0] == "bisimetric"
    # Nothing is trained again.
    assert run(*again[1:], "--resume", "new/folder").out == out
    assert_input_error(
        run(*again[1:], "--resume", "new/folder", "--updates", "7"),
        "no-noise.npz",
        "is 6 and here it is 7",
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--num-seeds 1", "--num-seeds is 1"),
        ("--updates 0", "--updates is 0"),
        ("--updates few", "--updates is few"),
        ("-o note.txt", "note.txt: it is a file"),
        ("--resume one -o two", "leave out -o two"),
    ],
)
def test_gridworld_refuses_bad_input(run: Run, words: str, complaint: str) -> None:
    Path("note.txt").touch()
    assert_input_error(run("reproduce", "gridworld", "--quick", *words.split()), complaint)


def test_gridworld_knows_its_parts(run: Run) -> None:
    from bisimetric.cli.commands import reproduce
    from bisimetric.paper import gridworld

    assert list(reproduce.PARTS) == list(gridworld.PARTS)
    assert run("reproduce", "gridworld", "--parts", "silence").code == 2


@pytest.mark.slow
def test_losses_are_scored_drawn_and_reused(run: Run, tmp_path: Path) -> None:
    small = ("--quick", "--updates", "2", "--mdps", "inventory", "--losses", "simsr", "untrained")
    words = ("reproduce", "losses", "-o", "new/folder", *small)
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    for title in ("SimSR", "untrained encoder", "constant distance"):
        assert out.count(f"\n{title} ") == 2
    for name in ("results.csv", "tables.txt", "accuracy.png", "distractors.png"):
        assert f"saved      new/folder/{name}\n" in out
        assert (tmp_path / "new" / "folder" / name).stat().st_size > 1000
    stored = (tmp_path / "new" / "folder" / "results.csv").read_text()
    assert run(*words).out == out
    assert (tmp_path / "new" / "folder" / "results.csv").read_text() == stored


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--seeds 1", "--num-seeds is 1 and must be a whole number, at least 2"),
        ("--updates few", "--updates is few"),
        ("-o note.txt", "note.txt"),
    ],
)
def test_losses_refuse_bad_input(run: Run, words: str, complaint: str) -> None:
    Path("note.txt").touch()
    assert_input_error(run("reproduce", "losses", "--quick", *words.split()), complaint)
