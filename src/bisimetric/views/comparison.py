"""Tables of distances side by side, their states in one order: the exact one and the learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from bisimetric.errors import InputError
from bisimetric.views.colours import build_colormap, build_norm
from bisimetric.views.heatmaps import MAX_NAMED_STATES, order_by_similarity


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
