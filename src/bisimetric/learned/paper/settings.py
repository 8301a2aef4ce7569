"""The paper's recipe: what it takes to learn as Castro (2020) does."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.pairs import Castro2020Network, PairNetwork, validate_network
from bisimetric.learned.numbers import validate_fields, validate_number
from bisimetric.learned.pairs import fits_in_batch
from bisimetric.learned.paper.learning import build_all_pairs_objective, build_batch_objective
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.training import FLOATS_PER_SAMPLE, HORIZON_TOLERANCE, Objective


@dataclasses.dataclass(frozen=True)
class Castro2020Config:
    """How a network learns, as in the paper; all but its sizes is the paper's.

    Attributes:
        network: psi; see `PairNetwork`. Also the widths of its hidden layers, or a pair of
            functions (init, apply), for `AnyNetwork`.
        batch: transitions a step; all pairs of them are compared.
        learning_rate, epsilon: of Adam.
        period: steps between two updates of the target network; the first is at step 0.
        rate: beta is 1 - rate^k after the k-th of them, so that the horizon grows step by step.
    """

    network: Castro2020Network = dataclasses.field(default_factory=PairNetwork)
    batch: int = 128
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    target_update_period: int = 500
    horizon_growth: float = 0.9
    decay: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", validate_network(self.network))
        validate_fields(self, {"batch": 2, "period": 1}, ("learning_rate", "epsilon"))
        object.__setattr__(
            self, "rate", validate_number("rate", self.horizon_growth, positive=False)
        )
        if self.horizon_growth >= 1:
            raise InputError(
                f"Settings: rate is {self.horizon_growth!r} and must be below 1, or beta never grows."
            )

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> Castro2020Network:
        return self.network

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        learner = (
            build_all_pairs_objective
            if fits_in_batch(source, self.batch)
            else build_batch_objective
        )
        return learner(
            source,
            network,
            kind,
            discount,
            self.batch,
            self.target_update_period,
            self.horizon_growth,
        )

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        rows = len(source.reward) if fits_in_batch(source, self.batch) else self.batch
        hidden = getattr(network, "hidden", (1,))
        # One hidden layer of ReLU is not stored pair by pair; deeper ones are.
        deep = len(hidden) > 1 or getattr(network, "activation", "relu") != "relu"
        return rows, rows**2 * (max(hidden) if deep else 1) + FLOATS_PER_SAMPLE * self.batch

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        return jnp.float32(self.learning_rate) if base_rate is None else base_rate

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        return 1

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        missing = HORIZON_TOLERANCE * (1 - discount)
        updates = (
            1
            if self.horizon_growth == 0
            else math.ceil(math.log(missing) / math.log(self.horizon_growth))
        )
        return updates * self.target_update_period
