"""Configuration of a training run: `RunOptions`, and the hyperparameters of pair Q-learning."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.losses import LOSSES, LearnedKind, Objective, fits_in_batch
from bisimetric.learned.n_step import build_pair_q_objective, can_tabulate, count_steps
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
from bisimetric.learned.schedules import CosineSchedule
from bisimetric.learned.sources import StateSource, TrainingSource, TransitionSource
from bisimetric.learned.training import FLOATS_PER_SAMPLE, HORIZON_TOLERANCE

HEADROOM = 4.0
"""Assumed ratio of distances under optimal actions to those under random ones; sets the unit."""

MAX_TABLE_STATES = 1024
"""The most states for which the targets of all pairs are stored: a few megabytes per action."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a training run is logged, stopped, saved and placed; it does not change the algorithm.

    Attributes:
        log_every: updates between two records of the history.
        patience: stop once the loss has not improved for this many records; None never stops early.
            Records count from where at most 1% of the horizon is missing, since the loss grows with
            the horizon.
        checkpoint: a .safetensors file for the state of the run, written every minute and at the
            end, also after an interrupt or an error; None writes none.
        resume: a checkpoint to continue from. The result is that of an uninterrupted run.
            Everything must be as in that run, except the learning rate and, without learning-rate
            decay, `updates`.
        device: "cpu" or "gpu"; None is the default device of JAX.
        data_parallel: whether devices that are left over draw batches of their own for the same
            seeds; every update then follows the mean gradient.

    Raises:
        InputError: when `log_every` or `patience` is not a whole number, at least 1.

    >>> RunOptions(log_every=100).patience is None
    True
    """

    log_every: int = 500
    patience: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    resume: str | os.PathLike[str] | None = None
    device: Literal["cpu", "gpu"] | None = None
    data_parallel: bool = False

    def __post_init__(self) -> None:
        validate_fields(self, {"log_every": 1})
        if self.patience is not None:
            validate_fields(self, {"patience": 1})


def validate_fields(config: Any, minimums: dict[str, int], positive: tuple[str, ...] = ()) -> None:
    """Convert the fields of a frozen record in place: integers, and floats above 0.

    Args:
        config: the record.
        minimums: the smallest allowed value of each integer field.
        positive: the float fields.
    """
    caller = type(config).__name__
    for name, minimum in minimums.items():
        count = require_integer(caller, name, getattr(config, name), minimum)
        object.__setattr__(config, name, count)
    for name in positive:
        value = validate_number(caller, name, getattr(config, name), positive=True)
        object.__setattr__(config, name, value)


def validate_number(caller: str, name: str, value: Any, positive: bool) -> float:
    """Return a finite number, above 0 or at least 0."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and (number > 0 if positive else number >= 0)):
        minimum = "above 0" if positive else "at least 0"
        raise InputError(
            f"is {value!r} and must be a number, {minimum}", caller=caller, argument=name
        )
    return number


def validate_lookahead(caller: str, value: Any) -> float:
    """Return a lookahead: a whole number, at least 1, or infinity.

    >>> validate_lookahead("PairQConfig", 10), validate_lookahead("PairQConfig", math.inf)
    (10, inf)
    """
    if isinstance(value, float) and value == math.inf:
        return math.inf
    return require_integer(caller, "lookahead", value, 1)


DEFAULT_OPTIONS = RunOptions()


