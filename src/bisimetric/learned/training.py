"""Several devices: seeds side by side on each of them, or one run whose batches they share.

Training as one compiled program: draw a batch, compare all its pairs, step; all keys at once.

The memory that training takes, estimated before anything is allocated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from bisimetric._memory import require_memory
from bisimetric._progress import jit
from bisimetric.errors import InsufficientMemory
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.pair_layer import get_platform
from bisimetric.learned.networks.pair_network import FunctionalNetwork, Parameters
from bisimetric.learned.sources import StateSource, TrainingSource

SEED_AXIS, BATCH_AXIS = "seeds", "batches"
"""The axes of a mesh: over what its devices are spread."""


def build_mesh(
    num_seeds: int, devices: Sequence[Any] | None = None, *, data_parallel: bool = False
) -> Mesh | None:
    """The devices of a run with so many seeds, (SEEDS, BATCHES); None where one is all it takes.

    As many devices as divide the seeds take as many of them each. With `share` those that are left
    over take batches of their own for the same seeds, and all learn from what each of them finds.
    """
    found = list(list_local_devices() if devices is None else devices)
    across = math.gcd(num_seeds, len(found))
    sharing = len(found) // across if data_parallel else 1
    if across * sharing == 1 and devices is None:
        return None
    return Mesh(
        np.array(found[: across * sharing]).reshape(across, sharing), (SEED_AXIS, BATCH_AXIS)
    )


def list_local_devices() -> list[Any]:
    """All devices of this process, of the kind that JAX computes on by default."""
    (default,) = jnp.zeros(()).devices()
    return jax.local_devices(backend=default.platform)


FLOATS_PER_SAMPLE = 11
"""Numbers that XLA holds per listed state that is drawn: 44 bytes with JAX 0.10.2 on a CPU."""
HORIZON_TOLERANCE = 0.01
"""The share of the horizon that may be missing when a run counts as settled."""

UNROLL = 4
"""Steps that a GPU takes before it looks at the count: starting a step costs it as much."""


class Objective(NamedTuple):
    """What is done between two updates of the target network, for one seed.

    Attributes:
        frozen: from the target network and the step to what stays as it is until the next update.
        loss: of parameters, by what is frozen, on a batch drawn with a key.
    """

    prepare: Callable[[Parameters, Array], Any]
    loss: Callable[[Parameters, Any, Array], Array]


class Algorithm(Protocol):
    """How a network learns; `learned.Settings` is one, and `learned.paper.Settings` another."""

    @property
    def batch(self) -> int: ...
    @property
    def target_update_period(self) -> int: ...
    @property
    def epsilon(self) -> float: ...

    @property
    def decay(self) -> bool:
        """Whether the learning rate falls to 0 at the last step."""

    def build_network(self, source: TrainingSource, kind: LearnedKind, discount: float) -> Any:
        """The network for a source: `init(key, features)`, and `table(parameters, x, y)`."""

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective: ...

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """The rows that pass through the network for one batch, and the numbers held beside them.

        Both at least: pairs of rows, targets of all pairs, and the ids that are drawn.
        """

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        """The learning rate at one of so many steps; `rate` takes the place of its own."""

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Steps by which an update of the target looks further ahead."""

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """The step from which no more than a hundredth of the horizon is missing."""


class TrainingState(NamedTuple):
    """Where training is: all but `step` once a seed, seeds first."""

    parameters: Parameters
    target: Parameters
    optimiser: Any
    key: Array
    step: Array


STATE_AXES = TrainingState(0, 0, 0, 0, None)  # type: ignore[arg-type] # the axis of the seeds in each


@functools.partial(jit, static_argnames=("config", "network", "features"))
def initialise_state(config: Algorithm, network: Any, features: int, keys: Array) -> TrainingState:
    """The state before the first step, for each of the keys (n,)."""

    def one(key: Array) -> tuple[Parameters, Any, Array]:
        made, kept = jax.random.split(key)
        parameters = network.init(made, features)
        return parameters, _build_adam(config).init(parameters), kept

    parameters, optimiser, kept = jax.vmap(one)(keys)
    return TrainingState(parameters, parameters, optimiser, kept, jnp.int32(0))


def _build_adam(config: Algorithm) -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=config.epsilon)


class UpdatePlan(NamedTuple):
    """Steps cut at the updates of the target: before the next one, whole periods, and the rest."""

    head: int
    periods: int
    tail: int


