"""Encoders: from observations in their original shape to the features that a network compares.

An encoder is a pair of pure functions. `init(key, observations)` returns parameters, any tree of
arrays; `apply(parameters, observations)` returns features, (n, ...), for a batch (n, *shape).
Modules of Flax and Equinox are converted to such a pair by what they offer, without an import.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.networks.pair_layer import get_platform
from bisimetric.learned.networks.pair_network import INIT_LIMITS, Parameters, validate_widths

FLATTEN = "flatten"
"""The encoder that flattens observations of any shape, and has no parameters."""

MAX_SIDE = 16
"""The side of an image above which a convolution halves it."""

EXPECTED = (
    "must be a pair of functions (init, apply), a Flax or Equinox module, a function from a JAX "
    'random key to such a module, a ConvEncoder, or "flatten"'
)


@dataclasses.dataclass(frozen=True)
class FunctionalEncoder:
    """An encoder as a pair of functions; `(module.init, module.apply)` of Flax linen is one.

    Attributes:
        init: from a JAX random key and observations (1, *shape) to parameters.
        apply: from parameters and observations (n, *shape) to features (n, ...).

    >>> encoder = FunctionalEncoder(
    ...     lambda key, x: jnp.ones(x.shape[-1]), lambda weights, x: x @ weights
    ... )
    >>> encoder.apply(encoder.init(jax.random.key(0), jnp.zeros((1, 2))), jnp.ones((3, 2))).shape
    (3,)
    """

    init: Callable[[Array, Array], Parameters]
    apply: Callable[[Parameters, Array], Array]


@dataclasses.dataclass(frozen=True)
class ConvEncoder:
    """Convolutions of an image (height, width, channels), then one dense layer.

    A convolution has stride 2 where its input has a side above 16, and stride 1 elsewhere; all
    have zero padding and ReLU. The outputs are flattened, so that positions are not lost. It is
    the default of a `MetricNetwork` for image-shaped observations.

    Attributes:
        channels: the output channels of each convolution.
        kernel_size: the side of each kernel.
        num_features: the features of one observation.

    Raises:
        InputError: when a field is out of range.

    >>> encoder = ConvEncoder((8, 8), num_features=32)
    >>> weights = encoder.init(jax.random.key(0), jnp.zeros((1, 7, 7, 3)))
    >>> encoder.apply(weights, jnp.zeros((5, 7, 7, 3))).shape
    (5, 32)
    """

    channels: tuple[int, ...] = (32, 32)
    kernel_size: int = 3
    num_features: int = 256

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "channels", validate_widths("ConvEncoder", self.channels, "channels")
        )
        for name in ("kernel_size", "num_features"):
            value = require_integer("ConvEncoder", name, getattr(self, name), 1)
            object.__setattr__(self, name, value)

    def init(self, key: Array, observations: Array) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            observations: (1, height, width, channels).

        Returns:
            A list of layers.

        Raises:
            InputError: when an observation does not have 3 axes.
        """
        if observations.ndim != 4:
            raise InputError(
                f"is for images (height, width, channels), and an observation has shape "
                f"{observations.shape[1:]}",
                caller="MetricNetwork",
                argument="encoder",
                remedy="give another encoder, or observations of that shape",
            )
        height, width, before = observations.shape[1:]
        *conv_keys, dense_key = jax.random.split(key, len(self.channels) + 1)
        layers = []
        for each, after in zip(conv_keys, self.channels, strict=True):
            shape = (self.kernel_size, self.kernel_size, before, after)
            layers.append(_init_layer(each, shape))
            stride = _choose_stride(height, width)
            height, width, before = -(-height // stride), -(-width // stride), after
        return [*layers, _init_layer(dense_key, (height * width * before, self.num_features))]

    def apply(self, parameters: Parameters, observations: Array) -> Array:
        """Return the features.

        Args:
            parameters: from `init`.
            observations: (n, height, width, channels).

        Returns:
            (n, num_features).
        """
        *convolutions, dense = parameters
        layer = observations
        for each in convolutions:
            stride = _choose_stride(*layer.shape[1:3])
            layer = jax.nn.relu(_convolve(layer, each["weights"], stride) + each["biases"])
        flat = layer.reshape(len(layer), -1)
        return jax.nn.relu(flat @ dense["weights"] + dense["biases"])


def _convolve(images: Array, kernel: Array, stride: int) -> Array:
    """Return the convolution of images (n, h, w, c) with zero padding ("SAME").

    On a CPU it is a matrix product of patches: XLA runs its own convolution about ten times slower
    inside a compiled loop, such as that of training.
    """
    if get_platform() != "cpu":
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    rows, columns, before, after = kernel.shape
    _, height, width, _ = images.shape
    pads = jax.lax.padtype_to_pads((height, width), (rows, columns), (stride, stride), "SAME")
    padded = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    out = (-(-height // stride), -(-width // stride))
    patches = jnp.concatenate(
        [
            padded[:, i : i + stride * out[0] : stride, j : j + stride * out[1] : stride]
            for i in range(rows)
            for j in range(columns)
        ],
        axis=-1,
    )
    return patches @ kernel.reshape(rows * columns * before, after)


class _SplitModule(NamedTuple):
    """A module as its parameters and the function from parameters to a function of a batch."""

    parameters: Parameters
    merge: Callable[[Parameters], Callable[[Array], Array]]


@dataclasses.dataclass(frozen=True, eq=False)
class ModuleEncoder:
    """A module that holds its own weights, such as one of Equinox or Flax nnx.

    Two of them are equal where they were made from the same object.

    Attributes:
        module: the module, or a function from a JAX random key to it.
        is_factory: whether it is such a function. A module starts with its own weights, in all
            networks; a function gives each network weights of its own.
    """

    module: Any
    is_factory: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleEncoder) and self.module is other.module

    def __hash__(self) -> int:
        return id(self.module)

    def init(self, key: Array, observations: Array) -> Parameters:
        """Return the initial parameters of the module.

        Args:
            key: a JAX random key.
            observations: ignored.

        Returns:
            A tree of the floating-point arrays of the module.
        """
        return _split(self.module(key) if self.is_factory else self.module).parameters

    def apply(self, parameters: Parameters, observations: Array) -> Array:
        """Return the features.

        Args:
            parameters: from `init`.
            observations: (n, *shape).

        Returns:
            (n, ...).
        """
        return _split(self._example).merge(parameters)(observations)

    @functools.cached_property
    def _example(self) -> Any:
        """A module with the structure of all others; its weights are not used."""
        if not self.is_factory:
            return self.module
        with jax.ensure_compile_time_eval():
            return self.module(jax.random.key(0))


Encoder = FunctionalEncoder | ConvEncoder | ModuleEncoder


@dataclasses.dataclass(frozen=True)
class ShapedEncoder:
    """An encoder for observations of one shape, as a function of flat features.

    The terminal state is no observation: its encoding is 0, and its mark is one more feature.

    Attributes:
        encoder: the encoder.
        shape: the shape of one observation.
        has_terminal: whether the last feature marks the terminal state.
    """

    encoder: Encoder
    shape: tuple[int, ...]
    has_terminal: bool = False

    def init(self, key: Array) -> Parameters:
        """Return the initial parameters of the encoder."""
        return self.encoder.init(key, jnp.zeros((1, *self.shape)))

    def apply(self, parameters: Parameters, x: Array) -> Array:
        """Return the features (n, m) of states (n, k), with the mark of the terminal state."""
        size = math.prod(self.shape)
        encoded = self.encoder.apply(parameters, x[:, :size].reshape(len(x), *self.shape))
        encoded = encoded.reshape(len(x), -1)
        if not self.has_terminal:
            return encoded
        mark = x[:, size:]
        return jnp.concatenate([encoded * (1 - mark), mark], axis=1)

    @property
    def num_features(self) -> int:
        """The features of a state, after validation of what the encoder returns.

        Raises:
            InputError: when the encoder fails, or does not return floats for each observation.
        """
        batch = jax.ShapeDtypeStruct((2, *self.shape), jnp.float32)
        try:
            parameters = jax.eval_shape(self.init, jax.random.key(0))
            output = jax.eval_shape(self.encoder.apply, parameters, batch)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"fails for observations (n, {', '.join(map(str, self.shape))}): "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}",
                caller="MetricNetwork",
                argument="encoder",
                remedy="init takes (key, observations), and apply (parameters, observations)",
            ) from error
        _require_parameters_only(parameters)
        shape, dtype = getattr(output, "shape", None), getattr(output, "dtype", jnp.int32)
        if not shape or shape[0] != 2 or not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"returns {output} for 2 observations and must return floats, one row for each",
                caller="MetricNetwork",
                argument="encoder",
            )
        return math.prod(shape[1:]) + self.has_terminal


