"""How many samples equation 3 of Castro (2020) takes to reach the metric, by way of drawing them.

The paper proves that the sampled table rises to the metric almost surely and never exceeds it
(section 5, lemma "Monotonicity"); here is how fast, on its 31 states, for d~ and for d^pi. It has
no such figure: the paper's own curves are those of the network that comes after.
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
from typing import Any, Literal

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
"""Of the exact metric."""

ERROR_FLOOR = 1e-6
"""The error at which a curve ends."""

FIRST_CHECKPOINT = 1_000
"""The first checkpoint, in steps."""

CHECKPOINTS_PER_DECADE = 24
"""Checkpoints from one power of ten to the next: 10% apart."""

SEARCH_PARTS = 500
"""Into how many parts the way between two checkpoints is cut, to find where an error was met."""


@dataclasses.dataclass(frozen=True, eq=False)
class ConvergenceCurves:
    """The errors of runs on their way, by sampler and key.

    Attributes:
        kind: of the distance.
        samplers: their names.
        keys: (k,), one run each.
        steps: (n,) checkpoints, numbers of pairs of transitions drawn.
        errors: (samplers, k, n), the largest |d_n - d|; NaN once all keys of a sampler were at
            most `floor` at an earlier checkpoint.
        excess: (samplers, k, n), the largest d_n - d; NaN likewise.
        allowed: what the excess may be if d_n <= d holds: the proven error of the exact metric and
            what rounding may add to the table.
        goal: an error to reach.
        needed: (samplers, k), the steps after which the error was first at most `goal`, counted
            one by one; infinite where that took more than the last checkpoint.
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
        """Whether d_n <= d at every checkpoint, as the lemma says."""
        return self.max_excess <= self.max_allowed_excess


@dataclasses.dataclass(frozen=True, eq=False)
class ConvergenceResults:
    """Both kinds, and how they were made: command, options, versions, seconds."""

    bisimulation: ConvergenceCurves
    on_policy: ConvergenceCurves
    metadata: dict[str, Any]


