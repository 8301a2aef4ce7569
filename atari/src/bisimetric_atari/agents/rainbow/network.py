"""Rainbow's network and the greedy agent of it.

Three convolutions, a dense layer of 512 features, and per action a categorical distribution on
`num_atoms` returns from -max_return to max_return (C51), whose mean is Q(s, a). As in Dopamine's
Rainbow there are no double, duelling or noisy parts.
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
from bisimetric_atari.games.agent import AgentOutput

NUM_FRAMES, FRAME_SIZE = 4, 84
"""An observation is (NUM_FRAMES, FRAME_SIZE, FRAME_SIZE), the newest frame last."""

NUM_FEATURES = 512
CONVOLUTIONS = {"conv1": (8, 4, 32), "conv2": (4, 2, 64), "conv3": (3, 1, 64)}
"""Kernel width, stride and output channels."""

NUM_FLAT = 11 * 11 * 64
"""Outputs of the last convolution: 84 / 4 = 21, 21 / 2 = 11, rounded up."""

Parameters = dict[str, dict[str, Array]]
"""Kernel and bias of each layer."""


@dataclasses.dataclass(frozen=True)
class RainbowNetwork:
    """The convolutional C51 network.

    Attributes:
        num_actions: actions of the game.
        num_atoms: atoms of the distribution of returns.
        max_return: the atoms are equally spaced from -max_return to max_return.

    >>> network = RainbowNetwork(num_actions=6)
    >>> parameters = network.init(jax.random.key(0))
    >>> logits, features = network.apply(parameters, jnp.zeros((2, 4, 84, 84), jnp.uint8))
    >>> logits.shape, features.shape, network.q_values(logits).shape
    ((2, 6, 51), (2, 512), (2, 6))
    """

    num_actions: int
    num_atoms: int = 51
    max_return: float = 10.0

    @property
    def support(self) -> Array:
        """The atoms (num_atoms,)."""
        return jnp.linspace(-self.max_return, self.max_return, self.num_atoms)

    def kernel_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the kernel shapes.

        Returns:
            The shape of the kernel of each layer; a bias has the length of its last axis.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        channels = NUM_FRAMES
        for name, (width, _, out) in CONVOLUTIONS.items():
            shapes[name] = (width, width, channels, out)
            channels = out
        return shapes | {
            "dense": (NUM_FLAT, NUM_FEATURES),
            "head": (NUM_FEATURES, self.num_actions * self.num_atoms),
        }

    def count_activations(self) -> int:
        """Count the activations of all layers.

        Returns:
            Their number per observation.
        """
        side, total = FRAME_SIZE, 0
        for _, stride, channels in CONVOLUTIONS.values():
            side = -(-side // stride)
            total += side * side * channels
        return total + NUM_FEATURES + self.num_actions * self.num_atoms

    def init(self, key: Array) -> Parameters:
        """Initialise the parameters.

        Args:
            key: a JAX random key.

        Returns:
            Uniform weights of variance 1 / (sqrt(3) fan-in), and zero biases.
        """
        initialise = jax.nn.initializers.variance_scaling(3**-0.5, "fan_in", "uniform")
        shapes = self.kernel_shapes()
        keys = jax.random.split(key, len(shapes))
        return {
            name: {"kernel": initialise(layer_key, shape), "bias": jnp.zeros(shape[-1])}
            for layer_key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def apply(self, parameters: Parameters, observations: Array) -> tuple[Array, Array]:
        """Compute logits and features.

        Args:
            parameters: of the layers.
            observations: (n, 4, 84, 84) uint8.

        Returns:
            Logits (n, num_actions, num_atoms) and features (n, 512).
        """
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
        """Compute the expected returns.

        Args:
            logits: (n, num_actions, num_atoms).

        Returns:
            Q (n, num_actions).
        """
        return jax.nn.softmax(logits) @ self.support


def _dense(layer: dict[str, Array], x: Array) -> Any:
    return x @ layer["kernel"] + layer["bias"]


class RainbowAgent:
    """The greedy agent of a Rainbow network; it has no recurrent state.

    Args:
        name: in messages and metadata.
        network: the network.
        parameters: its parameters.
        metadata: how it was trained and evaluated.
        history: the training curves, (records,) by name.

    >>> network = RainbowNetwork(num_actions=3)
    >>> agent = RainbowAgent("untrained", network, network.init(jax.random.key(0)))
    >>> output, _ = agent.act(np.zeros((2, 4, 84, 84), np.uint8), None, np.ones(2, bool))
    >>> output.action.shape, output.features.shape, output.value.shape
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

    def initial_state(self, num_envs: int) -> None:
        """Return no state.

        Args:
            num_envs: ignored.
        """

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        """Compute greedy actions, features and max Q.

        Args:
            observations: (n, 4, 84, 84) uint8.
            state: ignored.
            is_first: ignored.

        Returns:
            The outputs and the unchanged state.
        """
        outputs = np.asarray(compute_outputs(self.network, self.parameters, observations))
        return AgentOutput(outputs[:, 0].astype(np.int64), outputs[:, 2:], outputs[:, 1]), state


@functools.partial(jit, static_argnames="network")
def compute_outputs(
    network: RainbowNetwork, parameters: Parameters, observations: NDArray[np.uint8]
) -> jax.Array:
    """Compute greedy actions, max Q and features as one array (n, 2 + k).

    One array, since each transfer from an accelerator has a fixed cost.
    """
    logits, features = network.apply(parameters, jnp.asarray(observations))
    values = network.q_values(logits)
    greedy = jnp.stack([values.argmax(axis=1).astype(features.dtype), values.max(axis=1)], axis=1)
    return jnp.concatenate([greedy, features], axis=1)
