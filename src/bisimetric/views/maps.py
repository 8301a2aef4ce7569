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
from bisimetric.transitions import END
from bisimetric.views.colours import BARS, SOURCE, VEIL, WALL, ZERO, colours, scale
from bisimetric.views.layout import (
    Cells,
    cells,
    counted,
    goals,
    kind_of,
    number_format,
    parts,
    unknown,
)

MOST_MAPS = 100
MOST_BARS = 40
MOST_NUMBERED = 24
"""A map up to this many cells wide and high has its numbers written in the cells."""


def distances_from(d: Distance, s: int | str) -> Figure:
    """The distances d(s, t) from one state to all states t.

    Drawn on the map where the MDP has positions; else as bars, nearest first.

    >>> from bisimetric import exact, worlds
    >>> figure = distances_from(exact.bisimulation(worlds.load("mirrored-rooms")), "1,5")
    >>> figure.axes[0].images[0].colorbar.ax.get_ylabel()
    'bisimulation distance from 1,5'
    """
    source = d.mdp.state(s)
    on_map = cells(d.mdp)
    return _bars(d, source) if on_map is None else _map(d, source, on_map)


def cells_of_all_maps(mdp: MDP) -> Cells:
    """Where `all_maps` would draw the states; an InputError where it would refuse them."""
    if mdp.num_states > MOST_MAPS:
        raise InputError(
            f"all_maps: there are {mdp.num_states} states and a figure holds at most {MOST_MAPS} "
            "maps; use distances_from for one state at a time."
        )
    on_map = cells(mdp)
    if on_map is None:
        raise InputError(
            "all_maps: the states have no map; give the MDP positions (whole numbers, all "
            "different), or use heatmap."
        )
    return on_map


