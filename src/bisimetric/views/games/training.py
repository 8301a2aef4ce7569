"""How agents and their metrics were trained: one column a game, one row a measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views.colours import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.convergence import compute_confidence_interval, draw_level

AGENT_MEASURES = {"score": "score of a game", "loss": "loss"}
METRIC_MEASURES = {
    "loss": "loss",
    "distance": "mean distance",
    "correlation": "correlation with\nexact distances",
    "error": "mean error\nas a share",
}
"""What is drawn of a history, and what it is called; all else in it is left out."""

MAX_DOTS = 40
"""Numbers that are drawn as dots on the line."""

History = Mapping[str, ArrayLike]


def plot_agent_curve(
    histories: Mapping[str, History],
    *,
    target_scores: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """The score of an agent and its loss over the steps of its training, one column a game.

    Args:
        histories: by game, what was measured: `step` (n,), `score` and `loss`, (n,) or (seeds, n),
            NaN where nothing was.
        aims: by game, a score to mark.
        title: of the whole figure.

    Of several seeds the line is the mean, its shade the 95% interval of that mean.

    >>> figure = agent_curve({"Pong": {"step": [1, 2], "score": [-21.0, 18.0]}}, aims={"Pong": 18})
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['score of a game']
    """
    return _plot_histories(
        "agent_curve", histories, AGENT_MEASURES, "steps of the agent", title, target_scores or {}
    )


def plot_metric_curve(histories: Mapping[str, History], *, title: str = "") -> Figure:
    """The loss of a metric and its distances over updates, one column a game.

    Args:
        histories: by game, what was measured, as in `Learned.history`: `step` (n,), and `loss`,
            `distance`, `correlation` and `error`, those there are, (n,) or (seeds, n).
        title: of the whole figure.

    Of several seeds the line is the mean, its shade the 95% interval of that mean.

    >>> figure = metric_curve({"Pong": {"step": [1, 2], "loss": [4.0, 2.0], "distance": [1, 2]}})
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['loss', 'mean distance']
    """
    return _plot_histories("metric_curve", histories, METRIC_MEASURES, "updates", title, {})


def _plot_histories(
    caller: str,
    histories: Mapping[str, History],
    measures: Mapping[str, str],
    x_label: str,
    title: str,
    target_scores: Mapping[str, float],
) -> Figure:
    checked = {
        game: _validate_history(caller, game, found, measures) for game, found in histories.items()
    }
    rows = [name for name in measures if any(name in found for found in checked.values())]
    if not rows:
        raise InputError(
            f"{caller}: there is nothing to draw; give histories with {' or '.join(measures)}."
        )
    figure = Figure(figsize=(0.8 + 3.6 * len(checked), 0.8 + 2.2 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(checked), sharex="col", squeeze=False)
    for column, (game, found) in zip(panels.T, checked.items(), strict=True):
        drawn = [place for place, name in enumerate(rows) if name in found]
        for place, (axes, name) in enumerate(zip(column, rows, strict=True)):
            if place not in drawn:
                axes.remove()
                continue
            _draw_mean(axes, found["step"][0], found[name])
            _format_axes(axes, name, found[name])
            if name == "score" and game in target_scores:
                draw_level(axes, target_scores[game], f"aim {target_scores[game]:,g}")
        if drawn:
            column[drawn[0]].set_title(game, fontsize=10)
            _format_step_axis(column[drawn[-1]], found["step"][0], x_label)
    for name, row in zip(rows, panels, strict=True):
        first = next(place for place, found in enumerate(checked.values()) if name in found)
        row[first].set_ylabel(measures[name])
    figure.align_ylabels()
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _validate_history(
    caller: str, game: str, history: History, measures: Mapping[str, str]
) -> dict[str, NDArray[np.float64]]:
    """What can be drawn of a history, one row a seed; measures without any number are left out."""
    steps = np.asarray(history.get("step", ()), np.float64)
    if steps.ndim != 1 or not len(steps) or steps[0] < 0 or (np.diff(steps) <= 0).any():
        raise InputError(
            f"{caller}: the history of {game!r} needs a 'step' that tells when, a row of rising "
            "numbers."
        )
    found = {"step": steps[None]}
    for name in measures:
        if name not in history:
            continue
        rows = np.atleast_2d(np.asarray(history[name], np.float64))
        if rows.ndim != 2 or not len(rows) or rows.shape[1:] != steps.shape:
            raise InputError(
                f"{caller}: {name!r} of {game!r} has shape {np.shape(history[name])} and must have "
                f"one number, or one a seed, for each of {steps.size} steps."
            )
        if np.isfinite(rows).any():
            found[name] = rows
    return found


def _draw_mean(axes: Axes, steps: NDArray[np.float64], samples: NDArray[np.float64]) -> None:
    """The mean of those seeds that have a number, and its interval where all have one."""
    known, whole = (test(np.isfinite(samples), axis=0) for test in (np.any, np.all))
    if len(samples) > 1 and whole.any():
        mean, half = compute_confidence_interval(samples[:, whole])
        low = np.maximum(mean - half, min(float(samples[:, whole].min()), 0.0))
        axes.fill_between(steps[whole], low, mean + half, color=LINE_COLOUR, alpha=0.2, lw=0)
    marker: dict[str, Any] = {"marker": "o", "ms": 3} if known.sum() <= MAX_DOTS else {}
    mean = np.nanmean(samples[:, known], axis=0)
    axes.plot(steps[known], mean, color=LINE_COLOUR, lw=1.4, **marker)
    axes.annotate(
        _format_number(float(mean[-1])),
        (steps[known][-1], mean[-1]),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=ACCENT_COLOUR,
        fontsize=9,
    )


def _format_axes(axes: Axes, name: str, samples: NDArray[np.float64]) -> None:
    high = float(np.nanmax(samples))
    if name == "correlation":
        axes.set_ylim(min(float(np.nanmin(samples)), 0.0), 1.05)
    elif name != "score":
        axes.set_ylim(0, 1.08 * high if high > 0 else 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: _format_number(number)))
    axes.spines[["top", "right"]].set_visible(False)


def _format_step_axis(axes: Axes, steps: NDArray[np.float64], x_label: str) -> None:
    axes.set_xlim(0, float(steps[-1]) or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: _format_short(number)))
    axes.tick_params(labelbottom=True)
    axes.set_xlabel(x_label)


def _format_short(number: float) -> str:
    """Thousands and millions by a letter.

    >>> [_short(number) for number in (0, 500, 2_500, 150_000, 10_000_000)]
    ['0', '500', '2.5k', '150k', '10M']
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{letter}"
    return f"{number:g}"


def _format_number(number: float) -> str:
    """Three digits, and all those in front of the point.

    >>> [_number(number) for number in (0.12345, -20.04, 1404.7)]
    ['0.123', '−20', '1,405']
    """
    written = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
    return written.replace("-", "\N{MINUS SIGN}")
