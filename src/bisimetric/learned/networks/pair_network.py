"""Networks on pairs of states: psi(x, y) for one pair, and for all pairs of two sets at once."""

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
    """Return relu(z), with gradient 1 everywhere (straight-through estimator)."""
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
"""The bound of uniform initial weights, from the widths before and after the layer."""


@dataclasses.dataclass(frozen=True)
class PairNetwork:
    """The network of Castro (2020): two states side by side, dense layers, one number, at least 0.

    psi(x, y) = out(w . act(... act([x, y] W + b) ...) + c), with biases initially 0. The first
    layer is computed in two halves, x W_1 + y W_2, so that no input of pairs is built. The paper's
    is `PairNetwork((729,), output_activation="relu")`.

    Attributes:
        hidden: the widths of the hidden layers.
        activation: act, of the hidden layers: "relu", "tanh", "gelu" or "softplus". A single hidden
            layer of "relu" is never stored pair by pair.
        output_activation: out. "relu", as in the paper, has gradient 0 below 0: where most targets
            are 0 while beta is small, psi may stay 0 for all pairs. "open" has the values of "relu"
            and gradient 1 everywhere, so that psi can recover. Or "softplus", or "linear".
        init_weights: the bound of the uniform initial weights: "glorot", "he" or "lecun".

    Raises:
        InputError: when a field is not one of these.

    >>> network = PairNetwork((8,))
    >>> weights = network.init(jax.random.key(0), 2)
    >>> network.table(weights, jnp.zeros((3, 2)), jnp.ones((5, 2))).shape
    (3, 5)
    """

    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    output_activation: str = "open"
    init_weights: str = "glorot"
    symmetric: ClassVar[bool] = False
    weight_dtype: ClassVar[Any] = jnp.float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", validate_widths("PairNetwork", self.hidden))
        for name, known in (
            ("activation", ACTIVATIONS),
            ("output_activation", OUTPUTS),
            ("init_weights", INIT_LIMITS),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"is {getattr(self, name)!r} and must be one of {', '.join(known)}",
                    caller="PairNetwork",
                    argument=name,
                )

    def init(self, key: Array, features: int) -> Parameters:
        """Return random parameters.

        Args:
            key: a JAX random key.
            features: the number of features of a state.

        Returns:
            A list of layers.
        """
        widths = (2 * features, *self.hidden, 1)
        keys = jax.random.split(key, len(widths) - 1)
        return [
            {
                "weights": self._init_weights(each, before, after),
                "biases": jnp.zeros(after, self.weight_dtype),
            }
            for each, before, after in zip(keys, widths[:-1], widths[1:], strict=True)
        ]

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return psi(x_i, y_j) for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.
            groups: groups of rows; pairs of different groups may be left at 0.

        Returns:
            (n, m).
        """
        first, *middle, last = parameters
        features = x.shape[1]
        A = x @ first["weights"][:features] + first["biases"]
        B = y @ first["weights"][features:]
        act, out = ACTIVATIONS[self.activation], OUTPUTS[self.output_activation]
        if not middle and self.activation == "relu":
            return out(sum_relu_pairs(A, B, last["weights"][:, 0], groups) + last["biases"][0])
        layer = act(A[:, None, :] + B[None, :, :])
        for dense in middle:
            layer = act(layer @ dense["weights"] + dense["biases"])
        return out((layer @ last["weights"])[..., 0] + last["biases"][0])

    def _init_weights(self, key: Array, before: int, after: int) -> Array:
        limit = INIT_LIMITS[self.init_weights](before, after)
        return jax.random.uniform(key, (before, after), self.weight_dtype, -limit, limit)


@dataclasses.dataclass(frozen=True)
class FunctionalNetwork:
    """A network of another library, as a pair of functions.

    Attributes:
        init: from a JAX random key and the number of features to parameters.
        apply: from parameters and the features of two states to psi(x, y), one float.

    >>> def init(key, features):
    ...     return jnp.ones(features)
    >>> network = FunctionalNetwork(init, lambda w, x, y: jnp.abs((x - y) @ w))
    >>> network.table(jnp.ones(2), jnp.zeros((1, 2)), jnp.ones((3, 2))).shape
    (1, 3)
    """

    init: Callable[[Array, int], Parameters]
    apply: Callable[[Parameters, Array, Array], Array]
    symmetric: ClassVar[bool] = False

    def table(
        self, parameters: Parameters, x: Array, y: Array, groups: TileGroups | None = None
    ) -> Array:
        """Return psi(x_i, y_j) for all pairs.

        Args:
            parameters: from `init`.
            x: (n, k), features of states.
            y: (m, k), features of states.
            groups: ignored.

        Returns:
            (n, m).
        """
        one_row = jax.vmap(self.apply, in_axes=(None, None, 0))
        return jax.vmap(one_row, in_axes=(None, 0, None))(parameters, x, y)


Castro2020Network = PairNetwork | FunctionalNetwork


def validate_network(network: Any) -> Castro2020Network:
    """Return a network, also from its widths or from a pair (init, apply)."""
    if isinstance(network, Castro2020Network):
        return network
    if isinstance(network, tuple | list):
        if len(network) == 2 and all(callable(each) for each in network):
            return FunctionalNetwork(*network)
        return PairNetwork(tuple(network))
    raise InputError(
        f"is {network!r} and must be a PairNetwork, the widths of its hidden layers, such as "
        "(729,), or a pair of functions (init, apply)",
        caller="Castro2020Config",
        argument="network",
    )


def require_scalar_output(network: Any, features: int) -> None:
    """Raise an InputError where a functional network does not return one float per pair."""
    if not isinstance(network, FunctionalNetwork):
        return
    state = jax.ShapeDtypeStruct((features,), jnp.float32)
    parameters = jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))
    output = jax.eval_shape(network.apply, parameters, state, state)
    if getattr(output, "shape", None) != () or not jnp.issubdtype(output.dtype, jnp.floating):
        raise InputError(
            f"returns {output} for one pair of states and must return one float, of shape ()",
            caller="FunctionalNetwork",
            argument="apply",
        )


def validate_widths(caller: str, widths: Any, argument: str = "hidden") -> tuple[int, ...]:
    """Return the widths of hidden layers as a tuple."""
    try:
        valid = tuple(operator.index(width) for width in widths)
    except TypeError:
        valid = ()
    if not valid or min(valid) < 1:
        raise InputError(
            f"is {widths!r} and must be the widths of the hidden layers, each a whole number, at "
            "least 1, such as (729,)",
            caller=caller,
            argument=argument,
        )
    return valid


# Networks are trees without arrays, so that all of them can be arguments of compiled functions.
jax.tree_util.register_static(PairNetwork)
jax.tree_util.register_static(FunctionalNetwork)
