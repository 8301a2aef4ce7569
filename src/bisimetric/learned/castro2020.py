"""The algorithm of Castro (2020), the baseline of `learned`, and MICo (Castro et al. 2021).

One network psi is fitted, on all pairs of a batch with the same action, to the target

    T = max(|r - r'| + discount * beta * psi'(s', t'), beta * psi'(s, t))

with psi' the target network; for d^pi, on all pairs, to |r - r'| + discount * beta * psi'(s', t').
T = 0 for a transition and itself. beta grows from 0 to 1 with the synchronisations of psi'.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.learned.api import learn_distance
from bisimetric.learned.config import (
    DEFAULT_OPTIONS,
    RunOptions,
    validate_fields,
    validate_lookahead,
    validate_number,
)
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import (
    LearnedKind,
    Objective,
    build_all_pairs_objective,
    build_batch_objective,
    fits_in_batch,
)
from bisimetric.learned.n_step import build_castro2020_objective, count_steps
from bisimetric.learned.networks.pair_network import (
    Castro2020Network,
    FunctionalNetwork,
    PairNetwork,
    validate_network,
)
from bisimetric.learned.sources import TrainingSource, TransitionSource
from bisimetric.learned.training import FLOATS_PER_SAMPLE, HORIZON_TOLERANCE
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

__all__ = [
    "Castro2020Config",
    "FunctionalNetwork",
    "PairNetwork",
    "bisimulation",
    "mico",
    "on_policy",
]


@dataclasses.dataclass(frozen=True)
class Castro2020Config:
    """Hyperparameters of Castro (2020); the defaults differ from the paper in their sizes only.

    Attributes:
        network: psi, a `PairNetwork`; also the widths of its hidden layers, or a pair of functions
            (init, apply), for `FunctionalNetwork`.
        batch_size: transitions per update; all pairs of them are compared.
        learning_rate: step size of Adam.
        epsilon: epsilon of Adam.
        target_update_period: updates between two synchronisations of the target network; the first
            is at update 0.
        horizon_growth: beta is 1 - horizon_growth^k after the k-th synchronisation, so that the
            horizon grows gradually; below 1.
        lookahead: for d^pi from recorded episodes, the environment steps that a target looks ahead
            before it evaluates the target network (n-step targets); `math.inf` is regression on
            recorded returns. It is 1 elsewhere.
        average_compared: divide the loss of a batch by the number of compared pairs, those with
            equal actions, as the published code does, in place of all pairs. Adam divides by the
            scale of the gradient, so that it hardly matters.

    Raises:
        InputError: when a field is out of range, or `network` is of another type.

    >>> Castro2020Config((729,)).network.hidden
    (729,)
    """

    network: Castro2020Network = dataclasses.field(default_factory=PairNetwork)
    batch_size: int = 128
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    target_update_period: int = 500
    horizon_growth: float = 0.9
    lookahead: float = 1
    average_compared: bool = False
    decay: ClassVar[bool] = False
    name: ClassVar[str] = "castro2020"

    def __post_init__(self) -> None:
        caller = type(self).__name__
        object.__setattr__(self, "network", validate_network(self.network))
        validate_fields(
            self, {"batch_size": 2, "target_update_period": 1}, ("learning_rate", "epsilon")
        )
        growth = validate_number(caller, "horizon_growth", self.horizon_growth, positive=False)
        object.__setattr__(self, "horizon_growth", growth)
        object.__setattr__(self, "lookahead", validate_lookahead(caller, self.lookahead))
        if not isinstance(self.average_compared, bool):
            raise InputError(
                f"is {self.average_compared!r} and must be True or False",
                caller=caller,
                argument="average_compared",
            )
        if self.horizon_growth >= 1:
            raise InputError(
                f"is {self.horizon_growth!r} and must be below 1, or beta never grows",
                caller=caller,
                argument="horizon_growth",
            )

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> Castro2020Network:
        """Return the network, which does not depend on the source.

        Args:
            source: what is learned from.
            kind: the distance.
            discount: its discount.

        Returns:
            The network.
        """
        return self.network

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
        n = count_steps(source, self.lookahead)
        if isinstance(source, TransitionSource) and n > 1:
            return build_castro2020_objective(
                source,
                network,
                discount,
                self.batch_size,
                self.target_update_period,
                self.horizon_growth,
                n,
            )
        build: Any = (
            build_all_pairs_objective
            if fits_in_batch(source, self.batch_size)
            else build_batch_objective
        )
        objective: Objective = build(
            source,
            network,
            kind,
            discount,
            self.batch_size,
            self.target_update_period,
            self.horizon_growth,
            self.average_compared,
        )
        return objective

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            Lower bounds of both.
        """
        rows = len(source.reward) if fits_in_batch(source, self.batch_size) else self.batch_size
        hidden = getattr(network, "hidden", (1,))
        # One hidden layer of ReLU is not stored pair by pair; deeper ones are.
        deep = len(hidden) > 1 or getattr(network, "activation", "relu") != "relu"
        return rows, rows**2 * (max(hidden) if deep else 1) + FLOATS_PER_SAMPLE * self.batch_size

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        """Return the learning rate, which is constant.

        Args:
            step: the update.
            updates: the length of the whole run.
            base_rate: the learning rate, in place of that of the configuration.

        Returns:
            A scalar.
        """
        return jnp.float32(self.learning_rate) if base_rate is None else base_rate

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Return `lookahead`, at most the longest recorded episode; 1 for states of an MDP.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            The number of environment steps.
        """
        return count_steps(source, self.lookahead)

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates after which 1 - beta is at most 1% of 1 - discount^lookahead.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            The number of updates.
        """
        return self._count_target_updates(HORIZON_TOLERANCE * (1 - discount**lookahead)) * (
            self.target_update_period
        )

    def count_horizon_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates that a run needs to cover 99% of the horizon, 1 / (1 - discount).

        With n steps of lookahead and discount^n in place of discount, beta covers the share
        (1 - discount^n) / (1 - beta discount^n) of the horizon.

        Args:
            discount: the discount of the distance.
            lookahead: from `effective_lookahead`.

        Returns:
            The number of updates.
        """
        full = 1 - HORIZON_TOLERANCE
        bootstrap = discount**lookahead
        if bootstrap == 0 or 1 - bootstrap >= full:
            return 0
        required_beta = (1 - (1 - bootstrap) / full) / bootstrap
        return self._count_target_updates(1 - required_beta) * self.target_update_period + 1

    def _count_target_updates(self, missing: float) -> int:
        """Return the smallest k with horizon_growth^k <= missing."""
        if self.horizon_growth == 0:
            return 1
        return math.ceil(math.log(missing) / math.log(self.horizon_growth))


def bisimulation(
    source: MDP | Transitions | TrainingSource,
    *,
    updates: int = 100_000,
    seed: int = 0,
    discount: float | None = None,
    config: Castro2020Config | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> LearnedDistance:
    """Approximate the bisimulation metric d~ as in Castro (2020).

    psi(s, t) is fitted, for pairs with the same action, to

        T = max(|r - r'| + discount * beta * psi'(s', t'), beta * psi'(s, t)).

    Args:
        source: a deterministic MDP, whose states are described by its features, else their
            positions, else one-hot vectors; or transitions, whose observations are standardised;
            or a training source.
        updates: gradient updates in all, including those before `options.resume`.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the network and the hyperparameters; default: `Castro2020Config()`.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, the MDP is stochastic or lacks actions, or
            the data holds no pair to compare.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> config = Castro2020Config(
    ...     (32,), batch_size=32, learning_rate=0.01, target_update_period=50, horizon_growth=0.5
    ... )
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, updates=1_000, seed=1, config=config)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return learn_distance(
        "bisimulation",
        source,
        None,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config or Castro2020Config(),
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
    )


