"""Aggregated states: classes on their map, and what is promised and lost as they grow finer."""

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
from bisimetric.views.colours import SOURCE, WALL, ZERO
from bisimetric.views.convergence import GREY, level
from bisimetric.views.layout import Cells, cells, goals
from bisimetric.views.scatter import PALETTE

if TYPE_CHECKING:
    from bisimetric.uses import Aggregation, AggregationCurve

MOST_NUMBERED = 24
"""A map up to this many cells wide and high has the numbers of its classes written in the cells."""
MANY = 60
"""From so many states on, the axis of classes is logarithmic; and so many points have no marks."""


def cells_of_classes(mdp: MDP) -> Cells:
    """Where `classes` would draw the states; an InputError where it would refuse them."""
    on_map = cells(mdp)
    if on_map is None:
        raise InputError(
            "classes: the states have no map; give the MDP positions (whole numbers, all "
            "different)."
        )
    return on_map


def classes(
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
    on_map, found = cells_of_classes(mdp), np.asarray(labels)
    if found.shape != (mdp.num_states,) or found.dtype.kind not in "iu" or found.min() < 0:
        raise InputError(
            f"classes: labels are {found.dtype} of shape {found.shape} and must be a number from 0 "
            f"on for each of {mdp.num_states} states."
        )
    (height, width), (top, left) = on_map.shape, on_map.corner
    numbered = max(height, width) <= MOST_NUMBERED
    cell = 0.5 if numbered else 7.0 / max(height, width)
    figure = Figure(
        figsize=(max(3.2, cell * width + 0.6), max(2.2, cell * height) + 1.2), layout="constrained"
    )
    axes = figure.subplots()
    colours, place = _colours(found)
    axes.set_facecolor(WALL)
    axes.imshow(
        on_map.place(place[found].astype(np.float64)),
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
            axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, ec=SOURCE, lw=2.0))
    _stars(axes, rows, columns, goals(mdp), small=numbered)
    for axis, count, low in zip((axes.yaxis, axes.xaxis), on_map.shape, on_map.corner, strict=True):
        ticks = MaxNLocator(nbins=min(count, 12), integer=True).tick_values(low + 1, low + count)
        axis.set_ticks([tick for tick in ticks if low < tick < low + count - 1])
    axes.set(xlabel="column", ylabel="row")
    if title:
        axes.set_title(title, fontsize=10)
    marks = []
    if (np.bincount(found) == 1).any():
        marks.append(_mark("alone", marker="s", mfc=ZERO, mec="0.4", ms=9))
    if numbered and len(representatives):
        marks.append(_mark("representative", marker="s", mfc="none", mec=SOURCE, mew=2.0, ms=9))
    if len(goals(mdp)):
        marks.append(_mark("goal", marker="*", mfc="white", mec="black", ms=10))
    if marks:
        figure.legend(
            handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
        )
    return figure


def _colours(labels: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """White and the palette, and the place of each class among them, the largest class first."""
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    place = np.empty(len(sizes), np.int64)
    place[order] = 1 + np.arange(len(sizes)) % len(PALETTE)
    place[sizes < 2] = 0
    return np.vstack([to_rgba_array(ZERO), to_rgba_array(PALETTE)]), place


def _stars(
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


def _mark(label: str, **style: Any) -> Line2D:
    return Line2D([], [], linestyle="", label=label, **style)


def aggregation_curve(panels: Mapping[str, AggregationCurve], *, title: str = "") -> Figure:
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
    if not panels:
        raise InputError("aggregation_curve: there is nothing to draw; give at least one curve.")
    names = list(dict.fromkeys(name for curve in panels.values() for name in curve.found))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    figure = Figure(figsize=(0.8 + 4.6 * len(panels), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (name, curve) in zip(axes, panels.items(), strict=True):
        _panel(panel, curve, colours)
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
        ncols=min(len(handles), 3 * len(panels)),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
    )
    return figure


def _panel(axes: Axes, curve: AggregationCurve, colours: Mapping[str, str]) -> None:
    most = curve.mdp.farthest
    floor = curve.nothing
    everything = [each for found in curve.found.values() for each in found]
    losses = [x for each in everything for x in (each.loss, each.promised) if floor < x < np.inf]
    foot = 10.0 ** np.floor(np.log10(min(losses, default=most or 1.0)))
    for shift, (name, found) in enumerate(curve.found.items()):
        counts = [len(each) for each in found]
        # Up to the next number of classes this one is what such a request gets.
        style: dict[str, Any] = {"color": colours[name], "zorder": 3 + 0.1 * shift}
        style["drawstyle"] = "steps-post"
        marker = "o" if len(found) <= MANY else None
        axes.plot(counts, _shown(found, "loss", floor), lw=1.8, marker=marker, ms=3.0, **style)
        promised = _shown(found, "promised", floor)
        if np.isfinite(promised).any():
            axes.plot(counts, promised, lw=1.4, ls=(0, (4, 2)), **style)
    if most > 0:
        words = f"no policy loses more than {most:.3g}"
        level(axes, most, words, dashes=":", left=0.02, shift=0)
    axes.set_yscale("symlog", linthresh=foot, linscale=0.5)
    axes.set_ylim(-0.12 * foot, max(3 * most, 2 * foot))
    axes.yaxis.set_major_formatter(FuncFormatter(_decade))
    states = curve.mdp.num_states
    if states >= MANY:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"classes, of {states:,} states")
    axes.spines[["top", "right"]].set_visible(False)


def _decade(number: float, _: Any = None) -> str:
    """A power of ten as an axis writes it.

    >>> _decade(0.0), _decade(100.0), _decade(1e-5)
    ('0', '100', '$10^{-5}$')
    """
    if number == 0 or 1e-3 <= abs(number) <= 1e4:
        return f"{number:g}"
    return f"$10^{{{round(np.log10(abs(number)))}}}$"


def _shown(found: Sequence[Aggregation], what: str, floor: float) -> NDArray[np.float64]:
    """Numbers for the axis: rounding is 0, and what is not there is not drawn."""
    numbers = np.array([getattr(each, what) for each in found])
    return np.where(np.isfinite(numbers), np.where(numbers <= floor, 0.0, numbers), np.nan)
