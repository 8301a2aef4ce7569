"""How long a run goes on: for so many steps, for so long, or until a bound is small enough."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import time
from collections.abc import Iterator

import numpy as np

from bisimetric._io import require_writable
from bisimetric._progress import ProgressBar, convergence_fraction, show_progress
from bisimetric.distance import Distance
from bisimetric.errors import InputError, NotConverged, require_integer
from bisimetric.sampled.run import SampledRun
from bisimetric.sampled.samplers import Sampler
from bisimetric.transitions import Transitions

DEFAULT_TOL = 1e-3
STEPS_PER_CHUNK = 1 << 18
"""Steps between two looks at the clock."""

COMPARISON_SECONDS = 0.25
"""Seconds between two looks at the truth, for the bar."""

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True)
class StoppingCriteria:
    """When to stop, what to watch and what to keep; see `sampled.bisimulation`."""

    steps: int | None
    seconds: float | None
    tol: float | None
    updates_per_transition: int
    reference: Distance | None
    checkpoint: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None

    def validate(self, kind: str, streaming: bool) -> StoppingCriteria:
        """The limits, or a clear error; without any, a bound of 1e-3 or the end of a stream."""
        for name, value, least in (
            ("steps", self.steps, 0),
            ("updates", self.updates_per_transition, 1),
        ):
            if value is not None:
                require_integer(f"sampled.{kind}", name, value, least)
        for name, share in (("seconds", self.seconds), ("tol", self.tol)):
            number = isinstance(share, numbers.Real) and math.isfinite(share)
            if share is not None and not (number and share > 0):
                raise InputError(f"sampled.{kind}: {name} is {share!r} and must be above 0.")
        if self.checkpoint is not None:
            require_writable(self.checkpoint)
        none = self.steps is None and self.seconds is None and self.tol is None
        tol = DEFAULT_TOL if none and not streaming else self.tol
        return dataclasses.replace(self, tol=None if tol is None else float(tol))

    def require_termination(self, kind: str, sampler: Sampler) -> None:
        """Refuses a sampler that leaves out pairs, where only their coming to rest would end it."""
        if self.steps is not None or self.seconds is not None:
            return
        weights, policy = (getattr(sampler, name, None) for name in ("weights", "policy"))
        if (weights is not None and not np.all(weights)) or policy is not None:
            raise InputError(
                f"sampled.{kind}: a sampler that may leave out pairs may never reach tol; give "
                "steps or seconds too."
            )


def run_until_stopped(
    run: SampledRun, criteria: StoppingCriteria, stream: Iterator[Transitions], arrived: int
) -> Distance:
    """Runs until it is time to stop; whatever happens, the run is kept at `checkpoint`.

    `arrived` are the transitions of a stream that the run knows already and did not use yet.
    """
    truth = criteria.reference
    if truth is not None and truth.values.shape != run.values.shape:
        raise InputError(
            f"sampled.{run.kind}: the truth has {len(truth.values)} states and the source "
            f"{len(run.values)}; give one of the same states, or none."
        )
    clock = _RunMonitor(run, criteria)
    try:
        with show_progress(1.0, f"sampling {run.kind}") as progress:
            why = clock.run_to_end(progress, stream, arrived)
    finally:
        if criteria.checkpoint is not None:
            run.save(criteria.checkpoint)
    made = {"stopped": why, "seconds": round(clock.elapsed, 6)}
    if criteria.tol is not None:
        made["tol"] = criteria.tol
    distance = run.to_distance(**made)
    bound = distance.error if distance.estimate is None else distance.estimate
    if criteria.tol is not None and bound > criteria.tol:
        raise NotConverged(
            f"sampled.{run.kind}: after {run.steps:,} steps the known transitions could still "
            f"change a distance by {bound:.2g}, and tol={criteria.tol:g} was asked for; allow more "
            f"steps or a larger tol, or use exact.{run.kind}, with Transitions.to_mdp() for data.",
            distance,
        )
    return distance


class _RunMonitor:
    """What a run has reached, looked at from time to time."""

    def __init__(self, run: SampledRun, criteria: StoppingCriteria) -> None:
        self.run, self.criteria = run, criteria
        self.start_time = self.last_checkpoint = self.last_comparison = time.perf_counter()
        self.bound, self.initial_bound = math.inf, math.inf
        self.error_text = ""

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.start_time

    def run_to_end(self, progress: ProgressBar, stream: Iterator[Transitions], arrived: int) -> str:
        """Runs until there is a reason to stop, and returns it."""
        run = self.run
        while run.source.streaming:
            why = self._run_until(
                progress, run.steps + arrived * self.criteria.updates_per_transition
            )
            if why is not None:
                return why
            more = next(stream, None)
            if more is None:
                return "end of the stream"
            run.add_transitions(more)
            arrived = len(more)
        return self._run_until(progress, None) or "steps"

    def _run_until(self, progress: ProgressBar, last_step: int | None) -> str | None:
        """Runs up to a number of steps; the reason to stop, or None where only they were done."""
        run, limits = self.run, self.criteria
        while True:
            if limits.steps is not None and run.steps >= limits.steps:
                return "steps"
            if last_step is not None and run.steps >= last_step:
                return None
            if limits.seconds is not None and self.elapsed >= limits.seconds:
                return "seconds"
            # Looks at all pairs are worth a fifth of the time, at most, and come at the same
            # steps however a run is cut.
            interval = max(4096, 4 * run.source.table.num_pairs)
            check = (run.steps // interval + 1) * interval
            goals = (run.steps + STEPS_PER_CHUNK, check, last_step, limits.steps)
            rise = run.advance(min(goal for goal in goals if goal is not None) - run.steps)
            if limits.tol is not None and run.steps == check:
                if self._is_within_tolerance():
                    return "tol"
                if rise == 0 and not run.source.streaming and run.converged:
                    return "nothing can change"
            self._show_progress(progress, rise)
            self._write_due_checkpoint()

    def _is_within_tolerance(self) -> bool:
        run, tol = self.run, self.criteria.tol
        self.bound = run.compute_bound()
        self.initial_bound = (
            min(self.initial_bound, self.bound)
            if math.isinf(self.initial_bound)
            else self.initial_bound
        )
        if tol is None or self.bound > tol:
            return False
        return not run.source.streaming or run.compute_coverage().complete

    def _show_progress(self, progress: ProgressBar, rise: float) -> None:
        run, limits = self.run, self.criteria
        parts = [0.0]
        if limits.steps:
            parts.append(run.steps / limits.steps)
        if limits.seconds:
            parts.append(self.elapsed / limits.seconds)
        if limits.tol and math.isfinite(self.bound):
            parts.append(convergence_fraction(self.bound, limits.tol, self.initial_bound))
        now = time.perf_counter()
        if limits.reference is not None and now - self.last_comparison > COMPARISON_SECONDS:
            self.last_comparison = now
            far = float(np.abs(limits.reference.values - run.values).max())
            self.error_text = f", error {far:.3g}"
        progress.set_position(
            min(1.0, max(parts)), f"{run.steps:,} steps, change {rise:.2g}{self.error_text}"
        )

    def _write_due_checkpoint(self) -> None:
        now = time.perf_counter()
        if self.criteria.checkpoint is not None and now - self.last_checkpoint > CHECKPOINT_SECONDS:
            self.last_checkpoint = now
            self.run.save(self.criteria.checkpoint)
