"""How Rainbow learns: Dopamine's settings, for many games at once.

One update of Rainbow: the distribution of returns moves towards that of what came next.

    target = reward + discount^n * support, by the target network's best action, put on the support
    loss   = weight * cross-entropy(target, what the network says)

Priorities are the square root of the loss. As in Dopamine: 3 steps, Adam, no double learning.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric.agents.rainbow.network import Parameters, RainbowNetwork
from bisimetric.agents.rainbow.replay import (
    ReplayBatch,
    ReplayBuffer,
    sample_batch,
    update_priorities,
)
from bisimetric.errors import InputError, require_integer


@dataclasses.dataclass(frozen=True)
class RainbowConfig:
    """Steps are those of the agent, four frames each, of all games together.

    Dopamine takes a batch of 32 every 4 steps of one game: each step is learned from 8 times. So it
    is here, with larger batches: `count * reuse / batch` of them after each step of all games.

    Attributes:
        count: games at once.
        batch: steps that an update learns from.
        reuse: how often a step is learned from, in the mean.
        learning_rate, epsilon: of Adam.
        ahead: steps of a return before the network's word is taken.
        capacity: steps that are kept.
        start: steps before the first update.
        period: steps between two updates of the target network.
        explore, settle: the share of random actions falls from 1 to `explore` in `settle` steps.
    """

    num_games: int = 128
    batch: int = 512
    samples_per_insert: int = 16
    learning_rate: float = 2e-4
    adam_epsilon: float = 2e-5
    discount: float = 0.99
    lookahead: int = 3
    capacity: int = 1_000_000
    min_replay_size: int = 20_000
    target_update_period: int = 8_000
    final_epsilon: float = 0.01
    epsilon_decay_steps: int = 250_000

    def __post_init__(self) -> None:
        for name in (
            "num_games",
            "batch",
            "samples_per_insert",
            "lookahead",
            "capacity",
            "min_replay_size",
            "target_update_period",
            "epsilon_decay_steps",
        ):
            require_integer("Settings", name, getattr(self, name), 1)
        for name in ("learning_rate", "adam_epsilon", "discount", "final_epsilon"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"Settings: {name} is {getattr(self, name)!r} and must be between 0 and 1."
                )
        if self.capacity < self.min_replay_size:
            raise InputError(
                f"Settings: capacity is {self.capacity:,} and start {self.min_replay_size:,}; keep at least "
                "what learning starts with."
            )
        if (self.num_games * self.samples_per_insert) % self.batch:
            raise InputError(
                f"Settings: {self.num_games} games, each step learned from {self.samples_per_insert} times, are no "
                f"whole number of batches of {self.batch}; choose a batch that divides "
                f"{self.num_games * self.samples_per_insert}."
            )

    @property
    def updates_per_step(self) -> int:
        """Batches after each step of all games."""
        return self.num_games * self.samples_per_insert // self.batch

    @property
    def num_rows(self) -> int:
        """The rows of the replay."""
        return -(-self.capacity // self.num_games)

    def compute_epsilon(self, step: int) -> float:
        """The share of random actions after so many steps; `settle` counts from `start`."""
        done = min(max(step - self.min_replay_size, 0) / self.epsilon_decay_steps, 1.0)
        return 1.0 + done * (self.final_epsilon - 1.0)


class RainbowState(NamedTuple):
    """What learns: the network, the target network, and Adam's memory."""

    parameters: Parameters
    target_parameters: Parameters
    optimiser_state: Any


def init_state(network: RainbowNetwork, config: RainbowConfig, key: Array) -> RainbowState:
    """A learner that knows nothing."""
    parameters = network.init(key)
    kept = jax.tree.map(jnp.copy, parameters)
    return RainbowState(parameters, kept, build_optimiser(config).init(parameters))


def build_optimiser(config: RainbowConfig) -> Any:
    return optax.adam(config.learning_rate, eps=config.adam_epsilon)


def update(
    network: RainbowNetwork,
    config: RainbowConfig,
    state: RainbowState,
    replay: ReplayBuffer,
    key: Array,
) -> tuple[RainbowState, ReplayBuffer, Array]:
    """After one batch; with its mean loss."""
    draw = sample_batch(replay, key, config.batch, config.lookahead, config.discount)
    goal = compute_target_distribution(network, state.target_parameters, draw)

    def loss(parameters: Parameters) -> tuple[Array, Array]:
        logits, _ = network.apply(parameters, draw.observation)
        said = jax.nn.log_softmax(_select_action(logits, draw.action))
        losses = -(goal * said).sum(axis=1)
        return (draw.weight * losses).mean(), losses

    (mean, losses), slope = jax.value_and_grad(loss, has_aux=True)(state.parameters)
    moves, optimiser = build_optimiser(config).update(slope, state.optimiser_state)
    parameters = optax.apply_updates(state.parameters, moves)
    replay = update_priorities(replay, draw, jnp.sqrt(losses + 1e-10))
    return state._replace(parameters=parameters, optimiser_state=optimiser), replay, mean


def compute_target_distribution(
    network: RainbowNetwork, target_parameters: Parameters, batch: ReplayBatch
) -> Array:
    """The distributions (b, atoms) of what was earned and what the target network expects next."""
    logits, _ = network.apply(target_parameters, batch.next_observation)
    best = network.q_values(logits).argmax(axis=1)
    chances = jax.nn.softmax(_select_action(logits, best))
    returns = batch.reward[:, None] + batch.discount[:, None] * network.support
    return project_distribution(network, returns, chances)


def project_distribution(network: RainbowNetwork, returns: Array, probabilities: Array) -> Array:
    """Distributions (b, atoms) at any returns (b, k), shared between the two nearest atoms.

    >>> network = Network(actions=2, atoms=3, reach=1.0)
    >>> projected(network, jnp.array([[0.5, 7.0]]), jnp.array([[0.5, 0.5]])).tolist()
    [[0.0, 0.25, 0.75]]
    """
    gap = 2 * network.max_return / (network.num_atoms - 1)
    kept = jnp.clip(returns, -network.max_return, network.max_return)
    near = 1 - jnp.abs(kept[:, None, :] - network.support[None, :, None]) / gap
    return (jnp.clip(near, 0, 1) * probabilities[:, None, :]).sum(axis=2)


def _select_action(logits: Array, action: Array) -> Array:
    """The logits (b, atoms) of one action each."""
    return jnp.take_along_axis(logits, action[:, None, None], axis=1)[:, 0]
