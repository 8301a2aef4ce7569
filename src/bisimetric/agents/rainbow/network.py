"""Rainbow's network: three convolutions, 512 features, and how likely each return is.

The return of an action is a distribution over `atoms` numbers from -reach to reach (C51); its mean
is the value of the action. As in Dopamine's Rainbow there are no double, duelling or noisy parts.

A Rainbow network as an agent: greedy actions, its 512 features, and its largest value.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bisimetric._progress import jit
from bisimetric.games.agent import AgentOutput

NUM_FRAMES, FRAME_SIZE = 4, 84
"""An observation is (FRAMES, SIDE, SIDE), the newest frame last."""

NUM_FEATURES = 512
CONVOLUTIONS = {"conv1": (8, 4, 32), "conv2": (4, 2, 64), "conv3": (3, 1, 64)}
"""The width of the window, its stride, and the channels that come out."""

NUM_FLAT = 11 * 11 * 64
"""The numbers after the last convolution: 84 / 4 = 21, 21 / 2 = 11, rounded up."""

Parameters = dict[str, dict[str, Array]]
"""The kernel and the bias of each layer."""


@dataclasses.dataclass(frozen=True)
class RainbowNetwork:
    """The network for a game with so many actions.

    >>> network = Network(actions=6)
    >>> parameters = network.init(jax.random.key(0))
    >>> logits, features = network.apply(parameters, jnp.zeros((2, 4, 84, 84), jnp.uint8))
    >>> logits.shape, features.shape, network.values(logits).shape
    ((2, 6, 51), (2, 512), (2, 6))
    """

    num_actions: int
    num_atoms: int = 51
    max_return: float = 10.0

    @property
    def support(self) -> Array:
        """The returns (atoms,) that are told apart."""
        return jnp.linspace(-self.max_return, self.max_return, self.num_atoms)

    def kernel_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of the kernel of each layer; a bias is as long as its last number."""
        found: dict[str, tuple[int, ...]] = {}
        channels = NUM_FRAMES
        for name, (width, _, out) in CONVOLUTIONS.items():
            found[name] = (width, width, channels, out)
            channels = out
        return found | {
            "dense": (NUM_FLAT, NUM_FEATURES),
            "head": (NUM_FEATURES, self.num_actions * self.num_atoms),
        }

    def count_activations(self) -> int:
        """How many numbers all layers give for one observation."""
        side, total = FRAME_SIZE, 0
        for _, stride, channels in CONVOLUTIONS.values():
            side = -(-side // stride)
            total += side * side * channels
        return total + NUM_FEATURES + self.num_actions * self.num_atoms

    def init(self, key: Array) -> Parameters:
        """Uniform weights of variance 1 / (3 fan-in), and biases of 0."""
        scaled = jax.nn.initializers.variance_scaling(3**-0.5, "fan_in", "uniform")
        shapes = self.kernel_shapes()
        keys = jax.random.split(key, len(shapes))
        return {
            name: {"kernel": scaled(each, shape), "bias": jnp.zeros(shape[-1])}
            for each, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def apply(self, parameters: Parameters, observations: Array) -> tuple[Array, Array]:
        """Logits (n, actions, atoms) and features (n, 512) of observations (n, 4, 84, 84)."""
        x = jnp.moveaxis(observations, 1, -1).astype(jnp.float32) / 255
        for name, (_, stride, _) in CONVOLUTIONS.items():
            layer = parameters[name]
            x = jax.lax.conv_general_dilated(
                x,
                layer["kernel"],
                (stride, stride),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            x = jax.nn.relu(x + layer["bias"])
        features = jax.nn.relu(_dense(parameters["dense"], x.reshape(len(x), NUM_FLAT)))
        logits = _dense(parameters["head"], features)
        return logits.reshape(len(x), self.num_actions, self.num_atoms), features

    def q_values(self, logits: Array) -> Array:
        """The mean return (n, actions) of each action."""
        return jax.nn.softmax(logits) @ self.support


def _dense(layer: dict[str, Array], x: Array) -> Any:
    return x @ layer["kernel"] + layer["bias"]


class RainbowAgent:
    """Plays by the largest mean return; it has no memory of its own.

    `made` says how it was trained and how it was evaluated, `history` how its training went.

    >>> network = Network(actions=3)
    >>> agent = RainbowAgent("untrained", network, network.init(jax.random.key(0)))
    >>> seen, _ = agent.see(np.zeros((2, 4, 84, 84), np.uint8), agent.start(2), np.ones(2, bool))
    >>> seen.action.shape, seen.features.shape, seen.value.shape
    ((2,), (2, 512), (2,))
    """

    num_features = NUM_FEATURES
    observation_shape = (NUM_FRAMES, FRAME_SIZE, FRAME_SIZE)

    def __init__(
        self,
        name: str,
        network: RainbowNetwork,
        parameters: Parameters,
        *,
        metadata: Mapping[str, Any] | None = None,
        history: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> None:
        self.name, self.network, self.parameters = name, network, parameters
        self.num_actions = network.num_actions
        self.metadata, self.history = dict(metadata or {}), dict(history or {})

    def initial_state(self, num_games: int) -> None:
        """It remembers nothing."""

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        found = np.asarray(compute_outputs(self.network, self.parameters, observations))
        return AgentOutput(found[:, 0].astype(np.int64), found[:, 2:], found[:, 1]), state


@functools.partial(jit, static_argnames="network")
def compute_outputs(
    network: RainbowNetwork, parameters: Parameters, observations: NDArray[np.uint8]
) -> jax.Array:
    """(n, 2 + k): the greedy actions, the largest values, and the features.

    In one array, since each one that is fetched from an accelerator takes its time.
    """
    logits, features = network.apply(parameters, jnp.asarray(observations))
    values = network.q_values(logits)
    chosen = jnp.stack([values.argmax(axis=1).astype(features.dtype), values.max(axis=1)], axis=1)
    return jnp.concatenate([chosen, features], axis=1)
