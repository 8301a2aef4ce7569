"""Slow, readable twins of the paper's losses, and a network that is nothing but a table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, Transitions
from bisimetric.learned import FeatureScaling, FitResult, LearnedDistance, fit, source_from_mdp
from bisimetric.learned.castro2020 import Castro2020Config, FunctionalNetwork, PairNetwork
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.sources import ANY_ACTION, Batch, TransitionSource

KINDS: list[LearnedKind] = ["bisimulation", "on_policy", "mico"]
Table = NDArray[Any]

TRIANGLE = MDP.deterministic(
    [[1, 2], [2, 0], [2, 1]],
    [[0.0, 1.0], [1.0, 0.5], [0.0, 0.0]],
    discount=0.5,
    names=["one", "two", "three"],
    policy=[0, 0, 1],
)
"""Three states, two actions; no two states are alike."""


@pytest.fixture(autouse=True, scope="module")
def compiled_in_a_hurry() -> Iterator[None]:
    """Compiling takes longer than all that is computed here."""
    config: Any = jax.config
    config.update("jax_disable_most_optimizations", True)
    yield
    config.update("jax_disable_most_optimizations", False)


def table_of(parameters: Any, x: Any, y: Any) -> Table:
    """psi of every pair of states, one beside the other, layer by layer, in float64."""
    layer = np.array([[*a, *b] for a in np.asarray(x) for b in np.asarray(y)], np.float64)
    for dense in parameters:
        before = layer @ np.asarray(dense["weights"], np.float64)
        layer = np.maximum(before + np.asarray(dense["biases"], np.float64), 0.0)
    return layer.reshape(len(x), len(y))


def targets_of(
    kind: LearnedKind, reward: Table, ahead: Table, here: Table, discount: float, beta: float
) -> Table:
    """T as the paper writes it: (1 - I) * max(R + discount beta N, beta S), or without the max."""
    size = len(reward)
    T = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            T[i, j] = abs(float(reward[i]) - float(reward[j])) + discount * beta * ahead[i, j]
            if kind == "bisimulation":
                T[i, j] = max(T[i, j], beta * here[i, j])
            if kind != "mico" and i == j:
                T[i, j] = 0.0
    return T


def mask_of(kind: LearnedKind, action: Table) -> Table:
    """W: equal actions for d~, anything for the others; the end takes any action."""
    size = len(action)
    W = np.ones((size, size))
    for i in range(size):
        for j in range(size):
            differ = action[i] != action[j] and ANY_ACTION not in (action[i], action[j])
            if kind == "bisimulation" and differ:
                W[i, j] = 0.0
    return W


def loss_of(
    kind: LearnedKind, batch: Batch, parameters: Any, target: Any, discount: float, beta: float
) -> float:
    """The mean over all pairs of W * (psi - T)^2."""
    x, action, reward, x_next = (np.asarray(column) for column in batch)
    psi = table_of(parameters, x, x)
    ahead, here = table_of(target, x_next, x_next), table_of(target, x, x)
    T = targets_of(kind, reward, ahead, here, discount, beta)
    return float(np.mean(mask_of(kind, action) * (psi - T) ** 2))


def record(key: int, *, steps: int = 40, ends: bool = False, actions: int = 3) -> TransitionSource:
    """Steps of random vectors; with `ends`, some of them lead to the end."""
    rng = np.random.default_rng(key)
    scale = FeatureScaling(np.zeros(2, np.float32), np.ones(2, np.float32), ends)
    x = scale(rng.normal(size=(steps, 2)))
    x_next = scale(rng.normal(size=(steps, 2)))
    if ends:
        x_next[::5] = scale.terminal
    return TransitionSource(
        jnp.asarray(x),
        jnp.asarray(rng.integers(actions, size=steps), jnp.int32),
        jnp.asarray(rng.normal(size=steps), jnp.float32),
        jnp.asarray(x_next),
        scale,
    )


def weights(key: int, network: PairNetwork, features: int) -> Any:
    """Parameters of a network without a compiler, biases included; most outputs are above 0."""
    rng = np.random.default_rng(key)
    widths = (2 * features, *network.hidden, 1)
    layers = [
        {
            "weights": (rng.normal(size=(before, after)) / np.sqrt(before)).astype(np.float32),
            "biases": (rng.normal(size=after) / 4).astype(np.float32),
        }
        for before, after in itertools.pairwise(widths)
    ]
    layers[-1]["biases"][:] = 1
    return layers


def _zeros(key: jax.Array, features: int) -> Any:
    return jnp.zeros((features, features))


def _entry(psi: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ psi @ y


TABULAR = FunctionalNetwork(_zeros, _entry)
"""psi[i, j] for states that are one feature each: a table, which learns no pair from another."""

PLAIN = FeatureScaling(np.zeros(1, np.float32), np.ones(1, np.float32))
"""Features as they are."""

SMALL = Castro2020Config(
    PairNetwork((5,), output="relu"), batch=6, learning_rate=0.01, target_update_period=4
)
STATES = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3), scaling=PLAIN)
"""The triangle, one feature a state; what learns from it with `SMALL` is compiled once."""

OWN = FunctionalNetwork(
    lambda key, features: jnp.zeros(features), lambda p, x, y: jnp.dot(p, x - y)
)


def run(count: int = 4, source: Any = STATES, **options: Any) -> FitResult:
    """A short run for d~, or another `kind`."""
    options = {"settings": SMALL, "discount": 0.5, "every": 4, **options}
    return fit(options.pop("kind", "bisimulation"), source, updates=count, **options)


def says(message: str) -> str:
    """A pattern for a whole message, which must be one sentence."""
    return re.escape(message).replace("\\.\\.\\.", ".*") + "$"


def one(**changes: Any) -> LearnedDistance:
    """A learned distance of vectors of two numbers."""
    network = PairNetwork((4,), output="relu")
    scale = FeatureScaling(np.zeros(2), np.ones(2))
    fields = {"network": network, "parameters": weights(0, network, 2), "scale": scale}
    return LearnedDistance(**{"kind": "bisimulation", "discount": 0.5, **fields, **changes})


def walk(ends: bool) -> Transitions:
    """All actions of a corridor of three; the last step leads out of it, for good or not."""
    s = np.tile([0, 0, 1, 1, 2, 2], 8)
    a = np.tile([0, 1], 24)
    after = np.where(a == 1, np.minimum(s + 1, 2), np.maximum(s - 1, 0))
    out = (s == 2) & (a == 1)
    reward = np.where(out, 1.0, np.where(a == 0, -0.25, 0.0))
    flags = {"terminated": out & ends, "truncated": out & (not ends)}
    return Transitions(s, a, reward, after, **flags, num_states=3)
