"""Read agents that Dopamine trained in JAX: DQN, Rainbow (C51) and QR-DQN.

A checkpoint is a pickle whose `online_params` hold kernel and bias of five layers; the size of the
head determines the algorithm. Observations (84, 84, 4), the oldest frame first, and SAME padding
are equivalent to those of `RainbowNetwork`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bisimetric._safe_pickle import ArrayTree, load_arrays
from bisimetric.errors import InputError
from bisimetric_atari.agents.rainbow.network import RainbowAgent, RainbowNetwork

LAYER_NAMES = {
    "conv1": "Conv_0",
    "conv2": "Conv_1",
    "conv3": "Conv_2",
    "dense": "Dense_0",
    "head": "Dense_1",
}
"""Names of the layers here and in Flax."""

NUM_QUANTILES = 200
"""Outputs per action of Dopamine's QR-DQN."""


@dataclasses.dataclass(frozen=True)
class QuantileNetwork(RainbowNetwork):
    """Network whose outputs are returns: the quantiles of QR-DQN, or the one value of DQN.

    The value of an action is their mean, Q(s, a) = sum_i theta_i(s, a) / num_atoms.

    >>> network = QuantileNetwork(num_actions=2, num_atoms=3)
    >>> network.q_values(jnp.array([[[0.0, 1.0, 5.0], [1.0, 1.0, 1.0]]])).tolist()
    [[2.0, 1.0]]
    """

    def q_values(self, logits: Array) -> Array:
        """Compute the mean outputs (n, num_actions)."""
        return logits.mean(axis=-1)


def load(path: str | os.PathLike[str], num_actions: int) -> RainbowAgent:
    """Load the agent of a checkpoint for a game with this many actions; see `load_arrays`.

    Its features (n, 512) are the layer before the head. With n actions the head has n
    outputs for DQN, 51 n for Rainbow, and 200 n for QR-DQN.
    """
    layers = _extract_layers(path, load_arrays(path))
    outputs = layers["head"]["kernel"].shape[-1]
    networks: dict[int, RainbowNetwork] = {
        num_actions: QuantileNetwork(num_actions, num_atoms=1),
        51 * num_actions: RainbowNetwork(num_actions),
        NUM_QUANTILES * num_actions: QuantileNetwork(num_actions, num_atoms=NUM_QUANTILES),
    }
    if outputs not in networks:
        dqn, rainbow, qr_dqn = networks
        raise InputError(
            f"{path}: the last layer of this agent has {outputs} outputs; the game has "
            f"{num_actions} actions and needs {dqn} (DQN), {rainbow} (Rainbow) or {qr_dqn} "
            "(QR-DQN): was it trained on another game?"
        )
    network = networks[outputs]
    with np.errstate(over="ignore"):
        single = {
            name: {part: np.asarray(array, np.float32) for part, array in layer.items()}
            for name, layer in layers.items()
        }
    for name, shape in network.kernel_shapes().items():
        _validate_layer(path, LAYER_NAMES[name], single[name], shape)
    return RainbowAgent(
        os.path.basename(path),
        network,
        {
            name: {part: jnp.asarray(array) for part, array in layer.items()}
            for name, layer in single.items()
        },
    )


def _extract_layers(path: str | os.PathLike[str], tree: ArrayTree) -> dict[str, dict[str, Any]]:
    """Return kernel and bias of each layer; raise InputError for other layers."""
    parameters: Any = tree.get("online_params")
    if isinstance(parameters, Mapping):
        parameters = parameters.get("params", parameters)
    names = sorted(parameters) if isinstance(parameters, Mapping) else []
    if names != sorted(LAYER_NAMES.values()):
        has = f"its online_params are {', '.join(names)}" if names else "it has no online_params"
        raise InputError(
            f"{path} is no checkpoint of Dopamine's DQN, Rainbow or QR-DQN in JAX: {has}, and "
            f"those have {', '.join(LAYER_NAMES.values())}."
        )
    for name in names:
        layer = parameters[name]
        parts = sorted(layer) if isinstance(layer, Mapping) else []
        if parts != ["bias", "kernel"] or not all(map(np.ndim, layer.values())):
            raise InputError(f"{path}: the layer {name} is not a kernel and a bias of numbers.")
    return {name: dict(parameters[flax_name]) for name, flax_name in LAYER_NAMES.items()}


def _validate_layer(
    path: str | os.PathLike[str], name: str, layer: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    """Raise InputError if a kernel or bias has another shape or is not finite."""
    for part, expected in {"kernel": shape, "bias": shape[-1:]}.items():
        if layer[part].shape != expected:
            raise InputError(
                f"{path}: the {part} of {name} has the shape {layer[part].shape}, and an agent "
                f"with 4 frames of 84 x 84 has {expected}: was it trained on other observations?"
            )
        if not np.isfinite(layer[part]).all():
            raise InputError(f"{path}: the {part} of {name} holds numbers that are not finite.")
