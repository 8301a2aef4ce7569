"""A Rainbow network as an agent: greedy actions, its 512 features, and its largest value."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bisimetric.agents.rainbow.network import FEATURES, FRAMES, SIDE, Network, Parameters
from bisimetric.games.protocol import Seen


class RainbowAgent:
    """Plays by the largest mean return; it has no memory of its own.

    `made` says how it was trained and how it was evaluated, `history` how its training went.

    >>> network = Network(actions=3)
    >>> agent = RainbowAgent("untrained", network, network.init(jax.random.key(0)))
    >>> seen, _ = agent.see(np.zeros((2, 4, 84, 84), np.uint8), agent.start(2), np.ones(2, bool))
    >>> seen.action.shape, seen.features.shape, seen.value.shape
    ((2,), (2, 512), (2,))
    """

    num_features = FEATURES
    shape = (FRAMES, SIDE, SIDE)

    def __init__(
        self,
        name: str,
        network: Network,
        parameters: Parameters,
        *,
        made: Mapping[str, Any] | None = None,
        history: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> None:
        self.name, self.network, self.parameters = name, network, parameters
        self.num_actions = network.actions
        self.made, self.history = dict(made or {}), dict(history or {})

    def start(self, count: int) -> None:
        """It remembers nothing."""

    def see(
        self, observations: NDArray[np.uint8], memory: Any, fresh: NDArray[np.bool_]
    ) -> tuple[Seen, Any]:
        action, features, value = seen(self.network, self.parameters, jnp.asarray(observations))
        return Seen(np.asarray(action, np.int64), np.asarray(features), np.asarray(value)), memory


@functools.partial(jax.jit, static_argnames="network")
def seen(network: Network, parameters: Parameters, observations: Array) -> tuple[Array, ...]:
    """The greedy actions (n,), the features (n, k), and the largest values (n,)."""
    logits, features = network.apply(parameters, observations)
    values = network.values(logits)
    return values.argmax(axis=1), features, values.max(axis=1)
