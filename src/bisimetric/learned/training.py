"""Training as one compiled program over all seeds, its devices, and the memory that it needs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from bisimetric._memory import require_memory
from bisimetric._progress import jit
from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.learned.losses import LearnedKind, Objective
from bisimetric.learned.networks.pair_layer import get_platform
from bisimetric.learned.networks.pair_network import FunctionalNetwork, Parameters
from bisimetric.learned.sources import StateSource, TrainingSource

SEED_AXIS, BATCH_AXIS = "seeds", "batches"
"""The axes of the device mesh."""

FLOATS_PER_SAMPLE = 11
"""Numbers that XLA holds per sampled state: 44 bytes with JAX 0.10.2 on a CPU."""

HORIZON_TOLERANCE = 0.01
"""The share of the horizon that may be missing when it counts as covered."""

UNROLL = 4
"""Updates per loop iteration on a GPU, where starting an iteration costs as much as an update."""

BYTES_PER_FLOAT = 4


class Algorithm(Protocol):
    """A learning algorithm, such as `PairQConfig` or `castro2020.Castro2020Config`."""

    name: ClassVar[str]

    @property
    def batch_size(self) -> int: ...
    @property
    def target_update_period(self) -> int: ...
    @property
    def epsilon(self) -> float: ...

    @property
    def decay(self) -> bool:
        """Whether the learning rate decays to 0 at the last update."""

    def build_network(self, source: TrainingSource, kind: LearnedKind, discount: float) -> Any:
        """Return the network for a source: `init(key, features)` and `table(parameters, x, y)`."""

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        """Return the loss and what it keeps fixed between synchronisations of the target."""

    def estimate_batch_memory(self, source: TrainingSource, network: Any) -> tuple[int, int]:
        """Return the rows that pass through the network per update, and the numbers held beside.

        Both are lower bounds: pairs of rows, targets of all pairs, and the sampled indices.
        """

    def learning_rate_at(
        self, step: Array, updates: Array, base_rate: Array | None = None
    ) -> Array:
        """Return the learning rate of one of `updates`; `base_rate` replaces the configured one."""

    def effective_lookahead(self, source: TrainingSource, network: Any) -> int:
        """Return the steps by which a synchronisation of the target extends the horizon."""

    def count_settling_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates after which the loss no longer grows with the horizon."""

    def count_horizon_updates(self, discount: float, lookahead: int = 1) -> int:
        """Return the updates that a run needs to cover 99% of the horizon."""


class TrainingState(NamedTuple):
    """The state of training: one entry per seed on the first axis, except for `step`."""

    parameters: Parameters
    target: Parameters
    optimiser: Any
    key: Array
    step: Array


STATE_AXES = TrainingState(0, 0, 0, 0, None)  # type: ignore[arg-type] # the axis of the seeds


class UpdatePlan(NamedTuple):
    """Updates split at the synchronisations of the target: before the first, periods, the rest."""

    head: int
    periods: int
    tail: int


def plan_updates(completed: int, updates: int, target_update_period: int) -> UpdatePlan:
    """Return the plan of `updates` after the completed ones.

    >>> plan_updates(400, 1300, 500)
    UpdatePlan(head=100, periods=2, tail=200)
    """
    head = min(-completed % target_update_period, updates)
    return UpdatePlan(head, *divmod(updates - head, target_update_period))


@functools.partial(jit, static_argnames=("config", "features"))
def initialise_state(config: Algorithm, network: Any, features: int, keys: Array) -> TrainingState:
    """Return the state before the first update, for each of the random keys (n,)."""

    def initialise_seed(key: Array) -> tuple[Parameters, Any, Array]:
        init_key, training_key = jax.random.split(key)
        parameters = network.init(init_key, features)
        return parameters, _build_adam(config).init(parameters), training_key

    parameters, optimiser, training_keys = jax.vmap(initialise_seed)(keys)
    return TrainingState(parameters, parameters, optimiser, training_keys, jnp.int32(0))


def _build_adam(config: Algorithm) -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=config.epsilon)


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
    """Return the state after some updates, and the mean loss of each seed, (seeds,).

    Args:
        state: the state before.
        source: what to learn from.
        config: the algorithm.
        network: the network for the source.
        kind: the distance.
        discount: its discount.
        updates: how many to take.
        total_updates: the length of the whole run, for the learning-rate schedule.
        learning_rates: (seeds,), in place of that of the configuration.
        mesh: the devices; None is the default one.
    """
    plan = plan_updates(int(state.step), updates, config.target_update_period)
    static = (config, network, kind, discount, plan, mesh)
    return _advance_compiled(state, source, jnp.int32(total_updates), learning_rates, *static)


