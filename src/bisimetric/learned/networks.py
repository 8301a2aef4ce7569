"""Networks of pairs: psi(x, y) for two states, and for all pairs of many at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.hidden import Groups, summed

Parameters = Any
"""A tree of arrays."""


@dataclasses.dataclass(frozen=True)
class PairNetwork:
    """The paper's network: a state beside another, dense layers, one number, at least 0.

    psi(x, y) = relu(w . relu(... relu([x, y] W + b) ...) + c), Glorot uniform weights, biases 0.
    The first layer is written in two halves, x W_1 + y W_2, so that no input of pairs is built.

    Attributes:
        hidden: the widths of the hidden layers.

    >>> network = PairNetwork((8,))
    >>> weights = network.init(jax.random.key(0), 2)
    >>> network.table(weights, jnp.zeros((3, 2)), jnp.ones((5, 2))).shape
    (3, 5)
    """

    hidden: tuple[int, ...] = (729,)

    def init(self, key: Array, features: int) -> Parameters:
        """Parameters for states with so many features."""
        widths = (2 * features, *self.hidden, 1)
        keys = jax.random.split(key, len(widths) - 1)
        return [
            {"weights": _glorot(each, before, after), "biases": jnp.zeros(after)}
            for each, before, after in zip(keys, widths[:-1], widths[1:], strict=True)
        ]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: Groups | None = None
    ) -> Array:
        """psi(x_i, y_j), (n, m); with `groups`, at least for pairs of one group."""
        first, *middle, last = parameters
        features = x.shape[1]
        ours = x @ first["weights"][:features] + first["biases"]
        theirs = y @ first["weights"][features:]
        if not middle:
            found = summed(ours, theirs, last["weights"][:, 0], groups)
            return jax.nn.relu(found + last["biases"][0])
        layer = jax.nn.relu(ours[:, None, :] + theirs[None, :, :])
        for dense in middle:
            layer = jax.nn.relu(layer @ dense["weights"] + dense["biases"])
        return jax.nn.relu((layer @ last["weights"])[..., 0] + last["biases"][0])


@dataclasses.dataclass(frozen=True)
class AnyNetwork:
    """A network of another library, as a pair of functions.

    `init(key, features)` makes its parameters; `apply(parameters, x, y)` is psi(x, y), a number,
    for one pair of states.
    """

    init: Callable[[Array, int], Parameters]
    apply: Callable[[Parameters, Array, Array], Array]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: Groups | None = None
    ) -> Array:
        one_row = jax.vmap(self.apply, in_axes=(None, None, 0))
        return jax.vmap(one_row, in_axes=(None, 0, None))(parameters, x, y)


Network = PairNetwork | AnyNetwork


def checked(verb: str, network: Any) -> Network:
    """A network, also given as its widths or as a pair (init, apply), or a clear error."""
    if network is None:
        return PairNetwork()
    if isinstance(network, Network):
        return network
    if isinstance(network, tuple | list) and network:
        if all(isinstance(width, int) and width > 0 for width in network):
            return PairNetwork(tuple(network))
        if len(network) == 2 and all(callable(each) for each in network):
            return AnyNetwork(*network)
    raise InputError(
        f"learned.{verb}: network is {network!r} and must be a PairNetwork, the widths of its hidden "
        "layers, such as (729,), or a pair of functions (init, apply)."
    )


def _glorot(key: Array, before: int, after: int) -> Array:
    limit = math.sqrt(6 / (before + after))
    return jax.random.uniform(key, (before, after), jnp.float32, -limit, limit)
