"""Views: what is drawn is the table, titles say what it is, files appear whole or not at all."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from bisimetric import views, worlds
from bisimetric._statistics import compute_confidence_interval
from bisimetric.distance import Coverage, Distance
from bisimetric.errors import InputError
from bisimetric.views import _figure, heatmap, layout, maps
from tests.tables import a_distance, everywhere_apart, zeros

SOURCE = Path(str(views.__file__)).parents[2]


@pytest.fixture(scope="module")
def rooms() -> Distance:
    return a_distance(worlds.load("mirrored-rooms"))


@pytest.fixture(scope="module")
def pessimism() -> Distance:
    return a_distance(worlds.load("pessimism"))


def drawn(figure: Figure, panel: int = 0) -> NDArray[np.float64]:
    """The numbers behind the picture in a panel, NaN where there is no state."""
    array = figure.axes[panel].images[0].get_array()
    return np.ma.filled(np.ma.asarray(array, dtype=np.float64), np.nan)


def texts(figure: Figure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


class TestNotebook:
    def test_figures_have_a_picture(self, pessimism: Distance) -> None:
        figure = views.plot_heatmap(pessimism)
        picture = figure._repr_png_()
        assert picture.startswith(b"\x89PNG")

    def test_every_figure_is_displayed(self) -> None:
        modules = sorted(Path(str(views.__file__)).parent.rglob("*.py"))
        drawing = [path for path in modules if " Figure(" in path.read_text(encoding="utf-8")]
        assert len(drawing) > 10
        for path in drawing:
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            module = importlib.import_module(name)
            assert module.Figure is _figure.Figure, name


class TestDistancesFrom:
    def test_draws_the_row_on_the_map(self, rooms: Distance) -> None:
        figure = views.plot_distances_from(rooms, "1,5")
        picture = drawn(figure)
        assert picture.shape == (9, 7)
        for state in range(31):
            row, column = map(int, rooms.mdp.state_name(state).split(","))
            assert picture[row, column] == rooms.values[rooms.mdp.state("1,5"), state]
        assert np.isnan(picture).sum() == 9 * 7 - 31

    def test_a_name_and_an_id_are_the_same(self, rooms: Distance) -> None:
        by_name, by_id = (
            views.plot_distances_from(rooms, "4,3"),
            views.plot_distances_from(rooms, 15),
        )
        np.testing.assert_array_equal(drawn(by_name), drawn(by_id))
        assert not np.array_equal(
            drawn(by_name), drawn(views.plot_distances_from(rooms, 0)), equal_nan=True
        )

    def test_says_what_it_shows(self, rooms: Distance) -> None:
        figure = views.plot_distances_from(rooms, "1,5")
        bar = figure.axes[0].images[0].colorbar
        assert bar is not None
        assert bar.ax.get_ylabel() == r"bisimulation distance $\tilde d$ from 1,5"
        assert figure.axes[0].get_title() == "31 states, discount 0.99"
        assert legend(figure) == ["source", "distance 0", "goal", "wall"]

    @pytest.mark.parametrize(
        ("kind", "words", "symbol"),
        [
            ("on_policy", "on-policy distance", r"$d^\pi$"),
            ("lax", "lax bisimulation distance", r"$d_{\mathrm{lax}}$"),
            ("mico", "MICo distance", r"$d_{\mathrm{MICo}}$"),
        ],
    )
    def test_names_the_kind(self, kind: str, words: str, symbol: str) -> None:
        d = a_distance(worlds.load("mirrored-rooms"), kind, 2)
        bar = views.plot_distances_from(d, 0).axes[0].images[0].colorbar
        assert bar is not None
        assert bar.ax.get_ylabel() == f"{words} {symbol} from 1,1"
        start = words[0].upper() + words[1:]
        assert (
            views.plot_all_maps(d).get_suptitle() == f"{start} {symbol} from each state (outlined)"
        )
        assert views.format_terminal_map(d, 0).startswith(f"{words} from 1,1 (")

    def test_a_state_that_is_not_at_distance_zero_from_itself(self) -> None:
        d = everywhere_apart()
        figure = views.plot_distances_from(d, "1,1")
        assert drawn(figure)[1, 1] == d("1,1", "1,1") > 0
        assert texts(figure)[0] != "0"
        assert legend(figure) == ["source", "goal", "wall"]
        assert "[    0]" not in views.format_terminal_map(d, "1,1")

    def test_an_estimate_says_so(self, rooms: Distance, pessimism: Distance) -> None:
        for honest in (rooms, pessimism):
            d = dataclasses.replace(honest, error=math.inf, estimate=0.5)
            title = views.plot_distances_from(d, 0).axes[0].get_title()
            assert (
                title == views.plot_distances_from(honest, 0).axes[0].get_title() + ", an estimate"
            )
            assert views.plot_heatmap(d).axes[0].get_title() == title
            assert "discount 0.9" in views.format_terminal_map(d, 0).splitlines()[0]
            assert views.format_terminal_map(d, 0).splitlines()[0].endswith(", an estimate)")
        limits = views.plot_distances_from(rooms, 0).axes[0].images[0].get_clim()
        d = dataclasses.replace(rooms, error=math.inf, estimate=0.5)
        assert views.plot_distances_from(d, 0).axes[0].images[0].get_clim() == limits

    def test_lower_bounds_say_so(self, rooms: Distance) -> None:
        states = rooms.mdp.num_states
        seen = Coverage(
            np.ones((states, 4), np.bool_), np.eye(states, dtype=np.bool_), 0.0, 0.0, 0, 0
        )
        d = dataclasses.replace(rooms, error=math.inf, estimate=0.5, coverage=seen)
        assert views.plot_distances_from(d, 0).axes[0].get_title().endswith(", lower bounds")
        assert views.format_terminal_map(d, 0).splitlines()[0].endswith(", lower bounds)")

    def test_marks_the_source_and_the_goals(self, rooms: Distance) -> None:
        axes = views.plot_distances_from(rooms, "2,4").axes[0]
        (box,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        assert (box.get_x(), box.get_y(), box.get_width()) == (3.5, 1.5, 1)
        (stars,) = axes.lines
        found = np.column_stack([stars.get_ydata(), stars.get_xdata()])
        assert np.round(found + 0.2).tolist() == [[1, 5], [5, 5]]

    def test_a_small_map_has_its_numbers(self, rooms: Distance) -> None:
        figure = views.plot_distances_from(rooms, "1,1")
        assert len(texts(figure)) == 31
        assert texts(figure)[0] == "0"
        assert texts(figure)[15] == f"{rooms.values[0, 15]:.2f}"

    def test_a_large_map_has_none(self) -> None:
        d = a_distance(worlds.load("open-grid", rows=30, columns=40), sweeps=3)
        figure = views.plot_distances_from(d, 100)
        assert texts(figure) == []
        picture = drawn(figure)
        assert picture.shape == (32, 42)
        np.testing.assert_array_equal(picture[~np.isnan(picture)], d.values[100])

    def test_the_lower_level_is_below_the_upper(self) -> None:
        d = a_distance(worlds.load("duplicated-grid"))
        picture = drawn(views.plot_distances_from(d, "upper 1,1"))
        assert picture.shape == (18, 7)
        np.testing.assert_allclose(picture[:9], picture[9:])
        assert picture[1, 1] == 0

    def test_the_parts_of_a_map_have_their_names_above(self) -> None:
        figure = views.plot_distances_from(a_distance(worlds.load("duplicated-grid"), sweeps=2), 0)
        (lower, upper) = figure.axes[0].texts[-2:]
        assert (lower.get_text(), *lower.get_position()) == ("lower", 3.0, 9.0)
        assert (upper.get_text(), *upper.get_position()) == ("upper", 3.0, 0.0)

    def test_other_corners_and_names_need_no_ticks(self) -> None:
        d = zeros(2, positions=[[-4, 10], [-3, 11]], names=["a", "b"])
        axes = views.plot_distances_from(d, "b").axes[0]
        assert len(axes.get_xticks()) == 0
        (box,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        assert (box.get_x(), box.get_y()) == (10.5, -3.5)

    def test_bars_without_a_map(self, pessimism: Distance) -> None:
        figure = views.plot_distances_from(pessimism, "t")
        axes = figure.axes[0]
        assert axes.get_xlabel() == r"bisimulation distance $\tilde d$ from t"
        labels = [label.get_text() for label in axes.get_yticklabels()]
        widths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        assert labels[0] == "t"
        assert sorted(labels) == ["s", "t", "u"]
        assert widths == [pessimism("t", label) for label in labels]
        assert widths == sorted(widths)

    def test_many_bars_are_the_nearest(self) -> None:
        d = a_distance(worlds.load("random", states=100), sweeps=3)
        axes = views.plot_distances_from(d, 7).axes[0]
        widths = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        np.testing.assert_array_equal(widths, np.sort(d.values[7])[:40])
        assert axes.get_title() == "the 40 nearest of 100 states, discount 0.99"

    def test_unknown_state(self, rooms: Distance) -> None:
        with pytest.raises(InputError, match=r"no state '1,9'; did you mean"):
            views.plot_distances_from(rooms, "1,9")


class TestAllMaps:
    def test_one_map_a_state(self, rooms: Distance) -> None:
        figure = views.plot_all_maps(rooms)
        panels = [axes for axes in figure.axes if axes.images]
        assert [axes.get_title() for axes in panels] == list(rooms.mdp.names or ())
        cells = layout.find_cells(rooms.mdp)
        assert cells is not None
        for state, axes in enumerate(panels):
            picture = drawn(figure, figure.axes.index(axes))
            np.testing.assert_array_equal(picture, cells.to_array(rooms.values[state]))
            (box,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
            assert f"{box.get_y() + 0.5:g},{box.get_x() + 0.5:g}" == axes.get_title()

    def test_shares_one_scale_and_one_bar(self, rooms: Distance) -> None:
        figure = views.plot_all_maps(rooms)
        limits = {axes.images[0].get_clim() for axes in figure.axes if axes.images}
        positive = rooms.values[rooms.values > 0]
        assert limits == {(float(positive.min()), float(positive.max()))}
        bars = [axes for axes in figure.axes if "distance" in axes.get_ylabel()]
        assert len(bars) == 1
        assert figure.get_suptitle().startswith(r"Bisimulation distance $\tilde d$ from each")

    def test_rejects_many_states(self, monkeypatch: pytest.MonkeyPatch) -> None:
        square = [(row, column) for row in range(10) for column in range(11)]
        with pytest.raises(
            InputError,
            match=r"there are 101 states and a figure holds at most 100 maps; use "
            r"plot_distances_from",
        ):
            views.plot_all_maps(zeros(101, positions=square[:101]))
        monkeypatch.setattr(maps, "MAX_MAPS", 3)
        assert len(views.plot_all_maps(zeros(3, positions=square[:3])).axes) == 3 + 1
        with pytest.raises(InputError, match=r"there are 4 states"):
            views.plot_all_maps(zeros(4, positions=square[:4]))

    def test_needs_positions(self, pessimism: Distance) -> None:
        with pytest.raises(
            InputError, match=r"plot_all_maps: the states have no map; give the MDP distinct"
        ):
            views.plot_all_maps(pessimism)


class TestHeatmap:
    def test_draws_the_reordered_matrix(self, rooms: Distance) -> None:
        figure = views.plot_heatmap(rooms)
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert sorted(names) == sorted(rooms.mdp.names or ())
        assert names == [label.get_text() for label in figure.axes[0].get_xticklabels()]
        order = [rooms.mdp.state(name) for name in names]
        np.testing.assert_array_equal(drawn(figure), rooms.values[np.ix_(order, order)])
        assert figure.axes[1].get_ylabel() == r"bisimulation distance $\tilde d$ (white: 0)"

    def test_puts_similar_states_side_by_side(self) -> None:
        places = np.random.default_rng(0).permutation(60).astype(float)
        table = abs(places[:, None] - places)
        order = heatmap.order_by_similarity(table)
        assert abs(np.diff(places[order])).tolist() == [1.0] * 59

    @pytest.mark.parametrize("limit", [1000, 10])
    def test_groups_stay_together(self, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heatmap, "MAX_OPTIMALLY_ORDERED", limit)
        group = np.random.default_rng(1).integers(5, size=80)
        order = heatmap.order_by_similarity((group[:, None] != group).astype(float))
        assert sorted(order.tolist()) == list(range(80))
        assert (np.diff(group[order]) != 0).sum() == 4

    def test_the_diagonal_does_not_change_the_order(self) -> None:
        d = everywhere_apart()
        order = heatmap.order_by_similarity(d.values)
        without = d.values * (1 - np.eye(31))
        np.testing.assert_array_equal(order, heatmap.order_by_similarity(without))
        picture = drawn(views.plot_heatmap(d))
        np.testing.assert_array_equal(picture, d.values[np.ix_(order, order)])
        assert np.diagonal(picture).all()

    def test_many_states_have_no_names_and_more_are_subsampled(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        d = a_distance(worlds.load("random", states=100), sweeps=3)
        axes = views.plot_heatmap(d).axes[0]
        assert len(axes.get_xticks()) == 0
        assert axes.get_title() == "100 states, discount 0.99"
        monkeypatch.setattr(heatmap, "MAX_DRAWN_STATES", 40)
        subsampled = views.plot_heatmap(d)
        assert drawn(subsampled).shape == (34, 34)
        assert subsampled.axes[0].get_title() == "100 states, discount 0.99, one in 3 drawn"
        central = d.values.sum(axis=1).argmin()
        nearest_first = np.argsort(d.values[central], kind="stable")[::3]
        expected = d.values[np.ix_(nearest_first, nearest_first)]
        np.testing.assert_array_equal(
            np.sort(drawn(subsampled), axis=None), np.sort(expected, axis=None)
        )


class TestTerminalMap:
    def test_map(self, rooms: Distance) -> None:
        lines = views.format_terminal_map(rooms, "1,5").splitlines()
        assert lines[0] == "bisimulation distance from 1,5 (discount 0.99)"
        assert lines[-1] == "[ ] source  * goal"
        body = lines[1:-1]
        assert len(body) == 9
        assert len({len(line) for line in body}) == 1
        assert set(body[0]) == set(body[-1]) == {"\u2588"}
        assert body[1].rstrip("\u2588").endswith("[    0]")
        found = [float(number) for number in body[3].replace("\u2588", " ").split()]
        expected = [rooms("1,5", f"3,{column}") for column in range(1, 6)]
        np.testing.assert_allclose(found, expected, atol=0.005)
        assert f"{rooms('1,5', '5,5'):.2f}*" in body[5]

    def test_wide_map_has_digits(self) -> None:
        mdp = worlds.load("open-grid", rows=4, columns=40, obstacles=0.0)
        tenths = np.tile(np.linspace(0, 20, mdp.num_states), (mdp.num_states, 1))
        lines = views.format_terminal_map(Distance(tenths, 0.0, "lax", mdp), 0).splitlines()
        assert lines[1] == "\u2588" * 42
        assert lines[2] == "\u2588S" + "0" * 15 + "1" * 16 + "2" * 7 + "*\u2588"
        assert lines[5].endswith("9\u2588")
        assert lines[-1] == "S source, * goal, digits: tenths of 20.00, the largest"

    def test_list_without_a_map(self) -> None:
        d = a_distance(worlds.load("random", states=50), sweeps=3)
        lines = views.format_terminal_map(d, 9).splitlines()
        assert lines[1].split() == ["9", "0"]
        nearest = d.nearest(9, k=49)
        for line, (state, distance) in zip(lines[2:13], nearest[:11], strict=True):
            assert line.split() == [str(state), f"{distance:.3f}"]
        assert lines[13:] == [f"  ... and 38 more, the farthest at {nearest[-1][1]:.3f}"]


class TestConvergence:
    steps = (10, 100, 1000, 10_000)
    fast = np.array([[9.0, 1.0, 1e-3, 1e-7], [7.0, 3.0, 0.0, np.nan]])
    slow = np.array([[9.0, 8.0, 7.0, 6.0], [9.5, 8.5, 7.5, 6.5]])

    def figure(self) -> Figure:
        panels = {"one": {"slow": self.slow, "fast": self.fast}, "two": {"fast": self.slow}}
        return views.plot_convergence(
            self.steps, panels, target_error=1e-2, floor=1e-5, title="Two keys"
        )

    def test_a_panel_a_title_and_a_line_a_label(self) -> None:
        figure = self.figure()
        assert figure.get_suptitle() == "Two keys"
        assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
        assert [line.get_label() for line in figure.axes[0].lines] == ["slow", "fast", "_goal"]
        assert [line.get_label() for line in figure.axes[1].lines] == ["fast", "_goal"]
        assert legend(figure) == ["slow", "fast"]
        for axes in figure.axes:
            assert axes.get_xlabel() == "sampled pairs of transitions"
            assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
            assert texts(figure)[0] == "error 0.01"
        assert figure.axes[0].get_ylabel() == "largest error"
        assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() == (1e-5, 19.0)

    def test_lines_are_means_up_to_where_a_key_ends(self) -> None:
        slow, fast, goal = self.figure().axes[0].lines
        np.testing.assert_array_equal(slow.get_ydata(), [9.25, 8.25, 7.25, 6.25])
        np.testing.assert_array_equal(fast.get_xdata(), self.steps[:3])
        np.testing.assert_array_equal(fast.get_ydata(), [8.0, 2.0, 5e-4])
        assert np.asarray(goal.get_ydata()).tolist() == [1e-2, 1e-2]

    def test_the_shade_is_the_interval_of_the_mean(self) -> None:
        slow, seeds, fast, _ = self.figure().axes[0].collections
        assert isinstance(seeds, LineCollection)
        np.testing.assert_array_equal([line[:, 1] for line in seeds.get_segments()], self.slow)
        # Two samples that differ by 0.5: s / sqrt(2) = 0.25, and t of one degree is 12.706.
        top = np.array([9.25, 8.25, 7.25, 6.25]) + 12.7062047 * 0.25
        heights = np.asarray(slow.get_paths()[0].vertices)[:, 1]
        for height in top:
            assert np.isclose(heights, height).any()
        assert heights.min() == pytest.approx(6.25 - 12.7062047 * 0.25)
        # Where the interval reaches 0 it ends at the smallest error, here 7, 1 and 0: the last
        # one below the axis.
        heights = np.asarray(fast.get_paths()[0].vertices)[:, 1]
        assert {7.0, 1.0} <= set(heights.tolist())
        assert heights.min() == pytest.approx(1e-6)

    def test_a_label_looks_the_same_in_every_panel(self) -> None:
        figure = self.figure()
        (slow, fast, _), (same, _) = (axes.lines for axes in figure.axes)
        assert fast.get_color() == same.get_color() != slow.get_color()

    def test_a_single_seed_has_no_shade(self) -> None:
        figure = views.plot_convergence(self.steps, {"one": {"slow": self.slow[:1]}})
        assert len(figure.axes[0].collections) == 0
        np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), self.slow[0])

    def test_can_be_drawn(self, tmp_path: Path) -> None:
        views.save_figure(self.figure(), tmp_path / "convergence.png")
        assert (tmp_path / "convergence.png").stat().st_size > 10_000

    def test_interval_by_hand(self) -> None:
        # Mean 4, squared deviations 4 + 0 + 4, s = 2, t of two degrees of freedom 4.302653.
        mean, half = compute_confidence_interval([[2.0, 1.0], [4.0, 1.0], [6.0, 1.0]])
        assert mean.tolist() == [4.0, 1.0]
        np.testing.assert_allclose(half, [4.30265273 * 2 / math.sqrt(3), 0.0])
        mean, _ = compute_confidence_interval([1.0, math.inf])
        assert math.isinf(mean)
        with pytest.raises(InputError, match=r"there are 1 samples and it needs at least 2"):
            compute_confidence_interval([1.0])

    @pytest.mark.parametrize(
        ("steps", "errors", "message"),
        [
            ([1, 2], [[1.0]], r"'x' in 'p' have shape \(1, 1\) and must have .* each of 2 steps"),
            ([1, 2], [1.0, 2.0], r"have shape \(2,\) and must have one row per seed"),
            ([1], [[math.nan]], r"at no step do all seeds of 'x' in 'p' have an error"),
            ([2, 2], [[1.0, 1.0]], r"steps must be increasing numbers above 0"),
            ([0, 2], [[1.0, 1.0]], r"steps must be increasing numbers above 0"),
        ],
    )
    def test_bad_arrays(self, steps: Any, errors: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_convergence(steps, {"p": {"x": errors}})

    def test_nothing_to_draw(self) -> None:
        with pytest.raises(InputError, match=r"there is nothing to draw"):
            views.plot_convergence([1], {})


class TestSave:
    @pytest.mark.parametrize(
        ("ending", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml"), ("pdf", b"%PDF")]
    )
    def test_by_ending(
        self, tmp_path: Path, pessimism: Distance, ending: str, start: bytes
    ) -> None:
        target = tmp_path / f"bars.{ending}"
        views.save_figure(views.plot_distances_from(pessimism, "s"), target)
        assert target.read_bytes().startswith(start)
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.parametrize("states", [1, 2])
    def test_the_smallest_worlds_can_be_drawn(self, tmp_path: Path, states: int) -> None:
        d = zeros(states, positions=[[0, column] for column in range(states)])
        for number, figure in enumerate(
            [views.plot_distances_from(d, 0), views.plot_all_maps(d), views.plot_heatmap(d)]
        ):
            views.save_figure(figure, tmp_path / f"{number}.png")
        views.save_figure(views.plot_distances_from(zeros(states), 0), tmp_path / "bars.png")
        assert len(list(tmp_path.iterdir())) == 4
        assert views.format_terminal_map(d, 0).count("0") >= states

    def test_all_views_can_be_drawn(self, tmp_path: Path, rooms: Distance) -> None:
        views.save_figure(views.plot_distances_from(rooms, 0), tmp_path / "from.png")
        views.save_figure(views.plot_all_maps(rooms), tmp_path / "all.png")
        views.save_figure(views.plot_heatmap(rooms), tmp_path / "heat.png")
        assert min(path.stat().st_size for path in tmp_path.iterdir()) > 10_000

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("map.jpeg", r"map.jpeg ends in '.jpeg'; use .png, .svg or .pdf\."),
            ("map", r"map has no extension; use .png, .svg or .pdf\."),
        ],
    )
    def test_unknown_ending(self, tmp_path: Path, name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.save_figure(Figure(), tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_unwritable_paths(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"cannot write .*x.png: make the folder"):
            views.save_figure(Figure(), tmp_path / "nowhere" / "x.png")
        (tmp_path / "folder.png").mkdir()
        with pytest.raises(IsADirectoryError, match=r"cannot write .*folder.png: it is a folder"):
            views.save_figure(Figure(), tmp_path / "folder.png")
        assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]

    @pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
    def test_a_failure_leaves_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
    ) -> None:
        target = tmp_path / "map.png"
        target.write_text("old")

        def fail_half_way(figure: Figure, path: Path, **how: Any) -> None:
            Path(path).write_text("half")
            raise failure

        monkeypatch.setattr(Figure, "savefig", fail_half_way)
        with pytest.raises(type(failure)):
            views.save_figure(Figure(), target)
        assert target.read_text() == "old"
        assert os.listdir(tmp_path) == ["map.png"]

    def test_needs_no_display_and_no_global_state(self) -> None:
        look = "import sys, bisimetric.views; sys.exit('matplotlib.pyplot' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
