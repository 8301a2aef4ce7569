"""Configuration and update of Rainbow: C51 with n-step returns and prioritised replay.

    target = projection of sum_{k<n} discount^k r_k + discount^n * support, at the greedy action of
             the target network
    loss   = weight * cross-entropy(target, predicted distribution)

Priorities are the square roots of the losses. As in Dopamine: n = 3, Adam, no double Q-learning.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric.errors import InputError, require_integer
from bisimetric_atari.agents.rainbow.network import Parameters, RainbowNetwork
from bisimetric_atari.agents.rainbow.replay import (
    ReplayBatch,
    ReplayBuffer,
    sample_batch,
    update_priorities,
)


@dataclasses.dataclass(frozen=True)
class RainbowConfig:
    """Hyperparameters of Rainbow for many parallel games.

    Steps are agent steps (four frames), summed over all games. Dopamine samples a batch of 32 every
    4 steps, so each transition is sampled 8 times on average. Here `num_envs * samples_per_insert
    / batch` batches follow each step of all games.

    Attributes:
        num_envs: parallel games.
        batch_size: transitions per update.
        samples_per_insert: mean number of times that a transition is sampled.
        learning_rate: of Adam.
        adam_epsilon: epsilon of Adam.
        discount: per agent step.
        lookahead: n of the n-step returns.
        capacity: transitions in the replay buffer.
        learning_starts: transitions before the first update.
        target_update_period: steps between two synchronisations of the target network.
        final_epsilon: exploration rate after its linear decay from 1.
        epsilon_decay_steps: steps of that decay, counted from `learning_starts`.

    Raises:
        InputError: if a value is out of range or the batches per step are no whole number.

    >>> config = RainbowConfig()
    >>> config.updates_per_step, config.compute_epsilon(0)
    (4, 1.0)
    """

    num_envs: int = 128
    batch_size: int = 512
    samples_per_insert: int = 16
    learning_rate: float = 2e-4
    adam_epsilon: float = 2e-5
    discount: float = 0.99
    lookahead: int = 3
    capacity: int = 1_000_000
    learning_starts: int = 20_000
    target_update_period: int = 8_000
    final_epsilon: float = 0.01
    epsilon_decay_steps: int = 250_000

    def __post_init__(self) -> None:
        for name in (
            "num_envs",
            "batch_size",
            "samples_per_insert",
            "lookahead",
            "capacity",
            "learning_starts",
            "target_update_period",
            "epsilon_decay_steps",
        ):
            require_integer("RainbowConfig", name, getattr(self, name), 1)
        for name in ("learning_rate", "adam_epsilon", "discount", "final_epsilon"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"is {getattr(self, name)!r} and must be between 0 and 1",
                    caller="RainbowConfig",
                    argument=name,
                )
        if self.capacity < self.learning_starts:
            raise InputError(
                f"is {self.capacity:,} and must be at least learning_starts, "
                f"{self.learning_starts:,}",
                caller="RainbowConfig",
                argument="capacity",
            )
        samples = self.num_envs * self.samples_per_insert
        if samples % self.batch_size:
            raise InputError(
                f"is {self.batch_size} and must divide num_envs * samples_per_insert, {samples}",
                caller="RainbowConfig",
                argument="batch_size",
            )

    @property
    def updates_per_step(self) -> int:
        """Updates after each step of all games."""
        return self.num_envs * self.samples_per_insert // self.batch_size

    @property
    def num_rows(self) -> int:
        """Rows of the replay buffer, one step of all games each."""
        return -(-self.capacity // self.num_envs)

    def compute_epsilon(self, step: int) -> float:
        """Compute the exploration rate.

        Args:
            step: agent steps so far.

        Returns:
            The probability of a uniformly random action.
        """
        progress = min(max(step - self.learning_starts, 0) / self.epsilon_decay_steps, 1.0)
        return 1.0 + progress * (self.final_epsilon - 1.0)


class RainbowState(NamedTuple):
    """Parameters of the online and the target network, and the state of Adam."""

    parameters: Parameters
    target_parameters: Parameters
    optimiser_state: Any


def init_state(network: RainbowNetwork, config: RainbowConfig, key: Array) -> RainbowState:
    """Initialise the parameters, their target copy and the optimiser."""
    parameters = network.init(key)
    target = jax.tree.map(jnp.copy, parameters)
    return RainbowState(parameters, target, build_optimiser(config).init(parameters))


def build_optimiser(config: RainbowConfig) -> Any:
    return optax.adam(config.learning_rate, eps=config.adam_epsilon)


def update(
    network: RainbowNetwork,
    config: RainbowConfig,
    state: RainbowState,
    replay: ReplayBuffer,
    key: Array,
) -> tuple[RainbowState, ReplayBuffer, Array]:
    """Take one gradient step on a sampled batch; return its mean loss too."""
    batch = sample_batch(replay, key, config.batch_size, config.lookahead, config.discount)
    target = compute_target_distribution(network, state.target_parameters, batch)

    def loss(parameters: Parameters) -> tuple[Array, Array]:
        logits, _ = network.apply(parameters, batch.observation)
        log_probabilities = jax.nn.log_softmax(_select_action(logits, batch.action))
        losses = -(target * log_probabilities).sum(axis=1)
        return (batch.weight * losses).mean(), losses

    (mean, losses), gradient = jax.value_and_grad(loss, has_aux=True)(state.parameters)
    changes, optimiser_state = build_optimiser(config).update(gradient, state.optimiser_state)
    parameters = optax.apply_updates(state.parameters, changes)
    replay = update_priorities(replay, batch, jnp.sqrt(losses + 1e-10))
    return state._replace(parameters=parameters, optimiser_state=optimiser_state), replay, mean


def compute_target_distribution(
    network: RainbowNetwork, target_parameters: Parameters, batch: ReplayBatch
) -> Array:
    """Compute the projected distributions (b, num_atoms) of the n-step bootstrapped returns."""
    logits, _ = network.apply(target_parameters, batch.next_observation)
    best = network.q_values(logits).argmax(axis=1)
    probabilities = jax.nn.softmax(_select_action(logits, best))
    returns = batch.reward[:, None] + batch.discount[:, None] * network.support
    return project_distribution(network, returns, probabilities)


def project_distribution(network: RainbowNetwork, returns: Array, probabilities: Array) -> Array:
    """Project distributions on returns (b, k) onto the support: (b, num_atoms).

    Each probability is split linearly between the two nearest atoms.

    >>> network = RainbowNetwork(num_actions=2, num_atoms=3, max_return=1.0)
    >>> returns, probabilities = jnp.array([[0.5, 7.0]]), jnp.array([[0.5, 0.5]])
    >>> project_distribution(network, returns, probabilities).tolist()
    [[0.0, 0.25, 0.75]]
    """
    spacing = 2 * network.max_return / (network.num_atoms - 1)
    clipped = jnp.clip(returns, -network.max_return, network.max_return)
    shares = 1 - jnp.abs(clipped[:, None, :] - network.support[None, :, None]) / spacing
    return (jnp.clip(shares, 0, 1) * probabilities[:, None, :]).sum(axis=2)


def _select_action(logits: Array, action: Array) -> Array:
    """Return the logits (b, num_atoms) of one action per row."""
    return jnp.take_along_axis(logits, action[:, None, None], axis=1)[:, 0]
