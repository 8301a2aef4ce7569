"""Model-based learning: estimate a transition model, solve it exactly, fit a network to that.

The distances of the model contain the optimal transport between its outcomes, so that the result is
consistent for stochastic dynamics, where pairs of sampled transitions are not.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bisimetric.errors import InputError
from bisimetric.learned.config import (
    add_fourier_features,
    fit_to_observations,
    validate_fields,
)
from bisimetric.learned.losses import LearnedKind, Objective
from bisimetric.learned.networks.metric_networks import (
    FreeNetwork,
    MetricNetwork,
    ScaledMetricNetwork,
)
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.schedules import WithoutBootstrapping
from bisimetric.learned.sources import TrainingSource
from bisimetric.learned.transition_model import ModelSource

FEW_VISITS = 20
"""Visits of a random state-action pair below which a warning is due."""


def build_default_network() -> MetricNetwork:
    """Return a metric network with groups of one coordinate: a gradient reaches all of them."""
    return MetricNetwork(num_groups=256, group_size=1)


@dataclasses.dataclass(frozen=True)
class ModelBasedConfig(WithoutBootstrapping):
    """Hyperparameters of model-based learning; see `source_from_model` for the model.

    Attributes:
        network: a `MetricNetwork`, which is a pseudometric by construction, or a `FreeNetwork`.
        batch_size: states per update; all pairs of them are compared.
        learning_rate: step size of Adam, after the warm-up.
        epsilon: epsilon of Adam.
        warm_up: updates over which the learning rate grows linearly from 0.
        decay: whether the learning rate follows a cosine decay to 0 at the last update.
        max_states: the most states of the data that all are states of the model.
        num_representatives: states of the model if there are more, or if states do not repeat.
        neighbours: recorded states whose outcomes are those of a representative; None is the square
            root of the number of transitions.

    Raises:
        InputError: when a field is out of range, or `network` is of another type.

    >>> ModelBasedConfig(batch_size=64).max_states
    1000
    """

    network: MetricNetwork | FreeNetwork = dataclasses.field(default_factory=build_default_network)
    batch_size: int = 128
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    warm_up: int = 500
    decay: bool = True
    max_states: int = 1_000
    num_representatives: int = 150
    neighbours: int | None = None
    name: ClassVar[str] = "model-based"

    def __post_init__(self) -> None:
        if not isinstance(self.network, MetricNetwork | FreeNetwork):
            raise InputError(
                f"is {self.network!r} and must be a MetricNetwork or a FreeNetwork",
                caller="ModelBasedConfig",
                argument="network",
            )
        minimums = {"batch_size": 2, "warm_up": 0, "max_states": 2, "num_representatives": 2}
        if self.neighbours is not None:
            minimums["neighbours"] = 1
        validate_fields(self, minimums, ("learning_rate", "epsilon"))

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> ScaledMetricNetwork:
        """Return the network for a source, in units of the mean distance of the model.

        Args:
            source: from `source_from_model`.
            kind: the distance.
            discount: its discount.

        Returns:
            The network.

        Raises:
            InputError: when the source has no model.
        """
        model = _require_model(kind, source)
        values = np.asarray(model.values, np.float64)
        unit = float(values.mean()) or 1.0
        network = add_fourier_features(fit_to_observations(self.network, source), source)
        return ScaledMetricNetwork(network, unit)

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        """Return the mean squared error against the distances of the model.

        Args:
            source: from `source_from_model`.
            network: from `build_network`.
            kind: the distance.
            discount: its discount.

        Returns:
            The objective.
        """
        model = _require_model(kind, source)
        points, targets = model.compute_features(), model.values / network.unit
        states = len(points)

        def compute_loss(parameters: Parameters, _: Any, key: Array) -> Array:
            chosen = jnp.arange(states)
            if states > self.batch_size:
                chosen = jax.random.choice(key, states, (self.batch_size,), replace=False)
            x = points[chosen]
            psi = network.network.values(parameters[0], x, x)[0]
            return jnp.mean((psi - targets[chosen[:, None], chosen[None, :]]) ** 2)

        return Objective(lambda target, step: None, compute_loss)

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            Lower bounds of both.
        """
        states = len(source.compute_features()) if isinstance(source, ModelSource) else 0
        rows = min(self.batch_size, states)
        return rows, states**2 + 2 * rows**2


def describe_uncertainty(kind: LearnedKind, source: ModelSource) -> str | None:
    """Return the warning for a model of few visits or untried actions; None if there is no need."""
    model = dict(source.summary)
    visits, untried = model.get("median_visits"), model.get("untried", 0)
    if visits is not None and visits < FEW_VISITS:
        return (
            f"learned.{kind}: half of the state-action pairs with random outcomes were recorded at "
            f"most {visits:.0f} times; the distances of so few outcomes come out too large; "
            "collect more transitions."
        )
    if source.repeats and untried:
        return (
            f"learned.{kind}: {untried:,} state-action pairs were never tried, and have the "
            "outcomes of the nearest states in which the action was; collect more transitions."
        )
    return None


def _require_model(kind: LearnedKind, source: TrainingSource) -> ModelSource:
    if not isinstance(source, ModelSource):
        raise InputError(
            f"is a {type(source).__name__} and has no transition model",
            caller=f"learned.{kind}",
            argument="source",
            remedy="use source_from_model",
        )
    return source
