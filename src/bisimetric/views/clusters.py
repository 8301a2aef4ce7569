"""Clusters on the map of an MDP: of points, of aggregated states, and the regret they cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    PALETTE,
    ZERO_COLOUR,
    Figure,
    add_marker_legend,
    build_marker,
    draw_level,
)
from bisimetric.views.class_colours import CLASS_PALETTE, assign_colours, find_neighbours
from bisimetric.views.layout import Cells, find_goals, require_cells, typeset
from bisimetric.views.maps import (
    MAX_NUMBERED_CELLS,
    draw_cells,
    draw_goals,
    is_light,
    place_ticks,
    set_ticks,
)

if TYPE_CHECKING:
    from bisimetric.uses import Aggregation, AggregationCurve

MANY_STATES = 60
"""From so many states on the axis is logarithmic; curves of more points have no markers."""


def plot_clusters(
    mdp: MDP, points: ArrayLike, panels: Mapping[str, ArrayLike], *, title: str = ""
) -> Figure:
    """Plot points in the colours of their clusters on the map of an MDP, one panel per title.

    Args:
        mdp: whose positions define the map.
        points: (n, 2), rows and columns, counted as the positions are.
        panels: by title, the clusters (n,) of the points, 0, 1, ... Twelve colours are reused
            from the thirteenth cluster on, for clusters that have no point in a cell in common or
            in neighbouring cells; twelve more are used where those do not suffice.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: the MDP has no map, there is no panel, or the shapes do not fit.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> figure = plot_clusters(mdp, mdp.positions, {"by row": mdp.positions[:, 0]})
    >>> len(figure.axes[0].collections[0].get_offsets())
    31
    """
    cells = require_cells(mdp, "plot_clusters")
    positions = np.asarray(points, np.float64)
    labels = {name: _validate_clusters(name, positions, each) for name, each in panels.items()}
    if not labels:
        raise InputError("plot_clusters: there is nothing to draw; give the clusters of points.")
    height, width = cells.shape
    panel_width = max(3.4, 0.55 * width)
    figure = Figure(
        figsize=(0.5 + panel_width * len(labels), 1.8 + panel_width * height / width),
        layout="constrained",
    )
    axes = figure.subplots(1, len(labels), sharey=True, squeeze=False)[0]
    for panel, (name, clusters) in zip(axes, labels.items(), strict=True):
        _draw_floor(panel, cells)
        panel.scatter(
            positions[:, 1],
            positions[:, 0],
            c=_colour_points(cells, positions, clusters),
            s=5,
            linewidths=0,
            zorder=2,
        )
        # In a corner of the cell: the points lie around its centre.
        draw_goals(panel, cells, find_goals(mdp), size=7, offset=(0.38, 0.36))
        panel.set_title(typeset(name), fontsize=10)
        panel.set_xlabel("column")
    axes[0].set_ylabel("row")
    if len(find_goals(mdp)):
        add_marker_legend(figure, axes[0].lines[-1:])
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    return figure


def _validate_clusters(
    name: str, points: NDArray[np.float64], labels: ArrayLike
) -> NDArray[np.int64]:
    clusters = np.asarray(labels)
    if points.ndim != 2 or points.shape[1] != 2 or clusters.shape != points.shape[:1]:
        raise InputError(
            f"plot_clusters: in {name!r} there are points {points.shape} and clusters "
            f"{clusters.shape}; give (n, 2) and (n,)."
        )
    return clusters.astype(np.int64)


def _colour_points(
    cells: Cells, points: NDArray[np.float64], clusters: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the colours (n, 4) of points; those of clusters that are near each other differ."""
    places = np.rint(points).astype(np.int64) - np.array(cells.corner)
    found, index = np.unique(np.column_stack([places, clusters]), axis=0, return_inverse=True)
    near = cKDTree(found[:, :2]).query_pairs(1.0, p=np.inf)
    colours = assign_colours(found[:, 2], sorted(near), smallest=1)
    return np.asarray(to_rgba_array(CLASS_PALETTE)[colours[found[index.ravel(), 2]]])


