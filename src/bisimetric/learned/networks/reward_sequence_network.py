"""Networks that predict the rewards of the next steps, and the distance of two predictions.

Let r_k be the reward k steps after x, and v_0 < v_1 < ... the values that rewards take. A network
predicts p_kj(x) = P(r_k > v_j | x), a number per step and threshold; where v_j is negative, it is
P(r_k <= v_j | x), which is small if most rewards are 0. Since

    |r - r'| = sum_j (v_{j+1} - v_j) |1[r > v_j] - 1[r' > v_j]|,

two futures that are independent given x and y have the expected distance

    sum_k discount^k sum_j (v_{j+1} - v_j) (p_kj(x) + p_kj(y) - 2 p_kj(x) p_kj(y)),

which is a product of matrices. It is symmetric and satisfies the triangle inequality (Lukaszyk
2004). Where the features determine the future, all p are 0 or 1, and it is d^pi.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.learned.networks.metric_networks import MetricNetwork
from bisimetric.learned.networks.pair_layer import TileGroups
from bisimetric.learned.networks.pair_network import Parameters

FINGERPRINT_SEEDS = 0x9E3779B9, 0x85EBCA6B
"""Two hashes of 32 bits: two of a billion states are then mistaken for each other with a
probability of 3%."""


@dataclasses.dataclass(frozen=True)
class RewardSequenceNetwork:
    """The hidden layers of a network that predicts the rewards of the next steps.

    Attributes:
        hidden: the widths of the hidden layers.
        activation: of the hidden layers: "relu", "tanh", "gelu" or "softplus".
        fourier_features: how many octaves of sines and cosines of each feature are appended to the
            features. None is 4 for at most 8 features, and 0 for more.
        encoder: from observations in their original shape to features; see `MetricNetwork`.

    Raises:
        InputError: when a field is out of range.

    >>> network = RewardSequenceNetwork((16,))
    >>> weights = network.init(jax.random.key(0), 2, 10)
    >>> network.logits(weights, jnp.zeros((5, 2))).shape
    (5, 10)
    """

    hidden: tuple[int, ...] = (512, 512)
    activation: str = "relu"
    fourier_features: int | None = None
    encoder: Any = None
    form: ClassVar[str] = "rewards"

    def __post_init__(self) -> None:
        layers = self._build_layers(1)
        for name in ("hidden", "fourier_features", "encoder"):
            object.__setattr__(self, name, getattr(layers, name))

    def fit_to_observations(
        self, shape: tuple[int, ...] | None, num_features: int, has_terminal: bool
    ) -> RewardSequenceNetwork:
        """Return the network for observations of a shape; see `MetricNetwork`.

        Args:
            shape: the shape of one observation; None is a vector.
            num_features: the numbers of one observation.
            has_terminal: whether one more feature marks the terminal state.

        Returns:
            The network with an encoder for that shape, or with none.

        Raises:
            InputError: when the encoder does not accept observations of that shape.
        """
        fitted = self._build_layers(1).fit_to_observations(shape, num_features, has_terminal)
        return dataclasses.replace(self, encoder=fitted.encoder)

    def init(self, key: Array, features: int, outputs: int) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            features: the number of features of a state.
            outputs: the number of predictions per state.

        Returns:
            A list of layers; with an encoder, a dictionary with its parameters.
        """
        return self._build_layers(outputs).init(key, features, 1)

    def logits(self, parameters: Parameters, x: Array) -> Array:
        """Return the predictions before the sigmoid.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.

        Returns:
            (n, outputs).
        """
        layers = parameters["layers"] if isinstance(parameters, dict) else parameters
        outputs = len(layers[-1]["biases"])
        # The last layer of a metric network is divided by its number of groups.
        return outputs * self._build_layers(outputs).embed(parameters, x)[:, 0, 0]

    def _build_layers(self, outputs: int) -> MetricNetwork:
        """Return a network with these layers, and one coordinate per output."""
        return MetricNetwork(
            self.hidden,
            num_groups=outputs,
            group_size=1,
            fourier_features=self.fourier_features,
            activation=self.activation,
            encoder=self.encoder,
        )


