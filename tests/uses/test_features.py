"""Features from distances, greedy k-centre under them, and the line that is fitted."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bisimetric import MDP, Coverage, InputError, exact, planning, worlds
from bisimetric._k_centre import k_centre
from bisimetric.uses import features
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

quick = settings(deadline=None, max_examples=scaled(60))


def least_radius(table: NDArray[np.float64], number: int) -> float:
    """The smallest covering radius of so many centres, by trying them all."""
    choices = itertools.combinations(range(len(table)), number)
    return min(float(table[list(chosen)].min(axis=0).max()) for chosen in choices)


@quick
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_greedy_centres_are_within_twice_the_best(size: int, number: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, (size, 2)).astype(float)
    table = cdist(points, points)
    cover = k_centre(lambda i: table[i], number)
    assert cover.radius <= 2 * least_radius(table, min(number, size)) + 1e-12
    near = table[cover.centres]
    assert (cover.distances == near.min(axis=0)).all()
    assert (near[cover.labels, np.arange(size)] == cover.distances).all()
    assert cover.radius == cover.distances.max()
    assert (np.diff(cover.radii) <= 0).all()
    assert len(set(cover.centres.tolist())) == len(cover.centres)
    assert len(cover.centres) == number or cover.radius == 0


def test_unreachable_points_get_a_centre_first() -> None:
    table = np.array([[0, 9, np.inf], [9, 0, np.inf], [np.inf, np.inf, 0]])
    cover = k_centre(lambda i: table[i], 2)
    assert (cover.centres.tolist(), cover.radii.tolist()) == ([0, 2], [np.inf, 9.0])


@quick
@given(
    st.one_of(deterministic_mdps(), stochastic_mdps()),
    st.integers(1, 4),
    st.sampled_from(["clusters", "radial"]),
)
def test_some_weights_satisfy_the_value_bound(mdp: MDP, number: int, form: Any) -> None:
    d = exact.bisimulation(mdp)
    found = features.build_features(d, number, basis=form)
    V = planning.optimal_values(mdp)
    off = np.abs(found.values @ V.values[found.centres] - V.values)
    assert (off <= found.value_bound + 2 * V.error).all()
    assert np.allclose(found.values.sum(axis=1), 1.0)
    assert (found.values >= 0).all()
    assert len(found.centres) == found.values.shape[1] <= number
    best = np.abs(features.predict_values(found.values, V.values) - V.values)
    assert np.sqrt(np.mean(best**2)) <= found.value_bound + 2 * V.error + 1e-6


def test_clusters_are_the_nearest_and_radial_is_gradual() -> None:
    d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    hard = features.build_features(d, 6)
    near = d.values[:, hard.centres]
    assert (near[hard.values == 1] == near.min(axis=1)).all()
    assert hard.radius == near.min(axis=1).max()
    soft = features.build_features(d, 6, basis="radial")
    assert ((soft.values > 0) == (near < 2 * hard.radius)).all()
    assert ((soft.values > 0).sum(axis=1) > 1).any()
    assert soft.value_bound > hard.value_bound == pytest.approx(hard.radius + d.error)


def test_an_array_has_no_bound() -> None:
    found = features.build_features([[0, 1], [1, 0]], 5)
    assert len(found.centres) == 2
    assert found.radius == 0
    assert math.isinf(found.value_bound)


def test_least_squares_is_that_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    phi, V = rng.normal(size=(30, 4)), rng.normal(size=30) + 50
    fitted = np.arange(30) % 3 > 0
    inputs = np.column_stack([np.ones(30), phi])
    X, y = inputs[fitted], V[fitted]
    weights = np.linalg.solve(X.T @ X, X.T @ y)
    assert np.allclose(features.predict_values(phi, V, fitted), inputs @ weights)
    # A feature that no fitted state has changes nothing, and its state is predicted as the mean.
    alone = np.zeros((30, 1))
    alone[0] = 1.0
    assert np.allclose(features.predict_values(alone, V, fitted), V[fitted].mean())


def test_bad_arguments_raise() -> None:
    table = [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="basis is 'soft' and must be clusters or radial"):
        features.build_features(table, 1, basis="soft")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="num_features is 0 and must be a whole number"):
        features.build_features(table, 0)
    with pytest.raises(InputError, match=r"uses.features: .*matrix has 3 at \[0, 1\]"):
        features.build_features([[0, 3], [1, 0]], 1)
    with pytest.raises(InputError, match=r"features have shape \(2,\) and values \(2,\)"):
        features.predict_values([1, 2], [1, 2])
    with pytest.raises(InputError, match="must be finite, and some are not"):
        features.predict_values([[1.0], [math.nan]], [1, 2])
    wrong: list[Any] = [[], [2], [-1], [0.5], [True]]
    for states in wrong:
        with pytest.raises(InputError, match="must be ids from 0 to 1, at least one, or a mask"):
            features.predict_values([[1], [2]], [1, 2], states)


def test_unvisited_states_have_no_value_bound() -> None:
    d = exact.bisimulation(worlds.load("mirrored-rooms"))
    known = np.ones(d.values.shape, np.bool_)
    seen = np.ones(d.mdp.R.shape, np.bool_)
    for lived in (known[0], np.arange(31) > 0):
        coverage = Coverage(seen, known, d.error, 0.0, 1, 1, lived)
        found = features.build_features(dataclasses.replace(d, coverage=coverage), 4)
        assert math.isfinite(found.value_bound) == lived.all()
