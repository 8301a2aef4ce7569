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
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.files import check_writable, written_beside
from bisimetric.mdp import MDP, checked_discount
from bisimetric.progress import bar, digits
from bisimetric.sampled.samplers import SAMPLERS
from bisimetric.views.convergence import interval

Kind = Literal["bisimulation", "on_policy"]
WORLDS: dict[Kind, str] = {
    "bisimulation": "mirrored-rooms",
    "on_policy": "mirrored-rooms-policy",
}
TITLES: dict[Kind, str] = {
    "bisimulation": "d~, the bisimulation distance",
    "on_policy": "d^pi, the on-policy distance",
}
TOL = 1e-9
"""Of the exact metric."""

FLOOR = 1e-6
"""The error at which a curve ends."""

FIRST = 1_000
"""The first checkpoint, in steps."""

A_DECADE = 24
"""Checkpoints from one power of ten to the next: 10% apart."""

LOOKS = 500
"""Into how many parts the way between two checkpoints is cut, to find where an error was met."""


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
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
    keys: NDArray[np.int64]
    steps: NDArray[np.int64]
    errors: NDArray[np.float64]
    excess: NDArray[np.float64]
    allowed: float
    goal: float
    needed: NDArray[np.float64]

    @property
    def largest_excess(self) -> float:
        return float(np.nanmax(self.excess))

    @property
    def below(self) -> bool:
        """Whether d_n <= d at every checkpoint, as the lemma says."""
        return self.largest_excess <= self.allowed


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """Both kinds, and how they were made: command, options, versions, seconds."""

    bisimulation: Curves
    on_policy: Curves
    made: dict[str, Any]


