"""Reward-sequence prediction: learn the rewards of the next steps, state by state.

The loss is the cross-entropy of the recorded rewards, weighted by their effect on the distance:

    sum_k discount^k sum_j (v_{j+1} - v_j) H(1[r_k > v_j], p_kj(x)),    H the cross-entropy,

see `networks.reward_sequence_network`. There are no pairs in it and no target network. Steps after
the end of a recording are left out; after a termination all rewards are 0.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.config import validate_fields
from bisimetric.learned.losses import LearnedKind, Objective
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.networks.reward_sequence_network import (
    RewardSequenceEnsemble,
    RewardSequenceNetwork,
)
from bisimetric.learned.schedules import WithoutBootstrapping
from bisimetric.learned.sources import TrainingSource, TransitionSource
from bisimetric.mdp import validate_discount

MAX_REWARD_VALUES = 8
"""The most different rewards: there is one prediction per step and threshold between them."""

TAIL_TOLERANCE = 1e-4
"""The largest relative weight of the steps after the horizon."""


@dataclasses.dataclass(frozen=True)
class RewardSequenceConfig(WithoutBootstrapping):
    """Hyperparameters of reward-sequence prediction, for d^pi from recorded episodes.

    If the observations do not determine the future, the result is the expected distance of two
    futures that are independent given the observations, and d(x, x) = 0. Of all functions of the
    observations it has the smallest mean squared error.

    Attributes:
        network: the hidden layers.
        batch_size: steps per update.
        learning_rate: step size of Adam, after the warm-up.
        epsilon: epsilon of Adam.
        warm_up: updates over which the learning rate grows linearly from 0.
        num_networks: networks trained on the same batches, whose probabilities are averaged.
        decay: whether the learning rate follows a cosine decay to 0 at the last update.

    Raises:
        InputError: when a field is out of range, or `network` is of another type.

    >>> RewardSequenceConfig(batch_size=64).num_networks
    4
    """

    network: RewardSequenceNetwork = dataclasses.field(default_factory=RewardSequenceNetwork)
    batch_size: int = 256
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    warm_up: int = 500
    num_networks: int = 4
    decay: bool = True
    name: ClassVar[str] = "reward-sequence"

    def __post_init__(self) -> None:
        if not isinstance(self.network, RewardSequenceNetwork):
            raise InputError(
                f"is {self.network!r} and must be a RewardSequenceNetwork",
                caller="RewardSequenceConfig",
                argument="network",
            )
        minimums = {"batch_size": 2, "warm_up": 0, "num_networks": 1}
        validate_fields(self, minimums, ("learning_rate", "epsilon"))

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> RewardSequenceEnsemble:
        """Return the networks for the recorded rewards.

        Args:
            source: recorded episodes.
            kind: "on_policy".
            discount: the discount of the distance.

        Returns:
            The networks.

        Raises:
            InputError: when the kind is another one, the source holds no recorded episodes, or
                rewards have more than `MAX_REWARD_VALUES` values.
        """
        if kind != "on_policy":
            raise InputError(
                "is a RewardSequenceConfig, which learns d^pi only",
                caller=f"learned.{kind}",
                argument="config",
                remedy="give another algorithm, or none",
            )
        episodes = _require_episodes(kind, source)
        scaling = episodes.scaling
        rewards = np.unique(np.asarray(episodes.reward))
        values = np.unique(np.append(rewards, 0.0)) if scaling.has_terminal else rewards
        if len(values) > MAX_REWARD_VALUES:
            raise InputError(
                f"holds {len(values)} different rewards and may hold {MAX_REWARD_VALUES}, for each "
                "of which the probabilities are predicted",
                caller=f"learned.{kind}",
                argument="source",
                remedy="round or clip them, or give PairQConfig(lookahead=math.inf)",
            )
        if len(values) == 1:
            values = np.append(values, values[0] + 1)
        shape, size = scaling.shape, len(scaling.shift)
        return RewardSequenceEnsemble(
            self.network.fit_to_observations(shape, size, scaling.has_terminal),
            discount,
            min(compute_horizon(discount), episodes.longest_episode),
            tuple(float(value) for value in values),
            scaling.has_terminal,
            self.num_networks,
        )

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        """Return the weighted cross-entropy of the recorded rewards.

        Args:
            source: recorded episodes.
            network: from `build_network`.
            kind: "on_policy".
            discount: the discount of the distance.

        Returns:
            The objective.
        """
        episodes = _require_episodes(kind, source)
        offsets = jnp.arange(network.horizon)
        weights = network.weights / jnp.sum(network.weights)

        def compute_loss(parameters: Parameters, _: Any, key: Array) -> Array:
            batch = episodes.sample_steps(key, self.batch_size)
            rewards = episodes.gather_rewards(batch, offsets)
            is_recorded = (offsets < batch.remaining[:, None]) | batch.terminates[:, None]
            exceeds = network.exceeds(rewards)
            total = jnp.float32(0.0)
            for logits in network.logits(parameters, batch.x):
                entropy = optax.sigmoid_binary_cross_entropy(logits, exceeds)
                total += jnp.sum(jnp.where(is_recorded[:, :, None], weights * entropy, 0.0))
            return total / self.batch_size

        return Objective(lambda target, step: None, compute_loss)

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            Lower bounds of both.
        """
        return self.batch_size, self.batch_size * network.horizon


def compute_horizon(discount: float) -> int:
    """Return the steps after which the relative discounted weight is below `TAIL_TOLERANCE`.

    >>> compute_horizon(0.99), compute_horizon(0.0)
    (917, 1)
    """
    discount = validate_discount(discount)
    if discount == 0:
        return 1
    return max(1, math.ceil(math.log(TAIL_TOLERANCE) / math.log(discount)))


def _require_episodes(kind: LearnedKind, source: TrainingSource) -> TransitionSource:
    if not isinstance(source, TransitionSource):
        raise InputError(
            "is an MDP, and the rewards of recorded episodes are predicted",
            caller=f"learned.{kind}",
            argument="source",
            remedy="give transitions, or use exact",
        )
    return source
