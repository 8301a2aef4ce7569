"""Cluster sampled states by learned distance, as in the supplement of Castro (2020)."""

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
"""Bisections of the threshold: accurate to a thousandth of its range."""


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """A clustering of states.

    Attributes:
        labels: (n,), the cluster of each state, 0, 1, ...
        threshold: the largest distance within a cluster, relative to the largest of all.
    """

    labels: NDArray[np.int64]
    threshold: float

    def __len__(self) -> int:
        return int(self.labels.max()) + 1

    def purity(self, cells: NDArray[np.int64]) -> float:
        """Compute the fraction of states from the most frequent cell of their cluster.

        >>> Clusters(np.array([0, 0, 0, 1]), 0.5).purity(np.array([3, 3, 4, 4]))
        0.75
        """
        counts = np.zeros((len(self), int(cells.max()) + 1), np.int64)
        np.add.at(counts, (self.labels, cells), 1)
        return float(counts.max(axis=1).sum() / len(cells))


@dataclasses.dataclass(frozen=True, eq=False)
class ClusteredSamples:
    """Samples of a continuous-state MDP and their clusters at several thresholds.

    Attributes:
        points: (n, k), the samples.
        cells: (n,), the underlying state of each sample.
        clusters: the clusterings, fewest clusters first.
        max_distance: the largest distance between two samples.
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
    """Sample states around each centre and cluster them by their learned distances.

    The paper's algorithm, `uses.cluster` with rule="incremental".

    Args:
        d: the learned distance between any two points.
        centres: (S, k), the underlying states.
        noise: standard deviation of the noise.
        noise_clip: largest absolute noise.
        samples_per_state: samples per centre.
        cluster_counts: for each of them, the smallest threshold with at most this many clusters.
        seed: of the noise.
    """
    points, cells = sample_points(
        centres, noise=noise, noise_clip=noise_clip, samples_per_state=samples_per_state, seed=seed
    )
    distances = compute_distances(d, points, block_size=samples_per_state)
    largest = float(distances.max())
    if largest > 0:
        distances /= largest
    thresholds = [
        find_smallest_radius(distances, count, num_bisections=NUM_BISECTIONS)
        for count in sorted(cluster_counts)
    ]
    clusters = tuple(
        Clusters(cluster_incrementally(distances, threshold), threshold) for threshold in thresholds
    )
    return ClusteredSamples(points, cells, clusters, largest)


def sample_points(
    centres: ArrayLike, *, noise: float, noise_clip: float, samples_per_state: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Sample points (S * samples_per_state, k) around centres (S, k), and return their centres.

    >>> points, cells = sample_points(
    ...     [[0.0], [10.0]], noise=1.0, noise_clip=0.5, samples_per_state=3, seed=0
    ... )
    >>> points.shape, cells.tolist(), float(abs(points[:, 0] - 10 * cells).max())
    ((6, 1), [0, 0, 0, 1, 1, 1], 0.5)
    """
    positions = np.asarray(centres, np.float64)
    random = np.random.default_rng(seed)
    cells = np.repeat(np.arange(len(positions)), samples_per_state)
    normal = random.standard_normal((len(cells), positions.shape[1]))
    clipped = np.clip(noise * normal, -noise_clip, noise_clip)
    return (positions[cells] + clipped).astype(np.float32), cells


def compute_distances(
    d: LearnedDistance, points: NDArray[np.float32], *, block_size: int
) -> NDArray[np.float32]:
    """Compute the distance matrix (n, n) of points, in blocks of rows."""
    distances = np.empty((len(points), len(points)), np.float32)
    with show_progress(len(points), "distances of samples") as progress:
        for start in range(0, len(points), block_size):
            rows = slice(start, start + block_size)
            distances[rows] = d.table(points[rows], points)
            progress.set_position(min(start + block_size, len(points)))
    return distances