@functools.partial(jit, static_argnames=("config", "kind", "discount", "plan", "mesh"))
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
    data_parallel = mesh is not None and mesh.shape[BATCH_AXIS] > 1

    def advance_on_device(
        state: TrainingState,
        source: TrainingSource,
        total_updates: Array,
        learning_rates: Array | None,
        network: Any,
    ) -> tuple[TrainingState, Array]:
        """Advance the seeds of one device."""
        fixed = config.build_objective(source, network, kind, discount)

        def objective_at(step: Array) -> Objective:
            if isinstance(source, StateSource) or source.growth is None:
                return fixed
            return config.build_objective(source.available_at(step), network, kind, discount)

        advance_seed = functools.partial(
            _advance_seed, objective_at, config, plan, data_parallel, total_updates
        )
        if get_platform() != "cpu":
            axis = None if learning_rates is None else 0
            return jax.vmap(advance_seed, in_axes=(STATE_AXES, axis), out_axes=(STATE_AXES, 0))(
                state, learning_rates
            )
        # Seeds one after the other: vmap would gain nothing on a CPU and overflow its cache.
        seeds = state._replace(step=jnp.broadcast_to(state.step, state.key.shape))
        after, losses = jax.lax.map(lambda each: advance_seed(*each), (seeds, learning_rates))
        return after._replace(step=after.step[0]), losses

    if mesh is None:
        return advance_on_device(state, source, total_updates, learning_rates, network)
    by_seed, replicated = PartitionSpec(SEED_AXIS), PartitionSpec()
    state_specs = TrainingState(by_seed, by_seed, by_seed, by_seed, replicated)  # type: ignore[arg-type]
    advance_on_mesh = jax.shard_map(
        advance_on_device,
        mesh=mesh,
        in_specs=(state_specs, replicated, replicated, by_seed, replicated),
        out_specs=(state_specs, by_seed),
        check_vma=False,
    )
    return advance_on_mesh(state, source, total_updates, learning_rates, network)


def _advance_seed(
    objective_at: Callable[[Array], Objective],
    config: Algorithm,
    plan: UpdatePlan,
    data_parallel: bool,
    total_updates: Array,
    state: TrainingState,
    base_rate: Array | None,
) -> tuple[TrainingState, Array]:
    """Advance one seed on one device; data-parallel devices draw batches of their own for it."""
    adam = _build_adam(config)

    def run_updates(state: TrainingState, updates: int) -> tuple[TrainingState, Array]:
        """Take updates between two synchronisations of the target; sum their losses."""
        prepared = objective_at(state.step).prepare(state.target, state.step)

        def update(now: TrainingState, _: None) -> tuple[TrainingState, Array]:
            key, batch_key = jax.random.split(now.key)
            if data_parallel:
                batch_key = jax.random.fold_in(batch_key, jax.lax.axis_index(BATCH_AXIS))
            compute_loss = objective_at(now.step).loss
            loss, gradient = jax.value_and_grad(compute_loss)(now.parameters, prepared, batch_key)
            if data_parallel:
                loss, gradient = jax.lax.pmean((loss, gradient), BATCH_AXIS)
            change, optimiser = adam.update(gradient, now.optimiser, now.parameters)
            rate = config.learning_rate_at(now.step, total_updates, base_rate)
            parameters = jax.tree.map(lambda w, by: w - rate * by, now.parameters, change)
            return TrainingState(parameters, now.target, optimiser, key, now.step + 1), loss

        unroll = 1 if get_platform() == "cpu" else UNROLL
        after, losses = jax.lax.scan(update, state, length=updates, unroll=unroll)
        return after, losses.sum()

    def synchronise_and_run(state: TrainingState, updates: int) -> tuple[TrainingState, Array]:
        return run_updates(state._replace(target=state.parameters), updates)

    total = jnp.float32(0.0)
    if plan.head:
        state, loss = run_updates(state, plan.head)
        total += loss
    if plan.periods:
        run_period = functools.partial(synchronise_and_run, updates=config.target_update_period)
        state, losses = jax.lax.scan(lambda now, _: run_period(now), state, length=plan.periods)
        total += losses.sum()
    if plan.tail:
        state, loss = synchronise_and_run(state, plan.tail)
        total += loss
    return state, total / (plan.head + plan.periods * config.target_update_period + plan.tail)


