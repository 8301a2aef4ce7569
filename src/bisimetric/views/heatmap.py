"""Distance matrices as heatmaps, similar states side by side: one, or several to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.views._figure import Figure, build_colormap
from bisimetric.views.layout import (
    escape,
    find_unknown_states,
    format_summary,
    get_scale,
    typeset,
    typeset_kind,
)
from bisimetric.views.maps import draw_colorbar
from bisimetric.views.norms import NormName, build_norm

MAX_OPTIMALLY_ORDERED = 1000
MAX_DRAWN_STATES = 2000
MAX_NAMED_STATES = 40


def plot_heatmap(d: Distance, *, normalise: bool = False, norm: NormName = "auto") -> Figure:
    """Plot the distance matrix (S, S), rows and columns ordered by similarity.

    The order is that of the leaves of an average-linkage dendrogram. Of a matrix with more than
    2,000 states every k-th state is shown, ordered by distance from the most central one, so
    that near and far states are both included.

    Args:
        d: with a matrix of distances.
        normalise: whether to draw (1 - discount) * d, distances in units of reward per step, which
            are at most the reward range.
        norm: the colour scale: "linear", "log" or "quantile"; "auto" is linear unless a few pairs
            dominate it. The colour bar names a scale that is not linear.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no such norm.

    >>> from bisimetric import exact, worlds
    >>> figure = plot_heatmap(exact.bisimulation(worlds.load("pessimism")))
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
    scale = get_scale(d, normalise)
    colour_norm, note = build_norm(d.values * scale, d.error * scale, norm)
    image = axes.imshow(
        d.values[np.ix_(shown, shown)] * scale,
        cmap=build_colormap(),
        norm=colour_norm,
        interpolation="none" if named else "auto",
    )
    if named:
        names = [escape(d.mdp.state_name(int(state))) for state in shown]
        axes.set_xticks(np.arange(states), names, rotation=90, fontsize=8)
        axes.set_yticks(np.arange(states), names, fontsize=8)
    else:
        axes.set(xticks=[], yticks=[])
        axes.set(xlabel="states, similar ones side by side", ylabel="states in the same order")
    sampling = "" if step == 1 else f", one in {step} drawn"
    axes.set_title(format_summary(d) + sampling, fontsize=10)
    label = ", ".join(filter(None, [f"{typeset_kind(d, normalise=normalise)} (white: 0)", note]))
    draw_colorbar(figure, image, label, ax=axes, shrink=0.85)
    return figure


def order_by_similarity(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Order the states of a distance matrix (S, S) so that similar ones are adjacent.

    The leaves of an average-linkage dendrogram, with optimal leaf ordering up to 1,000 states.
    Time and memory are quadratic in S. The diagonal is ignored: that of MICo is not 0.

    >>> order = order_by_similarity(np.array([[0.0, 9, 1], [9, 0, 9], [1, 9, 0]])).tolist()
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
    """Order the states by distance from the one with the smallest sum of distances."""
    return np.argsort(values[values.sum(axis=1).argmin()], kind="stable")


def plot_comparison(
    matrices: Mapping[str, ArrayLike], *, names: Sequence[str] = (), title: str = ""
) -> Figure:
    """Plot distance matrices (S, S) side by side, all in the similarity order of the first.

    All have one colour scale, from the smallest positive distance between two different states to
    the largest, so that distances can be compared.

    Args:
        matrices: by title; the first one is the reference that defines the order.
        names: of the states; written for at most 40 states.
        title: of the whole figure.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no matrix, or they are not square and equally large.

    >>> figure = plot_comparison({"exact": [[0, 2], [2, 0]], "learned": [[0.1, 1.9], [1.9, 0.2]]})
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['exact', 'learned']
    """
    arrays = {name: np.asarray(matrix, np.float64) for name, matrix in matrices.items()}
    if not arrays:
        raise InputError("plot_comparison: there is nothing to draw; give at least one matrix.")
    first = next(iter(arrays.values()))
    for name, values in arrays.items():
        if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape != first.shape:
            raise InputError(
                f"plot_comparison: matrix {name!r} has shape {values.shape} and the first has "
                f"{first.shape}; all must be square and equally large."
            )
    states = len(first)
    order = order_by_similarity(first)
    side = 4.2
    figure = Figure(figsize=((side + 0.7) * len(arrays), side + 0.7), layout="constrained")
    axes = figure.subplots(1, len(arrays), squeeze=False)[0]
    off_diagonal = ~np.eye(states, dtype=np.bool_)
    compared = np.stack([a[off_diagonal] if states > 1 else a[0] for a in arrays.values()])
    norm, _ = build_norm(compared, 0.0)
    for panel, (name, values) in zip(axes, arrays.items(), strict=True):
        image = panel.imshow(
            values[np.ix_(order, order)], cmap=build_colormap(), norm=norm, interpolation="none"
        )
        panel.set_title(typeset(name), fontsize=10)
        panel.set(xticks=[], yticks=[])
        if len(names) == states <= MAX_NAMED_STATES:
            shown = [escape(names[state]) for state in order]
            panel.set_xticks(np.arange(states), shown, rotation=90, fontsize=6)
            panel.set_yticks(np.arange(states), shown, fontsize=6)
    figure.colorbar(image, ax=axes, shrink=0.75, extend="min")
    if title:
        figure.suptitle(typeset(title), fontsize=11)
    return figure
