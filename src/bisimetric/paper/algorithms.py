"""Compare pair Q-learning with the paper's algorithm on the same MDPs.

Both are trained for the same number of updates; errors against the exact metric are recorded. The
tasks are the paper's 31 states, two grids of about 500 states with obstacles, and two MiniGrid
rooms with image observations. `measure` trains and needs no Matplotlib; `draw_figures` reads its
files alone; `reproduce` does both.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric import datasets, exact, learned, worlds
from bisimetric.errors import Diverged, InputError
from bisimetric.learned.evaluation import build_reference_measure
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.sources import StateSource
from bisimetric.mdp import MDP
from bisimetric.paper.algorithm_curves import (
    AlgorithmCurves,
    AlgorithmRow,
    tabulate,
)
from bisimetric.paper.gridworld import MEASURES, NOISE_CLIP, PAPER_CONFIG, SCALING, cell_centres
from bisimetric.paper.gridworld_curves import ERRORS, NOISE, validate_counts, validate_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ABLATIONS",
    "ALGORITHMS",
    "TASKS",
    "AlgorithmCurves",
    "AlgorithmRow",
    "draw_figures",
    "format_table",
    "load_curves",
    "measure",
    "reproduce",
    "tabulate",
]

DEFAULT_ALGORITHM = "pair-q-learning"
DISCOUNT, UPDATES, NUM_SEEDS, LOG_EVERY = 0.99, 24_000, 10, 500
QUICK_UPDATES, QUICK_NUM_SEEDS = 4_000, 2
ROLLOUT_STEPS = 20_000
"""Random steps in a room: enough to visit each of its states."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A distance to learn.

    Attributes:
        kind: the distance.
        world: name of the MDP.
        title: in tables and figures.
        noise: standard deviation of the noise on the positions, in cells.
        inputs: features of a state: the "paper" coordinates of its cell, its standardised
            "position", or the "observation" of its environment.
        options: of `worlds.load`.
    """

    kind: LearnedKind
    world: str
    title: str
    noise: float = 0.0
    inputs: str = "paper"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


TASKS = {
    "rooms": Task("bisimulation", "mirrored-rooms", "31 states, d~"),
    "rooms-noise": Task("bisimulation", "mirrored-rooms", "31 states, noise, d~", NOISE),
    "policy": Task("on_policy", "mirrored-rooms-policy", "31 states, d^pi"),
    "policy-noise": Task("on_policy", "mirrored-rooms-policy", "31 states, noise, d^pi", NOISE),
    "obstacles": Task(
        "bisimulation",
        "open-grid",
        "490 states with obstacles, d~",
        inputs="position",
        options={"rows": 24, "columns": 24, "obstacles": 0.15},
    ),
    "minigrid": Task(
        "bisimulation", "MiniGrid-Empty-8x8-v0", "a MiniGrid room, d~", inputs="observation"
    ),
    "walls": Task(
        "bisimulation",
        "open-grid",
        "458 states with walls, d~",
        inputs="position",
        options={"rows": 18, "columns": 34, "obstacles": 0.25},
    ),
    "lava": Task(
        "bisimulation",
        "MiniGrid-LavaGapS7-v0",
        "a MiniGrid room with lava, d~",
        inputs="observation",
    ),
}
"""The last two are held out: unused for hyperparameter selection."""

DEFAULT_CONFIG = learned.PairQConfig()
ALGORITHMS = {"pair-q-learning": DEFAULT_CONFIG, "castro2020": PAPER_CONFIG}
ABLATIONS = {
    "unconstrained-network": dataclasses.replace(DEFAULT_CONFIG, network=learned.FreeNetwork()),
    "one-network": dataclasses.replace(DEFAULT_CONFIG, num_networks=1),
    "lookahead-1": dataclasses.replace(DEFAULT_CONFIG, lookahead=1),
    "4-fourier-features": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(fourier_features=4)
    ),
    "no-fourier-features": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(fourier_features=0)
    ),
    "one-group": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(num_groups=1, group_size=256)
    ),
    "constant-learning-rate": dataclasses.replace(DEFAULT_CONFIG, decay=False),
    "target-update-period-500": dataclasses.replace(DEFAULT_CONFIG, target_update_period=500),
}
"""Pair Q-learning with one hyperparameter changed."""


def reproduce(
    folder: str | os.PathLike[str],
    tasks: Sequence[str] = tuple(TASKS),
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    *,
    updates: int | None = None,
    num_seeds: int | None = None,
    quick: bool = False,
    log_every: int = LOG_EVERY,
) -> list[AlgorithmCurves]:
    """Train, save the curves, and draw the figures: `measure`, then `draw_figures`.

    Args:
        folder: where curves (`.npz`) and figures (`<task>.png`) are written; curves found there
            are reused.
        tasks: names in `TASKS`.
        algorithms: names in `ALGORITHMS` and `ABLATIONS`.
        updates: default: 24,000; quick: 4,000.
        num_seeds: runs, with seeds 0, 1, ...; at least 2; default: 10; quick: 2.
        quick: fewer updates and seeds.
        log_every: updates between two records.

    Returns:
        The curves, by task and algorithm.

    Raises:
        InputError: if a name is unknown, a number out of range, or curves in the folder are of
            another run.
    """
    curves = measure(
        folder,
        tasks,
        algorithms,
        updates=updates,
        num_seeds=num_seeds,
        quick=quick,
        log_every=log_every,
    )
    draw_figures(folder)
    return curves


def measure(
    folder: str | os.PathLike[str],
    tasks: Sequence[str] = tuple(TASKS),
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    *,
    updates: int | None = None,
    num_seeds: int | None = None,
    quick: bool = False,
    log_every: int = LOG_EVERY,
) -> list[AlgorithmCurves]:
    """Train the networks of each task by each algorithm, and save their curves.

    Curves found in the folder are reused. Arguments, result and errors are those of `reproduce`.
    """
    known = {**ALGORITHMS, **ABLATIONS}
    validate_names("paper.algorithms", "task", tasks, TASKS)
    validate_names("paper.algorithms", "algorithm", algorithms, known)
    validate_counts("paper.algorithms", updates, num_seeds)
    Path(folder).mkdir(parents=True, exist_ok=True)
    updates = updates or (QUICK_UPDATES if quick else UPDATES)
    num_seeds = num_seeds or (QUICK_NUM_SEEDS if quick else NUM_SEEDS)
    curves = []
    for task in tasks:
        _, source, reference = build_task(TASKS[task])
        for name in algorithms:
            path = _curves_path(folder, task, name)
            if path.exists():
                curves.append(_load_matching(path, updates, num_seeds))
                continue
            config = known[name]
            trained = _train(task, name, config, source, reference, updates, num_seeds, log_every)
            trained.save(path)
            curves.append(trained)
    return curves


def _load_matching(path: Path, updates: int, num_seeds: int) -> AlgorithmCurves:
    """Read finished curves; raise InputError if they are of other numbers of updates or seeds."""
    curves = AlgorithmCurves.load(path)
    found = {"num_seeds": (len(curves.error), num_seeds)}
    if "diverged" not in curves.metadata:
        found["updates"] = (int(curves.updates[-1]), updates)
    for name, (stored, expected) in found.items():
        if stored != expected:
            raise InputError(
                f"{path} is of another run: its {name} is {stored} and here it is {expected}; give "
                "the same, or name another folder."
            )
    return curves


def _curves_path(folder: str | os.PathLike[str], task: str, algorithm: str) -> Path:
    """Return the path of the curves of a task and algorithm."""
    return Path(folder) / f"{task}.{algorithm}.npz"


def build_task(task: Task) -> tuple[MDP, StateSource, NDArray[np.float64]]:
    """Build the MDP, the source of training pairs, and the exact metric."""
    mdp = worlds.load(task.world, discount=DISCOUNT, **task.options)
    reference = getattr(exact, task.kind)(mdp).values
    options: dict[str, Any] = {}
    if task.inputs == "paper":
        options = {"points": cell_centres(mdp), "scaling": SCALING}
    elif task.inputs == "observation":
        options = {"points": collect_observations(task.world, mdp)}
    source = learned.source_from_mdp(
        task.kind, mdp, noise=task.noise, noise_clip=NOISE_CLIP, **options
    )
    return mdp, source, np.asarray(reference)


def collect_observations(environment: str, mdp: MDP) -> NDArray[np.float32]:
    """Collect a feature vector per state of MiniGrid, (S, k): image, direction, and terminal flag.

    Images alone are equal in some states of different direction.
    """
    data = datasets.rollout(environment, steps=ROLLOUT_STEPS, seed=0)
    names = data.names or ()
    ids, first = np.unique(np.asarray(data.states), return_index=True)
    images = {names[s]: data.observations[i].ravel() for s, i in zip(ids, first, strict=True)}
    directions = ("east", "south", "west", "north")
    rows = []
    for state in range(mdp.num_states):
        name = mdp.state_name(state)
        terminal = name not in images
        image = np.zeros(data.observations[0].size) if terminal else images[name]
        one_hot = [float(name.endswith(direction)) for direction in directions]
        rows.append(np.concatenate([image, one_hot, [float(terminal)]]))
    points = np.asarray(rows, np.float32)
    if len(np.unique(points, axis=0)) < len(points):
        raise InputError(
            f"paper.algorithms: {environment} has equal observations in different states."
        )
    return points


def _train(
    task: str,
    algorithm: str,
    config: Any,
    source: StateSource,
    reference: NDArray[np.float64],
    updates: int,
    num_seeds: int,
    log_every: int,
) -> AlgorithmCurves:
    """Train one algorithm on one task."""
    kind = TASKS[task].kind
    network = config.build_network(source, kind, DISCOUNT)
    start_time, failure = time.perf_counter(), {}
    try:
        result = learned.fit(
            kind,
            source,
            discount=DISCOUNT,
            updates=updates,
            seeds=range(num_seeds),
            config=config,
            measure=build_reference_measure(reference, network, source.compute_features()),
            options=learned.RunOptions(log_every=log_every),
        )
    except Diverged as error:
        # Divergence of an algorithm is a result.
        result, failure = error.partial, {"diverged": str(error)}
    metadata: dict[str, Any] = failure | {
        "seconds": round(time.perf_counter() - start_time, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    first = LearnedDistance(kind, DISCOUNT, network, result.parameters(0), source.scaling)
    metadata["quality"] = first.quality(source)._asdict()
    history = result.history
    return AlgorithmCurves(
        task,
        algorithm,
        history["step"].astype(np.int64),
        history["error"],
        history["normalised"],
        history["correlation"],
        float(reference.max()),
        metadata,
    )


def load_curves(folder: str | os.PathLike[str]) -> list[AlgorithmCurves]:
    """Read all curves in a folder."""
    names = (*ALGORITHMS, *ABLATIONS)
    paths = [_curves_path(folder, task, name) for task in TASKS for name in names]
    return [AlgorithmCurves.load(path) for path in paths if path.exists()]


def draw_figures(folder: str | os.PathLike[str]) -> list[Path]:
    """Draw curves of the algorithms, `<task>.png`, and final errors of the ablations.

    The latter, `<task>-ablation.png`, are drawn for tasks with ablations.

    Args:
        folder: where `measure` wrote its files.

    Returns:
        The paths of the figures.
    """
    from bisimetric import views

    stored = {(curves.task, curves.algorithm): curves for curves in load_curves(folder)}
    paths = []
    for task in TASKS:
        curves = [stored[task, name] for name in ALGORITHMS if (task, name) in stored]
        if curves:
            paths.append(Path(folder) / f"{task}.png")
            views.save_figure(_plot_curves(curves), paths[-1])
        ablations = [stored[task, name] for name in ABLATIONS if (task, name) in stored]
        if ablations:
            default = [stored[key] for key in [(task, DEFAULT_ALGORITHM)] if key in stored]
            paths.append(Path(folder) / f"{task}-ablation.png")
            views.save_figure(_plot_ablations([*default, *ablations]), paths[-1])
    return paths


def _plot_ablations(curves: Sequence[AlgorithmCurves]) -> Figure:
    """Plot the final errors of ablations on one task, beside those of the default algorithm."""
    from bisimetric import views

    names = {run.algorithm: run.algorithm + _format_divergence(run) for run in curves}
    return views.plot_final_errors(
        {
            title: {names[run.algorithm]: getattr(run, field)[:, -1] for run in curves}
            for field, title in MEASURES.items()
        },
        reference=names.get(DEFAULT_ALGORITHM),
        title=f"{TASKS[curves[0].task].title}: after {curves[0].updates[-1]:,} updates, "
        f"mean and 95% interval of {len(curves[0].error)} seeds",
    )


def _plot_curves(curves: Sequence[AlgorithmCurves]) -> Figure:
    """Plot the errors of several algorithms on one task."""
    from bisimetric import views

    largest = curves[0].max_distance
    return views.plot_learning_curves(
        {
            name: {
                run.algorithm + _format_divergence(run): (run.updates, getattr(run, field))
                for run in curves
            }
            for field, name in MEASURES.items()
        },
        levels={MEASURES["error"]: (largest, f"the largest distance: {largest:.4g}")},
        logarithmic=True,
        title=f"{TASKS[curves[0].task].title}: mean and 95% interval, {len(curves[0].error)} seeds",
    )


def _format_divergence(curves: AlgorithmCurves) -> str:
    """Return the update of a divergence, if any."""
    return f", diverged at {curves.updates[-1]:,}" if "diverged" in curves.metadata else ""


def format_table(curves: Sequence[AlgorithmCurves]) -> Iterator[str]:
    """Yield the lines of a table: final errors, means and 95% intervals.

    Args:
        curves: those of `measure` or `load_curves`.

    Yields:
        The lines.
    """
    heads = ("largest error", "normalised error", "correlation")
    yield (f"{'task':<32}{'algorithm':<26}" + "".join(f"{head:<22}" for head in heads)).rstrip()
    for row in tabulate(curves):
        cells = []
        for name in ERRORS:
            mean, half = getattr(row, name), getattr(row, f"{name}_half_interval")
            cells.append(f"{f'{mean:.4g} +- {half:.2g}':<22}")
        line = f"{TASKS[row.task].title:<32}{row.algorithm:<26}{''.join(cells)}"
        yield line.rstrip() + (f", diverged at {row.updates:,}" if row.diverged else "")
