"""Networks of pairs: psi(x, y) for two states, and for all pairs of many at once."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.networks.pair_layer import TileGroups, sum_relu_pairs

Parameters = Any
"""A tree of arrays."""


def _straight_through_relu(z: Array) -> Array:
    """relu(z), with a slope of 1 everywhere."""
    return z + jax.lax.stop_gradient(jax.nn.relu(z) - z)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
}
OUTPUTS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "open": _straight_through_relu,
    "softplus": jax.nn.softplus,
    "linear": lambda z: z,
}
INIT_LIMITS: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda before, after: math.sqrt(6 / (before + after)),
    "he": lambda before, after: math.sqrt(6 / before),
    "lecun": lambda before, after: math.sqrt(3 / before),
}
"""Weights are drawn from -limit to limit, by how many numbers come in and go out."""


@dataclasses.dataclass(frozen=True)
class PairNetwork:
    """The paper's network: a state beside another, dense layers, one number, at least 0.

    psi(x, y) = out(w . act(... act([x, y] W + b) ...) + c), biases 0 at first. The first layer is
    written in two halves, x W_1 + y W_2, so that no input of pairs is built. The paper's is
    `PairNetwork((729,), output="relu")`.

    Attributes:
        hidden: the widths of the hidden layers.
        activation: act, of the hidden layers: "relu", "tanh", "gelu" or "softplus". One hidden
            layer of "relu" is never stored, pair by pair.
        output: out. "relu", as in the paper, has no slope below 0: where most targets are 0 while
            beta is small, psi may be driven to 0 for good. "open" has the values of "relu" and a
            slope of 1 everywhere, so that psi can always come back. Or "softplus", or "linear".
        init_weights: uniform, by "glorot", "he" or "lecun".

    >>> network = PairNetwork((8,))
    >>> weights = network.init(jax.random.key(0), 2)
    >>> network.table(weights, jnp.zeros((3, 2)), jnp.ones((5, 2))).shape
    (3, 5)
    """

    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    output: str = "open"
    init_weights: str = "glorot"
    symmetric: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", validate_widths("PairNetwork", self.hidden))
        for name, known in (
            ("activation", ACTIVATIONS),
            ("output", OUTPUTS),
            ("init_weights", INIT_LIMITS),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"PairNetwork: {name} is {getattr(self, name)!r} and must be one of "
                    f"{', '.join(known)}."
                )

    def init(self, key: Array, features: int) -> Parameters:
        """Parameters for states with so many features."""
        widths = (2 * features, *self.hidden, 1)
        keys = jax.random.split(key, len(widths) - 1)
        return [
            {"weights": self._init_weights(each, before, after), "biases": jnp.zeros(after)}
            for each, before, after in zip(keys, widths[:-1], widths[1:], strict=True)
        ]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """psi(x_i, y_j), (n, m); with `groups`, at least for pairs of one group."""
        first, *middle, last = parameters
        features = x.shape[1]
        ours = x @ first["weights"][:features] + first["biases"]
        theirs = y @ first["weights"][features:]
        act, out = ACTIVATIONS[self.activation], OUTPUTS[self.output]
        if not middle and self.activation == "relu":
            found = sum_relu_pairs(ours, theirs, last["weights"][:, 0], groups)
            return out(found + last["biases"][0])
        layer = act(ours[:, None, :] + theirs[None, :, :])
        for dense in middle:
            layer = act(layer @ dense["weights"] + dense["biases"])
        return out((layer @ last["weights"])[..., 0] + last["biases"][0])

    def _init_weights(self, key: Array, before: int, after: int) -> Array:
        limit = INIT_LIMITS[self.init_weights](before, after)
        return jax.random.uniform(key, (before, after), jnp.float32, -limit, limit)


@dataclasses.dataclass(frozen=True)
class FunctionalNetwork:
    """A network of another library, as a pair of functions.

    `init(key, features)` makes its parameters; `apply(parameters, x, y)` is psi(x, y), a number,
    for one pair of states.
    """

    init: Callable[[Array, int], Parameters]
    apply: Callable[[Parameters, Array, Array], Array]
    symmetric: ClassVar[bool] = False

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        one_row = jax.vmap(self.apply, in_axes=(None, None, 0))
        return jax.vmap(one_row, in_axes=(None, 0, None))(parameters, x, y)


Castro2020Network = PairNetwork | FunctionalNetwork


def validate_network(network: Any) -> Castro2020Network:
    """A network, also given as its widths or as a pair (init, apply), or a clear error."""
    if isinstance(network, Castro2020Network):
        return network
    if isinstance(network, tuple | list):
        if len(network) == 2 and all(callable(each) for each in network):
            return FunctionalNetwork(*network)
        return PairNetwork(tuple(network))
    raise InputError(
        f"Settings: network is {network!r} and must be a PairNetwork, the widths of its hidden "
        "layers, such as (729,), or a pair of functions (init, apply)."
    )


def require_scalar_output(network: Any, features: int) -> None:
    """Refuses a network of one's own whose answer for one pair is not one number."""
    if not isinstance(network, FunctionalNetwork):
        return
    state = jax.ShapeDtypeStruct((features,), jnp.float32)
    parameters = jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))
    found = jax.eval_shape(network.apply, parameters, state, state)
    if getattr(found, "shape", None) != () or not jnp.issubdtype(found.dtype, jnp.floating):
        raise InputError(
            f"AnyNetwork: apply gives {found} for one pair of states and must give one float, of "
            "shape ()."
        )


def validate_widths(caller: str, widths: Any) -> tuple[int, ...]:
    """The widths of hidden layers, checked."""
    try:
        found = tuple(operator.index(width) for width in widths)
    except TypeError:
        found = ()
    if not found or min(found) < 1:
        raise InputError(
            f"{caller}: hidden is {widths!r} and must be the widths of the hidden layers, each a "
            "whole number, at least 1, such as (729,)."
        )
    return found
