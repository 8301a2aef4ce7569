"""What hyperparameters do to a result: one panel a parameter, the others as they were chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views.colours import ACCENT_COLOUR, LINE_COLOUR
from bisimetric.views.convergence import GREY, compute_confidence_interval

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
