"""Training curves of agents and metrics, one column per environment, and hyperparameter sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    Figure,
    annotate_last,
    draw_level,
    draw_mean,
)

AGENT_MEASURES = {"score": "mean score of\ntraining episodes", "loss": "loss"}
METRIC_MEASURES = {
    "loss": "loss",
    "distance": "mean distance",
    "correlation": "correlation with\nexact distances",
    "error": "relative\nmean error",
}
"""The measures of a history that are drawn, with their labels; others are ignored."""

MAX_DOTS = 40
"""Lines of at most so many points have markers."""
MAX_COLUMNS = 3
AXIS_MARGIN = 0.4
"""How far the axis of a sweep extends beyond the seeds, as a fraction of their range."""

MEAN_STYLE: dict[str, Any] = {"color": LINE_COLOUR, "lw": 1.0, "marker": "o", "ms": 5}
SEED_STYLE: dict[str, Any] = {"color": GREY, "ls": "none", "marker": "o", "ms": 3.2, "mec": "none"}
FAILED_STYLE: dict[str, Any] = {
    "color": "#d55e00",
    "ls": "none",
    "marker": "x",
    "ms": 6,
    "mew": 1.6,
}
CHOSEN_STYLE: dict[str, Any] = {"color": ACCENT_COLOUR, "alpha": 0.12, "lw": 0, "zorder": 0}

History = Mapping[str, ArrayLike]


def plot_agent_curve(
    histories: Mapping[str, History],
    *,
    evaluation_scores: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """Plot score and loss of an agent over its environment steps, one column per environment.

    With several seeds a line is the mean, its shade the 95% confidence interval of that mean.

    Args:
        histories: by environment, the measurements: `step` (n,), `score` and `loss`, (n,) or
            (seeds, n), NaN where there is none.
        evaluation_scores: by environment, the mean score of an evaluation, to mark; other episodes
            and often less exploration than in training.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is nothing to draw, or the shapes do not fit.

    >>> history = {"step": [1, 2], "score": [-21.0, 18.0]}
    >>> figure = plot_agent_curve({"CartPole": history}, evaluation_scores={"CartPole": 18})
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['mean score of\\ntraining episodes']
    """
    return _plot_histories(
        "plot_agent_curve",
        histories,
        AGENT_MEASURES,
        "environment steps",
        title,
        evaluation_scores or {},
    )


def plot_metric_curve(histories: Mapping[str, History], *, title: str = "") -> Figure:
    """Plot the loss and the distances of a metric over its updates, one column per environment.

    With several seeds a line is the mean, its shade the 95% confidence interval of that mean.

    Args:
        histories: by environment, the measurements, such as `LearnedDistance.history`: `step` (n,),
            and any of `loss`, `distance`, `correlation` and `error`, (n,) or (seeds, n).
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is nothing to draw, or the shapes do not fit.

    >>> history = {"step": [1, 2], "loss": [4.0, 2.0], "distance": [1, 2]}
    >>> [axes.get_ylabel() for axes in plot_metric_curve({"CartPole": history}).axes]
    ['loss', 'mean distance']
    """
    return _plot_histories("plot_metric_curve", histories, METRIC_MEASURES, "updates", title, {})


def _plot_histories(
    caller: str,
    histories: Mapping[str, History],
    measures: Mapping[str, str],
    x_label: str,
    title: str,
    evaluation_scores: Mapping[str, float],
) -> Figure:
    samples = {
        environment: _validate_history(caller, environment, history, measures)
        for environment, history in histories.items()
    }
    rows = [name for name in measures if any(name in each for each in samples.values())]
    if not rows:
        raise InputError(
            f"{caller}: there is nothing to draw; give histories with {' or '.join(measures)}."
        )
    figure = Figure(figsize=(0.8 + 3.6 * len(samples), 0.8 + 2.2 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(samples), sharex="col", squeeze=False)
    for column, (environment, each) in zip(panels.T, samples.items(), strict=True):
        drawn = [row for row, name in enumerate(rows) if name in each]
        for row, (axes, name) in enumerate(zip(column, rows, strict=True)):
            if row not in drawn:
                axes.remove()
                continue
            _draw_measure(axes, each["step"][0], each[name])
            _format_axes(axes, name, each[name])
            if name == "score" and environment in evaluation_scores:
                mean = evaluation_scores[environment]
                draw_level(axes, mean, f"evaluation: {_format_number(mean)}")
        if drawn:
            column[drawn[0]].set_title(environment, fontsize=10)
            _format_step_axis(column[drawn[-1]], each["step"][0], x_label)
    for name, panel_row in zip(rows, panels, strict=True):
        first = next(column for column, each in enumerate(samples.values()) if name in each)
        panel_row[first].set_ylabel(measures[name])
    figure.align_ylabels()
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _validate_history(
    caller: str, environment: str, history: History, measures: Mapping[str, str]
) -> dict[str, NDArray[np.float64]]:
    """Return the measures to draw, one row per seed; measures without any number are omitted."""
    steps = np.asarray(history.get("step", ()), np.float64)
    if steps.ndim != 1 or not len(steps) or steps[0] < 0 or (np.diff(steps) <= 0).any():
        raise InputError(
            f"{caller}: the history of {environment!r} needs a 'step', increasing numbers (n,)."
        )
    samples = {"step": steps[None]}
    for name in measures:
        if name not in history:
            continue
        rows = np.atleast_2d(np.asarray(history[name], np.float64))
        if rows.ndim != 2 or not len(rows) or rows.shape[1:] != steps.shape:
            raise InputError(
                f"{caller}: {name!r} of {environment!r} has shape {np.shape(history[name])} and "
                f"must have one number, or one per seed, for each of {steps.size} steps."
            )
        if np.isfinite(rows).any():
            samples[name] = rows
    return samples


def _draw_measure(axes: Axes, steps: NDArray[np.float64], samples: NDArray[np.float64]) -> None:
    """Draw the mean over the seeds that have a number, shaded where all of them do."""
    known = np.isfinite(samples)
    style: dict[str, Any] = {"color": LINE_COLOUR, "lw": 1.4}
    if known.any(axis=0).sum() <= MAX_DOTS:
        style |= {"marker": "o", "ms": 3}
    complete = samples[:, known.all(axis=0)]
    lower = min(float(complete.min(initial=0.0)), 0.0)
    draw_mean(axes, steps, samples, None, style, lower=lower, partial=True)
    x, mean = (np.asarray(data, np.float64) for data in axes.lines[-1].get_data())
    annotate_last(axes, _format_number(float(mean[-1])), (float(x[-1]), float(mean[-1])))


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
    """Abbreviate thousands and millions.

    >>> [_format_short(number) for number in (0, 500, 2_500, 150_000, 10_000_000)]
    ['0', '500', '2.5k', '150k', '10M']
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{letter}"
    return f"{number:g}"


