"""The paper's way to learn a distance beside the one that `learned` takes, on the same worlds.

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
from bisimetric.errors import Diverged, InputError
from bisimetric.learned.distance import Learned
from bisimetric.learned.losses import Kind
from bisimetric.learned.measures import against
from bisimetric.learned.sources import States
from bisimetric.mdp import MDP
from bisimetric.paper.checks import check_counts, check_names
from bisimetric.paper.grid_curves import NOISE
from bisimetric.paper.gridworld import MEASURES, MOST, PAPER, SCALE, centres
from bisimetric.paper.recipe_curves import Curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISCOUNT, STEPS, SEEDS, EVERY = 0.99, 24_000, 10, 500
QUICK_STEPS, QUICK_SEEDS = 4_000, 2
WALK = 20_000
"""Random steps through a room, so that each of its states is seen."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A distance of a world to be learned.

    `seen` tells what the networks see of a state: the "paper" coordinates of its cell, its
    "position", standardised, or the "observation" of its environment.
    """

    kind: Kind
    world: str
    words: str
    noise: float = 0.0
    seen: str = "paper"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


TRIALS = {
    "rooms": Trial("bisimulation", "mirrored-rooms", "31 states, d~"),
    "rooms-noise": Trial("bisimulation", "mirrored-rooms", "31 states, noise, d~", NOISE),
    "policy": Trial("on_policy", "mirrored-rooms-policy", "31 states, d^pi"),
    "policy-noise": Trial("on_policy", "mirrored-rooms-policy", "31 states, noise, d^pi", NOISE),
    "obstacles": Trial(
        "bisimulation",
        "open-grid",
        "490 states with obstacles, d~",
        seen="position",
        options={"rows": 24, "columns": 24, "obstacles": 0.15},
    ),
    "minigrid": Trial(
        "bisimulation", "MiniGrid-Empty-8x8-v0", "a MiniGrid room, d~", seen="observation"
    ),
    "walls": Trial(
        "bisimulation",
        "open-grid",
        "458 states with walls, d~",
        seen="position",
        options={"rows": 18, "columns": 34, "obstacles": 0.25},
    ),
    "lava": Trial(
        "bisimulation", "MiniGrid-LavaGapS7-v0", "a MiniGrid room with lava, d~", seen="observation"
    ),
}
"""Nothing was chosen by the last two."""
OURS = learned.Settings()
RECIPES = {"ours": OURS, "paper": PAPER}
ABLATIONS = {
    "a free network": dataclasses.replace(OURS, network=learned.FreeNetwork()),
    "one network": dataclasses.replace(OURS, copies=1),
    "one step ahead": dataclasses.replace(OURS, ahead=1),
    "octaves": dataclasses.replace(OURS, network=learned.MetricNetwork(waves=4)),
    "no waves": dataclasses.replace(OURS, network=learned.MetricNetwork(waves=0)),
    "one group": dataclasses.replace(OURS, network=learned.MetricNetwork(groups=1, size=256)),
    "a rate that stays": dataclasses.replace(OURS, decay=False),
    "a target for 500 steps": dataclasses.replace(OURS, period=500),
}
"""Our recipe with one thing changed."""


def measured(
    folder: str | os.PathLike[str],
    trials: Sequence[str] = tuple(TRIALS),
    recipes: Sequence[str] = tuple(RECIPES),
    *,
    steps: int | None = None,
    seeds: int | None = None,
    quick: bool = False,
    every: int = EVERY,
) -> list[Curves]:
    """Trains the networks of each trial by each recipe, and saves what was measured.

    Args:
        folder: where files go, `<trial>.<recipe>.npz`; those that are there already are kept.
        trials: of `TRIALS`.
        recipes: of `RECIPES` and `ABLATIONS`.
        steps: default: 24,000; quick: 4,000.
        seeds: how many runs, with the keys 0, 1, ...; default: 10; quick: 2. At least 2.
        every: steps between two records.
    """
    known = {**RECIPES, **ABLATIONS}
    check_names("paper.recipes", "trial", trials, TRIALS)
    check_names("paper.recipes", "recipe", recipes, known)
    check_counts("paper.recipes", steps, seeds)
    Path(folder).mkdir(parents=True, exist_ok=True)
    count = steps or (QUICK_STEPS if quick else STEPS)
    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    found = []
    for trial in trials:
        _, source, truth = prepared(TRIALS[trial])
        for recipe in recipes:
            path = _file(folder, trial, recipe)
            if not path.exists():
                _run(trial, recipe, known[recipe], source, truth, count, runs, every).save(path)
            found.append(Curves.load(path))
    return found


def _file(folder: str | os.PathLike[str], trial: str, recipe: str) -> Path:
    """Where the curves of a trial by a recipe are."""
    return Path(folder) / f"{trial}.{recipe.replace(' ', '-')}.npz"


def prepared(trial: Trial) -> tuple[MDP, States, NDArray[np.float64]]:
    """The world of a trial, what networks learn from, and the exact metric."""
    mdp = worlds.load(trial.world, discount=DISCOUNT, **trial.options)
    truth = getattr(exact, trial.kind)(mdp).values
    how: dict[str, Any] = {}
    if trial.seen == "paper":
        how = {"points": centres(mdp), "scale": SCALE}
    elif trial.seen == "observation":
        how = {"points": observed(trial.world, mdp)}
    source = learned.of_mdp(trial.kind, mdp, noise=trial.noise, most=MOST, **how)
    return mdp, source, np.asarray(truth)


def observed(environment: str, mdp: MDP) -> NDArray[np.float32]:
    """What MiniGrid shows in each state, (S, k): the picture, the direction, and whether it ended.

    The picture alone shows the same in states that are turned against each other.
    """
    data = datasets.rollout(environment, steps=WALK, key=0)
    names = data.names or ()
    ids, first = np.unique(np.asarray(data.states), return_index=True)
    seen = {names[s]: data.observations[i].ravel() for s, i in zip(ids, first, strict=True)}
    directions = ("east", "south", "west", "north")
    rows = []
    for state in range(mdp.num_states):
        name = mdp.name(state)
        picture = seen.get(name)
        turned = [float(name.endswith(each)) for each in directions]
        shown = np.zeros(data.observations[0].size) if picture is None else picture
        rows.append(np.concatenate([shown, turned, [float(picture is None)]]))
    points = np.asarray(rows, np.float32)
    if len(np.unique(points, axis=0)) < len(points):
        raise InputError(f"paper.recipes: {environment} shows the same in different states.")
    return points


def _run(
    trial: str,
    recipe: str,
    settings: Any,
    source: States,
    truth: NDArray[np.float64],
    steps: int,
    seeds: int,
    every: int,
) -> Curves:
    kind = TRIALS[trial].kind
    network = settings.network_of(source, kind, DISCOUNT)
    began, ended = time.perf_counter(), {}
    try:
        done = learned.fit(
            kind,
            source,
            discount=DISCOUNT,
            steps=steps,
            keys=range(seeds),
            settings=settings,
            every=every,
            measure=against(truth, network, source.features()),
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
    first = Learned(kind, DISCOUNT, network, done.parameters(0), source.scale)
    made["quality"] = first.quality(source)._asdict()
    history = done.history
    return Curves(
        trial,
        recipe,
        history["step"].astype(np.int64),
        history["error"],
        history["normalised"],
        history["correlation"],
        float(truth.max()),
        made,
    )


def kept(folder: str | os.PathLike[str]) -> list[Curves]:
    """The curves that a folder holds."""
    names = (*RECIPES, *ABLATIONS)
    paths = [_file(folder, trial, recipe) for trial in TRIALS for recipe in names]
    return [Curves.load(path) for path in paths if path.exists()]


def drawn(folder: str | os.PathLike[str]) -> list[Path]:
    """Draws what `measured` saved: `<trial>.png`, and `<trial>-ablation.png` where there is any."""
    from bisimetric import views

    found = {(each.trial, each.recipe): each for each in kept(folder)}
    written = []
    for trial in TRIALS:
        for ending, names in (("", RECIPES), ("-ablation", ABLATIONS)):
            shown = [found[trial, name] for name in names if (trial, name) in found]
            if not shown:
                continue
            if names is ABLATIONS and (trial, "ours") in found:
                shown = [found[trial, "ours"], *shown]
            written.append(Path(folder) / f"{trial}{ending}.png")
            views.save(_figure(shown), written[-1])
    return written


def _figure(shown: Sequence[Curves]) -> Figure:
    from bisimetric import views

    largest = shown[0].largest
    return views.learning(
        {
            name: {
                _words(each) + _ended(each): (each.steps, getattr(each, field)) for each in shown
            }
            for field, name in MEASURES.items()
        },
        levels={MEASURES["error"]: (largest, f"the largest distance: {largest:.4g}")},
        logarithmic=True,
        title=f"{TRIALS[shown[0].trial].words}: mean and 95% interval, {len(shown[0].error)} seeds",
    )


def _words(curves: Curves) -> str:
    return {"ours": "learned", "paper": "learned.paper"}.get(curves.recipe, curves.recipe)


def _ended(curves: Curves) -> str:
    """When it failed, if it did."""
    return f", ended at {curves.steps[-1]:,}" if "diverged" in curves.made else ""


def lines(found: Sequence[Curves]) -> Iterator[str]:
    """A table to be printed: the errors at the last step, means and 95% intervals."""
    from bisimetric.views.convergence import interval

    heads = ("largest error", "normalised error", "correlation")
    yield (f"{'world':<32}{'recipe':<24}" + "".join(f"{head:<22}" for head in heads)).rstrip()
    for each in found:
        cells = []
        for name in ("error", "normalised", "correlation"):
            mean, half = interval(getattr(each, name)[:, -1])
            cells.append(f"{f'{mean:.4g} +- {half:.2g}':<22}")
        line = f"{TRIALS[each.trial].words:<32}{_words(each):<24}{''.join(cells)}"
        yield line.rstrip() + _ended(each)
