"""Distances on the map of an MDP: from one state, or one small map per state.

Also the parts of a map that other views draw: cells, goals, ticks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, TERMINAL
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    LINE_COLOUR,
    UNKNOWN_COLOUR,
    WALL_COLOUR,
    ZERO_COLOUR,
    Figure,
    add_marker_legend,
    build_colormap,
    build_marker,
)
from bisimetric.views.landmarks import find_holes, find_stands, find_walls
from bisimetric.views.layout import (
    Cells,
    build_number_format,
    escape,
    find_cells,
    find_goals,
    find_parts,
    find_unknown_states,
    format_summary,
    get_scale,
    require_cells,
    typeset_kind,
)
from bisimetric.views.norms import NormName, QuantileNorm, build_norm

HOLE_LABEL = "absorbing (hole)"
HOLE_STYLE: dict[str, Any] = {"marker": "o", "mfc": "black", "mec": "white", "mew": 0.8}
MAX_MAPS = 100
MAX_BARS = 40
MAX_NUMBERED_CELLS = 24
"""A map up to this many cells wide and high has its values written in the cells."""


def plot_distances_from(
    d: Distance, s: int | str, *, normalise: bool = False, norm: NormName = "auto"
) -> Figure:
    """Plot the distances d(s, t) from one state s to all states t.

    They are drawn on the map if the MDP has positions, otherwise as bars, nearest first. A map
    marks goals, absorbing states such as holes, and walls between cells that no step crosses.

    Args:
        d: with a matrix of distances.
        s: the index or name of the state.
        normalise: whether to draw (1 - discount) * d, distances in units of reward per step, which
            are at most the reward range.
        norm: the colour scale of a map: "linear", "log" or "quantile"; "auto" is linear unless a
            few states dominate it. The colour bar names a scale that is not linear.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no such state, or no such norm.

    >>> from bisimetric import exact, worlds
    >>> figure = plot_distances_from(exact.bisimulation(worlds.load("mirrored-rooms")), "1,5")
    >>> figure.axes[0].images[0].colorbar.ax.get_ylabel()
    'bisimulation distance $\\\\tilde d$ from 1,5'
    """
    source = d.mdp.state(s)
    cells = find_cells(d.mdp)
    if cells is None:
        return _plot_bars(d, source, normalise)
    return _plot_map(d, source, cells, normalise, norm)


def require_all_maps(mdp: MDP) -> Cells:
    """Return the cells that `plot_all_maps` draws, or raise an InputError if it cannot."""
    if mdp.num_states > MAX_MAPS:
        raise InputError(
            f"plot_all_maps: there are {mdp.num_states} states and a figure holds at most "
            f"{MAX_MAPS} maps; use plot_distances_from for one state at a time."
        )
    return require_cells(mdp, "plot_all_maps", otherwise=", or use plot_heatmap")


def plot_all_maps(d: Distance, *, normalise: bool = False, norm: NormName = "auto") -> Figure:
    """Plot one small map per state with the distances from it, all on one colour scale.

    The supplementary figure of the paper: "Bisimulation distances from all states".

    Args:
        d: with a matrix of distances between at most 100 states with positions.
        normalise: whether to draw (1 - discount) * d, distances in units of reward per step, which
            are at most the reward range.
        norm: the colour scale: "linear", "log" or "quantile"; "auto" is linear unless a few pairs
            dominate it. The colour bar names a scale that is not linear.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there are too many states, they have no map, or there is no such norm.

    >>> from bisimetric import exact, worlds
    >>> len(plot_all_maps(exact.bisimulation(worlds.load("mirrored-rooms"))).axes)
    32
    """
    states, cells = d.mdp.num_states, require_all_maps(d.mdp)
    height, width = cells.shape
    across = min(states, max(1, round(math.sqrt(1.6 * states * height / width))))
    down = math.ceil(states / across)
    inches = 1.25 / max(height, width)
    figure_width = across * (width * inches + 0.15) + 1.2
    figure_height = down * (height * inches + 0.3) + 0.6
    figure = Figure(figsize=(max(4.8, figure_width), max(3.2, figure_height)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    scale = get_scale(d, normalise)
    colour_norm, note = build_norm(d.values * scale, d.error * scale, norm)
    goals, unknown = find_goals(d.mdp), find_unknown_states(d)
    # States that were never visited are stored as absorbing.
    holes, walls = np.setdiff1d(find_holes(d.mdp), unknown), find_walls(d.mdp, cells)
    for state, axes in enumerate(panels[:states]):
        image = draw_cells(axes, cells, d.values[state] * scale, colour_norm)
        _hatch_unknown(axes, cells, unknown)
        _outline_state(axes, cells, state, width=1.6)
        _draw_walls(axes, walls, width=1.2)
        draw_goals(axes, cells, goals, size=4.5)
        _draw_holes(axes, cells, holes, size=3.0)
        axes.set_title(escape(d.mdp.state_name(state)), fontsize=8, pad=2)
        axes.set(xticks=[], yticks=[])
    for axes in panels[states:]:
        axes.remove()
    kind = typeset_kind(d, capitalise=True, normalise=normalise)
    figure.suptitle(f"{kind} from each state (outlined)", fontsize=11)
    label = _join_notes(f"{typeset_kind(d, normalise=normalise)} (white: 0)", note)
    draw_colorbar(figure, image, label, ax=list(panels[:states]), shrink=0.8, aspect=30)
    return figure


def draw_cells(
    axes: Axes,
    cells: Cells,
    values: NDArray[np.floating],
    norm: Normalize | None,
    colormap: Colormap | None = None,
) -> AxesImage:
    """Draw the cells of a map in colour, between grey walls; the axes count as positions do."""
    axes.set_facecolor(WALL_COLOUR)
    return axes.imshow(
        cells.to_array(values),
        cmap=colormap or build_colormap(),
        norm=norm,
        interpolation="none",
        extent=cells.extent,
    )


def draw_goals(
    axes: Axes,
    cells: Cells,
    states: NDArray[np.int64],
    *,
    size: float,
    offset: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Draw a star in each of the cells, `offset` to the right and upwards."""
    rows, columns = cells.locate(states)
    axes.plot(
        columns + offset[0],
        rows - offset[1],
        "*",
        mfc="white",
        mec="black",
        mew=0.5,
        ms=size,
        zorder=4,
        label="goal",
    )


