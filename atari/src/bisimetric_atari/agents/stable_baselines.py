"""Read agents that Stable-Baselines3 saved: DQN, QR-DQN, PPO and A2C with CNN policies.

`stable_baselines3` itself unpickles parts of the zip, which executes code of the file, and is not
needed for the weights. Here `policy.pth` is read by `torch.load(weights_only=True)`, the JSON
configuration as text, and the network is rebuilt from the names and shapes of the weights: no code
of the file is executed, and only PyTorch is required.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import ARCHIVE_ERRORS, METADATA_ERRORS, open_member, open_zip, parse_object
from bisimetric._optional import import_optional
from bisimetric._safe_pickle import validate_opcodes
from bisimetric.errors import InputError
from bisimetric_atari.games.agent import AgentOutput

KNOWN_PACKAGES = ("stable_baselines3.", "sb3_contrib.")
NATURE_CNN = "stable_baselines3.common.torch_layers.NatureCNN"
"""Packages and feature extractor whose classes are known."""

STRIDES = (4, 2, 1)
"""Strides of the three unpadded convolutions of NatureCNN."""

ACTIVATIONS = ("ReLU", "Tanh", "ELU", "LeakyReLU", "GELU", "SiLU", "Sigmoid")
"""Accepted activations, by PyTorch's names; without arguments."""

CRITIC_NAMES = ("q_net", "quantile_net")
"""Names of the networks of DQN and QR-DQN."""

UNUSED_PREFIXES = ("q_net_target.", "quantile_net_target.", "features_extractor.")
"""Weights that duplicate others: target networks, and a shared feature extractor."""

MAX_OBSERVATION_SIZE = 2**22
"""Largest size of an observation: a hundred times that of Atari."""

ForwardFunction = Callable[[Any], tuple[Any, Any, Any]]
"""From observations (n, *shape) to actions, features and values, as tensors."""


class StableBaselinesAgent:
    """The deterministic policy of a saved agent; it has no recurrent state.

    Features are the last hidden layer before the actions; the value is max Q, the maximum of the
    mean quantiles, or the output of the critic.
    """

    def __init__(
        self,
        name: str,
        forward: ForwardFunction,
        num_actions: int,
        observation_shape: tuple[int, ...],
    ) -> None:
        self.name, self.num_actions, self.observation_shape = name, num_actions, observation_shape
        self._forward = forward
        blank = np.zeros((1, *observation_shape), np.uint8)
        self.num_features = self._compute_output(blank).features.shape[1]

    def initial_state(self, num_envs: int) -> None:
        """Return no state."""

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        return self._compute_output(observations), state

    def _compute_output(self, observations: NDArray[np.uint8]) -> AgentOutput:
        torch = _import_torch(self.name)
        with torch.inference_mode():
            outputs = self._forward(torch.tensor(observations))
        action, features, value = (tensor.cpu().numpy() for tensor in outputs)
        return AgentOutput(action.astype(np.int64), features, value)


