"""Clusters of states of a continuous world, drawn where they lie on its floor plan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.views.colours import WALL_COLOUR
from bisimetric.views.layout import Cells, find_cells, find_goals

PALETTE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#b8a000",
    "#000000",
)
"""Okabe and Ito's colours, which all eyes tell apart; the yellow is darker, to show on white."""


def plot_clusters(
    mdp: MDP, points: ArrayLike, panels: Mapping[str, ArrayLike], *, title: str = ""
) -> Figure:
    """Points in the colours of their clusters, on the map of an MDP; one panel a title.

    Args:
        mdp: whose positions make a map.
        points: (n, 2), rows and columns, counted as the positions are.
        panels: by title, the clusters (n,) of the points, 0, 1, ... There are eight colours; the
            ninth cluster has the first one again.
        title: of the whole figure.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> figure = clusters(mdp, mdp.positions, {"by row": mdp.positions[:, 0]})
    >>> len(figure.axes[0].collections[0].get_offsets())
    31
    """
    on_map = find_cells(mdp)
    if on_map is None:
        raise InputError("clusters: the states have no map; give the MDP positions.")
    where = np.asarray(points, np.float64)
    labels = {name: _validate_clusters(name, where, each) for name, each in panels.items()}
    if not labels:
        raise InputError("clusters: there is nothing to draw; give the clusters of the points.")
    height, width = on_map.shape
    across = max(3.4, 0.55 * width)
    figure = Figure(
        figsize=(0.5 + across * len(labels), 1.8 + across * height / width), layout="constrained"
    )
    axes = figure.subplots(1, len(labels), sharey=True, squeeze=False)[0]
    for panel, (name, each) in zip(axes, labels.items(), strict=True):
        _draw_floor(panel, on_map)
        panel.scatter(
            where[:, 1],
            where[:, 0],
            c=to_rgba_array(PALETTE)[each % len(PALETTE)],
            s=5,
            linewidths=0,
            zorder=2,
        )
        _draw_goals(panel, on_map, find_goals(mdp))
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("column")
    axes[0].set_ylabel("row")
    if len(find_goals(mdp)):
        figure.legend(
            handles=axes[0].lines[-1:], loc="outside lower center", frameon=False, fontsize=9
        )
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _validate_clusters(
    name: str, points: NDArray[np.float64], labels: ArrayLike
) -> NDArray[np.int64]:
    found = np.asarray(labels)
    if points.ndim != 2 or points.shape[1] != 2 or found.shape != points.shape[:1]:
        raise InputError(
            f"clusters: in {name!r} there are points {points.shape} and clusters {found.shape}; "
            "give (n, 2) and (n,)."
        )
    return found.astype(np.int64)


def _draw_floor(axes: Axes, on_map: Cells) -> None:
    """White cells, with lines between them, in grey walls."""
    (height, width), (top, left) = on_map.shape, on_map.corner
    axes.set_facecolor(WALL_COLOUR)
    axes.imshow(
        on_map.to_array(np.zeros(len(on_map.rows))),
        cmap=ListedColormap(["white"]),
        interpolation="none",
        extent=(left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5),
    )
    for row, column in zip(on_map.rows + top, on_map.columns + left, strict=True):
        axes.plot(
            column + np.array([-0.5, 0.5, 0.5, -0.5, -0.5]),
            row + np.array([-0.5, -0.5, 0.5, 0.5, -0.5]),
            color="0.85",
            lw=0.6,
            zorder=1,
        )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))


def _draw_goals(axes: Axes, on_map: Cells, states: NDArray[np.int64]) -> None:
    rows = on_map.rows[states] + on_map.corner[0]
    columns = on_map.columns[states] + on_map.corner[1]
    # In a corner of the cell: the points lie around its centre.
    axes.plot(
        columns + 0.38,
        rows - 0.36,
        "*",
        mfc="white",
        mec="black",
        mew=0.6,
        ms=7,
        zorder=3,
        label="goal",
    )
