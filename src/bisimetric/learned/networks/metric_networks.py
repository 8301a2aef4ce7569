"""Networks with one value per action: psi_a(x, y), and the distance max_a psi_a(x, y).

d~ is the optimal value function of the synchronous product MDP, in which two copies of the MDP take
the same actions (Ferns & Precup 2014): psi_a(x, y) is the value of taking a in both. Each psi_a is
a pseudometric where d~ is one, since |r_a(x) - r_a(y)| and the distance of the successors are.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.networks.encoders import (
    FLATTEN,
    ShapedEncoder,
    shape_encoder,
    validate_encoder,
)
from bisimetric.learned.networks.pair_layer import TileGroups, sum_group_max, sum_relu_pairs
from bisimetric.learned.networks.pair_network import (
    ACTIVATIONS,
    INIT_LIMITS,
    Parameters,
    validate_widths,
)

MAX_COORDINATES = 8
"""The most features that count as coordinates, to which Fourier features are added."""

DEFAULT_OCTAVES = 4
"""Octaves of the Fourier features where `fourier_features` is None."""

RANDOM_FEATURES = "random"
"""Random Fourier features (Rahimi & Recht 2007), whose frequencies are trained, too."""

NUM_FOURIER_FEATURES = 256
"""The number of random Fourier features."""

FREQUENCY_RANGE = 6.0
"""The ratio of the highest to the lowest frequency of random Fourier features."""

FOURIER_AMPLITUDE = 3.0
"""The standard deviation of random Fourier features: enough to separate neighbouring states."""

SOFTPLUS_SHARPNESS = 10.0
"""How close the softplus of a `FreeNetwork` is to a ReLU; its values are up to 1 here."""


@dataclasses.dataclass(frozen=True)
class MetricNetwork:
    """Embeddings f_a(x) whose distances are psi_a: a pseudometric for all weights.

    psi_a(x, y) = mean_g max_k |f_agk(x) - f_agk(y)|: the mean over groups of the largest difference
    of a coordinate. The maximum norm embeds any finite metric (Kuratowski). psi_a(x, x) = 0,
    symmetry and the triangle inequality hold by construction, also for means and maxima of such,
    and n states cost n evaluations of the network. One group is enough in theory; with many, more
    than one coordinate gets a gradient from a pair.

    Attributes:
        hidden: the widths of the hidden layers.
        num_groups: groups of coordinates in the embedding of one action.
        group_size: coordinates per group.
        fourier_features: how many octaves of sines and cosines of each feature are appended to the
            features; "random" for 256 random Fourier features in all directions, with trained
            frequencies. None is 4 for at most 8 features, and 0 for more.
        activation: of the hidden layers: "relu", "tanh", "gelu" or "softplus".
        highest_frequency: the largest angular frequency at which random Fourier features are
            initialised.
        encoder: from observations in their original shape to features, trained with the network: a
            pair of functions (init, apply), a Flax or Equinox module, a function from a JAX random
            key to a module, or a `ConvEncoder`. "flatten" is none. None is a `ConvEncoder` for
            images (height, width, channels), and none for other shapes.

    Raises:
        InputError: when a field is out of range.

    >>> network = MetricNetwork((16,), num_groups=4, group_size=2)
    >>> weights = network.init(jax.random.key(0), 2, 3)
    >>> network.values(weights, jnp.zeros((5, 2)), jnp.ones((7, 2))).shape
    (3, 5, 7)
    """

    hidden: tuple[int, ...] = (256, 256)
    num_groups: int = 64
    group_size: int = 4
    fourier_features: int | str | None = None
    activation: str = "relu"
    highest_frequency: float = 4 * math.pi
    encoder: Any = None
    form: ClassVar[str] = "metric"

    def __post_init__(self) -> None:
        _validate_fields(self, (RANDOM_FEATURES,))
        if not 0 < self.highest_frequency < math.inf:
            raise InputError(
                f"is {self.highest_frequency!r} and must be a number, above 0",
                caller="MetricNetwork",
                argument="highest_frequency",
            )
        for name in ("num_groups", "group_size"):
            object.__setattr__(
                self, name, require_integer("MetricNetwork", name, getattr(self, name), 1)
            )
        object.__setattr__(self, "encoder", validate_encoder(self.encoder))
        if self.encoder not in (None, FLATTEN) and self.fourier_features:
            raise InputError(
                "are for coordinates, and an encoder has features of its own",
                caller="MetricNetwork",
                argument="fourier_features",
                remedy="leave them out",
            )

    def fit_to_observations(
        self, shape: tuple[int, ...] | None, num_features: int, has_terminal: bool
    ) -> MetricNetwork:
        """Return the network for observations of a shape.

        Args:
            shape: the shape of one observation; None is a vector.
            num_features: the numbers of one observation.
            has_terminal: whether one more feature marks the terminal state.

        Returns:
            The network with an encoder for that shape, or with none.

        Raises:
            InputError: when the encoder does not accept observations of that shape.
        """
        encoder = shape_encoder(self.encoder, shape, num_features, has_terminal)
        if encoder is self.encoder:
            return self
        return dataclasses.replace(self, encoder=encoder)

    def init(self, key: Array, features: int, actions: int) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            features: the number of features of a state.
            actions: the number of actions.

        Returns:
            A list of layers; that of random Fourier features comes first. With an encoder, a
            dictionary of its parameters, "encoder", and of the layers after it, "layers".
        """
        after = (*self.hidden, actions * self.group_size * self.num_groups)
        if (encoder := self._get_encoder(features)) is not None:
            encoder_key, key = jax.random.split(key)
            return {
                "encoder": encoder.init(encoder_key),
                "layers": _init_dense(key, (encoder.num_features, *after)),
            }
        if self.fourier_features == RANDOM_FEATURES and features <= MAX_COORDINATES:
            fourier_key, key = jax.random.split(key)
            return [
                _init_random_features(fourier_key, features, self.highest_frequency),
                *_init_dense(key, (features + NUM_FOURIER_FEATURES, *after)),
            ]
        return _init_dense(
            key, (_append_octaves(jnp.zeros((1, features)), self.fourier_features).shape[1], *after)
        )

    def embed(self, parameters: Parameters, x: Array) -> Array:
        """Return the embeddings f_a(x).

        Args:
            parameters: from `init`.
            x: (n, k), features of states.

        Returns:
            (n, actions, group_size, num_groups).
        """
        encoder = self._get_encoder(x.shape[1])
        *before, last = parameters if encoder is None else parameters["layers"]
        if encoder is not None:
            layer = encoder.apply(parameters["encoder"], x)
        elif self.fourier_features == RANDOM_FEATURES and x.shape[1] <= MAX_COORDINATES:
            fourier, *before = before
            phase = x @ fourier["weights"] + fourier["biases"]
            layer = jnp.concatenate([x, FOURIER_AMPLITUDE * math.sqrt(2) * jnp.sin(phase)], axis=1)
        else:
            layer = _append_octaves(x, self.fourier_features)
        for dense in before:
            layer = ACTIVATIONS[self.activation](layer @ dense["weights"] + dense["biases"])
        flat = (layer @ last["weights"] + last["biases"]) / self.num_groups
        return flat.reshape(len(x), -1, self.group_size, self.num_groups)

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return psi_a(x_i, y_j) for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.

        Returns:
            (actions, n, m).
        """
        u, v = self.embed(parameters, x), self.embed(parameters, y)
        return jax.vmap(sum_group_max, in_axes=(1, 1))(u, v)

    def block_values(self, parameters: Parameters, x: Array) -> Array:
        """Return psi_a(x_ai, x_aj) for blocks of states, one per action.

        Args:
            parameters: from `init`.
            x: (actions, n, k), features of states.

        Returns:
            (actions, n, n).
        """
        u = self.embed(parameters, x.reshape(-1, x.shape[-1]))
        blocks = u.reshape(*x.shape[:2], *u.shape[1:])
        own = blocks[jnp.arange(len(x)), :, jnp.arange(len(x))]
        return jax.vmap(sum_group_max)(own, own)

    def _get_encoder(self, features: int) -> ShapedEncoder | None:
        """Return the encoder; one that was fitted to no observations takes vectors."""
        if self.encoder is None or isinstance(self.encoder, ShapedEncoder):
            return self.encoder
        return shape_encoder(self.encoder, None, features, False)


@dataclasses.dataclass(frozen=True)
class FreeNetwork:
    """A symmetric function of two states: psi_a(x, y) = softplus(z_a(x, y) + z_a(y, x)).

    z is a network of pairs with one hidden layer, which is never stored pair by pair. Neither
    psi_a(x, x) = 0 nor the triangle inequality is enforced.

    Attributes:
        hidden: the width of its hidden layer.
        fourier_features: how many octaves of sines and cosines of each feature are appended to the
            features. None is 4 for at most 8 features, and 0 for more.

    Raises:
        InputError: when a field is out of range.

    >>> network = FreeNetwork((16,))
    >>> weights = network.init(jax.random.key(0), 2, 3)
    >>> network.values(weights, jnp.zeros((5, 2)), jnp.ones((7, 2))).shape
    (3, 5, 7)
    """

    hidden: tuple[int, ...] = (512,)
    fourier_features: int | None = None
    activation: ClassVar[str] = "relu"
    form: ClassVar[str] = "free"

    def __post_init__(self) -> None:
        _validate_fields(self)
        if len(self.hidden) != 1:
            raise InputError(
                f"is {self.hidden!r} and must be one width, such as (512,)",
                caller="FreeNetwork",
                argument="hidden",
            )

    def init(self, key: Array, features: int, actions: int) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            features: the number of features of a state.
            actions: the number of actions.

        Returns:
            A list of layers.
        """
        inputs = _append_octaves(jnp.zeros((1, features)), self.fourier_features).shape[1]
        return _init_dense(key, (2 * inputs, *self.hidden, actions))

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return psi_a(x_i, y_j) for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.

        Returns:
            (actions, n, m).
        """
        forward = self._evaluate_ordered(parameters, x, y)
        backward = self._evaluate_ordered(parameters, y, x).swapaxes(1, 2)
        return jax.nn.softplus(SOFTPLUS_SHARPNESS * (forward + backward) / 2) / SOFTPLUS_SHARPNESS

    def block_values(self, parameters: Parameters, x: Array) -> Array:
        """Return psi_a(x_ai, x_aj) for blocks of states, one per action.

        Args:
            parameters: from `init`.
            x: (actions, n, k), features of states.

        Returns:
            (actions, n, n).
        """
        each = jax.vmap(self.values, in_axes=(None, 0, 0))(parameters, x, x)
        rows = jnp.arange(len(x))
        return each[rows, rows]

    def _evaluate_ordered(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return z_a(x_i, y_j), (actions, n, m)."""
        first, last = parameters
        left, right = (_append_octaves(each, self.fourier_features) for each in (x, y))
        features = left.shape[1]
        A = left @ first["weights"][:features] + first["biases"]
        B = right @ first["weights"][features:]
        sum_per_action = jax.vmap(sum_relu_pairs, in_axes=(None, None, 1, None))
        values: Array = sum_per_action(A, B, last["weights"], None)
        return values + last["biases"][:, None, None]


