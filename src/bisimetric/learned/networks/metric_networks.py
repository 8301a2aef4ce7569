"""Networks with one value an action: psi_a(x, y), and the distance max_a psi_a(x, y).

d~ is the optimal value of two copies of the world that are walked together (Ferns & Precup 2014):
psi_a(x, y) is the value of taking a in both. Each psi_a is a pseudometric where d~ is one, since
|r_a(x) - r_a(y)| and the distance of the successors are.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.networks.pair_layer import TileGroups, sum_group_max, sum_relu_pairs
from bisimetric.learned.networks.pair_network import (
    ACTIVATIONS,
    INIT_LIMITS,
    Parameters,
    validate_widths,
)

MAX_COORDINATES = 8
"""Features up to which they are taken for coordinates, which waves resolve."""
DEFAULT_OCTAVES = 4
"""Octaves, where a network is not told otherwise."""

RANDOM_FEATURES = "drawn"
"""Waves that are drawn at the start, and learned."""

NUM_FOURIER_FEATURES = 256
"""How many waves are drawn."""

FREQUENCY_RANGE = 6.0
"""How much longer than the finest of them the longest is."""

FOURIER_AMPLITUDE = 3.0
"""How much they vary, over a feature: enough for a network to bend between two neighbours."""


@dataclasses.dataclass(frozen=True)
class MetricNetwork:
    """Embeddings f_a(x) whose distances are psi_a: a pseudometric, whatever the weights.

    psi_a(x, y) = mean_g max_k |f_agk(x) - f_agk(y)|: in each of `groups`, the largest difference of
    `size` coordinates, as Kuratowski embeds any finite metric. psi_a(x, x) = 0, symmetry and the
    triangle inequality hold by construction, also of means and maxima of such, and n states cost n
    calls of the network. One group is enough in theory; many are easier to train, since more than
    one coordinate learns from a pair.

    Attributes:
        hidden: the widths of the hidden layers.
        groups, size: of the embedding of one action.
        waves: sines and cosines, at so many octaves, of each feature of a state, beside the feature
            itself; None for 4 where there are at most 8 features, and none where there are more.
            "drawn" for 256 waves in all directions, whose weights are learned, in the same place.
        activation: of the hidden layers.
        finest: the largest slope of a wave that is drawn; nothing once a network has its weights.

    >>> network = MetricNetwork((16,), groups=4, size=2)
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
    form: ClassVar[str] = "metric"

    def __post_init__(self) -> None:
        _validate_fields(self, (RANDOM_FEATURES,))
        if not 0 < self.highest_frequency < math.inf:
            raise InputError(
                f"MetricNetwork: finest is {self.highest_frequency!r} and must be a number, above 0."
            )
        for name in ("num_groups", "group_size"):
            object.__setattr__(
                self, name, require_integer("MetricNetwork", name, getattr(self, name), 1)
            )

    def init(self, key: Array, features: int, actions: int) -> Parameters:
        """Parameters for states with so many features; those of waves that are drawn come first."""
        after = (*self.hidden, actions * self.group_size * self.num_groups)
        if self.fourier_features == RANDOM_FEATURES and features <= MAX_COORDINATES:
            own, key = jax.random.split(key)
            return [
                _init_random_features(own, features, self.highest_frequency),
                *_init_dense(key, (features + NUM_FOURIER_FEATURES, *after)),
            ]
        return _init_dense(
            key, (_append_octaves(jnp.zeros((1, features)), self.fourier_features).shape[1], *after)
        )

    def embed(self, parameters: Parameters, x: Array) -> Array:
        """f_a(x), (n, actions, size, groups)."""
        *before, last = parameters
        if self.fourier_features == RANDOM_FEATURES and x.shape[1] <= MAX_COORDINATES:
            wave, *before = before
            heard = FOURIER_AMPLITUDE * math.sqrt(2) * jnp.sin(x @ wave["weights"] + wave["biases"])
            layer = jnp.concatenate([x, heard], axis=1)
        else:
            layer = _append_octaves(x, self.fourier_features)
        for dense in before:
            layer = ACTIVATIONS[self.activation](layer @ dense["weights"] + dense["biases"])
        flat = (layer @ last["weights"] + last["biases"]) / self.num_groups
        return flat.reshape(len(x), -1, self.group_size, self.num_groups)

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """psi_a(x_i, y_j), (actions, n, m)."""
        u, v = self.embed(parameters, x), self.embed(parameters, y)
        return jax.vmap(sum_group_max, in_axes=(1, 1))(u, v)

    def block_values(self, parameters: Parameters, x: Array) -> Array:
        """psi_a(x_ai, x_aj), (actions, n, n), of states (actions, n, k), a block an action."""
        u = self.embed(parameters, x.reshape(-1, x.shape[-1]))
        blocks = u.reshape(*x.shape[:2], *u.shape[1:])
        own = blocks[jnp.arange(len(x)), :, jnp.arange(len(x))]
        return jax.vmap(sum_group_max)(own, own)