def reproduce(
    folder: str | os.PathLike[str],
    *,
    num_seeds: int = 10,
    steps: int = 10_000_000,
    target_error: float = 1e-3,
    discount: float = 0.99,
    command: str | None = None,
) -> ConvergenceResults:
    """Measures both kinds, and saves `convergence.png` and `convergence.json` into `folder`.

    Args:
        keys, steps, goal, discount: as in `measured`.
        command: what the file says that it was made by; default: this call.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    options: dict[str, Any] = {
        "keys": num_seeds,
        "steps": steps,
        "goal": target_error,
        "discount": discount,
    }
    _validate_options(num_seeds, steps, target_error)
    validate_discount(discount)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("convergence.png", "convergence.json"):
        require_writable(target / name)
    began = time.perf_counter()
    d, d_pi = (measure(kind, **options) for kind in WORLDS)
    made = {
        "command": command or _format_command(target, options),
        **options,
        "seconds": round(time.perf_counter() - began, 3),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    results = ConvergenceResults(d, d_pi, made)
    figure = views.plot_convergence(
        d.steps,
        {
            r"$d_\sim$, the bisimulation distance": _group_by_sampler(d),
            r"$d^\pi$, the on-policy distance": _group_by_sampler(d_pi),
        },
        target_error=target_error,
        floor=ERROR_FLOOR,
        title=f"From samples to the metric: 31 states, discount {discount:g}; mean of {num_seeds} keys "
        "(thin lines) and its 95% interval",
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
    """Runs every sampler with the keys 0, 1, ... and compares the table with the exact metric.

    A sampler is done when the errors of all of its keys are at most 1e-6.

    Args:
        keys: how many runs of each sampler; at least 2, for an interval.
        steps: where a run ends at the latest; checkpoints stand 10% apart up to it.
        goal: the error for `needed`.
        discount: of the paper's world.

    >>> curves = measured("on_policy", keys=2, steps=10_000, discount=0.5)
    >>> curves.samplers, curves.errors.shape == (4, 2, len(curves.steps)), curves.below
    (('uniform', 'trajectories', 'all-actions', 'prioritised'), True, True)
    """
    if kind not in WORLDS:
        raise InputError(
            f"paper.convergence: kind is {kind!r} and must be 'bisimulation' or 'on_policy'."
        )
    _validate_options(num_seeds, steps, target_error)
    mdp = worlds.load(WORLDS[kind], discount=discount)
    truth: Distance = getattr(exact, kind)(mdp, tol=TOLERANCE)
    at = list_checkpoints(steps)
    shape = (len(SAMPLERS), num_seeds, len(at))
    errors, excess = np.full(shape, np.nan), np.full(shape, np.nan)
    needed, rounding = np.full(shape[:2], np.inf), 0.0
    with show_progress(len(SAMPLERS), f"convergence of {kind}") as progress:
        for number, (name, sampler) in enumerate(SAMPLERS.items()):
            new = functools.partial(_create_run, kind, mdp, sampler)
            runs = [new(key) for key in range(num_seeds)]
            for column, step in enumerate(at.tolist()):
                for key, run in enumerate(runs):
                    before = run.steps
                    run.advance(step - before)
                    errors[number, key, column] = error = max_error(run, truth)
                    excess[number, key, column] = (run.values - truth.values).max()
                    if error <= target_error and np.isinf(needed[number, key]):
                        again = functools.partial(new, key)
                        needed[number, key] = find_first_step(
                            again, truth, target_error, before, step
                        )
                worst = float(errors[number, :, column].max())
                way = convergence_fraction(worst, ERROR_FLOOR, float(truth.values.max()))
                progress.set_position(number + way, f"{name}, {step:,} steps, error {worst:.2g}")
                if worst <= ERROR_FLOOR:
                    break
            rounding = max(rounding, *(run.compute_coverage().rounding for run in runs))
    allowed = truth.error + rounding
    return ConvergenceCurves(
        kind,
        tuple(SAMPLERS),
        np.arange(num_seeds),
        at,
        errors,
        excess,
        allowed,
        target_error,
        needed,
    )


def format_table(results: ConvergenceResults) -> Iterator[str]:
    """What was found, to be printed: samples needed, with intervals, and whether the lemma held."""
    for curves in (results.bisimulation, results.on_policy):
        yield (
            f"{TITLES[curves.kind]}: pairs of transitions until the largest error is at most "
            f"{curves.target_error:g}, {len(curves.seeds)} keys"
        )
        yield f"  {'sampler':<14}{'mean':>12}  {'95% interval':<25}{'speed-up':>8}"
        mean, half = compute_confidence_interval(curves.steps_to_target.T)
        for name, middle, around in zip(curves.samplers, mean, half, strict=True):
            if math.isinf(middle):
                yield f"  {name:<14}{'-':>12}  not within {curves.steps[-1]:,}"
                continue
            between = f"{middle - around:,.0f} to {middle + around:,.0f}"
            times = f"{mean[0] / middle:.2f}" if math.isfinite(mean[0]) else "-"
            yield f"  {name:<14}{middle:12,.0f}  {between:<25}{times:>8}"
        verdict = "holds " if curves.lemma_holds else "BROKEN"
        yield (
            f"  {verdict}  d_n <= d at every checkpoint: largest excess "
            f"{curves.max_excess:.2g}, rounding and proven error {curves.max_allowed_excess:.1g}"
        )


def list_checkpoints(steps: int) -> NDArray[np.int64]:
    """Numbers of steps from 1,000 on, 10% apart; a larger limit only adds to them.

    >>> checkpoints(1_500)
    array([1000, 1101, 1212, 1334, 1468])
    """
    count = math.floor(CHECKPOINTS_PER_DECADE * math.log10(steps / FIRST_CHECKPOINT) + 1e-9) + 1
    return np.rint(FIRST_CHECKPOINT * 10 ** (np.arange(count) / CHECKPOINTS_PER_DECADE)).astype(
        np.int64
    )


def max_error(run: sampled.SampledRun, reference: Distance) -> float:
    """The largest error of a run."""
    return float(np.abs(run.values - reference.values).max())


def find_first_step(
    create_run: Callable[[], sampled.SampledRun],
    reference: Distance,
    target_error: float,
    low: int,
    high: int,
) -> int:
    """After how many steps an error is first at most `goal`, given that it is in (low, high].

    A table that rises and stays below the truth has an error that falls. The same key gives the
    same run however it is cut, so the way is gone again in smaller and smaller parts, down to
    single steps.
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
    return sampled.SampledRun(kind, mdp, sampler=sampler(), seed=seed)


def _group_by_sampler(curves: ConvergenceCurves) -> dict[str, NDArray[np.float64]]:
    return dict(zip(curves.samplers, curves.errors, strict=True))


def _validate_options(num_seeds: Any, steps: Any, target_error: float) -> None:
    for name, count, least, why in (
        ("keys", num_seeds, 2, ": one run has no interval"),
        ("steps", steps, FIRST_CHECKPOINT, ", the first checkpoint"),
    ):
        if not (isinstance(count, int | np.integer) and count >= least):
            raise InputError(
                f"paper.convergence: {name} is {count!r} and must be a whole number, at least "
                f"{least}{why}."
            )
    if not (math.isfinite(target_error) and target_error >= ERROR_FLOOR):
        raise InputError(
            f"paper.convergence: goal is {target_error!r} and must be a number, at least {ERROR_FLOOR:g}, where "
            "the curves end."
        )


def _format_command(folder: Path, options: dict[str, Any]) -> str:
    """The shell command that makes the same files again."""
    words = [json.dumps(str(folder)), *(f"{name}={value}" for name, value in options.items())]
    code = f"from bisimetric import paper; paper.convergence.reproduce({', '.join(words)})"
    return shlex.join(["python", "-c", code])


def _to_json(results: ConvergenceResults) -> dict[str, Any]:
    """The numbers for the file: curves by kind and sampler, one row a key."""
    return {"made": results.metadata} | {
        curves.kind: {
            "world": WORLDS[curves.kind],
            "goal": curves.target_error,
            "keys": curves.seeds.tolist(),
            "largest_excess": curves.max_excess,
            "allowed_excess": curves.max_allowed_excess,
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
        "needed": [int(count) if math.isfinite(count) else None for count in steps_to_target],
        "mean": float(mean) if math.isfinite(mean) else None,
        "half_interval": float(half) if math.isfinite(half) else None,
        "errors": [row[~np.isnan(row)].tolist() for row in errors],
    }