@dataclasses.dataclass(frozen=True)
class PairQEnsemble:
    """Networks of double Q-learning, read as one distance: unit * max_a of the mean of their psi_a.

    Attributes:
        network: the architecture of each of them.
        num_actions: the number of actions.
        unit: the distance that is 1 for the networks, so that the scale of rewards does not matter.
        diameter_bound: the largest possible distance, reward range / (1 - discount), in units.
        num_networks: the number of networks.
        observed_actions: the actions in the data, default: all; the others are left out of max_a.
    """

    network: MetricNetwork | FreeNetwork
    num_actions: int
    unit: float
    diameter_bound: float
    num_networks: int = 2
    observed_actions: tuple[int, ...] = ()
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "observed_actions", tuple(self.observed_actions) or tuple(range(self.num_actions))
        )

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters for states with so many features, one tree per network."""
        keys = jax.random.split(key, self.num_networks)
        return [self.network.init(each, features, self.num_actions) for each in keys]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return d(x_i, y_j), (n, m)."""
        return self.values(parameters, x, y)[jnp.array(self.observed_actions)].max(axis=0)

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """Return the mean psi_a(x_i, y_j) of the networks as a distance, (actions, n, m)."""
        values = [self.network.values(each, x, y) for each in parameters]
        mean: Array = self.unit * sum(values[1:], values[0]) / self.num_networks
        return mean


