"""Figures of learning: curves with marks, tables side by side, clusters on a floor plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from bisimetric import MDP, views, worlds
from bisimetric.errors import InputError
from bisimetric.views.class_colours import CLASS_PALETTE

STEPS = np.array([500, 1000, 1500])
ERRORS = np.array([[9.0, 4.0, 5.0], [7.0, 2.0, 5.0]])


def data(line: Line2D) -> NDArray[np.float64]:
    """What a line shows: (2, n), x and y."""
    return np.asarray(line.get_data(), np.float64)


class TestLearning:
    def test_means_and_intervals(self) -> None:
        figure = views.plot_learning_curves(
            {"largest": {"off": (STEPS, ERRORS), "on": (STEPS[:2], ERRORS[:1, :2])}}
        )
        (axes,) = figure.axes
        off, on = axes.lines
        assert data(off)[1].tolist() == [8.0, 3.0, 5.0]
        assert data(on).tolist() == [[500.0, 1000.0], [9.0, 4.0]]
        # One seed has no shade; 12.7 is t for two.
        (shade,) = axes.collections
        corners = np.asarray(shade.get_paths()[0].vertices)
        assert corners[:, 1].max() == pytest.approx(8 + 12.706, abs=0.01)
        assert corners[:, 1].min() >= 0
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["off", "on"]

    def test_an_interval_is_whole_down_to_0(self) -> None:
        figure = views.plot_learning_curves({"largest": {"off": (STEPS, ERRORS)}})
        (shade,) = figure.axes[0].collections
        assert np.asarray(shade.get_paths()[0].vertices)[:, 1].min() == 0

    def test_axes_from_0_to_the_last_step(self) -> None:
        figure = views.plot_learning_curves(
            {"a": {"off": (STEPS, ERRORS)}, "b": {"off": (STEPS, ERRORS)}}
        )
        for axes, name in zip(figure.axes, "ab", strict=True):
            assert axes.get_xlim() == (0, 1500)
            assert axes.get_ylim()[0] == 0
            assert axes.get_title() == name

    def test_marks(self) -> None:
        figure = views.plot_learning_curves(
            {"a": {"off": (STEPS, ERRORS)}},
            marks={1000: "here", 9000: "far"},
            levels={"a": (8.5, "high")},
            title="Two seeds",
        )
        (axes,) = figure.axes
        assert [text.get_text() for text in axes.texts] == [
            "high",
            "here",
            "far \N{RIGHTWARDS ARROW}",
        ]
        assert [data(line)[0].tolist() for line in axes.lines if line.get_label() == "_mark"] == [
            [1000] * 2
        ]
        assert figure.get_suptitle() == "Two seeds"

    @pytest.mark.parametrize(
        ("panels", "message"),
        [
            ({}, r"there is nothing to draw"),
            ({"a": {}}, r"there is nothing to draw"),
            ({"a": {"off": ([2, 1, 3], ERRORS)}}, r"updates of 'off' in 'a' must be increasing"),
            ({"a": {"off": ([0, 1, 3], ERRORS)}}, r"increasing numbers above 0"),
            ({"a": {"off": ([], [[]])}}, r"increasing numbers above 0"),
            (
                {"a": {"off": (STEPS, ERRORS[0])}},
                r"'off' in 'a' have shape \(3,\) and must have one",
            ),
            ({"a": {"off": (STEPS[:2], ERRORS)}}, r"one column for each of 2 updates"),
            ({"a": {"off": (STEPS, ERRORS * np.nan)}}, r"an error of 'off' in 'a' is not a number"),
        ],
    )
    def test_bad_input(self, panels: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_learning_curves(panels)


class TestComparison:
    def test_one_order_for_all(self) -> None:
        exact = np.array([[0.0, 9, 1], [9, 0, 8], [1, 8, 0]])
        learned = np.array([[0.5, 5, 2], [5, 0.25, 4], [2, 4, 0.75]])
        figure = views.plot_comparison({"exact": exact, "learned": learned}, names=("x", "y", "z"))
        first, second, *_ = figure.axes
        names = [label.get_text() for label in first.get_yticklabels()]
        order = ["xyz".index(name) for name in names]
        assert abs(order.index(0) - order.index(2)) == 1
        for axes, table in ((first, exact), (second, learned)):
            shown = axes.images[0].get_array()
            np.testing.assert_array_equal(shown, table[np.ix_(order, order)])

    @pytest.mark.parametrize("factor", [0.01, 1.0, 3.0])
    def test_one_colour_scale(self, factor: float) -> None:
        exact = np.array([[0.0, 9, 1], [9, 0, 0], [1, 0, 0]])
        learned = factor * np.array([[0.5, 5, 2], [5, 0.25, 4], [2, 4, 0.75]])
        figure = views.plot_comparison({"exact": exact, "learned": learned})
        first, second, colorbar = figure.axes
        assert colorbar.get_label() == "<colorbar>"
        scale = (min(1.0, factor * 2), max(9.0, factor * 5))
        assert first.images[0].get_clim() == second.images[0].get_clim() == scale

    def test_no_names(self) -> None:
        figure = views.plot_comparison({"exact": np.zeros((1, 1))}, title="One state")
        assert not figure.axes[0].get_yticks().size
        assert figure.get_suptitle() == "One state"

    @pytest.mark.parametrize(
        ("tables", "message"),
        [
            ({}, r"there is nothing to draw"),
            ({"a": np.zeros((2, 3))}, r"matrix 'a' has shape \(2, 3\)"),
            (
                {"a": np.zeros((2, 2)), "b": np.zeros((3, 3))},
                r"'b' has shape \(3, 3\) and the first",
            ),
        ],
    )
    def test_bad_input(self, tables: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_comparison(tables)


class TestClusters:
    def test_points_in_the_colours_of_their_clusters(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        assert mdp.positions is not None
        labels = np.arange(31)
        figure = views.plot_clusters(mdp, mdp.positions, {"one": labels, "two": labels * 0})
        one, two = figure.axes
        dots = one.collections[0]
        np.testing.assert_array_equal(dots.get_offsets(), mdp.positions[:, ::-1])
        colours = np.asarray(dots.get_facecolor())
        palette = to_rgba_array(CLASS_PALETTE)
        assert len(np.unique(colours, axis=0)) == 12
        np.testing.assert_allclose(colours[:12], palette[:12])
        gaps = np.abs(mdp.positions[:, None] - mdp.positions).max(axis=2)
        for s, t in np.argwhere(gaps == 1):
            assert (colours[s] != colours[t]).any()
        assert len(np.unique(np.asarray(two.collections[0].get_facecolor()), axis=0)) == 1
        # Rows count downwards, as the maps do.
        low, high = one.get_ylim()
        assert low > high

    @pytest.mark.parametrize(
        ("points", "panels", "message"),
        [
            (np.zeros((3, 2)), {}, r"there is nothing to draw"),
            (
                np.zeros((3, 2)),
                {"a": [0, 1]},
                r"in 'a' there are points \(3, 2\) and clusters \(2,\)",
            ),
            (np.zeros((3, 3)), {"a": [0, 1, 2]}, r"give \(n, 2\) and \(n,\)"),
        ],
    )
    def test_bad_input(self, points: Any, panels: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_clusters(worlds.load("mirrored-rooms"), points, panels)

    def test_no_map(self) -> None:
        mdp = MDP.deterministic([[0]], [[0.0]], discount=0.5)
        with pytest.raises(InputError, match=r"the states have no map"):
            views.plot_clusters(mdp, np.zeros((1, 2)), {"a": [0]})
