"""Figures of games: curves with marks, and frames at both ends; from real games."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari import views
from bisimetric_atari.games import Episode, play
from bisimetric_atari.games.agent import IdleAgent
from bisimetric_atari.views.canvas import render_figure
from bisimetric_atari.views.episode_distances import measure_episode
from bisimetric_atari.views.episode_figures import find_events
from simple_agents import ChecksumAgent


@pytest.fixture(scope="module")
def pong() -> Episode:
    return play("Pong", ChecksumAgent("Pong", repeat=8), max_steps=300)


@pytest.fixture(scope="module")
def invaders() -> Episode:
    """Two games, in which lives are lost."""
    return play("SpaceInvaders", IdleAgent("SpaceInvaders"), episodes=2, max_steps=2000)


def away(episode: Episode, source: int = 0) -> NDArray[np.float64]:
    """How far frames are from one of them, by what the agent found in them."""
    bright = episode.features[:, :-1]
    return np.asarray(np.abs(bright - bright[source]).sum(axis=1), np.float64)


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def heights(line: Line2D) -> NDArray[np.float64]:
    return np.asarray(line.get_ydata(), np.float64)


def boxes(figure: Figure) -> tuple[Bbox, list[Bbox]]:
    """Where the legend is, and where the panels with all their words are."""
    render_figure(figure)
    panels = [axes.get_tightbbox() for axes in figure.axes]
    return figure.legends[0].get_window_extent(), [box for box in panels if box is not None]


class TestEpisodeDistances:
    def test_the_closest_so_far(self, pong: Episode) -> None:
        shown = measure_episode(pong, away(pong, 7), source=7)
        found = shown.find_closest_so_far(30)
        for step in range(len(pong)):
            past = [each for each in range(step + 1) if abs(each - 7) >= 30]
            slow = min(past, key=lambda each: (shown.distances[each], each), default=-1)
            assert found[step] == slow

    def test_nearest_and_furthest_frames_are_apart_in_time(self, pong: Episode) -> None:
        shown = measure_episode(pong, away(pong))
        nearest, furthest = shown.find_extremes(4, 25)
        assert len(nearest) == len(furthest) == 4
        assert furthest[0] == int(np.argmax(shown.distances))
        assert nearest[0] == 25 + int(np.argmin(shown.distances[25:]))
        for frames in ([0, *nearest], furthest):
            assert np.diff(sorted(frames)).min() >= 25
        assert (np.diff(shown.distances[nearest]) >= 0).all()
        assert (np.diff(shown.distances[furthest]) <= 0).all()

    def test_no_screen_twice(self, invaders: Episode) -> None:
        """The second game is the first one once more, frame by frame."""
        first, second = (invaders.screens[invaders.episode == game] for game in range(2))
        assert (first[100] == second[100]).all()
        for frames in measure_episode(invaders, away(invaders)).find_extremes(6):
            assert len(frames) == 6
            assert len(np.unique(invaders.screens[frames], axis=0)) == 6

    def test_scores_start_again_with_a_game(self, invaders: Episode) -> None:
        score = measure_episode(invaders, away(invaders)).compute_score()
        for game in range(2):
            of = invaders.episode == game
            before = np.cumsum(invaders.rewards[of]) - invaders.rewards[of]
            np.testing.assert_array_equal(score[of], before)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"distances": np.zeros(299)}, r"distances have shape \(299,\) .* has 300 frames"),
            ({"distances": np.zeros((300, 1))}, r"distances have shape \(300, 1\)"),
            ({"distances": np.full(300, np.nan)}, "distance of frame 0 is nan .* diverge"),
            ({"distances": np.where(np.arange(300) == 17, np.inf, 0)}, "of frame 17 is inf"),
            ({"distances": np.where(np.arange(300) == 5, -1.0, 0)}, "frame 5 is -1 and must be"),
            ({"values": np.zeros(3)}, r"values have shape \(3,\)"),
            ({"source": 300}, "source is frame 300 and the episode has frames 0 to 299"),
            ({"source": -1}, "source is -1"),
        ],
    )
    def test_bad_numbers_raise(
        self, pong: Episode, change: dict[str, NDArray[np.float64]], words: str
    ) -> None:
        arguments = {"distances": away(pong), **change}
        distances = arguments.pop("distances")
        with pytest.raises(InputError, match=words):
            views.plot_episode_curve(pong, distances, **arguments)  # type: ignore[arg-type]

    def test_a_single_frame_is_no_picture(self, pong: Episode) -> None:
        rows: dict[str, Any] = {
            field.name: value[:1]
            for field in dataclasses.fields(pong)
            if isinstance(value := getattr(pong, field.name), np.ndarray) and len(value) == 300
        }
        with pytest.raises(InputError, match="the episode has 1 frame and a figure"):
            views.plot_extremes(dataclasses.replace(pong, **rows), [0.0])


class TestCurve:
    def test_black_distances_and_blue_values_on_one_axis(self, pong: Episode) -> None:
        values = 3 - away(pong) / 2
        figure = views.plot_episode_curve(pong, away(pong), values=values, title="Two curves")
        blue, black = figure.axes[0].lines[:2]
        np.testing.assert_array_equal(black.get_ydata(), away(pong))
        np.testing.assert_allclose(heights(blue), away(pong) / 2, rtol=1e-6)
        assert black.get_color() == "black"
        assert len(figure.axes) == 2
        assert figure.get_suptitle() == "Two curves"
        assert views.plot_episode_curve(pong, away(pong)).get_suptitle() == "Pong"

    def test_values_of_another_size_get_an_axis_of_their_own(self, pong: Episode) -> None:
        figure = views.plot_episode_curve(pong, away(pong), values=1000 * pong.values)
        assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == [
            "distance to the source",
            "value difference",
        ]
        assert "value difference (right)" in labels(figure)

    def test_equal_values_stay_on_the_axis(self, pong: Episode) -> None:
        assert len(views.plot_episode_curve(pong, away(pong), values=np.zeros(300)).axes) == 2

    def test_all_that_happens_is_marked(self, invaders: Episode) -> None:
        found = {mark.name: mark.frames for mark in find_events(invaders)}
        assert found["game starts"].tolist() == invaders.starts.tolist()
        assert len(found["game starts"]) == 2
        # Three lives a game.
        assert found["life lost"].tolist() == invaders.life_losses.tolist()
        assert len(found["life lost"]) == 6
        assert "points lost" not in found
        levels = dataclasses.replace(invaders, level_starts=np.array([70, 90]))
        assert "level starts (2)" in labels(views.plot_episode_curve(levels, away(levels)))

    def test_points_by_their_sign(self, pong: Episode) -> None:
        played = dataclasses.replace(pong, rewards=np.zeros(300) + (np.arange(300) == 5) * 1.0)
        assert [mark.format_label() for mark in find_events(played)] == [
            "game starts (1)",
            "points won (1)",
        ]
        found = {mark.name: mark.frames for mark in find_events(pong)}
        assert found["points lost"].tolist() == np.flatnonzero(pong.rewards < 0).tolist()

    def test_the_legend_explains_everything_and_covers_nothing(self, invaders: Episode) -> None:
        figure = views.plot_episode_curve(invaders, away(invaders), source=10)
        assert labels(figure)[:3] == [
            "distance to the source",
            "value difference",
            "the source, step 10",
        ]
        assert set(labels(figure)[3:]) == {mark.format_label() for mark in find_events(invaders)}
        legend, panels = boxes(figure)
        assert not any(legend.overlaps(panel) for panel in panels)


class TestExtremes:
    def test_frames_and_their_attributes(self, pong: Episode) -> None:
        distances = away(pong, 3)
        figure = views.plot_extremes(pong, distances, source=3, num_frames=3, min_gap=25)
        nearest, furthest = measure_episode(pong, distances, source=3).find_extremes(3, 25)
        pictures = [axes for axes in figure.axes if axes.images]
        assert len(pictures) == 7
        for axes, frame in zip(pictures, [3, *nearest, *furthest], strict=True):
            np.testing.assert_array_equal(axes.images[0].get_array(), pong.render(frame))
            assert f"step {frame}" in axes.get_title()
        (bars,) = [axes for axes in figure.axes if axes.patches]
        assert sum(bar.get_height() for bar in bars.patches) == 300  # type: ignore[attr-defined]

    def test_a_short_episode_shows_all_its_frames(self, pong: Episode) -> None:
        figure = views.plot_extremes(pong, away(pong), num_frames=4, min_gap=290)
        assert len([axes for axes in figure.axes if axes.images]) == 3

    def test_bad_counts_raise(self, pong: Episode) -> None:
        with pytest.raises(InputError, match="num_frames is 0"):
            views.plot_extremes(pong, away(pong), num_frames=0)
        with pytest.raises(InputError, match="min_gap is 0"):
            views.plot_extremes(pong, away(pong), min_gap=0)