@dataclasses.dataclass(frozen=True)
class FreeNetwork:
    """Any function of two states, the same for both orders: softplus(z_a(x, y) + z_a(y, x)).

    z is a network of pairs with one hidden layer, which is never stored pair by pair. Nothing keeps
    psi_a(x, x) at 0, or the triangle inequality.

    Attributes:
        hidden: the width of its hidden layer.
        waves: as those of `MetricNetwork`.
    """

    hidden: tuple[int, ...] = (512,)
    fourier_features: int | None = None
    activation: ClassVar[str] = "relu"
    form: ClassVar[str] = "free"

    def __post_init__(self) -> None:
        _validate_fields(self)
        if len(self.hidden) != 1:
            raise InputError(
                f"FreeNetwork: hidden is {self.hidden!r} and must be one width, such as (512,)."
            )

    def init(self, key: Array, features: int, actions: int) -> Parameters:
        """Parameters for states with so many features."""
        inside = _append_octaves(jnp.zeros((1, features)), self.fourier_features).shape[1]
        return _init_dense(key, (2 * inside, *self.hidden, actions))

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """psi_a(x_i, y_j), (actions, n, m)."""
        there = self._evaluate_ordered(parameters, x, y)
        back = self._evaluate_ordered(parameters, y, x).swapaxes(1, 2)
        return jax.nn.softplus(SOFTPLUS_SHARPNESS * (there + back) / 2) / SOFTPLUS_SHARPNESS

    def block_values(self, parameters: Parameters, x: Array) -> Array:
        """psi_a(x_ai, x_aj), (actions, n, n), of states (actions, n, k), a block an action."""
        each = jax.vmap(self.values, in_axes=(None, 0, 0))(parameters, x, x)
        rows = jnp.arange(len(x))
        return each[rows, rows]

    def _evaluate_ordered(self, parameters: Parameters, x: Array, y: Array) -> Array:
        first, last = parameters
        one, two = (
            _append_octaves(x, self.fourier_features),
            _append_octaves(y, self.fourier_features),
        )
        features = one.shape[1]
        ours = one @ first["weights"][:features] + first["biases"]
        theirs = two @ first["weights"][features:]
        of_action = jax.vmap(sum_relu_pairs, in_axes=(None, None, 1, None))
        found: Array = of_action(ours, theirs, last["weights"], None)
        return found + last["biases"][:, None, None]


SOFTPLUS_SHARPNESS = 10.0
"""How near the softplus of a `FreeNetwork` is to a ReLU, whose values are up to 1 here."""


@dataclasses.dataclass(frozen=True)
class PairQEnsemble:
    """Networks that learn together, read as one distance: unit * max_a of the mean of their psi_a.

    Attributes:
        network: what each of them is.
        actions: how many.
        unit: a distance that is 1 for the networks, so that rewards of any size are learned alike.
        most: the largest distance that there can be, in units.
        copies: how many networks.
        taken: the actions that were learned from, by default all; the others say nothing.
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
        """Parameters for states with so many features."""
        keys = jax.random.split(key, self.num_networks)
        return [self.network.init(each, features, self.num_actions) for each in keys]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """d(x_i, y_j), (n, m)."""
        return self.values(parameters, x, y)[jnp.array(self.observed_actions)].max(axis=0)

    def values(self, parameters: Parameters, x: Array, y: Array) -> Array:
        """The mean psi_a(x_i, y_j) of the networks, as a distance: (actions, n, m)."""
        each = [self.network.values(copy, x, y) for copy in parameters]
        found: Array = self.unit * sum(each[1:], each[0]) / self.num_networks
        return found


def _append_octaves(x: Array, fourier_features: int | str | None) -> Array:
    """Features (n, k) with sines and cosines of them, (n, k + 2 k waves)."""
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
    """Waves sin(w . x + b): any direction and b, |w| as often in each octave up to the finest."""
    one, two, three = jax.random.split(key, 3)
    direction = jax.random.normal(one, (features, NUM_FOURIER_FEATURES))
    octave = jax.random.uniform(
        two, (NUM_FOURIER_FEATURES,), minval=-math.log(FREQUENCY_RANGE), maxval=0.0
    )
    slope = highest_frequency * jnp.exp(octave) / jnp.linalg.norm(direction, axis=0)
    return {
        "weights": slope * direction,
        "biases": jax.random.uniform(three, (NUM_FOURIER_FEATURES,), maxval=2 * math.pi),
    }


def _init_dense(key: Array, sizes: tuple[int, ...]) -> Parameters:
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
    name = type(network).__name__
    object.__setattr__(network, "hidden", validate_widths(name, network.hidden))
    if network.fourier_features is not None and network.fourier_features not in allowed:
        object.__setattr__(
            network, "waves", require_integer(name, "waves", network.fourier_features, 0)
        )
    if network.activation not in ACTIVATIONS:
        raise InputError(
            f"{name}: activation is {network.activation!r} and must be one of "
            f"{', '.join(ACTIVATIONS)}."
        )
