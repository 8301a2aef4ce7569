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

from bisimetric.errors import Diverged, InputError, whole
from bisimetric.files import check_writable
from bisimetric.interrupts import jit
from bisimetric.learned import files, training
from bisimetric.learned.losses import LOSSES, Kind
from bisimetric.learned.memory import name_exhausted_memory, require_training_memory
from bisimetric.learned.networks.pairs import PairNetwork, refuse_other_than_numbers
from bisimetric.learned.numbers import number
from bisimetric.learned.settings import Settings
from bisimetric.learned.sources import Record, Source, States
from bisimetric.learned.spreading import mesh_of
from bisimetric.learned.training import Recipe, State
from bisimetric.mdp import checked_discount
from bisimetric.progress import bar

KEEP = 60.0
"""Seconds between two checkpoints."""

KEYS = 2**32
"""How many keys JAX tells apart."""

Metrics = dict[str, NDArray[np.float64]]
"""What was measured, by name, (seeds, records); `step` is (records,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
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

    kind: Kind
    discount: float
    settings: Recipe
    source: Source
    network: Any
    steps: int
    keys: tuple[int, ...]
    state: State
    history: Metrics
    learning_rates: tuple[float, ...] | None = None
    mesh: Mesh | None = None

    def parameters(self, seed: int) -> Any:
        """The parameters of one of the networks."""
        return jax.tree.map(lambda leaf: leaf[seed], self.state.parameters)


def fit(
    kind: Kind,
    source: Source,
    *,
    discount: float,
    steps: int,
    keys: Sequence[int] = (0,),
    learning_rates: Sequence[float] | None = None,
    devices: Sequence[Any] | None = None,
    share: bool = False,
    settings: Recipe | None = None,
    every: int = 500,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Fit:
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
    >>> from bisimetric.learned.networks.coupled import MetricNetwork
    >>> from bisimetric.learned.making import of_mdp
    >>> source = of_mdp("bisimulation", worlds.load("pessimism"))
    >>> small = Settings(MetricNetwork((8,), groups=2), batch=16)
    >>> done = fit("bisimulation", source, discount=0.9, steps=20, every=10, settings=small)
    >>> done.history["step"].tolist(), done.history["loss"].shape
    ([10.0, 20.0], (1, 2))
    """
    settings = settings or Settings()
    discount, steps, every, patience = _checked(
        kind, source, settings, discount, steps, every, patience
    )
    chosen = _keys(kind, keys)
    if checkpoint is not None:
        check_writable(checkpoint)
    kept = checkpoint is not None or resume is not None
    fingerprint = files.fingerprint(source) if kept else ""
    network = settings.network_of(source, kind, discount)
    refuse_other_than_numbers(network, source.scale.features)
    require_training_memory(kind, source, settings, network, len(chosen))
    seeds = jnp.stack([jax.random.key(key) for key in chosen])
    state = training.started(settings, network, source.scale.features, seeds)
    history: Metrics = {}
    if resume is not None:
        state, history = files.restored(
            resume, kind, discount, settings, chosen, fingerprint, state, steps
        )
        if int(state.step) > steps:
            raise InputError(
                f"{resume} holds {int(state.step):,} steps and {steps:,} are asked for, those "
                "included; ask for more."
            )
    rates = _rates(kind, learning_rates, len(chosen))
    mesh = mesh_of(len(chosen), devices, share=share)
    how = (network, steps, chosen, state, history, rates, mesh)
    reached = Fit(kind, discount, settings, source, *how)
    measured = None if measure is None else jit(jax.vmap(measure))
    began = time.perf_counter()
    try:
        exhausted = name_exhausted_memory(kind, settings.batch)
        with exhausted, bar(1.0, f"learning {kind}") as progress:
            while (done := int(reached.state.step)) < steps:
                size = min(every - done % every, steps - done)
                after, loss = _advanced(reached, reached.state, size)
                if not _finite(after, loss).all():
                    raise _diverged(reached, size, checkpoint)
                if _stuck(reached.state, after, loss).all() and _silent(reached):
                    raise _dead(reached)
                record = {"step": np.float64(done + size), "loss": np.asarray(loss, np.float64)}
                if measured is not None:
                    found = measured(after.parameters)
                    record |= {name: np.asarray(each, np.float64) for name, each in found.items()}
                # In one piece, so that an interrupt leaves a state with its own history.
                reached = dataclasses.replace(
                    reached, state=after, history=_longer(reached.history, record)
                )
                progress.at((done + size) / steps, _note(record))
                if checkpoint is not None and time.perf_counter() - began > KEEP:
                    began = time.perf_counter()
                    files.save(checkpoint, reached, fingerprint)
                if patience is not None and _stalled(reached, patience):
                    break
    finally:
        if checkpoint is not None:
            files.save(checkpoint, reached, fingerprint)
    return reached


def _advanced(fit: Fit, state: State, steps: int) -> tuple[State, Array]:
    rates = fit.learning_rates
    return training.advanced(
        state,
        fit.source,
        settings=fit.settings,
        network=fit.network,
        kind=fit.kind,
        discount=fit.discount,
        steps=steps,
        of=fit.steps,
        rates=None if rates is None else jnp.asarray(rates, jnp.float32),
        mesh=fit.mesh,
    )


