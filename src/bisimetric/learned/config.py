"""The numbers of settings, checked.

The recipe that `learned` follows unless told otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeGuard

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.losses import LOSSES, LearnedKind, fits_in_batch
from bisimetric.learned.networks.metric_networks import (
    MAX_COORDINATES,
    RANDOM_FEATURES,
    FreeNetwork,
    MetricNetwork,
    PairQEnsemble,
)
from bisimetric.learned.pair_q_loss import (
    build_all_pairs_objective,
    build_batch_objective,
    build_lookup_objective,
)
from bisimetric.learned.sources import StateSource, TrainingSource
from bisimetric.learned.training import FLOATS_PER_SAMPLE, HORIZON_TOLERANCE, Objective


def validate_fields(config: Any, minimums: dict[str, int], positive: tuple[str, ...]) -> None:
    """Makes counts whole numbers and the others floats; refuses what is too small.

    `counts` are the least that each may be; those of `positive` must be above 0.
    """
    for name, least in minimums.items():
        count = require_integer("Settings", name, getattr(config, name), least)
        object.__setattr__(config, name, count)
    for name in positive:
        value = validate_number(name, getattr(config, name), positive=True)
        object.__setattr__(config, name, value)


def validate_number(name: str, value: Any, positive: bool) -> float:
    """A finite number, above 0 or at least 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and (found > 0 if positive else found >= 0)):
        least = "above 0" if positive else "at least 0"
        raise InputError(f"Settings: {name} is {value!r} and must be a number, {least}.")
    return found


HEADROOM = 4.0
"""How far best behaviour may tell states apart, over how far random behaviour does: the unit."""

MAX_TABLE_STATES = 1024
"""States up to which targets of all pairs are kept, a few megabytes an action."""


