"""Coordinates that follow a distance: against dense oracles, as laws, and bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bisimetric import MDP, Distance, InputError, exact, planning, sampled, uses, worlds
from bisimetric.transitions import Transitions
from bisimetric.uses import mds
from bisimetric.uses.mds import measure_distortion, smacof
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

quick = settings(deadline=None, max_examples=scaled(60))
Array = NDArray[np.float64]


def points(size: int, width: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(size, width)) * np.arange(width, 0, -1)


def torgerson(table: Array) -> tuple[Array, Array]:
    """Eigenvalues, largest first, and coordinates of classical scaling, by the book."""
    n = len(table)
    J = np.eye(n) - np.ones((n, n)) / n
    values, vectors = np.linalg.eigh(-0.5 * J @ table**2 @ J)
    return values[::-1], vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0))


def slow_distortion(table: Array, x: Array) -> tuple[float, ...]:
    """Pair by pair."""
    missed = whole = gaps = largest = stretch = shrink = 0.0
    n = len(table)
    for s in range(n):
        for t in range(n):
            apart = math.dist(x[s], x[t])
            gap = abs(table[s, t] - apart)
            missed, whole = missed + gap**2, whole + table[s, t] ** 2
            gaps, largest = gaps + gap, max(largest, gap)
            if table[s, t] > 0:
                stretch = max(stretch, apart / table[s, t])
                shrink = max(shrink, table[s, t] / apart)
    return math.sqrt(missed / whole), stretch, shrink, gaps / (n * (n - 1)), largest


@pytest.mark.parametrize("method", ["classical", "metric"])
def test_euclidean_distances_are_preserved(method: Any) -> None:
    x = points(40, 3)
    table = cdist(x, x)
    found = uses.embed(table, 3, method=method)
    assert np.allclose(cdist(found.coordinates, found.coordinates), table, atol=1e-9)
    assert found.stress < 1e-12
    assert found.negative_fraction == 0
    assert found.rank == 3
    assert np.isclose([found.expansion, found.contraction], 1.0).all()


def test_classical_mds_matches_its_definition() -> None:
    table = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9)).values
    values, coordinates = torgerson(np.asarray(table))
    found = uses.embed(table, 4)
    assert np.allclose(found.eigenvalues, values[:4])
    assert np.allclose(np.abs(found.coordinates), np.abs(coordinates[:, :4]), atol=1e-8)
    assert np.isclose(found.negative_fraction, -values[values < 0].sum() / np.abs(values).sum())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_truncated_way_agrees_with_the_dense_one(
    monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    x = points(300, 4)
    table = cdist(x, x, "cityblock").astype(dtype)
    dense = uses.embed(table, 3)
    monkeypatch.setattr(mds, "MAX_DENSE_STATES", 10)
    truncated = uses.embed(table, 3)
    assert np.allclose(truncated.eigenvalues, dense.eigenvalues, rtol=1e-6)
    assert np.allclose(truncated.coordinates, dense.coordinates, atol=1e-4)
    assert (dense.metadata["negative"], truncated.metadata["negative"]) == ("exact", "estimate")
    assert dense.negative_fraction > 0.15
    assert abs(truncated.negative_fraction - dense.negative_fraction) < 0.04


def test_results_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(50, 3)
    table = cdist(x, x, "cityblock")
    whole = uses.embed(table, 2, method="metric")
    monkeypatch.setattr(mds, "BLOCK_ENTRIES", 130)
    assert np.allclose(uses.embed(table, 2, method="metric").coordinates, whole.coordinates)


def test_distortion_is_that_of_all_pairs() -> None:
    x = points(20, 4)
    table = cdist(x, x, "cityblock")
    found = uses.embed(table, 2)
    measured = (
        found.stress,
        found.expansion,
        found.contraction,
        found.mean_deviation,
        found.max_deviation,
    )
    assert np.allclose(measured, slow_distortion(table, found.coordinates))


@quick
@given(st.integers(2, 12), st.integers(1, 3), st.integers(0, 9))
def test_no_round_increases_the_stress(states: int, dimensions: int, seed: int) -> None:
    table = np.abs(np.random.default_rng(seed).normal(size=(states, states)))
    table = table + table.T
    np.fill_diagonal(table, 0.0)
    start = uses.embed(table, dimensions)
    reached = [start.stress]
    for steps in (1, 2, 5, 40):
        moved = uses.embed(table, dimensions, method="metric", max_iterations=steps)
        assert moved.metadata["rounds"] <= steps
        reached.append(moved.stress)
    assert (np.diff(reached) <= 1e-9).all()


def test_metric_scaling_leaves_axes_that_classical_scaling_cannot_use() -> None:
    # Four states at distance 1 from each other but two, at 3: no triangle, one positive axis.
    table = np.ones((4, 4)) - np.eye(4)
    table[0, 1] = table[1, 0] = 3.0
    classical = uses.embed(table, 3)
    metric = uses.embed(table, 3, method="metric")
    assert classical.rank < 3
    still = uses.embed(table, 3, method="metric", max_iterations=0)
    assert np.allclose(still.coordinates, classical.coordinates, atol=1e-12)
    assert metric.stress < classical.stress - 0.01


def test_smacof_converges_to_a_fixed_point() -> None:
    table = np.asarray(exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9)).values)
    found = uses.embed(table, 2, method="metric", max_iterations=10_000)
    assert found.metadata["rounds"] < 10_000
    again, _ = smacof(table, found.coordinates, 1, 0)
    assert measure_distortion(table, again).stress >= found.stress * (1 - 1e-5)


def test_the_same_seed_gives_the_same_points_and_another_nearly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mds, "MAX_DENSE_STATES", 10)
    x = points(120, 4)
    table = cdist(x, x, "cityblock")
    one, same, other = (uses.embed(table, 2, seed=seed) for seed in (0, 0, 1))
    assert (one.coordinates == same.coordinates).all()
    assert one.negative_fraction == same.negative_fraction != other.negative_fraction
    assert np.allclose(one.coordinates, other.coordinates, atol=1e-6)


def test_signs_do_not_depend_on_the_order_of_states() -> None:
    x = points(30, 2)
    order = np.random.default_rng(1).permutation(30)
    table = cdist(x, x)
    found, turned = uses.embed(table), uses.embed(table[np.ix_(order, order)])
    assert np.allclose(found.coordinates[order], turned.coordinates)
    far = np.abs(found.coordinates).argmax(axis=0)
    assert (found.coordinates[far, [0, 1]] > 0).all()


@quick
@given(st.one_of(deterministic_mdps(), stochastic_mdps()), st.integers(1, 4))
def test_points_bound_the_values(mdp: MDP, dimensions: int) -> None:
    d = exact.lax(mdp)
    found = uses.embed(d, dimensions)
    V = planning.optimal_values(mdp)
    ids = np.arange(mdp.num_states)
    gaps = np.abs(V.values[:, None] - V.values)
    assert (gaps <= found.value_bound(ids[:, None], ids) + 2 * V.error).all()
    assert not found.value_bound(0, 0)
    with pytest.raises(InputError, match=f"ids from 0 to {len(ids) - 1}, and not -1"):
        found.value_bound(0, -1)


def test_the_contraction_bounds_the_lipschitz_constant() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    found = uses.embed(exact.bisimulation(mdp), method="metric")
    V = planning.optimal_values(mdp).values
    real = found.lipschitz_constant(V)
    x = found.coordinates
    pairs = [(s, t) for s in range(31) for t in range(s)]
    assert np.isclose(real, max(abs(V[s] - V[t]) / math.dist(x[s], x[t]) for s, t in pairs))
    assert real <= found.contraction
    with pytest.raises(InputError, match=r"values have shape \(3,\) and must be \(31,\)"):
        found.lipschitz_constant([1, 2, 3])


def test_one_state_and_no_distance_at_all() -> None:
    for states in (1, 3):
        for method in ("classical", "metric"):
            found = uses.embed(np.zeros((states, states)), 2, method=method)
            assert not found.coordinates.any()
            assert found.coordinates.shape == (states, 2)
            assert (found.stress, found.rank, found.negative_fraction) == (0.0, 0, 0.0)
            assert (found.expansion, found.contraction) == (1.0, 1.0)


@pytest.mark.parametrize("method", ["classical", "metric"])
def test_dimensions_beyond_the_rank_are_zero(method: Any) -> None:
    line = np.abs(np.subtract.outer([0.0, 1.0, 4.0], [0.0, 1.0, 4.0]))
    found = uses.embed(line, 7, method=method)
    assert found.coordinates.shape == (3, 7)
    assert found.rank == 1
    assert not found.coordinates[:, 1:].any()
    assert found.stress < 1e-12


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_size_of_the_numbers_does_not_matter(scale: float) -> None:
    x = points(12, 2)
    table = cdist(x, x, "cityblock")
    found, scaled = (uses.embed(each, 2, method="metric") for each in (table, table * scale))
    assert np.allclose(scaled.coordinates / scale, found.coordinates)
    assert np.isclose(scaled.mean_deviation / scale, found.mean_deviation)
    assert np.isclose(scaled.stress, found.stress)


def test_states_on_one_spot_shrink_without_bound() -> None:
    square = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]]) * [3.0, 1.0]
    found = uses.embed(cdist(square, square), 1)
    assert math.isinf(found.contraction)
    assert math.isinf(found.lipschitz_constant([0, 1, 0, 0]))
    assert np.isclose(found.max_deviation, 1.0)


def test_unvisited_ids_have_no_coordinates() -> None:
    steps = Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 2], [False, True])
    d = sampled.bisimulation(steps, discount=0.9, seed=0)
    assert d.coverage is not None
    found = uses.embed(d)
    assert (np.isnan(found.coordinates).any(axis=1) == ~d.coverage.visited).all()
    assert np.isnan(found.coordinates[2]).all()
    assert math.isfinite(found.stress)


class Network:
    """A learned distance with listed states, as far as `embed` knows it."""

    kind = "bisimulation"
    values = np.array([[0.1, 2.0], [2.0, 0.2]], np.float32)

    def table(self, x: Any, y: Any) -> None: ...


def test_the_diagonal_of_a_network_is_ignored() -> None:
    found = uses.embed(Network(), 1)
    assert np.allclose(found.coordinates, [[1.0], [-1.0]])
    with pytest.raises(InputError, match=r"value_bound requires .* proven error"):
        found.value_bound(0, 1)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ([[0, 1], [2, 0]], r"uses.embed: .*matrix has 1 at \[0, 1\] and 2 at \[1, 0\]"),
        ([[0, -1], [-1, 0]], r"has -1 at \[0, 1\] and must be finite and at least 0"),
        ([[0, np.nan], [1, 0]], r"has nan at \[0, 1\]"),
        ([[0, 1], [1, 0.5]], r"has 0.5 at \[1, 1\] and must be 0 on the diagonal"),
        ([0, 1], r"of shape \(2,\) and must be square"),
    ],
)
def test_bad_matrices_raise(table: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        uses.embed(table)


def test_bad_arguments_raise() -> None:
    table = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(InputError, match="dimensions is 0 and must be a whole number, at least 1"):
        uses.embed(table, 0)
    with pytest.raises(InputError, match="method is 'tsne' and must be classical or metric"):
        uses.embed(table, method="tsne")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed is -1"):
        uses.embed(table, seed=-1)
    with pytest.raises(InputError, match=r"max_iterations is 1\.5"):
        uses.embed(table, max_iterations=1.5)  # type: ignore[arg-type]
    mico = exact.mico(worlds.load("random", states=5, successors=2), np.zeros(5, int))
    with pytest.raises(InputError, match=r"use exact\.reduced_mico"):
        uses.embed(mico)


def test_an_array_has_no_bound_and_a_distance_keeps_its_error() -> None:
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    table = np.array([[0.0, 2.0], [2.0, 0.0]])
    assert math.isinf(uses.embed(table).error)
    found = uses.embed(Distance(table, 0.25, "lax", mdp))
    assert found.error == 0.25
    assert found.value_bound(0, 1) == pytest.approx(2.25)
