"""`bisimetric uses bonus`: exploration bonuses compared, saved and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bisimetric import MDP, exact, worlds
from bisimetric.uses.exploration.experiment import ExplorationComparison
from bisimetric.views.terminal import format_comparison
from tests.commands import Run, assert_input_error


def test_curves_are_saved_reported_and_drawn(run: Run, tmp_path: Path) -> None:
    words = ("--steps", "200", "--num-seeds", "2", "--start", "6,1", "-o", "x.npz")
    result = run("uses", "bonus", "mirrored-rooms", *words, "--plot-curves", "x.png")
    assert result.code == 0, result.err
    saved = ExplorationComparison.load(tmp_path / "x.npz")
    assert saved.names == ("no bonus", "counts", "distance")
    assert saved.metadata["start"] == "6,1"
    assert all(line in result.out for line in format_comparison(saved))
    assert "of the world's own model" in result.out
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert result.out.endswith("saved      x.npz\nsaved      x.png\n")


def test_all_bonuses_with_a_given_distance(run: Run, tmp_path: Path) -> None:
    exact.lax(worlds.load("mirrored-rooms")).save(tmp_path / "d.npz")
    bonuses = ("none", "counts", "distance", "nearest", "online")
    words = ("--distance", "d.npz", "--steps", "100", "--num-seeds", "1", "--radius", "3")
    result = run("uses", "bonus", "mirrored-rooms", *words, "--bonuses", *bonuses)
    assert result.code == 0, result.err
    for name in ("no bonus", "counts", "distance,", "online distance"):
        assert f"\n{name}" in result.out
    assert "d_lax, the lax bisimulation distance, discount 0.99, d.npz" in result.out


def test_distances_that_are_all_zero_are_reported(run: Run, tmp_path: Path) -> None:
    flat = MDP.deterministic([[1], [0]], [[1.0], [1.0]], discount=0.5)
    np.savez(tmp_path / "flat.npz", P=flat.P.toarray()[None], R=flat.R)
    result = run("uses", "bonus", "flat.npz", "--steps", "20", "--num-seeds", "1")
    assert "all distances are 0" in result.out, result.err


def test_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    words = ("uses", "bonus", "mirrored-rooms", "--steps", "50")
    exact.bisimulation(worlds.load("pessimism")).save(tmp_path / "small.npz")
    assert_input_error(run(*words, "--distance", "small.npz"), "small.npz has 3 states", "has 31")
    assert_input_error(run(*words, "--distance", "none.npz"), "none.npz")
    assert_input_error(run(*words, "-o", "x.csv"), "cannot save curves as x.csv", "end in .npz")
    assert_input_error(run(*words, "--plot-curves", "x.gif"), "cannot save a figure as x.gif")
    assert_input_error(
        run(*words, "--distance", "small.npz", "-o", "small.npz"), "read by this command"
    )
    assert_input_error(run(*words, "--start", "9,9"), "'9,9'")
    assert_input_error(run(*words, "--bonus-scale", "-1"), "--bonus-scale is -1.0")
    assert_input_error(run(*words, "--num-seeds", "0"), "is 0 and must be")
    assert_input_error(run("uses", "bonus", "CliffWalking-v1"), "reward")
