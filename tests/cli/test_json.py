"""`--json`: one JSON object on stdout, with the numbers of the text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import Distance, exact, relation, worlds
from bisimetric.cli._main import COMMANDS, TEXT_ONLY
from bisimetric.cli.report import Fact, collect_json, emit, emit_values, to_json
from tests.commands import Run, assert_input_error

WORLD = "mirrored-rooms-policy"


def read_json(run: Run, *words: str) -> dict[str, Any]:
    """Run a command with --json; nothing but one object may be printed."""
    result = run(*words, "--json")
    assert (result.code, result.err) == (0, "")
    found: dict[str, Any] = json.loads(result.out)
    return found


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_that_report_numbers_accept_json(run: Run, path: tuple[str, ...]) -> None:
    assert ("--json" in run(*path, "--help").out) == (path not in TEXT_ONLY)


@pytest.mark.parametrize("kind", ["bisimulation", "on-policy", "lax"])
def test_exact_distances(run: Run, kind: str) -> None:
    words = ("exact", kind, WORLD, "--discount", "0.9", "-o", "d.npz")
    found = read_json(run, *words)
    d = Distance.load("d.npz")
    assert found["world"] == {
        "name": WORLD,
        "states": 31,
        "actions": 4,
        "deterministic": True,
        "discount": 0.9,
    }
    assert found["distance"] == kind.replace("-", "_")
    assert found["largest"]["distance"] == d.values.max()
    s, t = found["largest"]["states"]
    assert d(s, t) == d.values.max()
    assert found["error"] == {"bound": d.error}
    assert found["saved"] == ["d.npz"]
    assert found["next"] == [f"bisimetric explain d.npz {s} {t}"]


def test_pairs_and_explanations(run: Run) -> None:
    pairs = ("--pairs", "1,5", "5,5", "--pairs", "1,1", "5,1")
    found = read_json(run, "exact", "bisimulation", WORLD, *pairs, "--tol", "1e-8")
    d = exact.bisimulation(worlds.load(WORLD))
    assert [pair["states"] for pair in found["pair"]] == [["1,5", "5,5"], ["1,1", "5,1"]]
    for pair in found["pair"]:
        assert pair["distance"] == pytest.approx(d(*pair["states"]), abs=1e-6)
    d.save("d.npz")
    explained = read_json(run, "explain", "d.npz", "1,5", "5,5")
    assert explained["states"] == ["1,5", "5,5"]
    assert explained["distance"] == d("1,5", "5,5")
    total = sum(step["contribution"] for step in explained["steps"])
    assert total <= explained["total"] + 1e-9


def test_classes_and_nearest_states(run: Run) -> None:
    found = read_json(run, "relation", "bisimulation", WORLD)
    labels = relation.bisimulation(worlds.load(WORLD))
    assert found["labels"] == labels.tolist()
    assert found["classes"] == labels.max() + 1
    assert run("exact", "lax", WORLD, "-o", "d.npz").code == 0
    shown = read_json(run, "show", "d.npz", "--from", "4,3", "--nearest", "2")
    near = Distance.load("d.npz").nearest("4,3", 2)
    assert [each["distance"] for each in shown["nearest"]] == [value for _, value in near]


def test_worlds_are_listed(run: Run) -> None:
    found = read_json(run, "worlds")
    assert set(found) == {world.name for world in worlds.describe()}


def test_uses(run: Run, tmp_path: Path) -> None:
    d = exact.bisimulation(worlds.grid("   g\n * *\n    ", discount=0.9))
    d.save(tmp_path / "d.npz")
    merged = read_json(run, "uses", "aggregate", "d.npz", "--clusters", "4")
    assert 1 < merged["classes"] <= 4
    assert merged["regret"] <= merged["regret_bound"] + 1e-9
    assert merged["is_vacuous"] is (merged["regret_bound"] >= merged["trivial_bound"])
    curve = read_json(run, "uses", "aggregate", "d.npz", "--plot-regret", "c.png")
    assert [each["is_vacuous"] for each in curve["curves"]["d~"]][-1] is False
    assert len(curve["curves"]["d~"][0]) == 8
    embedded = read_json(run, "uses", "embed", "d.npz")
    assert np.shape(embedded["coordinates"]) == (10, 2)
    words = ("--target-set", "rows=3", "columns=3")
    moved = read_json(run, "uses", "transfer", "mirrored-rooms", "open-grid", *words)
    assert moved["max_regret"] <= moved["max_regret_bound"] + 1e-9
    assert moved["is_vacuous"] is (moved["max_regret_bound"] >= moved["trivial_bound"])
    steps = ("--steps", "200", "--num-seeds", "2")
    explored = read_json(run, "uses", "bonus", "mirrored-rooms", *steps)
    assert explored["names"] == ["no bonus", "counts", "distance"]


def test_warnings_go_to_stderr(run: Run) -> None:
    result = run("relation", "on-policy", "FrozenLake-v1", "--json")
    assert result.err.startswith("warning: FrozenLake-v1: ")
    assert result.err.count("\n") == 1
    assert json.loads(result.out)["world"]["states"] == 16


def test_errors_leave_stdout_empty(run: Run) -> None:
    assert_input_error(run("exact", "lax", "none.txt", "--json"), "none.txt: there is no such file")


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    with collect_json():
        emit([Fact("error", "unknown", {"bound": math.inf}), "plain text"], [Fact("saved", "a")])
        emit([Fact("saved", "b")])
        emit_values(values=np.array([1.0, math.nan]))
    assert json.loads(capsys.readouterr().out) == {
        "error": {"bound": None},
        "saved": ["a", "b"],
        "values": [1.0, None],
    }
    assert to_json((np.float32(0.5), np.bool_(True), Path("x"))) == [0.5, True, "x"]