def plan_updates(completed: int, updates: int, target_update_period: int) -> UpdatePlan:
    """The plan of some steps after those done.

    >>> planned(400, 1300, 500)
    Plan(head=100, periods=2, tail=200)
    """
    head = min(-completed % target_update_period, updates)
    return UpdatePlan(head, *divmod(updates - head, target_update_period))


def advance(
    state: TrainingState,
    source: TrainingSource,
    *,
    config: Algorithm,
    network: Any,
    kind: LearnedKind,
    discount: float,
    updates: int,
    total_updates: int,
    learning_rates: Array | None = None,
    mesh: Mesh | None = None,
) -> tuple[TrainingState, Array]:
    """The state some steps on, `of` so many in all, and the mean loss of each seed, (seeds,).

    `rates` (seeds,) are learning rates in place of that of the settings; `mesh` are the devices.
    """
    plan = plan_updates(int(state.step), updates, config.target_update_period)
    how = (config, network, kind, discount, plan, mesh)
    return _advance_compiled(state, source, jnp.int32(total_updates), learning_rates, *how)


@functools.partial(jit, static_argnames=("config", "network", "kind", "discount", "plan", "mesh"))
def _advance_compiled(
    state: TrainingState,
    source: TrainingSource,
    total_updates: Array,
    learning_rates: Array | None,
    config: Algorithm,
    network: Any,
    kind: LearnedKind,
    discount: float,
    plan: UpdatePlan,
    mesh: Mesh | None,
) -> tuple[TrainingState, Array]:
    shared = mesh is not None and mesh.shape[BATCH_AXIS] > 1

    def on_one(
        state: TrainingState, source: TrainingSource, of: Array, rates: Array | None
    ) -> tuple[TrainingState, Array]:
        """The seeds that one device has."""
        fixed = config.build_objective(source, network, kind, discount)

        def learner(step: Array) -> Objective:
            if isinstance(source, StateSource) or source.growth is None:
                return fixed
            return config.build_objective(source.available_at(step), network, kind, discount)

        one = functools.partial(_advance_seed, learner, config, plan, shared, of)
        if get_platform() != "cpu":
            axis = None if rates is None else 0
            return jax.vmap(one, in_axes=(STATE_AXES, axis), out_axes=(STATE_AXES, 0))(state, rates)
        # A processor has nothing to gain from seeds side by side, and its cache to lose.
        seeds = state._replace(step=jnp.broadcast_to(state.step, state.key.shape))
        after, losses = jax.lax.map(lambda each: one(*each), (seeds, rates))
        return after._replace(step=after.step[0]), losses

    if mesh is None:
        return on_one(state, source, total_updates, learning_rates)
    seeds, all_of_it = PartitionSpec(SEED_AXIS), PartitionSpec()
    states = TrainingState(seeds, seeds, seeds, seeds, all_of_it)  # type: ignore[arg-type]
    spread = jax.shard_map(
        on_one,
        mesh=mesh,
        in_specs=(states, all_of_it, all_of_it, seeds),
        out_specs=(states, seeds),
        check_vma=False,
    )
    return spread(state, source, total_updates, learning_rates)


