"""Agents that Stable-Baselines3 saved: DQN, QR-DQN, and PPO or A2C, with their CNN policies.

A zip of theirs holds weights, and settings as JSON, some of which are pickles. Weights are read by
PyTorch's reader that lets only tensors through, of the settings only what is plain text, and the
network is built here from the names and the shapes of the weights: nothing of the file is run.
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
from bisimetric.agents.safe_pickle import validate_opcodes
from bisimetric.errors import InputError
from bisimetric.games.agent import AgentOutput

KNOWN_PACKAGES = ("stable_baselines3.", "sb3_contrib.")
NATURE_CNN = "stable_baselines3.common.torch_layers.NatureCNN"
"""Whose classes are known."""

STRIDES = (4, 2, 1)
"""How far the three convolutions move (NatureCNN); they are not padded."""

ACTIVATIONS = ("ReLU", "Tanh", "ELU", "LeakyReLU", "GELU", "SiLU", "Sigmoid")
"""What may follow a hidden layer, by PyTorch's names; without arguments."""

CRITIC_NAMES = ("q_net", "quantile_net")
"""What the networks of DQN and of QR-DQN are called."""

UNUSED_PREFIXES = ("q_net_target.", "quantile_net_target.", "features_extractor.")
"""Weights that copy others: the targets, and an extractor that actor and critic have too."""

MAX_OBSERVATION_SIZE = 2**22
"""Numbers in an observation, at most: a hundred times as many as Atari's."""

ForwardFunction = Callable[[Any], tuple[Any, Any, Any]]
"""From observations (n, *shape) to the actions, the features and the values of them, as tensors."""


