"""Fitting: training in parts, with a bar, a history, checkpoints, and an end when it is time."""

from __future__ import annotations

import dataclasses
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
from bisimetric.learned.config import PairQConfig, validate_number
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.networks.pair_network import PairNetwork, require_scalar_output
from bisimetric.learned.sources import StateSource, TrainingSource, TransitionSource
from bisimetric.learned.training import (
    Algorithm,
    TrainingState,
    build_mesh,
    report_exhausted_memory,
    require_training_memory,
)
from bisimetric.mdp import validate_discount

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""

SEED_LIMIT = 2**32
"""How many keys JAX tells apart."""

History = dict[str, NDArray[np.float64]]
"""What was measured, by name, (seeds, records); `step` is (records,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class FitResult:
    """Networks that were trained together, one a key, and what was measured on the way.

    Attributes:
        kind, discount, settings, source: what was learned, from what and how.
        network: what was trained: `table(parameters, x, y)` is what it says of states.
        steps: how many it was to take.
        keys: (seeds,).
        state: the training state; see `training.State`.
        history: the metrics at every record: `step`, `loss`, and those asked for.
        learning_rates: (seeds,), where each had one of its own.
        mesh: the devices, where there were several.
    """

    kind: LearnedKind
    discount: float
    config: Algorithm
    source: TrainingSource
    network: Any
    updates: int
    seeds: tuple[int, ...]
    state: TrainingState
    history: History
    learning_rates: tuple[float, ...] | None = None
    mesh: Mesh | None = None

    def parameters(self, index: int) -> Any:
        """The parameters of one of the networks."""
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
    data_parallel: bool = False,
    config: Algorithm | None = None,
    log_every: int = 500,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Trains one network a key, all of them in one compiled program.

    Args:
        steps: in all, those before `resume` included.
        learning_rates: one a key, in place of that of the settings; keys may come again then.
        devices: those to train on, `jax.devices()` or some of them; default: all of this process.
            Each takes as many of the keys, where their number allows that; no result depends on it.
        share: devices that are left over take batches of their own for the same keys, and each step
            follows the mean of all: one run on several devices, with larger batches.
        every: steps between two records of the history.
        measure: from the parameters of one network to numbers by name, recorded each time; it is
            compiled, and runs for all keys at once.
        patience: stop when the loss has not become smaller in so many records, for any key. While
            the horizon still grows the loss does too: records count from where no more than 1% of
            it is missing.
        checkpoint: a file to keep the run in, each minute and at the end, also at an early one.
        resume: such a file to go on from; the run is the same as if it had never stopped. All must
            be as it was there, but the learning rate, and `steps` where the rate does not depend
            on them.

    Raises `Diverged` where the loss or a weight is not a number, the last good state staying at
    `checkpoint`; and where no network learns any more though its loss is not 0, since the ReLU on
    its output is 0 for all pairs, and so is its slope.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned.networks.metric_networks import MetricNetwork
    >>> from bisimetric.learned.build_sources import of_mdp
    >>> source = of_mdp("bisimulation", worlds.load("pessimism"))
    >>> small = Settings(MetricNetwork((8,), groups=2), batch=16)
    >>> done = fit("bisimulation", source, discount=0.9, steps=20, every=10, settings=small)
    >>> done.history["step"].tolist(), done.history["loss"].shape
    ([10.0, 20.0], (1, 2))
    """
    config = config or PairQConfig()
    discount, updates, log_every, patience = _validate_arguments(
        kind, source, config, discount, updates, log_every, patience
    )
    chosen = _validate_seeds(kind, seeds)
    if checkpoint is not None:
        require_writable(checkpoint)
    kept = checkpoint is not None or resume is not None
    fingerprint = files.compute_fingerprint(source) if kept else ""
    network = config.build_network(source, kind, discount)
    require_scalar_output(network, source.scaling.num_features)
    require_training_memory(kind, source, config, network, len(chosen))
    keys = jnp.stack([jax.random.key(seed) for seed in chosen])
    state = training.initialise_state(config, network, source.scaling.num_features, keys)
    history: History = {}
    if resume is not None:
        state, history = files.restore_run(
            resume, kind, discount, config, chosen, fingerprint, state, updates
        )
        if int(state.step) > updates:
            raise InputError(
                f"{resume} holds {int(state.step):,} steps and {updates:,} are asked for, those "
                "included; ask for more."
            )
    rates = _validate_learning_rates(kind, learning_rates, len(chosen))
    mesh = build_mesh(len(chosen), devices, data_parallel=data_parallel)
    how = (network, updates, chosen, state, history, rates, mesh)
    reached = FitResult(kind, discount, config, source, *how)
    measured = None if measure is None else jit(jax.vmap(measure))
    began = time.perf_counter()
    try:
        exhausted = report_exhausted_memory(kind, config.batch)
        with exhausted, show_progress(1.0, f"learning {kind}") as progress:
            while (done := int(reached.state.step)) < updates:
                size = min(log_every - done % log_every, updates - done)
                after, loss = _advance(reached, reached.state, size)
                if not _is_finite(after, loss).all():
                    raise _build_divergence_error(reached, size, checkpoint)
                if _is_stuck(reached.state, after, loss).all() and _has_zero_output(reached):
                    raise _build_dead_network_error(reached)
                record = {"step": np.float64(done + size), "loss": np.asarray(loss, np.float64)}
                if measured is not None:
                    found = measured(after.parameters)
                    record |= {name: np.asarray(each, np.float64) for name, each in found.items()}
                # In one piece, so that an interrupt leaves a state with its own history.
                reached = dataclasses.replace(
                    reached, state=after, history=_append_record(reached.history, record)
                )
                progress.set_position((done + size) / updates, _format_record(record))
                if checkpoint is not None and time.perf_counter() - began > CHECKPOINT_SECONDS:
                    began = time.perf_counter()
                    files.save_run(checkpoint, reached, fingerprint)
                if patience is not None and _has_stalled(reached, patience):
                    break
    finally:
        if checkpoint is not None:
            files.save_run(checkpoint, reached, fingerprint)
    return reached


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
    """Whether the loss of each seed is finite, and all that it keeps."""
    found = jnp.isfinite(loss)
    for leaf in jax.tree.leaves((state.parameters, state.optimiser)):
        found &= jnp.isfinite(leaf).reshape(len(loss), -1).all(axis=1)
    return found