class PolicyArchive:
    """The weights and the plain-text configuration of a saved policy."""

    def __init__(self, path: str, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self.path, self.weights, self.config = path, weights, config
        self.used_names: set[str] = set()

    def read_layer(self, name: str) -> tuple[Any, Any]:
        """Return weights and biases of a layer."""
        names = (f"{name}.weight", f"{name}.bias")
        for parameter in names:
            if parameter not in self.weights:
                raise InputError(
                    f"{self.path}: it has no weights {parameter!r}; it must be an agent of DQN, "
                    "QR-DQN, PPO or A2C with a CnnPolicy, saved by model.save."
                )
        self.used_names |= {*names}
        weight, bias = (self.weights[parameter] for parameter in names)
        if weight.ndim < 2 or tuple(bias.shape) != tuple(weight.shape[:1]):
            raise InputError(
                f"{self.path}: its layers do not fit one another: {name} has weights of shape "
                f"{tuple(weight.shape)} and biases of shape {tuple(bias.shape)}."
            )
        return weight, bias

    def read_layers(self, name: str) -> list[tuple[Any, Any]]:
        """Return the layers `name.0`, `name.2`, ...; activations have the odd indices."""
        num_layers = 0
        while f"{name}.{2 * num_layers}.weight" in self.weights:
            num_layers += 1
        return [self.read_layer(f"{name}.{2 * i}") for i in range(num_layers)]

    def get_option(self, name: str, default: Any) -> Any:
        """Return one of the `policy_kwargs`; objects are given by their text representation."""
        options = self.config.get("policy_kwargs")
        return options.get(name, default) if isinstance(options, Mapping) else default


def load(path: str | os.PathLike[str]) -> StableBaselinesAgent:
    """Load the agent of a zip that `model.save(path)` wrote; requires PyTorch only.

    Supports `CnnPolicy` with any `net_arch`, the usual activations and any number of features; a
    custom feature extractor raises InputError. Observations are channels first, as SB3 stores
    them, and the frames of a stack the oldest first.
    """
    archive = _open_archive(path)
    try:
        num_actions = int(archive.config["action_space"]["n"])
        space = archive.config["observation_space"]
        shape = tuple(int(size) for size in space.get("_shape", space.get("shape")))
        if (
            num_actions < 1
            or not shape
            or min(shape) < 1
            or math.prod(shape) > MAX_OBSERVATION_SIZE
        ):
            raise ValueError
    except METADATA_ERRORS:
        raise InputError(
            f"{path}: its number of actions or its observation space is missing; it must be an "
            "agent with discrete actions and image observations."
        ) from None
    _require_known_classes(archive)
    critics = [name for name in CRITIC_NAMES if f"{name}.{name}.0.weight" in archive.weights]
    forward = (
        _build_critic(archive, critics[0], num_actions)
        if critics
        else _build_actor_critic(archive, num_actions)
    )
    unknown = [
        name
        for name in archive.weights
        if name not in archive.used_names and not name.startswith(UNUSED_PREFIXES)
    ]
    if unknown:
        raise InputError(
            f"{path}: it has weights that no CnnPolicy of DQN, QR-DQN, PPO or A2C has, such as "
            f"{unknown[0]!r}; wrap the agent as a Python function, and name it module:function."
        )
    try:
        return StableBaselinesAgent(os.path.basename(path), forward, num_actions, shape)
    except (RuntimeError, ValueError, TypeError, IndexError, MemoryError):
        raise InputError(
            f"{path}: its layers do not fit one another, observations of shape {shape}, and "
            f"{num_actions} actions."
        ) from None


def _open_archive(path: str | os.PathLike[str]) -> PolicyArchive:
    """Read the weights and the configuration of a zip; nothing else is unpickled."""
    torch = _import_torch(str(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with open_zip(path) as file:
            config, raw = (_read_member(path, file, name) for name in ("data", "policy.pth"))
        header = parse_object(config)
    except ARCHIVE_ERRORS:
        raise InputError(
            f"{path} is truncated or no zip of Stable-Baselines3; write it with model.save."
        ) from None
    try:
        _require_uncompressed(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensors = torch.load(io.BytesIO(raw), map_location=device, weights_only=True)
    except Exception:
        # A damaged pickle is a changed program and may raise anything.
        raise InputError(
            f"{path}: its policy.pth is damaged or holds code where only tensors are read; none of "
            "it was executed: use a file from a trusted source, written by model.save."
        ) from None
    return PolicyArchive(str(path), _validate_weights(path, torch, tensors), header)


def _read_member(path: str | os.PathLike[str], file: zipfile.ZipFile, name: str) -> bytes:
    """Read one member of a zip."""
    with open_member(path, file, file.getinfo(name)) as member:
        return member.read()


def _require_uncompressed(raw: bytes) -> None:
    """Raise ValueError if a record of a PyTorch file is compressed or a pickle declares too much.

    PyTorch never compresses, and allocates the declared size of a record before reading it.
    """
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        for info in file.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(raw):
                raise ValueError(f"{info.filename} is compressed")
            if info.filename.endswith(".pkl"):
                validate_opcodes(file.read(info))


def _validate_weights(path: str | os.PathLike[str], torch: Any, tensors: Any) -> dict[str, Any]:
    """Return the tensors as float32; each must be finite and no larger than its storage."""
    if not isinstance(tensors, Mapping):
        raise InputError(f"{path}: its policy.pth holds {type(tensors).__name__}, and no weights.")
    weights = {}
    for name, tensor in tensors.items():
        plain = (
            isinstance(name, str)
            and torch.is_tensor(tensor)
            and tensor.layout == torch.strided
            and tensor.device.type in ("cpu", "cuda")
            and tensor.is_floating_point()
            and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
        )
        if not plain:
            raise InputError(f"{path}: its weights {name!r} are no plain tensor of floats.")
        weights[name] = tensor.to(torch.float32)
        if not bool(torch.isfinite(weights[name]).all()):
            raise InputError(f"{path}: its weights {name!r} hold numbers that are not finite.")
    return weights


def _require_known_classes(archive: PolicyArchive) -> None:
    """Raise InputError for custom classes, which may compute anything."""
    policy = archive.config.get("policy_class")
    module = (
        policy.get("__module__", KNOWN_PACKAGES[0])
        if isinstance(policy, Mapping)
        else KNOWN_PACKAGES[0]
    )
    extractor = str(archive.get_option("features_extractor_class", NATURE_CNN))
    for what, value, known in (
        ("policy is of the module", str(module), str(module).startswith(KNOWN_PACKAGES)),
        ("features come from", extractor, NATURE_CNN in extractor),
    ):
        if not known:
            raise InputError(
                f"{archive.path}: its {what} {value}, and only SB3's own CnnPolicy and NatureCNN "
                "are known; wrap the agent as a Python function, and name it module:function."
            )


def _build_critic(archive: PolicyArchive, kind: str, num_actions: int) -> ForwardFunction:
    """Build the network of Q(s, a), or of the quantiles (n, N, actions) whose mean it is."""
    extract = _build_feature_extractor(archive, f"{kind}.features_extractor")
    *hidden, (weight, bias) = archive.read_layers(f"{kind}.{kind}")
    hidden_layers = _build_hidden_layers(archive, hidden, "ReLU")
    quantiles = 1 if kind == "q_net" else -1
    linear = _import_torch(archive.path).nn.functional.linear

    def forward(observations: Any) -> tuple[Any, Any, Any]:
        features = hidden_layers(extract(observations))
        outputs = linear(features, weight, bias)
        Q = outputs.reshape(len(features), quantiles, num_actions).mean(1)
        return Q.argmax(1), features, Q.amax(1)

    return forward


def _build_actor_critic(archive: PolicyArchive, num_actions: int) -> ForwardFunction:
    """Build the network of the most probable action and of V(s)."""
    shared = bool(archive.get_option("share_features_extractor", True))
    separate = "pi_features_extractor.linear.0.weight" in archive.weights
    extract = _build_feature_extractor(
        archive, "pi_features_extractor" if separate else "features_extractor"
    )
    extract_for_critic = (
        _build_feature_extractor(archive, "vf_features_extractor") if separate else extract
    )
    actor = _build_hidden_layers(archive, archive.read_layers("mlp_extractor.policy_net"), "Tanh")
    critic = _build_hidden_layers(archive, archive.read_layers("mlp_extractor.value_net"), "Tanh")
    action, value = archive.read_layer("action_net"), archive.read_layer("value_net")
    linear = _import_torch(archive.path).nn.functional.linear

    def forward(observations: Any) -> tuple[Any, Any, Any]:
        extracted = extract(observations)
        features = actor(extracted)
        logits = linear(features, *action).reshape(len(features), num_actions)
        hidden = critic(extracted if shared else extract_for_critic(observations))
        return logits.argmax(1), features, linear(hidden, *value)[:, 0]

    return forward


def _build_feature_extractor(archive: PolicyArchive, name: str) -> Callable[[Any], Any]:
    """Build NatureCNN: three convolutions and a dense layer, with ReLU."""
    layers = [archive.read_layer(f"{name}.cnn.{i}") for i in (0, 2, 4)]
    weight, bias = archive.read_layer(f"{name}.linear.0")
    functional = _import_torch(archive.path).nn.functional
    scale = 255 if archive.get_option("normalize_images", True) else 1

    def extract(observations: Any) -> Any:
        x = observations.to(weight.device, weight.dtype) / scale
        for (kernel, offset), stride in zip(layers, STRIDES, strict=True):
            x = functional.relu(functional.conv2d(x, kernel, offset, stride))
        return functional.relu(functional.linear(x.flatten(1), weight, bias))

    return extract


def _build_hidden_layers(
    archive: PolicyArchive, layers: list[tuple[Any, Any]], default_activation: str
) -> Callable[[Any], Any]:
    """Build hidden layers, each followed by the configured or the default activation."""
    configured = archive.get_option("activation_fn", default_activation)
    name = str(configured).rpartition(".")[2].rstrip("'>")
    if name not in ACTIVATIONS:
        raise InputError(
            f"{archive.path}: its activation is {configured}; known are {', '.join(ACTIVATIONS)}."
        )
    torch = _import_torch(archive.path)
    activation = getattr(torch.nn, name)()

    def apply(x: Any) -> Any:
        for weight, bias in layers:
            x = activation(torch.nn.functional.linear(x, weight, bias))
        return x

    return apply


def _import_torch(caller: str) -> Any:
    """Import PyTorch; an InputError says how to install it."""
    return import_optional("torch", caller, "sb3", "bisimetric-atari")
