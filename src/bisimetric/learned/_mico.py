"""MICo from an MDP or from data, by temporal-difference learning on independent pairs.

    U(s, t)  is fitted to  |r^(s) - r^(t)| + discount * U'(s', t')

on pairs of different transitions, whose successors are independent samples, with U' the target
network. MICo compares expected rewards: |E r - E r'|, not E |r - r'|, which is larger where rewards
or actions are random. So a second network r^(s) is fitted to E[r | s] by least squares, and enters
the target as a constant.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact.gaps import GapFunction
from bisimetric.learned.api import learn_distance
from bisimetric.learned.config import (
    DEFAULT_OPTIONS,
    MAX_TABLE_STATES,
    RunOptions,
    add_fourier_features,
    compute_mean_gap,
    compute_terminal_share,
    count_synchronisations,
    fit_to_observations,
    validate_fields,
)
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import (
    LearnedKind,
    Objective,
    compute_pair_td_loss,
)
from bisimetric.learned.networks.mico_network import (
    MicoNetwork,
    ReducedNetwork,
    ScaledMicoNetwork,
)
from bisimetric.learned.networks.pair_network import Parameters
from bisimetric.learned.schedules import CosineSchedule
from bisimetric.learned.sources import (
    Batch,
    ChainSource,
    StateSource,
    TrainingSource,
    TransitionSource,
    reject_cost,
)
from bisimetric.learned.training import Algorithm
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

MAX_CHAIN_STATES = 512
"""The most states of a stochastic chain for which the targets of all pairs are stored."""


@dataclasses.dataclass(frozen=True)
class PairTDConfig(CosineSchedule):
    """Hyperparameters of temporal-difference learning of MICo.

    Attributes:
        network: a `MicoNetwork`.
        batch_size: transitions per update; all pairs of different ones are compared.
        learning_rate: step size of Adam, after the warm-up.
        epsilon: epsilon of Adam.
        warm_up: updates over which the learning rate grows linearly from 0.
        target_update_period: updates between two synchronisations of the target network.
        lookahead: environment steps that a target looks ahead before it evaluates the target
            network. It applies to the states of an MDP without noise, at most 1,024 of them, or 512
            in a stochastic chain; it is 1 elsewhere.
        reward_head: whether targets compare predicted rewards, which are learned from recorded
            ones; otherwise recorded rewards are compared, and distances come out too large where
            these are random. An MDP has expected rewards, and needs none.
        decay: whether the learning rate follows a cosine decay to 0 at the last update.

    Raises:
        InputError: when a field is out of range, or `network` is of another type.

    >>> PairTDConfig(batch_size=64).reward_head
    True
    """

    network: MicoNetwork = dataclasses.field(default_factory=MicoNetwork)
    batch_size: int = 256
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    warm_up: int = 500
    target_update_period: int = 25
    lookahead: int = 10
    reward_head: bool = True
    decay: bool = True
    name: ClassVar[str] = "pair-td"

    def __post_init__(self) -> None:
        if not isinstance(self.network, MicoNetwork):
            raise InputError(
                f"is {self.network!r} and must be a MicoNetwork",
                caller="PairTDConfig",
                argument="network",
                remedy="learned.castro2020.Castro2020Config takes other networks",
            )
        minimums = {"batch_size": 2, "warm_up": 0, "target_update_period": 1, "lookahead": 1}
        validate_fields(self, minimums, ("learning_rate", "epsilon"))

    def build_network(
        self, source: TrainingSource, kind: LearnedKind, discount: float
    ) -> ScaledMicoNetwork:
        """Return the network for a source, with distances scaled to the size of its rewards.

        Args:
            source: what is learned from.
            kind: "mico".
            discount: the discount of the distance.

        Returns:
            The network.

        Raises:
            InputError: when the kind is another one.
        """
        if kind != "mico":
            raise InputError(
                "is a PairTDConfig, which learns MICo only",
                caller=f"learned.{kind}",
                argument="config",
                remedy="give a learned.PairQConfig",
            )
        rewards = np.asarray(source.reward, np.float64).ravel()
        gap = compute_mean_gap(rewards, compute_terminal_share(source, discount))
        if isinstance(source, StateSource) and source.has_cost:
            gap = float(np.mean(np.asarray(source.compute_gaps(), np.float64)))
        unit = (gap or 1.0) / (1 - discount)
        if self.network.parametrisation == "angular":
            # A right angle is then one such distance.
            unit /= self.network.beta * math.pi / 2
        fitted = fit_to_observations(self.network.embedding, source)
        embedding = add_fourier_features(fitted, source)
        if not isinstance(embedding, type(self.network.embedding)):
            embedding = self.network.embedding
        network = dataclasses.replace(self.network, embedding=embedding)
        if isinstance(source, StateSource) or not self.reward_head:
            return ScaledMicoNetwork(network, unit)
        scale = float(rewards.std()) or 1.0
        return ScaledMicoNetwork(network, unit, float(rewards.mean()), scale)

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
        if self._stores_all_targets(source):
            return build_table_objective(source, network, discount, self.batch_size, self.lookahead)
        return build_batch_objective(source, network, discount, self.batch_size)

    def _stores_all_targets(self, source: TrainingSource) -> TypeGuard[StateSource]:
        """Return whether the targets of all pairs of states are stored."""
        if not (isinstance(source, StateSource) and source.enumerable):
            return False
        limit = MAX_CHAIN_STATES if isinstance(source, ChainSource) else MAX_TABLE_STATES
        return len(source.points) <= limit

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            Lower bounds of both.
        """
        table = len(source.points) ** 2 if self._stores_all_targets(source) else 0
        return self.batch_size, 2 * self.batch_size**2 + table

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Return `lookahead` where it applies to the source, else 1.

        Args:
            source: what is learned from.
            network: from `build_network`.

        Returns:
            The number of environment steps.
        """
        return self.lookahead if self._stores_all_targets(source) else 1

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates after which at most 1% of the horizon is missing.

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


def build_batch_objective(
    source: TrainingSource, network: ScaledMicoNetwork, discount: float, batch_size: int
) -> Objective:
    """Return the loss over sampled transitions; see `compute_pair_td_loss`."""
    reject_cost("learned.mico", source, "leave noise out, or use fewer states")

    def sample(key: Array) -> tuple[Array, Batch]:
        """Return row numbers and transitions; rows of -1 have a single outcome."""
        if isinstance(source, TransitionSource):
            return source.sample_rows(key, batch_size)
        rows = jnp.arange(batch_size) if isinstance(source, ChainSource) else -1
        return jnp.broadcast_to(rows, (batch_size,)), source.sample_batch(key, batch_size)

    def compute_loss(parameters: Parameters, target: Parameters, key: Array) -> Array:
        return compute_pair_td_loss(network, discount, parameters, target, *sample(key))

    return Objective(lambda target, step: target, compute_loss)


def build_table_objective(
    source: StateSource,
    network: ScaledMicoNetwork,
    discount: float,
    batch_size: int,
    lookahead: int,
) -> Objective:
    """Return the loss for enumerable states, whose targets of all pairs are stored.

    Rewards and successors are expectations, n steps ahead. All pairs of states are compared where
    they fit in a batch, otherwise those of a sample of states.
    """
    points, states = source.compute_features(), len(source.points)

    def prepare(target: Parameters, step: Array) -> Array:
        gap = source.compute_gaps()[0] / network.unit
        bootstrap = network.network.table(target["pairs"], points, points)
        return jax.lax.fori_loop(
            0,
            lookahead,
            lambda _, value: gap + discount * source.gather_successors(value)[0],
            bootstrap,
        )

    def compute_loss(parameters: Parameters, targets: Array, key: Array) -> Array:
        if states <= batch_size:
            psi = network.network.table(parameters["pairs"], points, points)
            return jnp.mean((psi - targets) ** 2)
        state = jax.random.randint(key, (batch_size,), 0, states)
        psi = network.network.table(parameters["pairs"], points[state], points[state])
        return jnp.mean((psi - targets[state[:, None], state[None, :]]) ** 2)

    return Objective(prepare, compute_loss)


def mico(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int = 24_000,
    seed: int = 0,
    discount: float | None = None,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    gap: ArrayLike | GapFunction | None = None,
) -> LearnedDistance:
    """Approximate MICo (Castro et al. 2021) with a network U, also of stochastic data.

    MICo is the fixed point of

        U(s, t) = |E r - E r'| + discount * E U(s', t'),  s' and t' independent.

    U is fitted to |r^(s) - r^(t)| + discount * U'(s', t') on pairs of different transitions, with
    U' the target network and r^(s) a network fitted to E[r | s] by least squares.

    What is consistent: two different transitions have independent successors, so that the second
    term is unbiased, for any dynamics and policy. The reward term converges to |E r - E r'| as r^
    converges. The policy is that of the data, whatever it is.

    What is biased: errors of r^ enlarge |r^(s) - r^(t)| where expected rewards are nearly equal, by
    about the standard error of the mean reward of a state; that vanishes with the number of visits.
    Where observations never repeat, a network that is large for the data also fits the randomness
    of single rewards; the reward head has no Fourier features unless the network sets them, and for
    noisy observations of at most 8 numbers `MetricNetwork(fourier_features=0)` is better.
    Without `PairTDConfig.reward_head` the first term converges to E |r - r'|, which is too large
    where rewards or actions are random, however many data there are. `learned.castro2020.mico` also
    pairs each transition with itself, as the agents of the paper do; self-distances then come out
    too small.

    Args:
        source: an MDP, deterministic or not, whose states are described by its features, else their
            positions, else one-hot vectors; or transitions, whose observations are standardised and
            whose rewards are averaged over equal observations; or a training source, which has its
            policy already.
        policy: (S,) actions, for an MDP also (S, A) probabilities. For an MDP the default is its
            own policy, or its only action. For recorded data, transitions with other actions are
            left out; without a policy all of them are used.
        updates: gradient updates in all, including those before `options.resume`.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the algorithm, its network and hyperparameters; default: `PairTDConfig()`.
            `PairTDConfig(MicoNetwork(parametrisation="angular"))` is the parametrisation of the
            paper.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        reference: the exact distance, for an MDP; errors against it are recorded in `history`.
        options: logging, early stopping, checkpoints and devices.
        gap: for an MDP, immediate costs in place of the differences of rewards; see `exact.mico`.

    Returns:
        The learned distance, in units of reward.

    Raises:
        InputError: when an argument is out of range, fewer than 2 transitions can be used, or
            `config` does not learn MICo.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric.learned import MetricNetwork
    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]], discount=0.5)
    >>> network = MicoNetwork(MetricNetwork((16,), num_groups=8))
    >>> config = PairTDConfig(network, batch_size=32, learning_rate=0.01, warm_up=100)
    >>> d = mico(coin, updates=1_000, config=config)
    >>> round(d(0, 0), 1), round(d(0, 2), 1)
    (0.5, 1.5)
    """
    return learn_distance(
        "mico",
        source,
        policy,
        updates=updates,
        seed=seed,
        discount=discount,
        config=config or PairTDConfig(),
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        options=options,
        gap=gap,
    )


def reduced_mico(
    source: MDP | Transitions | TrainingSource | LearnedDistance,
    policy: ArrayLike | None = None,
    *,
    updates: int = 24_000,
    seed: int = 0,
    discount: float | None = None,
    config: Algorithm | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    options: RunOptions = DEFAULT_OPTIONS,
) -> LearnedDistance:
    """Approximate reduced MICo (Castro et al. 2023), MICo less the mean of its self-distances.

        d_red(s, t) = U(s, t) - (U(s, s) + U(t, t)) / 2

    MICo is learned, and reduced; see `learned.mico` for what is consistent. With the default
    network, d_red is a squared Euclidean distance: its square root is a pseudometric for all
    weights. It does not bound differences of values.

    Args:
        source: as for `learned.mico`; or a learned MICo distance, which is reduced as it is.
        policy: (S,) actions, for an MDP also (S, A) probabilities. For an MDP the default is its
            own policy, or its only action. For recorded data, transitions with other actions are
            left out; without a policy all of them are used.
        updates: gradient updates in all, including those before `options.resume`.
        seed: seed of the weights and the batches; the same seed gives the same run.
        discount: default: that of the MDP, and 0.99 for recorded data.
        config: the algorithm, its network and hyperparameters; default: `PairTDConfig()`.
        noise: for an MDP, the standard deviation of Gaussian noise added to the features of a
            state and its successor alike, which makes the states continuous.
        noise_clip: the largest noise, in either direction.
        options: logging, early stopping, checkpoints and devices.

    Returns:
        The learned distance, in units of reward. The loss in its `history` is that of MICo.

    Raises:
        InputError: when an argument is out of range, fewer than 2 transitions can be used, `config`
            does not learn MICo, or the learned distance is of another kind.
        Diverged: when the loss or a weight is not finite, or the output is 0 for all pairs.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric.learned import MetricNetwork
    >>> coin = MDP([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [[0], [0], [1]], discount=0.5)
    >>> network = MicoNetwork(MetricNetwork((16,), num_groups=8))
    >>> config = PairTDConfig(network, batch_size=32, learning_rate=0.01, warm_up=100)
    >>> U = mico(coin, updates=1_000, config=config)
    >>> d = reduced_mico(U)
    >>> round(d(0, 0), 1), round(d(0, 2), 2)
    (0.0, 1.25)
    """
    if not isinstance(source, LearnedDistance):
        source = learn_distance(
            "mico",
            source,
            policy,
            updates=updates,
            seed=seed,
            discount=discount,
            config=config or PairTDConfig(),
            noise=noise,
            noise_clip=noise_clip,
            reference=None,
            options=options,
        )
    elif source.kind != "mico":
        raise InputError(
            f"is a learned distance of kind {source.kind!r} and must be of kind 'mico'",
            caller="learned.reduced_mico",
            argument="source",
        )
    return dataclasses.replace(
        source,
        kind="reduced_mico",
        network=ReducedNetwork(source.network),
        metadata={**source.metadata, "kind": "reduced_mico"},
        # Errors against a reference are those of MICo.
        history={name: source.history[name] for name in ("step", "loss") if name in source.history},
    )