def _draw_floor(axes: Axes, cells: Cells) -> None:
    """Draw white cells with lines between them."""
    draw_cells(axes, cells, np.zeros(len(cells.rows)), None, ListedColormap(["white"]))
    for row, column in zip(*cells.locate(np.arange(len(cells.rows))), strict=True):
        axes.plot(
            column + np.array([-0.5, 0.5, 0.5, -0.5, -0.5]),
            row + np.array([-0.5, -0.5, 0.5, 0.5, -0.5]),
            color="0.85",
            lw=0.6,
            zorder=1,
        )
    place_ticks(axes, cells)


def require_class_map(mdp: MDP) -> Cells:
    """Return the cells that `plot_classes` draws, or raise an InputError if it cannot."""
    return require_cells(mdp, "plot_classes")


def plot_classes(
    mdp: MDP, labels: ArrayLike, representatives: Sequence[int] | NDArray[Any] = (), title: str = ""
) -> Figure:
    """Plot the classes of aggregated states on the map of their MDP, coloured and numbered.

    Twelve colours, and twelve more where needed, are assigned in the order of the classes, so that
    neighbouring cells of different classes differ. A state that is alone in its class is white.

    Args:
        mdp: whose positions define the map.
        labels: (S,), the class of each state, from 0 on.
        representatives: states to outline, one per class.
        title: of the figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: the MDP has no map, or the labels do not fit it.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> figure = plot_classes(mdp, mdp.positions[:, 0].astype(int) - 1, title="by row")
    >>> len(figure.axes[0].texts)
    31
    """
    cells, classes = require_class_map(mdp), np.asarray(labels)
    if classes.shape != (mdp.num_states,) or classes.dtype.kind not in "iu" or classes.min() < 0:
        raise InputError(
            f"plot_classes: labels are {classes.dtype} of shape {classes.shape} and must be an "
            f"integer from 0 on for each of {mdp.num_states} states."
        )
    height, width = cells.shape
    numbered = max(height, width) <= MAX_NUMBERED_CELLS
    cell = 0.5 if numbered else 7.0 / max(height, width)
    figure = Figure(
        figsize=(max(3.2, cell * width + 0.6), max(2.2, cell * height) + 1.2), layout="constrained"
    )
    axes = figure.subplots()
    index = 1 + assign_colours(classes, find_neighbours(cells).tolist())
    colours = np.vstack([to_rgba_array(ZERO_COLOUR), to_rgba_array(CLASS_PALETTE)])
    norm = Normalize(-0.5, len(colours) - 0.5)
    draw_cells(axes, cells, index[classes].astype(np.float64), norm, ListedColormap(colours))
    if numbered:
        rows, columns = cells.locate(np.arange(mdp.num_states))
        light = is_light(np.array(colours)[index[classes]])
        for row, column, label, dark_text in zip(rows, columns, classes, light, strict=True):
            colour = "black" if dark_text else "white"
            axes.text(column, row, str(label), ha="center", va="center", color=colour, size=8)
        for state in representatives:
            corner = (columns[state] - 0.46, rows[state] - 0.46)
            axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, ec=ACCENT_COLOUR, lw=2.0))
    goals = find_goals(mdp)
    offset = (0.3, 0.3) if numbered else (0.0, 0.0)
    draw_goals(axes, cells, goals, size=7 if numbered else 11, offset=offset)
    set_ticks(axes, mdp, cells)
    if title:
        axes.set_title(typeset(title), fontsize=10)
    markers = []
    if (np.bincount(classes) == 1).any():
        markers.append(build_marker("alone", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if numbered and len(representatives):
        style: dict[str, Any] = {"marker": "s", "mfc": "none", "mec": ACCENT_COLOUR, "mew": 2.0}
        markers.append(build_marker("representative", **style, ms=9))
    if len(goals):
        markers.append(build_marker("goal", marker="*", mfc="white", mec="black", ms=10))
    add_marker_legend(figure, markers)
    return figure


def plot_aggregation_curve(curves: Mapping[str, AggregationCurve], *, title: str = "") -> Figure:
    """Plot the regret of the lifted policy over the number of classes: realised and bounded.

    A solid line is the realised regret, a dashed one of the same colour its proven bound, which
    distances without a proof lack. The regret axis is logarithmic above a linear part that
    contains 0. The line across marks the diameter bound, reward range / (1 - discount): no
    policy can have more regret, so a bound above it is vacuous.

    Args:
        curves: by title of their panel; the same name means the same colour in every panel.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no curve.

    >>> from bisimetric import exact, uses, worlds
    >>> mdp = worlds.load("pessimism")
    >>> curve = uses.aggregation_curve(mdp, {"d_lax": exact.lax(mdp)})
    >>> [panel.get_title() for panel in plot_aggregation_curve({"three states": curve}).axes]
    ['three states']
    """
    if not curves:
        raise InputError(
            "plot_aggregation_curve: there is nothing to draw; give at least one curve."
        )
    names = list(dict.fromkeys(name for curve in curves.values() for name in curve.aggregations))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    figure = Figure(figsize=(0.8 + 4.6 * len(curves), 4.4), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (name, curve) in zip(axes, curves.items(), strict=True):
        _draw_aggregation_panel(panel, curve, colours)
        panel.set_title(typeset(name), fontsize=10)
    axes[0].set_ylabel("regret in the worst state")
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    handles = [Line2D([], [], color=colours[name], lw=2, label=typeset(name)) for name in names]
    handles.append(Line2D([], [], color=GREY, lw=2, label="realised regret"))
    handles.append(Line2D([], [], color=GREY, lw=1.4, ls=(0, (4, 2)), label="regret bound"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 3 * len(curves)),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
    )
    return figure


def _draw_aggregation_panel(
    axes: Axes, curve: AggregationCurve, colours: Mapping[str, str]
) -> None:
    diameter = curve.mdp.diameter_bound
    negligible = curve.negligible_regret
    everything = [each for found in curve.aggregations.values() for each in found]
    regrets = [
        regret
        for each in everything
        for regret in (each.regret, each.regret_bound)
        if negligible < regret < np.inf
    ]
    linear_limit = 10.0 ** np.floor(np.log10(min(regrets, default=diameter or 1.0)))
    for index, (name, aggregations) in enumerate(curve.aggregations.items()):
        counts = [len(each) for each in aggregations]
        # A request for a number between two counts gets the smaller one.
        style: dict[str, Any] = {"color": colours[name], "zorder": 3 + 0.1 * index}
        style["drawstyle"] = "steps-post"
        marker = "o" if len(aggregations) <= MANY_STATES else None
        regret = _select_finite(aggregations, "regret", negligible)
        axes.plot(counts, regret, lw=1.8, marker=marker, ms=3.0, **style)
        bound = _select_finite(aggregations, "regret_bound", negligible)
        if np.isfinite(bound).any():
            axes.plot(counts, bound, lw=1.4, ls=(0, (4, 2)), **style)
    trivial_bound = max(each.trivial_bound for each in everything)
    if trivial_bound > 0:
        text = f"no policy has more than {trivial_bound:.3g}"
        draw_level(axes, trivial_bound, text, linestyle=":", x=0.02, offset=(0, 3))
    axes.set_yscale("symlog", linthresh=linear_limit, linscale=0.5)
    axes.set_ylim(-0.12 * linear_limit, max(3 * diameter, 2 * linear_limit))
    axes.yaxis.set_major_formatter(FuncFormatter(_format_decade))
    states = curve.mdp.num_states
    if states >= MANY_STATES:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"classes, of {states:,} states")
    axes.spines[["top", "right"]].set_visible(False)


def _format_decade(number: float, _: Any = None) -> str:
    """Format a power of ten for an axis.

    >>> _format_decade(0.0), _format_decade(100.0), _format_decade(1e-5)
    ('0', '100', '$10^{-5}$')
    """
    if number == 0 or 1e-3 <= abs(number) <= 1e4:
        return f"{number:g}"
    return f"$10^{{{round(np.log10(abs(number)))}}}$"


def _select_finite(
    aggregations: Sequence[Aggregation], attribute: str, negligible: float
) -> NDArray[np.float64]:
    """Return the values to draw: 0 where they are negligible, NaN where they are not finite."""
    values = np.array([getattr(each, attribute) for each in aggregations])
    return np.where(np.isfinite(values), np.where(values <= negligible, 0.0, values), np.nan)
