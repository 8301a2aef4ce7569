"""Aggregating states by distance: the clusters of the supplement of Castro (2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.learned import Learned
from bisimetric.progress import bar
from bisimetric.uses.aggregation.incremental import incremental, smallest_radius

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

    By the paper's rule, `uses.labels` with rule="incremental".

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
    thresholds = [smallest_radius(distances, each, halvings=HALVINGS) for each in sorted(counts)]
    found = tuple(Clusters(incremental(distances, each), each) for each in thresholds)
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
