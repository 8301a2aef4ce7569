"""Panels of lines: means over keys with their intervals, by label, in one look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.errors import InputError
from bisimetric.views.clusters import PALETTE
from bisimetric.views.error_curves import add_legend_below

MARKERS = "osD^vP"
PANEL_HEIGHT = 2.9
"""Inches of a panel."""


def plot_mean_panels(
    caller: str,
    x: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    axis_labels: tuple[str, str],
    title: str = "",
    columns: int | None = None,
    width: float = 4.0,
    sharey: bool = False,
) -> tuple[Figure, NDArray[Any]]:
    """A figure with one panel a title and one line a label, and its axes.

    Args:
        what: who draws, for the error where there is nothing to draw.
        counts: (n,), rising.
        panels: by title, and then by label, numbers (keys, n), NaN where there are none. A line is
            their mean, its shade the 95% interval.
        names: of the axis below and of the one at the left.
        columns: panels in a row; all, if not given.
        width: inches of a panel.
    """
    if not any(panels.values()):
        raise InputError(f"{caller}: there is nothing to draw; give at least one line.")
    where = np.asarray(x, np.float64)
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    across = columns or len(panels)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(0.6 + width * across, 0.9 + PANEL_HEIGHT * down), layout="constrained")
    axes = figure.subplots(down, across, sharex=True, sharey=sharey, squeeze=False).ravel()
    for panel, (name, lines) in zip(axes, panels.items(), strict=False):
        for label, numbers in lines.items():
            table = _validate_rows(caller, name, label, numbers, where.size)
            _draw_panel_mean(panel, where, table, label, labels.index(label))
        panel.set_title(name, fontsize=10)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[-across:]:
        panel.set_xlabel(axis_labels[0])
    for panel in axes[::across]:
        panel.set_ylabel(axis_labels[1])
    if title:
        figure.suptitle(title, fontsize=11)
    add_legend_below(figure, labels)
    return figure, axes


def _validate_rows(
    caller: str, name: str, label: str, values: ArrayLike, size: int
) -> NDArray[np.float64]:
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != size:
        raise InputError(
            f"{caller}: the numbers of {label!r} in {name!r} have shape {table.shape} and must have "
            f"one row a key and {size} columns."
        )
    return table


def _draw_panel_mean(
    axes: Axes, x: NDArray[np.float64], samples: NDArray[np.float64], label: str, index: int
) -> None:
    """The mean of numbers (keys, n) and its interval; the same place, the same look."""
    shown = np.isfinite(samples).all(axis=0)
    colour = PALETTE[index % len(PALETTE)]
    style: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "ms": 4.5, "lw": 1.6}
    if len(samples) > 1:
        mean, half = compute_confidence_interval(samples[:, shown])
        axes.fill_between(x[shown], mean - half, mean + half, color=colour, alpha=0.2, lw=0)
    axes.plot(x[shown], samples[:, shown].mean(axis=0), color=colour, label=label, **style)
