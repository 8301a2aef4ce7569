"""Networks with one value an action: metrics whatever their weights, and free ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bisimetric import InputError
from bisimetric.learned import (
    FeatureScaling,
    FreeNetwork,
    LearnedDistance,
    MetricNetwork,
    source_from_mdp,
)
from bisimetric.learned.evaluation import compute_distances
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from tests.learned_references import TRIANGLE, Table, compile_quickly, contains  # noqa: F401 - a fixture
from tests.property_testing import scaled

FEATURES, ACTIONS, STATES = 2, 3, 5
METRIC = MetricNetwork((8,), num_groups=4, group_size=2)
FREE = FreeNetwork((8,))
FORMS = pytest.mark.parametrize("network", [METRIC, FREE], ids=["metric", "free"])
ULPS = 8 * float(np.finfo(np.float32).eps)

# Small numbers, equal rows and large ones; a wave of a large number still is between -1 and 1.
POINTS = hnp.arrays(
    np.float32, (STATES, FEATURES), elements=st.sampled_from([0.0, 1.0, -1.0, 0.3, -2.5, 40.0])
)
SCALES = st.sampled_from([1e-3, 1.0, 30.0])

_values = jax.jit(lambda network, *args: network.values(*args), static_argnums=0)
_table = jax.jit(lambda network, *args: network.table(*args), static_argnums=0)
_block_values = jax.jit(lambda network, *args: network.block_values(*args), static_argnums=0)


def wild(network: Any, key: int, by: float = 1.0, features: int = FEATURES) -> Any:
    """Parameters with weights and biases of any size, without a compiler."""
    rng = np.random.default_rng(key)
    shapes = jax.eval_shape(lambda k: network.init(k, features, ACTIONS), jax.random.key(0))
    return jax.tree.map(lambda s: (by * rng.normal(size=s.shape)).astype(np.float32), shapes)


def states(n: int, features: int = FEATURES, key: int = 0) -> Table:
    return np.random.default_rng(key).normal(size=(n, features)).astype(np.float32)


def metric_by_loops(network: MetricNetwork, parameters: Any, x: Table, y: Table) -> Table:
    """psi_a(x, y) = mean_g max_k |f_agk(x) - f_agk(y)|, in float64."""

    def embed(row: Table) -> Table:
        before = parameters[:-1]
        if network.fourier_features == "random" and len(row) <= 8:
            fourier, *before = before
            heard = np.sin(row.astype(np.float64) @ fourier["weights"] + fourier["biases"])
            layer = np.concatenate([row, 3 * np.sqrt(2) * heard])
        else:
            layer = append_octaves(row, network.fourier_features)
        for dense in before:
            layer = np.maximum(layer @ dense["weights"] + dense["biases"], 0)
        flat = layer @ parameters[-1]["weights"] + parameters[-1]["biases"]
        return np.asarray(flat.reshape(ACTIONS, network.group_size, network.num_groups))

    return np.array(
        [
            [[np.abs(embed(s)[a] - embed(t)[a]).max(axis=0).mean() for t in y] for s in x]
            for a in range(ACTIONS)
        ]
    )


def append_octaves(row: Table, octaves: Any) -> Table:
    """A state with sines and cosines at octaves of each feature."""
    row = row.astype(np.float64)
    if octaves is None:
        octaves = 4 if len(row) <= 8 else 0
    octaves = 0 if octaves == "random" else octaves
    angles = [value * np.pi / 2 * 2.0**k for value in row for k in range(octaves)]
    return np.concatenate([row, np.sin(angles), np.cos(angles)]) if octaves else row


def free_by_loops(network: FreeNetwork, parameters: Any, x: Table, y: Table) -> Table:
    """softplus of the mean of both orders, ten times as sharp as the plain one."""

    def z(s: Table, t: Table) -> Table:
        pair = np.concatenate(
            [
                append_octaves(s, network.fourier_features),
                append_octaves(t, network.fourier_features),
            ]
        )
        layer = np.maximum(pair @ parameters[0]["weights"] + parameters[0]["biases"], 0)
        return np.asarray(layer @ parameters[1]["weights"] + parameters[1]["biases"])

    both = np.array([[(z(s, t) + z(t, s)) / 2 for t in y] for s in x])
    return np.moveaxis(np.logaddexp(0, 10 * both) / 10, -1, 0)


@pytest.mark.parametrize(
    ("network", "features"),
    [
        (METRIC, 2),
        (MetricNetwork((6, 5), num_groups=3, group_size=4, fourier_features=0), 2),
        (MetricNetwork((6,), num_groups=1, group_size=1, fourier_features=2), 3),
        (MetricNetwork((6, 5), num_groups=3, group_size=2, fourier_features="random"), 2),
        (MetricNetwork((6,), num_groups=3, group_size=2, fourier_features="random"), 9),
        (MetricNetwork((6,), num_groups=2, group_size=2), 9),
    ],
)
def test_the_metric_matches_its_formula(network: MetricNetwork, features: int) -> None:
    parameters = wild(network, 1, 0.5, features)
    x, y = states(4, features), states(3, features, key=1)
    found = np.asarray(_values(network, parameters, x, y))
    assert found.shape == (ACTIONS, 4, 3)
    expected = metric_by_loops(network, parameters, x, y)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-4)
    # One value an action, each its own.
    assert np.abs(expected[0] - expected[1]).max() > 0.01


@pytest.mark.parametrize("network", [FREE, FreeNetwork((5,), fourier_features=0)])
def test_a_free_network_matches_its_formula(network: FreeNetwork) -> None:
    parameters = wild(network, 2, 0.3)
    x, y = states(4), states(3, key=1)
    found = np.asarray(_values(network, parameters, x, y))
    assert found.shape == (ACTIONS, 4, 3)
    expected = free_by_loops(network, parameters, x, y)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.01


def laws(table: Table) -> None:
    """Identity, symmetry and the triangle inequality, but for rounding."""
    assert np.isfinite(table).all()
    assert (table.diagonal() == 0).all()
    np.testing.assert_array_equal(table, table.T)
    assert table.min() >= 0
    detour = (table[:, :, None].astype(np.float64) + table[None, :, :]).min(axis=1)
    assert (table <= detour + ULPS * table.max()).all()


@settings(deadline=None, max_examples=scaled(60))
@given(POINTS, st.integers(0, 10**6), SCALES)
def test_a_metric_network_is_a_pseudometric_whatever_its_weights(
    x: Table, key: int, by: float
) -> None:
    for table in np.asarray(_values(METRIC, wild(METRIC, key, by), x, x)):
        laws(table)


@settings(deadline=None, max_examples=scaled(60))
@given(POINTS, st.integers(0, 10**6), SCALES)
def test_the_largest_of_means_of_them_is_one_too(x: Table, key: int, by: float) -> None:
    network = PairQEnsemble(METRIC, ACTIONS, unit=7.0, diameter_bound=1.0)
    table = np.asarray(_table(network, [wild(METRIC, key, by), wild(METRIC, key + 1)], x, x))
    laws(table)


@settings(deadline=None, max_examples=scaled(40))
@given(POINTS, st.integers(0, 10**6), SCALES)
def test_a_free_network_is_symmetric_and_at_least_zero(x: Table, key: int, by: float) -> None:
    found = np.asarray(_values(FREE, wild(FREE, key, by), x, x))
    assert np.isfinite(found).all()
    assert found.min() >= 0
    np.testing.assert_array_equal(found, found.swapaxes(1, 2))


def test_a_free_network_can_violate_the_triangle_inequality() -> None:
    """A state may be far from itself, and a detour shorter."""
    found = np.asarray(_values(FREE, wild(FREE, 5), states(5), states(5)))[0]
    assert found.diagonal().max() > 0.01
    detour = (found[:, :, None] + found[None, :, :]).min(axis=1)
    assert (found > detour + 0.01).any()


@FORMS
def test_block_values_are_the_values_of_each_action_in_its_block(network: Any) -> None:
    parameters = wild(network, 6, 0.5)
    blocks = states(ACTIONS * 4).reshape(ACTIONS, 4, FEATURES)
    found = np.asarray(_block_values(network, parameters, blocks))
    assert found.shape == (ACTIONS, 4, 4)
    for a, x in enumerate(blocks):
        expected = np.asarray(_values(network, parameters, x, x))[a]
        np.testing.assert_allclose(found[a], expected, rtol=1e-5, atol=1e-6)


@FORMS
def test_block_values_have_the_gradient_of_the_values(network: Any) -> None:
    parameters = wild(network, 7, 0.3)
    blocks = states(ACTIONS * 3, key=2).reshape(ACTIONS, 3, FEATURES)

    def one(each: Any) -> Any:
        return jnp.sum(network.block_values(each, blocks) ** 2)

    def other(each: Any) -> Any:
        return sum(jnp.sum(network.values(each, x, x)[a] ** 2) for a, x in enumerate(blocks))

    mine, yours = jax.jit(lambda each: (jax.grad(one)(each), jax.grad(other)(each)))(parameters)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(yours), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * float(np.abs(b).max()))


@FORMS
def test_the_distance_is_the_maximum_over_actions_of_the_mean_over_networks(network: Any) -> None:
    x, y = states(4), states(3, key=1)
    for copies in (1, 2, 3):
        coupled = PairQEnsemble(network, ACTIONS, unit=5.0, diameter_bound=1.0, num_networks=copies)
        parameters = [wild(network, key, 0.5) for key in range(copies)]
        each = np.array([np.asarray(_values(network, one, x, y)) for one in parameters])
        expected = 5.0 * each.mean(axis=0).max(axis=0)
        found = np.asarray(_table(coupled, parameters, x, y))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        # Both orders say the same, so that one is enough.
        assert coupled.symmetric
        np.testing.assert_allclose(
            compute_distances(coupled, parameters, jnp.asarray(x), jnp.asarray(y)), found, rtol=1e-5
        )
        np.testing.assert_allclose(_table(coupled, parameters, y, x).T, found, rtol=1e-5, atol=1e-5)
    assert coupled.hidden == (8,)


@FORMS
def test_networks_and_seeds_start_apart_and_biases_at_zero(network: Any) -> None:
    coupled = PairQEnsemble(network, ACTIONS, unit=1.0, diameter_bound=1.0)
    start = jax.jit(lambda key: coupled.init(key, FEATURES))
    one, other = start(jax.random.key(0)), start(jax.random.key(1))
    assert len(one) == 2
    first = [each[0]["weights"] for each in (*one, *other)]
    for i in range(4):
        for j in range(i):
            assert not np.array_equal(first[i], first[j])
    for copy in one:
        assert not any(np.asarray(layer["biases"]).any() for layer in copy)
        for layer in copy:
            before, after = layer["weights"].shape
            limit = np.sqrt(6 / (before + after))
            assert 0.7 * limit < np.abs(layer["weights"]).max() <= limit


def of_triangle(network: Any, **changes: Any) -> LearnedDistance:
    coupled = PairQEnsemble(network, ACTIONS, unit=2.5, diameter_bound=0.75)
    points = np.array([[1, 0], [3, 1], [-1, 2]], np.float32)
    fields: dict[str, Any] = {
        "parameters": [wild(network, 8, 0.5), wild(network, 9, 0.5)],
        "scaling": FeatureScaling([1.0, 0.0], [2.0, 1.0]),
        "mdp": TRIANGLE,
        "points": points,
        "names": TRIANGLE.names,
    }
    return LearnedDistance("bisimulation", 0.5, coupled, **(fields | changes))


@pytest.mark.parametrize(
    "network",
    [
        MetricNetwork((8,), num_groups=4, group_size=2, fourier_features=1, activation="tanh"),
        MetricNetwork((4, 3), num_groups=2, group_size=3),
        MetricNetwork((4,), num_groups=2, group_size=3, fourier_features="random"),
        FreeNetwork((8,), fourier_features=3),
        FREE,
    ],
)
def test_a_saved_distance_gives_the_same_distances(network: Any, tmp_path: Path) -> None:
    d, file = of_triangle(network), tmp_path / "d.safetensors"
    d.save(file)
    again = LearnedDistance.load(file, TRIANGLE)
    assert again.network == d.network
    np.testing.assert_array_equal(again.values, d.values)
    assert again("one", "two") == d("one", "two") > 0
    assert again.to_distance().values[0, 0] == 0
    assert LearnedDistance.load(file)("one", "three") == d("one", "three")


def test_random_fourier_features_have_all_frequencies_up_to_the_highest() -> None:
    network = MetricNetwork(
        (4,), num_groups=2, group_size=3, fourier_features="random", highest_frequency=12.0
    )
    fourier = network.init(jax.random.key(0), 2, ACTIONS)[0]
    frequencies = np.linalg.norm(fourier["weights"], axis=0)
    assert frequencies.shape == fourier["biases"].shape == (256,)
    assert 2.0 <= frequencies.min() < 2.1
    assert 11.5 < frequencies.max() <= 12.0
    # As many above the geometric mean as below, in all directions, with all phases.
    assert 100 < (frequencies > np.sqrt(24.0)).sum() < 156
    angles = np.arctan2(*np.asarray(fourier["weights"]))
    assert np.histogram(angles, bins=4, range=(-np.pi, np.pi))[0].min() > 40
    assert np.histogram(fourier["biases"], bins=4, range=(0, 2 * np.pi))[0].min() > 40
    # More features than coordinates have none.
    assert len(network.init(jax.random.key(0), 9, ACTIONS)) == 2


def test_quality_of_a_metric_network() -> None:
    small = [wild(METRIC, 8, 0.05), wild(METRIC, 9, 0.05)]
    d = of_triangle(METRIC, parameters=small)
    found = d.quality(source_from_mdp("bisimulation", TRIANGLE, points=d.points, scaling=d.scaling))
    assert found.symmetry == found.identity == 0
    assert found.triangle <= ULPS * found.max_distance
    assert found.residual > 0.01
    free = of_triangle(FREE)
    other = free.quality(
        source_from_mdp("bisimulation", TRIANGLE, points=d.points, scaling=d.scaling)
    )
    assert other.symmetry == 0
    assert other.identity > 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MetricNetwork(()), "MetricNetwork: hidden is () and must be the widths of ..."),
        (lambda: MetricNetwork((0,)), "MetricNetwork: hidden is (0,) and must be the widths ..."),
        (
            lambda: MetricNetwork((8,), num_groups=0),
            "MetricNetwork: num_groups is 0 and must be a whole number, at least 1.",
        ),
        (
            lambda: MetricNetwork((8,), group_size=-1),
            "MetricNetwork: group_size is -1 and must be a whole number, at least 1.",
        ),
        (
            lambda: MetricNetwork((8,), fourier_features=-1),
            "MetricNetwork: fourier_features is -1 and must be a whole number, at least 0.",
        ),
        (
            lambda: MetricNetwork((8,), fourier_features="loud"),
            "MetricNetwork: fourier_features is 'loud' and must be a whole number, at least 0.",
        ),
        (
            lambda: MetricNetwork((8,), highest_frequency=0.0),
            "MetricNetwork: highest_frequency is 0.0 and must be a number, above 0.",
        ),
        (
            lambda: FreeNetwork((8,), fourier_features="random"),  # type: ignore[arg-type]
            "FreeNetwork: fourier_features is 'random' and must be a whole number, at least 0.",
        ),
        (
            lambda: MetricNetwork((8,), activation="swish"),
            "MetricNetwork: activation is 'swish' and must be one of relu, tanh, gelu, softplus.",
        ),
        (
            lambda: FreeNetwork((8, 8)),
            "FreeNetwork: hidden is (8, 8) and must be one width, such as (512,).",
        ),
        (lambda: FreeNetwork((-8,)), "FreeNetwork: hidden is (-8,) and must be the widths of ..."),
        (
            lambda: FreeNetwork((8,), fourier_features=0.5),  # type: ignore[arg-type]
            "FreeNetwork: fourier_features is 0.5 and must be a whole number, at least 0.",
        ),
    ],
)
def test_networks_validate_their_fields(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=contains(message.removesuffix("..."))):
        build()
