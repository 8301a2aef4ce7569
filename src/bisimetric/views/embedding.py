"""States as points of an embedding, and errors of predictions from its coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.views._figure import (
    ACCENT_COLOUR,
    GREY,
    LINE_COLOUR,
    Figure,
    build_colormap,
    plot_mean_panels,
)
from bisimetric.views.layout import find_goals, typeset

if TYPE_CHECKING:
    from bisimetric.uses import Embedding

MAX_NAMED_STATES = 60
"""The largest number of states with written names."""
LABEL_OFFSETS = ((8, 0), (-8, 0), (0, 9), (0, -9), (8, 9), (-8, -9))
"""Candidate positions of a name beside its point, in points."""
SAME_POINT_FRACTION = 1e-3
"""Points closer than this fraction of the figure share a name."""
ZERO_STRESS = 1e-9
"""A stress below this is a rounding error."""


def plot_embedding(
    embedding: Embedding,
    values: ArrayLike | None = None,
    *,
    label: str = "value",
    title: str = "",
    normalise: bool = False,
) -> Figure:
    """Plot the first two coordinates of every state; of a single coordinate, the values over it.

    Names are written if there are few states, beside points where they overlap nothing. A star
    is a goal.

    Args:
        embedding: as `uses.embed` returns it.
        values: (S,), shown by colour, such as V*.
        label: of the values.
        title: of the figure; the quality of the embedding, if not given.
        normalise: whether to draw coordinates times 1 - discount, so that distances between points
            are in units of reward per step.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: the values do not fit the states, or an embedding of a plain matrix, which has
            no discount, is to be normalised.

    >>> from bisimetric import exact, uses, worlds
    >>> d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> figure = plot_embedding(uses.embed(d))
    >>> len(figure.axes[0].collections[0].get_offsets())
    31
    """
    if normalise and embedding.mdp is None:
        raise InputError("plot_embedding: a plain matrix has no discount; leave normalise out.")
    scale = 1.0 - embedding.mdp.discount if normalise and embedding.mdp is not None else 1.0
    points = embedding.coordinates * scale
    colours = None if values is None else np.asarray(values, np.float64)
    if colours is not None and colours.shape != points.shape[:1]:
        raise InputError(
            f"plot_embedding: values have shape {colours.shape} and must be ({len(points)},), one "
            "per state."
        )
    flat = points.shape[1] == 1
    height = np.zeros(len(points)) if colours is None else colours
    where = np.column_stack([points[:, 0], height if flat else points[:, 1]])
    figure = Figure(figsize=(7.0, 3.6 if flat else 5.8), layout="constrained")
    axes = figure.subplots()
    size = float(np.clip(4_000 / len(points), 3, 45))
    dots = axes.scatter(
        where[:, 0],
        where[:, 1],
        c=LINE_COLOUR if colours is None else colours,
        cmap=None if colours is None else build_colormap(),
        s=size,
        lw=0.4,
        ec="0.3" if size > 10 else "none",
        zorder=2,
    )
    if colours is not None and not flat:
        figure.colorbar(dots, ax=axes, label=typeset(label), shrink=0.85)
    unit = r" $\times\,(1-\gamma)$" if normalise else ""
    _format_axes(axes, embedding, typeset(label) if colours is not None and flat else None, unit)
    _draw_goals(axes, embedding, where)
    if len(points) <= MAX_NAMED_STATES:
        figure.draw_without_rendering()
        _draw_names(axes, where, _list_names(embedding))
    axes.set_title(typeset(title or describe_embedding(embedding)), fontsize=10)
    return figure


def describe_embedding(embedding: Embedding) -> str:
    """Describe the quality of an embedding in one line."""
    about = "about " if embedding.metadata.get("negative") == "estimate" else ""
    stress, gap = (
        0.0 if embedding.stress < ZERO_STRESS else x
        for x in (embedding.stress, embedding.mean_deviation)
    )
    quality = f"stress {stress:.2g}, mean error {gap:.3g}"
    negative = f"{about}{embedding.negative_fraction:.0%} of eigenvalues negative"
    return f"{embedding.method} MDS: {quality}; {negative}"


def _format_axes(axes: Axes, embedding: Embedding, y_label: str | None, unit: str) -> None:
    axes.set_xlabel(f"first coordinate{unit}")
    axes.spines[["top", "right"]].set_visible(False)
    if embedding.coordinates.shape[1] > 1:
        axes.set_ylabel(f"second coordinate{unit}")
        # Distances are comparable in every direction.
        axes.set_aspect("equal", adjustable="datalim")
    elif y_label is None:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    else:
        axes.set_ylabel(y_label)
    axes.margins(0.08)


def _draw_goals(axes: Axes, embedding: Embedding, points: NDArray[np.float64]) -> None:
    if embedding.mdp is not None and len(find_goals(embedding.mdp)):
        spots = points[find_goals(embedding.mdp)]
        axes.plot(*spots.T, "*", mfc="none", mec=ACCENT_COLOUR, ms=15, zorder=3, label="goal")
        axes.legend(frameon=False, fontsize=9, loc="best")


def _list_names(embedding: Embedding) -> list[str]:
    if embedding.mdp is None:
        return [str(s) for s in range(len(embedding.coordinates))]
    return [embedding.mdp.state_name(s) for s in range(len(embedding.coordinates))]


def _draw_names(axes: Axes, points: NDArray[np.float64], names: Sequence[str]) -> None:
    """Write names beside points where they overlap nothing; coincident points share one."""
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    pixels = axes.transData.transform(points)
    radius = SAME_POINT_FRACTION * float(np.hypot(*axes.bbox.size))
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in pixels[known]]
    named: set[int] = set()
    for s in known.tolist():
        if s in named:
            continue
        together = [t for t in known.tolist() if np.hypot(*(pixels[s] - pixels[t])) <= radius]
        named.update(together)
        more = f" and {len(together) - 1} more" if len(together) > 1 else ""
        _draw_name(axes, points[s], names[s] + more, taken)


def _draw_name(axes: Axes, point: NDArray[np.float64], text: str, occupied: list[Bbox]) -> None:
    for right, up in LABEL_OFFSETS:
        written = axes.annotate(
            text,
            tuple(point),
            xytext=(right, up),
            textcoords="offset points",
            ha={1: "left", 0: "center", -1: "right"}[np.sign(right).item()],
            va={1: "bottom", 0: "center", -1: "top"}[np.sign(up).item()],
            fontsize=7,
            color="0.25",
        )
        box = written.get_window_extent()
        inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
        if inside and not any(box.overlaps(other) for other in occupied):
            occupied.append(box)
            return
        written.remove()


def plot_prediction_error(
    num_features: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    title: str = "",
    columns: int | None = None,
) -> Figure:
    """Plot errors of predictions over the number of features: a panel per title, a line per label.

    A line is the mean over the seeds, its shade the 95% confidence interval of that mean.

    Args:
        num_features: (n,), increasing.
        panels: by title, and then by label, errors (seeds, n) as a fraction of the spread of the
            predicted values, NaN where there is none.
        title: of the whole figure.
        columns: panels per row; all, if not given.

    Returns:
        A Matplotlib figure.

    Raises:
        InputError: there is no line, or its shape does not fit.

    >>> figure = plot_prediction_error([1, 2], {"V*": {"random": [[0.9, 0.8], [0.8, 0.6]]}})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.85, 0.7]
    """
    counts = np.asarray(num_features, np.float64)
    figure, axes = plot_mean_panels(
        "plot_prediction_error",
        counts,
        panels,
        axis_labels=("features", "error / spread"),
        title=title,
        columns=columns,
        width=3.5,
        sharey=True,
    )
    for panel in axes[: len(panels)]:
        panel.axhline(1.0, color=GREY, lw=0.8, ls="--", label="_constant", zorder=1)
    axes[0].set(xscale="log", ylim=(0, 1.15))
    axes[0].xaxis.set_major_locator(FixedLocator(counts.tolist()))
    axes[0].xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    axes[0].xaxis.set_minor_locator(FixedLocator([]))
    return figure