@dataclasses.dataclass(frozen=True)
class ScaledMetricNetwork:
    """One network with a single value per pair, read as a distance: unit * psi(x, y).

    Attributes:
        network: the architecture.
        unit: the distance that is 1 for the network, so that the scale of rewards does not matter.
    """

    network: MetricNetwork | FreeNetwork
    unit: float
    symmetric: ClassVar[bool] = True

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters for states with so many features."""
        return [self.network.init(key, features, 1)]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return d(x_i, y_j), (n, m)."""
        distances: Array = self.unit * self.network.values(parameters[0], x, y)[0]
        return distances


def _append_octaves(x: Array, fourier_features: int | str | None) -> Array:
    """Return features (n, k) with their sines and cosines at some octaves, (n, k + 2 k octaves)."""
    octaves = (
        fourier_features
        if isinstance(fourier_features, int)
        else DEFAULT_OCTAVES
        if fourier_features is None and x.shape[1] <= MAX_COORDINATES
        else 0
    )
    if not octaves:
        return x
    angles = x[:, :, None] * (jnp.pi / 2 * 2.0 ** jnp.arange(octaves))
    flat = angles.reshape(len(x), -1)
    return jnp.concatenate([x, jnp.sin(flat), jnp.cos(flat)], axis=1)


def _init_random_features(key: Array, features: int, highest_frequency: float) -> dict[str, Array]:
    """Return w and b of sin(w . x + b): uniform directions and phases, |w| log-uniform."""
    direction_key, octave_key, phase_key = jax.random.split(key, 3)
    direction = jax.random.normal(direction_key, (features, NUM_FOURIER_FEATURES))
    octave = jax.random.uniform(
        octave_key, (NUM_FOURIER_FEATURES,), minval=-math.log(FREQUENCY_RANGE), maxval=0.0
    )
    frequency = highest_frequency * jnp.exp(octave) / jnp.linalg.norm(direction, axis=0)
    return {
        "weights": frequency * direction,
        "biases": jax.random.uniform(phase_key, (NUM_FOURIER_FEATURES,), maxval=2 * math.pi),
    }


