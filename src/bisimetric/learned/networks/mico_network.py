"""Networks for MICo, whose self-distances may be positive, and for its reduced form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.networks.metric_networks import MetricNetwork
from bisimetric.learned.networks.pair_layer import TileGroups
from bisimetric.learned.networks.pair_network import Parameters

PARAMETRISATIONS = ("squared", "angular")
DEFAULT_EMBEDDING = MetricNetwork(num_groups=256, group_size=1)

MIN_CHORD = 1e-6
"""Squared chords of unit vectors below this count as 0: single precision cannot resolve them."""

MIN_NORM = 1e-12
"""Added to a squared norm before dividing by the norm."""


@dataclasses.dataclass(frozen=True)
class MicoNetwork:
    """A symmetric function U(x, y) >= 0 of two states, whose self-distances may be positive.

    With an embedding phi of the states into k coordinates,

        "squared":  U(x, y) = (u(x) + u(y)) / 2 + |phi(x) - phi(y)|^2 / k,  u(x) = f(x)^2,
        "angular":  U(x, y) = (|phi(x)|^2 + |phi(y)|^2) / (2 k) + beta * angle(phi(x), phi(y)).

    The first represents MICo exactly: U(x, y) - (U(x, x) + U(y, y)) / 2, the reduced MICo, is a
    squared distance in a Hilbert space for every policy (Castro et al. 2023), and u(x) = U(x, x).
    The second is the parametrisation of Castro et al. (2021), with beta = 0.1; its reduced part is
    at most beta * pi, and its self-distance is the norm of the embedding.

    Attributes:
        embedding: the network whose coordinates are phi; its groups do not matter.
        parametrisation: "squared" or "angular".
        beta: the weight of the angle; for "angular" only.

    Raises:
        InputError: when a field is out of range.

    >>> network = MicoNetwork(MetricNetwork((16,), num_groups=8), "angular")
    >>> weights = network.init(jax.random.key(0), 2)
    >>> network.table(weights, jnp.zeros((5, 2)), jnp.ones((7, 2))).shape
    (5, 7)
    """

    embedding: MetricNetwork = DEFAULT_EMBEDDING
    parametrisation: str = "squared"
    beta: float = 0.1
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.embedding, MetricNetwork):
            raise InputError(
                f"is {self.embedding!r} and must be a MetricNetwork",
                caller="MicoNetwork",
                argument="embedding",
            )
        if self.parametrisation not in PARAMETRISATIONS:
            raise InputError(
                f"is {self.parametrisation!r} and must be one of {', '.join(PARAMETRISATIONS)}",
                caller="MicoNetwork",
                argument="parametrisation",
            )
        if not (isinstance(self.beta, int | float) and 0 < self.beta < math.inf):
            raise InputError(
                f"is {self.beta!r} and must be a number, above 0",
                caller="MicoNetwork",
                argument="beta",
            )

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.embedding.hidden

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            features: the number of features of a state.

        Returns:
            A dictionary of the parameters of the embedding and of u.
        """
        embedding_key, self_key = jax.random.split(key)
        parameters = {"embedding": self.embedding.init(embedding_key, features, 1)}
        if self.parametrisation == "squared":
            parameters["self"] = build_scalar_network(self.embedding).init(self_key, features, 1)
        return parameters

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return U(x_i, y_j) for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.
            groups: ignored.

        Returns:
            (n, m).
        """
        own, other = self.self_distances(parameters, x), self.self_distances(parameters, y)
        return (own[:, None] + other[None, :]) / 2 + self.reduced_table(parameters, x, y)

    def self_distances(self, parameters: Parameters, x: Array) -> Array:
        """Return the self-distances U(x_i, x_i).

        Args:
            parameters: from `init`.
            x: (n, k), features of states.

        Returns:
            (n,).
        """
        if self.parametrisation == "angular":
            return jnp.mean(self._embed(parameters, x) ** 2, axis=1)
        scalar = build_scalar_network(self.embedding)
        return evaluate_scalar(scalar, parameters["self"], x) ** 2

    def reduced_table(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return U(x_i, y_j) - (U(x_i, x_i) + U(y_j, y_j)) / 2 for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.

        Returns:
            (n, m).
        """
        u, v = self._embed(parameters, x), self._embed(parameters, y)
        if self.parametrisation == "squared":
            return compute_squared_distances(u, v) / u.shape[1]
        u, v = _normalise(u), _normalise(v)
        # Kahan's formula: 2 atan2(|u - v|, |u + v|) keeps small angles, unlike arccos.
        difference, total = compute_squared_distances(u, v), compute_squared_distances(u, -v)
        return self.beta * 2 * jnp.arctan2(_safe_sqrt(difference), _safe_sqrt(total))

    def _embed(self, parameters: Parameters, x: Array) -> Array:
        """Return phi(x), (n, coordinates), each of order 1."""
        flat = self.embedding.embed(parameters["embedding"], x).reshape(len(x), -1)
        return self.embedding.num_groups * flat


