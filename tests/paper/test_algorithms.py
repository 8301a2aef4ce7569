"""Algorithms compared: tasks, files, figures and errors, with tiny networks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import InputError, learned
from bisimetric.errors import Diverged
from bisimetric.paper import algorithms
from tests.commands import Run, assert_input_error

ROOT = Path(__file__).parents[2]
TINY: dict[str, Any] = {
    "pair-q-learning": learned.PairQConfig(
        learned.MetricNetwork((8,), num_groups=2, group_size=2), batch_size=32, warm_up=2
    ),
    "castro2020": learned.castro2020.Castro2020Config(
        learned.castro2020.PairNetwork((8,)),
        batch_size=32,
        learning_rate=0.01,
        target_update_period=5,
    ),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"one-network": dataclasses.replace(TINY["pair-q-learning"], num_networks=1)}
    monkeypatch.setattr(algorithms, "ALGORITHMS", TINY)
    monkeypatch.setattr(algorithms, "ABLATIONS", changed)


@pytest.mark.slow
def test_curves_are_measured_reused_and_drawn(tiny: None, tmp_path: Path) -> None:
    options: dict[str, Any] = {"updates": 20, "num_seeds": 2, "log_every": 10}
    found = algorithms.measure(
        tmp_path, ["policy"], ["pair-q-learning", "castro2020", "one-network"], **options
    )
    assert [each.algorithm for each in found] == ["pair-q-learning", "castro2020", "one-network"]
    for each in found:
        assert each.updates.tolist() == [10, 20]
        assert each.error.shape == each.normalised.shape == each.correlation.shape == (2, 2)
        assert each.max_distance == pytest.approx(100.0)
        # Two seeds, two runs.
        assert each.error[0, -1] != each.error[1, -1]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    algorithms.measure(tmp_path, ["policy"], ["pair-q-learning", "castro2020"], **options)
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    figures = algorithms.draw_figures(tmp_path)
    assert [path.name for path in figures] == ["policy.png", "policy-ablation.png"]
    table = list(algorithms.format_table(algorithms.load_curves(tmp_path)))
    assert len(table) == 4
    assert "castro2020" in table[2]


@pytest.mark.slow
def test_errors_are_those_of_the_exact_metric(tiny: None, tmp_path: Path) -> None:
    found = algorithms.measure(
        tmp_path, ["rooms"], ["pair-q-learning"], updates=10, num_seeds=2, log_every=10
    )[0]
    _, source, reference = algorithms.build_task(algorithms.TASKS["rooms"])
    assert reference.shape == (31, 31)
    result = learned.fit(
        "bisimulation",
        source,
        discount=0.99,
        updates=10,
        config=TINY["pair-q-learning"],
        options=learned.RunOptions(log_every=10),
    )
    network = learned.LearnedDistance(
        "bisimulation", 0.99, result.network, result.parameters(0), source.scaling
    )
    table = network.table(np.asarray(source.points))
    assert found.error[0, -1] == pytest.approx(np.abs(table - reference).max(), rel=1e-4)


@pytest.mark.slow
def test_divergence_is_a_result(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = learned.fit

    def diverge(*arguments: Any, **options: Any) -> learned.FitResult:
        raise Diverged("diverged.", fit(*arguments, **{**options, "updates": 10}))

    monkeypatch.setattr(learned, "fit", diverge)
    found = algorithms.measure(
        tmp_path, ["rooms"], ["castro2020"], updates=60, num_seeds=2, log_every=10
    )[0]
    assert found.metadata["diverged"] == "diverged."
    assert found.updates.tolist() == [10]
    assert "diverged at 10" in list(algorithms.format_table([found]))[1]


@pytest.mark.slow
def test_observations_identify_the_states() -> None:
    mdp, source, _ = algorithms.build_task(algorithms.TASKS["minigrid"])
    points = np.asarray(source.points)
    assert len(np.unique(points, axis=0)) == mdp.num_states == len(points)
    # One direction per state; the terminal state has no image.
    terminal = points[:, -1] == 1
    assert terminal.sum() == 1
    assert (points[~terminal, -5:-1].sum(axis=1) == 1).all()
    assert not points[terminal, :-1].any()


def test_unknown_names_and_other_files_raise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task 'room'; did you mean"):
        algorithms.measure(tmp_path, ["room"])
    with pytest.raises(InputError, match="no algorithm 'theirs'"):
        algorithms.measure(tmp_path, ["rooms"], ["theirs"])
    with pytest.raises(InputError, match=r"num_seeds is 1 and must be .* one run has no interval"):
        algorithms.measure(tmp_path, ["rooms"], num_seeds=1)
    np.savez(tmp_path / "rooms.pair-q-learning.npz", x=1)
    with pytest.raises(InputError, match=r"rooms.pair-q-learning.npz .* measure them again"):
        algorithms.load_curves(tmp_path)


@pytest.mark.slow
def test_the_command(tiny: None, tmp_path: Path, run: Run) -> None:
    words = ["algorithms", "--worlds", "policy", "--updates", "10", "--num-seeds", "2"]
    code, out, _ = run("reproduce", *words, "-o", str(tmp_path))
    assert code == 0
    assert "31 states, d^pi" in out
    assert (tmp_path / "policy.png").exists()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert run("reproduce", *words, "-o", str(tmp_path)).out == out
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    words[words.index("--updates") + 1] = "11"
    assert_input_error(
        run("reproduce", *words, "-o", str(tmp_path)), "its updates is 10 and here it is 11"
    )


def test_the_documented_curves_can_be_read() -> None:
    curves = algorithms.load_curves(ROOT / "docs" / "reports" / "algorithms")
    assert {each.algorithm for each in curves} == {*algorithms.ALGORITHMS, *algorithms.ABLATIONS}
    assert {each.task for each in curves} == {*algorithms.TASKS}
    assert all(each.error.shape == (10, len(each.updates)) for each in curves)
