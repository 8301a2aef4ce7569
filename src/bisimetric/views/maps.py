"""Distances drawn on the map of a world: from one state, or one small map for every state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.transitions import TERMINAL
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    LINE_COLOUR,
    UNKNOWN_COLOUR,
    WALL_COLOUR,
    ZERO_COLOUR,
    build_colormap,
    build_norm,
)
from bisimetric.views.layout import (
    Cells,
    build_number_format,
    describe_kind,
    find_cells,
    find_goals,
    find_parts,
    find_unknown_states,
    format_summary,
)

MAX_MAPS = 100
MAX_BARS = 40
MAX_NUMBERED_CELLS = 24
"""A map up to this many cells wide and high has its numbers written in the cells."""


def plot_distances_from(d: Distance, s: int | str) -> Figure:
    """The distances d(s, t) from one state to all states t.

    Drawn on the map where the MDP has positions; else as bars, nearest first.

    >>> from bisimetric import exact, worlds
    >>> figure = distances_from(exact.bisimulation(worlds.load("mirrored-rooms")), "1,5")
    >>> figure.axes[0].images[0].colorbar.ax.get_ylabel()
    'bisimulation distance from 1,5'
    """
    source = d.mdp.state(s)
    on_map = find_cells(d.mdp)
    return _plot_bars(d, source) if on_map is None else _plot_map(d, source, on_map)


def require_all_maps(mdp: MDP) -> Cells:
    """Where `all_maps` would draw the states; an InputError where it would refuse them."""
    if mdp.num_states > MAX_MAPS:
        raise InputError(
            f"all_maps: there are {mdp.num_states} states and a figure holds at most {MAX_MAPS} "
            "maps; use distances_from for one state at a time."
        )
    on_map = find_cells(mdp)
    if on_map is None:
        raise InputError(
            "all_maps: the states have no map; give the MDP positions (whole numbers, all "
            "different), or use heatmap."
        )
    return on_map


def plot_all_maps(d: Distance) -> Figure:
    """One small map a state of the distances from it, all in the same colours.

    The supplementary figure of the paper: "Bisimulation distances from all states".
    """
    states, on_map = d.mdp.num_states, require_all_maps(d.mdp)
    height, width = on_map.shape
    across = min(states, max(1, round(math.sqrt(1.6 * states * height / width))))
    down = math.ceil(states / across)
    inches = 1.25 / max(height, width)
    wide = across * (width * inches + 0.15) + 1.2
    tall = down * (height * inches + 0.3) + 0.6
    figure = Figure(figsize=(max(4.8, wide), max(3.2, tall)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    shared = build_norm(d.values, d.error)
    entered = find_goals(d.mdp)
    for state, axes in enumerate(panels[:states]):
        image = _draw_cells(axes, on_map, d.values[state], shared)
        _hatch_unknown(axes, on_map, find_unknown_states(d))
        _outline_state(axes, on_map, state, width=1.6)
        _draw_goals(axes, on_map, entered, size=4.5)
        axes.set_title(d.mdp.state_name(state), fontsize=8, pad=2)
        axes.set(xticks=[], yticks=[])
    for axes in panels[states:]:
        axes.remove()
    figure.suptitle(f"{describe_kind(d, capitalise=True)} from each state (outlined)", fontsize=11)
    label = f"{describe_kind(d)} (white: 0)"
    figure.colorbar(
        image, ax=list(panels[:states]), label=label, shrink=0.8, aspect=30, extend="min"
    )
    return figure


def _plot_map(d: Distance, source: int, on_map: Cells) -> Figure:
    height, width = on_map.shape
    numbered = max(height, width) <= MAX_NUMBERED_CELLS
    cell = 0.55 if numbered else 7.0 / max(height, width)
    tall, wide = max(2.2, cell * height), max(2.2, cell * width)
    figure = Figure(figsize=(wide + 1.6, tall + 1.3), layout="constrained")
    axes = figure.subplots()
    distances = d.values[source]
    image = _draw_cells(axes, on_map, distances, build_norm(distances, d.error))
    entered, veiled = find_goals(d.mdp), find_unknown_states(d)
    _hatch_unknown(axes, on_map, veiled)
    if numbered:
        _outline_state(axes, on_map, source, width=3.0)
        _draw_goals(axes, on_map, entered, size=8, offset=-0.3)
        _write_numbers(axes, on_map, distances, image, veiled)
    else:
        row, column = _locate(on_map, np.array([source]))
        axes.plot(column, row, "o", mec=ACCENT_COLOUR, mfc="none", mew=2.5, ms=11)
        _draw_goals(axes, on_map, entered, size=11)
    _set_ticks(axes, d, on_map)
    _label_parts(axes, d, on_map)
    axes.set_title(format_summary(d), fontsize=10)
    beside = axes.inset_axes((1 + 0.15 / wide, 0, 0.18 / wide, 1))
    label = f"{describe_kind(d)} from {d.mdp.state_name(source)}"
    figure.colorbar(image, cax=beside, label=label, extend="min")
    marks = [
        _legend_entry(
            "source", marker="s" if numbered else "o", mfc="none", mec=ACCENT_COLOUR, mew=2.5
        )
    ]
    if not np.delete(distances, veiled).all():
        marks.append(_legend_entry("distance 0", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if len(veiled):
        marks.append(_legend_entry("not known", marker="s", mfc=UNKNOWN_COLOUR, mec="0.4", ms=9))
    if len(entered):
        marks.append(_legend_entry("goal", marker="*", mfc="white", mec="black", ms=10))
    figure.legend(
        handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
    )
    return figure


def _plot_bars(d: Distance, source: int) -> Figure:
    distances = d.values[source]
    order = np.argsort(distances, kind="stable")
    order = np.concatenate(
        [[source], order[(order != source) & ~np.isin(order, find_unknown_states(d))]]
    )
    shown = order[:MAX_BARS]
    figure = Figure(figsize=(6.4, 1.4 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(
        [d.mdp.state_name(t) for t in shown], distances[shown], color=LINE_COLOUR, height=0.7
    )
    written = build_number_format(distances[shown])
    axes.bar_label(bars, [written(x) for x in distances[shown]], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel=f"{describe_kind(d)} from {d.mdp.state_name(source)}", ylabel="state")
    some = f"the {len(shown)} nearest of " if len(shown) < len(order) else ""
    axes.set_title(some + format_summary(d), fontsize=10)
    return figure


def _draw_cells(
    axes: Axes, on_map: Cells, values: NDArray[np.floating], norm: Normalize
) -> AxesImage:
    """The cells in colour; the axes count rows and columns as the positions do."""
    (height, width), (top, left) = on_map.shape, on_map.corner
    axes.set_facecolor(WALL_COLOUR)
    return axes.imshow(
        on_map.to_array(values),
        cmap=build_colormap(),
        norm=norm,
        interpolation="none",
        extent=(left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5),
    )


def _set_ticks(axes: Axes, d: Distance, on_map: Cells) -> None:
    """Row and column numbers, where the states are named after them."""
    row, column = _locate(on_map, np.array([0]))
    if d.mdp.state_name(0) != f"{row[0]},{column[0]}":
        axes.set(xticks=[], yticks=[])
        return
    for axis, count, low in zip((axes.yaxis, axes.xaxis), on_map.shape, on_map.corner, strict=True):
        # A world that begins at 0 has no walls of its own: those around it are the map's.
        first, last = (low, low + count - 1) if low >= 0 else (0, low + count - 2)
        found = MaxNLocator(nbins=min(count, 12), integer=True).tick_values(first, last)
        axis.set_ticks([tick for tick in found if first <= tick <= last])
    axes.set(xlabel="column", ylabel="row")


def _label_parts(axes: Axes, d: Distance, on_map: Cells) -> None:
    """The names of the parts of a map, each in the wall above its part."""
    for name, states in find_parts(d.mdp).items():
        rows, columns = _locate(on_map, states)
        middle = (columns.min() + columns.max()) / 2
        axes.text(middle, float(rows.min()) - 1, name, ha="center", va="center", size=10)
    if d.mdp.names is not None and TERMINAL in d.mdp.names:
        end = d.mdp.state(TERMINAL)
        above = (on_map.rows == on_map.rows[end] - 1) & (on_map.columns == on_map.columns[end])
        (row,), (column,) = _locate(on_map, np.array([end]))
        if not above.any():
            axes.text(column, row - 0.55, TERMINAL, ha="center", va="bottom", size=9)


def _legend_entry(label: str, **style: Any) -> Line2D:
    return Line2D([], [], linestyle="", label=label, **style)


def _locate(on_map: Cells, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return on_map.rows[states] + on_map.corner[0], on_map.columns[states] + on_map.corner[1]


def _outline_state(axes: Axes, on_map: Cells, state: int, *, width: float) -> None:
    row, column = _locate(on_map, np.array([state]))
    box = Rectangle((column[0] - 0.5, row[0] - 0.5), 1, 1, fill=False, ec=ACCENT_COLOUR, lw=width)
    axes.add_patch(box).set_zorder(3)


def _hatch_unknown(axes: Axes, on_map: Cells, states: NDArray[np.int64]) -> None:
    """Covers the cells of states of which nothing is known."""
    for row, column in zip(*_locate(on_map, states), strict=True):
        box = Rectangle(
            (column - 0.5, row - 0.5), 1, 1, fc=UNKNOWN_COLOUR, ec="0.55", hatch="////", lw=0
        )
        axes.add_patch(box)


def _draw_goals(
    axes: Axes, on_map: Cells, states: NDArray[np.int64], *, size: float, offset: float = 0.0
) -> None:
    rows, columns = _locate(on_map, states)
    axes.plot(
        columns + offset, rows + offset, "*", mfc="white", mec="black", mew=0.5, ms=size, zorder=4
    )


def _write_numbers(
    axes: Axes,
    on_map: Cells,
    numbers: NDArray[np.floating],
    image: AxesImage,
    unknown: NDArray[np.int64],
) -> None:
    written = build_number_format(numbers)
    rows, columns = _locate(on_map, np.arange(len(numbers)))
    light = np.asarray(image.cmap(image.norm(numbers))) @ [0.299, 0.587, 0.114, 0.0] > 0.5
    for state, (row, column, number) in enumerate(zip(rows, columns, numbers, strict=True)):
        if state not in unknown:
            colour = "black" if light[state] else "white"
            axes.text(column, row, written(number), ha="center", va="center", color=colour, size=8)
