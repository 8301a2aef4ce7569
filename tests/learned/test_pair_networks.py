"""Networks of pairs: two halves are the whole, and the sum that is never stored is the sum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric.learned.castro2020 import FunctionalNetwork, PairNetwork
from bisimetric.learned.losses import build_batch_objective
from bisimetric.learned.networks import pair_layer
from bisimetric.learned.networks.pair_layer import TileGroups, build_tile_groups
from tests.learned_references import (  # noqa: F401 - a fixture
    Table,
    compile_quickly,
    record,
    table_of,
    weights,
)


def states(n: int, features: int = 3, key: int = 0) -> Table:
    return np.random.default_rng(key).normal(size=(n, features)).astype(np.float32)


@pytest.mark.parametrize("widths", [(8,), (6, 5), (6, 5, 4)])
def test_two_halves_are_the_network_on_pairs_side_by_side(widths: tuple[int, ...]) -> None:
    network = PairNetwork(widths)
    parameters = weights(1, network, 3)
    x, y = states(4), states(5, key=1)
    found = np.asarray(jax.jit(network.table)(parameters, x, y))
    expected = table_of(parameters, x, y)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (found > 0).any()
    assert found.min() >= 0
    assert not np.allclose(found[:, :4], found[:, :4].T)  # psi is not symmetric of itself


@pytest.mark.parametrize("output", ["relu", "open"])
def test_the_output_is_cut_off_at_zero(output: str) -> None:
    network = PairNetwork((4,), output_activation=output)
    parameters = weights(2, network, 3)
    parameters[-1]["biases"][:] = -50

    def total(each: Any) -> Any:
        table = network.table(each, jnp.asarray(states(3)), jnp.asarray(states(3)))
        return table.sum(), table

    slope, table = jax.jit(jax.grad(total, has_aux=True))(parameters)
    assert not np.asarray(table).any()
    # A ReLU that is 0 has no slope; the open one has that of its input: 1 for each of 9 pairs.
    assert float(slope[-1]["biases"][0]) == (9.0 if output == "open" else 0.0)


PLAIN: dict[str, Callable[[Table], Table]] = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "gelu": lambda z: z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2,
    "softplus": lambda z: np.log1p(np.exp(z)),
    "linear": lambda z: z,
    "open": lambda z: np.maximum(z, 0),
}


@pytest.mark.parametrize(
    ("widths", "activation", "output"),
    [
        ((5,), "relu", "linear"),
        ((5,), "tanh", "softplus"),
        ((5, 4), "gelu", "open"),
        ((5,), "softplus", "relu"),
    ],
)
def test_activations_and_outputs_are_what_they_are_called(
    widths: tuple[int, ...], activation: str, output: str
) -> None:
    network = PairNetwork(widths, activation=activation, output_activation=output)
    parameters, x = weights(3, network, 2), states(4, 2)
    layer = np.array([[*a, *b] for a in x for b in x], np.float64)
    for dense in parameters[:-1]:
        layer = PLAIN[activation](layer @ dense["weights"] + dense["biases"])
    before = layer @ parameters[-1]["weights"]
    # Half of them are below 0.
    parameters[-1]["biases"][:] = -np.median(before)
    expected = PLAIN[output](before - np.median(before)).reshape(4, 4)
    found = np.asarray(jax.jit(network.table)(parameters, x, x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(expected) > 0.05
    assert (found < 0).any() == (output == "linear")


@pytest.mark.parametrize(
    ("name", "expected"), [("glorot", 6 / 13), ("he", 6 / 8), ("lecun", 3 / 8)]
)
def test_initial_weights_have_the_named_scale(name: str, expected: float) -> None:
    """Of 8 numbers to 5; the largest of 40 is near the limit."""
    network = PairNetwork((5,), init_weights=name)
    first = np.asarray(jax.jit(lambda key: network.init(key, 4))(jax.random.key(0))[0]["weights"])
    assert 0.8 * math.sqrt(expected) < np.abs(first).max() <= math.sqrt(expected)


@pytest.mark.parametrize("widths", [(729,), (64, 32)])
def test_weights_start_within_glorots_limits_and_biases_at_zero(widths: tuple[int, ...]) -> None:
    parameters = jax.jit(lambda key: PairNetwork(widths).init(key, 5))(jax.random.key(3))
    sizes = (10, *widths, 1)
    assert [layer["weights"].shape for layer in parameters] == list(itertools.pairwise(sizes))
    for layer, before, after in zip(parameters, sizes[:-1], sizes[1:], strict=True):
        found, limit = np.asarray(layer["weights"]), math.sqrt(6 / (before + after))
        assert limit * 0.85 < np.abs(found).max() <= limit
        # The deviation of a uniform distribution is limit / sqrt(3); its own is about 1 / sqrt(n).
        assert found.std() == pytest.approx(limit / math.sqrt(3), rel=3 / math.sqrt(found.size))
        assert abs(found.mean()) < 3 * limit / math.sqrt(found.size)
        assert layer["biases"].shape == (after,)
        assert not np.asarray(layer["biases"]).any()


def test_layers_and_keys_differ() -> None:
    one, other = (
        PairNetwork((10, 10), output_activation="relu").init(jax.random.key(key), 5)
        for key in (0, 1)
    )
    assert not np.array_equal(one[0]["weights"], other[0]["weights"])
    assert not np.array_equal(one[0]["weights"], one[1]["weights"])


def apply(parameters: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """A network as another library might have it: one pair in, one number out."""
    layer = jnp.concatenate([x, y])
    for dense in parameters:
        layer = jax.nn.relu(layer @ dense["weights"] + dense["biases"])
    return layer[0]


@pytest.mark.parametrize("widths", [(8,), (6, 5)])
def test_a_network_of_ones_own_is_the_same_with_the_same_weights(widths: tuple[int, ...]) -> None:
    ours = PairNetwork(widths, output_activation="relu")
    theirs = FunctionalNetwork(ours.init, apply)
    parameters = weights(4, ours, 3)
    x, y = states(4), states(6, key=2)

    def both(network: Any) -> Any:
        def total(each: Any) -> Any:
            table = network.table(each, x, y)
            return jnp.sum(table**2), table

        return jax.jit(jax.grad(total, has_aux=True))(parameters)

    mine, yours = both(ours), both(theirs)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(yours), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


# What follows is of the hidden layer itself.


def layer(n: int, m: int, k: int, key: int = 0) -> tuple[Table, Table, Table, Table]:
    rng = np.random.default_rng(key)
    shapes = ((n, k), (m, k), (k,), (n, m))
    A, B, v, g = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    # Some sums that are 0 to the bit, where the slope is taken as 0.
    B[0] = -A[0]
    return A, B, v, g


def plain(A: Any, B: Any, v: Any) -> Any:
    return jnp.sum(jax.nn.relu(A[:, None, :] + B[None, :, :]) * v, axis=-1)


def with_slopes(summed: Any, A: Table, B: Table, v: Table, g: Table) -> list[Table]:
    """The sums, and their derivatives in the direction g."""
    value, back = jax.vjp(summed, A, B, v)
    return [np.asarray(each) for each in (value, *back(g))]


def compile_layer(groups: TileGroups | None = None) -> Any:
    """The hidden layer, compiled anew, since compiled code does not see which kernels are on."""
    return jax.jit(lambda A, B, v: pair_layer.sum_relu_pairs(A, B, v, groups))


def by_loops(A: Table, B: Table, v: Table, g: Table) -> list[Table]:
    """The formulas at the head of hidden.py, in float64."""
    A, B, v, g = (each.astype(np.float64) for each in (A, B, v, g))
    # In float32, as it is computed, so that what is 0 there is 0 here.
    before = A.astype(np.float32)[:, None, :] + B.astype(np.float32)[None, :, :]
    on = (before > 0).astype(np.float64)
    U, V = np.einsum("ij,ijk->ik", g, on), np.einsum("ij,ijk->jk", g, on)
    value = np.einsum("ijk,ijk,k->ij", A[:, None, :] + B[None, :, :], on, v)
    return [value, v * U, v * V, (A * U).sum(axis=0) + (B * V).sum(axis=0)]


def close(found: list[Table], expected: list[Table]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6 * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize("shape", [(8, 16, 5), (5, 3, 130), (1, 1, 1)])
def test_the_sum_and_its_slopes_are_those_of_the_plain_formula(shape: tuple[int, int, int]) -> None:
    given = layer(*shape)
    found = with_slopes(compile_layer(), *given)
    close(found, with_slopes(jax.jit(plain), *given))
    close(found, by_loops(*given))


@pytest.fixture
def on_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU kernels, taken step by step on whatever device there is."""
    monkeypatch.setattr(pair_layer, "interpret", True)


