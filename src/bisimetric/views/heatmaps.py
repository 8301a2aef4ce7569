"""The whole table as a heatmap, similar states side by side."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bisimetric.distance import Distance
from bisimetric.views.colours import build_colormap, build_norm
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
