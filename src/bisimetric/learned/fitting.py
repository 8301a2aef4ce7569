"""Fitting: training in parts, with a bar, a history, checkpoints, and an end when it is time."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bisimetric.errors import Diverged, InputError
from bisimetric.files import check_writable
from bisimetric.learned import files, training
from bisimetric.learned.losses import Kind
from bisimetric.learned.sources import Source
from bisimetric.learned.training import Settings, State
from bisimetric.progress import bar, compiling

KEEP = 60.0
"""Seconds between two checkpoints."""

Metrics = dict[str, NDArray[np.float64]]
"""What was measured, by name, (seeds, records); `step` is (records,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """Networks that were trained together, one a key, and what was measured on the way.

    Attributes:
        kind, discount, settings, source: what was learned, from what and how.
        keys: (seeds,).
        state: the training state; see `training.State`.
        history: the metrics at every record: `step`, `loss`, and those asked for.
    """

    kind: Kind
    discount: float
    settings: Settings
    source: Source
    keys: tuple[int, ...]
    state: State
    history: Metrics

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
    settings: Settings | None = None,
    every: int = 500,
    measure: Callable[[Any], dict[str, Array]] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Fit:
    """Trains one network a key, all of them in one compiled program.

    Args:
        steps: in all, those before `resume` included.
        every: steps between two records of the history.
        measure: from the parameters of one network to numbers by name, recorded each time; it is
            compiled, and runs for all keys at once.
        patience: stop when the loss has not become smaller in so many records, for any key.
        checkpoint: a file to keep the run in, each minute and at the end.
        resume: such a file to go on from; the run is the same as if it had never stopped.

    Raises `Diverged` where the loss is not a number: the last good state stays at `checkpoint`.
    """
    settings = settings or Settings()
    _check(kind, source, settings, steps, every, patience)
    chosen = tuple(_key(kind, key) for key in keys)
    if checkpoint is not None:
        check_writable(checkpoint)
    seeds = jnp.stack([jax.random.key(key) for key in chosen])
    state = training.started(settings, source.scale.features, seeds)
    history: dict[str, list[NDArray[np.float64]]] = {}
    if resume is not None:
        state, history = files.restored(resume, kind, discount, settings, chosen, state)
    measured = None if measure is None else jax.jit(jax.vmap(measure))

    def kept() -> Fit:
        found = {name: np.stack(each, axis=-1) for name, each in history.items()}
        return Fit(kind, discount, settings, source, chosen, state, found)

    began = time.perf_counter()
    with compiling("the training step"), bar(1.0, f"learning {kind}") as progress:
        done = int(state.step)
        while done < steps:
            size = min(every - done % every, steps - done)
            after, loss = training.advanced(
                state, source, settings=settings, kind=kind, discount=discount, steps=size
            )
            found = np.asarray(loss, np.float64)
            if not np.isfinite(found).all():
                raise _diverged(kind, done, size, found, chosen, checkpoint, kept)
            state, done = after, done + size
            records = {"step": np.float64(done), "loss": found}
            if measured is not None:
                records |= {
                    name: np.asarray(each, np.float64)
                    for name, each in measured(state.parameters).items()
                }
            for name, each in records.items():
                history.setdefault(name, []).append(np.asarray(each))
            progress.at(done / steps, _note(records))
            if checkpoint is not None and time.perf_counter() - began > KEEP:
                began = time.perf_counter()
                files.save(checkpoint, kept())
            if patience is not None and _stalled(history["loss"], patience):
                break
    if checkpoint is not None:
        files.save(checkpoint, kept())
    return kept()


def _note(records: dict[str, Any]) -> str:
    names = [name for name in records if name != "step"]
    return ", ".join(f"{name} {float(np.mean(records[name])):.3g}" for name in names)


def _stalled(losses: list[NDArray[np.float64]], patience: int) -> bool:
    if len(losses) <= patience:
        return False
    best = np.min(np.stack(losses[:-patience]), axis=0)
    return bool((np.min(np.stack(losses[-patience:]), axis=0) >= best).all())


def _diverged(
    kind: Kind,
    done: int,
    size: int,
    loss: NDArray[np.float64],
    keys: tuple[int, ...],
    checkpoint: str | os.PathLike[str] | None,
    kept: Callable[[], Fit],
) -> Diverged:
    wrong = keys[int(np.argmin(np.isfinite(loss)))]
    where = ""
    if checkpoint is not None:
        files.save(checkpoint, kept())
        where = f" the state at step {done:,} is kept in {checkpoint};"
    return Diverged(
        f"learned.{kind}: the loss of key {wrong} is not a number between steps {done:,} and "
        f"{done + size:,};{where} try a smaller learning_rate, or rewards on a smaller scale.",
        kept(),
    )


def _key(kind: Kind, key: Any) -> int:
    try:
        number = operator.index(key)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"learned.{kind}: key is {key!r} and must be a whole number, at least 0.")
    return number


def _check(
    kind: Kind, source: Source, settings: Settings, steps: int, every: int, patience: int | None
) -> None:
    whole = [
        ("steps", steps),
        ("every", every),
        ("batch", settings.batch),
        ("period", settings.period),
    ]
    if patience is not None:
        whole.append(("patience", patience))
    for name, value in whole:
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(
                f"learned.{kind}: {name} is {value!r} and must be a whole number, at least 1."
            )
    for name in ("learning_rate", "epsilon"):
        value = getattr(settings, name)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"learned.{kind}: {name} is {value!r} and must be above 0.")
    if not 0 <= settings.rate < 1:
        raise InputError(
            f"learned.{kind}: rate is {settings.rate!r} and must be at least 0 and below 1."
        )
