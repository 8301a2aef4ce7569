"""The paper's recipe: what it takes to learn as Castro (2020) does."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.losses import Kind
from bisimetric.learned.networks.pairs import Network, PairNetwork, checked
from bisimetric.learned.numbers import check, number
from bisimetric.learned.pairs import listed
from bisimetric.learned.paper.learning import of_batches, of_states
from bisimetric.learned.sources import Source
from bisimetric.learned.training import CLOSE, NUMBERS_PER_DRAW, Learner


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a network learns, as in the paper; all but its sizes is the paper's.

    Attributes:
        network: psi; see `PairNetwork`. Also the widths of its hidden layers, or a pair of
            functions (init, apply), for `AnyNetwork`.
        batch: transitions a step; all pairs of them are compared.
        learning_rate, epsilon: of Adam.
        period: steps between two updates of the target network; the first is at step 0.
        rate: beta is 1 - rate^k after the k-th of them, so that the horizon grows step by step.
    """

    network: Network = dataclasses.field(default_factory=PairNetwork)
    batch: int = 128
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    period: int = 500
    rate: float = 0.9
    decay: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", checked(self.network))
        check(self, {"batch": 2, "period": 1}, ("learning_rate", "epsilon"))
        object.__setattr__(self, "rate", number("rate", self.rate, above=False))
        if self.rate >= 1:
            raise InputError(
                f"Settings: rate is {self.rate!r} and must be below 1, or beta never grows."
            )

    def network_of(self, source: Source, kind: Kind, discount: float) -> Network:
        return self.network

    def learner(self, source: Source, network: Any, kind: Kind, discount: float) -> Learner:
        learner = of_states if listed(source, self.batch) else of_batches
        return learner(source, network, kind, discount, self.batch, self.period, self.rate)

    def batch_size(self, source: Source, network: Any) -> tuple[int, int]:
        rows = len(source.reward) if listed(source, self.batch) else self.batch
        hidden = getattr(network, "hidden", (1,))
        # One hidden layer of ReLU is not stored pair by pair; deeper ones are.
        deep = len(hidden) > 1 or getattr(network, "activation", "relu") != "relu"
        return rows, rows**2 * (max(hidden) if deep else 1) + NUMBERS_PER_DRAW * self.batch

    def rate_at(self, step: Array, steps: Array, rate: Array | None = None) -> Array:
        return jnp.float32(self.learning_rate) if rate is None else rate

    def reach(self, source: Source, network: Any) -> int:
        return 1

    def settled(self, discount: float, reach: int = 1) -> int:
        missing = CLOSE * (1 - discount)
        updates = 1 if self.rate == 0 else math.ceil(math.log(missing) / math.log(self.rate))
        return updates * self.period
