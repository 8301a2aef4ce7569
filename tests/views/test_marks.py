"""Views: marks on maps, colour norms, class colours, dot plots and normalised distances."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from bisimetric import views, worlds
from bisimetric.distance import Distance
from bisimetric.errors import ExpectedRewardWarning, InputError
from bisimetric.explorer.bundle import PARTS
from bisimetric.mdp import MDP
from bisimetric.views import class_colours, landmarks, layout, norms
from tests.sample_distances import build_zero_distance, iterate_distance

HOLES = ["1,1", "1,3", "2,3", "3,0"]


@pytest.fixture(scope="module", params=[False, True], ids=["dry", "slippery"])
def lake(request: pytest.FixtureRequest) -> MDP:
    if not request.param:
        return worlds.load("FrozenLake-v1", is_slippery=False)
    with pytest.warns(ExpectedRewardWarning):
        return worlds.load("FrozenLake-v1")


@pytest.fixture(scope="module")
def taxi() -> Distance:
    mdp = worlds.load("Taxi-v4")
    return Distance(np.ones((501, 501)) - np.eye(501), 0.0, "bisimulation", mdp)


class TestFrozenLake:
    def test_holes_and_goal_are_found(self, lake: MDP) -> None:
        assert [lake.state_name(int(s)) for s in landmarks.find_holes(lake)] == HOLES
        assert [lake.state_name(int(s)) for s in layout.find_goals(lake)] == ["3,3"]

    def test_and_drawn(self, lake: MDP) -> None:
        figure = views.plot_distances_from(iterate_distance(lake, sweeps=3), 0)
        lines = {str(line.get_label()): line for line in figure.axes[0].lines}
        dots = lines["absorbing (hole)"]
        places = zip(np.asarray(dots.get_ydata()), np.asarray(dots.get_xdata()), strict=True)
        assert [f"{round(y + 0.2)},{round(x + 0.2)}" for y, x in places] == HOLES
        assert np.asarray(lines["goal"].get_xdata()).round().tolist() == [3]
        legend = [text.get_text() for text in figure.legends[0].get_texts()]
        assert legend == ["source", "distance 0", "goal", "absorbing (hole)", "wall"]

    def test_in_the_terminal(self, lake: MDP) -> None:
        lines = views.format_terminal_map(iterate_distance(lake, sweeps=3), 0).splitlines()
        assert sum(line.count("o") for line in lines[1:-1]) == 4
        assert lines[-1] == "[ ] source  * goal  o absorbing"

    def test_no_marks_where_every_state_is_absorbing(self) -> None:
        d = build_zero_distance(3, positions=[[0, 0], [0, 1], [0, 2]])
        assert not len(landmarks.find_holes(d.mdp))
        assert not len(layout.find_goals(d.mdp))


class TestTaxi:
    def test_panels_have_headers(self, taxi: Distance) -> None:
        axes = views.plot_distances_from(taxi, 0).axes[0]
        texts = {text.get_text(): text.get_position() for text in axes.texts}
        headers = [f"from {a} to {b}" for a in "RGYB" for b in "RGYB"]
        headers += [f"aboard, to {b}" for b in "RGYB"]
        assert set(headers) < set(texts)
        assert texts["from R to R"] == (2, -1)
        assert texts["aboard, to G"] == (8, 23)

    def test_walls_are_those_of_its_map(self, taxi: Distance) -> None:
        axes = views.plot_distances_from(taxi, 0).axes[0]
        (walls,) = (each for each in axes.collections if isinstance(each, LineCollection))
        found = {tuple(np.asarray(wall).ravel().tolist()) for wall in walls.get_segments()}
        assert len(found) == 6 * 20
        # Of the first panel; the printed map of Gymnasium has them at "|".
        first = sorted(wall for wall in found if max(wall[0], wall[2]) < 5 and wall[3] < 5)
        assert [(x, top) for x, top, *_ in first] == [
            (0.5, 2.5),
            (0.5, 3.5),
            (1.5, -0.5),
            (1.5, 0.5),
            (2.5, 2.5),
            (2.5, 3.5),
        ]

    def test_stands_are_where_the_environment_has_them(self, taxi: Distance) -> None:
        gymnasium = pytest.importorskip("gymnasium")
        places = gymnasium.make("Taxi-v4").unwrapped.locs
        assert dict(zip("RGYB", map(tuple, places), strict=True)) == landmarks.TAXI_STANDS
        assert len(landmarks.find_stands(taxi.mdp)) == 4 + 12 * 2 + 4


class TestWalls:
    def test_grids_have_none_between_their_cells(self) -> None:
        for name in ("mirrored-rooms", "open-grid", "duplicated-grid"):
            mdp = worlds.load(name)
            cells = layout.find_cells(mdp)
            assert cells is not None
            assert not len(landmarks.find_walls(mdp, cells))

    def test_positions_that_are_no_places_have_none(self) -> None:
        successors = np.array([[2], [3], [0], [1]])
        places = [[0, 0], [0, 1], [0, 2], [0, 3]]
        mdp = MDP.deterministic(successors, np.ones((4, 1)), discount=0.5, positions=places)
        cells = layout.find_cells(mdp)
        assert cells is not None
        assert not len(landmarks.find_walls(mdp, cells))


class TestNorms:
    many = np.linspace(0.01, 0.05, 30)

    @pytest.mark.parametrize(
        ("values", "note"),
        [
            (np.r_[0.0, many], ""),
            (np.r_[0.0, many, 0.7, 0.8], "log scale"),
            (np.r_[0.0, 1 + many, 2.0, 2.1], "quantile scale"),
            (np.array([0.0, 0.01, 9.0]), ""),
        ],
        ids=["even", "two dominate", "two dominate far from 0", "few values"],
    )
    def test_automatic_choice(self, values: Any, note: str) -> None:
        norm, found = norms.build_norm(values, 0.0, "auto")
        assert found == note
        assert norm(values.max()) == pytest.approx(1.0)
        assert norm(values[values > 0].min()) == pytest.approx(0.0)
        assert norm(np.array([0.0]))[0] < 0, "distance 0 is below the scale"

    @pytest.mark.parametrize("name", ["linear", "log", "quantile"])
    def test_as_asked(self, name: Any) -> None:
        values = np.r_[0.0, self.many, 0.8]
        norm, note = norms.build_norm(values, 0.0, name)
        assert note == ("" if name == "linear" else f"{name} scale")
        levels = np.asarray(norm(np.sort(values[1:])))
        assert (np.diff(levels) > 0).all()
        np.testing.assert_allclose(norm.inverse(levels[1:-1]), np.sort(values[1:])[1:-1])
        below = norm(np.ma.masked_invalid([np.nan, 0.5]))
        assert np.ma.getmaskarray(below).tolist() == [True, False]

    def test_half_of_the_values_are_below_the_middle_colour(self) -> None:
        values = np.random.default_rng(0).exponential(size=500) ** 3 + 1
        norm, _ = norms.build_norm(values, 0.0, "quantile")
        assert np.mean(np.asarray(norm(values)) < 0.5) == pytest.approx(0.5, abs=0.02)

    @pytest.mark.parametrize("name", ["log", "quantile"])
    def test_the_colour_bar_names_the_scale(self, name: Any, tmp_path: Path) -> None:
        d = iterate_distance(worlds.load("mirrored-rooms"))
        for figure in (
            views.plot_distances_from(d, 0, norm=name),
            views.plot_heatmap(d, norm=name),
            views.plot_all_maps(d, norm=name),
        ):
            labels = [axes.get_ylabel() for axes in figure.axes]
            labels += [axes.get_ylabel() for axes in figure.axes[0].child_axes]
            assert sum(label.endswith(f", {name} scale") for label in labels) == 1
            views.save_figure(figure, tmp_path / "figure.png")

    def test_unknown(self) -> None:
        with pytest.raises(InputError, match=r"norm is 'cubic' and must be one of auto, linear"):
            views.plot_heatmap(iterate_distance(worlds.load("pessimism")), norm="cubic")  # type: ignore[arg-type]


class TestClassColours:
    # Machado, Oliveira & Fernandes (2009), severity 1, on linear RGB.
    VISIONS: ClassVar[dict[str, list[list[float]]]] = {
        "trichromacy": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "deuteranopia": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        "protanopia": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    }

    @pytest.mark.parametrize("vision", VISIONS)
    def test_colours_are_distinct_with_colour_vision_deficiencies(self, vision: str) -> None:
        # The last one is that of singleton classes on a page.
        digits = [*class_colours.CLASS_PALETTE, "#f0f2f5"]
        colours = np.array([list(bytes.fromhex(each[1:])) for each in digits]) / 255
        linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
        seen = np.clip(linear @ np.array(self.VISIONS[vision]).T, 0, 1)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        xyz = seen @ np.array(to_xyz).T / [0.9505, 1, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        lightness = 116 * f[:, 1] - 16
        lab = np.stack([lightness, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
        gaps = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
        assert gaps[np.triu_indices(len(lab), 1)].min() >= 17

    def test_classes_that_all_touch_differ(self) -> None:
        labels = np.repeat(np.arange(24), 2)
        pairs = [(s, t) for s in range(48) for t in range(s)]
        colours = class_colours.assign_colours(labels, pairs)
        assert sorted(colours.tolist()) == list(range(24))

    def test_neighbours_differ_where_possible(self) -> None:
        rng = np.random.default_rng(0)
        mdp = worlds.load("open-grid", rows=15, columns=15, obstacles=0.0)
        cells = layout.find_cells(mdp)
        assert cells is not None
        labels = rng.integers(120, size=mdp.num_states)
        pairs = class_colours.find_neighbours(cells)
        assert len(pairs) == 2 * 15 * 14 + 2 * 14 * 14
        colours = class_colours.assign_colours(labels, pairs.tolist())
        for s, t in pairs:
            if labels[s] != labels[t] and colours[labels[s]] >= 0:
                assert colours[labels[s]] != colours[labels[t]]

    def test_up_to_twelve_classes_share_none(self) -> None:
        colours = class_colours.assign_colours(np.repeat(np.arange(12), 2), [])
        assert sorted(colours.tolist()) == list(range(12))

    def test_the_page_has_the_same(self) -> None:
        script = (PARTS / "scales.js").read_text("utf-8")
        (palette,) = re.findall(r"PALETTE = \[(.*?)\]", script, re.DOTALL)
        assert re.findall(r"#\w{6}", palette) == list(class_colours.CLASS_PALETTE)


class TestFinalErrors:
    panels: ClassVar[dict[str, dict[str, list[float]]]] = {
        "one": {"slow": [9.0, 11.0], "default": [1.0, 3.0], "alone": [5.0]},
        "two": {"slow": [2.0, 2.0], "default": [3.0, 3.0], "alone": [1.0]},
    }

    def test_rows_are_ordered_and_dots_are_means(self) -> None:
        figure = views.plot_final_errors(self.panels, reference="default", title="d~")
        assert figure.get_suptitle() == r"$\tilde d$"
        order = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert order == ["default", "alone", "slow"]
        for axes, rows in zip(figure.axes, self.panels.values(), strict=True):
            dots = [line for line in axes.lines if line.get_label() == "mean"]
            means = [float(np.asarray(dot.get_xdata())[0]) for dot in dots]
            assert means == [np.mean(rows[name]) for name in order]
            intervals = [line for line in axes.lines if line.get_label() == "_interval"]
            assert len(intervals) == 2, "a single seed has no interval"

    def test_an_interval_that_reaches_0_ends_at_the_smallest_error(self) -> None:
        axes = views.plot_final_errors(self.panels).axes[0]
        low, high = np.asarray(
            next(line for line in axes.lines if line.get_label() == "_interval").get_xdata()
        )
        assert low == 1.0
        assert high == pytest.approx(2 + 12.7062047)

    @pytest.mark.parametrize(
        ("panels", "reference", "message"),
        [
            ({}, None, "give at least one variant"),
            ({"one": {"a": [1.0]}, "two": {"b": [1.0]}}, None, "the same variants in every"),
            ({"one": {"a": [0.0]}}, None, "of 'a' in 'one' must be numbers above 0"),
            ({"one": {"a": [[1.0]]}}, None, "one per seed"),
            ({"one": {"a": [1.0]}}, "b", "the reference 'b' is not among the rows"),
        ],
    )
    def test_bad_input(self, panels: Any, reference: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_final_errors(panels, reference=reference)


class TestScores:
    panels: ClassVar[dict[str, dict[str, dict[str, list[float]]]]] = {
        "one": {"b": {"x": [-0.5, 0.1], "y": [0.5, 0.7]}, "a": {"x": [0.3]}},
        "two": {"b": {"x": [2.0, 4.0]}, "a": {"x": [1.0]}},
    }

    def test_dots_are_means_in_the_order_given(self) -> None:
        figure = views.plot_scores(self.panels, title="d~")
        assert figure.get_suptitle() == r"$\tilde d$"
        assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a"]
        for axes, rows in zip(figure.axes, self.panels.values(), strict=True):
            marks = [line for line in axes.lines if line.get_marker() in ("o", "s")]
            means = [float(np.asarray(line.get_xdata())[0]) for line in marks]
            assert means == [np.mean(x) for row in rows.values() for x in row.values()]
        ends = next(x for x in figure.axes[0].lines if x.get_label() == "_interval").get_xdata()
        assert np.mean(np.asarray(ends)) == pytest.approx(-0.2)
        # The two series of a row do not cover each other.
        heights = {float(np.asarray(line.get_ydata())[0]) for line in figure.axes[0].lines[:4]}
        assert heights == {-0.3, 0.3}

    def test_a_third_panel_stands_in_a_second_line(self) -> None:
        three = views.plot_scores({**self.panels, "three": self.panels["two"]})
        assert len(three.axes) == 3
        assert three.get_figheight() > views.plot_scores(self.panels).get_figheight()
        assert three.get_figwidth() == views.plot_scores(self.panels).get_figwidth()

    @pytest.mark.parametrize(
        ("panels", "message"),
        [
            ({}, "give at least one method"),
            ({"one": {"a": {"x": [1.0]}}, "two": {"b": {"x": [1.0]}}}, "the same methods"),
            ({"one": {"a": {"x": [float("nan")]}}}, "of 'a' in 'one' must be finite"),
        ],
    )
    def test_bad_input(self, panels: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_scores(panels)


class TestNormalised:
    d = iterate_distance(worlds.load("mirrored-rooms"))

    def test_figures_draw_the_scaled_distances(self) -> None:
        for plain, scaled in (
            (
                views.plot_distances_from(self.d, 3),
                views.plot_distances_from(self.d, 3, normalise=True),
            ),
            (views.plot_heatmap(self.d), views.plot_heatmap(self.d, normalise=True)),
            (views.plot_all_maps(self.d), views.plot_all_maps(self.d, normalise=True)),
        ):
            one, two = (
                next(axes.images[0] for axes in figure.axes if axes.images)
                for figure in (plain, scaled)
            )
            factor = 1 - self.d.mdp.discount
            plain_values, scaled_values = (
                np.ma.asarray(each.get_array(), dtype=np.float64) for each in (one, two)
            )
            np.testing.assert_allclose(scaled_values, plain_values * factor)
            np.testing.assert_allclose(two.get_clim(), np.array(one.get_clim()) * factor)
            labels = [axes.get_ylabel() for axes in (*scaled.axes, *scaled.axes[0].child_axes)]
            assert max(labels, key=len).startswith(
                r"normalised bisimulation distance $(1-\gamma)\,\tilde d$"
            )

    def test_bars_and_text(self) -> None:
        d = iterate_distance(worlds.load("pessimism"))
        (plain, scaled) = (
            [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
            for axes in (
                views.plot_distances_from(d, 0).axes[0],
                views.plot_distances_from(d, 0, normalise=True).axes[0],
            )
        )
        np.testing.assert_allclose(scaled, np.array(plain) * (1 - d.mdp.discount))
        lines = views.format_terminal_map(d, "s", normalise=True).splitlines()
        assert lines[0].startswith("(1 - discount) * bisimulation distance from s")
        expected = d("s", "u") * (1 - d.mdp.discount)
        assert any(line.split() == ["u", f"{expected:.3f}"] for line in lines[1:])

    def test_dollars_in_names_are_no_mathematics(self, tmp_path: Path) -> None:
        d = build_zero_distance(2, positions=[[0, 0], [0, 1]], names=["a$", "$b$"])
        for name, plot in itertools.product(("a$", "$b$"), (views.plot_distances_from,)):
            figure = plot(d, name)
            escaped = name.replace("$", r"\$")
            image = figure.axes[0].images[0]
            assert image.colorbar is not None
            assert image.colorbar.ax.get_ylabel().endswith(f"from {escaped}")
            views.save_figure(figure, tmp_path / "figure.png")
