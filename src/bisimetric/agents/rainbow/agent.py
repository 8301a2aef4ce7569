"""A Rainbow network as an agent: greedy actions, its 512 features, and its largest value."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bisimetric.agents.rainbow.network import (
    FRAME_SIZE,
    NUM_FEATURES,
    NUM_FRAMES,
    Parameters,
    RainbowNetwork,
)
from bisimetric.games.protocol import AgentOutput
from bisimetric.interrupts import jit


class RainbowAgent:
    """Plays by the largest mean return; it has no memory of its own.

    `made` says how it was trained and how it was evaluated, `history` how its training went.

    >>> network = Network(actions=3)
    >>> agent = RainbowAgent("untrained", network, network.init(jax.random.key(0)))
    >>> seen, _ = agent.see(np.zeros((2, 4, 84, 84), np.uint8), agent.start(2), np.ones(2, bool))
    >>> seen.action.shape, seen.features.shape, seen.value.shape
    ((2,), (2, 512), (2,))
    """

    num_features = NUM_FEATURES
    observation_shape = (NUM_FRAMES, FRAME_SIZE, FRAME_SIZE)

    def __init__(
        self,
        name: str,
        network: RainbowNetwork,
        parameters: Parameters,
        *,
        metadata: Mapping[str, Any] | None = None,
        history: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> None:
        self.name, self.network, self.parameters = name, network, parameters
        self.num_actions = network.num_actions
        self.metadata, self.history = dict(metadata or {}), dict(history or {})

    def initial_state(self, num_games: int) -> None:
        """It remembers nothing."""

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        found = np.asarray(compute_outputs(self.network, self.parameters, observations))
        return AgentOutput(found[:, 0].astype(np.int64), found[:, 2:], found[:, 1]), state


@functools.partial(jit, static_argnames="network")
def compute_outputs(
    network: RainbowNetwork, parameters: Parameters, observations: NDArray[np.uint8]
) -> jax.Array:
    """(n, 2 + k): the greedy actions, the largest values, and the features.

    In one array, since each one that is fetched from an accelerator takes its time.
    """
    logits, features = network.apply(parameters, jnp.asarray(observations))
    values = network.q_values(logits)
    chosen = jnp.stack([values.argmax(axis=1).astype(features.dtype), values.max(axis=1)], axis=1)
    return jnp.concatenate([chosen, features], axis=1)