@dataclasses.dataclass(frozen=True)
class ScaledMicoNetwork:
    """A MICo network in units of reward, with a network that predicts rewards.

    Attributes:
        network: U in units.
        unit: the distance that is 1 for the network, so that the scale of rewards does not matter.
        reward_shift: the mean recorded reward.
        reward_scale: the standard deviation of recorded rewards; None where rewards are known.
    """

    network: MicoNetwork
    unit: float
    reward_shift: float = 0.0
    reward_scale: float | None = None
    symmetric: ClassVar[bool] = True

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    @property
    def _reward_network(self) -> MetricNetwork:
        """A network with one output; without Fourier features, which would fit random rewards."""
        scalar = build_scalar_network(self.network.embedding)
        if scalar.fourier_features is None:
            return dataclasses.replace(scalar, fourier_features=0)
        return scalar

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters for states with so many features."""
        pair_key, reward_key = jax.random.split(key)
        parameters = {"pairs": self.network.init(pair_key, features)}
        if self.reward_scale is not None:
            parameters["reward"] = self._reward_network.init(reward_key, features, 1)
        return parameters

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return U(x_i, y_j) in units of reward, (n, m)."""
        return self.unit * self.network.table(parameters["pairs"], x, y)

    def self_distances(self, parameters: Parameters, x: Array) -> Array:
        """Return U(x_i, x_i) in units of reward, (n,)."""
        return self.unit * self.network.self_distances(parameters["pairs"], x)

    def predict_standardised_rewards(self, parameters: Parameters, x: Array) -> Array:
        """Return the predicted (E[r | x_i] - reward_shift) / reward_scale, (n,)."""
        return evaluate_scalar(self._reward_network, parameters["reward"], x)

    def predict_rewards(self, parameters: Parameters, x: Array) -> Array:
        """Return the predicted E[r | x_i], (n,)."""
        scale = 0.0 if self.reward_scale is None else self.reward_scale
        return self.reward_shift + scale * self.predict_standardised_rewards(parameters, x)


@dataclasses.dataclass(frozen=True)
class ReducedNetwork:
    """Reduced MICo, U(x, y) - (U(x, x) + U(y, y)) / 2, of a network U; at least 0.

    Attributes:
        network: U.
    """

    network: Any
    symmetric: ClassVar[bool] = True

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters for states with so many features."""
        return self.network.init(key, features)

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return the reduced MICo of all pairs, (n, m)."""
        if isinstance(self.network, ScaledMicoNetwork):
            model = self.network
            return model.unit * model.network.reduced_table(parameters["pairs"], x, y)
        psi, own, other = (self._evaluate(parameters, *pair) for pair in ((x, y), (x, x), (y, y)))
        mean = (jnp.diagonal(own)[:, None] + jnp.diagonal(other)[None, :]) / 2
        return jnp.maximum(psi - mean, 0.0)

    def _evaluate(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return max(psi(x_i, y_j), psi(y_j, x_i)), (n, m)."""
        table = self.network.table
        if self.network.symmetric:
            return table(parameters, x, y)
        return jnp.maximum(table(parameters, x, y), table(parameters, y, x).T)


def build_scalar_network(embedding: MetricNetwork) -> MetricNetwork:
    """Return a network like the embedding with a single output."""
    return dataclasses.replace(embedding, num_groups=1, group_size=1)


def evaluate_scalar(network: MetricNetwork, parameters: Parameters, x: Array) -> Array:
    """Return the output of a network with a single one, (n,)."""
    return network.embed(parameters, x).reshape(len(x))


def compute_squared_distances(u: Array, v: Array) -> Array:
    """Return |u_i - v_j|^2, (n, m), by one matrix product.

    >>> compute_squared_distances(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])).tolist()
    [[2.0]]
    """
    norms = jnp.sum(u**2, axis=1)[:, None] + jnp.sum(v**2, axis=1)[None, :]
    return jnp.maximum(norms - 2 * u @ v.T, 0.0)


def _normalise(u: Array) -> Array:
    return u / jnp.sqrt(jnp.sum(u**2, axis=1, keepdims=True) + MIN_NORM)


def _safe_sqrt(z: Array) -> Array:
    """Return the square root, 0 with gradient 0 below the precision of z."""
    return jnp.where(z > MIN_CHORD, jnp.sqrt(jnp.maximum(z, MIN_CHORD)), 0.0)


# Numbers that depend on rewards are leaves, so that they do not require another compilation.
jax.tree_util.register_dataclass(
    ScaledMicoNetwork,
    data_fields=["unit", "reward_shift", "reward_scale"],
    meta_fields=["network"],
)
jax.tree_util.register_dataclass(ReducedNetwork, data_fields=["network"], meta_fields=[])