@pytest.mark.usefixtures("on_kernels")
@pytest.mark.parametrize("shape", [(16, 24, 130), (8, 8, 128)])
def test_the_kernels_are_the_plain_formula(shape: tuple[int, int, int]) -> None:
    A, B, v, g = given = layer(*shape)
    assert pair_layer.can_use_kernels(jnp.asarray(A), jnp.asarray(B))
    close(with_slopes(compile_layer(), *given), by_loops(A, B, v, g))


LABELS = [
    [0] * 24,
    [0] * 9 + [1] * 2 + [2] * 13,
    [0] * 8 + [3] * 16,
    list(range(24)),
]


def find_shared_groups(labels: list[int]) -> Table:
    """Whether a tile holds two rows of one group."""
    rows = np.array(labels).reshape(-1, pair_layer.TILE)
    return np.array([[bool(set(one) & set(other)) for other in rows] for one in rows])


@pytest.mark.parametrize("labels", LABELS)
def test_groups_say_which_tiles_hold_pairs_of_one_group(labels: list[int]) -> None:
    found = jax.jit(build_tile_groups)(np.array(labels))
    tiles, within = np.asarray(found.tiles, bool), find_shared_groups(labels)
    assert not (within & ~tiles).any()
    for row, low, high in zip(within, found.first_tile, found.end_tile, strict=True):
        assert not row[: int(low)].any()
        assert not row[int(high) :].any()


