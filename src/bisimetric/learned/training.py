"""Training as one compiled program: draw a batch, compare all its pairs, step; all keys at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from bisimetric.interrupts import jit
from bisimetric.learned.losses import Kind
from bisimetric.learned.networks.kernels import platform
from bisimetric.learned.networks.pairs import Parameters
from bisimetric.learned.sources import Source, States
from bisimetric.learned.spreading import BATCHES, SEEDS

NUMBERS_PER_DRAW = 11
"""Numbers that XLA holds per listed state that is drawn: 44 bytes with JAX 0.10.2 on a CPU."""
CLOSE = 0.01
"""The share of the horizon that may be missing when a run counts as settled."""

UNROLL = 4
"""Steps that a GPU takes before it looks at the count: starting a step costs it as much."""


class Learner(NamedTuple):
    """What is done between two updates of the target network, for one seed.

    Attributes:
        frozen: from the target network and the step to what stays as it is until the next update.
        loss: of parameters, by what is frozen, on a batch drawn with a key.
    """

    frozen: Callable[[Parameters, Array], Any]
    loss: Callable[[Parameters, Any, Array], Array]


class Recipe(Protocol):
    """How a network learns; `learned.Settings` is one, and `learned.paper.Settings` another."""

    @property
    def batch(self) -> int: ...
    @property
    def period(self) -> int: ...
    @property
    def epsilon(self) -> float: ...

    @property
    def decay(self) -> bool:
        """Whether the learning rate falls to 0 at the last step."""

    def network_of(self, source: Source, kind: Kind, discount: float) -> Any:
        """The network for a source: `init(key, features)`, and `table(parameters, x, y)`."""

    def learner(self, source: Source, network: Any, kind: Kind, discount: float) -> Learner: ...

    def batch_size(self, source: Source, network: Any) -> tuple[int, int]:
        """The rows that pass through the network for one batch, and the numbers held beside them.

        Both at least: pairs of rows, targets of all pairs, and the ids that are drawn.
        """

    def rate_at(self, step: Array, steps: Array, rate: Array | None = None) -> Array:
        """The learning rate at one of so many steps; `rate` takes the place of its own."""

    def reach(self, source: Source, network: Any) -> int:
        """Steps by which an update of the target looks further ahead."""

    def settled(self, discount: float, reach: int = 1) -> int:
        """The step from which no more than a hundredth of the horizon is missing."""


class State(NamedTuple):
    """Where training is: all but `step` once a seed, seeds first."""

    parameters: Parameters
    target: Parameters
    optimiser: Any
    key: Array
    step: Array


AXES = State(0, 0, 0, 0, None)  # type: ignore[arg-type] # the axis of the seeds in each


@functools.partial(jit, static_argnames=("settings", "network", "features"))
def started(settings: Recipe, network: Any, features: int, keys: Array) -> State:
    """The state before the first step, for each of the keys (n,)."""

    def one(key: Array) -> tuple[Parameters, Any, Array]:
        made, kept = jax.random.split(key)
        parameters = network.init(made, features)
        return parameters, _adam(settings).init(parameters), kept

    parameters, optimiser, kept = jax.vmap(one)(keys)
    return State(parameters, parameters, optimiser, kept, jnp.int32(0))


def _adam(settings: Recipe) -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=settings.epsilon)


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
    state: State,
    source: Source,
    *,
    settings: Recipe,
    network: Any,
    kind: Kind,
    discount: float,
    steps: int,
    of: int,
    rates: Array | None = None,
    mesh: Mesh | None = None,
) -> tuple[State, Array]:
    """The state some steps on, `of` so many in all, and the mean loss of each seed, (seeds,).

    `rates` (seeds,) are learning rates in place of that of the settings; `mesh` are the devices.
    """
    plan = planned(int(state.step), steps, settings.period)
    how = (settings, network, kind, discount, plan, mesh)
    return _compiled(state, source, jnp.int32(of), rates, *how)


@functools.partial(jit, static_argnames=("settings", "network", "kind", "discount", "plan", "mesh"))
def _compiled(
    state: State,
    source: Source,
    of: Array,
    rates: Array | None,
    settings: Recipe,
    network: Any,
    kind: Kind,
    discount: float,
    plan: Plan,
    mesh: Mesh | None,
) -> tuple[State, Array]:
    shared = mesh is not None and mesh.shape[BATCHES] > 1

    def on_one(state: State, source: Source, of: Array, rates: Array | None) -> tuple[State, Array]:
        """The seeds that one device has."""
        fixed = settings.learner(source, network, kind, discount)

        def learner(step: Array) -> Learner:
            if isinstance(source, States) or source.growing is None:
                return fixed
            return settings.learner(source.at(step), network, kind, discount)

        one = functools.partial(_advanced, learner, settings, plan, shared, of)
        if platform() != "cpu":
            axis = None if rates is None else 0
            return jax.vmap(one, in_axes=(AXES, axis), out_axes=(AXES, 0))(state, rates)
        # A processor has nothing to gain from seeds side by side, and its cache to lose.
        seeds = state._replace(step=jnp.broadcast_to(state.step, state.key.shape))
        after, losses = jax.lax.map(lambda each: one(*each), (seeds, rates))
        return after._replace(step=after.step[0]), losses

    if mesh is None:
        return on_one(state, source, of, rates)
    seeds, all_of_it = PartitionSpec(SEEDS), PartitionSpec()
    states = State(seeds, seeds, seeds, seeds, all_of_it)  # type: ignore[arg-type]
    spread = jax.shard_map(
        on_one,
        mesh=mesh,
        in_specs=(states, all_of_it, all_of_it, seeds),
        out_specs=(states, seeds),
        check_vma=False,
    )
    return spread(state, source, of, rates)


def _advanced(
    learner: Callable[[Array], Learner],
    settings: Recipe,
    plan: Plan,
    shared: bool,
    of: Array,
    state: State,
    base: Array | None,
) -> tuple[State, Array]:
    """One seed, on one device; `shared` where others take batches of their own for it."""
    adam = _adam(settings)

    def within(state: State, steps: int) -> tuple[State, Array]:
        """Steps between two updates of the target; the sum of their losses."""
        frozen = learner(state.step).frozen(state.target, state.step)

        def step(now: State, _: None) -> tuple[State, Array]:
            key, drawn = jax.random.split(now.key)
            if shared:
                drawn = jax.random.fold_in(drawn, jax.lax.axis_index(BATCHES))
            loss_of = learner(now.step).loss
            loss, slope = jax.value_and_grad(loss_of)(now.parameters, frozen, drawn)
            if shared:
                loss, slope = jax.lax.pmean((loss, slope), BATCHES)
            change, optimiser = adam.update(slope, now.optimiser, now.parameters)
            rate = settings.rate_at(now.step, of, base)
            parameters = jax.tree.map(lambda w, by: w - rate * by, now.parameters, change)
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
