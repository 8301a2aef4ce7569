"""Classes by distance: the laws of each rule, against slow references, and input errors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from bisimetric import exact, uses, worlds
from bisimetric.errors import InputError
from bisimetric.learned import LearnedDistance
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.paper import gridworld
from bisimetric.uses.aggregation.clustering import ClusteringRule, cluster_matrix
from bisimetric.uses.aggregation.clustering_algorithms import (
    cluster_incrementally,
    complete_linkage,
    compute_merges,
    find_smallest_radius,
    k_medoids,
)
from bisimetric.uses.certificates import validate_distance_matrix

Table = NDArray[np.float64]
RULES: tuple[ClusteringRule, ...] = ("incremental", "complete", "medoids")


def tables(size: int) -> st.SearchStrategy[Table]:
    """Symmetric tables with few different distances, so that many are equal to a radius."""
    return (
        st.lists(st.integers(0, 4), min_size=size * size, max_size=size * size)
        .map(lambda numbers: np.triu(np.reshape(numbers, (size, size)), 1).astype(float))
        .map(lambda upper: upper + upper.T)
    )


TABLES = st.integers(1, 9).flatmap(tables)
RADII = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 4.0])


def line(*points: float) -> Table:
    return np.abs(np.subtract.outer(points, points))


class TestIncremental:
    def test_members_are_not_lost(self) -> None:
        # 1 and 2 join 0, and 5 joins 4.
        distances = line(0.0, 1.0, 4.0, 2.0, 5.0)
        assert cluster_incrementally(distances, 2).tolist() == [0, 0, 1, 0, 1]
        # 2 is near 1, which joined before it, but not near 0: it starts a class of its own.
        assert cluster_incrementally(distances, 1).tolist() == [0, 0, 1, 2, 1]

    def test_a_late_member_counts(self) -> None:
        # 2 is within the radius of 0, which began the class, but not of 1, which joined.
        distances = np.array([[0.0, 1, 1], [1, 0, 2], [1, 2, 0]])
        assert cluster_incrementally(distances, 1).tolist() == [0, 0, 1]

    @settings(deadline=None)
    @given(TABLES, RADII)
    def test_each_state_joins_the_first_class_that_is_near(
        self, distances: Table, radius: float
    ) -> None:
        members: list[list[int]] = []
        for state in range(len(distances)):
            near = (each for each in members if all(distances[state, t] <= radius for t in each))
            found = next(near, None)
            if found is None:
                members.append([state])
            else:
                found.append(state)
        labels = cluster_incrementally(distances, radius)
        assert [np.flatnonzero(labels == c).tolist() for c in range(len(members))] == members

    @settings(deadline=None)
    @given(TABLES, st.integers(1, 9))
    def test_a_radius_for_so_many(self, distances: Table, most: int) -> None:
        radius = find_smallest_radius(distances, most)
        assert cluster_incrementally(distances, radius).max() < most
        assert radius in distances

    def test_a_radius_that_no_smaller_distance_replaces(self) -> None:
        # In a line of eight, pairs of neighbours are four classes.
        assert find_smallest_radius(line(*range(8)), 4) == 1.0
        assert find_smallest_radius(line(*range(8)), 3) == 2.0
        assert find_smallest_radius(line(*range(8)), 8) == 0.0

    def test_the_classes_at_distance_0(self) -> None:
        d = exact.on_policy(worlds.load("mirrored-rooms-policy"), tol=1e-9).values
        labels = cluster_incrementally(d, 1e-6)
        np.testing.assert_array_equal(labels[:, None] == labels[None, :], d <= 1e-6)


class TestComplete:
    @settings(deadline=None)
    @given(st.integers(1, 14), st.integers(0, 1000), st.sampled_from([np.float64, np.float32]))
    def test_the_same_as_scipy(self, states: int, seed: int, dtype: Any) -> None:
        # No two distances are equal, so that there is only one answer.
        pairs = states * (states - 1) // 2
        distances = squareform(1 + np.random.default_rng(seed).permutation(pairs)).astype(dtype)
        if states == 1:
            distances = np.zeros((1, 1), dtype)
        theirs = hierarchy.linkage(squareform(distances), "complete") if states > 1 else None
        heights = np.sort(compute_merges(distances)[1])
        for clusters in range(1, states + 1):
            labels = complete_linkage(distances, clusters=clusters)
            if theirs is None:
                assert labels.tolist() == [0]
                continue
            assert heights.tolist() == theirs[:, 2].tolist()
            wanted = hierarchy.fcluster(theirs, clusters, "maxclust")
            np.testing.assert_array_equal(labels[:, None] == labels, wanted[:, None] == wanted)
            radius = float(heights[states - clusters - 1]) if clusters < states else 0.0
            np.testing.assert_array_equal(complete_linkage(distances, radius=radius), labels)

    @settings(deadline=None)
    @given(TABLES, RADII)
    def test_no_two_classes_could_be_merged(self, distances: Table, radius: float) -> None:
        labels = uses.cluster(distances, radius=radius, rule="complete")
        for one, other in itertools.combinations(range(labels.max() + 1), 2):
            assert distances[np.ix_(labels == one, labels == other)].max() > radius

    @settings(deadline=None)
    @given(st.permutations(range(7)))
    def test_the_order_of_states_is_irrelevant(self, order: list[int]) -> None:
        distances = line(0.0, 1.0, 2.5, 7.0, 7.25, 15.0, 19.0)
        labels = uses.cluster(distances, clusters=3, rule="complete")
        moved = uses.cluster(distances[np.ix_(order, order)], clusters=3, rule="complete")
        np.testing.assert_array_equal(
            moved[:, None] == moved[None, :], (labels[:, None] == labels[None, :])[order][:, order]
        )


class TestMedoids:
    @settings(deadline=None)
    @given(TABLES, st.integers(1, 9), st.integers(0, 3))
    def test_no_swap_makes_the_sum_smaller(self, distances: Table, k: int, seed: int) -> None:
        k = min(k, len(distances))
        labels, found = k_medoids(distances, k, seed)
        assert len(set(found.tolist())) == k
        assert labels[found].tolist() == list(range(k))
        total = distances[:, found].min(axis=1).sum()
        assert distances[np.arange(len(labels)), found[labels]].sum() == total
        for place, state in itertools.product(range(k), range(len(distances))):
            swapped = found.copy()
            swapped[place] = state
            assert distances[:, swapped].min(axis=1).sum() >= total - 1e-7 * total

    def test_best_of_all_on_a_line(self) -> None:
        distances = line(0, 1, 2, 10, 11, 12, 30, 31, 33)
        _, found = k_medoids(distances, 3, seed=0)
        best = min(
            distances[:, some].min(axis=1).sum() for some in itertools.combinations(range(9), 3)
        )
        assert distances[:, found].min(axis=1).sum() == best

    def test_seeds(self) -> None:
        distances = np.ones((40, 40)) - np.eye(40)  # any medoids will do
        one, same, other = (k_medoids(distances, 5, seed)[1].tolist() for seed in (1, 1, 2))
        assert one == same
        assert one != other

    def test_self_distances_are_ignored(self) -> None:
        distances = line(0.0, 1.0, 2.0, 9.0) + 5 * np.eye(4)
        assert uses.cluster(distances, clusters=2, rule="medoids").tolist() == [0, 0, 0, 1]
        assert uses.cluster(distances, radius=1, rule="medoids").tolist() == [0, 0, 0, 1]
        assert cluster_matrix(
            "", distances, 1.0, None, "medoids", 0
        ).representative_distances.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("rule", RULES)
class TestEveryRule:
    @settings(deadline=None)
    @given(TABLES, RADII)
    def test_within_the_radius(self, rule: ClusteringRule, distances: Table, radius: float) -> None:
        found = cluster_matrix("", distances, radius, None, rule, 0)
        labels, first, far, diameters = found
        assert (far <= radius).all()
        np.testing.assert_array_equal(far, distances[np.arange(len(labels)), first[labels]])
        assert labels[first].tolist() == list(range(labels.max() + 1))
        # Numbered by first appearance.
        assert list(dict.fromkeys(labels.tolist())) == list(range(labels.max() + 1))
        for label, diameter in enumerate(diameters):
            inside = distances[np.ix_(labels == label, labels == label)]
            assert diameter == inside.max()
            if rule != "medoids":
                assert diameter <= radius
                assert far[labels == label].max() == inside.max(axis=1).min()

    @settings(deadline=None)
    @given(TABLES, st.integers(1, 9))
    def test_no_more_than_so_many(self, rule: ClusteringRule, distances: Table, most: int) -> None:
        most = min(most, len(distances))
        labels = uses.cluster(distances, clusters=most, rule=rule)
        assert labels.max() < most
        if rule != "incremental":
            assert labels.max() == most - 1

    def test_everything_and_nothing(self, rule: ClusteringRule) -> None:
        distances = line(0, 1, 3, 7)
        assert uses.cluster(distances, radius=7, rule=rule).max() == 0
        assert uses.cluster(distances, radius=float("inf"), rule=rule).max() == 0
        assert uses.cluster(distances, radius=0.5, rule=rule).tolist() == [0, 1, 2, 3]
        assert uses.cluster([[0.0]], clusters=1, rule=rule).tolist() == [0]

    @pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
    def test_other_numbers(self, rule: ClusteringRule, dtype: Any) -> None:
        distances = line(0, 1, 8, 9).astype(dtype)
        distances.flags.writeable = False
        assert uses.cluster(distances, clusters=2, rule=rule).tolist() == [0, 0, 1, 1]


class TestObservations:
    def test_samples_of_continuous_states(self) -> None:
        network = PairNetwork((8,))
        weights = network.init(jax.random.key(3), 2)
        d = LearnedDistance("bisimulation", 0.99, network, weights, gridworld.SCALING)
        points = np.random.default_rng(0).uniform(1, 6, (30, 2))
        labels = uses.cluster(d.table(points), clusters=4)
        assert labels.shape == (30,)
        assert 0 < labels.max() < 4
        with pytest.raises(InputError, match=r"use table\(observations\)"):
            uses.cluster(d, clusters=4)
        mdp = worlds.load("mirrored-rooms")
        with pytest.raises(InputError, match=r"needs the MDP .*; use table\(observations\)"):
            uses.aggregate(mdp, d, clusters=4)
        centres = gridworld.cell_centres(mdp).astype(np.float32)
        knowing = dataclasses.replace(d, mdp=mdp, points=centres)
        found = uses.aggregate(mdp, knowing, clusters=4)
        assert (found.kind, found.regret_bound) == ("bisimulation", np.inf)
        assert found.regret > 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "exactly one of radius and clusters; neither"),
            ({"radius": 1.0, "clusters": 2}, "exactly one of radius and clusters; both"),
            ({"radius": -1.0}, r"radius is -1\.0 and must be a number, at least 0"),
            ({"radius": np.nan}, "radius is nan and must be"),
            ({"radius": "far"}, "radius is 'far' and must be"),
            ({"clusters": 0}, "clusters is 0 and must be a whole number, at least 1"),
            ({"clusters": 1.5}, r"clusters is 1\.5 and must be a whole number"),
            ({"clusters": 3}, "clusters is 3 and must be at most .* 2"),
            ({"clusters": 1, "rule": "complet"}, "no rule 'complet'; did you mean 'complete'"),
            ({"clusters": 1, "rule": 7}, "no rule 7; choose from incremental, complete, medoids"),
            ({"clusters": 1, "seed": -1}, "seed is -1 and must be"),
        ],
    )
    def test_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=f"uses.cluster: .*{message}"):
            uses.cluster(np.zeros((2, 2)), **options)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda d: d[:3], r"float64 of shape \(3, 4\) and must be square"),
            (lambda d: d[0], r"shape \(4,\) and must be square"),
            (lambda d: np.empty((0, 0)), r"shape \(0, 0\)"),
            (lambda d: d.astype(complex), "complex128 of shape"),
            (lambda d: {"values": d}, "object of shape"),
            (lambda d: set_entry(d, 2, 1, np.nan), r"nan at \[2, 1\] and must be finite"),
            (lambda d: set_entry(d, 0, 3, np.inf), r"inf at \[0, 3\] and must be finite"),
            (lambda d: set_entry(d, 3, 2, -1), r"-1 at \[3, 2\] and must be .* at least 0"),
            (
                lambda d: set_entry(d, 1, 3, 9),
                r"9 at \[1, 3\] and 2 at \[3, 1\] and must be symmetric",
            ),
        ],
    )
    def test_tables(self, change: Callable[[Table], Any], message: str) -> None:
        with pytest.raises(InputError, match=f"here: the distance matrix .*{message}"):
            validate_distance_matrix("here", change(line(0.0, 1.0, 2.0, 3.0)))

    def test_an_entry_far_down(self) -> None:
        d = set_entry(np.zeros((1100, 1100)), 1030, 600, 1.0)
        with pytest.raises(InputError, match=r"0 at \[600, 1030\] and 1 at \[1030, 600\]"):
            validate_distance_matrix("here", d)
        with pytest.raises(InputError, match=r"nan at \[1030, 600\]"):
            validate_distance_matrix("here", set_entry(d, 1030, 600, np.nan))

    def test_the_rounding_of_a_network_is_symmetric_enough(self) -> None:
        d = line(0.0, 1.0, 2.0).astype(np.float32)
        d[0, 1] += 1e-6
        assert validate_distance_matrix("here", d) is d


def set_entry(d: Table, i: int, j: int, number: float) -> Table:
    d[i, j] = number
    return d