def is_image(shape: tuple[int, ...]) -> bool:
    """Return whether observations are images: 3 axes, of which the channels are the shortest.

    >>> is_image((7, 7, 3)), is_image((84, 84, 4)), is_image((4, 84, 84)), is_image((8,))
    (True, True, False, False)
    """
    return len(shape) == 3 and 0 < shape[2] <= min(shape[:2])


def validate_encoder(encoder: Any) -> Any:
    """Return an encoder from any of its forms; None and "flatten" as they are.

    Raises:
        InputError: when it is of another type.
    """
    if encoder is None or isinstance(encoder, Encoder | ShapedEncoder):
        return encoder
    if isinstance(encoder, str):
        if encoder == FLATTEN:
            return encoder
    elif isinstance(encoder, tuple | list):
        if len(encoder) == 2 and all(callable(each) for each in encoder):
            return FunctionalEncoder(*encoder)
    elif not isinstance(encoder, type) and _is_pair(encoder):
        return FunctionalEncoder(encoder.init, encoder.apply)
    elif _is_module(encoder):
        return ModuleEncoder(encoder, is_factory=False)
    elif callable(encoder):
        return ModuleEncoder(encoder, is_factory=True)
    raise InputError(f"is {encoder!r} and {EXPECTED}", caller="MetricNetwork", argument="encoder")


