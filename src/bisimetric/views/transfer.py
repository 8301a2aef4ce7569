"""A transferred policy on two maps: the source with its policy, the target with the regret."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.views._figure import (
    UNKNOWN_COLOUR,
    ZERO_COLOUR,
    Figure,
    add_marker_legend,
    build_marker,
)
from bisimetric.views.layout import Cells, build_number_format, find_goals, require_cells
from bisimetric.views.maps import draw_cells, draw_goals, is_light, set_ticks
from bisimetric.views.norms import build_norm

if TYPE_CHECKING:
    from bisimetric.uses import Transfer

MAX_CELL_INCHES, MAX_TOTAL_INCHES = 0.42, 16.0
"""The largest width of a cell and of all maps side by side."""
ARROW_LENGTH = 0.62
"""In cells."""


def plot_transfer(*transfers: Transfer) -> Figure:
    """Plot the source with its optimal policy beside the target with the transferred policy.

    Arrows point to the mean successor of the policy's action; a dot is an action that stays.
    Cells of the target are coloured by the regret of the transferred policy. Several transfers
    between the same MDPs, by different rules, have one map each.

    Args:
        transfers: as `uses.transfer` returns them, at least one.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no transfer, they are between different MDPs, or an MDP has no map.

    >>> from bisimetric import uses, worlds
    >>> rooms = [worlds.grid(" " * k + "g", discount=0.9) for k in (2, 4)]
    >>> figure = plot_transfer(uses.transfer(*rooms))
    >>> [axes.get_title() for axes in figure.axes]
    ['source, optimal policy', 'target, optimistic\\nno regret']
    """
    if not transfers or any(
        each.source is not transfers[0].source or each.target is not transfers[0].target
        for each in transfers
    ):
        raise InputError("plot_transfer: give transfers between the same two MDPs, at least one.")
    source, target = transfers[0].source, transfers[0].target
    source_cells, target_cells = require_transfer_maps(source, target)
    width = source_cells.shape[1] + len(transfers) * target_cells.shape[1]
    cell = min(MAX_CELL_INCHES, MAX_TOTAL_INCHES / width)
    height = cell * max(source_cells.shape[0], target_cells.shape[0])
    figure = Figure(
        figsize=(max(3.0, cell * width) + 0.6 * len(transfers) + 1.4, max(1.6, height) + 1.5),
        layout="constrained",
    )
    ratios = [source_cells.shape[1]] + [target_cells.shape[1]] * len(transfers)
    axes = figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    matched_states = np.concatenate([each.matched_states for each in transfers])
    matched = np.isin(np.arange(source.num_states), matched_states)
    colormap = ListedColormap([UNKNOWN_COLOUR, ZERO_COLOUR])
    draw_cells(axes[0], source_cells, matched.astype(np.float64), Normalize(0, 1), colormap)
    optimal = planning.greedy_policy(source, planning.optimal_values(source, tol=math.inf))
    _draw_policy(axes[0], source, source_cells, optimal, np.ones(source.num_states, np.bool_))
    axes[0].set_title("source, optimal policy", fontsize=10)
    regrets = np.array([each.regret for each in transfers])
    error = max(each.regret_error for each in transfers)
    norm, _ = build_norm(regrets, error)
    format_number = build_number_format(regrets)
    for panel, each in zip(axes[1:], transfers, strict=True):
        shown = np.where(each.regret > error, each.regret, 0.0)
        image = draw_cells(panel, target_cells, shown, norm)
        light = is_light(np.asarray(image.cmap(norm(each.regret))))
        _draw_policy(panel, target, target_cells, each.policy, light)
        largest = f"at most {format_number(each.max_regret)}"
        regret = f"regret {largest}" if each.max_regret > error else "no regret"
        panel.set_title(f"target, {each.rule}\n{regret}", fontsize=10)
    for panel, mdp, cells in zip(
        axes,
        [source] + [target] * len(transfers),
        [source_cells] + [target_cells] * len(transfers),
        strict=True,
    ):
        draw_goals(panel, cells, find_goals(mdp), size=7, offset=(0.3, 0.3))
        set_ticks(panel, mdp, cells, max_ticks=6)
    if (regrets > error).any():
        map_width = cell * target_cells.shape[1]
        beside = axes[-1].inset_axes((1 + 0.12 / map_width, 0, 0.16 / map_width, 1))
        figure.colorbar(image, cax=beside, label="regret of the policy", extend="min")
    markers = []
    if not matched.all():
        markers.append(build_marker("not matched", marker="s", mfc=UNKNOWN_COLOUR, mec="0.4", ms=9))
    if (regrets <= error).any():
        markers.append(build_marker("no regret", marker="s", mfc=ZERO_COLOUR, mec="0.4", ms=9))
    if len(find_goals(source)) or len(find_goals(target)):
        markers.append(build_marker("goal", marker="*", mfc="white", mec="black", ms=10))
    add_marker_legend(figure, markers)
    return figure


def require_transfer_maps(source: MDP, target: MDP) -> tuple[Cells, Cells]:
    """Return the cells that `plot_transfer` draws, or raise an InputError if it cannot."""
    return (
        require_cells(source, "plot_transfer", which=" of the source"),
        require_cells(target, "plot_transfer", which=" of the target"),
    )


def _draw_policy(
    axes: Axes, mdp: MDP, cells: Cells, policy: NDArray[np.int64], light: NDArray[np.bool_]
) -> None:
    """Draw an arrow to the mean successor of each cell: black on light cells, white on dark."""
    positions = np.asarray(mdp.positions)
    chain = mdp.apply_policy(policy)
    shift = chain.normalised_probabilities @ positions - positions
    length = np.hypot(*shift.T)
    moves = length > 1e-9
    arrow = ARROW_LENGTH * shift / np.where(moves, length, 1.0)[:, None]
    rows, columns = cells.locate(np.arange(mdp.num_states))
    for colour, selected in (("black", light), ("white", ~light)):
        at = selected & moves
        axes.quiver(
            columns[at],
            rows[at],
            arrow[at, 1],
            arrow[at, 0],
            angles="xy",
            scale_units="xy",
            scale=1,
            pivot="mid",
            units="x",
            width=0.07,
            headwidth=4.5,
            headlength=4.5,
            headaxislength=4,
            color=colour,
        )
        stays = selected & ~moves
        axes.plot(columns[stays], rows[stays], "o", color=colour, ms=2.5)
