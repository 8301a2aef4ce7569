"""Training as one compiled program: draw a batch, compare all its pairs, step; all seeds at once."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bisimetric.learned.hidden import groups_of
from bisimetric.learned.kernels import TILE, platform
from bisimetric.learned.losses import LOSSES, Kind, beta_at, mean_squared, over_pairs
from bisimetric.learned.networks import Network, PairNetwork, Parameters
from bisimetric.learned.sources import ANY, Batch, Source, States


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a network learns.

    Attributes:
        network: psi; see `PairNetwork`.
        batch: transitions a step; all pairs of them are compared.
        learning_rate, epsilon: of Adam.
        period: steps between two updates of the target network; the first is at step 0.
        rate: beta is 1 - rate^k after the k-th of them, so that the horizon grows step by step.
    """

    network: Network = PairNetwork()
    batch: int = 256
    learning_rate: float = 1e-3
    epsilon: float = 1e-8
    period: int = 500
    rate: float = 0.9

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, eps=self.epsilon)


class State(NamedTuple):
    """Where training is: all but `step` once a seed, seeds first."""

    parameters: Parameters
    target: Parameters
    optimiser: Any
    key: Array
    step: Array


AXES = State(0, 0, 0, 0, None)  # type: ignore[arg-type] # the axis of the seeds in each


def started(settings: Settings, features: int, keys: Array) -> State:
    """The state before the first step, for each of the keys (n,)."""

    def one(key: Array) -> tuple[Parameters, Any, Array]:
        made, kept = jax.random.split(key)
        parameters = settings.network.init(made, features)
        return parameters, settings.optimiser.init(parameters), kept

    parameters, optimiser, kept = jax.vmap(one)(keys)
    return State(parameters, parameters, optimiser, kept, jnp.int32(0))


@functools.partial(jax.jit, static_argnames=("settings", "kind", "discount", "steps"))
def advanced(
    state: State, source: Source, *, settings: Settings, kind: Kind, discount: float, steps: int
) -> tuple[State, Array]:
    """The state some steps on, and the mean loss of each seed over them, (seeds,)."""
    one = functools.partial(_advanced, source, settings, kind, discount, steps)
    if platform() != "cpu":
        return jax.vmap(one, in_axes=(AXES,), out_axes=(AXES, 0))(state)
    # A processor has nothing to gain from seeds side by side, and its cache to lose.
    seeds = state._replace(step=jnp.broadcast_to(state.step, state.key.shape))
    after, losses = jax.lax.map(one, seeds)
    return after._replace(step=after.step[0]), losses


def _advanced(
    source: Source, settings: Settings, kind: Kind, discount: float, steps: int, state: State
) -> tuple[State, Array]:
    beta_of = functools.partial(beta_at, period=settings.period, rate=settings.rate)
    learner = _of_states if listed(source, settings) else _of_batches
    frozen_by, loss_of = learner(source, settings, kind, discount)

    def step(carry: Any, _: None) -> tuple[Any, Array]:
        now, frozen = carry
        beta = beta_of(now.step)
        # The step is the same for all seeds, so that this stays a branch under vmap.
        target, frozen = jax.lax.cond(
            now.step % settings.period == 0,
            lambda: (now.parameters, frozen_by(now.parameters, beta)),
            lambda: (now.target, frozen),
        )
        key, drawn = jax.random.split(now.key)
        loss, slope = jax.value_and_grad(loss_of)(now.parameters, frozen, beta, drawn)
        change, optimiser = settings.optimiser.update(slope, now.optimiser, now.parameters)
        parameters = optax.apply_updates(now.parameters, change)
        return (State(parameters, target, optimiser, key, now.step + 1), frozen), loss

    frozen = frozen_by(state.target, beta_of(state.step))
    (state, _), losses = jax.lax.scan(step, (state, frozen), length=steps)
    return state, losses.mean()


def listed(source: Source, settings: Settings) -> bool:
    """Whether all pairs of states are fewer than those of a batch, so that each is computed once."""
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
            own, other = psi[state, state], targets[action, state, state]
            total += jnp.sum(own**2 - (own - other) ** 2)
        return total / settings.batch**2

    return frozen_by, loss_of


def gaps(reward: Array) -> Array:
    """|r_i - r_j|, (n, n)."""
    return jnp.abs(reward[:, None] - reward[None, :])


def equal(action: Array) -> Array:
    """Whether two transitions take the same action, (n, n); the end takes any."""
    any_of = (action[:, None] == ANY) | (action[None, :] == ANY)
    return (action[:, None] == action[None, :]) | any_of
