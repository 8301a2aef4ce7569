"""A carried policy on two maps: the source with its policy, the target with what was carried."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.views._figure import (
    UNKNOWN_COLOUR,
    WALL_COLOUR,
    ZERO_COLOUR,
    build_colormap,
    build_norm,
)
from bisimetric.views.layout import Cells, build_number_format, find_cells, find_goals

if TYPE_CHECKING:
    from bisimetric.uses import Transfer

MAX_CELL_INCHES, MAX_TOTAL_INCHES = 0.42, 16.0
"""Inches of a cell, at most, and of all maps side by side."""
ARROW_LENGTH = 0.62
"""The length of an arrow, in cells."""


def plot_transfer(*transfers: Transfer) -> Figure:
    """The source with its best policy beside the target with the carried one.

    Arrows point where an action leads, on average; a dot is an action that leads nowhere. Cells of
    the target are coloured by what the carried policy loses there. Several transfers between the
    same MDPs, by different rules, have a map each.

    >>> from bisimetric import uses, worlds
    >>> rooms = [worlds.grid(" " * k + "g", discount=0.9) for k in (2, 4)]
    >>> figure = transferred(uses.transfer(*rooms))
    >>> [axes.get_title() for axes in figure.axes]
    ['source, best policy', 'target, optimistic\\nloses nothing']
    """
    if not transfers or any(
        each.source is not transfers[0].source or each.target is not transfers[0].target
        for each in transfers
    ):
        raise InputError("transferred: give transfers between the same two MDPs, at least one.")
    source, target = transfers[0].source, transfers[0].target
    here, there = require_transfer_maps(source, target)
    wide = here.shape[1] + len(transfers) * there.shape[1]
    cell = min(MAX_CELL_INCHES, MAX_TOTAL_INCHES / wide)
    tall = cell * max(here.shape[0], there.shape[0])
    figure = Figure(
        figsize=(max(3.0, cell * wide) + 0.6 * len(transfers) + 1.4, max(1.6, tall) + 1.5),
        layout="constrained",
    )
    ratios = [here.shape[1]] + [there.shape[1]] * len(transfers)
    axes = figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    used = np.isin(
        np.arange(source.num_states), np.concatenate([each.matched_states for each in transfers])
    )
    _draw_matched(axes[0], here, used)
    best = planning.greedy_policy(source, planning.optimal_values(source, tol=math.inf))
    _draw_policy(axes[0], source, here, best, np.ones(source.num_states, np.bool_))
    axes[0].set_title("source, best policy", fontsize=10)
    lost, error = (
        np.array([each.regret for each in transfers]),
        max(each.regret_error for each in transfers),
    )
    norm = build_norm(lost, error)
    written = build_number_format(lost)
    for panel, each in zip(axes[1:], transfers, strict=True):
        image = _draw_regret(panel, there, np.where(each.regret > error, each.regret, 0.0), norm)
        light = np.asarray(image.cmap(norm(each.regret))) @ [0.299, 0.587, 0.114, 0.0] > 0.5
        _draw_policy(panel, target, there, each.policy, light)
        loses = f"at most {written(each.max_regret)}" if each.max_regret > error else "nothing"
        panel.set_title(f"target, {each.rule}\nloses {loses}", fontsize=10)
    for panel, mdp, on_map in zip(
        axes, [source] + [target] * len(transfers), [here] + [there] * len(transfers), strict=True
    ):
        _draw_goals(panel, on_map, find_goals(mdp))
        _set_ticks(panel, mdp, on_map)
    if (lost > error).any():
        across = cell * there.shape[1]
        beside = axes[-1].inset_axes((1 + 0.12 / across, 0, 0.16 / across, 1))
        figure.colorbar(image, cax=beside, label="loss of the carried policy", extend="min")
    _add_legend(figure, source, target, used, bool((lost <= error).any()))
    return figure


def require_transfer_maps(source: MDP, target: MDP) -> tuple[Cells, Cells]:
    """Where `transferred` would draw two MDPs; an InputError where it would refuse them."""
    here, there = find_cells(source), find_cells(target)
    if here is None or there is None:
        which = "source" if here is None else "target"
        raise InputError(
            f"transferred: the states of the {which} have no map; give the MDP positions (whole "
            "numbers, all different)."
        )
    return here, there


def _draw_regret(
    axes: Axes, on_map: Cells, regret: NDArray[np.float64], norm: Normalize
) -> AxesImage:
    axes.set_facecolor(WALL_COLOUR)
    return axes.imshow(
        on_map.to_array(regret),
        cmap=build_colormap(),
        norm=norm,
        interpolation="none",
        extent=_extent(on_map),
    )


def _draw_matched(axes: Axes, on_map: Cells, matched: NDArray[np.bool_]) -> None:
    """White cells where a state was matched, grey ones where none was."""
    axes.set_facecolor(WALL_COLOUR)
    axes.imshow(
        on_map.to_array(matched.astype(np.float64)),
        cmap=ListedColormap([UNKNOWN_COLOUR, ZERO_COLOUR]),
        norm=Normalize(0, 1),
        interpolation="none",
        extent=_extent(on_map),
    )


def _extent(on_map: Cells) -> tuple[float, float, float, float]:
    (height, width), (top, left) = on_map.shape, on_map.corner
    return (left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5)


def _draw_policy(
    axes: Axes, mdp: MDP, on_map: Cells, policy: NDArray[np.int64], light: NDArray[np.bool_]
) -> None:
    """Where the policy leads from each cell: black arrows on light cells, white ones on dark."""
    positions = np.asarray(mdp.positions)
    chain = mdp.apply_policy(policy)
    ahead = chain.normalised_probabilities @ positions - positions
    length = np.hypot(*ahead.T)
    moves = length > 1e-9
    step = ARROW_LENGTH * ahead / np.where(moves, length, 1.0)[:, None]
    rows, columns = on_map.rows + on_map.corner[0], on_map.columns + on_map.corner[1]
    for shade, some in (("black", light), ("white", ~light)):
        at = some & moves
        axes.quiver(
            columns[at],
            rows[at],
            step[at, 1],
            step[at, 0],
            angles="xy",
            scale_units="xy",
            scale=1,
            pivot="mid",
            units="x",
            width=0.07,
            headwidth=4.5,
            headlength=4.5,
            headaxislength=4,
            color=shade,
        )
        stays = some & ~moves
        axes.plot(columns[stays], rows[stays], "o", color=shade, ms=2.5)


def _draw_goals(axes: Axes, on_map: Cells, states: NDArray[np.int64]) -> None:
    rows, columns = (
        (on_map.rows + on_map.corner[0])[states],
        (on_map.columns + on_map.corner[1])[states],
    )
    axes.plot(columns + 0.3, rows - 0.3, "*", mfc="white", mec="black", mew=0.5, ms=7, zorder=4)


def _set_ticks(axes: Axes, mdp: MDP, on_map: Cells) -> None:
    """Row and column numbers, where the states are named after them."""
    if (
        mdp.state_name(0)
        != f"{on_map.rows[0] + on_map.corner[0]},{on_map.columns[0] + on_map.corner[1]}"
    ):
        axes.set(xticks=[], yticks=[])
        return
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.set(xlabel="column", ylabel="row")


def _add_legend(
    figure: Figure, source: MDP, target: MDP, matched: NDArray[np.bool_], has_zero_regret: bool
) -> None:
    marks = []
    if not matched.all():
        marks.append(_legend_entry("not matched", marker="s", mfc=UNKNOWN_COLOUR, mec="0.4", ms=9))
    if has_zero_regret:
        marks.append(_legend_entry("no loss", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if len(find_goals(source)) or len(find_goals(target)):
        marks.append(_legend_entry("goal", marker="*", mfc="white", mec="black", ms=10))
    if marks:
        figure.legend(
            handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
        )


def _legend_entry(label: str, **style: Any) -> Line2D:
    return Line2D([], [], linestyle="", label=label, **style)