def reproduce(
    folder: str | os.PathLike[str],
    *,
    keys: int = 10,
    steps: int = 10_000_000,
    goal: float = 1e-3,
    discount: float = 0.99,
    command: str | None = None,
) -> Results:
    """Measures both kinds, and saves `convergence.png` and `convergence.json` into `folder`.

    Args:
        keys, steps, goal, discount: as in `measured`.
        command: what the file says that it was made by; default: this call.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    options: dict[str, Any] = {"keys": keys, "steps": steps, "goal": goal, "discount": discount}
    _check(keys, steps, goal)
    checked_discount(discount)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("convergence.png", "convergence.json"):
        check_writable(target / name)
    began = time.perf_counter()
    d, d_pi = (measured(kind, **options) for kind in WORLDS)
    made = {
        "command": command or _call(target, options),
        **options,
        "seconds": round(time.perf_counter() - began, 3),
        "bisimetric": bisimetric.__version__,
        "numpy": np.__version__,
    }
    results = Results(d, d_pi, made)
    figure = views.convergence(
        d.steps,
        {
            r"$d_\sim$, the bisimulation distance": _by_sampler(d),
            r"$d^\pi$, the on-policy distance": _by_sampler(d_pi),
        },
        goal=goal,
        floor=FLOOR,
        title=f"From samples to the metric: 31 states, discount {discount:g}; mean of {keys} keys "
        "(thin lines) and its 95% interval",
    )
    views.save(figure, target / "convergence.png")
    with written_beside(target / "convergence.json") as beside:
        beside.write_text(json.dumps(_record(results), indent=1) + "\n", encoding="utf-8")
    return results


def measured(
    kind: Kind,
    *,
    keys: int = 10,
    steps: int = 10_000_000,
    goal: float = 1e-3,
    discount: float = 0.99,
) -> Curves:
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
    _check(keys, steps, goal)
    mdp = worlds.load(WORLDS[kind], discount=discount)
    truth: Distance = getattr(exact, kind)(mdp, tol=TOL)
    at = checkpoints(steps)
    shape = (len(SAMPLERS), keys, len(at))
    errors, excess = np.full(shape, np.nan), np.full(shape, np.nan)
    needed, rounding = np.full(shape[:2], np.inf), 0.0
    with bar(len(SAMPLERS), f"convergence of {kind}") as progress:
        for number, (name, sampler) in enumerate(SAMPLERS.items()):
            new = functools.partial(_started, kind, mdp, sampler)
            runs = [new(key) for key in range(keys)]
            for column, step in enumerate(at.tolist()):
                for key, run in enumerate(runs):
                    before = run.steps
                    run.advance(step - before)
                    errors[number, key, column] = error = far(run, truth)
                    excess[number, key, column] = (run.values - truth.values).max()
                    if error <= goal and np.isinf(needed[number, key]):
                        again = functools.partial(new, key)
                        needed[number, key] = first(again, truth, goal, before, step)
                worst = float(errors[number, :, column].max())
                way = digits(worst, FLOOR, float(truth.values.max()))
                progress.at(number + way, f"{name}, {step:,} steps, error {worst:.2g}")
                if worst <= FLOOR:
                    break
            rounding = max(rounding, *(run.coverage().rounding for run in runs))
    allowed = truth.error + rounding
    return Curves(kind, tuple(SAMPLERS), np.arange(keys), at, errors, excess, allowed, goal, needed)


def lines(results: Results) -> Iterator[str]:
    """What was found, to be printed: samples needed, with intervals, and whether the lemma held."""
    for curves in (results.bisimulation, results.on_policy):
        yield (
            f"{TITLES[curves.kind]}: pairs of transitions until the largest error is at most "
            f"{curves.goal:g}, {len(curves.keys)} keys"
        )
        yield f"  {'sampler':<14}{'mean':>12}  {'95% interval':<25}{'speed-up':>8}"
        mean, half = interval(curves.needed.T)
        for name, middle, around in zip(curves.samplers, mean, half, strict=True):
            if math.isinf(middle):
                yield f"  {name:<14}{'-':>12}  not within {curves.steps[-1]:,}"
                continue
            between = f"{middle - around:,.0f} to {middle + around:,.0f}"
            times = f"{mean[0] / middle:.2f}" if math.isfinite(mean[0]) else "-"
            yield f"  {name:<14}{middle:12,.0f}  {between:<25}{times:>8}"
        verdict = "holds " if curves.below else "BROKEN"
        yield (
            f"  {verdict}  d_n <= d at every checkpoint: largest excess "
            f"{curves.largest_excess:.2g}, rounding and proven error {curves.allowed:.1g}"
        )


def checkpoints(steps: int) -> NDArray[np.int64]:
    """Numbers of steps from 1,000 on, 10% apart; a larger limit only adds to them.

    >>> checkpoints(1_500)
    array([1000, 1101, 1212, 1334, 1468])
    """
    count = math.floor(A_DECADE * math.log10(steps / FIRST) + 1e-9) + 1
    return np.rint(FIRST * 10 ** (np.arange(count) / A_DECADE)).astype(np.int64)


def far(run: sampled.Run, truth: Distance) -> float:
    """The largest error of a run."""
    return float(np.abs(run.values - truth.values).max())


def first(new: Callable[[], sampled.Run], truth: Distance, goal: float, low: int, high: int) -> int:
    """After how many steps an error is first at most `goal`, given that it is in (low, high].

    A table that rises and stays below the truth has an error that falls. The same key gives the
    same run however it is cut, so the way is gone again in smaller and smaller parts, down to
    single steps.
    """
    while high - low > 1:
        run, part = new(), max(1, (high - low) // LOOKS)
        run.advance(low)
        while run.steps < high and far(run, truth) > goal:
            low = run.steps
            run.advance(min(part, high - low))
        high = run.steps
    return high


def _started(kind: Kind, mdp: MDP, sampler: type[Any], key: int) -> sampled.Run:
    return sampled.Run(kind, mdp, sampler=sampler(), key=key)


def _by_sampler(curves: Curves) -> dict[str, NDArray[np.float64]]:
    return dict(zip(curves.samplers, curves.errors, strict=True))


def _check(keys: Any, steps: Any, goal: float) -> None:
    for name, count, least, why in (
        ("keys", keys, 2, ": one run has no interval"),
        ("steps", steps, FIRST, ", the first checkpoint"),
    ):
        if not (isinstance(count, int | np.integer) and count >= least):
            raise InputError(
                f"paper.convergence: {name} is {count!r} and must be a whole number, at least "
                f"{least}{why}."
            )
    if not (math.isfinite(goal) and goal >= FLOOR):
        raise InputError(
            f"paper.convergence: goal is {goal!r} and must be a number, at least {FLOOR:g}, where "
            "the curves end."
        )


def _call(folder: Path, options: dict[str, Any]) -> str:
    """The shell command that makes the same files again."""
    words = [json.dumps(str(folder)), *(f"{name}={value}" for name, value in options.items())]
    code = f"from bisimetric import paper; paper.convergence.reproduce({', '.join(words)})"
    return shlex.join(["python", "-c", code])


def _record(results: Results) -> dict[str, Any]:
    """The numbers for the file: curves by kind and sampler, one row a key."""
    return {"made": results.made} | {
        curves.kind: {
            "world": WORLDS[curves.kind],
            "goal": curves.goal,
            "keys": curves.keys.tolist(),
            "largest_excess": curves.largest_excess,
            "allowed_excess": curves.allowed,
            "steps": curves.steps.tolist(),
            "samplers": {
                name: _sampler_record(*rows)
                for name, *rows in zip(curves.samplers, curves.needed, curves.errors, strict=True)
            },
        }
        for curves in (results.bisimulation, results.on_policy)
    }


def _sampler_record(needed: NDArray[np.float64], errors: NDArray[np.float64]) -> dict[str, Any]:
    mean, half = interval(needed)
    return {
        "needed": [int(count) if math.isfinite(count) else None for count in needed],
        "mean": float(mean) if math.isfinite(mean) else None,
        "half_interval": float(half) if math.isfinite(half) else None,
        "errors": [row[~np.isnan(row)].tolist() for row in errors],
    }
