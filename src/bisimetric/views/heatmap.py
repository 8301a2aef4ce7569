"""The whole table as a heatmap, similar states side by side.

Tables of distances side by side, their states in one order: the exact one and the learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.views._figure import build_colormap, build_norm
from bisimetric.views.layout import describe_kind, find_unknown_states, format_summary

MAX_OPTIMALLY_ORDERED = 1000
MAX_DRAWN_STATES = 2000
MAX_NAMED_STATES = 40


def plot_heatmap(d: Distance) -> Figure:
    """The table (S, S) in colour, rows and columns ordered by `similarity_order`.

    A picture has no more pixels than 2,000 rows need: of a larger table it shows every k-th
    state, counted by distance from the most central one, so that near and far are both there.

    >>> from bisimetric import exact, worlds
    >>> figure = heatmap(exact.bisimulation(worlds.load("pessimism")))
    >>> sorted(label.get_text() for label in figure.axes[0].get_xticklabels())
    ['s', 't', 'u']
    """
    known = np.setdiff1d(np.arange(d.mdp.num_states), find_unknown_states(d))
    states = len(known)
    step = -(-states // MAX_DRAWN_STATES)
    shown = known
    if step > 1:
        shown = known[_order_by_centrality(d.values[np.ix_(known, known)])[::step]]
    shown = shown[order_by_similarity(d.values[np.ix_(shown, shown)])]
    named = states <= MAX_NAMED_STATES
    side = max(3.6, 0.22 * states) if named else 6.5
    figure = Figure(figsize=(side + 1.4, side + 0.6), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        d.values[np.ix_(shown, shown)],
        cmap=build_colormap(),
        norm=build_norm(d.values, d.error),
        interpolation="none" if named else "auto",
    )
    if named:
        names = [d.mdp.state_name(int(state)) for state in shown]
        axes.set_xticks(np.arange(states), names, rotation=90, fontsize=8)
        axes.set_yticks(np.arange(states), names, fontsize=8)
    else:
        axes.set(xticks=[], yticks=[])
        axes.set(xlabel="states, similar ones side by side", ylabel="states in the same order")
    some = "" if step == 1 else f", one in {step} drawn"
    axes.set_title(format_summary(d) + some, fontsize=10)
    label = f"{describe_kind(d)} (white: 0)"
    figure.colorbar(image, ax=axes, label=label, shrink=0.85, extend="min")
    return figure


def order_by_similarity(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """An order (S,) of the states of a table (S, S) that puts similar ones side by side.

    The leaves of average linkage, up to 1,000 states turned so that neighbours are as close as
    the tree allows. Takes time and memory like S squared. The diagonal plays no part: MICo does
    not leave it at 0.

    >>> order = similarity_order(np.array([[0.0, 9, 1], [9, 0, 9], [1, 9, 0]])).tolist()
    >>> abs(order.index(0) - order.index(2))
    1
    """
    states = len(values)
    if states <= 2:
        return np.arange(states)
    condensed = squareform(values, checks=False).astype(np.float64)
    tree = hierarchy.linkage(condensed, "average")
    if states <= MAX_OPTIMALLY_ORDERED:
        tree = hierarchy.optimal_leaf_ordering(tree, condensed)
    return hierarchy.leaves_list(tree).astype(np.int64)


def _order_by_centrality(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """The states by distance from the one whose distances have the smallest sum."""
    return np.argsort(values[values.sum(axis=1).argmin()], kind="stable")


def plot_comparison(
    matrices: Mapping[str, ArrayLike], *, names: Sequence[str] = (), title: str = ""
) -> Figure:
    """Tables (S, S) as heatmaps, rows and columns in the similarity order of the first.

    Every table has colours of its own, from its smallest distance of two different states to its
    largest: how far apart states are, among those of one table, is what can be compared.

    Args:
        tables: by title; the first one is what the others are compared with.
        names: of the states.
        title: of the whole figure.

    >>> figure = comparison({"exact": [[0, 2], [2, 0]], "learned": [[0.1, 1.9], [1.9, 0.2]]})
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['exact', 'learned']
    """
    found = {name: np.asarray(table, np.float64) for name, table in matrices.items()}
    if not found:
        raise InputError("comparison: there is nothing to draw; give at least one table.")
    first = next(iter(found.values()))
    for name, table in found.items():
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape != first.shape:
            raise InputError(
                f"comparison: table {name!r} has shape {table.shape} and the first has "
                f"{first.shape}; all must be square and equally large."
            )
    states = len(first)
    order = order_by_similarity(first)
    side = 4.2
    figure = Figure(figsize=((side + 0.7) * len(found), side + 0.7), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    different = ~np.eye(states, dtype=np.bool_)
    for panel, (name, table) in zip(axes, found.items(), strict=True):
        norm = build_norm(table[different] if states > 1 else table, 0.0)
        image = panel.imshow(
            table[np.ix_(order, order)], cmap=build_colormap(), norm=norm, interpolation="none"
        )
        panel.set_title(name, fontsize=10)
        panel.set(xticks=[], yticks=[])
        if len(names) == states <= MAX_NAMED_STATES:
            shown = [names[state] for state in order]
            panel.set_xticks(np.arange(states), shown, rotation=90, fontsize=6)
            panel.set_yticks(np.arange(states), shown, fontsize=6)
        figure.colorbar(image, ax=panel, shrink=0.75, extend="min")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure
