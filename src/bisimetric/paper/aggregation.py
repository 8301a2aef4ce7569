"""Aggregating states by distance: the clusters of the supplement of Castro (2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.learned import Learned
from bisimetric.progress import bar

HALVINGS = 12
"""How often the way to a threshold is halved: it is found to a thousandth of its range."""


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """States in clusters.

    Attributes:
        labels: (n,), the cluster of each state, 0, 1, ...
        threshold: the largest distance within a cluster, as a share of the largest of all.
    """

    labels: NDArray[np.int64]
    threshold: float

    def __len__(self) -> int:
        return int(self.labels.max()) + 1

    def purity(self, cells: NDArray[np.int64]) -> float:
        """The share of states that come from the commonest cell of their cluster.

        >>> Clusters(np.array([0, 0, 0, 1]), 0.5).purity(np.array([3, 3, 4, 4]))
        0.75
        """
        met = np.zeros((len(self), int(cells.max()) + 1), np.int64)
        np.add.at(met, (self.labels, cells), 1)
        return float(met.max(axis=1).sum() / len(cells))


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregation:
    """States drawn from a world of continuous states, and their clusters at some thresholds.

    Attributes:
        points: (n, k), the states.
        cells: (n,), the underlying state that each was drawn around.
        clusters: fewest first.
        largest: the largest distance of two of them.
    """

    points: NDArray[np.float32]
    cells: NDArray[np.int64]
    clusters: tuple[Clusters, ...]
    largest: float


def aggregated(
    d: Learned,
    centres: ArrayLike,
    *,
    noise: float,
    most: float,
    each: int = 100,
    counts: Sequence[int] = (8,),
    key: int = 0,
) -> Aggregation:
    """Draws `each` states around every centre and aggregates them by their learned distances.

    Args:
        d: the learned distance of any two points.
        centres: (S, k), the underlying states.
        noise, most: the standard deviation of what is added to a centre, and its largest value.
        counts: for each of them, a threshold as small as at most so many clusters allow.
        key: of the draws.
    """
    points, cells = draws(centres, noise=noise, most=most, each=each, key=key)
    distances = pairwise(d, points, block=each)
    largest = float(distances.max())
    if largest > 0:
        distances /= largest
    thresholds = [smallest_threshold(distances, count) for count in sorted(counts)]
    found = tuple(Clusters(clusters(distances, each), each) for each in thresholds)
    return Aggregation(points, cells, found, largest)


def draws(
    centres: ArrayLike, *, noise: float, most: float, each: int, key: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points (S * each, k) around centres (S, k), one centre after the other, and which that is.

    >>> points, cells = draws([[0.0], [10.0]], noise=1.0, most=0.5, each=3, key=0)
    >>> points.shape, cells.tolist(), float(abs(points[:, 0] - 10 * cells).max())
    ((6, 1), [0, 0, 0, 1, 1, 1], 0.5)
    """
    where = np.asarray(centres, np.float64)
    random = np.random.default_rng(key)
    cells = np.repeat(np.arange(len(where)), each)
    added = np.clip(noise * random.standard_normal((len(cells), where.shape[1])), -most, most)
    return (where[cells] + added).astype(np.float32), cells


def pairwise(d: Learned, points: NDArray[np.float32], *, block: int) -> NDArray[np.float32]:
    """The distances (n, n) of all pairs of points, some rows at a time."""
    found = np.empty((len(points), len(points)), np.float32)
    with bar(len(points), "distances of samples") as progress:
        for start in range(0, len(points), block):
            found[start : start + block] = d.table(points[start : start + block], points)
            progress.at(min(start + block, len(points)))
    return found


def clusters(distances: ArrayLike, threshold: float) -> NDArray[np.int64]:
    """The clusters (n,), numbered 0, 1, ..., that grow from distances (n, n), which are symmetric.

    State after state joins the first cluster all of whose members are within `threshold`, else it
    starts a new one; so no two states of a cluster are farther apart. This is the rule that the
    paper's text gives. The snippet printed there loses members: it drops what `np.append` returns,
    so that nobody ever joins, and begins a cluster with all states near its first one, which need
    not be near each other and are taken away from the clusters that held them.

    >>> clusters([[0, 1, 2], [1, 0, 1], [2, 1, 0]], 1).tolist()
    [0, 0, 1]
    """
    table = np.asarray(distances)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
        raise InputError(
            f"clusters: the distances have shape {table.shape} and must be a square table of "
            "finite numbers."
        )
    if not threshold >= 0:
        raise InputError(f"clusters: threshold is {threshold!r} and must be at least 0.")
    labels = np.empty(len(table), np.int64)
    far: list[NDArray[np.floating]] = []  # how far a state is from the farthest member of each
    for state, row in enumerate(table):
        within = (label for label, each in enumerate(far) if each[state] <= threshold)
        label = next(within, len(far))
        labels[state] = label
        if label == len(far):
            far.append(row.copy())
        else:
            np.maximum(far[label], row, out=far[label])
    return labels


def smallest_threshold(distances: ArrayLike, most: int) -> float:
    """A threshold at which there are at most `most` clusters, as small as halving finds it.

    The range from the smallest distance of two states to the largest is halved again and again.

    >>> distances = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    >>> 1 < smallest_threshold(distances, 4) < 1.01
    True
    """
    if most < 1:
        raise InputError(f"clusters: at most {most} are asked for, and there is at least 1.")
    table = np.asarray(distances)
    low, high = 0.0, float(table.max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if clusters(table, middle).max() < most:
            high = middle
        else:
            low = middle
    return high
