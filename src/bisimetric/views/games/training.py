"""How agents and their metrics were trained: one column a game, one row a measure.

What hyperparameters do to a result: one panel a parameter, the others as they were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.error_curves import GREY, draw_level

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


MAX_COLUMNS = 3
AXIS_MARGIN = 0.4
"""How far the axis goes beyond the seeds, as a share of how far they are apart."""


def plot_sweep(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    chosen: Mapping[str, str] | None = None,
    label: str = "result",
    title: str = "",
) -> Figure:
    """Results over the values of parameters, with the 95% interval of their mean over seeds.

    Args:
        panels: by parameter, and then by its value, in the order to draw, the results (seeds,) of
            all seeds; NaN is a run that came to nothing.
        marked: by parameter, the value that was chosen.
        label: what the results are.
        title: of the whole figure.

    A large dot is the mean of those seeds that have a result, its bar the interval, small dots the
    seeds. A cross at the bottom stands for seeds without a result. A single seed has no bar. The
    axis spans the seeds; a bar that is much wider than they are spread runs out of the plot.

    >>> figure = sweep({"batch": {"4": [0.1, 0.3], "8": [0.5, 0.5]}}, marked={"batch": "8"})
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.2, 0.5]
    """
    tables = {
        name: {value: _validate_results(name, value, each) for value, each in found.items()}
        for name, found in panels.items()
        if found
    }
    if not tables:
        raise InputError("sweep: there is nothing to draw; give the results of one parameter.")
    chosen = chosen or {}
    for name, value in chosen.items():
        if name in tables and value not in tables[name]:
            raise InputError(
                f"sweep: {value!r} is marked as chosen for {name!r} and is none of its values, "
                f"{', '.join(tables[name])}."
            )
    columns = min(len(tables), MAX_COLUMNS)
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(0.8 + 3.5 * columns, 0.9 + 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for place, (panel, (name, found)) in enumerate(zip(axes, tables.items(), strict=False)):
        _draw_sweep_panel(panel, found, chosen.get(name))
        panel.set_xlabel(name)
        if place % columns == 0:
            panel.set_ylabel(label)
    for panel in axes[len(tables) :]:
        panel.remove()
    if title:
        figure.suptitle(title, fontsize=11)
    results = [each for found in tables.values() for each in found.values()]
    every = np.concatenate(results)
    if np.isfinite(every).any():
        low, high = float(np.nanmin(every)), float(np.nanmax(every))
        room = AXIS_MARGIN * (high - low) or 0.5
        axes[0].set_ylim(low - room, high + room)
    _add_sweep_legend(figure, results, bool(chosen.keys() & tables))
    return figure


def _validate_results(name: str, value: str, results: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(results, np.float64)
    if found.ndim != 1 or not len(found) or np.isinf(found).any():
        raise InputError(
            f"sweep: the results of {name!r} at {value} have shape {found.shape} and must be a "
            "row of numbers, one a seed, or NaN where a run came to nothing."
        )
    return found


def _draw_sweep_panel(
    axes: Axes, results_by_value: Mapping[str, NDArray[np.float64]], chosen: str | None
) -> None:
    known = [results[np.isfinite(results)] for results in results_by_value.values()]
    means = [float(each.mean()) if len(each) else np.nan for each in known]
    axes.plot(np.arange(len(results_by_value)), means, **_mean_style(), zorder=3)
    for place, (each, results) in enumerate(zip(known, results_by_value.values(), strict=True)):
        # Beside the mean, so that its bar hides none of them.
        axes.plot(np.full(len(each), place + 0.17), each, **_seed_style())
        if len(each) > 1:
            half = float(compute_confidence_interval(each)[1])
            axes.errorbar(place, means[place], half, color=LINE_COLOUR, lw=1.4, capsize=3, zorder=2)
        if len(each) < len(results):
            axes.plot(place, 0.03, transform=axes.get_xaxis_transform(), **_failed_style())
    if chosen is not None:
        place = list(results_by_value).index(chosen)
        axes.axvspan(place - 0.4, place + 0.4, **_chosen_style())
    axes.set_xticks(range(len(results_by_value)), list(results_by_value))
    axes.set_xlim(-0.5, len(results_by_value) - 0.5)
    if max(map(len, results_by_value)) * len(results_by_value) > 30:
        axes.tick_params(axis="x", rotation=40)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92", lw=0.7)
    axes.set_axisbelow(True)


def _mean_style() -> dict[str, Any]:
    return {"color": LINE_COLOUR, "lw": 1.0, "marker": "o", "ms": 5}


def _seed_style() -> dict[str, Any]:
    return {"color": GREY, "ls": "none", "marker": "o", "ms": 3.2, "mec": "none"}


def _failed_style() -> dict[str, Any]:
    return {"color": "#d55e00", "ls": "none", "marker": "x", "ms": 6, "mew": 1.6}


def _chosen_style() -> dict[str, Any]:
    return {"color": ACCENT_COLOUR, "alpha": 0.12, "lw": 0, "zorder": 0}


def _add_sweep_legend(figure: Figure, results: list[NDArray[np.float64]], chosen: bool) -> None:
    """What occurs in the figure, below it."""
    several = any(np.isfinite(each).sum() > 1 for each in results)
    handles: list[Artist] = [
        Line2D([], [], **_mean_style(), label="mean, 95% interval" if several else "mean"),
        Line2D([], [], **_seed_style(), label="one seed"),
    ]
    if chosen:
        handles.append(Patch(**_chosen_style(), label="chosen"))
    if any(np.isnan(each).any() for each in results):
        handles.append(Line2D([], [], **_failed_style(), label="seeds that came to nothing"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