@jit
def _is_stuck(before: TrainingState, after: TrainingState, loss: Array) -> Array:
    """Whether no step changed any weight of a seed, though it has something to learn."""
    found = loss > 0
    for one, other in zip(
        jax.tree.leaves(before.parameters), jax.tree.leaves(after.parameters), strict=True
    ):
        found &= (one == other).reshape(len(loss), -1).all(axis=1)
    return found


def _has_zero_output(result: FitResult) -> bool:
    """Whether the output of all networks is 0 for all pairs of a batch."""

    @jit
    def largest(parameters: Any, key: Array) -> Array:
        x = result.source.sample_batch(key, result.config.batch).x
        tables = jax.vmap(result.network.table, in_axes=(0, None, None))
        return jnp.abs(tables(parameters, x, x)).max()

    return not largest(result.state.parameters, jax.random.key(0))


def _append_record(history: History, record: dict[str, Any]) -> History:
    """A history with one more record; what one of them lacks is NaN there."""
    before = len(history.get("step", ()))
    longer: History = {}
    for name in {**record, **history}:
        new = record.get(name)
        if new is None:
            new = np.full(history[name].shape[:-1], np.nan)
        old = history.get(name)
        if old is None:
            old = np.full((*np.shape(new), before), np.nan)
        longer[name] = np.concatenate([old, np.asarray(new)[..., None]], axis=-1)
    return longer


def _format_record(record: dict[str, Any]) -> str:
    names = [name for name in record if name != "step"]
    return ", ".join(f"{name} {float(np.mean(record[name])):.3g}" for name in names)


