"""Aggregating states: no cluster loses a member, and none is wider than its threshold."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import exact, worlds
from bisimetric.errors import InputError
from bisimetric.learned import Learned, PairNetwork
from bisimetric.paper import aggregation, gridworld


@pytest.fixture(scope="module")
def d() -> Learned:
    """A network that has learned nothing: its distances are as good as any."""
    network = PairNetwork((8,))
    weights = network.init(jax.random.key(3), 2)
    return Learned("bisimulation", 0.99, network, weights, gridworld.SCALE)


def tables(size: int) -> st.SearchStrategy[NDArray[np.float64]]:
    """Symmetric tables with few different distances, so that many are equal to a threshold."""
    return (
        st.lists(st.integers(0, 4), min_size=size * size, max_size=size * size)
        .map(lambda numbers: np.triu(np.reshape(numbers, (size, size)), 1).astype(float))
        .map(lambda upper: upper + upper.T)
    )


class TestClusters:
    def test_members_are_not_lost(self) -> None:
        # On a line at 0, 1, 4, 2 and 5: 1 and 2 join 0, and 5 joins 4.
        points = np.array([0.0, 1.0, 4.0, 2.0, 5.0])
        distances = np.abs(np.subtract.outer(points, points))
        assert aggregation.clusters(distances, 2).tolist() == [0, 0, 1, 0, 1]
        # 2 is near 1, which joined before it, but not near 0: it starts a cluster of its own.
        assert aggregation.clusters(distances, 1).tolist() == [0, 0, 1, 2, 1]

    def test_a_late_member_counts(self) -> None:
        # 2 is within the threshold of 0, which began the cluster, but not of 1, which joined.
        distances = np.array([[0.0, 1, 1], [1, 0, 2], [1, 2, 0]])
        assert aggregation.clusters(distances, 1).tolist() == [0, 0, 1]

    @settings(deadline=None)
    @given(st.integers(1, 9).flatmap(tables), st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 4.0]))
    def test_law(self, distances: NDArray[np.float64], threshold: float) -> None:
        labels = aggregation.clusters(distances, threshold)
        together = labels[:, None] == labels[None, :]
        assert (distances[together] <= threshold).all()
        firsts = [int(np.argmax(labels == label)) for label in range(labels.max() + 1)]
        assert firsts == sorted(firsts)
        assert set(labels.tolist()) == set(range(len(firsts)))
        for state, label in enumerate(labels.tolist()):
            # No earlier cluster could have taken it.
            for other in range(label):
                earlier = np.flatnonzero(labels[:state] == other)
                assert (distances[state, earlier] > threshold).any()

    @settings(deadline=None)
    @given(st.integers(1, 9).flatmap(tables), st.integers(1, 9))
    def test_a_threshold_for_so_many(self, distances: NDArray[np.float64], most: int) -> None:
        threshold = aggregation.smallest_threshold(distances, most)
        assert aggregation.clusters(distances, threshold).max() < most
        assert 0 <= threshold <= distances.max()

    def test_the_classes_at_distance_0(self) -> None:
        d = exact.on_policy(worlds.load("mirrored-rooms-policy"), tol=1e-9).values
        labels = aggregation.clusters(d, 1e-6)
        np.testing.assert_array_equal(labels[:, None] == labels[None, :], d <= 1e-6)

    @pytest.mark.parametrize(
        ("distances", "threshold", "message"),
        [
            (np.zeros((2, 3)), 1.0, r"shape \(2, 3\) and must be a square table"),
            (np.full((2, 2), np.nan), 1.0, r"square table of finite numbers"),
            (np.zeros((2, 2)), -1.0, r"threshold is -1\.0 and must be at least 0"),
            (np.zeros((2, 2)), np.nan, r"threshold is nan and must be at least 0"),
        ],
    )
    def test_bad_input(self, distances: Any, threshold: float, message: str) -> None:
        with pytest.raises(InputError, match=message):
            aggregation.clusters(distances, threshold)

    def test_no_cluster_at_all(self) -> None:
        with pytest.raises(InputError, match=r"at most 0 are asked for"):
            aggregation.smallest_threshold(np.zeros((2, 2)), 0)


class TestAggregated:
    def test_samples_lie_around_their_cells(self, d: Learned) -> None:
        centres = gridworld.centres(worlds.load("mirrored-rooms"))
        found = aggregation.aggregated(
            d, centres, noise=0.1, most=0.3, each=6, counts=(31, 4), key=1
        )
        assert np.bincount(found.cells).tolist() == [6] * 31
        off = np.abs(found.points - centres[found.cells])
        assert 0.2 < off.max() <= 0.3 + 1e-6
        few, many = found.clusters
        assert len(few) <= 4
        assert len(few) <= len(many) <= 31
        table = d.table(found.points) / found.largest
        for each in found.clusters:
            together = each.labels[:, None] == each.labels[None, :]
            np.fill_diagonal(together, False)
            assert table[together].max() <= each.threshold + 1e-5

    def test_keys(self, d: Learned) -> None:
        one, same, other = (
            aggregation.aggregated(d, [[1.5, 1.5]], noise=0.1, most=0.3, each=3, key=key).points
            for key in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        assert (one != other).all()

    def test_blocks_make_no_difference(self, d: Learned) -> None:
        points = np.random.default_rng(0).uniform(1, 6, (7, 2)).astype(np.float32)
        np.testing.assert_allclose(
            aggregation.pairwise(d, points, block=3), d.table(points), rtol=1e-5, atol=1e-6
        )
