"""The picture of a training run: what is drawn, on which axes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from bisimetric import InputError, views

STEPS = np.arange(1, 11) * 100


def read_lines(axes: Axes, label: str) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(line.get_ydata()) for line in axes.lines if line.get_label() == label]


def test_a_panel_a_measure_in_a_fixed_order() -> None:
    row = np.linspace(1.0, 2.0, len(STEPS))
    history = {"mine": row, "correlation": row / 2, "loss": row, "error": row, "step": STEPS}
    figure = views.plot_training_curve(history, title="all")
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == ["loss", "largest error", "correlation with the exact distance", "mine"]
    for panel in figure.axes:
        assert panel.get_xlim() == (0, STEPS[-1])
        assert len(read_lines(panel, "_mean")) == 1
        assert not read_lines(panel, "_seed")
    np.testing.assert_array_equal(read_lines(figure.axes[3], "_mean")[0], row)
    # Below one another: only the lower panels say what the axis is.
    assert [panel.get_xlabel() for panel in figure.axes] == ["", "", "updates", "updates"]
    assert [text.get_text() for text in figure.axes[3].texts] == ["2"]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
def test_no_empty_panel_is_left(count: int) -> None:
    history = {f"m{i}": np.ones(3) for i in range(count)}
    figure = views.plot_training_curve({"step": [1, 2, 3], **history})
    assert len(figure.axes) == count
    assert [panel.get_xlabel() for panel in figure.axes].count("updates") == min(count, 3)


def test_seeds_are_thin_lines_and_their_mean_a_thick_one() -> None:
    losses = np.vstack([np.full(10, 1.0), np.full(10, 3.0)])
    losses[1, 0] = np.nan
    (panel,) = views.plot_training_curve({"step": STEPS, "loss": losses}).axes
    assert len(read_lines(panel, "_seed")) == 2
    (mean,) = read_lines(panel, "_mean")
    assert np.isnan(mean[0])
    np.testing.assert_array_equal(mean[1:], 2.0)


@pytest.mark.parametrize(
    ("loss", "scale"),
    [([1.0, 1e-3], "log"), ([1.0, 0.5], "linear"), ([1.0, 0.0], "linear"), ([0.0, 0.0], "linear")],
)
def test_decades_are_drawn_on_a_logarithmic_axis(loss: list[float], scale: str) -> None:
    (panel,) = views.plot_training_curve({"step": [1, 2], "loss": loss}).axes
    assert panel.get_yscale() == scale
    low, high = panel.get_ylim()
    assert low <= min(loss) <= max(loss) < high
    assert low == 0 or scale == "log"


def test_one_record_and_negative_numbers_are_drawn(tmp_path: Any) -> None:
    figure = views.plot_training_curve({"step": [5], "correlation": [-0.5]})
    assert figure.axes[0].get_ylim()[0] < -0.5
    views.save_figure(figure, tmp_path / "c.png")


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ({"loss": [1.0]}, "has no 'step'"),
        ({"step": [1, 2]}, "only updates"),
        ({"step": [2, 1], "loss": [1, 1]}, "increasing numbers above 0"),
        ({"step": [0, 1], "loss": [1, 1]}, "increasing numbers above 0"),
        ({"step": [], "loss": []}, "increasing numbers above 0"),
        ({"step": [1, 2], "loss": [1, 2, 3]}, r"'loss' has shape \(3,\) .* each of 2 updates"),
        ({"step": [1, 2], "loss": np.ones((1, 1, 2))}, "'loss' has shape"),
        ({"step": [1, 2], "error": [np.nan, np.nan]}, "'error' has no number to draw"),
    ],
)
def test_a_history_that_cannot_be_drawn(history: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        views.plot_training_curve(history)
