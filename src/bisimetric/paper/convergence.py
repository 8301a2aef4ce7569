"""Convergence of equation 3 of Castro (2020): samples until the error is small, per sampler.

The paper proves that the sampled estimate converges to the metric almost surely, monotonically from
below (section 5, lemma "Monotonicity"). This measures how fast, on its 31 states, for d~ and d^pi.
The paper has no such figure: its curves are those of the network.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric import exact, sampled, views, worlds
from bisimetric._io import require_writable, write_atomically
from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._statistics import compute_confidence_interval
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, validate_discount
from bisimetric.sampled.samplers import SAMPLERS

__all__ = [
    "ConvergenceCurves",
    "ConvergenceResults",
    "ConvergenceRow",
    "format_table",
    "measure",
    "reproduce",
    "tabulate",
]

Kind = Literal["bisimulation", "on_policy"]
WORLDS: dict[Kind, str] = {
    "bisimulation": "mirrored-rooms",
    "on_policy": "mirrored-rooms-policy",
}
TITLES: dict[Kind, str] = {
    "bisimulation": "d~, the bisimulation distance",
    "on_policy": "d^pi, the on-policy distance",
}
TOLERANCE = 1e-9
"""Tolerance of the exact metric."""

ERROR_FLOOR = 1e-6
"""Error at which a curve ends."""

FIRST_CHECKPOINT = 1_000
"""First checkpoint, in steps."""

CHECKPOINTS_PER_DECADE = 24
"""Checkpoints per power of ten: 10% apart."""

SEARCH_PARTS = 500
"""Parts per refinement of the search for the first step of an error."""


@dataclasses.dataclass(frozen=True, eq=False)
class ConvergenceCurves:
    """Error curves per sampler and seed.

    Attributes:
        kind: the distance.
        samplers: names of the samplers.
        seeds: (k,), one run each.
        steps: (n,) checkpoints, in sampled pairs of transitions.
        errors: (samplers, k, n), the largest |d_n - d|; NaN after the checkpoint where all seeds of
            a sampler are below the error floor.
        excess: (samplers, k, n), the largest d_n - d; NaN likewise.
        max_allowed_excess: bound of the excess if d_n <= d: the proven error of the exact metric
            and the rounding bound of the estimate.
        target_error: an error to reach.
        steps_to_target: (samplers, k), the first step with an error of at most `target_error`;
            infinite if after the last checkpoint.
    """

    kind: Kind
    samplers: tuple[str, ...]
    seeds: NDArray[np.int64]
    steps: NDArray[np.int64]
    errors: NDArray[np.float64]
    excess: NDArray[np.float64]
    max_allowed_excess: float
    target_error: float
    steps_to_target: NDArray[np.float64]

    @property
    def max_excess(self) -> float:
        return float(np.nanmax(self.excess))

    @property
    def lemma_holds(self) -> bool:
        """Whether d_n <= d at every checkpoint, as the lemma states."""
        return self.max_excess <= self.max_allowed_excess


@dataclasses.dataclass(frozen=True, eq=False)
class ConvergenceResults:
    """Curves of both distances.

    Attributes:
        bisimulation: curves of d~.
        on_policy: curves of d^pi.
        metadata: command, options, versions and seconds.
    """

    bisimulation: ConvergenceCurves
    on_policy: ConvergenceCurves
    metadata: dict[str, Any]

    @property
    def lemma_holds(self) -> bool:
        """Whether d_n <= d at every checkpoint of both distances, as the lemma states."""
        return self.bisimulation.lemma_holds and self.on_policy.lemma_holds


class ConvergenceRow(NamedTuple):
    """The sample complexity of one sampler: a mean over the seeds and its 95% interval.

    Attributes:
        kind: the distance.
        sampler: name of the sampler.
        num_seeds: runs of the sampler.
        target_error: the error to reach.
        steps_to_target: mean number of pairs of transitions; infinite if a run does not reach it.
        half_interval: half the width of the 95% interval; NaN in that case.
        speed_up: mean of the first sampler divided by this one; NaN if one is infinite.
    """

    kind: Kind
    sampler: str
    num_seeds: int
    target_error: float
    steps_to_target: float
    half_interval: float
    speed_up: float


def reproduce(
    folder: str | os.PathLike[str],
    *,
    num_seeds: int = 10,
    steps: int = 10_000_000,
    target_error: float = 1e-3,
    discount: float = 0.99,
    command: str | None = None,
) -> ConvergenceResults:
    """Measure both distances; write `convergence.png` and `convergence.json`.

    Args:
        folder: where files are written; created if missing.
        num_seeds: runs of each sampler, with seeds 0, 1, ...; at least 2, for an interval.
        steps: largest number of sampled pairs of transitions.
        target_error: the error of `steps_to_target`.
        discount: discount of the paper's MDP.
        command: command stored in the file; default: this call.

    Returns:
        The curves of both distances.

    Raises:
        InputError: if a number is out of range.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    options: dict[str, Any] = {
        "num_seeds": num_seeds,
        "steps": steps,
        "target_error": target_error,
        "discount": discount,
    }
    _validate_options(num_seeds, steps, target_error)
    validate_discount(discount)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("convergence.png", "convergence.json"):
        require_writable(target / name)
    start_time = time.perf_counter()
    d, d_pi = (measure(kind, **options) for kind in WORLDS)
    metadata = {
        "command": command or _format_command(target, options),
        **options,
        "seconds": round(time.perf_counter() - start_time, 3),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    results = ConvergenceResults(d, d_pi, metadata)
    figure = views.plot_convergence(
        d.steps,
        {
            r"$\tilde d$, the bisimulation distance": _group_by_sampler(d),
            r"$d^\pi$, the on-policy distance": _group_by_sampler(d_pi),
        },
        target_error=target_error,
        floor=ERROR_FLOOR,
        title=f"Convergence of the sampled metric: 31 states, discount {discount:g}; mean of "
        f"{num_seeds} seeds (thin lines) and its 95% interval",
    )
    views.save_figure(figure, target / "convergence.png")
    with write_atomically(target / "convergence.json") as beside:
        beside.write_text(json.dumps(_to_json(results), indent=1) + "\n", encoding="utf-8")
    return results


def measure(
    kind: Kind,
    *,
    num_seeds: int = 10,
    steps: int = 10_000_000,
    target_error: float = 1e-3,
    discount: float = 0.99,
) -> ConvergenceCurves:
    """Run every sampler with seeds 0, 1, ..., and compare its estimates with the exact metric.

    A sampler ends when the errors of all its seeds are at most 1e-6.

    Args:
        kind: the distance, "bisimulation" or "on_policy".
        num_seeds: runs of each sampler; at least 2, for an interval.
        steps: largest number of sampled pairs; checkpoints are 10% apart up to it.
        target_error: the error of `steps_to_target`.
        discount: discount of the paper's MDP.

    Returns:
        The error curves.

    Raises:
        InputError: if an argument is out of range.

    >>> curves = measure("on_policy", num_seeds=2, steps=10_000, discount=0.5)
    >>> curves.samplers, curves.errors.shape == (4, 2, len(curves.steps)), curves.lemma_holds
    (('uniform', 'trajectories', 'all-actions', 'prioritised'), True, True)
    """
    if kind not in WORLDS:
        raise InputError(
            f"paper.convergence: kind is {kind!r} and must be 'bisimulation' or 'on_policy'."
        )
    _validate_options(num_seeds, steps, target_error)
    mdp = worlds.load(WORLDS[kind], discount=discount)
    reference: Distance = getattr(exact, kind)(mdp, tol=TOLERANCE)
    checkpoints = list_checkpoints(steps)
    shape = (len(SAMPLERS), num_seeds, len(checkpoints))
    errors, excess = np.full(shape, np.nan), np.full(shape, np.nan)
    steps_to_target, rounding = np.full(shape[:2], np.inf), 0.0
    with show_progress(len(SAMPLERS), f"convergence of {kind}") as progress:
        for row, (name, sampler) in enumerate(SAMPLERS.items()):
            create = functools.partial(_create_run, kind, mdp, sampler)
            runs = [create(seed) for seed in range(num_seeds)]
            for column, step in enumerate(checkpoints.tolist()):
                for seed, run in enumerate(runs):
                    before = run.steps
                    run.advance(step - before)
                    errors[row, seed, column] = error = max_error(run, reference)
                    excess[row, seed, column] = (run.values - reference.values).max()
                    if error <= target_error and np.isinf(steps_to_target[row, seed]):
                        restart = functools.partial(create, seed)
                        steps_to_target[row, seed] = find_first_step(
                            restart, reference, target_error, before, step
                        )
                worst = float(errors[row, :, column].max())
                largest = float(reference.values.max())
                fraction = convergence_fraction(worst, ERROR_FLOOR, largest)
                progress.set_position(row + fraction, f"{name}, {step:,} steps, error {worst:.2g}")
                if worst <= ERROR_FLOOR:
                    break
            rounding = max(rounding, *(run.compute_coverage().rounding for run in runs))
    return ConvergenceCurves(
        kind,
        tuple(SAMPLERS),
        np.arange(num_seeds),
        checkpoints,
        errors,
        excess,
        reference.error + rounding,
        target_error,
        steps_to_target,
    )


def tabulate(results: ConvergenceResults) -> list[ConvergenceRow]:
    """Return the steps to the target error, one row per distance and sampler.

    Args:
        results: those of `reproduce`.
    """
    return [row for each in (results.bisimulation, results.on_policy) for row in _tabulate(each)]


def _tabulate(curves: ConvergenceCurves) -> Iterator[ConvergenceRow]:
    means, halves = compute_confidence_interval(curves.steps_to_target.T)
    for name, mean, half in zip(curves.samplers, means.tolist(), halves.tolist(), strict=True):
        known = math.isfinite(mean) and math.isfinite(means[0])
        yield ConvergenceRow(
            curves.kind,
            name,
            len(curves.seeds),
            curves.target_error,
            mean,
            half,
            means[0] / mean if known else math.nan,
        )


def format_table(results: ConvergenceResults) -> Iterator[str]:
    """Yield the lines of a report: steps to the target error with intervals, and the lemma.

    Args:
        results: those of `reproduce`.

    Yields:
        The lines.
    """
    for curves in (results.bisimulation, results.on_policy):
        yield (
            f"{TITLES[curves.kind]}: pairs of transitions until the largest error is at most "
            f"{curves.target_error:g}, {len(curves.seeds)} seeds"
        )
        yield f"  {'sampler':<14}{'mean':>12}  {'95% interval':<25}{'speed-up':>8}"
        for row in _tabulate(curves):
            mean, half = row.steps_to_target, row.half_interval
            if math.isinf(mean):
                yield f"  {row.sampler:<14}{'-':>12}  not within {curves.steps[-1]:,}"
                continue
            bounds = f"{mean - half:,.0f} to {mean + half:,.0f}"
            speed_up = "-" if math.isnan(row.speed_up) else f"{row.speed_up:.2f}"
            yield f"  {row.sampler:<14}{mean:12,.0f}  {bounds:<25}{speed_up:>8}"
        verdict = "holds " if curves.lemma_holds else "FAILS "
        yield (
            f"  {verdict}  d_n <= d at every checkpoint: largest excess "
            f"{curves.max_excess:.2g}, rounding and proven error {curves.max_allowed_excess:.1g}"
        )


def list_checkpoints(steps: int) -> NDArray[np.int64]:
    """List checkpoints from 1,000 steps on, 10% apart; a larger limit only appends to them.

    >>> list_checkpoints(1_500)
    array([1000, 1101, 1212, 1334, 1468])
    """
    count = math.floor(CHECKPOINTS_PER_DECADE * math.log10(steps / FIRST_CHECKPOINT) + 1e-9) + 1
    checkpoints = FIRST_CHECKPOINT * 10 ** (np.arange(count) / CHECKPOINTS_PER_DECADE)
    return np.rint(checkpoints).astype(np.int64)


def max_error(run: sampled.SampledRun, reference: Distance) -> float:
    """Compute the largest error of a run."""
    return float(np.abs(run.values - reference.values).max())


def find_first_step(
    create_run: Callable[[], sampled.SampledRun],
    reference: Distance,
    target_error: float,
    low: int,
    high: int,
) -> int:
    """Find the first step in (low, high] with an error of at most `target_error`.

    The estimate is monotone from below, so its error never increases. A seed determines the run
    however it is divided, so the interval is run again in ever smaller parts, down to single steps.
    """
    while high - low > 1:
        run, part = create_run(), max(1, (high - low) // SEARCH_PARTS)
        run.advance(low)
        while run.steps < high and max_error(run, reference) > target_error:
            low = run.steps
            run.advance(min(part, high - low))
        high = run.steps
    return high


def _create_run(kind: Kind, mdp: MDP, sampler: type[Any], seed: int) -> sampled.SampledRun:
    """Create a sampled run of one sampler and seed."""
    return sampled.SampledRun(kind, mdp, sampler=sampler(), seed=seed)


def _group_by_sampler(curves: ConvergenceCurves) -> dict[str, NDArray[np.float64]]:
    """Return the errors by sampler."""
    return dict(zip(curves.samplers, curves.errors, strict=True))


def _validate_options(num_seeds: Any, steps: Any, target_error: float) -> None:
    """Raise InputError if a number is out of range."""
    for name, value, minimum, reason in (
        ("num_seeds", num_seeds, 2, ": one run has no interval"),
        ("steps", steps, FIRST_CHECKPOINT, ", the first checkpoint"),
    ):
        if not (isinstance(value, int | np.integer) and value >= minimum):
            raise InputError(
                f"is {value!r} and must be a whole number, at least {minimum}{reason}",
                caller="paper.convergence",
                argument=name,
            )
    if not (math.isfinite(target_error) and target_error >= ERROR_FLOOR):
        raise InputError(
            f"is {target_error!r} and must be a number, at least {ERROR_FLOOR:g}, where the curves "
            "end",
            caller="paper.convergence",
            argument="target_error",
        )


def _format_command(folder: Path, options: dict[str, Any]) -> str:
    """Return a shell command that writes the same files."""
    arguments = [json.dumps(str(folder)), *(f"{name}={value}" for name, value in options.items())]
    code = f"from bisimetric import paper; paper.convergence.reproduce({', '.join(arguments)})"
    return shlex.join(["python", "-c", code])


def _to_json(results: ConvergenceResults) -> dict[str, Any]:
    """Return the curves by kind and sampler, one row per seed."""
    return {"metadata": results.metadata} | {
        curves.kind: {
            "world": WORLDS[curves.kind],
            "target_error": curves.target_error,
            "seeds": curves.seeds.tolist(),
            "max_excess": curves.max_excess,
            "max_allowed_excess": curves.max_allowed_excess,
            "steps": curves.steps.tolist(),
            "samplers": {
                name: _sampler_to_json(*rows)
                for name, *rows in zip(
                    curves.samplers, curves.steps_to_target, curves.errors, strict=True
                )
            },
        }
        for curves in (results.bisimulation, results.on_policy)
    }


def _sampler_to_json(
    steps_to_target: NDArray[np.float64], errors: NDArray[np.float64]
) -> dict[str, Any]:
    mean, half = compute_confidence_interval(steps_to_target)
    return {
        "steps_to_target": [int(n) if math.isfinite(n) else None for n in steps_to_target],
        "mean": float(mean) if math.isfinite(mean) else None,
        "half_interval": float(half) if math.isfinite(half) else None,
        "errors": [row[~np.isnan(row)].tolist() for row in errors],
    }
