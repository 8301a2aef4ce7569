"""Stopping criteria of sampled runs: a number of steps, a time, or a bound on the error."""

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
"""Steps between two checks of the time."""

COMPARISON_SECONDS = 0.25
"""Seconds between two comparisons with the reference, for the progress bar."""

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True)
class StoppingCriteria:
    """When to stop, and where to write and read checkpoints; see `sampled.bisimulation`."""

    steps: int | None
    seconds: float | None
    tol: float | None
    updates_per_transition: int
    reference: Distance | None
    checkpoint: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None

    def validate(self, kind: str, streaming: bool) -> StoppingCriteria:
        """Return valid criteria or raise InputError; without any limit, `tol` is 1e-3.

        A stream needs no limit: it stops at its end.
        """
        caller = f"sampled.{kind}"
        if self.steps is not None:
            require_integer(caller, "steps", self.steps)
        require_integer(caller, "updates_per_transition", self.updates_per_transition, 1)
        for name, value in (("seconds", self.seconds), ("tol", self.tol)):
            finite = isinstance(value, numbers.Real) and math.isfinite(value)
            if value is not None and not (finite and value > 0):
                raise InputError(f"is {value!r} and must be above 0", caller=caller, argument=name)
        if self.checkpoint is not None:
            require_writable(self.checkpoint)
        unlimited = self.steps is None and self.seconds is None and self.tol is None
        tol = DEFAULT_TOL if unlimited and not streaming else self.tol
        return dataclasses.replace(self, tol=None if tol is None else float(tol))

    def require_termination(self, kind: str, sampler: Sampler) -> None:
        """Raise InputError if only `tol` is given and the sampler may never reach it."""
        if self.steps is not None or self.seconds is not None:
            return
        weights, policy = (getattr(sampler, name, None) for name in ("weights", "policy"))
        if (weights is not None and not np.all(weights)) or policy is not None:
            raise InputError(
                f"sampled.{kind}: a sampler with a policy or zero weights may omit pairs and never "
                "reach tol; pass steps or seconds too."
            )


def run_until_stopped(
    run: SampledRun, criteria: StoppingCriteria, stream: Iterator[Transitions], arrived: int
) -> Distance:
    """Advance a run until a criterion holds; write the checkpoint in any case.

    `arrived` is the number of transitions of a stream that the run knows and has not used yet.
    """
    reference = criteria.reference
    if reference is not None and reference.values.shape != run.values.shape:
        raise InputError(
            f"sampled.{run.kind}: reference has {len(reference.values)} states and the source "
            f"{len(run.values)}; pass one with the same states, or none."
        )
    monitor = _RunMonitor(run, criteria)
    try:
        with show_progress(1.0, f"sampling {run.kind}") as progress:
            reason = monitor.run_to_end(progress, stream, arrived)
    finally:
        if criteria.checkpoint is not None:
            run.save(criteria.checkpoint)
    metadata = {"stopped": reason, "seconds": round(monitor.elapsed, 6)}
    if criteria.tol is not None:
        metadata["tol"] = criteria.tol
    distance = run.to_distance(**metadata)
    bound = distance.error if distance.estimate is None else distance.estimate
    if criteria.tol is not None and bound > criteria.tol:
        raise NotConverged(
            f"sampled.{run.kind}: after {run.steps:,} steps the known transitions could still "
            f"change a distance by {bound:.2g}, more than tol={criteria.tol:g}; allow more steps "
            "or a larger tol, or compute the exact distance.",
            distance,
        )
    return distance


class _RunMonitor:
    """Advances a run in chunks, and checks its limits, bound and checkpoint in between."""

    def __init__(self, run: SampledRun, criteria: StoppingCriteria) -> None:
        self.run, self.criteria = run, criteria
        self.start_time = self.last_checkpoint = self.last_comparison = time.perf_counter()
        self.bound, self.initial_bound = math.inf, math.inf
        self.error_text = ""

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.start_time

    def run_to_end(self, progress: ProgressBar, stream: Iterator[Transitions], arrived: int) -> str:
        """Run until a criterion holds, and return which one."""
        run = self.run
        while run.source.streaming:
            num_updates = arrived * self.criteria.updates_per_transition
            reason = self._run_until(progress, run.steps + num_updates)
            if reason is not None:
                return reason
            chunk = next(stream, None)
            if chunk is None:
                return "end of the stream"
            run.add_transitions(chunk)
            arrived = len(chunk)
        return self._run_until(progress, None) or "steps"

    def _run_until(self, progress: ProgressBar, last_step: int | None) -> str | None:
        """Run up to a number of steps; return the criterion that holds, or None."""
        run, criteria = self.run, self.criteria
        while True:
            if criteria.steps is not None and run.steps >= criteria.steps:
                return "steps"
            if last_step is not None and run.steps >= last_step:
                return None
            if criteria.seconds is not None and self.elapsed >= criteria.seconds:
                return "seconds"
            # Checks of all pairs take at most a fifth of the time, at step numbers that do not
            # depend on where a run is interrupted.
            interval = max(4096, 4 * run.source.table.num_pairs)
            check = (run.steps // interval + 1) * interval
            goals = (run.steps + STEPS_PER_CHUNK, check, last_step, criteria.steps)
            increase = run.advance(min(goal for goal in goals if goal is not None) - run.steps)
            if criteria.tol is not None and run.steps == check:
                if self._is_within_tolerance():
                    return "tol"
                if increase == 0 and not run.source.streaming and run.converged:
                    return "converged"
            self._show_progress(progress, increase)
            self._write_due_checkpoint()

    def _is_within_tolerance(self) -> bool:
        run, tol = self.run, self.criteria.tol
        self.bound = run.compute_bound()
        if math.isinf(self.initial_bound):
            self.initial_bound = self.bound
        if tol is None or self.bound > tol:
            return False
        return not run.source.streaming or run.compute_coverage().complete

    def _show_progress(self, progress: ProgressBar, increase: float) -> None:
        run, criteria = self.run, self.criteria
        fractions = [0.0]
        if criteria.steps:
            fractions.append(run.steps / criteria.steps)
        if criteria.seconds:
            fractions.append(self.elapsed / criteria.seconds)
        if criteria.tol and math.isfinite(self.bound):
            fractions.append(convergence_fraction(self.bound, criteria.tol, self.initial_bound))
        now = time.perf_counter()
        if criteria.reference is not None and now - self.last_comparison > COMPARISON_SECONDS:
            self.last_comparison = now
            error = float(np.abs(criteria.reference.values - run.values).max())
            self.error_text = f", error {error:.3g}"
        progress.set_position(
            min(1.0, max(fractions)), f"{run.steps:,} steps, change {increase:.2g}{self.error_text}"
        )

    def _write_due_checkpoint(self) -> None:
        now = time.perf_counter()
        if self.criteria.checkpoint is not None and now - self.last_checkpoint > CHECKPOINT_SECONDS:
            self.last_checkpoint = now
            self.run.save(self.criteria.checkpoint)
