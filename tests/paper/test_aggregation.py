"""The paper's aggregation: noisy samples, and clusters within their threshold."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from bisimetric import worlds
from bisimetric.learned import LearnedDistance
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.paper import aggregation, gridworld


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