def _draw_holes(
    axes: Axes,
    cells: Cells,
    states: NDArray[np.int64],
    *,
    size: float,
    offset: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Draw a dot in each of the cells, `offset` to the right and upwards."""
    if len(states):
        rows, columns = cells.locate(states)
        dots = {"ms": size, "zorder": 4, "label": HOLE_LABEL, "linestyle": "", **HOLE_STYLE}
        axes.plot(columns + offset[0], rows - offset[1], **dots)


def _draw_walls(axes: Axes, walls: NDArray[np.float64], *, width: float) -> None:
    """Draw lines between cells that no step crosses."""
    if len(walls):
        lines = LineCollection(list(walls), colors="black", lw=width, capstyle="butt", zorder=2.5)
        axes.add_collection(lines, autolim=False)


def draw_colorbar(figure: Figure, image: AxesImage, label: str, **place: Any) -> None:
    """Draw the colour bar of distances, whose arrow is distance 0, with plain numbers."""
    bar = figure.colorbar(image, label=label, extend="min", **place)
    if isinstance(image.norm, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    elif isinstance(image.norm, QuantileNorm):
        ticks = image.norm.inverse(np.linspace(0, 1, 6))
        bar.set_ticks(ticks.tolist(), labels=[f"{tick:.4g}" for tick in ticks])


def _join_notes(*notes: str) -> str:
    return ", ".join(filter(None, notes))


def is_light(colours: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell which colours (n, 4) are light enough for black text."""
    return np.asarray(np.asarray(colours) @ [0.299, 0.587, 0.114, 0.0] > 0.5)


def set_ticks(axes: Axes, mdp: MDP, cells: Cells, *, max_ticks: int = 12) -> None:
    """Number rows and columns if the states are named after them."""
    (row,), (column,) = cells.locate(np.array([0]))
    if mdp.state_name(0) != f"{row},{column}":
        axes.set(xticks=[], yticks=[])
        return
    place_ticks(axes, cells, max_ticks=max_ticks)
    axes.set(xlabel="column", ylabel="row")


def place_ticks(axes: Axes, cells: Cells, *, max_ticks: int = 12) -> None:
    """Number rows and columns, without the walls around the map."""
    for axis, count, low in zip((axes.yaxis, axes.xaxis), cells.shape, cells.corner, strict=True):
        first, last = low + 1, low + count - 2
        ticks = MaxNLocator(nbins=min(count, max_ticks), integer=True).tick_values(first, last)
        axis.set_ticks([tick for tick in ticks if first <= tick <= last])


def _plot_map(d: Distance, source: int, cells: Cells, normalise: bool, norm: NormName) -> Figure:
    height, width = cells.shape
    numbered = max(height, width) <= MAX_NUMBERED_CELLS
    cell = min(0.55, max(0.42, 7.0 / max(height, width)) if numbered else 7.0 / max(height, width))
    map_height, map_width = max(2.2, cell * height), max(2.2, cell * width)
    figure = Figure(figsize=(map_width + 1.6, map_height + 1.3), layout="constrained")
    axes = figure.subplots()
    scale = get_scale(d, normalise)
    distances = d.values[source] * scale
    colour_norm, note = build_norm(distances, d.error * scale, norm)
    image = draw_cells(axes, cells, distances, colour_norm)
    goals, unknown = find_goals(d.mdp), find_unknown_states(d)
    # States that were never visited are stored as absorbing.
    holes, walls = np.setdiff1d(find_holes(d.mdp), unknown), find_walls(d.mdp, cells)
    _hatch_unknown(axes, cells, unknown)
    _draw_walls(axes, walls, width=3.0)
    if numbered:
        _outline_state(axes, cells, source, width=3.0)
        draw_goals(axes, cells, goals, size=8, offset=(-0.3, 0.3))
        _draw_holes(axes, cells, holes, size=6, offset=(-0.3, 0.3))
        _write_values(axes, cells, distances, image, unknown)
    else:
        row, column = cells.locate(np.array([source]))
        axes.plot(column, row, "o", mec=ACCENT_COLOUR, mfc="none", mew=2.5, ms=11)
        draw_goals(axes, cells, goals, size=11)
        _draw_holes(axes, cells, holes, size=5)
        _write_stands(axes, d.mdp, cells, distances, image)
    set_ticks(axes, d.mdp, cells)
    _label_parts(axes, d, cells)
    axes.set_title(format_summary(d), fontsize=10)
    beside = axes.inset_axes((1 + 0.15 / map_width, 0, 0.18 / map_width, 1))
    kind = typeset_kind(d, normalise=normalise)
    label = _join_notes(f"{kind} from {escape(d.mdp.state_name(source))}", note)
    draw_colorbar(figure, image, label, cax=beside)
    shape = "s" if numbered else "o"
    markers = [build_marker("source", marker=shape, mfc="none", mec=ACCENT_COLOUR, mew=2.5)]
    if not np.delete(distances, unknown).all():
        markers.append(build_marker("distance 0", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if len(unknown):
        markers.append(build_marker("unknown", marker="s", mfc=UNKNOWN_COLOUR, mec="0.4", ms=9))
    if len(goals):
        markers.append(build_marker("goal", marker="*", mfc="white", mec="black", ms=10))
    if len(holes):
        markers.append(build_marker(HOLE_LABEL, **HOLE_STYLE, ms=6))
    wall: dict[str, Any] = {"marker": "s", "mfc": WALL_COLOUR, "mec": WALL_COLOUR, "ms": 9}
    if len(walls):
        wall = {"marker": "|", "mec": "black", "mew": 3.0, "ms": 10}
    markers.append(build_marker("wall", **wall))
    add_marker_legend(figure, markers, width=map_width + 1.6)
    return figure


def _plot_bars(d: Distance, source: int, normalise: bool) -> Figure:
    distances = d.values[source] * get_scale(d, normalise)
    nearest = np.argsort(distances, kind="stable")
    known = (nearest != source) & ~np.isin(nearest, find_unknown_states(d))
    order = np.concatenate([[source], nearest[known]])
    shown = order[:MAX_BARS]
    figure = Figure(figsize=(6.4, 1.4 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    names = [escape(d.mdp.state_name(t)) for t in shown]
    bars = axes.barh(names, distances[shown], color=LINE_COLOUR, height=0.7)
    format_number = build_number_format(distances[shown])
    axes.bar_label(bars, [format_number(x) for x in distances[shown]], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    kind = typeset_kind(d, normalise=normalise)
    axes.set(xlabel=f"{kind} from {escape(d.mdp.state_name(source))}", ylabel="state")
    selection = f"the {len(shown)} nearest of " if len(shown) < len(order) else ""
    axes.set_title(selection + format_summary(d), fontsize=10)
    return figure


def _label_parts(axes: Axes, d: Distance, cells: Cells) -> None:
    """Write the names of the parts of a map in the wall above them."""
    for name, states in find_parts(d.mdp).items():
        rows, columns = cells.locate(states)
        middle = (columns.min() + columns.max()) / 2
        axes.text(middle, float(rows.min()) - 1, name, ha="center", va="center", size=9)
    if d.mdp.names is not None and TERMINAL in d.mdp.names:
        state = d.mdp.state(TERMINAL)
        above = (cells.rows == cells.rows[state] - 1) & (cells.columns == cells.columns[state])
        (row,), (column,) = cells.locate(np.array([state]))
        if not above.any():
            axes.text(column + 0.7, row, TERMINAL, ha="left", va="center", size=9)


def _outline_state(axes: Axes, cells: Cells, state: int, *, width: float) -> None:
    (row,), (column,) = cells.locate(np.array([state]))
    box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=ACCENT_COLOUR, lw=width)
    axes.add_patch(box).set_zorder(3)


def _hatch_unknown(axes: Axes, cells: Cells, states: NDArray[np.int64]) -> None:
    """Hatch the cells of states that the data never visited."""
    for row, column in zip(*cells.locate(states), strict=True):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fc=UNKNOWN_COLOUR, ec="0.55", hatch="////", lw=0))


def _write_values(
    axes: Axes,
    cells: Cells,
    values: NDArray[np.floating],
    image: AxesImage,
    unknown: NDArray[np.int64],
) -> None:
    format_number = build_number_format(values)
    rows, columns = cells.locate(np.arange(len(values)))
    light = is_light(np.asarray(image.cmap(image.norm(values))))
    for state, (row, column, value) in enumerate(zip(rows, columns, values, strict=True)):
        if state not in unknown:
            colour = "black" if light[state] else "white"
            axes.text(
                column, row, format_number(value), ha="center", va="center", color=colour, size=8
            )


def _write_stands(
    axes: Axes, mdp: MDP, cells: Cells, values: NDArray[np.floating], image: AxesImage
) -> None:
    """Write the letters of Taxi's stands where the passenger is and where it goes."""
    stands = find_stands(mdp)
    if not stands:
        return
    states = np.array(list(stands))
    rows, columns = cells.locate(states)
    light = is_light(np.asarray(image.cmap(image.norm(values[states]))))
    for name, row, column, dark_text in zip(stands.values(), rows, columns, light, strict=True):
        colour = "black" if dark_text else "white"
        axes.text(column, row, name, ha="center", va="center", color=colour, size=8, weight="bold")
