"""`bisimetric uses compress`, and the pictures of thinned buffers."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import InputError, Transitions, exact, sampled, uses, worlds
from bisimetric.views.compression import plot_compression_regret, plot_covering_radius
from tests.commands import Run, assert_input_error
from tests.uses.test_compress import steps_of


@pytest.fixture
def files(tmp_path: Path) -> Path:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    exact.bisimulation(mdp).save(tmp_path / "d.npz")
    steps_of(mdp, 400, 0).save(tmp_path / "data.npz")
    return tmp_path


def test_kept_steps_are_saved_reported_and_drawn(run: Run, files: Path) -> None:
    words = (
        "--keep",
        "0.1",
        "-o",
        "compressed.npz",
        "--plot-radius",
        "radius.png",
        "--require-proof",
    )
    done = run("uses", "compress", "data.npz", "d.npz", *words)
    assert done.code == 0, done.err
    from bisimetric import Distance

    found = uses.compress(Transitions.load("data.npz"), Distance.load("d.npz"), 0.1)
    compressed = Transitions.load("compressed.npz")
    assert (compressed.rewards == found.transitions.rewards).all()
    assert Path("radius.png").read_bytes().startswith(b"\x89PNG")
    assert "kept       40 of 400 steps, 0.1\n" in done.out
    assert f"radius     {found.radius:.6g}, the largest distance" in done.out
    assert found.is_vacuous
    bound = (
        f"{found.value_bound:.6g} (vacuous: at least the trivial bound, {found.trivial_bound:.6g})"
    )
    assert f"<= {bound}; measured {found.value_gap:.6g} (error " in done.out
    assert done.out.endswith("exact bisimulation compressed.npz --set unseen=missing\n")


def test_a_number_of_steps_and_nothing_to_save(run: Run, files: Path) -> None:
    done = run("uses", "compress", "data.npz", "d.npz", "--keep", "7")
    assert "kept       7 of 400 steps" in done.out
    assert done.out.endswith("next: add -o compressed.npz to save the steps\n")


def test_require_proof_rejects_an_unproven_distance(run: Run, files: Path) -> None:
    data = Transitions.load("data.npz")
    sampled.bisimulation(data[:100], discount=0.9, seed=0, steps=100).save("s.npz")
    done = run("uses", "compress", "data.npz", "s.npz", "--keep", "0.1")
    assert "bound      none: nothing is proven" in done.out
    assert "twice" not in done.out
    compress = ("uses", "compress", "data.npz", "s.npz", "--keep", "0.1", "--require-proof")
    assert_input_error(run(*compress), "proven")


@pytest.mark.slow
def test_a_network_is_a_distance_as_well(run: Run, files: Path) -> None:
    from bisimetric import learned

    learned.bisimulation(Transitions.load("data.npz"), updates=5, seed=0).save("d.safetensors")
    done = run("uses", "compress", "data.npz", "d.safetensors", "--keep", "0.1")
    assert done.code == 0, done.err
    assert "bound      none" in done.out


def test_mistakes_are_one_line(run: Run, files: Path) -> None:
    compress = ("uses", "compress", "data.npz", "d.npz", "--keep")
    assert_input_error(run(*compress, "many"), "--keep is many and must be a fraction such as 0.1")
    assert_input_error(run(*compress, "401"), "401", "400")
    assert_input_error(run(*compress, "0"), "keep is 0 and must be")
    assert_input_error(run(*compress, "2.5"), "keep is 2.5 and must be")
    assert_input_error(run(*compress, "9", "-o", "x.csv"), "cannot save transitions as x.csv")
    assert_input_error(run(*compress, "9", "-o", "data.npz"), "data.npz is read by this command")
    assert_input_error(
        run(*compress, "9", "--plot-radius", "x.gif"), "cannot save a figure as x.gif"
    )
    assert_input_error(run("uses", "compress", "d.npz", "d.npz", "--keep", "9"), "d.npz")
    assert_input_error(run("uses", "compress", "data.npz", "data.npz", "--keep", "9"), "data.npz")
    exact.bisimulation(worlds.load("pessimism")).save("other.npz")
    assert_input_error(
        run("uses", "compress", "data.npz", "other.npz", "--keep", "9"),
        "31",
    )


def test_a_full_disk_leaves_nothing_behind(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    compress = ("uses", "compress", "data.npz", "d.npz", "--keep", "9", "-o", "compressed.npz")
    assert_input_error(run(*compress), "No space left on device")
    assert sorted(path.name for path in files.iterdir()) == ["d.npz", "data.npz"]


def test_the_radius_is_drawn_from_where_every_action_is_kept() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    found = uses.compress(steps_of(mdp, 400, 0), exact.bisimulation(mdp), 40)
    axes = plot_covering_radius(found).axes[0]
    line, point = axes.lines
    assert np.asarray(line.get_xdata()).tolist() == list(range(4, 41))
    assert np.allclose(np.asarray(line.get_ydata()), found.radii[3:])
    assert np.asarray(point.get_xydata()).tolist() == [[40.0, found.radius]]
    assert axes.texts[0].get_text() == f"40 of 400 steps, radius {found.radius:.4g}"
    all_covered = uses.compress(steps_of(mdp, 400, 0), exact.bisimulation(mdp), 1.0)
    last = plot_covering_radius(all_covered).axes[0].lines[1].get_xydata()
    assert np.asarray(last).tolist() == [[400.0, 0.0]]


def test_losses_are_means_with_intervals() -> None:
    losses = {"a": [[0.9, 0.5], [0.7, 0.3]], "b": [[0.2, 0.1]]}
    small = {"b": [[0.02, 0.01]]}
    figure = plot_compression_regret(
        [0.1, 1.0], {"one": losses, "two": small}, columns=1, title="both"
    )
    first, second = figure.axes
    assert np.allclose(np.asarray(first.lines[0].get_ydata()), [0.8, 0.4])
    assert len(first.collections) == 1
    assert (len(first.lines), len(second.lines)) == (3, 1)  # the line of random actions
    with pytest.raises(InputError, match="nothing to draw"):
        plot_compression_regret([0.1], {})
    assert not plot_compression_regret([0.5], {"one": {"a": [[0.2]]}, "none": {}}).axes[1].lines