def on_policy(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int = 100_000,
    seed: int = 0,
    discount: float | None = None,
    config: Castro2020Config | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> LearnedDistance:
    """Approximate the on-policy metric d^pi as in Castro (2020).

    psi(s, t) is fitted, for all pairs, to

        T = |r - r'| + discount * beta * psi'(s', t').

    Args:
        source: a deterministic MDP, whose states are described by its features, else their
            positions, else one-hot vectors; or transitions, whose observations are standardised;
            or a training source, which has its policy already.
        policy: (S,) actions. For an MDP the default is its own policy, or its only action. For
            recorded data, transitions with other actions are left out; without a policy all of
            them are used.
        updates: gradient updates in all, including those before `options.resume`.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the network and the hyperparameters; default: `Castro2020Config()`.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, the MDP or the policy is stochastic, or fewer
            than 2 transitions can be used.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> config = Castro2020Config(
    ...     (32,), batch_size=32, learning_rate=0.01, target_update_period=50, horizon_growth=0.5
    ... )
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = on_policy(mdp, [0] * mdp.num_states, updates=1_000, seed=1, config=config)
    >>> d.kind
    'on_policy'
    """
    return learn_distance(
        "on_policy",
        source,
        policy,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config or Castro2020Config(),
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
    )


def mico(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int = 100_000,
    seed: int = 0,
    discount: float | None = None,
    config: Castro2020Config | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> LearnedDistance:
    """Approximate MICo (Castro et al. 2021) with a network psi.

    The two states move independently, so that a state may have a positive distance to itself:

        T = |r - r'| + discount * beta * psi'(s', t')  for all pairs, a state and itself included.

    Where policy and MDP are deterministic it is d^pi. The algorithm is that of Castro (2020).

    Args:
        source: a deterministic MDP, whose states are described by its features, else their
            positions, else one-hot vectors; or transitions, whose observations are standardised;
            or a training source, which has its policy already.
        policy: (S,) actions. For an MDP the default is its own policy, or its only action. For
            recorded data, transitions with other actions are left out; without a policy all of
            them are used.
        updates: gradient updates in all, including those before `options.resume`.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the network and the hyperparameters; default: `Castro2020Config()`.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, the MDP or the policy is stochastic, fewer
            than 2 transitions can be used, or `config` is of another algorithm.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> config = Castro2020Config(
    ...     (32,), batch_size=32, learning_rate=0.01, target_update_period=50, horizon_growth=0.5
    ... )
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = mico(mdp, [0] * mdp.num_states, updates=1_000, seed=1, config=config)
    >>> d.kind
    'mico'
    """
    return learn_distance(
        "mico",
        source,
        policy,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config or Castro2020Config(),
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
    )
