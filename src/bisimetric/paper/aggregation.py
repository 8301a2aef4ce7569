"""Aggregating states by distance: the clusters of the supplement of Castro (2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._progress import show_progress
from bisimetric.learned import LearnedDistance
from bisimetric.uses.aggregation.clustering_algorithms import (
    cluster_incrementally,
    find_smallest_radius,
)

NUM_BISECTIONS = 12
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
class ClusteredSamples:
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
    max_distance: float


def cluster_samples(
    d: LearnedDistance,
    centres: ArrayLike,
    *,
    noise: float,
    noise_clip: float,
    samples_per_state: int = 100,
    cluster_counts: Sequence[int] = (8,),
    seed: int = 0,
) -> ClusteredSamples:
    """Draws `each` states around every centre and aggregates them by their learned distances.

    By the paper's rule, `uses.labels` with rule="incremental".

    Args:
        d: the learned distance of any two points.
        centres: (S, k), the underlying states.
        noise, most: the standard deviation of what is added to a centre, and its largest value.
        counts: for each of them, a threshold as small as at most so many clusters allow.
        key: of the draws.
    """
    points, cells = sample_points(
        centres, noise=noise, noise_clip=noise_clip, samples_per_state=samples_per_state, seed=seed
    )
    distances = compute_distances(d, points, block_size=samples_per_state)
    largest = float(distances.max())
    if largest > 0:
        distances /= largest
    thresholds = [
        find_smallest_radius(distances, each, num_bisections=NUM_BISECTIONS)
        for each in sorted(cluster_counts)
    ]
    found = tuple(Clusters(cluster_incrementally(distances, each), each) for each in thresholds)
    return ClusteredSamples(points, cells, found, largest)


def sample_points(
    centres: ArrayLike, *, noise: float, noise_clip: float, samples_per_state: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points (S * each, k) around centres (S, k), one centre after the other, and which that is.

    >>> points, cells = draws([[0.0], [10.0]], noise=1.0, most=0.5, each=3, key=0)
    >>> points.shape, cells.tolist(), float(abs(points[:, 0] - 10 * cells).max())
    ((6, 1), [0, 0, 0, 1, 1, 1], 0.5)
    """
    where = np.asarray(centres, np.float64)
    random = np.random.default_rng(seed)
    cells = np.repeat(np.arange(len(where)), samples_per_state)
    added = np.clip(
        noise * random.standard_normal((len(cells), where.shape[1])), -noise_clip, noise_clip
    )
    return (where[cells] + added).astype(np.float32), cells


def compute_distances(
    d: LearnedDistance, points: NDArray[np.float32], *, block_size: int
) -> NDArray[np.float32]:
    """The distances (n, n) of all pairs of points, some rows at a time."""
    found = np.empty((len(points), len(points)), np.float32)
    with show_progress(len(points), "distances of samples") as progress:
        for start in range(0, len(points), block_size):
            found[start : start + block_size] = d.table(points[start : start + block_size], points)
            progress.set_position(min(start + block_size, len(points)))
    return found