def shape_encoder(
    encoder: Any, shape: tuple[int, ...] | None, num_features: int, has_terminal: bool
) -> ShapedEncoder | None:
    """Return the encoder for observations of a shape, or None where features are not encoded.

    Args:
        encoder: from `validate_encoder`; None is a `ConvEncoder` for images, else no encoder.
        shape: the shape of one observation; None is a vector.
        num_features: the numbers of one observation.
        has_terminal: whether one more feature marks the terminal state.
    """
    shape = (num_features,) if shape is None else shape
    if isinstance(encoder, ShapedEncoder) or encoder == FLATTEN:
        return None if encoder == FLATTEN else encoder
    if encoder is None:
        if not is_image(shape):
            return None
        encoder = ConvEncoder()
    shaped = ShapedEncoder(encoder, shape, has_terminal)
    _ = shaped.num_features  # raises where the encoder does not fit
    return shaped


def _is_pair(encoder: Any) -> bool:
    return callable(getattr(encoder, "init", None)) and callable(getattr(encoder, "apply", None))


def _get_nnx() -> Any:
    """Return `flax.nnx` where it has been imported: a module of it cannot exist without."""
    return sys.modules.get("flax.nnx")


def _is_module(encoder: Any) -> bool:
    """Return whether an object is a callable tree of arrays, or a module of Flax nnx."""
    nnx = _get_nnx()
    if nnx is not None and isinstance(encoder, nnx.Module):
        return True
    return callable(encoder) and not jax.tree_util.all_leaves([encoder])


def _split(module: Any) -> _SplitModule:
    nnx = _get_nnx()
    if nnx is not None and isinstance(module, nnx.Module):
        graph, weights, others = nnx.split(module, nnx.Param, ...)
        pure = nnx.to_pure_dict(weights)

        def merge_graph(parameters: Parameters) -> Callable[[Array], Array]:
            state = jax.tree.unflatten(jax.tree.structure(weights), jax.tree.leaves(parameters))
            merged: Callable[[Array], Array] = nnx.merge(graph, state, others)
            return merged

        return _SplitModule(pure, merge_graph)
    leaves, tree = jax.tree.flatten(module)
    trained = [_is_weight(leaf) for leaf in leaves]
    weights = jax.tree.unflatten(
        tree, [leaf if kept else None for leaf, kept in zip(leaves, trained, strict=True)]
    )

    def merge_leaves(parameters: Parameters) -> Callable[[Array], Array]:
        given = iter(jax.tree.leaves(parameters))
        merged = [next(given) if kept else leaf for leaf, kept in zip(leaves, trained, strict=True)]
        return jax.vmap(jax.tree.unflatten(tree, merged))

    return _SplitModule(weights, merge_leaves)


def _is_weight(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _require_parameters_only(parameters: Parameters) -> None:
    """Raise an InputError where a Flax module has collections beside its parameters."""
    if not isinstance(parameters, Mapping) or "params" not in parameters:
        return
    if others := sorted(set(parameters) - {"params"}):
        raise InputError(
            f"has the collections {', '.join(others)} beside its parameters, and states are not "
            "updated",
            caller="MetricNetwork",
            argument="encoder",
            remedy="leave out layers such as BatchNorm and Dropout; LayerNorm has no state",
        )


def _choose_stride(height: int, width: int) -> int:
    return 2 if max(height, width) > MAX_SIDE else 1


def _init_layer(key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return weights that keep the variance of ReLU layers (He et al. 2015) and zero biases."""
    limit = INIT_LIMITS["he"](math.prod(shape[:-1]), shape[-1])
    weights = jax.random.uniform(key, shape, jnp.float32, -limit, limit)
    return {"weights": weights, "biases": jnp.zeros(shape[-1])}
