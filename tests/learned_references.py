"""Slow, readable references for the loss of Castro (2020), a tabular network, and short runs."""

from __future__ import annotations

import dataclasses
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
from bisimetric.learned import (
    FeatureScaling,
    FitResult,
    LearnedDistance,
    RunOptions,
    fit,
    source_from_mdp,
)
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
def compile_quickly() -> Iterator[None]:
    """Disable most optimisations of XLA: compiling takes longer than computing here."""
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
    """W: equal actions for d~, all pairs for the others; the terminal state takes any action."""
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
    """Transitions of random vectors; with `ends`, some of them terminate."""
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
"""psi[i, j] for one-hot states: no pair is learned from another."""

PLAIN = FeatureScaling(np.zeros(1, np.float32), np.ones(1, np.float32))
"""Features as they are."""

SMALL = Castro2020Config(
    PairNetwork((5,), output_activation="relu"),
    batch_size=6,
    learning_rate=0.01,
    target_update_period=4,
)
STATES = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3), scaling=PLAIN)
"""The triangle with one-hot states; all runs on it with `SMALL` share one compilation."""

OWN = FunctionalNetwork(
    lambda key, features: jnp.zeros(features), lambda p, x, y: jnp.dot(p, x - y)
)


RUN_FIELDS = {field.name for field in dataclasses.fields(RunOptions)}


def fit_flat(kind: LearnedKind, source: Any, **options: Any) -> FitResult:
    """Call `fit` with the fields of `RunOptions` among the other arguments."""
    fields = {name: options.pop(name) for name in RUN_FIELDS & options.keys()}
    return fit(kind, source, **options, options=RunOptions(**fields))


def run(updates: Any = 4, source: Any = STATES, **options: Any) -> FitResult:
    """Run a few updates for d~, or another `kind`."""
    options = {"config": SMALL, "discount": 0.5, "log_every": 4, **options}
    return fit_flat(options.pop("kind", "bisimulation"), source, updates=updates, **options)


def contains(*parts: str) -> str:
    """Return a pattern for a message that contains all of the parts, in this order."""
    return ".*".join(map(re.escape, parts))


def one(**changes: Any) -> LearnedDistance:
    """A learned distance of vectors of two numbers."""
    network = PairNetwork((4,), output_activation="relu")
    scale = FeatureScaling(np.zeros(2), np.ones(2))
    fields = {"network": network, "parameters": weights(0, network, 2), "scaling": scale}
    return LearnedDistance(**{"kind": "bisimulation", "discount": 0.5, **fields, **changes})


def walk(ends: bool) -> Transitions:
    """All actions of a corridor of three; the last one leaves it, terminated or truncated."""
    s = np.tile([0, 0, 1, 1, 2, 2], 8)
    a = np.tile([0, 1], 24)
    after = np.where(a == 1, np.minimum(s + 1, 2), np.maximum(s - 1, 0))
    out = (s == 2) & (a == 1)
    reward = np.where(out, 1.0, np.where(a == 0, -0.25, 0.0))
    flags = {"terminated": out & ends, "truncated": out & (not ends)}
    return Transitions(s, a, reward, after, **flags, num_states=3)
