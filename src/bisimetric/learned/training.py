"""Training as one compiled program: draw a batch, compare all its pairs, step; all keys at once."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric.errors import InputError, whole
from bisimetric.learned.hidden import groups_of
from bisimetric.learned.kernels import TILE, platform
from bisimetric.learned.losses import LOSSES, Kind, beta_at, mean_squared, over_pairs
from bisimetric.learned.networks import Network, PairNetwork, Parameters, checked
from bisimetric.learned.sources import ANY, Batch, Source, States


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a network learns.

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

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "network", checked(self.network))
        for name, least in (("batch", 2), ("period", 1)):
            put(self, name, whole("Settings", name, getattr(self, name), least))
        for name in ("learning_rate", "epsilon"):
            put(self, name, _number(name, getattr(self, name), above=True))
        put(self, "rate", _number("rate", self.rate, above=False))
        if self.rate >= 1:
            raise InputError(
                f"Settings: rate is {self.rate!r} and must be below 1, or beta never grows."
            )

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, eps=self.epsilon)


UNROLL = 4
"""Steps that a GPU takes before it looks at the count: starting a step costs it as much."""


def _number(name: str, value: Any, above: bool) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and (number > 0 if above else number >= 0)):
        least = "above 0" if above else "at least 0"
        raise InputError(f"Settings: {name} is {value!r} and must be a number, {least}.")
    return number


class State(NamedTuple):
    """Where training is: all but `step` once a seed, seeds first."""

    parameters: Parameters
    target: Parameters
    optimiser: Any
    key: Array
    step: Array


AXES = State(0, 0, 0, 0, None)  # type: ignore[arg-type] # the axis of the seeds in each


@functools.partial(jax.jit, static_argnames=("settings", "features"))
def started(settings: Settings, features: int, keys: Array) -> State:
    """The state before the first step, for each of the keys (n,)."""

    def one(key: Array) -> tuple[Parameters, Any, Array]:
        made, kept = jax.random.split(key)
        parameters = settings.network.init(made, features)
        return parameters, settings.optimiser.init(parameters), kept

    parameters, optimiser, kept = jax.vmap(one)(keys)
    return State(parameters, parameters, optimiser, kept, jnp.int32(0))


class Plan(NamedTuple):
    """Steps cut at the updates of the target: before the next one, whole periods, and the rest."""

    head: int
    periods: int
    tail: int


def planned(done: int, steps: int, period: int) -> Plan:
    """The plan of some steps after those done.

    >>> planned(400, 1300, 500)
    Plan(head=100, periods=2, tail=200)
    """
    head = min(-done % period, steps)
    return Plan(head, *divmod(steps - head, period))


def advanced(
    state: State, source: Source, *, settings: Settings, kind: Kind, discount: float, steps: int
) -> tuple[State, Array]:
    """The state some steps on, and the mean loss of each seed over them, (seeds,)."""
    plan = planned(int(state.step), steps, settings.period)
    return _compiled(state, source, settings, kind, discount, plan)


@functools.partial(jax.jit, static_argnames=("settings", "kind", "discount", "plan"))
def _compiled(
    state: State, source: Source, settings: Settings, kind: Kind, discount: float, plan: Plan
) -> tuple[State, Array]:
    one = functools.partial(_advanced, source, settings, kind, discount, plan)
    if platform() != "cpu":
        return jax.vmap(one, in_axes=(AXES,), out_axes=(AXES, 0))(state)
    # A processor has nothing to gain from seeds side by side, and its cache to lose.
    seeds = state._replace(step=jnp.broadcast_to(state.step, state.key.shape))
    after, losses = jax.lax.map(one, seeds)
    return after._replace(step=after.step[0]), losses


def _advanced(
    source: Source, settings: Settings, kind: Kind, discount: float, plan: Plan, state: State
) -> tuple[State, Array]:
    learner: Any = _of_states if listed(source, settings) else _of_batches
    frozen_by, loss_of = learner(source, settings, kind, discount)

    def within(state: State, steps: int) -> tuple[State, Array]:
        """Steps between two updates of the target; the sum of their losses."""
        beta = beta_at(state.step, settings.period, settings.rate)
        frozen = frozen_by(state.target, beta)

        def step(now: State, _: None) -> tuple[State, Array]:
            key, drawn = jax.random.split(now.key)
            loss, slope = jax.value_and_grad(loss_of)(now.parameters, frozen, beta, drawn)
            change, optimiser = settings.optimiser.update(slope, now.optimiser, now.parameters)
            parameters = optax.apply_updates(now.parameters, change)
            return State(parameters, now.target, optimiser, key, now.step + 1), loss

        unroll = 1 if platform() == "cpu" else UNROLL
        after, losses = jax.lax.scan(step, state, length=steps, unroll=unroll)
        return after, losses.sum()

    def updated(state: State, steps: int) -> tuple[State, Array]:
        """Steps from an update of the target on."""
        return within(state._replace(target=state.parameters), steps)

    total = jnp.float32(0.0)
    if plan.head:
        state, loss = within(state, plan.head)
        total += loss
    if plan.periods:
        period = functools.partial(updated, steps=settings.period)
        state, losses = jax.lax.scan(lambda now, _: period(now), state, length=plan.periods)
        total += losses.sum()
    if plan.tail:
        state, loss = updated(state, plan.tail)
        total += loss
    return state, total / (plan.head + plan.periods * settings.period + plan.tail)


def listed(source: Source, settings: Settings) -> bool:
    """Whether there are fewer pairs of states than in a batch, so that each is computed once."""
    return isinstance(source, States) and source.finite and len(source.points) <= settings.batch


def _of_batches(source: Source, settings: Settings, kind: Kind, discount: float) -> Any:
    """The loss over all pairs of a batch; what is frozen is the target network."""
    loss, table = LOSSES[kind], settings.network.table
    ends = source.scale.ends
    sort = loss.same_actions and not ends and settings.batch % TILE == 0

    def loss_of(parameters: Parameters, target: Parameters, beta: Array, key: Array) -> Array:
        batch = source.batch(key, settings.batch)
        groups = None
        if sort:
            order = jnp.argsort(batch.action)
            batch = Batch(*(column[order] for column in batch))
            groups = groups_of(batch.action)
        psi = table(parameters, batch.x, batch.x, groups)
        ahead = table(target, batch.x_next, batch.x_next, groups)
        here = table(target, batch.x, batch.x, groups) if loss.looks_here else psi
        targets = over_pairs(loss.target)(
            gaps(batch.reward), ahead, here, jnp.eye(settings.batch, dtype=bool), discount, beta
        )
        weights = jnp.ones_like(psi)
        if loss.same_actions:
            weights = equal(batch.action).astype(psi.dtype)
        return mean_squared(psi, targets, weights)

    return (lambda parameters, beta: parameters), loss_of


def _of_states(source: States, settings: Settings, kind: Kind, discount: float) -> Any:
    """The same loss where a batch holds few different states: each pair of them is computed once.

    With c_a(s) the number of times that a batch has action a in state s, the sum over all pairs of
    the batch is the sum over a, s, t of c_a(s) c_a(t) (psi(s, t) - T_a(s, t))^2, but for the b
    transitions paired with themselves, whose target is 0. T changes with the target network only.
    """
    loss, table = LOSSES[kind], settings.network.table
    points = source.features()
    states, actions = source.reward.shape
    successor, reward = source.successor.T, source.reward.T

    def frozen_by(target: Parameters, beta: Array) -> Array:
        here = table(target, points, points)
        ahead = jax.vmap(lambda n: here[n[:, None], n[None, :]])(successor)
        gap = jax.vmap(gaps)(reward)
        different = jnp.zeros((states, states), dtype=bool)
        targets = jax.vmap(over_pairs(loss.target), in_axes=(0, 0, None, None, None, None))
        return targets(gap, ahead, here, different, discount, beta)

    def loss_of(parameters: Parameters, targets: Array, beta: Array, key: Array) -> Array:
        state, action = source.drawn(key, settings.batch)
        psi = table(parameters, points, points)
        count = jnp.zeros((actions, states)).at[action, state].add(1.0)
        total = jnp.einsum("as,at,ast->", count, count, (psi[None] - targets) ** 2)
        if loss.zero_on_itself:
            # By counts, not transition by transition: a GPU adds up repeated ones in any order.
            own, other = jnp.diagonal(psi), jnp.diagonal(targets, axis1=1, axis2=2)
            total += jnp.sum(count * (own**2 - (own - other) ** 2))
        return total / settings.batch**2

    return frozen_by, loss_of


def gaps(reward: Array) -> Array:
    """|r_i - r_j|, (n, n)."""
    return jnp.abs(reward[:, None] - reward[None, :])


def equal(action: Array) -> Array:
    """Whether two transitions take the same action, (n, n); the end takes any."""
    any_of = (action[:, None] == ANY) | (action[None, :] == ANY)
    return (action[:, None] == action[None, :]) | any_of