@jit
def _finite(state: State, loss: Array) -> Array:
    """Whether the loss of each seed is finite, and all that it keeps."""
    found = jnp.isfinite(loss)
    for leaf in jax.tree.leaves((state.parameters, state.optimiser)):
        found &= jnp.isfinite(leaf).reshape(len(loss), -1).all(axis=1)
    return found


@jit
def _stuck(before: State, after: State, loss: Array) -> Array:
    """Whether no step changed any weight of a seed, though it has something to learn."""
    found = loss > 0
    for one, other in zip(
        jax.tree.leaves(before.parameters), jax.tree.leaves(after.parameters), strict=True
    ):
        found &= (one == other).reshape(len(loss), -1).all(axis=1)
    return found


def _silent(fit: Fit) -> bool:
    """Whether the output of all networks is 0 for all pairs of a batch."""

    @jit
    def largest(parameters: Any, key: Array) -> Array:
        x = fit.source.batch(key, fit.settings.batch).x
        tables = jax.vmap(fit.network.table, in_axes=(0, None, None))
        return jnp.abs(tables(parameters, x, x)).max()

    return not largest(fit.state.parameters, jax.random.key(0))


def _longer(history: Metrics, record: dict[str, Any]) -> Metrics:
    """A history with one more record; what one of them lacks is NaN there."""
    before = len(history.get("step", ()))
    longer: Metrics = {}
    for name in {**record, **history}:
        new = record.get(name)
        if new is None:
            new = np.full(history[name].shape[:-1], np.nan)
        old = history.get(name)
        if old is None:
            old = np.full((*np.shape(new), before), np.nan)
        longer[name] = np.concatenate([old, np.asarray(new)[..., None]], axis=-1)
    return longer


def _note(record: dict[str, Any]) -> str:
    names = [name for name in record if name != "step"]
    return ", ".join(f"{name} {float(np.mean(record[name])):.3g}" for name in names)


def _stalled(fit: Fit, patience: int) -> bool:
    """Whether the losses have not become smaller for any seed, among the records that count."""
    reach = fit.settings.reach(fit.source, fit.network)
    settled = fit.settings.settled(fit.discount, reach)
    losses = fit.history["loss"][:, fit.history["step"] > settled]
    if losses.shape[1] <= patience:
        return False
    return bool((losses[:, -patience:].min(axis=1) >= losses[:, :-patience].min(axis=1)).all())


def _diverged(fit: Fit, size: int, checkpoint: str | os.PathLike[str] | None) -> Diverged:
    """What went wrong, found by taking the steps again, one by one."""
    good = int(fit.state.step)
    step, after = good, fit.state
    finite = np.ones(len(fit.keys), dtype=np.bool_)
    while finite.all() and step < good + size:
        after, loss = _advanced(fit, after, 1)
        step, finite = step + 1, np.asarray(_finite(after, loss))
    where = f" the state after step {good:,} is kept in {checkpoint};" if checkpoint else ""
    return Diverged(
        f"learned.{fit.kind}: the loss or the weights of key {fit.keys[int(np.argmin(finite))]} "
        f"are not finite at step {step:,};{where} try a smaller learning_rate, or rewards on a "
        "smaller scale.",
        fit,
    )


def _dead(fit: Fit) -> Diverged:
    other = "a PairNetwork with output='open', or " if isinstance(fit.network, PairNetwork) else ""
    return Diverged(
        f"learned.{fit.kind}: after {int(fit.state.step):,} steps no step changes the network any "
        "more and it is still wrong: its output is 0 for all pairs, where a ReLU has no slope; try "
        f"{other}another key.",
        fit,
    )


def _keys(kind: Kind, keys: Sequence[int]) -> tuple[int, ...]:
    chosen = tuple(whole(f"learned.{kind}", "key", key, 0) for key in keys)
    if not chosen:
        raise InputError(f"learned.{kind}: there are no keys; give one for each network.")
    if max(chosen) >= KEYS:
        raise InputError(f"learned.{kind}: key is {max(chosen)} and must be below {KEYS}.")
    return chosen


def _rates(kind: Kind, rates: Sequence[float] | None, networks: int) -> tuple[float, ...] | None:
    if rates is None:
        return None
    found = tuple(number("learning_rates", rate, above=True) for rate in rates)
    if len(found) != networks:
        raise InputError(
            f"learned.{kind}: there are {len(found)} learning_rates and {networks} keys; give one "
            "a key."
        )
    return found


def _checked(
    kind: Kind,
    source: Source,
    settings: Recipe,
    discount: float,
    steps: int,
    every: int,
    patience: int | None,
) -> tuple[float, int, int, int | None]:
    where = f"learned.{kind}"
    if not isinstance(source, Source):
        raise InputError(
            f"{where}: the source is {type(source).__name__} and must be made by of_mdp or "
            "of_transitions."
        )
    if isinstance(source, Record) and len(source.reward) < settings.batch:
        raise InputError(
            f"{where}: there are {len(source.reward):,} steps to learn from and a batch takes "
            f"{settings.batch:,}; collect more, or lower the batch of the Settings."
        )
    if isinstance(source, States) and not LOSSES[kind].same_actions and source.reward.shape[1] > 1:
        raise InputError(
            f"{where}: the source has {source.reward.shape[1]} actions a state and not those of a "
            f"policy; make it with of_mdp({kind!r}, mdp, policy)."
        )
    return (
        checked_discount(discount),
        whole(where, "steps", steps, 1),
        whole(where, "every", every, 1),
        None if patience is None else whole(where, "patience", patience, 1),
    )
