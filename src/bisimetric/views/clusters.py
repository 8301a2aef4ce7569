"""Clusters of states of a continuous world, drawn where they lie on its floor plan.

Aggregated states: classes on their map, and what is promised and lost as they grow finer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.views._figure import ACCENT_COLOUR, WALL_COLOUR, ZERO_COLOUR
from bisimetric.views.error_curves import GREY, draw_level
from bisimetric.views.layout import Cells, find_cells, find_goals

if TYPE_CHECKING:
    from bisimetric.uses import Aggregation, AggregationCurve


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


MAX_NUMBERED_CELLS = 24
"""A map up to this many cells wide and high has the numbers of its classes written in the cells."""
MANY_STATES = 60
"""From so many states on, the axis of classes is logarithmic; and so many points have no marks."""


def require_class_map(mdp: MDP) -> Cells:
    """Where `classes` would draw the states; an InputError where it would refuse them."""
    on_map = find_cells(mdp)
    if on_map is None:
        raise InputError(
            "classes: the states have no map; give the MDP positions (whole numbers, all "
            "different)."
        )
    return on_map


def plot_classes(
    mdp: MDP, labels: ArrayLike, representatives: Sequence[int] | NDArray[Any] = (), title: str = ""
) -> Figure:
    """The classes of states on the map of their MDP, each in a colour and with its number.

    The largest classes have a colour; there are eight, and they come again. A state that is alone
    in its class is white. The representatives are outlined.

    >>> from bisimetric import worlds
    >>> mdp = worlds.load("mirrored-rooms")
    >>> figure = classes(mdp, mdp.positions[:, 0].astype(int) - 1, title="by row")
    >>> len(figure.axes[0].texts)
    31
    """
    on_map, found = require_class_map(mdp), np.asarray(labels)
    if found.shape != (mdp.num_states,) or found.dtype.kind not in "iu" or found.min() < 0:
        raise InputError(
            f"classes: labels are {found.dtype} of shape {found.shape} and must be a number from 0 "
            f"on for each of {mdp.num_states} states."
        )
    (height, width), (top, left) = on_map.shape, on_map.corner
    numbered = max(height, width) <= MAX_NUMBERED_CELLS
    cell = 0.5 if numbered else 7.0 / max(height, width)
    figure = Figure(
        figsize=(max(3.2, cell * width + 0.6), max(2.2, cell * height) + 1.2), layout="constrained"
    )
    axes = figure.subplots()
    colours, place = _assign_colours(found)
    axes.set_facecolor(WALL_COLOUR)
    axes.imshow(
        on_map.to_array(place[found].astype(np.float64)),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        interpolation="none",
        extent=(left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5),
    )
    rows, columns = on_map.rows + top, on_map.columns + left
    if numbered:
        light = np.array(colours)[place[found]] @ [0.299, 0.587, 0.114, 0.0] > 0.5
        for row, column, label, dark in zip(rows, columns, found, light, strict=True):
            shade = "black" if dark else "white"
            axes.text(column, row, str(label), ha="center", va="center", color=shade, size=8)
        for state in representatives:
            corner = (columns[state] - 0.46, rows[state] - 0.46)
            axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, ec=ACCENT_COLOUR, lw=2.0))
    _draw_class_goals(axes, rows, columns, find_goals(mdp), small=numbered)
    for axis, count, low in zip((axes.yaxis, axes.xaxis), on_map.shape, on_map.corner, strict=True):
        ticks = MaxNLocator(nbins=min(count, 12), integer=True).tick_values(low + 1, low + count)
        axis.set_ticks([tick for tick in ticks if low < tick < low + count - 1])
    axes.set(xlabel="column", ylabel="row")
    if title:
        axes.set_title(title, fontsize=10)
    marks = []
    if (np.bincount(found) == 1).any():
        marks.append(_legend_entry("alone", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if numbered and len(representatives):
        marks.append(
            _legend_entry(
                "representative", marker="s", mfc="none", mec=ACCENT_COLOUR, mew=2.0, ms=9
            )
        )
    if len(find_goals(mdp)):
        marks.append(_legend_entry("goal", marker="*", mfc="white", mec="black", ms=10))
    if marks:
        figure.legend(
            handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
        )
    return figure


def _assign_colours(labels: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """White and the palette, and the place of each class among them, the largest class first."""
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    place = np.empty(len(sizes), np.int64)
    place[order] = 1 + np.arange(len(sizes)) % len(PALETTE)
    place[sizes < 2] = 0
    return np.vstack([to_rgba_array(ZERO_COLOUR), to_rgba_array(PALETTE)]), place


def _draw_class_goals(
    axes: Axes,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    states: NDArray[np.int64],
    *,
    small: bool,
) -> None:
    offset = 0.3 if small else 0.0
    axes.plot(
        columns[states] + offset,
        rows[states] - offset,
        "*",
        mfc="white",
        mec="black",
        mew=0.6,
        ms=7 if small else 11,
        zorder=3,
    )


def _legend_entry(label: str, **style: Any) -> Line2D:
    return Line2D([], [], linestyle="", label=label, **style)


def plot_aggregation_curve(curves: Mapping[str, AggregationCurve], *, title: str = "") -> Figure:
    """What the lifted policy loses over the number of classes: promised and measured.

    Args:
        panels: by title; the same name means the same colour in every panel.
        title: of the whole figure.

    A solid line is what was measured, a dashed one of the same colour what was promised; a distance
    without a proof has none. The axis of losses is logarithmic but for its foot, which holds 0; the
    line across it is the most that any policy can lose, where a promise says nothing.

    >>> from bisimetric import exact, uses, worlds
    >>> mdp = worlds.load("pessimism")
    >>> curve = uses.aggregation_curve(mdp, {"d_lax": exact.lax(mdp)})
    >>> [panel.get_title() for panel in aggregation_curve({"three states": curve}).axes]
    ['three states']
    """
    if not curves:
        raise InputError("aggregation_curve: there is nothing to draw; give at least one curve.")
    names = list(dict.fromkeys(name for curve in curves.values() for name in curve.aggregations))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    figure = Figure(figsize=(0.8 + 4.6 * len(curves), 4.4), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (name, curve) in zip(axes, curves.items(), strict=True):
        _draw_aggregation_panel(panel, curve, colours)
        panel.set_title(name, fontsize=10)
    axes[0].set_ylabel("value lost in the worst state")
    if title:
        figure.suptitle(title, fontsize=11)
    handles = [Line2D([], [], color=colours[name], lw=2, label=name) for name in names]
    handles.append(Line2D([], [], color=GREY, lw=2, label="measured"))
    handles.append(Line2D([], [], color=GREY, lw=1.4, ls=(0, (4, 2)), label="promised, at most"))
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
    most = curve.mdp.diameter_bound
    floor = curve.negligible_regret
    everything = [each for found in curve.aggregations.values() for each in found]
    losses = [
        x for each in everything for x in (each.regret, each.regret_bound) if floor < x < np.inf
    ]
    foot = 10.0 ** np.floor(np.log10(min(losses, default=most or 1.0)))
    for shift, (name, found) in enumerate(curve.aggregations.items()):
        counts = [len(each) for each in found]
        # Up to the next number of classes this one is what such a request gets.
        style: dict[str, Any] = {"color": colours[name], "zorder": 3 + 0.1 * shift}
        style["drawstyle"] = "steps-post"
        marker = "o" if len(found) <= MANY_STATES else None
        axes.plot(
            counts, _select_finite(found, "regret", floor), lw=1.8, marker=marker, ms=3.0, **style
        )
        promised = _select_finite(found, "regret_bound", floor)
        if np.isfinite(promised).any():
            axes.plot(counts, promised, lw=1.4, ls=(0, (4, 2)), **style)
    if most > 0:
        words = f"no policy loses more than {most:.3g}"
        draw_level(axes, most, words, linestyle=":", x=0.02, offset=0)
    axes.set_yscale("symlog", linthresh=foot, linscale=0.5)
    axes.set_ylim(-0.12 * foot, max(3 * most, 2 * foot))
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
    """A power of ten as an axis writes it.

    >>> _decade(0.0), _decade(100.0), _decade(1e-5)
    ('0', '100', '$10^{-5}$')
    """
    if number == 0 or 1e-3 <= abs(number) <= 1e4:
        return f"{number:g}"
    return f"$10^{{{round(np.log10(abs(number)))}}}$"


def _select_finite(
    aggregations: Sequence[Aggregation], attribute: str, floor: float
) -> NDArray[np.float64]:
    """Numbers for the axis: rounding is 0, and what is not there is not drawn."""
    numbers = np.array([getattr(each, attribute) for each in aggregations])
    return np.where(np.isfinite(numbers), np.where(numbers <= floor, 0.0, numbers), np.nan)