@dataclasses.dataclass(frozen=True)
class PairQConfig:
    """How two networks learn the value of two copies of a world; see `learned.learning`.

    Attributes:
        network: a `MetricNetwork`, which is a pseudometric by construction, or a `FreeNetwork`. One
            that is not told its waves has them drawn where the states of a world are listed and
            lie close together, as fine as they lie apart.
        batch: transitions a step, as many of each action; all pairs of them with the same action
            are compared.
        learning_rate, epsilon: of Adam. The rate rises over the first `warm_up` steps and falls to
            0 at the last one, as a cosine does, unless `decay` is False.
        period: steps between two updates of the target network; each is `ahead` more steps ahead.
        ahead: steps of the world that a target looks ahead before it asks the target network, where
            the states of a world are listed, without noise, at most 1,024, and the targets of all
            pairs cost no more than those of the batches up to the next update. Elsewhere it is one.
        copies: networks that learn side by side, one choosing for the other; 1 for one that does
            both, and takes its own errors for distance.
        decay: whether the learning rate falls.
    """

    network: MetricNetwork | FreeNetwork = dataclasses.field(default_factory=MetricNetwork)
    batch: int = 256
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    warm_up: int = 500
    target_update_period: int = 25
    lookahead: int = 10
    num_networks: int = 2
    decay: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.network, MetricNetwork | FreeNetwork):
            raise InputError(
                f"Settings: network is {self.network!r} and must be a MetricNetwork or a "
                "FreeNetwork; learned.paper.Settings takes other ones."
            )
        least = {
            "batch": 2,
            "warm_up": 0,
            "target_update_period": 1,
            "lookahead": 1,
            "num_networks": 1,
        }
        validate_fields(self, least, ("learning_rate", "epsilon"))

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> PairQEnsemble:
        if kind == "mico":
            raise InputError(
                "learned.mico: a state may be far from itself there, which these networks cannot "
                "say; give learned.paper.Settings."
            )
        rewards = _group_rewards(source, kind)
        taken = tuple(sorted(rewards))
        ended = _compute_terminal_share(source, discount)
        gap = float(np.mean([_compute_mean_gap(each, ended) for each in rewards.values()]))
        unit = (HEADROOM * gap or 1.0) / (1 - discount)
        known = [np.append(each, 0.0) if ended else each for each in rewards.values()]
        span = max(float(np.ptp(each)) for each in known)
        most = span / (1 - discount) / unit
        return PairQEnsemble(
            _add_fourier_features(self.network, source),
            taken[-1] + 1,
            unit,
            most,
            self.num_networks,
            taken,
        )

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        if not self._stores_all_targets(source, network):
            return build_batch_objective(source, network, discount, self.batch)
        of_all = (
            build_all_pairs_objective
            if fits_in_batch(source, self.batch // network.actions)
            else build_lookup_objective
        )
        return of_all(source, network, discount, self.batch, self.lookahead)

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        return self.lookahead if self._stores_all_targets(source, network) else 1

    def _stores_all_targets(self, source: TrainingSource, network: Any) -> TypeGuard[StateSource]:
        """Whether the targets of all pairs are kept."""
        if not (isinstance(source, StateSource) and source.enumerable):
            return False
        each, states = self.batch // network.actions, len(source.points)
        cheap = states**2 <= self.target_update_period * network.actions * max(each, 2) ** 2
        return fits_in_batch(source, each) or (states <= MAX_TABLE_STATES and cheap)

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        each = max(self.batch // network.actions, 2)
        drawn = network.actions * each
        pairs = (network.copies + 1) * network.actions * each**2
        if not self._stores_all_targets(source, network):
            return drawn, pairs
        states = len(source.points)
        if fits_in_batch(source, self.batch // network.actions):
            return states, network.actions * states**2 + FLOATS_PER_SAMPLE * self.batch
        return drawn, pairs + network.actions * states**2

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        rise = jnp.minimum((step + 1) / (self.warm_up + 1), 1.0)
        share = jnp.clip((step - self.warm_up) / jnp.maximum(updates - self.warm_up, 1), 0.0, 1.0)
        fall = (1 + jnp.cos(jnp.pi * share)) / 2 if self.decay else 1.0
        return (self.learning_rate if base_rate is None else base_rate) * rise * fall

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        updates = (
            1
            if discount == 0
            else math.ceil(math.log(HORIZON_TOLERANCE) / math.log(discount) / lookahead)
        )
        return self.warm_up + updates * self.target_update_period


def _add_fourier_features(
    network: MetricNetwork | FreeNetwork, source: TrainingSource
) -> MetricNetwork | FreeNetwork:
    """The network with waves that tell listed states apart; between them there is nothing to say.

    The finest wave has one state on its crest and the one beside it in its trough. States whose
    features differ by 1 or more, such as one feature each, are told apart without.
    """
    if not isinstance(network, MetricNetwork) or network.fourier_features is not None:
        return network
    if (
        not isinstance(source, StateSource)
        or not source.enumerable
        or source.scaling.num_features > MAX_COORDINATES
    ):
        return network
    points = np.unique(np.asarray(source.compute_features(), np.float64), axis=0)
    if len(points) < 2:
        return network
    distances, _ = cKDTree(points).query(points, k=2)
    apart = float(np.median(np.asarray(distances)[:, 1]))
    if apart >= 1:
        return network
    return dataclasses.replace(
        network, fourier_features=RANDOM_FEATURES, highest_frequency=math.pi / apart
    )


def _group_rewards(source: TrainingSource, kind: LearnedKind) -> dict[int, NDArray[np.float64]]:
    """The rewards of each action that two steps took, or one where there is the end beside it."""
    found = np.asarray(source.reward, np.float64)
    if isinstance(source, StateSource):
        return dict(enumerate(found.T))
    least = 1 if source.scaling.has_terminal else 2
    taken = np.asarray(source.action)
    if not LOSSES[kind].same_actions:
        taken = np.zeros(len(found), np.int64)
    counts = np.bincount(taken)
    return {int(a): found[taken == a] for a in np.flatnonzero(counts >= least)}


def _compute_terminal_share(source: TrainingSource, discount: float) -> float:
    """The share of the discounted future that lies after the end of the episode, on average.

    With p the share of steps that end one, it is p discount / (1 - discount + p discount).
    """
    if isinstance(source, StateSource) or not source.scaling.has_terminal:
        return 0.0
    rate = discount * float(np.mean(np.asarray(source.terminated)))
    return rate / (1 - discount + rate)


def _compute_mean_gap(rewards: NDArray[np.float64], terminal_share: float) -> float:
    """The mean of |r - r'| over all pairs, each of the two at the end, which pays 0, by chance.

    >>> _gap(np.array([0.0, 1.0, 1.0, 0.0]), 0.0), _gap(np.array([1.0]), 0.5)
    (0.5, 0.5)
    """
    count = len(rewards)
    weights = 2 * np.arange(count) - count + 1
    alive = 2 * np.sum(weights * np.sort(rewards)) / count**2
    return float(
        (1 - terminal_share) ** 2 * alive
        + 2 * terminal_share * (1 - terminal_share) * np.abs(rewards).mean()
    )