class StableBaselinesAgent:
    """Acts as its policy does with `deterministic=True`; it has no memory.

    Its features are the last hidden layer that the action is chosen from. Its value is the largest
    Q, the largest mean of the quantiles, or what the critic says.
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
        self.num_features = self._compute_output(
            np.zeros((1, *observation_shape), np.uint8)
        ).features.shape[1]

    def initial_state(self, num_games: int) -> None:
        """It remembers nothing."""

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        return self._compute_output(observations), state

    def _compute_output(self, observations: NDArray[np.uint8]) -> AgentOutput:
        torch = _import_torch(self.name)
        with torch.inference_mode():
            found = self._forward(torch.tensor(observations))
        action, features, value = (each.cpu().numpy() for each in found)
        return AgentOutput(action.astype(np.int64), features, value)


class PolicyArchive:
    """The plain part of a zip: its weights, and what its settings say in words."""

    def __init__(self, path: str, weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self.path, self.weights, self.config = path, weights, config
        self.used_names: set[str] = set()

    def read_layer(self, name: str) -> tuple[Any, Any]:
        """The weights and the biases of a layer."""
        names = (f"{name}.weight", f"{name}.bias")
        for each in names:
            if each not in self.weights:
                raise InputError(
                    f"{self.path}: it has no weights {each!r}; it must be an agent of DQN, "
                    "QR-DQN, PPO or A2C with a CnnPolicy, saved by model.save."
                )
        self.used_names |= {*names}
        weight, bias = (self.weights[each] for each in names)
        if weight.ndim < 2 or tuple(bias.shape) != tuple(weight.shape[:1]):
            raise InputError(
                f"{self.path}: its layers do not fit one another: {name} has weights of shape "
                f"{tuple(weight.shape)} and biases of shape {tuple(bias.shape)}."
            )
        return weight, bias

    def read_layers(self, name: str) -> list[tuple[Any, Any]]:
        """The layers `name.0`, `name.2` and so on: activations stand between them."""
        count = 0
        while f"{name}.{2 * count}.weight" in self.weights:
            count += 1
        return [self.read_layer(f"{name}.{2 * place}") for place in range(count)]

    def get_option(self, name: str, default: Any) -> Any:
        """One of the `policy_kwargs`; an object is there as the text that stands for it."""
        options = self.config.get("policy_kwargs")
        return options.get(name, default) if isinstance(options, Mapping) else default


def load(path: str | os.PathLike[str]) -> StableBaselinesAgent:
    """The agent in a zip that `model.save(path)` wrote; it needs PyTorch, and nothing else.

    The networks are those of `CnnPolicy` with any `net_arch`, the usual activations and any number
    of features; a feature extractor of one's own is refused. Observations are channels first, as
    SB3 itself keeps them, and the frames of a stack the oldest first.
    """
    opened = _open_archive(path)
    try:
        num_actions = int(opened.config["action_space"]["n"])
        space = opened.config["observation_space"]
        shape = tuple(int(each) for each in space.get("_shape", space.get("shape")))
        if (
            num_actions < 1
            or not shape
            or min(shape) < 1
            or math.prod(shape) > MAX_OBSERVATION_SIZE
        ):
            raise ValueError
    except METADATA_ERRORS:
        raise InputError(
            f"{path}: it does not say how many actions it has, or what it sees; it must be an "
            "agent with discrete actions that sees frames."
        ) from None
    _require_known_classes(opened)
    kinds = [each for each in CRITIC_NAMES if f"{each}.{each}.0.weight" in opened.weights]
    look = (
        _build_critic(opened, kinds[0], num_actions)
        if kinds
        else _build_actor_critic(opened, num_actions)
    )
    others = [
        name
        for name in opened.weights
        if name not in opened.used_names and not name.startswith(UNUSED_PREFIXES)
    ]
    if others:
        raise InputError(
            f"{path}: it has weights that no CnnPolicy of DQN, QR-DQN, PPO or A2C has, such as "
            f"{others[0]!r}; wrap the agent as a Python function, and name it module:function."
        )
    try:
        return StableBaselinesAgent(os.path.basename(path), look, num_actions, shape)
    except (RuntimeError, ValueError, TypeError, IndexError, MemoryError):
        raise InputError(
            f"{path}: its layers do not fit one another, observations of shape {shape}, and "
            f"{num_actions} actions."
        ) from None


def _open_archive(path: str | os.PathLike[str]) -> PolicyArchive:
    """The weights and the settings of a zip; what is pickled in it stays so."""
    torch = _import_torch(str(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with open_zip(path) as file:
            settings, raw = (_read_member(path, file, name) for name in ("data", "policy.pth"))
        about = parse_object(settings)
    except ARCHIVE_ERRORS:
        raise InputError(
            f"{path} is cut short or no zip of Stable-Baselines3; write it with model.save."
        ) from None
    try:
        _require_uncompressed(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(io.BytesIO(raw), map_location=device, weights_only=True)
    except Exception:
        # A damaged pickle fails in any way: it is a programme that was cut or changed.
        raise InputError(
            f"{path}: its policy.pth is damaged or holds code where only tensors are read; nothing "
            "of it was run: take a file from a source you trust, written by model.save."
        ) from None
    return PolicyArchive(str(path), _validate_weights(path, torch, found), about)


def _read_member(path: str | os.PathLike[str], file: zipfile.ZipFile, name: str) -> bytes:
    with open_member(path, file, file.getinfo(name)) as opened:
        return opened.read()


def _require_uncompressed(raw: bytes) -> None:
    """Refuses a file of PyTorch whose records are compressed, or whose pickle declares too much.

    PyTorch never compresses, and takes the memory that a record declares before it reads it.
    """
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        for info in file.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(raw):
                raise ValueError(f"{info.filename} is compressed")
            if info.filename.endswith(".pkl"):
                validate_opcodes(file.read(info))


def _validate_weights(path: str | os.PathLike[str], torch: Any, tensors: Any) -> dict[str, Any]:
    """The tensors of a file as float32, each finite and no larger than what is stored of it."""
    if not isinstance(tensors, Mapping):
        raise InputError(f"{path}: its policy.pth holds {type(tensors).__name__}, and no weights.")
    weights = {}
    for name, each in tensors.items():
        plain = (
            isinstance(name, str)
            and torch.is_tensor(each)
            and each.layout == torch.strided
            and each.device.type in ("cpu", "cuda")
            and each.is_floating_point()
            and each.numel() * each.element_size() <= each.untyped_storage().nbytes()
        )
        if not plain:
            raise InputError(f"{path}: its weights {name!r} are no plain tensor of floats.")
        weights[name] = each.to(torch.float32)
        if not bool(torch.isfinite(weights[name]).all()):
            raise InputError(f"{path}: its weights {name!r} hold numbers that are not finite.")
    return weights


def _require_known_classes(archive: PolicyArchive) -> None:
    """Only SB3's own classes are known; a class of other people's may compute anything."""
    policy = archive.config.get("policy_class")
    module = (
        policy.get("__module__", KNOWN_PACKAGES[0])
        if isinstance(policy, Mapping)
        else KNOWN_PACKAGES[0]
    )
    extractor = str(archive.get_option("features_extractor_class", NATURE_CNN))
    for what, found, known in (
        ("policy is of the module", str(module), str(module).startswith(KNOWN_PACKAGES)),
        ("features come from", extractor, NATURE_CNN in extractor),
    ):
        if not known:
            raise InputError(
                f"{archive.path}: its {what} {found}, and only SB3's own CnnPolicy and NatureCNN "
                "are known; wrap the agent as a Python function, and name it module:function."
            )


def _build_critic(archive: PolicyArchive, kind: str, num_actions: int) -> ForwardFunction:
    """Q(s, a), or quantiles (n, N, actions) whose mean it is."""
    eye = _build_feature_extractor(archive, f"{kind}.features_extractor")
    *hidden, (weight, bias) = archive.read_layers(f"{kind}.{kind}")
    rest = _build_hidden_layers(archive, hidden, "ReLU")
    quantiles = 1 if kind == "q_net" else -1
    linear = _import_torch(archive.path).nn.functional.linear

    def look(observations: Any) -> tuple[Any, Any, Any]:
        features = rest(eye(observations))
        outputs = linear(features, weight, bias)
        Q = outputs.reshape(len(features), quantiles, num_actions).mean(1)
        return Q.argmax(1), features, Q.amax(1)

    return look


def _build_actor_critic(archive: PolicyArchive, num_actions: int) -> ForwardFunction:
    """The likeliest action; the value is V(s), of the critic."""
    shared = bool(archive.get_option("share_features_extractor", True))
    apart = "pi_features_extractor.linear.0.weight" in archive.weights
    eye = _build_feature_extractor(
        archive, "pi_features_extractor" if apart else "features_extractor"
    )
    eye_of_critic = _build_feature_extractor(archive, "vf_features_extractor") if apart else eye
    actor = _build_hidden_layers(archive, archive.read_layers("mlp_extractor.policy_net"), "Tanh")
    critic = _build_hidden_layers(archive, archive.read_layers("mlp_extractor.value_net"), "Tanh")
    action, value = archive.read_layer("action_net"), archive.read_layer("value_net")
    linear = _import_torch(archive.path).nn.functional.linear

    def look(observations: Any) -> tuple[Any, Any, Any]:
        seen = eye(observations)
        features = actor(seen)
        logits = linear(features, *action).reshape(len(features), num_actions)
        judged = critic(seen if shared else eye_of_critic(observations))
        return logits.argmax(1), features, linear(judged, *value)[:, 0]

    return look


def _build_feature_extractor(archive: PolicyArchive, name: str) -> Callable[[Any], Any]:
    """Three convolutions and a layer, with rectifiers: NatureCNN."""
    layers = [archive.read_layer(f"{name}.cnn.{place}") for place in (0, 2, 4)]
    weight, bias = archive.read_layer(f"{name}.linear.0")
    functional = _import_torch(archive.path).nn.functional
    scale = 255 if archive.get_option("normalize_images", True) else 1

    def eye(observations: Any) -> Any:
        x = observations.to(weight.device, weight.dtype) / scale
        for (kernel, shift), stride in zip(layers, STRIDES, strict=True):
            x = functional.relu(functional.conv2d(x, kernel, shift, stride))
        return functional.relu(functional.linear(x.flatten(1), weight, bias))

    return eye


def _build_hidden_layers(
    archive: PolicyArchive, layers: list[tuple[Any, Any]], default_activation: str
) -> Callable[[Any], Any]:
    """Layers, each followed by the activation that the settings name, or by the usual one."""
    said = archive.get_option("activation_fn", default_activation)
    name = str(said).rpartition(".")[2].rstrip("'>")
    if name not in ACTIVATIONS:
        raise InputError(
            f"{archive.path}: its activation is {said}; known are {', '.join(ACTIVATIONS)}."
        )
    torch = _import_torch(archive.path)
    activation = getattr(torch.nn, name)()

    def hidden(x: Any) -> Any:
        for weight, bias in layers:
            x = activation(torch.nn.functional.linear(x, weight, bias))
        return x

    return hidden


def _import_torch(caller: str) -> Any:
    return import_optional("torch", caller, "sb3")
