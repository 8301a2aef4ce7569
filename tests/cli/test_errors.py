"""The command line and bad input: one line on stderr, exit code 2, nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bisimetric import exact, worlds
from tests.commands import Run, assert_input_error

ROOT = Path(__file__).parents[2]
GRID = "******\n*   g*\n* ** *\n******\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("****\n* g*\n***\n", "line 3"),
        ("", "empty"),
        ("****\n*y *\n****\n", "'y'"),
        ("***\n***\n", "walls only"),
    ],
    ids=["ragged", "empty", "unknown character", "walls only"],
)
def test_bad_grids(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "bad.txt").write_text(text)
    assert_input_error(run("exact", "bisimulation", "bad.txt", "-o", "d.npz"), "bad.txt", complaint)
    assert os.listdir(tmp_path) == ["bad.txt"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("exact lax none.txt", "none.txt: there is no such file"),
        ("exact lax miror-rooms", "did you mean 'mirrored-rooms'"),
        ("exact lax mirrored-rooms --discount 1", "discount is 1.0"),
        ("exact lax mirrored-rooms --discount -0.1", "discount is -0.1"),
        ("exact lax mirrored-rooms --discount nan", "discount is nan"),
        ("exact lax mirrored-rooms --tol 0", "tol is 0.0"),
        ("exact lax mirrored-rooms --tol 1e-300", "larger tol, or normalised_tol="),
        ("exact lax mirrored-rooms --normalised-tol 0", "normalised-tol is 0.0"),
        ("exact lax mirrored-rooms --tol 1 --normalised-tol 1", "leave one of them out"),
        ("exact lax mirrored-rooms --from 1,6", "did you mean '1,"),
        ("exact lax mirrored-rooms --from 31", "ids go from 0 to 30"),
        ("exact lax mirrored-rooms --set rows=3", "no option 'rows'"),
        ("exact lax open-grid --set rows=many", "whole number"),
        ("exact lax open-grid --set rows", "KEY=VALUE"),
        ("exact lax open-grid --set discount=0.5", "--discount"),
        ("exact lax mirrored-rooms -o none/d.npz", "none"),
        ("exact lax mirrored-rooms -o .", "folder"),
        ("exact lax mirrored-rooms --plot-map map.xyz", ".png"),
        ("exact lax mirrored-rooms --plot-map a.png --plot-heatmap a.png", "twice"),
        ("exact on-policy mirrored-rooms --policy own", "no policy"),
        ("exact mico mirrored-rooms --policy own", "no policy"),
        ("exact recorded pessimism", "pessimism is no file of transitions"),
        ("exact bisimulation pessimism --seed 3", "--seed 3 is for --samples"),
        ("exact bisimulation pessimism --pairs s t -o d.npz", "no matrix to save in d.npz"),
        ("exact bisimulation pessimism --pairs s t --plot-map m.png", "no matrix to save in m.png"),
        ("exact bisimulation pessimism --pairs s t --samples 3", "leave --samples out"),
        ("exact bisimulation pessimism --pairs s q", "no state 'q'"),
        ("exact lax pessimism --pairs s t --plot-heatmap m.png", "no matrix to save in m.png"),
        ("exact on-policy mirrored-rooms --policy none.npy", "none.npy"),
        ("relation lax mirrored-rooms -o none/labels.npy", "none"),
        ("explain none.npz 0 1", "none.npz"),
        ("show none.npz", "none.npz"),
    ],
)
def test_bad_input_is_one_line(run: Run, words: str, complaint: str, tmp_path: Path) -> None:
    assert_input_error(run(*words.split()), complaint)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "a command is missing: one of worlds, exact, "),
        ("exat", "unknown argument exat; did you mean 'exact'"),
        ("exact", "recorded, reduced-mico, undiscounted; see `bisimetric exact --help`."),
        ("exact bisimulaton", "did you mean 'bisimulation'? See `bisimetric exact --help`."),
        ("exact lax", "missing WORLD_OR_FILE; see `bisimetric exact lax --help`."),
        ("rollout", "missing ENVIRONMENT and -o DATA.npz"),
        ("exact lax pessimism --foo", "unknown argument --foo; see `bisimetric exact lax --help`"),
        ("exact lax pessimism --disount 0.9", "--disount, 0.9; did you mean --discount? See "),
        ("exact lax pessimism extra", "unknown argument extra"),
        ("exact lax pessimism --dtype half", "--dtype is 'half' and must be one of 'float64', "),
        ("exact lax pessimism --discount", "--discount needs a value"),
        ("exact lax pessimism --discount abc", "--discount: 'abc' is not a number"),
        ("exact lax pessimism --discount None", "--discount: 'None' is not a number"),
        ("exact lax pessimism --tol None", "--tol: 'None' is not a number"),
        ("exact lax pessimism --pairs s", "--pairs needs 2 values"),
        ("show a --nearest many", "--nearest: 'many' is not a whole number; see `bisimetric show"),
    ],
)
@pytest.mark.parametrize("boxes", [True, False], ids=["unicode", "ascii"])
def test_a_command_line_that_cannot_be_parsed(
    run: Run, words: str, complaint: str, boxes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "40" if boxes else "200"
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("tyro._fmtlib._should_use_utf8_drawing_chars", lambda: boxes)
    assert_input_error(run(*words.split()), complaint)
    assert os.environ["COLUMNS"] == columns


def test_an_empty_word_is_no_default(run: Run) -> None:
    assert_input_error(
        run("rollout", "FrozenLake-v1", "-o", "d.npz", "--steps", ""), "--steps is empty"
    )
    assert_input_error(
        run("rollout", "FrozenLake-v1", "-o", "d.npz", "--episodes", ""), "--episodes is empty"
    )
    assert_input_error(
        run("exact", "lax", "pessimism", "--discount", ""), "--discount: '' is not a number"
    )


def test_more_steps_than_the_memory_holds_are_refused(run: Run, tmp_path: Path) -> None:
    for flag in ("--steps", "--episodes"):
        words = ("rollout", "FrozenLake-v1", "-o", "d.npz", flag, "1e18")
        assert_input_error(
            run(*words), "FrozenLake-v1: 1,000,000,000,000,000,000 steps need", "PiB"
        )
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "open-grid rows={}",
        "open-grid columns={}",
        "random states={}",
        "random actions={}",
        "random successors={}",
        "random states=1000000000000 actions=1",
        "MiniGrid-Empty-5x5-v0 size={}",
        "FrozenLake-v1 map_name={}",
    ],
)
def test_whole_numbers_of_23_digits_are_refused(run: Run, words: str) -> None:
    name, *options = words.format("9" * 23).split()
    assert_input_error(run("exact", "lax", name, "--set", *options), name)


@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
@pytest.mark.parametrize(
    "words",
    [
        "exact bisimulation random -o {}",
        "exact lax random --plot-map {}",
        "relation lax random -o {}",
        "sharded bisimulation random -o {}",
        "sampled bisimulation random --steps 10 -o {}",
        "sampled bisimulation random --steps 10 --checkpoint {}",
        "learned bisimulation random -o {}",
        "rollout FrozenLake-v1 -o {}",
        "uses aggregate d.npz -o {}",
        "uses embed d.npz -o {}",
        "uses compress t.npz d.npz --keep 0.5 -o {}",
        "view d.npz -o {}",
        "show d.npz --plot-map {}",
    ],
)
def test_outputs_that_are_no_regular_file_are_refused_before_the_work_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, what: str
) -> None:
    from bisimetric import Distance, datasets

    path = tmp_path / "out.png"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to(os.devnull)
    else:
        path.mkdir()
    before = os.lstat(path).st_mode
    if not words.startswith("sharded"):
        monkeypatch.setattr(worlds, "load", never)
    monkeypatch.setattr(Distance, "load", never)
    monkeypatch.setattr(datasets, "rollout", never)
    assert_input_error(
        run(*words.format("out.png").split()), "out.png", "folder" if what == "folder" else ""
    )
    assert os.lstat(path).st_mode == before
    assert os.listdir(tmp_path) == ["out.png"]


@pytest.mark.parametrize("content", ["0 1 x", "0 1 2", ""], ids=["words", "short", "empty"])
def test_bad_policy_files(run: Run, content: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(content)
    assert_input_error(run("exact", "on-policy", "mirrored-rooms", "--policy", "p.txt"), "policy")
    (tmp_path / "p.npy").write_text(content)
    assert_input_error(run("exact", "on-policy", "mirrored-rooms", "--policy", "p.npy"), "p.npy")


def test_a_state_that_a_table_does_not_have(run: Run) -> None:
    assert run("exact", "lax", "mirrored-rooms", "-o", "d.npz").code == 0
    assert_input_error(run("explain", "d.npz", "1,1", "1,9"), "no state '1,9'", "did you mean '1,")
    assert_input_error(run("show", "d.npz", "--from", "99"), "no state 99")


@pytest.mark.parametrize("what", ["truncated", "array", "text", "foreign", "empty", "folder"])
def test_files_that_hold_no_distance(run: Run, what: str, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    if what == "truncated":
        assert run("exact", "lax", "mirrored-rooms", "-o", "d.npz").code == 0
        path.write_bytes(path.read_bytes()[:3000])
    elif what == "array":
        with open(path, "wb") as file:
            np.save(file, np.zeros((3, 3)))
    elif what == "text":
        path.write_text("not a table")
    elif what == "foreign":
        np.savez(path, values=np.zeros((3, 3)))
    elif what == "empty":
        path.touch()
    else:
        path.mkdir()
    assert_input_error(run("show", "d.npz"), "d.npz")
    assert_input_error(run("explain", "d.npz", "0", "1"), "d.npz")


def never(*args: object, **options: object) -> None:
    raise RuntimeError("the work has started")


def test_outputs_are_checked_before_the_work_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "bisimulation", never)
    monkeypatch.setattr(worlds, "load", never)
    for flag in ("-o", "--plot-map", "--plot-heatmap", "--plot-all-maps"):
        assert_input_error(run("exact", "bisimulation", "random", flag, "none/file.png"), "none")


def test_worlds_without_a_map_are_refused_before_the_work_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "bisimulation", never)
    assert_input_error(
        run("exact", "bisimulation", "open-grid", "--plot-all-maps", "all.png"), "at most 100 maps"
    )
    assert_input_error(
        run("exact", "bisimulation", "pessimism", "--plot-all-maps", "all.png"), "no map"
    )


def test_a_table_too_large_is_refused_with_its_size(run: Run) -> None:
    words = ("exact", "bisimulation", "random", "--set", "states=1000000", "actions=1")
    assert_input_error(run(*words, "-o", "d.npz"), "1,000,000 states", "TiB")


def test_memory_that_is_full_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(worlds, "load", full)
    assert_input_error(run("relation", "lax", "random"), "memory")
