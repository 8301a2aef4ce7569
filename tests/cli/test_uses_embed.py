"""`bisimetric uses embed`, and the pictures of embeddings."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import Distance, InputError, exact, planning, sampled, uses, worlds
from bisimetric.transitions import Transitions
from bisimetric.views.embedding import plot_embedding, plot_prediction_error
from tests.commands import Run, assert_input_error


@pytest.fixture(scope="module")
def rooms() -> Distance:
    return exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))


def test_coordinates_are_saved_reported_and_drawn(
    run: Run, rooms: Distance, tmp_path: Path
) -> None:
    rooms.save(tmp_path / "d.npz")
    words = ("--method", "metric", "-o", "x.npy", "--plot-embedding", "x.png")
    done = run("uses", "embed", "d.npz", *words)
    found = uses.embed(rooms, method="metric")
    assert done.code == 0, done.err
    assert (np.load("x.npy") == found.coordinates).all()
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert f"stress     {found.stress:.4g}" in done.out
    assert f"bound      |V*(s) - V*(t)| <= {found.contraction:.4g} |x_s - x_t|" in done.out
    real = found.lipschitz_constant(planning.optimal_values(rooms.mdp).values)
    assert f"measured {real:.4g}" in done.out
    assert done.out.endswith("saved      x.npy\nsaved      x.png\n")


def test_a_rank_below_the_dimensions_is_said(run: Run, tmp_path: Path) -> None:
    mdp = worlds.load("mirrored-rooms-policy", discount=0.9)
    exact.on_policy(mdp, mdp.policy).save(tmp_path / "d.npz")
    done = run("uses", "embed", "d.npz", "--dimensions", "3", "-o", "x.npy")
    assert "rank       1: the other coordinates are 0\n" in done.out
    assert "bound      |V^pi(s) - V^pi(t)| <= 1 |x_s - x_t|" in done.out
    assert not np.load("x.npy")[:, 1:].any()


def test_nothing_proven_is_said(run: Run, tmp_path: Path) -> None:
    steps = Transitions([0, 1, 0], [0, 0, 1], [0.0, 1.0, 0.5], [1, 2, 0], [False, True, False])
    sampled.bisimulation(steps, discount=0.9, seed=0).save(tmp_path / "d.npz")
    done = run("uses", "embed", "d.npz", "--plot-embedding", "x.png")
    assert done.code == 0, done.err
    assert "bound      none: nothing is proven of the distance\n" in done.out


def test_mistakes_are_one_line(run: Run, rooms: Distance, tmp_path: Path) -> None:
    rooms.save(tmp_path / "d.npz")
    embed = ("uses", "embed", "d.npz")
    assert_input_error(run("uses", "embed", "none.npz"), "none.npz")
    assert_input_error(
        run(*embed, "-o", "x.csv"), "cannot save coordinates as x.csv", "end in .npy"
    )
    assert_input_error(run(*embed, "--plot-embedding", "x.gif"), "cannot save a figure as x.gif")
    assert_input_error(run(*embed, "-o", "no/x.npy"), "make the folder no first")
    assert_input_error(run(*embed, "-o", "d.npz"), "d.npz is read by this command")
    assert_input_error(run(*embed, "--dimensions", "0"), "dimensions is 0")


def test_a_full_disk_leaves_nothing_behind(
    run: Run, rooms: Distance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms.save(tmp_path / "d.npz")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert_input_error(run("uses", "embed", "d.npz", "-o", "x.npy"), "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


def test_a_picture_shows_every_state(rooms: Distance) -> None:
    V = planning.optimal_values(rooms.mdp).values
    found = uses.embed(rooms, method="metric")
    axes, bar = plot_embedding(found, V, label="V*").axes
    dots = axes.collections[0]
    assert np.allclose(np.asarray(dots.get_offsets()), found.coordinates)
    assert (np.asarray(dots.get_array()) == V).all()
    assert bar.get_ylabel() == "$V^*$"
    assert {text.get_text() for text in axes.texts} <= set(rooms.mdp.names or ())
    assert len(axes.texts) > 25
    assert "stress 0.34" in axes.get_title()
    assert np.size(axes.lines[0].get_xdata()) == 2  # the goals


def test_normalised_coordinates(rooms: Distance) -> None:
    found = uses.embed(rooms)
    axes = plot_embedding(found, normalise=True).axes[0]
    expected = found.coordinates * (1 - rooms.mdp.discount)
    assert np.allclose(np.asarray(axes.collections[0].get_offsets()), expected)
    assert axes.get_xlabel() == r"first coordinate $\times\,(1-\gamma)$"
    with pytest.raises(InputError, match="a plain matrix has no discount; leave normalise out"):
        plot_embedding(uses.embed(rooms.values), normalise=True)


def test_names_do_not_overlap(rooms: Distance) -> None:
    figure = plot_embedding(uses.embed(rooms))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_one_coordinate_is_drawn_against_the_values(rooms: Distance) -> None:
    V = planning.optimal_values(rooms.mdp).values
    (axes,) = plot_embedding(uses.embed(rooms, 1), V, label="V*").axes
    assert (np.asarray(axes.collections[0].get_offsets())[:, 1] == V).all()
    assert axes.get_ylabel() == "$V^*$"
    (bare,) = plot_embedding(uses.embed(rooms, 1)).axes
    assert not len(bare.get_yticks())


def test_states_on_one_spot_share_a_name_and_unknown_ones_have_none() -> None:
    figure = plot_embedding(uses.embed([[0, 0, 1], [0, 0, 1], [1, 1, 0]]))
    assert sorted(t.get_text() for t in figure.axes[0].texts) == ["0 and 1 more", "2"]
    steps = Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 2], [False, True])
    found = uses.embed(sampled.bisimulation(steps, discount=0.9, seed=0))
    assert "2" not in {t.get_text() for t in plot_embedding(found).axes[0].texts}


def test_values_of_another_world_are_refused(rooms: Distance) -> None:
    with pytest.raises(InputError, match=r"values have shape \(3,\) and must be \(31,\)"):
        plot_embedding(uses.embed(rooms), [1, 2, 3])


def test_predictions_are_means_with_intervals() -> None:
    errors = {"a": [[0.9, 0.5], [0.7, 0.3]], "b": [[0.2, np.nan]]}
    figure = plot_prediction_error([1, 2], {"V*": errors, "V": errors}, columns=1)
    first = figure.axes[0]
    assert np.allclose(np.asarray(first.lines[0].get_ydata()), [0.8, 0.4])
    assert np.asarray(first.lines[1].get_xdata()).tolist() == [1.0]
    assert len(first.collections) == 1
    assert len(figure.axes) == 2
    with pytest.raises(InputError, match="nothing to draw"):
        plot_prediction_error([1], {})
    with pytest.raises(InputError, match=r"of 'a' in 'V' have shape \(2,\) and must have one row"):
        plot_prediction_error([1, 2], {"V": {"a": [0.1, 0.2]}})
