"""How long a run goes on: for so many steps, for so long, or until a bound is small enough."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import time
from collections.abc import Iterator

import numpy as np

from bisimetric.distance import Distance
from bisimetric.errors import InputError, NotConverged, whole
from bisimetric.files import check_writable
from bisimetric.progress import Bar, bar, digits
from bisimetric.sampled.run import Run
from bisimetric.sampled.samplers import Sampler
from bisimetric.transitions import Transitions

DEFAULT_TOL = 1e-3
CHUNK = 1 << 18
"""Steps between two looks at the clock."""

LOOK = 0.25
"""Seconds between two looks at the truth, for the bar."""

KEEP = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """When to stop, what to watch and what to keep; see `sampled.bisimulation`."""

    steps: int | None
    seconds: float | None
    tol: float | None
    updates: int
    truth: Distance | None
    checkpoint: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None

    def checked(self, verb: str, endless: bool) -> Limits:
        """The limits, or a clear error; without any, a bound of 1e-3 or the end of a stream."""
        for name, value, least in (("steps", self.steps, 0), ("updates", self.updates, 1)):
            if value is not None:
                whole(f"sampled.{verb}", name, value, least)
        for name, share in (("seconds", self.seconds), ("tol", self.tol)):
            number = isinstance(share, numbers.Real) and math.isfinite(share)
            if share is not None and not (number and share > 0):
                raise InputError(f"sampled.{verb}: {name} is {share!r} and must be above 0.")
        if self.checkpoint is not None:
            check_writable(self.checkpoint)
        none = self.steps is None and self.seconds is None and self.tol is None
        tol = DEFAULT_TOL if none and not endless else self.tol
        return dataclasses.replace(self, tol=None if tol is None else float(tol))

    def refuse_endless(self, verb: str, sampler: Sampler) -> None:
        """Refuses a sampler that leaves out pairs, where only their coming to rest would end it."""
        if self.steps is not None or self.seconds is not None:
            return
        weights, policy = (getattr(sampler, name, None) for name in ("weights", "policy"))
        if (weights is not None and not np.all(weights)) or policy is not None:
            raise InputError(
                f"sampled.{verb}: a sampler that may leave out pairs may never reach tol; give "
                "steps or seconds too."
            )


def finished(run: Run, limits: Limits, stream: Iterator[Transitions], arrived: int) -> Distance:
    """Runs until it is time to stop; whatever happens, the run is kept at `checkpoint`.

    `arrived` are the transitions of a stream that the run knows already and did not use yet.
    """
    truth = limits.truth
    if truth is not None and truth.values.shape != run.values.shape:
        raise InputError(
            f"sampled.{run.kind}: the truth has {len(truth.values)} states and the source "
            f"{len(run.values)}; give one of the same states, or none."
        )
    clock = _Clock(run, limits)
    try:
        with bar(1.0, f"sampling {run.kind}") as progress:
            why = clock.watch(progress, stream, arrived)
    finally:
        if limits.checkpoint is not None:
            run.save(limits.checkpoint)
    made = {"stopped": why, "seconds": round(clock.elapsed, 6)}
    if limits.tol is not None:
        made["tol"] = limits.tol
    distance = run.distance(**made)
    bound = distance.error if distance.estimate is None else distance.estimate
    if limits.tol is not None and bound > limits.tol:
        raise NotConverged(
            f"sampled.{run.kind}: after {run.steps:,} steps the known transitions could still "
            f"change a distance by {bound:.2g}, and tol={limits.tol:g} was asked for; allow more "
            f"steps or a larger tol, or use exact.{run.kind}, with Transitions.to_mdp() for data.",
            distance,
        )
    return distance


class _Clock:
    """What a run has reached, looked at from time to time."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self.run, self.limits = run, limits
        self.began = self.kept = self.looked = time.perf_counter()
        self.bound, self.first = math.inf, math.inf
        self.far = ""

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def watch(self, progress: Bar, stream: Iterator[Transitions], arrived: int) -> str:
        """Runs until there is a reason to stop, and returns it."""
        run = self.run
        while run.source.streaming:
            why = self._until(progress, run.steps + arrived * self.limits.updates)
            if why is not None:
                return why
            more = next(stream, None)
            if more is None:
                return "end of the stream"
            run.absorb(more)
            arrived = len(more)
        return self._until(progress, None) or "steps"

    def _until(self, progress: Bar, last: int | None) -> str | None:
        """Runs up to a number of steps; the reason to stop, or None where only they were done."""
        run, limits = self.run, self.limits
        while True:
            if limits.steps is not None and run.steps >= limits.steps:
                return "steps"
            if last is not None and run.steps >= last:
                return None
            if limits.seconds is not None and self.elapsed >= limits.seconds:
                return "seconds"
            # Looks at all pairs are worth a fifth of the time, at most, and come at the same
            # steps however a run is cut.
            interval = max(4096, 4 * run.source.known.num_pairs)
            check = (run.steps // interval + 1) * interval
            goals = (run.steps + CHUNK, check, last, limits.steps)
            rise = run.advance(min(goal for goal in goals if goal is not None) - run.steps)
            if limits.tol is not None and run.steps == check:
                if self._small_enough():
                    return "tol"
                if rise == 0 and not run.source.streaming and run.at_rest:
                    return "nothing can change"
            self._show(progress, rise)
            self._keep()

    def _small_enough(self) -> bool:
        run, tol = self.run, self.limits.tol
        self.bound = run.bound()
        self.first = min(self.first, self.bound) if math.isinf(self.first) else self.first
        if tol is None or self.bound > tol:
            return False
        return not run.source.streaming or run.coverage().complete

    def _show(self, progress: Bar, rise: float) -> None:
        run, limits = self.run, self.limits
        parts = [0.0]
        if limits.steps:
            parts.append(run.steps / limits.steps)
        if limits.seconds:
            parts.append(self.elapsed / limits.seconds)
        if limits.tol and math.isfinite(self.bound):
            parts.append(digits(self.bound, limits.tol, self.first))
        now = time.perf_counter()
        if limits.truth is not None and now - self.looked > LOOK:
            self.looked = now
            far = float(np.abs(limits.truth.values - run.values).max())
            self.far = f", error {far:.3g}"
        progress.at(min(1.0, max(parts)), f"{run.steps:,} steps, change {rise:.2g}{self.far}")

    def _keep(self) -> None:
        now = time.perf_counter()
        if self.limits.checkpoint is not None and now - self.kept > KEEP:
            self.kept = now
            self.run.save(self.limits.checkpoint)
