"""Training curves of agents and metrics, and hyperparameter sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from bisimetric import views
from bisimetric.errors import InputError


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def heights(line: Line2D) -> NDArray[np.float64]:
    return np.asarray(line.get_ydata(), np.float64)


def boxes(figure: Figure) -> tuple[Bbox, list[Bbox]]:
    """Where the legend is, and where the panels with all their words are."""
    figure.draw_without_rendering()
    panels = [axes.get_tightbbox() for axes in figure.axes]
    return figure.legends[0].get_window_extent(), [box for box in panels if box is not None]


class TestTraining:
    def test_scores_and_losses_by_environment(self) -> None:
        steps = np.arange(1, 6) * 1000
        history: dict[str, Any] = {
            "step": steps,
            "score": [np.nan, 1, 2, 3, 4],
            "loss": np.ones(5),
            "games": steps,
        }
        figure = views.plot_agent_curve(
            {"Pong": history, "Asterix": history}, evaluation_scores={"Pong": 18}
        )
        assert [axes.get_title() for axes in figure.axes] == ["Pong", "Asterix", "", ""]
        line, aim = figure.axes[0].lines
        assert np.asarray(line.get_data()).tolist() == [steps[1:].tolist(), [1, 2, 3, 4]]
        assert list(np.asarray(aim.get_ydata())) == [18, 18]
        assert figure.axes[2].get_ylabel() == "loss"
        assert len(figure.axes[1].lines) == 1

    def test_seeds_have_a_mean_and_an_interval(self) -> None:
        history: dict[str, Any] = {"step": [1, 2], "loss": [[9.0, 1.0], [7.0, np.nan]]}
        figure = views.plot_metric_curve({"Pong": history})
        (axes,) = figure.axes
        assert np.asarray(axes.lines[0].get_ydata()).tolist() == [8.0, 1.0]
        corners = np.asarray(axes.collections[0].get_paths()[0].vertices)
        assert corners[:, 1].max() == pytest.approx(8 + 12.706, abs=0.01)
        assert corners[:, 0].max() == 1

    def test_an_environment_without_a_measure_has_no_panel(self) -> None:
        figure = views.plot_metric_curve(
            {
                "Pong": {"step": [1, 2], "loss": [1.0, 2.0]},
                "Asterix": {"step": [1, 2], "distance": [1.0, 2.0]},
            }
        )
        figure.draw_without_rendering()
        assert [(axes.get_title(), axes.get_ylabel()) for axes in figure.axes] == [
            ("Pong", "loss"),
            ("Asterix", "mean distance"),
        ]

    @pytest.mark.parametrize(
        ("history", "words"),
        [
            ({"loss": [1.0]}, "agent_curve: the history of 'Pong' needs a 'step'"),
            ({"step": [2, 1], "loss": [1.0, 2.0]}, "increasing numbers"),
            ({"step": [1, 2], "loss": [1.0]}, r"'loss' of 'Pong' has shape \(1,\)"),
            ({"step": [1, 2], "loss": [np.nan, np.nan]}, "nothing to draw; give .* score or loss"),
            ({"step": [1, 2]}, "nothing to draw"),
        ],
    )
    def test_bad_histories(self, history: dict[str, list[float]], words: str) -> None:
        with pytest.raises(InputError, match=words):
            views.plot_agent_curve({"Pong": history})

    def test_no_environment_at_all(self) -> None:
        with pytest.raises(InputError, match="nothing to draw"):
            views.plot_metric_curve({})


PANELS = {
    "batch": {"4": [0.1, 0.3], "8": [0.5, np.nan]},
    "layers": {"1": [0.2], "2": [0.4], "3": [np.nan]},
}


class TestSweep:
    def test_means_intervals_and_failed_runs(self) -> None:
        figure = views.plot_sweep(PANELS, chosen={"batch": "8"}, label="fit", title="All")
        batch, layers = figure.axes
        np.testing.assert_allclose(heights(batch.lines[0]), [0.2, 0.5])
        np.testing.assert_allclose(heights(layers.lines[0]), [0.2, 0.4, np.nan])
        assert [tick.get_text() for tick in layers.get_xticklabels()] == ["1", "2", "3"]
        assert (batch.get_xlabel(), batch.get_ylabel(), layers.get_ylabel()) == ("batch", "fit", "")
        # Only one value has two seeds, and so an interval: 12.7 times 0.1.
        (bar,) = [each for panel in figure.axes for each in panel.containers]
        segment = np.asarray(bar[2][0].get_segments()[0])
        assert np.diff(segment[:, 1])[0] == pytest.approx(2 * 12.706 * 0.1, rel=1e-3)
        assert labels(figure) == [
            "mean, 95% confidence interval",
            "one seed",
            "chosen",
            "failed seeds",
        ]
        legend, panels = boxes(figure)
        assert not any(legend.overlaps(panel) for panel in panels)

    def test_the_axis_spans_the_seeds(self) -> None:
        low, high = views.plot_sweep(PANELS).axes[0].get_ylim()
        assert -0.2 < low < 0.1
        assert 0.5 < high < 0.8

    @pytest.mark.parametrize(
        ("panels", "marked", "words"),
        [
            ({}, {}, "nothing to draw"),
            ({"batch": {}}, {}, "nothing to draw"),
            ({"batch": {"4": []}}, {}, r"'batch' at 4 have shape \(0,\)"),
            ({"batch": {"4": [np.inf]}}, {}, "must be one number per seed"),
            ({"batch": {"4": [1.0]}}, {"batch": "5"}, "chosen is '5' .* one of its values, 4"),
        ],
    )
    def test_bad_input(
        self, panels: dict[str, dict[str, list[float]]], marked: dict[str, str], words: str
    ) -> None:
        with pytest.raises(InputError, match=words):
            views.plot_sweep(panels, chosen=marked)