def _init_dense(key: Array, sizes: tuple[int, ...]) -> Parameters:
    """Return dense layers with Glorot-uniform weights and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {
            "weights": jax.random.uniform(
                each,
                (before, after),
                jnp.float32,
                -INIT_LIMITS["glorot"](before, after),
                INIT_LIMITS["glorot"](before, after),
            ),
            "biases": jnp.zeros(after),
        }
        for each, before, after in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def _validate_fields(network: MetricNetwork | FreeNetwork, allowed: tuple[Any, ...] = ()) -> None:
    """Convert the fields that both networks have, or raise an InputError."""
    caller = type(network).__name__
    object.__setattr__(network, "hidden", validate_widths(caller, network.hidden))
    octaves = network.fourier_features
    if octaves is not None and octaves not in allowed:
        octaves = require_integer(caller, "fourier_features", octaves, 0)
        object.__setattr__(network, "fourier_features", octaves)
    if network.activation not in ACTIVATIONS:
        raise InputError(
            f"is {network.activation!r} and must be one of {', '.join(ACTIVATIONS)}",
            caller=caller,
            argument="activation",
        )


# The unit and the bound depend on rewards: as leaves they do not require another compilation.
jax.tree_util.register_dataclass(
    PairQEnsemble,
    data_fields=["unit", "diameter_bound"],
    meta_fields=["network", "num_actions", "num_networks", "observed_actions"],
)
jax.tree_util.register_dataclass(ScaledMetricNetwork, data_fields=["unit"], meta_fields=["network"])
