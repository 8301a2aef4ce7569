"""Schedules that configurations share: learning rates, and targets of the whole horizon."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from bisimetric.learned.sources import TrainingSource


class CosineSchedule:
    """Hyperparameters with a learning rate that has a linear warm-up, then cosine decay to 0."""

    learning_rate: float
    warm_up: int
    decay: bool

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        """Return the learning rate of an update.

        Args:
            step: the update.
            updates: the length of the whole run.
            base_rate: the learning rate, in place of that of the configuration.

        Returns:
            A scalar.
        """
        rate = self.learning_rate if base_rate is None else base_rate
        growth = jnp.minimum((step + 1) / (self.warm_up + 1), 1.0)
        if not self.decay:
            return rate * growth
        fraction = (step - self.warm_up) / jnp.maximum(updates - self.warm_up, 1)
        return rate * growth * (1 + jnp.cos(jnp.pi * jnp.clip(fraction, 0.0, 1.0))) / 2


class WithoutBootstrapping(CosineSchedule):
    """Hyperparameters of an algorithm whose targets have the whole horizon."""

    target_update_period: ClassVar[int] = 500
    """There is no target network; updates are compiled in periods of this length."""

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Return 1: nothing is bootstrapped.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            1.
        """
        return 1

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates of the warm-up, after which the loss decreases.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            The number of updates.
        """
        return self.warm_up

    def count_horizon_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return 1: the whole horizon is learned from the first update.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            1.
        """
        return 1