def _advance_seed(
    objective_at: Callable[[Array], Objective],
    config: Algorithm,
    plan: UpdatePlan,
    data_parallel: bool,
    total_updates: Array,
    state: TrainingState,
    base_rate: Array | None,
) -> tuple[TrainingState, Array]:
    """One seed, on one device; `shared` where others take batches of their own for it."""
    adam = _build_adam(config)

    def run_updates(state: TrainingState, steps: int) -> tuple[TrainingState, Array]:
        """Steps between two updates of the target; the sum of their losses."""
        frozen = objective_at(state.step).prepare(state.target, state.step)

        def step(now: TrainingState, _: None) -> tuple[TrainingState, Array]:
            key, drawn = jax.random.split(now.key)
            if data_parallel:
                drawn = jax.random.fold_in(drawn, jax.lax.axis_index(BATCH_AXIS))
            loss_of = objective_at(now.step).loss
            loss, slope = jax.value_and_grad(loss_of)(now.parameters, frozen, drawn)
            if data_parallel:
                loss, slope = jax.lax.pmean((loss, slope), BATCH_AXIS)
            change, optimiser = adam.update(slope, now.optimiser, now.parameters)
            rate = config.learning_rate_at(now.step, total_updates, base_rate)
            parameters = jax.tree.map(lambda w, by: w - rate * by, now.parameters, change)
            return TrainingState(parameters, now.target, optimiser, key, now.step + 1), loss

        unroll = 1 if get_platform() == "cpu" else UNROLL
        after, losses = jax.lax.scan(step, state, length=steps, unroll=unroll)
        return after, losses.sum()

    def synchronise_and_run(state: TrainingState, steps: int) -> tuple[TrainingState, Array]:
        """Steps from an update of the target on."""
        return run_updates(state._replace(target=state.parameters), steps)

    total = jnp.float32(0.0)
    if plan.head:
        state, loss = run_updates(state, plan.head)
        total += loss
    if plan.periods:
        period = functools.partial(synchronise_and_run, steps=config.target_update_period)
        state, losses = jax.lax.scan(lambda now, _: period(now), state, length=plan.periods)
        total += losses.sum()
    if plan.tail:
        state, loss = synchronise_and_run(state, plan.tail)
        total += loss
    return state, total / (plan.head + plan.periods * config.target_update_period + plan.tail)


BYTES_PER_FLOAT = 4
"""Bytes of a number of a network."""


def require_training_memory(
    kind: LearnedKind, source: TrainingSource, config: Algorithm, network: Any, num_seeds: int
) -> None:
    """Raise TableTooLarge where training cannot fit: nothing has been allocated by then.

    The estimate is a lower bound: weights, target weights and Adam's two moments, before and after
    an update, with one gradient; the activations of one batch; and the pairs of one batch.

    Args:
        kind: which distance; named in the error.
        source: what is learned from.
        settings: how it is learned.
        network: the network for the source.
        seeds: how many networks are trained together.
    """
    features = source.scaling.num_features
    weights, widths = count_weights(network, features)
    state = BYTES_PER_FLOAT * weights * (2 * 4 + 1) * num_seeds
    free = get_free_device_memory()
    require_memory(
        f"learned.{kind}: {_pluralise(num_seeds, 'network')} of {weights:,} weights with the optimiser "
        "state" + (" need" if num_seeds > 1 else " needs"),
        state,
        "give fewer hidden units, copies or keys",
        free,
    )
    rows, pairs = config.estimate_batch_memory(source, network)
    batch = BYTES_PER_FLOAT * (rows * (features + widths) + pairs)
    require_memory(
        f"learned.{kind}: a batch of {config.batch:,} needs",
        state + batch,
        "lower the batch of the Settings",
        free,
    )


@contextlib.contextmanager
def report_exhausted_memory(kind: LearnedKind, batch: int) -> Iterator[None]:
    """Raise TableTooLarge where XLA runs out of memory, which an estimate may not foresee."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not re.search("out of memory|RESOURCE_EXHAUSTED", str(error), re.IGNORECASE):
            raise
        raise InsufficientMemory(
            f"learned.{kind}: a batch of {batch:,} ran out of memory; lower the batch of the "
            "Settings."
        ) from None


def count_weights(network: Any, features: int) -> tuple[int, int]:
    """The weights of a network, and the sum of the widths of its layers.

    >>> from bisimetric.learned.networks.pair_network import PairNetwork
    >>> count_weights(PairNetwork((5,)), 3)
    (41, 6)
    """
    copies = getattr(network, "copies", 1)
    # Copies are listed one by one, and may be too many for that.
    one = network if copies == 1 else dataclasses.replace(network, copies=1)
    shapes = [leaf.shape for leaf in jax.tree.leaves(_compute_shapes(one, features))]
    widths = (
        0 if isinstance(network, FunctionalNetwork) else sum(s[0] for s in shapes if len(s) == 1)
    )
    return copies * sum(math.prod(shape) for shape in shapes), copies * widths


def _compute_shapes(network: Any, features: int) -> Any:
    return jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))


def get_free_device_memory() -> float | None:
    """What the default device has free; None for a processor, whose memory is the machine's."""
    told = jax.devices()[0].memory_stats() or {}
    return told["bytes_limit"] - told.get("bytes_in_use", 0) if "bytes_limit" in told else None


def _pluralise(number: int, noun: str) -> str:
    return f"{number:,} {noun}s" if number > 1 else f"a {noun}"
