"""How a network learned, seed by seed, and its file.

The paper's way to learn a distance beside the one that `learned` takes, on the same worlds.

Both learn the same worlds for as many steps; errors are measured against the exact metric on the
way. The worlds are the paper's 31 states, two grids of some 500 states with obstacles, and two
rooms of MiniGrid seen through its own observations. `measured` runs where the device is; `drawn`
makes the figures from its files alone.
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
from bisimetric._io import read_record, write_record
from bisimetric.errors import Diverged, InputError
from bisimetric.learned.evaluation import build_reference_measure
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.sources import StateSource
from bisimetric.mdp import MDP
from bisimetric.paper.gridworld import MEASURES, NOISE_CLIP, PAPER_CONFIG, SCALING, cell_centres
from bisimetric.paper.gridworld_curves import NOISE, validate_counts, validate_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FORMAT = "bisimetric recipe curves, version 1"


@dataclasses.dataclass(frozen=True, eq=False)
class AlgorithmCurves:
    """What was measured of one trial by one recipe, seed by seed.

    Attributes:
        trial, recipe: their names.
        steps: (n,), when.
        error, normalised, correlation: (seeds, n).
        largest: of the exact metric.
        made: how.
    """

    task: str
    algorithm: str
    updates: NDArray[np.int64]
    error: NDArray[np.float64]
    normalised: NDArray[np.float64]
    correlation: NDArray[np.float64]
    max_distance: float
    metadata: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file; it appears whole or not at all."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        about = {name: fields.pop(name) for name in ("trial", "recipe", "made", "largest")}
        write_record(path, {"format": FORMAT, **about}, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AlgorithmCurves:
        """Reads what `save` wrote."""
        otherwise = "no curves of a recipe ({}); measure them again."
        return read_record(path, FORMAT, cls, otherwise)


DISCOUNT, UPDATES, NUM_SEEDS, LOG_EVERY = 0.99, 24_000, 10, 500
QUICK_UPDATES, QUICK_NUM_SEEDS = 4_000, 2
ROLLOUT_STEPS = 20_000
"""Random steps through a room, so that each of its states is seen."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A distance of a world to be learned.

    `seen` tells what the networks see of a state: the "paper" coordinates of its cell, its
    "position", standardised, or the "observation" of its environment.
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
"""Nothing was chosen by the last two."""
DEFAULT_CONFIG = learned.PairQConfig()
ALGORITHMS = {"ours": DEFAULT_CONFIG, "paper": PAPER_CONFIG}
ABLATIONS = {
    "a free network": dataclasses.replace(DEFAULT_CONFIG, network=learned.FreeNetwork()),
    "one network": dataclasses.replace(DEFAULT_CONFIG, num_networks=1),
    "one step ahead": dataclasses.replace(DEFAULT_CONFIG, lookahead=1),
    "octaves": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(fourier_features=4)
    ),
    "no waves": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(fourier_features=0)
    ),
    "one group": dataclasses.replace(
        DEFAULT_CONFIG, network=learned.MetricNetwork(num_groups=1, group_size=256)
    ),
    "a rate that stays": dataclasses.replace(DEFAULT_CONFIG, decay=False),
    "a target for 500 steps": dataclasses.replace(DEFAULT_CONFIG, target_update_period=500),
}
"""Our recipe with one thing changed."""


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
    """Trains the networks of each trial by each recipe, and saves what was measured.

    Args:
        folder: where files go, `<trial>.<recipe>.npz`; those that are there already are kept.
        trials: of `TRIALS`.
        recipes: of `RECIPES` and `ABLATIONS`.
        steps: default: 24,000; quick: 4,000.
        seeds: how many runs, with the keys 0, 1, ...; default: 10; quick: 2. At least 2.
        every: steps between two records.
    """
    known = {**ALGORITHMS, **ABLATIONS}
    validate_names("paper.recipes", "trial", tasks, TASKS)
    validate_names("paper.recipes", "recipe", algorithms, known)
    validate_counts("paper.recipes", updates, num_seeds)
    Path(folder).mkdir(parents=True, exist_ok=True)
    count = updates or (QUICK_UPDATES if quick else UPDATES)
    runs = num_seeds or (QUICK_NUM_SEEDS if quick else NUM_SEEDS)
    found = []
    for trial in tasks:
        _, source, truth = build_task(TASKS[trial])
        for recipe in algorithms:
            path = _curves_path(folder, trial, recipe)
            if not path.exists():
                _train(trial, recipe, known[recipe], source, truth, count, runs, log_every).save(
                    path
                )
            found.append(AlgorithmCurves.load(path))
    return found


def _curves_path(folder: str | os.PathLike[str], task: str, algorithm: str) -> Path:
    """Where the curves of a trial by a recipe are."""
    return Path(folder) / f"{task}.{algorithm.replace(' ', '-')}.npz"


def build_task(task: Task) -> tuple[MDP, StateSource, NDArray[np.float64]]:
    """The world of a trial, what networks learn from, and the exact metric."""
    mdp = worlds.load(task.world, discount=DISCOUNT, **task.options)
    truth = getattr(exact, task.kind)(mdp).values
    how: dict[str, Any] = {}
    if task.inputs == "paper":
        how = {"points": cell_centres(mdp), "scale": SCALING}
    elif task.inputs == "observation":
        how = {"points": collect_observations(task.world, mdp)}
    source = learned.source_from_mdp(task.kind, mdp, noise=task.noise, noise_clip=NOISE_CLIP, **how)
    return mdp, source, np.asarray(truth)


