"""Networks for MICo: their formulas, and the laws that they obey for all weights."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import InputError
from bisimetric.learned import MetricNetwork, MicoNetwork
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.learned.networks.mico_network import ReducedNetwork, ScaledMicoNetwork
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

EMBEDDING = MetricNetwork((8,), num_groups=3, group_size=2, fourier_features=0)
X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)


def embed(parameters: Any, x: Any) -> Any:
    """phi(x), layer by layer, in float64."""
    first, last = (
        {name: np.asarray(value, np.float64) for name, value in layer.items()}
        for layer in parameters
    )
    hidden = np.maximum(x @ first["weights"] + first["biases"], 0.0)
    return hidden @ last["weights"] + last["biases"]


@pytest.mark.parametrize("parametrisation", ["squared", "angular"])
def test_tables_equal_their_formulas(parametrisation: str) -> None:
    network = MicoNetwork(EMBEDDING, parametrisation, beta=0.3)
    parameters = network.init(jax.random.key(0), 2)
    table = np.asarray(network.table(parameters, jnp.asarray(X), jnp.asarray(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            u, v = embed(parameters["embedding"], x), embed(parameters["embedding"], y)
            if parametrisation == "squared":
                own, other = (embed(parameters["self"], each)[0] ** 2 for each in (x, y))
                expected = (own + other) / 2 + np.mean((u - v) ** 2)
            else:
                cosine = u @ v / (np.linalg.norm(u) * np.linalg.norm(v))
                norms = (np.mean(u**2) + np.mean(v**2)) / 2
                expected = norms + 0.3 * math.acos(np.clip(cosine, -1, 1))
            assert table[i, j] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("parametrisation", ["squared", "angular"])
def test_the_laws_hold_for_all_weights(parametrisation: str) -> None:
    network = ScaledMicoNetwork(MicoNetwork(EMBEDDING, parametrisation), 3.0)
    parameters = network.init(jax.random.key(1), 2)
    x = jnp.asarray(X)
    U, own = (
        np.asarray(each(parameters, x))
        for each in (lambda p, x: network.table(p, x, x), network.self_distances)
    )
    assert (U >= 0).all()
    np.testing.assert_allclose(U, U.T, atol=1e-5)
    np.testing.assert_allclose(np.diagonal(U), own, atol=1e-4)
    reduced = np.asarray(ReducedNetwork(network).table(parameters, x, x), np.float64)
    expected = U - (own[:, None] + own[None, :]) / 2
    np.testing.assert_allclose(reduced, expected, atol=1e-4)
    root = np.sqrt(reduced)
    detour = np.min(root[:, :, None] + root[None, :, :], axis=1)
    assert (root <= detour + 1e-2).all()


@pytest.mark.parametrize("parametrisation", ["squared", "angular"])
def test_gradients_are_finite_for_equal_and_zero_states(parametrisation: str) -> None:
    network = MicoNetwork(EMBEDDING, parametrisation)
    parameters = network.init(jax.random.key(0), 2)
    x = jnp.zeros((3, 2))
    gradient = jax.grad(lambda p: network.table(p, x, x).sum())(parameters)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_small_angles_are_kept() -> None:
    """arccos(1 - 1e-7) would be 0 or 3e-4 off in single precision."""
    network = MicoNetwork(EMBEDDING, "angular", beta=1.0)
    parameters = network.init(jax.random.key(0), 2)
    near = X[:1] * np.float32(1.005)
    u, v = (embed(parameters["embedding"], each[0]) for each in (X[:1], near))
    cross = math.sqrt(max((u @ u) * (v @ v) - (u @ v) ** 2, 0.0))
    expected = math.atan2(cross, float(u @ v))
    found = network.reduced_table(parameters, jnp.asarray(X[:1]), jnp.asarray(near))
    assert float(found[0, 0]) == pytest.approx(expected, abs=2e-3)


def test_any_network_can_be_reduced() -> None:
    network = PairNetwork((6,), output_activation="softplus")
    parameters, x = network.init(jax.random.key(0), 2), jnp.asarray(X)
    psi = np.asarray(network.table(parameters, x, x))
    d = np.maximum(psi, psi.T)
    own = np.diagonal(d)
    expected = np.maximum(d - (own[:, None] + own[None, :]) / 2, 0.0)
    reduced = ReducedNetwork(network).table(parameters, x, x)
    np.testing.assert_allclose(reduced, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"embedding": (8,)}, r"embedding is \(8,\) and must be a MetricNetwork"),
        ({"parametrisation": "cosine"}, "parametrisation is 'cosine' and must be one of squared"),
        ({"beta": 0.0}, "beta is 0.0 and must be a number, above 0"),
    ],
)
def test_fields_are_validated(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"MicoNetwork: {message}"):
        MicoNetwork(**fields)
