"""LearnedDistance: states, observations and the terminal state; quality; files; warnings."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import MDP, InputError, Transitions, exact, learned, views
from bisimetric.distance import Distance
from bisimetric.distance._protocol import StateDistance
from bisimetric.errors import HorizonWarning, StochasticDataWarning
from bisimetric.learned import (
    FeatureScaling,
    LearnedDistance,
    evaluation,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned.castro2020 import Castro2020Config, FunctionalNetwork, PairNetwork
from bisimetric.learned.losses import LearnedKind
from tests.learned_references import (  # noqa: F401 - a fixture
    PLAIN,
    TABULAR,
    TRIANGLE,
    Table,
    compile_quickly,
    mask_of,
    table_of,
    targets_of,
    weights,
)

NETWORK = PairNetwork((6,), output_activation="relu")
QUICK = Castro2020Config(NETWORK, batch_size=4)
ROOT = Path(__file__).parents[2]
TRACKED = sorted(
    [
        *(ROOT / "docs" / "reports" / "gridworld").glob("*.safetensors"),
        *(ROOT / "atari/src/bisimetric_atari/paper/metrics/castro2020").glob("*.safetensors"),
    ]
)


def build_distance(key: int = 0, **changes: Any) -> LearnedDistance:
    """A network with some weights, of the states of the triangle."""
    fields: dict[str, Any] = {
        "kind": "bisimulation",
        "discount": 0.5,
        "network": NETWORK,
        "parameters": weights(key, NETWORK, 2),
        "scaling": FeatureScaling(np.array([1.0, 0.0]), np.array([2.0, 1.0])),
        "mdp": TRIANGLE,
        "points": np.array([[1, 0], [3, 1], [-1, 2]], np.float32),
        "metadata": {"method": "learned", "updates": 7},
        "history": {"step": np.array([5.0, 7.0]), "loss": np.array([2.0, 1.0])},
        "names": TRIANGLE.names,
    }
    return LearnedDistance(**(fields | changes))


def symmetric(parameters: Any, x: Any, y: Any) -> Table:
    return np.maximum(table_of(parameters, x, y), table_of(parameters, y, x).T)


def test_the_larger_of_both_orders_counts() -> None:
    d = build_distance()
    x = d.scaling(d.points if d.points is not None else [])
    np.testing.assert_allclose(x, [[0, 0], [1, 1], [-1, 2]])
    expected = symmetric(d.parameters, x, x)
    one_way = table_of(d.parameters, x, x)
    assert np.abs(one_way - one_way.T).max() > 0.01
    np.testing.assert_allclose(d.values, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(d.values, d.values.T)


def test_states_are_given_by_id_name_or_observation() -> None:
    d = build_distance()
    for found in (d(0, 1), d("one", "two"), d([1, 0], [3, 1]), d(np.int64(0), "1")):
        assert isinstance(found, float)
        assert found == pytest.approx(d.values[0, 1])
    np.testing.assert_allclose(d.table(["one", 2], [1]), d.values[[0, 2]][:, [1]], rtol=1e-6)
    elsewhere = d.table([[0.5, 0.5], [9.0, 9.0]], [[1.0, 0.0]])
    assert elsewhere.shape == (2, 1)
    assert elsewhere[0, 0] == pytest.approx(d([0.5, 0.5], 0))
    assert "approximation" in repr(d)
    assert repr(d) == "LearnedDistance(bisimulation, discount 0.5, 2 features, an approximation)"


def test_none_is_the_terminal_state() -> None:
    scale = FeatureScaling(np.array([1.0]), np.array([2.0]), has_terminal=True, shape=())
    d = build_distance(scaling=scale, mdp=None, points=None, names=None)
    end, two = np.array([[0.0, 1.0]]), np.array([[0.5, 0.0]])
    assert d(None, 2.0) == pytest.approx(symmetric(d.parameters, end, two)[0, 0], rel=1e-5)
    assert d(None, None) == pytest.approx(symmetric(d.parameters, end, end)[0, 0], rel=1e-5)
    assert d(2.0, 2.0) == pytest.approx(float(d.table([2.0])[0, 0]))


def test_to_distance_has_no_proven_error(tmp_path: Path) -> None:
    d = build_distance()
    table = d.to_distance()
    assert isinstance(table, Distance)
    assert math.isinf(table.error)
    assert "error not known" in repr(table)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(table.values[off], d.values[off])
    assert not table.values.diagonal().any()
    assert d.values.diagonal().any()
    assert table.bounds("one", "two") == (0.0, math.inf)
    assert table.metadata == {"method": "learned", "updates": 7}
    assert [t for t, _ in table.nearest("one", k=2)]
    assert str(table.explain("one", "two"))
    table.save(tmp_path / "d.npz")
    np.testing.assert_array_equal(Distance.load(tmp_path / "d.npz").values, table.values)
    figure = views.plot_heatmap(table)
    assert figure.axes


def test_a_mico_table_keeps_its_diagonal_and_its_policy() -> None:
    d = build_distance(kind="mico", metadata={"policy": [0, 0, 1]})
    table = d.to_distance()
    np.testing.assert_array_equal(table.values, d.values)
    assert table.policy is not None
    assert table.policy.tolist() == [0, 0, 1]


# Quality: a tabular network with planted faults.

PLANTED = np.array([[0.5, 1.0, 5.0], [2.0, 0.0, 1.0], [5.0, 1.0, 0.25]], np.float32)


def build_planted_distance(kind: LearnedKind) -> tuple[LearnedDistance, Any]:
    policy = None if kind == "bisimulation" else TRIANGLE.policy
    source = source_from_mdp(kind, TRIANGLE, policy, points=np.eye(3), scaling=PLAIN)
    return LearnedDistance(kind, 0.5, TABULAR, jnp.asarray(PLANTED), source.scaling), source


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy", "mico"])
def test_quality_finds_planted_violations(kind: LearnedKind) -> None:
    d, source = build_planted_distance(kind)
    found = d.quality(source, seed=3)
    # |1 - 2|; psi(0, 0); and d(0, 2) = 5 against d(0, 1) + d(1, 2) = max(1, 2) + 1.
    assert found.symmetry == pytest.approx(1.0)
    assert found.identity == pytest.approx(0.5)
    assert found.triangle == pytest.approx(2.0)
    assert found.max_distance == pytest.approx(5.0)
    batch = jax.jit(lambda key: source.sample_batch(key, 256))(jax.random.key(3))
    x, action, reward, x_next = (np.asarray(column) for column in batch)
    s, n = x.argmax(axis=1), x_next.argmax(axis=1)
    psi = PLANTED[np.ix_(s, s)]
    T = targets_of(kind, reward, PLANTED[np.ix_(n, n)], psi, 0.5, 1.0)
    W = mask_of(kind, action)
    assert found.residual == pytest.approx((W * np.abs(psi - T)).sum() / W.sum(), rel=1e-4)


def test_an_exact_table_has_no_faults() -> None:
    d, source = build_planted_distance("bisimulation")
    truth = jnp.asarray(exact.bisimulation(TRIANGLE).values, jnp.float32)
    found = dataclasses.replace(d, parameters=truth).quality(source)
    assert max(found.symmetry, found.identity, found.triangle, found.residual) < 1e-5


def test_quality_on_data_is_measured_in_the_scale_of_the_network() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5.0, 3.0, size=(40, 2))
    data = Transitions(
        x, rng.integers(2, size=40), rng.normal(size=40), x[::-1], np.zeros(40, bool)
    )
    source = source_from_transitions("bisimulation", data)
    d = build_distance(scaling=source.scaling, mdp=None, points=None)
    np.testing.assert_allclose(d.quality(data), d.quality(source), rtol=1e-5)
    # Part of the data has another mean: it must not be scaled by its own.
    few = data[:10]
    judged = d.quality(few)
    inputs = source_from_transitions("bisimulation", few, scaling=d.scaling)
    np.testing.assert_allclose(inputs.x, d.scaling(few.observations))
    np.testing.assert_allclose(judged, d.quality(inputs), rtol=1e-5)


# Files.


@pytest.mark.parametrize("ends", [False, True])
def test_a_saved_network_gives_the_same_distances(tmp_path: Path, ends: bool) -> None:
    changes: dict[str, Any] = {}
    if ends:
        changes = {
            "scaling": FeatureScaling(np.array([1.0]), np.array([2.0]), True, ()),
            "mdp": None,
            "points": None,
            "names": None,
        }
    d, file = build_distance(**changes), tmp_path / "d.safetensors"
    d.save(file)
    again = LearnedDistance.load(file, None if ends else TRIANGLE)
    assert (again.kind, again.discount, again.network) == (d.kind, d.discount, d.network)
    assert (again.metadata, again.names, again.scaling.shape) == (
        d.metadata,
        d.names,
        d.scaling.shape,
    )
    np.testing.assert_array_equal(again.history["loss"], d.history["loss"])
    if ends:
        assert again(None, 3.0) == d(None, 3.0)
    else:
        np.testing.assert_array_equal(again.values, d.values)
        assert again.to_distance().mdp.num_states == 3
        # Names and ids are in the file; the world itself is not.
        alone = LearnedDistance.load(file)
        assert alone("one", "three") == d("one", "three")
        assert alone.mdp is None
    assert list(tmp_path.iterdir()) == [file]


def test_a_saved_network_keeps_its_activation_and_its_output(tmp_path: Path) -> None:
    """With the weights alone, it would say something else."""
    network = PairNetwork((6,), activation="tanh", output_activation="softplus", init_weights="he")
    d, file = build_distance(network=network), tmp_path / "d.safetensors"
    d.save(file)
    again = LearnedDistance.load(file)
    assert again.network == network
    np.testing.assert_array_equal(again.values, d.values)
    assert np.abs(build_distance().values - d.values).max() > 0.01


# From the exported functions.


def test_learning_from_an_mdp_records_metadata_and_errors() -> None:
    truth = exact.bisimulation(TRIANGLE)
    d = learned.castro2020.bisimulation(
        TRIANGLE,
        updates=6,
        seed=1,
        config=QUICK,
        reference=truth,
        options=learned.RunOptions(log_every=3),
    )
    assert (d.kind, d.discount, d.mdp) == ("bisimulation", 0.5, d.mdp)
    assert set(d.history) == {"step", "loss", "error", "normalised", "correlation"}
    assert {each.shape for each in d.history.values()} == {(2,)}
    assert d.history["error"][-1] == pytest.approx(np.abs(d.values - truth.values).max(), rel=1e-5)
    assert (d.metadata["method"], d.metadata["updates"], d.metadata["seeds"]) == ("learned", 6, [1])
    assert d.metadata["device"] == jax.devices()[0].platform
    assert d("one", "two") == pytest.approx(d.values[0, 1])


def test_the_given_discount_is_that_of_the_matrix() -> None:
    d = learned.castro2020.on_policy(TRIANGLE, updates=2, discount=0.25, config=QUICK)
    table = d.to_distance()
    assert d.discount == table.mdp.discount == 0.25
    assert table.policy is not None
    assert table.policy.tolist() == [0, 0, 1]


def test_ids_of_data_are_states_with_names() -> None:
    data = Transitions(
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        [0, 1, 1, 0],
        [1, 0, 0, 1],
        [False, True, False, False],
        names=["left", "right"],
    )
    d = learned.castro2020.bisimulation(data, updates=2, config=QUICK)
    assert d.values.shape == (2, 2)
    assert d("left", 1) == pytest.approx(d.values[0, 1])
    assert d(None, "right") >= 0
    assert d.discount == 0.99
    assert d.scaling.has_terminal


def test_it_implements_the_protocol_of_distances() -> None:
    d = build_distance()
    assert isinstance(d, StateDistance)
    np.testing.assert_array_equal(np.asarray(d), d.values)
    assert np.asarray(d, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="cannot be a view"):
        np.array(d, copy=False)
    row = d.values[0]
    order = sorted((1, 2), key=lambda t: row[t])
    found = d.nearest("one", k=9)
    assert [t for t, _ in found] == order
    np.testing.assert_allclose([distance for _, distance in found], row[order], rtol=1e-6)
    assert d.nearest(0, k=1, names=True)[0][0] == TRIANGLE.state_name(order[0])
    unnamed = build_distance(names=None, mdp=None)
    assert unnamed.nearest(0, k=1, names=True) == unnamed.nearest(0, k=1)
    with pytest.raises(InputError, match="k is 0"):
        d.nearest(0, k=0)
    with pytest.raises(InputError, match="PivotIndex"):
        build_distance(points=None, names=None, mdp=None).nearest(0)


def test_too_few_updates_warn_of_the_horizon() -> None:
    config = dataclasses.replace(QUICK, target_update_period=1, horizon_growth=0.5)
    # beta must be 0.99 for a horizon of 0.99 / (1 - 0.5): 1 - 0.5^7 is, and 1 - 0.5^6 is not.
    with pytest.warns(HorizonWarning, match="7 updates do not cover the horizon, for which 8"):
        d = learned.castro2020.bisimulation(TRIANGLE, updates=7, config=config)
    assert d.metadata["required_updates"] == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned.castro2020.bisimulation(TRIANGLE, updates=8, config=config)


def test_stochastic_data_warns() -> None:
    fields: list[Any] = [[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0], [False] * 4]
    data = Transitions(*fields)
    with pytest.warns(StochasticDataWarning, match="have different outcomes"):
        learned.castro2020.bisimulation(data, updates=2, config=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StochasticDataWarning)
        learned.mico(data, updates=2, config=QUICK)


@pytest.mark.parametrize("path", TRACKED, ids=lambda path: path.stem)
def test_networks_in_the_repository_load(path: Path) -> None:
    d = LearnedDistance.load(path)
    assert isinstance(d.network, PairNetwork)
    assert d.metadata["algorithm"] == "castro2020"
    assert d.metadata["updates"] > 0
    assert d.metadata["seeds"]
    assert d.metadata["horizon_growth"] < 1


def test_the_errors_of_the_paper() -> None:
    truth = np.array([[0.0, 3.0], [3.0, 0.0]])
    table = np.array([[0.0, 2.0], [2.0, 1.0]])
    found = evaluation.compute_errors(jnp.asarray(truth), jnp.asarray(table))
    assert float(found["error"]) == 1.0
    scaled = truth / np.sqrt((truth**2).sum()) - table / np.sqrt((table**2).sum())
    assert float(found["normalised"]) == pytest.approx(np.abs(scaled).max(), rel=1e-5)
    expected = np.corrcoef(truth.ravel(), table.ravel())[0, 1]
    assert float(found["correlation"]) == pytest.approx(expected, rel=1e-5)
    nothing = evaluation.compute_errors(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
    assert {name: float(each) for name, each in nothing.items()} == {
        "error": 0.0,
        "normalised": 0.0,
        "correlation": 0.0,
    }


def test_a_functional_network_is_evaluated() -> None:
    def apply(scale: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return scale * jnp.abs(x - y).sum()

    d = build_distance(
        network=FunctionalNetwork(lambda key, features: 1.0, apply), parameters=jnp.float32(2.0)
    )
    assert d([1, 0], [3, 1]) == pytest.approx(2 * (1 + 1))


def test_an_mdp_has_features_or_positions_or_one_hot_vectors() -> None:
    assert source_from_mdp("bisimulation", TRIANGLE).points.tolist() == np.eye(3).tolist()
    there = TRIANGLE.replace(positions=[[0, 0], [0, 1], [1, 0]])
    assert source_from_mdp("bisimulation", there).points.tolist() == [[0, 0], [0, 1], [1, 0]]
    alike = TRIANGLE.replace(features=[[1.0], [1.0], [2.0]], positions=[[0, 0], [0, 1], [1, 0]])
    assert source_from_mdp("bisimulation", alike).points.tolist() == [[0, 0], [0, 1], [1, 0]]


def test_features_are_standardised_but_for_those_that_never_change() -> None:
    rng = np.random.default_rng(0)
    features = np.stack([rng.normal(7, 3, 50), np.full(50, 0.1), rng.normal(0, 1e-8, 50)], axis=1)
    mdp = MDP.deterministic(
        np.zeros((50, 1), int), np.zeros((50, 1)), discount=0.5, features=features
    )
    found = np.asarray(source_from_mdp("bisimulation", mdp).compute_features())
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=0), [1, 0, 1], atol=1e-4)