def collect_observations(environment: str, mdp: MDP) -> NDArray[np.float32]:
    """What MiniGrid shows in each state, (S, k): the picture, the direction, and whether it ended.

    The picture alone shows the same in states that are turned against each other.
    """
    data = datasets.rollout(environment, steps=ROLLOUT_STEPS, seed=0)
    names = data.names or ()
    ids, first = np.unique(np.asarray(data.states), return_index=True)
    seen = {names[s]: data.observations[i].ravel() for s, i in zip(ids, first, strict=True)}
    directions = ("east", "south", "west", "north")
    rows = []
    for state in range(mdp.num_states):
        name = mdp.state_name(state)
        picture = seen.get(name)
        turned = [float(name.endswith(each)) for each in directions]
        shown = np.zeros(data.observations[0].size) if picture is None else picture
        rows.append(np.concatenate([shown, turned, [float(picture is None)]]))
    points = np.asarray(rows, np.float32)
    if len(np.unique(points, axis=0)) < len(points):
        raise InputError(f"paper.recipes: {environment} shows the same in different states.")
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
    kind = TASKS[task].kind
    network = config.network_of(source, kind, DISCOUNT)
    began, ended = time.perf_counter(), {}
    try:
        done = learned.fit(
            kind,
            source,
            discount=DISCOUNT,
            updates=updates,
            seeds=range(num_seeds),
            config=config,
            log_every=log_every,
            measure=build_reference_measure(reference, network, source.compute_features()),
        )
    except Diverged as error:
        # A recipe that fails is a result.
        done, ended = error.partial, {"diverged": str(error)}
    made: dict[str, Any] = ended | {
        "seconds": round(time.perf_counter() - began, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    first = LearnedDistance(kind, DISCOUNT, network, done.parameters(0), source.scaling)
    made["quality"] = first.quality(source)._asdict()
    history = done.history
    return AlgorithmCurves(
        task,
        algorithm,
        history["step"].astype(np.int64),
        history["error"],
        history["normalised"],
        history["correlation"],
        float(reference.max()),
        made,
    )


def load_curves(folder: str | os.PathLike[str]) -> list[AlgorithmCurves]:
    """The curves that a folder holds."""
    names = (*ALGORITHMS, *ABLATIONS)
    paths = [_curves_path(folder, trial, recipe) for trial in TASKS for recipe in names]
    return [AlgorithmCurves.load(path) for path in paths if path.exists()]


def draw_figures(folder: str | os.PathLike[str]) -> list[Path]:
    """Draws what `measured` saved: `<trial>.png`, and `<trial>-ablation.png` where there is any."""
    from bisimetric import views

    found = {(each.task, each.algorithm): each for each in load_curves(folder)}
    written = []
    for trial in TASKS:
        for ending, names in (("", ALGORITHMS), ("-ablation", ABLATIONS)):
            shown = [found[trial, name] for name in names if (trial, name) in found]
            if not shown:
                continue
            if names is ABLATIONS and (trial, "ours") in found:
                shown = [found[trial, "ours"], *shown]
            written.append(Path(folder) / f"{trial}{ending}.png")
            views.save_figure(_plot_curves(shown), written[-1])
    return written


def _plot_curves(curves: Sequence[AlgorithmCurves]) -> Figure:
    from bisimetric import views

    largest = curves[0].max_distance
    return views.plot_learning_curves(
        {
            name: {
                _algorithm_label(each) + _format_divergence(each): (
                    each.updates,
                    getattr(each, field),
                )
                for each in curves
            }
            for field, name in MEASURES.items()
        },
        levels={MEASURES["error"]: (largest, f"the largest distance: {largest:.4g}")},
        logarithmic=True,
        title=f"{TASKS[curves[0].task].title}: mean and 95% interval, {len(curves[0].error)} seeds",
    )


def _algorithm_label(curves: AlgorithmCurves) -> str:
    return {"ours": "learned", "paper": "learned.paper"}.get(curves.algorithm, curves.algorithm)


def _format_divergence(curves: AlgorithmCurves) -> str:
    """When it failed, if it did."""
    return f", ended at {curves.updates[-1]:,}" if "diverged" in curves.metadata else ""


def format_table(found: Sequence[AlgorithmCurves]) -> Iterator[str]:
    """A table to be printed: the errors at the last step, means and 95% intervals."""
    from bisimetric._statistics import compute_confidence_interval

    heads = ("largest error", "normalised error", "correlation")
    yield (f"{'world':<32}{'recipe':<24}" + "".join(f"{head:<22}" for head in heads)).rstrip()
    for each in found:
        cells = []
        for name in ("error", "normalised", "correlation"):
            mean, half = compute_confidence_interval(getattr(each, name)[:, -1])
            cells.append(f"{f'{mean:.4g} +- {half:.2g}':<22}")
        line = f"{TASKS[each.task].title:<32}{_algorithm_label(each):<24}{''.join(cells)}"
        yield line.rstrip() + _format_divergence(each)
