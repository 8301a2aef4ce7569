"""Fit networks: train in parts, with a progress bar, a history, checkpoints and early stopping."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray

from bisimetric._io import require_writable
from bisimetric._progress import jit, show_progress
from bisimetric.errors import Diverged, InputError, require_integer
from bisimetric.learned import files, training
from bisimetric.learned.config import DEFAULT_OPTIONS, PairQConfig, RunOptions, validate_number
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.networks.pair_network import PairNetwork, require_scalar_output
from bisimetric.learned.sources import StateSource, TrainingSource, TransitionSource
from bisimetric.learned.training import (
    Algorithm,
    TrainingState,
    build_mesh,
    report_exhausted_memory,
    require_training_memory,
    select_device,
)
from bisimetric.mdp import validate_discount

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""

SEED_LIMIT = 2**32
"""The number of seeds that JAX distinguishes."""

Metrics = dict[str, NDArray[np.float64]]
"""Recorded metrics by name, (seeds, records); `step` is (records,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class FitResult:
    """Networks that were trained together, one per seed, and the metrics recorded meanwhile.

    Attributes:
        kind: the distance.
        discount: its discount.
        config: the algorithm.
        source: what was learned from.
        network: the network; `table(parameters, x, y)` evaluates it on all pairs.
        updates: the length of the whole run.
        seeds: one per network.
        state: the training state; see `training.TrainingState`.
        history: the metrics of every record: `step` (updates so far), `loss`, and those of
            `measure`.
        learning_rates: (seeds,), where each seed has its own.
        mesh: the devices, where there were several.

    >>> [field.name for field in dataclasses.fields(FitResult)][:3]
    ['kind', 'discount', 'config']
    """

    kind: LearnedKind
    discount: float
    config: Algorithm
    source: TrainingSource
    network: Any
    updates: int
    seeds: tuple[int, ...]
    state: TrainingState
    history: Metrics
    learning_rates: tuple[float, ...] | None = None
    mesh: Mesh | None = None

    def parameters(self, index: int) -> Any:
        """Return the parameters of one network.

        Args:
            index: its position in `seeds`.

        Returns:
            A tree of arrays.
        """
        return jax.tree.map(lambda leaf: leaf[index], self.state.parameters)


def fit(
    kind: LearnedKind,
    source: TrainingSource,
    *,
    discount: float,
    updates: int,
    seeds: Sequence[int] = (0,),
    learning_rates: Sequence[float] | None = None,
    devices: Sequence[Any] | None = None,
    config: Algorithm | None = None,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> FitResult:
    """Train one network per seed, all of them in one compiled program.

    Args:
        kind: "bisimulation", "on_policy" or "mico".
        source: from `source_from_mdp` or `source_from_transitions`.
        discount: the discount of the distance.
        updates: gradient updates in all, including those before `options.resume`.
        seeds: one per network.
        learning_rates: one per seed, in place of that of `config`; seeds may then repeat.
        devices: `jax.devices()` or some of them; default: all of this process. Each gets an equal
            share of the seeds where their number allows that; the result does not depend on it.
        config: the algorithm, its network and hyperparameters; default: `PairQConfig()`.
        measure: from the parameters of one network to metrics by name, recorded with the loss; it
            is compiled and vectorised over the seeds.
        options: logging, early stopping, checkpoints and devices.

    Returns:
        The networks and their history.

    Raises:
        InputError: when an argument is out of range, or `options.resume` holds another run.
        Diverged: when the loss or a weight is not finite (the last good state is in
            `options.checkpoint`), or when updates change no weight because the ReLU on the output
            is 0 for all pairs, and so is its gradient.
        InsufficientMemory: when training would not fit into memory.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned import MetricNetwork, source_from_mdp
    >>> source = source_from_mdp("bisimulation", worlds.load("pessimism"))
    >>> config = PairQConfig(MetricNetwork((8,), num_groups=2), batch_size=16)
    >>> options = RunOptions(log_every=10)
    >>> result = fit(
    ...     "bisimulation", source, discount=0.9, updates=20, config=config, options=options
    ... )
    >>> result.history["step"].tolist(), result.history["loss"].shape
    ([10.0, 20.0], (1, 2))
    """
    config = config or PairQConfig()
    discount, updates = _validate_arguments(kind, source, config, discount, updates)
    seeds = _validate_seeds(kind, seeds)
    if options.checkpoint is not None:
        require_writable(options.checkpoint)
    with contextlib.ExitStack() as stack:
        if options.device is not None:
            stack.enter_context(jax.default_device(select_device(kind, options.device)))
        network = config.build_network(source, kind, discount)
        features = source.scaling.num_features
        require_scalar_output(network, features)
        require_training_memory(kind, source, config, network, len(seeds))
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        initial = FitResult(
            kind,
            discount,
            config,
            source,
            network,
            updates,
            seeds,
            training.initialise_state(config, network, features, keys),
            {},
            _validate_learning_rates(kind, learning_rates, len(seeds)),
            build_mesh(len(seeds), devices, data_parallel=options.data_parallel),
        )
        return _train(initial, measure, options)


def _train(
    initial: FitResult,
    measure: Callable[[Any], dict[str, Array]] | None,
    options: RunOptions,
) -> FitResult:
    """Train from an initial or resumed state to the last update, or to an early stop."""
    result, updates, log_every = initial, initial.updates, options.log_every
    uses_files = options.checkpoint is not None or options.resume is not None
    source_digest = files.compute_fingerprint(initial.source) if uses_files else ""
    if options.resume is not None:
        state, history = files.restore_run(options.resume, initial, source_digest)
        result = dataclasses.replace(initial, state=state, history=history)
    compiled_measure = None if measure is None else _compile_measure(measure)
    checkpoint_time = time.perf_counter()
    try:
        exhausted = report_exhausted_memory(result.kind, result.config)
        with exhausted, show_progress(1.0, f"learning {result.kind}") as progress:
            while (completed := int(result.state.step)) < updates:
                size = min(log_every - completed % log_every, updates - completed)
                after, loss = _advance(result, result.state, size)
                if not _is_finite(after, loss).all():
                    raise _build_divergence_error(result, size, options.checkpoint)
                if _is_stuck(result.state, after, loss).all() and _has_zero_output(result):
                    raise _build_dead_network_error(result)
                record = {
                    "step": np.float64(completed + size),
                    "loss": np.asarray(loss, np.float64),
                }
                if compiled_measure is not None:
                    metrics = compiled_measure(after.parameters)
                    record |= {name: np.asarray(each, np.float64) for name, each in metrics.items()}
                # One assignment, so that an interrupt leaves a state with its own history.
                result = dataclasses.replace(
                    result, state=after, history=_append_record(result.history, record)
                )
                progress.set_position((completed + size) / updates, _format_record(record))
                elapsed = time.perf_counter() - checkpoint_time
                if options.checkpoint is not None and elapsed > CHECKPOINT_SECONDS:
                    checkpoint_time = time.perf_counter()
                    files.save_run(options.checkpoint, result, source_digest)
                if options.patience is not None and _has_stalled(result, options.patience):
                    break
    finally:
        if options.checkpoint is not None:
            files.save_run(options.checkpoint, result, source_digest)
    return result


def _compile_measure(
    measure: Callable[[Any], dict[str, Array]],
) -> Callable[[Any], dict[str, Array]]:
    """Return the measure for all seeds; a tree of arrays is an argument of one program."""
    if isinstance(measure, jax.tree_util.Partial):
        return functools.partial(_measure_seeds, measure)
    return jit(jax.vmap(measure))


@jit
def _measure_seeds(measure: jax.tree_util.Partial, parameters: Any) -> dict[str, Array]:
    return jax.vmap(measure)(parameters)


def _advance(result: FitResult, state: TrainingState, updates: int) -> tuple[TrainingState, Array]:
    rates = result.learning_rates
    return training.advance(
        state,
        result.source,
        config=result.config,
        network=result.network,
        kind=result.kind,
        discount=result.discount,
        updates=updates,
        total_updates=result.updates,
        learning_rates=None if rates is None else jnp.asarray(rates, jnp.float32),
        mesh=result.mesh,
    )


@jit
def _is_finite(state: TrainingState, loss: Array) -> Array:
    """Return for each seed whether its loss, weights and optimiser state are finite."""
    finite = jnp.isfinite(loss)
    for leaf in jax.tree.leaves((state.parameters, state.optimiser)):
        finite &= jnp.isfinite(leaf).reshape(len(loss), -1).all(axis=1)
    return finite


@jit
def _is_stuck(before: TrainingState, after: TrainingState, loss: Array) -> Array:
    """Return for each seed whether no weight changed although the loss is not 0."""
    stuck = loss > 0
    for old, new in zip(
        jax.tree.leaves(before.parameters), jax.tree.leaves(after.parameters), strict=True
    ):
        stuck &= (old == new).reshape(len(loss), -1).all(axis=1)
    return stuck


def _has_zero_output(result: FitResult) -> bool:
    """Return whether the output of all networks is 0 for all pairs of a batch."""

    @jit
    def compute_max_output(parameters: Any, key: Array) -> Array:
        x = result.source.sample_batch(key, result.config.batch_size).x
        tables = jax.vmap(result.network.table, in_axes=(0, None, None))
        return jnp.abs(tables(parameters, x, x)).max()

    return not compute_max_output(result.state.parameters, jax.random.key(0))


def _append_record(history: Metrics, record: dict[str, Any]) -> Metrics:
    """Return the history with one more record; a metric missing on either side is NaN there."""
    before = len(history.get("step", ()))
    extended: Metrics = {}
    for name in {**record, **history}:
        new = record.get(name)
        if new is None:
            new = np.full(history[name].shape[:-1], np.nan)
        old = history.get(name)
        if old is None:
            old = np.full((*np.shape(new), before), np.nan)
        extended[name] = np.concatenate([old, np.asarray(new)[..., None]], axis=-1)
    return extended


def _format_record(record: dict[str, Any]) -> str:
    names = [name for name in record if name != "step"]
    return ", ".join(f"{name} {float(np.mean(record[name])):.3g}" for name in names)


def _has_stalled(result: FitResult, patience: int) -> bool:
    """Return whether no seed's loss has improved in the last `patience` records that count."""
    lookahead = result.config.effective_lookahead(result.source, result.network)
    settling = result.config.count_settling_updates(result.discount, lookahead)
    losses = result.history["loss"][:, result.history["step"] > settling]
    if losses.shape[1] <= patience:
        return False
    return bool((losses[:, -patience:].min(axis=1) >= losses[:, :-patience].min(axis=1)).all())


def _build_divergence_error(
    result: FitResult, updates: int, checkpoint: str | os.PathLike[str] | None
) -> Diverged:
    """Return the error; the update at fault is found by repeating the updates one by one."""
    last_good = int(result.state.step)
    step, after = last_good, result.state
    finite = np.ones(len(result.seeds), dtype=np.bool_)
    while finite.all() and step < last_good + updates:
        after, loss = _advance(result, after, 1)
        step, finite = step + 1, np.asarray(_is_finite(after, loss))
    saved = f" the state after update {last_good:,} is in {checkpoint};" if checkpoint else ""
    return Diverged(
        f"learned.{result.kind}: the loss or the weights of seed "
        f"{result.seeds[int(np.argmin(finite))]} are not finite at update {step:,};{saved} try a "
        "smaller learning_rate, or rewards on a smaller scale.",
        result,
    )


def _build_dead_network_error(result: FitResult) -> Diverged:
    other = (
        "a PairNetwork with output_activation='open', or "
        if isinstance(result.network, PairNetwork)
        else ""
    )
    return Diverged(
        f"learned.{result.kind}: after {int(result.state.step):,} updates the output is 0 for all "
        "pairs, where the gradient of a ReLU vanishes, and the loss is not 0; try "
        f"{other}another seed.",
        result,
    )


def _validate_seeds(kind: LearnedKind, seeds: Sequence[int]) -> tuple[int, ...]:
    caller = f"learned.{kind}"
    valid = tuple(require_integer(caller, "seed", seed, 0) for seed in seeds)
    if not valid:
        raise InputError("is empty", caller=caller, argument="seeds", remedy="give one per network")
    if max(valid) >= SEED_LIMIT:
        raise InputError(
            f"is {max(valid)} and must be below {SEED_LIMIT}", caller=caller, argument="seed"
        )
    return valid


def _validate_learning_rates(
    kind: LearnedKind, rates: Sequence[float] | None, num_seeds: int
) -> tuple[float, ...] | None:
    if rates is None:
        return None
    caller = f"learned.{kind}"
    valid = tuple(validate_number(caller, "learning_rates", rate, positive=True) for rate in rates)
    if len(valid) != num_seeds:
        raise InputError(
            f"has {len(valid)} entries and there are {num_seeds} seeds",
            caller=caller,
            argument="learning_rates",
            remedy="give one per seed",
        )
    return valid


def _validate_arguments(
    kind: LearnedKind, source: TrainingSource, config: Algorithm, discount: float, updates: int
) -> tuple[float, int]:
    caller = f"learned.{kind}"
    if kind == "reduced_mico":
        raise InputError(
            "is 'reduced_mico', which has no loss of its own",
            caller="learned.fit",
            argument="kind",
            remedy="fit 'mico', or use learned.reduced_mico",
        )
    if not isinstance(source, TrainingSource):
        raise InputError(
            f"is {type(source).__name__} and must be a training source",
            caller=caller,
            argument="source",
            remedy="use source_from_mdp or source_from_transitions",
        )
    if isinstance(source, TransitionSource) and len(source.reward) < config.batch_size:
        raise InputError(
            f"is {config.batch_size:,} and there are {len(source.reward):,} transitions",
            caller=caller,
            argument="batch_size",
            remedy="collect more, or lower it",
        )
    if (
        isinstance(source, StateSource)
        and not LOSSES[kind].same_actions
        and source.reward.shape[1] > 1
    ):
        raise InputError(
            f"has {source.reward.shape[1]} actions per state and no policy",
            caller=caller,
            argument="source",
            remedy=f"use source_from_mdp({kind!r}, mdp, policy)",
        )
    return validate_discount(discount), require_integer(caller, "updates", updates, 1)