@pytest.mark.usefixtures("on_kernels")
@pytest.mark.parametrize("labels", LABELS[1:3])
def test_the_kernels_agree_for_pairs_of_one_group(labels: list[int]) -> None:
    A, B, v, g = layer(24, 24, 128, key=1)
    same = np.equal.outer(labels, labels)
    groups = build_tile_groups(jnp.array(labels))
    value, back = jax.vjp(compile_layer(groups), A, B, v)
    g = np.where(same, g, 0.0).astype(np.float32)
    expected = by_loops(A, B, v, g)
    found = [np.where(same, value, 0.0), *map(np.asarray, back(g))]
    close(found, [np.where(same, expected[0], 0.0), *expected[1:]])
    # Tiles without such pairs are left out: this is what groups are for.
    wanted = np.kron(
        np.asarray(groups.tiles, bool), np.ones((pair_layer.TILE, pair_layer.TILE), bool)
    )
    assert (~wanted).any()
    assert not np.asarray(value)[~wanted].any()


def test_without_kernels_groups_change_nothing() -> None:
    given = layer(24, 24, 6)
    groups = build_tile_groups(jnp.array(LABELS[1]))
    found = with_slopes(compile_layer(groups), *given)
    close(found, by_loops(*given))


@pytest.mark.usefixtures("on_kernels")
@pytest.mark.parametrize("shape", [(9, 8, 128), (8, 12, 128), (8, 8, 127)])
def test_other_shapes_fall_back(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = layer(*shape)
    assert not pair_layer.can_use_kernels(jnp.asarray(given[0]), jnp.asarray(given[1]))

    def refuse(*_: Any) -> Any:
        raise AssertionError("these shapes do not fit the tiles")

    monkeypatch.setattr(pair_layer, "sum_relu_kernel", refuse)
    monkeypatch.setattr(pair_layer, "sum_active_kernel", refuse)
    close(with_slopes(compile_layer(), *given), by_loops(*given))


def test_kernels_are_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    A = jnp.zeros((8, 128))
    assert pair_layer.can_use_kernels(A, A) == (pair_layer.get_platform() == "gpu")
    monkeypatch.setattr(pair_layer, "get_platform", lambda: "gpu")
    assert pair_layer.can_use_kernels(A, A)


def test_the_current_device_is_used() -> None:
    with jax.default_device(jax.devices("cpu")[0]):
        assert pair_layer.get_platform() == "cpu"


def test_the_loss_by_kernels_is_the_loss_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by action and in groups: the whole loss of d~ with its slope."""
    source = record(8)
    network = PairNetwork((128,), output_activation="relu")
    parameters, target = weights(5, network, 2), weights(6, network, 2)

    def both() -> Any:
        loss = build_batch_objective(source, network, "bisimulation", 0.9, 16, 500, 0.9).loss
        return jax.jit(jax.value_and_grad(loss))(
            parameters, (target, np.float32(0.5)), jax.random.key(0)
        )

    without = both()
    used: list[TileGroups | None] = []
    summed = pair_layer.sum_relu_kernel

    def record_groups(A: Any, B: Any, v: Any, groups: TileGroups | None) -> Any:
        used.append(groups)
        return summed(A, B, v, groups)

    monkeypatch.setattr(pair_layer, "interpret", True)
    monkeypatch.setattr(pair_layer, "sum_relu_kernel", record_groups)
    by_kernels = both()
    assert len(used) == 3
    assert None not in used
    for one, other in zip(jax.tree.leaves(by_kernels), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_open_output_has_the_values_of_relu_and_never_stops_learning() -> None:
    x = jax.random.normal(jax.random.key(0), (6, 3))
    relu, opened = (PairNetwork((4,), output_activation=name) for name in ("relu", "open"))
    weights = relu.init(jax.random.key(1), 3)
    weights[-1]["biases"] = jnp.full(1, -100.0)  # dead: 0 for every pair
    assert not relu.table(weights, x, x).any()
    assert not opened.table(weights, x, x).any()
    slopes = [
        jax.grad(lambda found, network=network: jnp.sum((network.table(found, x, x) - 1.0) ** 2))(
            weights
        )[-1]["biases"]
        for network in (relu, opened)
    ]
    assert slopes[0] == 0
    assert slopes[1] < 0  # a step against it raises psi