def _format_number(number: float) -> str:
    """Format three significant digits, and all digits of the integer part.

    >>> [_format_number(number) for number in (0.12345, -20.04, 1404.7)]
    ['0.123', '−20', '1,405']
    """
    written = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
    return written.replace("-", "\N{MINUS SIGN}")


def plot_sweep(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    chosen: Mapping[str, str] | None = None,
    label: str = "result",
    title: str = "",
) -> Figure:
    """Plot results over the values of hyperparameters, with 95% confidence intervals over seeds.

    A large dot is the mean of the seeds that have a result, its bar the confidence interval, and
    small dots are the seeds. A cross at the bottom marks failed seeds. A single seed has no bar.
    The axis spans the seeds; a bar that is much wider than their range is cut off.

    Args:
        panels: by hyperparameter, and then by its value, in the order to draw, the results
            (seeds,); NaN is a failed run.
        chosen: by hyperparameter, the selected value.
        label: of the results.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is nothing to draw, results are not (seeds,), or a chosen value is not
            among the values.

    >>> figure = plot_sweep({"batch": {"4": [0.1, 0.3], "8": [0.5, 0.5]}}, chosen={"batch": "8"})
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.2, 0.5]
    """
    results_by_panel = {
        name: {value: _validate_results(name, value, each) for value, each in results.items()}
        for name, results in panels.items()
        if results
    }
    if not results_by_panel:
        raise InputError(
            "plot_sweep: there is nothing to draw; give the results of one hyperparameter."
        )
    chosen = chosen or {}
    for name, value in chosen.items():
        if name in results_by_panel and value not in results_by_panel[name]:
            raise InputError(
                f"plot_sweep: chosen is {value!r} for {name!r} and must be one of its values, "
                f"{', '.join(results_by_panel[name])}."
            )
    columns = min(len(results_by_panel), MAX_COLUMNS)
    rows = -(-len(results_by_panel) // columns)
    figure = Figure(figsize=(0.8 + 3.5 * columns, 0.9 + 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for index, (panel, (name, results)) in enumerate(
        zip(axes, results_by_panel.items(), strict=False)
    ):
        _draw_sweep_panel(panel, results, chosen.get(name))
        panel.set_xlabel(name)
        if index % columns == 0:
            panel.set_ylabel(label)
    for panel in axes[len(results_by_panel) :]:
        panel.remove()
    if title:
        figure.suptitle(title, fontsize=11)
    all_results = [each for results in results_by_panel.values() for each in results.values()]
    everything = np.concatenate(all_results)
    if np.isfinite(everything).any():
        low, high = float(np.nanmin(everything)), float(np.nanmax(everything))
        margin = AXIS_MARGIN * (high - low) or 0.5
        axes[0].set_ylim(low - margin, high + margin)
    _add_sweep_legend(figure, all_results, bool(chosen.keys() & results_by_panel))
    return figure


def _validate_results(name: str, value: str, results: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(results, np.float64)
    if array.ndim != 1 or not len(array) or np.isinf(array).any():
        raise InputError(
            f"plot_sweep: the results of {name!r} at {value} have shape {array.shape} and must be "
            "one number per seed, or NaN for a failed run."
        )
    return array


def _draw_sweep_panel(
    axes: Axes, results_by_value: Mapping[str, NDArray[np.float64]], chosen: str | None
) -> None:
    known = [results[np.isfinite(results)] for results in results_by_value.values()]
    means = [float(each.mean()) if len(each) else np.nan for each in known]
    axes.plot(np.arange(len(results_by_value)), means, **MEAN_STYLE, zorder=3)
    for index, (each, results) in enumerate(zip(known, results_by_value.values(), strict=True)):
        # Beside the mean, so that its bar hides none of them.
        axes.plot(np.full(len(each), index + 0.17), each, **SEED_STYLE)
        if len(each) > 1:
            half_width = float(compute_confidence_interval(each)[1])
            axes.errorbar(
                index, means[index], half_width, color=LINE_COLOUR, lw=1.4, capsize=3, zorder=2
            )
        if len(each) < len(results):
            axes.plot(index, 0.03, transform=axes.get_xaxis_transform(), **FAILED_STYLE)
    if chosen is not None:
        index = list(results_by_value).index(chosen)
        axes.axvspan(index - 0.4, index + 0.4, **CHOSEN_STYLE)
    axes.set_xticks(range(len(results_by_value)), list(results_by_value))
    axes.set_xlim(-0.5, len(results_by_value) - 0.5)
    if max(map(len, results_by_value)) * len(results_by_value) > 30:
        axes.tick_params(axis="x", rotation=40)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92", lw=0.7)
    axes.set_axisbelow(True)


def _add_sweep_legend(figure: Figure, results: list[NDArray[np.float64]], chosen: bool) -> None:
    """Add the entries that occur in the figure, below it."""
    several = any(np.isfinite(each).sum() > 1 for each in results)
    handles: list[Artist] = [
        Line2D([], [], **MEAN_STYLE, label="mean, 95% confidence interval" if several else "mean"),
        Line2D([], [], **SEED_STYLE, label="one seed"),
    ]
    if chosen:
        handles.append(Patch(**CHOSEN_STYLE, label="chosen"))
    if any(np.isnan(each).any() for each in results):
        handles.append(Line2D([], [], **FAILED_STYLE, label="failed seeds"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
