"""The paper's loss over all pairs of a batch, or over all pairs of few states.

The paper's recipe: what it takes to learn as Castro (2020) does.

MICo by a network.

Distances that a network learns as in Castro (2020): the baseline of `learned`.

One network psi moves, for all pairs of a batch with the same action, towards the target

    T = max(|r - r'| + discount * beta * psi'(s', t'), beta * psi'(s, t))

of a target network psi'; for d^pi, and for all pairs, towards |r - r'| + discount * beta *
psi'(s', t'). T = 0 for a transition and itself; beta grows from 0 to 1 with the updates of psi'.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.learned.api import bisimulation as _bisimulation
from bisimetric.learned.api import learn_distance
from bisimetric.learned.api import on_policy as _on_policy
from bisimetric.learned.config import validate_fields, validate_number
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import (
    LOSSES,
    LearnedKind,
    build_action_mask,
    compute_beta,
    compute_mean_squared_error,
    compute_reward_gaps,
    fits_in_batch,
    map_over_pairs,
)
from bisimetric.learned.networks.pair_layer import TILE, build_tile_groups
from bisimetric.learned.networks.pair_network import (
    Castro2020Network,
    FunctionalNetwork,
    PairNetwork,
    Parameters,
    validate_network,
)
from bisimetric.learned.sources import Batch, TrainingSource
from bisimetric.learned.training import FLOATS_PER_SAMPLE, HORIZON_TOLERANCE, Objective
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


def build_batch_objective(
    source: TrainingSource,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
) -> Objective:
    """The loss over all pairs of a batch; what is frozen is the target network, and beta."""
    loss, table = LOSSES[kind], network.table
    sort = loss.same_actions and not source.scaling.has_terminal and batch_size % TILE == 0

    def frozen(target: Parameters, step: Array) -> Any:
        return target, compute_beta(step, target_update_period, horizon_growth)

    def loss_of(parameters: Parameters, frozen: Any, key: Array) -> Array:
        target, beta = frozen
        batch = source.sample_batch(key, batch_size)
        groups = None
        if sort:
            order = jnp.argsort(batch.action)
            batch = Batch(*(column[order] for column in batch))
            groups = build_tile_groups(batch.action)
        psi = table(parameters, batch.x, batch.x, groups)
        ahead = table(target, batch.x_next, batch.x_next, groups)
        here = table(target, batch.x, batch.x, groups) if loss.uses_current_value else psi
        targets = map_over_pairs(loss.target)(
            compute_reward_gaps(batch.reward),
            ahead,
            here,
            jnp.eye(batch_size, dtype=bool),
            discount,
            beta,
        )
        weights = jnp.ones_like(psi)
        if loss.same_actions:
            weights = build_action_mask(batch.action).astype(psi.dtype)
        return compute_mean_squared_error(psi, targets, weights)

    return Objective(frozen, loss_of)


def build_all_pairs_objective(
    source: Any,
    network: Any,
    kind: LearnedKind,
    discount: float,
    batch_size: int,
    target_update_period: int,
    horizon_growth: float,
) -> Objective:
    """The same loss where a batch holds few different states: each pair of them is computed once.

    With c_a(s) the number of times that a batch has action a in state s, the sum over all pairs of
    the batch is the sum over a, s, t of c_a(s) c_a(t) (psi(s, t) - T_a(s, t))^2, but for the b
    transitions paired with themselves, whose target is 0. T changes with the target network only.
    """
    loss, table = LOSSES[kind], network.table
    points = source.features()
    states = len(points)

    def frozen(target: Parameters, step: Array) -> Array:
        here = table(target, points, points)
        ahead = source.ahead(here)
        gap = jax.vmap(compute_reward_gaps)(source.reward.T)
        different = jnp.zeros((states, states), dtype=bool)
        targets = jax.vmap(map_over_pairs(loss.target), in_axes=(0, 0, None, None, None, None))
        return targets(
            gap,
            ahead,
            here,
            different,
            discount,
            compute_beta(step, target_update_period, horizon_growth),
        )

    def loss_of(parameters: Parameters, targets: Array, key: Array) -> Array:
        count = source.counts(key, batch_size)
        psi = table(parameters, points, points)
        total = jnp.einsum("as,at,ast->", count, count, (psi[None] - targets) ** 2)
        if loss.zero_self_distance:
            # By counts, not transition by transition: a GPU adds up repeated ones in any order.
            own, other = jnp.diagonal(psi), jnp.diagonal(targets, axis1=1, axis2=2)
            total += jnp.sum(count * (own**2 - (own - other) ** 2))
        return total / batch_size**2

    return Objective(frozen, loss_of)


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
        validate_fields(self, {"batch": 2, "target_update_period": 1}, ("learning_rate", "epsilon"))
        growth = validate_number("horizon_growth", self.horizon_growth, positive=False)
        object.__setattr__(self, "horizon_growth", growth)
        if self.horizon_growth >= 1:
            raise InputError(
                f"Castro2020Config: horizon_growth is {self.horizon_growth!r} and must be below 1, or beta never grows."
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


def mico(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    updates: int = 100_000,
    seed: int = 0,
    config: Castro2020Config | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    reference: Distance | None = None,
    log_every: int = 500,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    data_parallel: bool = False,
) -> LearnedDistance:
    """An approximation of MICo by a network psi (Castro et al. 2021): two states take their steps
    independently of each other, so that a state may be far from itself.

    T = |r - r'| + discount * beta * psi'(s', t')  for all pairs, a state and itself included.

    Where policy and world are deterministic it is d^pi. The recipe is that of `learned.paper`; the
    arguments are those of `learned.on_policy`.
    """
    return learn_distance(
        "mico",
        source,
        policy,
        discount=discount,
        updates=updates,
        seed=seed,
        config=config or Castro2020Config(),
        noise=noise,
        noise_clip=noise_clip,
        reference=reference,
        log_every=log_every,
        patience=patience,
        checkpoint=checkpoint,
        resume=resume,
        device=device,
        data_parallel=data_parallel,
    )


__all__ = [
    "Castro2020Config",
    "FunctionalNetwork",
    "PairNetwork",
    "bisimulation",
    "mico",
    "on_policy",
]


def bisimulation(
    source: MDP | Transitions | TrainingSource,
    *,
    updates: int = 100_000,
    config: Castro2020Config | None = None,
    **options: Any,
) -> LearnedDistance:
    """d~ as the paper learns it; the other arguments are those of `learned.bisimulation`.

    >>> from bisimetric import worlds
    >>> quick = Settings((32,), batch=32, learning_rate=0.01, period=50, rate=0.5)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, steps=1_000, key=1, settings=quick)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return _bisimulation(source, updates=updates, config=config or Castro2020Config(), **options)


def on_policy(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int = 100_000,
    config: Castro2020Config | None = None,
    **options: Any,
) -> LearnedDistance:
    """d^pi as the paper learns it; the other arguments are those of `learned.on_policy`."""
    return _on_policy(
        source, policy, updates=updates, config=config or Castro2020Config(), **options
    )