def _has_stalled(result: FitResult, patience: int) -> bool:
    """Whether the losses have not become smaller for any seed, among the records that count."""
    reach = result.config.effective_lookahead(result.source, result.network)
    settled = result.config.count_settling_updates(result.discount, reach)
    losses = result.history["loss"][:, result.history["step"] > settled]
    if losses.shape[1] <= patience:
        return False
    return bool((losses[:, -patience:].min(axis=1) >= losses[:, :-patience].min(axis=1)).all())


def _build_divergence_error(
    result: FitResult, updates: int, checkpoint: str | os.PathLike[str] | None
) -> Diverged:
    """What went wrong, found by taking the steps again, one by one."""
    good = int(result.state.step)
    step, after = good, result.state
    finite = np.ones(len(result.seeds), dtype=np.bool_)
    while finite.all() and step < good + updates:
        after, loss = _advance(result, after, 1)
        step, finite = step + 1, np.asarray(_is_finite(after, loss))
    where = f" the state after step {good:,} is kept in {checkpoint};" if checkpoint else ""
    return Diverged(
        f"learned.{result.kind}: the loss or the weights of key {result.seeds[int(np.argmin(finite))]} "
        f"are not finite at step {step:,};{where} try a smaller learning_rate, or rewards on a "
        "smaller scale.",
        result,
    )


def _build_dead_network_error(result: FitResult) -> Diverged:
    other = (
        "a PairNetwork with output='open', or " if isinstance(result.network, PairNetwork) else ""
    )
    return Diverged(
        f"learned.{result.kind}: after {int(result.state.step):,} steps no step changes the network any "
        "more and it is still wrong: its output is 0 for all pairs, where a ReLU has no slope; try "
        f"{other}another key.",
        result,
    )


def _validate_seeds(kind: LearnedKind, seeds: Sequence[int]) -> tuple[int, ...]:
    chosen = tuple(require_integer(f"learned.{kind}", "key", key, 0) for key in seeds)
    if not chosen:
        raise InputError(f"learned.{kind}: there are no keys; give one for each network.")
    if max(chosen) >= SEED_LIMIT:
        raise InputError(f"learned.{kind}: key is {max(chosen)} and must be below {SEED_LIMIT}.")
    return chosen


def _validate_learning_rates(
    kind: LearnedKind, rates: Sequence[float] | None, num_seeds: int
) -> tuple[float, ...] | None:
    if rates is None:
        return None
    found = tuple(validate_number("learning_rates", rate, positive=True) for rate in rates)
    if len(found) != num_seeds:
        raise InputError(
            f"learned.{kind}: there are {len(found)} learning_rates and {num_seeds} keys; give one "
            "a key."
        )
    return found


def _validate_arguments(
    kind: LearnedKind,
    source: TrainingSource,
    config: Algorithm,
    discount: float,
    updates: int,
    log_every: int,
    patience: int | None,
) -> tuple[float, int, int, int | None]:
    where = f"learned.{kind}"
    if not isinstance(source, TrainingSource):
        raise InputError(
            f"{where}: the source is {type(source).__name__} and must be made by of_mdp or "
            "of_transitions."
        )
    if isinstance(source, TransitionSource) and len(source.reward) < config.batch:
        raise InputError(
            f"{where}: there are {len(source.reward):,} steps to learn from and a batch takes "
            f"{config.batch:,}; collect more, or lower the batch of the Settings."
        )
    if (
        isinstance(source, StateSource)
        and not LOSSES[kind].same_actions
        and source.reward.shape[1] > 1
    ):
        raise InputError(
            f"{where}: the source has {source.reward.shape[1]} actions a state and not those of a "
            f"policy; make it with of_mdp({kind!r}, mdp, policy)."
        )
    return (
        validate_discount(discount),
        require_integer(where, "steps", updates, 1),
        require_integer(where, "every", log_every, 1),
        None if patience is None else require_integer(where, "patience", patience, 1),
    )