def select_device(kind: LearnedKind, device: str | None) -> Any:
    """Return the first device of a platform, "cpu" or "gpu"; None is the default of JAX."""
    if device is None:
        return jax.devices()[0]
    try:
        return jax.devices(device)[0]
    except (RuntimeError, TypeError, AttributeError):
        available = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise InputError(
            f"is {device!r} and only {available} is available",
            caller=f"learned.{kind}",
            argument="device",
            remedy="leave it out, or pip install 'bisimetric[gpu]'",
        ) from None


def build_mesh(
    num_seeds: int, devices: Sequence[Any] | None = None, *, data_parallel: bool = False
) -> Mesh | None:
    """Return the mesh (SEED_AXIS, BATCH_AXIS) of a run; None where one device is enough.

    As many devices as divide the number of seeds get an equal share of them. With `data_parallel`
    the devices that are left over draw batches of their own for the same seeds.
    """
    devices_used = list(list_local_devices() if devices is None else devices)
    across = math.gcd(num_seeds, len(devices_used))
    copies = len(devices_used) // across if data_parallel else 1
    if across * copies == 1 and devices is None:
        return None
    return Mesh(
        np.array(devices_used[: across * copies]).reshape(across, copies), (SEED_AXIS, BATCH_AXIS)
    )


def list_local_devices() -> list[Any]:
    """Return all devices of this process, of the platform that JAX computes on by default."""
    (default,) = jnp.zeros(()).devices()
    return jax.local_devices(backend=default.platform)


def require_training_memory(
    kind: LearnedKind, source: TrainingSource, config: Algorithm, network: Any, num_seeds: int
) -> None:
    """Raise InsufficientMemory where training cannot fit, before anything is allocated.

    The estimate is a lower bound: weights, target weights and Adam's two moments, before and after
    an update, with one gradient; the activations of one batch; and the pairs of one batch.

    Args:
        kind: the distance, named in the error.
        source: what is learned from.
        config: the algorithm.
        network: the network for the source.
        num_seeds: how many networks are trained together.
    """
    features = source.scaling.num_features
    weights, widths = count_weights(network, features)
    state_bytes = BYTES_PER_FLOAT * weights * (2 * 4 + 1) * num_seeds
    free = get_free_device_memory()
    subject = f"{num_seeds:,} networks" if num_seeds > 1 else "a network"
    require_memory(
        f"learned.{kind}: {subject} of {weights:,} weights with the optimiser state"
        + (" need" if num_seeds > 1 else " needs"),
        state_bytes,
        "give fewer hidden units, num_networks or seeds",
        free,
    )
    rows, pairs = config.estimate_batch_memory(source, network)
    batch_bytes = BYTES_PER_FLOAT * (rows * (features + widths) + pairs)
    require_memory(
        f"learned.{kind}: a batch of {config.batch_size:,} needs",
        state_bytes + batch_bytes,
        f"lower the batch of the {type(config).__name__}",
        free,
    )


@contextlib.contextmanager
def report_exhausted_memory(kind: LearnedKind, config: Algorithm) -> Iterator[None]:
    """Raise InsufficientMemory where XLA runs out of memory, which an estimate may not foresee."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not re.search("out of memory|RESOURCE_EXHAUSTED", str(error), re.IGNORECASE):
            raise
        raise InsufficientMemory(
            f"learned.{kind}: a batch of {config.batch_size:,} ran out of memory; lower batch_size "
            f"of the {type(config).__name__}."
        ) from None


def count_weights(network: Any, features: int) -> tuple[int, int]:
    """Return the number of weights of a network, and the sum of the widths of its layers.

    >>> from bisimetric.learned.networks.pair_network import PairNetwork
    >>> count_weights(PairNetwork((5,)), 3)
    (41, 6)
    """
    num_networks = getattr(network, "num_networks", 1)
    # Only one of them is expanded: a damaged file may claim too many to list.
    one = network if num_networks == 1 else dataclasses.replace(network, num_networks=1)
    tree = jax.eval_shape(lambda key: one.init(key, features), jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    functional = isinstance(network, FunctionalNetwork)
    widths = 0 if functional else sum(s[0] for s in shapes if len(s) == 1)
    return num_networks * sum(math.prod(shape) for shape in shapes), num_networks * widths


def get_free_device_memory() -> float | None:
    """Return the free bytes of the default device; None for a CPU, which shares the machine's."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None
