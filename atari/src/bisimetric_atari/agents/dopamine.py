"""Read agents that Dopamine trained, in JAX or TensorFlow 1: DQN, Rainbow (C51) and QR-DQN.

A checkpoint of JAX is a pickle whose `online_params` hold kernel and bias of five layers; one of
TensorFlow has them as variables (see `tensor_bundle`). The size of the head determines the
algorithm. Observations (84, 84, 4), the oldest frame first, and SAME padding are equivalent to
those of `RainbowNetwork`.
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
from bisimetric.learned import FeatureScaling, LearnedDistance
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric_atari.agents.rainbow.network import RainbowAgent, RainbowNetwork
from bisimetric_atari.agents.tensor_bundle import INDEX_SUFFIX, TensorBundle

LAYER_NAMES = {
    "conv1": "Conv_0",
    "conv2": "Conv_1",
    "conv3": "Conv_2",
    "dense": "Dense_0",
    "head": "Dense_1",
}
"""Names of the layers here and in Flax."""

VARIABLE_NAMES = {
    "conv1": "Conv",
    "conv2": "Conv_1",
    "conv3": "Conv_2",
    "dense": "fully_connected",
    "head": "fully_connected_1",
}
"""Names of the layers here and in TensorFlow, below `Online/`."""

VARIABLE_PARTS = (("weights", "biases"), ("kernel", "bias"))
"""Names of kernel and bias in TensorFlow: of Slim, and of Keras."""

NUM_QUANTILES = 200
"""Outputs per action of Dopamine's QR-DQN."""

METRIC_LAYER = "OnlineBisim/fully_connected"
"""The first layer of the metric in checkpoints of Castro (2020); others have _1, _2, ..."""

MAX_METRIC_LAYERS = 16


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
    """Load the agent of a checkpoint for a game with this many actions.

    A pickle is read by `load_arrays`, a checkpoint of TensorFlow by `TensorBundle`.

    Its features (n, 512) are the layer before the head. With n actions the head has n
    outputs for DQN, 51 n for Rainbow, and 200 n for QR-DQN.
    """
    if os.path.isfile(os.fspath(path).removesuffix(INDEX_SUFFIX) + INDEX_SUFFIX):
        layers = _read_variables(TensorBundle.load(path))
    else:
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


def _find_parts(bundle: TensorBundle, layer: str) -> tuple[str, str]:
    """Return the names of kernel and bias in a checkpoint; raise InputError without that layer."""
    for kernel, bias in VARIABLE_PARTS:
        if {f"{layer}/{kernel}", f"{layer}/{bias}"} <= bundle.records.keys():
            return kernel, bias
    named = ", ".join(sorted(bundle.records)[:4]) or "none"
    raise InputError(
        f"{bundle.prefix} is no such checkpoint of Dopamine: it has no variable "
        f"{layer}/{VARIABLE_PARTS[0][0]}; its first ones are {named}."
    )


def _read_variables(bundle: TensorBundle) -> dict[str, dict[str, Any]]:
    """Return kernel and bias of each layer of the online network."""
    kernel, bias = _find_parts(bundle, f"Online/{VARIABLE_NAMES['conv1']}")
    return {
        name: {
            "kernel": bundle.read(f"Online/{variable}/{kernel}"),
            "bias": bundle.read(f"Online/{variable}/{bias}"),
        }
        for name, variable in VARIABLE_NAMES.items()
    }


def load_metric(path: str | os.PathLike[str], game: str) -> LearnedDistance:
    """Load the metric of a checkpoint of the code of Castro (2020), d^pi at discount 0.99.

    Args:
        path: the checkpoint of TensorFlow, such as `tf_ckpt-4`.
        game: the game that it is of, which a checkpoint does not name.

    Returns:
        The metric of two vectors of features.

    Raises:
        InputError: if it holds no network of a metric, or its files are damaged.
    """
    bundle = TensorBundle.load(path)
    kernel, bias = _find_parts(bundle, METRIC_LAYER)
    layers: list[dict[str, Any]] = []
    while len(layers) <= MAX_METRIC_LAYERS:
        layer = METRIC_LAYER + (f"_{len(layers)}" if layers else "")
        if f"{layer}/{kernel}" not in bundle.records:
            break
        weights = np.asarray(bundle.read(f"{layer}/{kernel}"), np.float32)
        biases = np.asarray(bundle.read(f"{layer}/{bias}"), np.float32)
        before = layers[-1]["weights"].shape[-1] if layers else weights.shape[0]
        if weights.ndim != 2 or len(weights) != before or biases.shape != weights.shape[1:]:
            raise InputError(f"{bundle.prefix}: the shapes of {layer} do not fit a dense network.")
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise InputError(f"{bundle.prefix}: {layer} holds numbers that are not finite.")
        layers.append({"weights": jnp.asarray(weights), "biases": jnp.asarray(biases)})
    features = len(layers[0]["weights"])
    if features % 2 or len(layers) < 2 or layers[-1]["weights"].shape[-1] != 1:
        raise InputError(
            f"{bundle.prefix}: the network of the metric is not one from two vectors to a number."
        )
    hidden = tuple(layer["weights"].shape[-1] for layer in layers[:-1])
    scaling = FeatureScaling(np.zeros(features // 2), np.ones(features // 2))
    network = PairNetwork(hidden, output_activation="relu")
    metadata = {"game": game, "agent": None, "method": "learned", "algorithm": "castro2020"}
    return LearnedDistance("on_policy", 0.99, network, layers, scaling, metadata=metadata)


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
