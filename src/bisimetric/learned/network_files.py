"""Networks in files of learned distances; the code of custom encoders is not saved."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.learned.networks.encoders import ConvEncoder, ShapedEncoder, validate_encoder
from bisimetric.learned.networks.metric_networks import (
    FreeNetwork,
    MetricNetwork,
    PairQEnsemble,
    ScaledMetricNetwork,
)
from bisimetric.learned.networks.mico_network import (
    MicoNetwork,
    ReducedNetwork,
    ScaledMicoNetwork,
)
from bisimetric.learned.networks.pair_network import PairNetwork, Parameters
from bisimetric.learned.networks.reward_sequence_network import (
    RewardSequenceEnsemble,
    RewardSequenceNetwork,
)

ENSEMBLE_FIELDS = ("num_actions", "unit", "diameter_bound", "num_networks", "observed_actions")
NETWORK_FORMS: dict[Any, str] = {
    PairNetwork: "pairs",
    MetricNetwork: "metric",
    FreeNetwork: "free",
    RewardSequenceNetwork: "rewards",
}
NETWORK_FIELDS: dict[Any, tuple[str, ...]] = {
    PairNetwork: ("activation", "output_activation", "init_weights"),
    MetricNetwork: ("num_groups", "group_size", "fourier_features", "activation"),
    FreeNetwork: ("fourier_features",),
    RewardSequenceNetwork: ("activation", "fourier_features"),
}

ENCODER_FIELDS = ("channels", "kernel_size", "num_features")
SEQUENCE_FIELDS = ("num_networks", "horizon", "reward_values")
MICO_FORM = "mico"
MICO_FIELDS = ("parametrisation", "beta")
MICO_SCALES = ("unit", "reward_shift", "reward_scale")
SINGLE_VALUE = "single_value"
"""Marks a network with one value per pair, in place of one per action."""

CUSTOM_ENCODER = "custom"
"""How a file names an encoder whose code it does not hold."""

PROBE_NAME = "encoder probe"
"""The tensor of the features that a custom encoder computes for two fixed observations."""

PROBE_TOLERANCE = 0.01
"""The share of the largest feature by which devices may differ."""


def describe_network(network: Any) -> dict[str, Any]:
    """Return a network as JSON: its form, the widths of its hidden layers and its other fields."""
    if isinstance(network, PairQEnsemble):
        fields = {name: getattr(network, name) for name in ENSEMBLE_FIELDS}
        return {**describe_network(network.network), **fields}
    if isinstance(network, RewardSequenceEnsemble):
        fields = {name: getattr(network, name) for name in SEQUENCE_FIELDS}
        return {**describe_network(network.network), **fields}
    if isinstance(network, ScaledMetricNetwork):
        return {**describe_network(network.network), "unit": network.unit, SINGLE_VALUE: True}
    if isinstance(network, ReducedNetwork):
        return {**describe_network(network.network), "reduced": True}
    if isinstance(network, ScaledMicoNetwork):
        fields = {name: getattr(network, name) for name in MICO_SCALES}
        return {**describe_network(network.network), **fields}
    if isinstance(network, MicoNetwork):
        fields = {name: getattr(network, name) for name in MICO_FIELDS}
        return {**describe_network(network.embedding), **fields, "form": MICO_FORM}
    for form, names in NETWORK_FIELDS.items():
        if isinstance(network, form):
            fields = {name: getattr(network, name) for name in names}
            if getattr(network, "encoder", None) is not None:
                fields["encoder"] = describe_encoder(network.encoder)
            return {"form": NETWORK_FORMS[form], "network": list(network.hidden), **fields}
    return {"network": "own"}


def build_network(metadata: dict[str, Any], encoder: Any = None, num_features: int = 0) -> Any:
    """Return the network that `describe_network` described.

    Args:
        metadata: the description.
        encoder: the encoder, where it is custom.
        num_features: the numbers of one observation.
    """
    if metadata.get("reduced"):
        others = {name: value for name, value in metadata.items() if name != "reduced"}
        return ReducedNetwork(build_network(others, encoder, num_features))
    if metadata.get("form") == MICO_FORM:
        fields = {name: metadata[name] for name in NETWORK_FIELDS[MetricNetwork]}
        embedding = MetricNetwork(tuple(metadata["network"]), **fields)
        embedding = _restore_encoder(embedding, metadata, encoder, num_features)
        mico = MicoNetwork(embedding, **{name: metadata[name] for name in MICO_FIELDS})
        return ScaledMicoNetwork(mico, **{name: metadata[name] for name in MICO_SCALES})
    forms = {name: form for form, name in NETWORK_FORMS.items()}
    form = forms[metadata.get("form", "pairs")]
    fields = {name: metadata[name] for name in NETWORK_FIELDS[form] if name in metadata}
    if form is PairNetwork:
        return PairNetwork(tuple(metadata["network"]), **{"output_activation": "relu", **fields})
    network = form(tuple(metadata["network"]), **fields)
    if isinstance(network, MetricNetwork | RewardSequenceNetwork):
        network = _restore_encoder(network, metadata, encoder, num_features)
    if isinstance(network, RewardSequenceNetwork):
        return RewardSequenceEnsemble(
            network,
            metadata["discount"],
            metadata["horizon"],
            tuple(metadata["reward_values"]),
            metadata["has_terminal"],
            metadata["num_networks"],
        )
    if metadata.get(SINGLE_VALUE):
        return ScaledMetricNetwork(network, metadata["unit"])
    return PairQEnsemble(network, **{name: metadata[name] for name in ENSEMBLE_FIELDS})


def _restore_encoder(
    network: Any, metadata: dict[str, Any], encoder: Any, num_features: int
) -> Any:
    """Return the network with the encoder that is described, for the recorded shape."""
    description = metadata.get("encoder")
    if description is None:
        return network
    if isinstance(description, dict):
        encoder = ConvEncoder(**{**description, "channels": tuple(description["channels"])})
    elif description == "flatten":
        encoder = "flatten"
    shape = metadata["shape"]
    return dataclasses.replace(network, encoder=encoder).fit_to_observations(
        None if shape is None else tuple(shape), num_features, metadata["has_terminal"]
    )


def describe_encoder(encoder: Any) -> Any:
    """Return an encoder as JSON; one whose code cannot be saved as "custom"."""
    plain = encoder.encoder if isinstance(encoder, ShapedEncoder) else encoder
    if isinstance(plain, str):
        return plain
    if isinstance(plain, ConvEncoder):
        fields = dataclasses.asdict(plain)
        return {**fields, "channels": list(plain.channels)}
    return CUSTOM_ENCODER


def require_encoder(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], encoder: Any
) -> None:
    """Raise an InputError unless an encoder is given exactly where a file needs one."""
    custom = metadata.get("encoder") == CUSTOM_ENCODER
    if custom and encoder is None:
        raise InputError(
            f"{path} was learned with a custom encoder, whose code is not in the file; give it: "
            "LearnedDistance.load(path, encoder=...)."
        )
    if encoder is not None and not custom:
        raise InputError(
            f"{path} was learned without a custom encoder; leave out the argument encoder."
        )
    validate_encoder(encoder)


def require_same_encoder(
    path: str | os.PathLike[str], network: Any, features: int, tensors: dict[str, NDArray[Any]]
) -> None:
    """Raise an InputError unless the parameters of the encoders are those of the file."""
    shapes = jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))
    leaves, _ = jax.tree_util.tree_flatten_with_path([each["encoder"] for each in shapes])
    here = {}
    for position, leaf in leaves:
        keys = (position[0], jax.tree_util.DictKey("encoder"), *position[1:])
        here[jax.tree_util.keystr(keys)] = f"{leaf.dtype} of shape {leaf.shape}"
    saved = {
        name: f"{array.dtype} of shape {array.shape}"
        for name, array in tensors.items()
        if any(name.startswith(f"[{i}]['encoder']") for i in range(len(shapes)))
    }
    for name in sorted(here.keys() | saved.keys()):
        if here.get(name) != saved.get(name):
            raise InputError(
                f"{path} was learned with another encoder: its {name} is "
                f"{saved.get(name, 'missing')} and that of the encoder given is "
                f"{here.get(name, 'missing')}; give the encoder that it was learned with."
            )


def probe_encoder(network: Any, parameters: Any) -> dict[str, NDArray[Any]]:
    """Return the features of two fixed observations by name, for a custom encoder only."""
    shaped = getattr(getattr(network, "network", None), "encoder", None)
    if shaped is None or describe_encoder(shaped) != CUSTOM_ENCODER:
        return {}
    size = math.prod(shaped.shape)
    observations = np.sin(np.arange(2 * size, dtype=np.float32)).reshape(2, *shaped.shape)
    features = shaped.encoder.apply(parameters[0]["encoder"], jax.numpy.asarray(observations))
    return {PROBE_NAME: np.asarray(features, np.float32)}


def require_same_features(
    path: str | os.PathLike[str], network: Any, parameters: Any, tensors: dict[str, NDArray[Any]]
) -> None:
    """Raise an InputError where an encoder computes other features than when it was saved."""
    expected, found = tensors[PROBE_NAME], probe_encoder(network, parameters)[PROBE_NAME]
    tolerance = PROBE_TOLERANCE * max(float(np.abs(expected).max(initial=0)), 1e-30)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=0, atol=tolerance):
        raise InputError(
            f"{path} was learned with another encoder: the one given computes other features from "
            "the same parameters; give the encoder that it was learned with."
        )


def collect_parameters(
    network: Any, num_features: int, tensors: dict[str, NDArray[Any]]
) -> Parameters:
    """Return the weights of a network among the tensors of a file.

    Weights in half precision are converted to single precision.
    """
    # Shapes only: what a damaged file claims to be large is not allocated.
    shapes = jax.eval_shape(lambda key: network.init(key, num_features), jax.random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    weights = []
    for path, leaf in leaves:
        array = tensors[jax.tree_util.keystr(path)]
        if array.shape != leaf.shape or array.dtype not in (leaf.dtype, np.float16):
            raise ValueError("its weights do not fit its network")
        weights.append(jnp.asarray(array, leaf.dtype))
    return jax.tree.unflatten(tree, weights)