@dataclasses.dataclass(frozen=True)
class RewardSequenceEnsemble:
    """Networks that predict the rewards of the next steps, read as one distance.

    Attributes:
        network: the architecture of each of them.
        discount: the discount of the distance.
        horizon: the number of steps that are predicted.
        reward_values: the values of rewards, in ascending order.
        has_terminal: whether the last feature marks the terminal state, whose rewards are 0.
        num_networks: the number of networks; their probabilities are averaged.
    """

    network: RewardSequenceNetwork
    discount: float
    horizon: int
    reward_values: tuple[float, ...]
    has_terminal: bool = False
    num_networks: int = 4
    symmetric: ClassVar[bool] = True

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    @property
    def weights(self) -> Array:
        """(horizon, thresholds), discount^k (v_{j+1} - v_j)."""
        steps = jnp.float32(self.discount) ** jnp.arange(self.horizon)
        return steps[:, None] * jnp.diff(jnp.asarray(self.reward_values, jnp.float32))

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters for states with so many features, one tree per network."""
        outputs = self.horizon * (len(self.reward_values) - 1)
        keys = jax.random.split(key, self.num_networks)
        return [self.network.init(each, features, outputs) for each in keys]

    def logits(self, parameters: Parameters, x: Array) -> list[Array]:
        """Return the predictions of each network before the sigmoid, (n, horizon, thresholds)."""
        shape = len(x), self.horizon, len(self.reward_values) - 1
        return [self.network.logits(each, x).reshape(shape) for each in parameters]

    def exceeds(self, rewards: Array) -> Array:
        """Return what is predicted of rewards (...): 0 or 1 per threshold, (..., thresholds)."""
        thresholds = jnp.asarray(self.reward_values[:-1], jnp.float32)
        return ((rewards[..., None] > thresholds) ^ (thresholds < 0)).astype(jnp.float32)

    def probabilities(self, parameters: Parameters, x: Array) -> Array:
        """Return p_kj of each state, (n, horizon, thresholds)."""
        logits = self.logits(parameters, x)
        mean = sum((jax.nn.sigmoid(each) for each in logits[1:]), jax.nn.sigmoid(logits[0]))
        predicted = mean / self.num_networks
        if not self.has_terminal:
            return predicted
        return jnp.where((x[:, -1] == 1)[:, None, None], 0.0, predicted)

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return d(x_i, y_j), (n, m); 0 where all features are equal."""
        # With roots of the weights, no product depends on the order of x and y.
        roots = jnp.sqrt(self.weights)
        p, q = (self.probabilities(parameters, each) for each in (x, y))
        joint = jnp.einsum("nkj,mkj->nm", p * roots, q * roots, precision=jax.lax.Precision.HIGHEST)
        own, other = (jnp.sum(each * self.weights, axis=(1, 2)) for each in (p, q))
        distances = jnp.maximum(own[:, None] + other[None, :] - 2 * joint, 0.0)
        return jnp.where(_are_equal(x, y), 0.0, distances)


def _are_equal(x: Array, y: Array) -> Array:
    """Return whether states have the same features, (n, m), by a fingerprint of 64 bits."""
    equal = jnp.ones((len(x), len(y)), bool)
    for seed in FINGERPRINT_SEEDS:
        first, second = (_compute_fingerprints(each, seed) for each in (x, y))
        equal &= first[:, None] == second[None, :]
    return equal


def _compute_fingerprints(x: Array, seed: int) -> Array:
    """Return one hash of 32 bits per state: a sum modulo 2^32, in any order, of mixed features."""
    # -0.0 + 0.0 is 0.0.
    bits = jax.lax.bitcast_convert_type(
        jax.lax.stop_gradient(x).astype(jnp.float32) + 0.0, jnp.uint32
    )
    columns = jnp.arange(1, x.shape[1] + 1, dtype=jnp.uint32) * jnp.uint32(seed)
    return jnp.sum(_mix_bits(bits ^ _mix_bits(columns)), axis=1, dtype=jnp.uint32)


def _mix_bits(bits: Array) -> Array:
    """Return the finaliser of MurmurHash3, in which every input bit affects every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


jax.tree_util.register_dataclass(
    RewardSequenceEnsemble,
    data_fields=[],
    meta_fields=[field.name for field in dataclasses.fields(RewardSequenceEnsemble)],
)