@dataclasses.dataclass(frozen=True)
class PairQConfig(CosineSchedule):
    """Hyperparameters of double Q-learning on the synchronous product MDP; see `pair_q_loss`.

    Attributes:
        network: a `MetricNetwork`, which is a pseudometric by construction, or a `FreeNetwork`. A
            metric network whose `fourier_features` are None gets random ones where the states are
            enumerable and lie close together: at the highest frequency, neighbouring states are
            half a period apart.
        batch_size: transitions per update, the same number of each action; all pairs with the same
            action are compared.
        learning_rate: step size of Adam, after the warm-up.
        epsilon: epsilon of Adam.
        warm_up: updates over which the learning rate grows linearly from 0.
        target_update_period: updates between two synchronisations of the target network.
        lookahead: environment steps that a target looks ahead before it evaluates the target
            network (n-step targets). It applies to d^pi from recorded episodes, where `math.inf`
            is regression on recorded returns; and to enumerable states without noise, at most 1,024
            of them, where the targets of all pairs cost no more than those of the batches of one
            period. It is 1 elsewhere.
        num_networks: networks trained together; with 2, one selects the action and the other
            evaluates it (double Q-learning). 1 overestimates.
        decay: whether the learning rate follows a cosine decay to 0 at the last update.

    Raises:
        InputError: when a field is out of range, or `network` is of another type.

    >>> PairQConfig(batch_size=64).target_update_period
    25
    """

    network: MetricNetwork | FreeNetwork = dataclasses.field(default_factory=MetricNetwork)
    batch_size: int = 256
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    warm_up: int = 500
    target_update_period: int = 25
    lookahead: float = 10
    num_networks: int = 2
    decay: bool = True
    name: ClassVar[str] = "pair-q"

    def __post_init__(self) -> None:
        if not isinstance(self.network, MetricNetwork | FreeNetwork):
            raise InputError(
                f"is {self.network!r} and must be a MetricNetwork or a FreeNetwork",
                caller="PairQConfig",
                argument="network",
                remedy="learned.castro2020.Castro2020Config takes other networks",
            )
        minimums = {
            "batch_size": 2,
            "warm_up": 0,
            "target_update_period": 1,
            "num_networks": 1,
        }
        validate_fields(self, minimums, ("learning_rate", "epsilon"))
        object.__setattr__(self, "lookahead", validate_lookahead("PairQConfig", self.lookahead))

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> PairQEnsemble:
        """Return the networks for a source, with distances scaled to the size of its rewards.

        Args:
            source: what is learned from.
            kind: the distance.
            discount: its discount.

        Returns:
            The network.

        Raises:
            InputError: when the kind is "mico".
        """
        if kind == "mico":
            raise InputError(
                "is a PairQConfig, whose networks give every state distance 0 to itself",
                caller="learned.mico",
                argument="config",
                remedy="give a learned.PairTDConfig",
            )
        if math.isinf(self.lookahead) and isinstance(source, StateSource):
            raise InputError(
                "is infinite, which is for recorded episodes",
                caller=f"learned.{kind}",
                argument="lookahead",
                remedy="give a whole number, or use exact",
            )
        rewards = _group_rewards(source, kind)
        actions = tuple(sorted(rewards))
        terminal_share = compute_terminal_share(source, discount)
        gap = float(np.mean([compute_mean_gap(each, terminal_share) for each in rewards.values()]))
        unit = (HEADROOM * gap or 1.0) / (1 - discount)
        possible = [np.append(each, 0.0) if terminal_share else each for each in rewards.values()]
        reward_range = max(float(np.ptp(each)) for each in possible)
        if isinstance(source, StateSource) and source.has_cost:
            gaps = np.asarray(source.compute_gaps(), np.float64)
            unit, reward_range = (HEADROOM * gaps.mean() or 1.0) / (1 - discount), float(gaps.max())
        diameter_bound = reward_range / (1 - discount) / unit
        return PairQEnsemble(
            add_fourier_features(fit_to_observations(self.network, source), source),
            actions[-1] + 1,
            unit,
            diameter_bound,
            self.num_networks,
            actions,
        )

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        """Return the loss and its targets; see `losses.Objective`.

        Args:
            source: what is learned from.
            network: from `build_network`.
            kind: the distance.
            discount: its discount.

        Returns:
            The objective.
        """
        if not self._stores_all_targets(source, network):
            n = count_steps(source, self.lookahead)
            if isinstance(source, TransitionSource) and n > 1:
                tabulate = self._tabulates(source, network)
                return build_pair_q_objective(
                    source, network, discount, self.batch_size, n, tabulate
                )
            return build_batch_objective(source, network, discount, self.batch_size)
        build = (
            build_all_pairs_objective
            if fits_in_batch(source, self.batch_size // network.num_actions)
            else build_lookup_objective
        )
        return build(source, network, discount, self.batch_size, int(self.lookahead))

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Return `lookahead` where it applies to the source, else 1.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            The number of environment steps.
        """
        if self._stores_all_targets(source, network):
            return int(self.lookahead)
        return count_steps(source, self.lookahead)

    def _tabulates(self, source: TrainingSource, network: Any) -> TypeGuard[TransitionSource]:
        """Return whether the embeddings of all recorded states are stored."""
        if not isinstance(source, TransitionSource):
            return False
        return math.isinf(self.lookahead) and can_tabulate(source, network)

    def _stores_all_targets(self, source: TrainingSource, network: Any) -> TypeGuard[StateSource]:
        """Return whether the targets of all pairs of states are stored."""
        if not (isinstance(source, StateSource) and source.enumerable):
            return False
        per_action, states = self.batch_size // network.num_actions, len(source.points)
        cheap = (
            states**2 <= self.target_update_period * network.num_actions * max(per_action, 2) ** 2
        )
        return fits_in_batch(source, per_action) or (states <= MAX_TABLE_STATES and cheap)

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            Lower bounds of both.
        """
        per_action = max(self.batch_size // network.num_actions, 2)
        rows = network.num_actions * per_action
        pairs = (network.num_networks + 1) * network.num_actions * per_action**2
        if self._tabulates(source, network):
            # In half precision.
            coordinates = network.network.num_groups * network.network.group_size
            return rows, pairs + network.num_networks * len(source.x) * coordinates // 2
        if not self._stores_all_targets(source, network):
            return rows, pairs
        states = len(source.points)
        if fits_in_batch(source, self.batch_size // network.num_actions):
            return states, network.num_actions * states**2 + FLOATS_PER_SAMPLE * self.batch_size
        return rows, pairs + network.num_actions * states**2

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates after which at most 1% of the horizon is missing.

        Every synchronisation of the target network extends the horizon by `lookahead` steps.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            The number of updates.
        """
        return (
            self.warm_up + count_synchronisations(discount, lookahead) * self.target_update_period
        )

    def count_horizon_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates that a run needs to cover 99% of the horizon.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            The number of updates.
        """
        return self.count_settling_updates(discount, lookahead)


def count_synchronisations(discount: float, lookahead: int) -> int:
    """Return the target synchronisations after which at most 1% of the horizon is missing.

    >>> count_synchronisations(0.9, 1), count_synchronisations(0.9, 10)
    (44, 5)
    """
    if discount == 0:
        return 1
    return math.ceil(math.log(HORIZON_TOLERANCE) / math.log(discount) / lookahead)


def fit_to_observations(
    network: MetricNetwork | FreeNetwork, source: TrainingSource
) -> MetricNetwork | FreeNetwork:
    """Return the network with its encoder for the shape of the observations of a source."""
    if not isinstance(network, MetricNetwork):
        return network
    scaling = source.scaling
    return network.fit_to_observations(scaling.shape, len(scaling.shift), scaling.has_terminal)


def add_fourier_features(
    network: MetricNetwork | FreeNetwork, source: TrainingSource
) -> MetricNetwork | FreeNetwork:
    """Return the network with random Fourier features where enumerable states lie close together.

    At the highest frequency, neighbouring states are half a period apart. States whose features
    differ by 1 or more, such as one-hot ones, need none.
    """
    if not isinstance(network, MetricNetwork) or network.fourier_features is not None:
        return network
    if network.encoder is not None:
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
    spacing = float(np.median(np.asarray(distances)[:, 1]))
    if spacing >= 1:
        return network
    return dataclasses.replace(
        network, fourier_features=RANDOM_FEATURES, highest_frequency=math.pi / spacing
    )


def _group_rewards(source: TrainingSource, kind: LearnedKind) -> dict[int, NDArray[np.float64]]:
    """Return the rewards of each action that has a pair to compare.

    That takes two transitions, or one where the terminal state is compared with it.
    """
    rewards = np.asarray(source.reward, np.float64)
    if isinstance(source, StateSource):
        return dict(enumerate(rewards.T))
    minimum = 1 if source.scaling.has_terminal else 2
    actions = np.asarray(source.action)
    if not LOSSES[kind].same_actions:
        actions = np.zeros(len(rewards), np.int64)
    counts = np.bincount(actions)
    return {int(a): rewards[actions == a] for a in np.flatnonzero(counts >= minimum)}


def compute_terminal_share(source: TrainingSource, discount: float) -> float:
    """Return the average share of the discounted future after the end of the episode.

    With p the share of transitions that terminate, it is p discount / (1 - discount + p discount).
    """
    if isinstance(source, StateSource) or not source.scaling.has_terminal:
        return 0.0
    rate = discount * float(np.mean(np.asarray(source.terminated)))
    return rate / (1 - discount + rate)


def compute_mean_gap(rewards: NDArray[np.float64], terminal_share: float) -> float:
    """Return the mean |r - r'| over all pairs, each side terminal (reward 0) with a probability.

    >>> compute_mean_gap(np.array([0.0, 1.0, 1.0, 0.0]), 0.0)
    0.5
    >>> compute_mean_gap(np.array([1.0]), 0.5)
    0.5
    """
    count = len(rewards)
    weights = 2 * np.arange(count) - count + 1
    alive = 2 * np.sum(weights * np.sort(rewards)) / count**2
    return float(
        (1 - terminal_share) ** 2 * alive
        + 2 * terminal_share * (1 - terminal_share) * np.abs(rewards).mean()
    )
