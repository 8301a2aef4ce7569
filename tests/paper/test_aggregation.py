"""The paper's aggregation: noisy samples, and clusters within their threshold."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import worlds
from bisimetric.learned import LearnedDistance
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.paper import aggregation, gridworld, theory_claims


@pytest.fixture(scope="module")
def d() -> LearnedDistance:
    """An untrained network."""
    network = PairNetwork((8,))
    weights = network.init(jax.random.key(3), 2)
    return LearnedDistance("bisimulation", 0.99, network, weights, gridworld.SCALING)


class TestClusterSamples:
    def test_samples_lie_around_their_cells(self, d: LearnedDistance) -> None:
        centres = gridworld.cell_centres(worlds.load("mirrored-rooms"))
        found = aggregation.cluster_samples(
            d,
            centres,
            noise=0.1,
            noise_clip=0.3,
            samples_per_state=6,
            cluster_counts=(31, 4),
            seed=1,
        )
        assert np.bincount(found.cells).tolist() == [6] * 31
        off = np.abs(found.points - centres[found.cells])
        assert 0.2 < off.max() <= 0.3 + 1e-6
        few, many = found.clusters
        assert len(few) <= 4
        assert len(few) <= len(many) <= 31
        table = d.table(found.points) / found.max_distance
        for each in found.clusters:
            together = each.labels[:, None] == each.labels[None, :]
            np.fill_diagonal(together, False)
            assert table[together].max() <= each.threshold + 1e-5

    def test_samples_depend_on_the_seed(self, d: LearnedDistance) -> None:
        one, same, other = (
            aggregation.cluster_samples(
                d, [[1.5, 1.5]], noise=0.1, noise_clip=0.3, samples_per_state=3, seed=seed
            ).points
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        assert (one != other).all()

    def test_the_block_size_is_irrelevant(self, d: LearnedDistance) -> None:
        points = np.random.default_rng(0).uniform(1, 6, (7, 2)).astype(np.float32)
        np.testing.assert_allclose(
            aggregation.compute_distances(d, points, block_size=3),
            d.table(points),
            rtol=1e-5,
            atol=1e-6,
        )


def cluster_by_the_printed_loop(distances: NDArray[Any], threshold: float) -> list[int]:
    """The loop of the supplement: `np.append` returns a copy, so members are never added."""
    clusters: list[list[int]] = []
    for i in range(len(distances)):
        present = False
        for cluster in clusters:
            if i in cluster:
                present = True
                break
            present = all(distances[j, i] < threshold for j in cluster)
            if present:
                break
        if not present:
            clusters.append([j for j in range(len(distances)) if distances[i, j] < threshold])
    labels = [0] * len(distances)
    for label, cluster in enumerate(clusters):
        for i in cluster:
            labels[i] = label
    return labels


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5])
def test_printed_clusters_are_those_of_the_printed_loop(threshold: float) -> None:
    points = np.random.default_rng(3).random((40, 2))
    distances = np.linalg.norm(points[:, None] - points[None, :], axis=-1)
    expected = cluster_by_the_printed_loop(distances, threshold)
    found = aggregation.cluster_as_printed(distances, threshold)
    assert np.unique(found).tolist() == list(range(found.max() + 1))
    together = np.equal.outer(expected, expected)
    np.testing.assert_array_equal(found[:, None] == found[None, :], together)


def test_claims_of_planted_clusters() -> None:
    """Clusters that are the goal's neighbourhood, the hallway and the rest have all claims."""
    mdp = worlds.load("mirrored-rooms")
    steps, hallway = theory_claims.count_steps_to_goal(mdp), mdp.state("4,3")
    assert (steps == 0).sum() == 2
    assert (steps <= 1).sum() == 6
    cells = np.repeat(np.arange(31), 5)
    kind = np.where(steps <= 1, 0, 2)
    kind[hallway] = 1
    planted = aggregation.measure_claims(kind[cells], cells, steps, hallway)
    assert (planted.near_goal, planted.hallway, planted.alone) == (1.0, 1.0, 1)
    assert planted.near_goal_p < 0.01
    assert planted.goal_distance_p < 0.01
    labels = np.random.default_rng(0).integers(3, size=len(cells))
    random = aggregation.measure_claims(labels, cells, steps, hallway)
    assert random.near_goal < 0.3
    assert random.near_goal_p > 0.05
    assert random.hallway < 0.2
