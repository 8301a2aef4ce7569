"""Cluster sampled states by learned distance, as in the supplement of Castro (2020).

Its three claims about the clusters are measured by `measure_claims`: one gathers states near a
goal, others states far from it, and one holds the hallway alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

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

PAPER_THRESHOLD = 0.86
"""The threshold of the supplement's code; that it is relative to the largest is assumed."""

MIN_OVERLAP = 0.9
"""Jaccard index from which a cluster counts as a set of cells."""

NUM_PERMUTATIONS = 1_000
"""Random permutations of the cells per p-value."""


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


def cluster_as_printed(distances: NDArray[np.floating], threshold: float) -> NDArray[np.int64]:
    """Cluster as the code in the supplement of Castro (2020) does, which loses later members.

    A state that is in no cluster, and not within the threshold of all initial members of one,
    starts a cluster of all states within the threshold of it; these move there from earlier
    clusters. A state within the threshold of all members of a cluster is not added to it, and has
    the label 0.

    Args:
        distances: (n, n).
        threshold: states nearer than this are joined.

    Returns:
        The labels (n,), those of empty clusters left out.

    >>> line = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    >>> cluster_as_printed(line, 1.5).tolist()
    [0, 1, 1, 2, 2]
    """
    clusters: list[NDArray[np.int64]] = []
    is_member = np.zeros(len(distances), np.bool_)
    for i, row in enumerate(distances):
        if is_member[i] or any((distances[c, i] < threshold).all() for c in clusters):
            continue
        clusters.append(np.flatnonzero(row < threshold))
        is_member[clusters[-1]] = True
    labels = np.zeros(len(distances), np.int64)
    for label, members in enumerate(clusters):
        labels[members] = label
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


class ClusterClaims(NamedTuple):
    """The claims of the supplement about one clustering.

    Attributes:
        clusters: number of clusters.
        purity: fraction of samples from the most frequent cell of their cluster.
        near_goal: the largest Jaccard index of a cluster with the samples near a goal.
        near_goal_p: fraction of permutations of the cells with at least that index.
        goal_distance: share of the variance of the distance to a goal between clusters.
        goal_distance_p: fraction of permutations of the cells with at least that share.
        hallway: the largest Jaccard index of a cluster with the samples of the hallway.
        alone: number of cells, with the hallway, whose index is at least 0.9.
    """

    clusters: int
    purity: float
    near_goal: float
    near_goal_p: float
    goal_distance: float
    goal_distance_p: float
    hallway: float
    alone: int


def measure_claims(
    labels: NDArray[np.int64],
    cells: NDArray[np.int64],
    goal_distances: NDArray[np.integer],
    hallway: int,
    *,
    radius: int = 1,
    seed: int = 0,
) -> ClusterClaims:
    """Measure the claims of the supplement on a clustering.

    The Jaccard index of two sets is the size of their intersection over that of their union.

    Args:
        labels: (n,), the cluster of each sample.
        cells: (n,), the cell of each sample, 0, ..., S - 1.
        goal_distances: (S,), steps from each cell to the nearest goal.
        hallway: the cell of the hallway.
        radius: largest number of steps to a goal of a cell near it.
        seed: of the permutations.

    Returns:
        One number per claim.

    >>> cells, steps = np.repeat(np.arange(4), 2), np.array([0, 1, 2, 3])
    >>> claims = measure_claims(np.array([0, 0, 0, 0, 1, 1, 2, 2]), cells, steps, 3)
    >>> claims.near_goal, claims.hallway, claims.alone
    (1.0, 1.0, 2)
    """
    counts = np.zeros((int(labels.max()) + 1, len(goal_distances)), np.int64)
    np.add.at(counts, (labels, cells), 1)
    sizes, per_cell = counts.sum(axis=1), counts.sum(axis=0)
    single = counts / (sizes[:, None] + per_cell - counts)
    near = goal_distances <= radius
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(near)) for _ in range(NUM_PERMUTATIONS)]
    overlap = _compute_overlap(counts, near)
    share = _compute_variance_share(counts, goal_distances)
    return ClusterClaims(
        len(counts),
        float(counts.max(axis=1).sum() / len(cells)),
        overlap,
        _p_value(overlap, [_compute_overlap(counts, near[order]) for order in orders]),
        share,
        _p_value(
            share, [_compute_variance_share(counts, goal_distances[order]) for order in orders]
        ),
        float(single[:, hallway].max()),
        int((single.max(axis=0) >= MIN_OVERLAP).sum()),
    )


def _compute_overlap(counts: NDArray[np.int64], chosen: NDArray[np.bool_]) -> float:
    """Return the largest Jaccard index of a cluster with the samples of some cells."""
    inside = counts[:, chosen].sum(axis=1)
    return float((inside / (counts.sum(axis=1) + counts[:, chosen].sum() - inside)).max())


def _compute_variance_share(counts: NDArray[np.int64], values: NDArray[np.integer]) -> float:
    """Return the variance of the means of clusters over that of all samples."""
    mean = counts.sum(axis=0) @ values / counts.sum()
    total = counts.sum(axis=0) @ (values - mean) ** 2
    means = counts @ values / counts.sum(axis=1)
    return float(counts.sum(axis=1) @ (means - mean) ** 2 / total)


def _p_value(found: float, permuted: Sequence[float]) -> float:
    """Return the permutation p-value, the identity included."""
    return (1 + sum(each >= found - 1e-12 for each in permuted)) / (1 + len(permuted))