def all_maps(d: Distance) -> Figure:
    """One small map a state of the distances from it, all in the same colours.

    The supplementary figure of the paper: "Bisimulation distances from all states".
    """
    states, on_map = d.mdp.num_states, cells_of_all_maps(d.mdp)
    height, width = on_map.shape
    across = min(states, max(1, round(math.sqrt(1.6 * states * height / width))))
    down = math.ceil(states / across)
    inches = 1.25 / max(height, width)
    wide = across * (width * inches + 0.15) + 1.2
    tall = down * (height * inches + 0.3) + 0.6
    figure = Figure(figsize=(max(4.8, wide), max(3.2, tall)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    shared = scale(d.values, d.error)
    entered = goals(d.mdp)
    for state, axes in enumerate(panels[:states]):
        image = _draw(axes, on_map, d.values[state], shared)
        _veil(axes, on_map, unknown(d))
        _outline(axes, on_map, state, width=1.6)
        _stars(axes, on_map, entered, size=4.5)
        axes.set_title(d.mdp.name(state), fontsize=8, pad=2)
        axes.set(xticks=[], yticks=[])
    for axes in panels[states:]:
        axes.remove()
    figure.suptitle(f"{kind_of(d, start=True)} from each state (outlined)", fontsize=11)
    label = f"{kind_of(d)} (white: 0)"
    figure.colorbar(
        image, ax=list(panels[:states]), label=label, shrink=0.8, aspect=30, extend="min"
    )
    return figure


def _map(d: Distance, source: int, on_map: Cells) -> Figure:
    height, width = on_map.shape
    numbered = max(height, width) <= MOST_NUMBERED
    cell = 0.55 if numbered else 7.0 / max(height, width)
    tall, wide = max(2.2, cell * height), max(2.2, cell * width)
    figure = Figure(figsize=(wide + 1.6, tall + 1.3), layout="constrained")
    axes = figure.subplots()
    distances = d.values[source]
    image = _draw(axes, on_map, distances, scale(distances, d.error))
    entered, veiled = goals(d.mdp), unknown(d)
    _veil(axes, on_map, veiled)
    if numbered:
        _outline(axes, on_map, source, width=3.0)
        _stars(axes, on_map, entered, size=8, offset=-0.3)
        _write_numbers(axes, on_map, distances, image, veiled)
    else:
        row, column = _place(on_map, np.array([source]))
        axes.plot(column, row, "o", mec=SOURCE, mfc="none", mew=2.5, ms=11)
        _stars(axes, on_map, entered, size=11)
    _ticks(axes, d, on_map)
    _parts(axes, d, on_map)
    axes.set_title(counted(d), fontsize=10)
    beside = axes.inset_axes((1 + 0.15 / wide, 0, 0.18 / wide, 1))
    label = f"{kind_of(d)} from {d.mdp.name(source)}"
    figure.colorbar(image, cax=beside, label=label, extend="min")
    marks = [_mark("source", marker="s" if numbered else "o", mfc="none", mec=SOURCE, mew=2.5)]
    if not np.delete(distances, veiled).all():
        marks.append(_mark("distance 0", marker="s", mfc=ZERO, mec="0.4", ms=9))
    if len(veiled):
        marks.append(_mark("not known", marker="s", mfc=VEIL, mec="0.4", ms=9))
    if len(entered):
        marks.append(_mark("goal", marker="*", mfc="white", mec="black", ms=10))
    figure.legend(
        handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
    )
    return figure


def _bars(d: Distance, source: int) -> Figure:
    distances = d.values[source]
    order = np.argsort(distances, kind="stable")
    order = np.concatenate([[source], order[(order != source) & ~np.isin(order, unknown(d))]])
    shown = order[:MOST_BARS]
    figure = Figure(figsize=(6.4, 1.4 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([d.mdp.name(t) for t in shown], distances[shown], color=BARS, height=0.7)
    written = number_format(distances[shown])
    axes.bar_label(bars, [written(x) for x in distances[shown]], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel=f"{kind_of(d)} from {d.mdp.name(source)}", ylabel="state")
    some = f"the {len(shown)} nearest of " if len(shown) < len(order) else ""
    axes.set_title(some + counted(d), fontsize=10)
    return figure


def _draw(axes: Axes, on_map: Cells, numbers: NDArray[np.floating], norm: Normalize) -> AxesImage:
    """The cells in colour; the axes count rows and columns as the positions do."""
    (height, width), (top, left) = on_map.shape, on_map.corner
    axes.set_facecolor(WALL)
    return axes.imshow(
        on_map.place(numbers),
        cmap=colours(),
        norm=norm,
        interpolation="none",
        extent=(left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5),
    )


def _ticks(axes: Axes, d: Distance, on_map: Cells) -> None:
    """Row and column numbers, where the states are named after them."""
    row, column = _place(on_map, np.array([0]))
    if d.mdp.name(0) != f"{row[0]},{column[0]}":
        axes.set(xticks=[], yticks=[])
        return
    for axis, count, low in zip((axes.yaxis, axes.xaxis), on_map.shape, on_map.corner, strict=True):
        # A world that begins at 0 has no walls of its own: those around it are the map's.
        first, last = (low, low + count - 1) if low >= 0 else (0, low + count - 2)
        found = MaxNLocator(nbins=min(count, 12), integer=True).tick_values(first, last)
        axis.set_ticks([tick for tick in found if first <= tick <= last])
    axes.set(xlabel="column", ylabel="row")


def _parts(axes: Axes, d: Distance, on_map: Cells) -> None:
    """The names of the parts of a map, each in the wall above its part."""
    for name, states in parts(d.mdp).items():
        rows, columns = _place(on_map, states)
        middle = (columns.min() + columns.max()) / 2
        axes.text(middle, float(rows.min()) - 1, name, ha="center", va="center", size=10)
    if d.mdp.names is not None and END in d.mdp.names:
        end = d.mdp.state(END)
        above = (on_map.rows == on_map.rows[end] - 1) & (on_map.columns == on_map.columns[end])
        (row,), (column,) = _place(on_map, np.array([end]))
        if not above.any():
            axes.text(column, row - 0.55, END, ha="center", va="bottom", size=9)


def _mark(label: str, **style: Any) -> Line2D:
    return Line2D([], [], linestyle="", label=label, **style)


def _place(on_map: Cells, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return on_map.rows[states] + on_map.corner[0], on_map.columns[states] + on_map.corner[1]


def _outline(axes: Axes, on_map: Cells, state: int, *, width: float) -> None:
    row, column = _place(on_map, np.array([state]))
    box = Rectangle((column[0] - 0.5, row[0] - 0.5), 1, 1, fill=False, ec=SOURCE, lw=width)
    axes.add_patch(box).set_zorder(3)


def _veil(axes: Axes, on_map: Cells, states: NDArray[np.int64]) -> None:
    """Covers the cells of states of which nothing is known."""
    for row, column in zip(*_place(on_map, states), strict=True):
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, fc=VEIL, ec="0.55", hatch="////", lw=0)
        axes.add_patch(box)


def _stars(
    axes: Axes, on_map: Cells, states: NDArray[np.int64], *, size: float, offset: float = 0.0
) -> None:
    rows, columns = _place(on_map, states)
    axes.plot(
        columns + offset, rows + offset, "*", mfc="white", mec="black", mew=0.5, ms=size, zorder=4
    )


def _write_numbers(
    axes: Axes,
    on_map: Cells,
    numbers: NDArray[np.floating],
    image: AxesImage,
    veiled: NDArray[np.int64],
) -> None:
    written = number_format(numbers)
    rows, columns = _place(on_map, np.arange(len(numbers)))
    light = np.asarray(image.cmap(image.norm(numbers))) @ [0.299, 0.587, 0.114, 0.0] > 0.5
    for state, (row, column, number) in enumerate(zip(rows, columns, numbers, strict=True)):
        if state not in veiled:
            colour = "black" if light[state] else "white"
            axes.text(column, row, written(number), ha="center", va="center", color=colour, size=8)
