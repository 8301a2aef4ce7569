"""The GridWorld experiment of Castro (2020): networks learn d~ and d^pi of 31 states.

From the states as such ("noise off"), and with noise on where they lie, the same for a state and
its successor ("noise on": a world of continuous states); the paper's hyperparameters, and its two
errors against the exact metric. It shows them for d~; those of d^pi are measured alike.

The paper's text says 2,500 steps. Its configuration says 240,000, and its records were taken every
100 steps, so that 2,500 is about where the axis of its figure ends. The figures here mark both.

`measured` runs where the device is, without Matplotlib; `drawn` makes figures of its files alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric import exact, learned, worlds
from bisimetric._io import write_atomically
from bisimetric.errors import InputError
from bisimetric.learned import FeatureScaling, LearnedDistance
from bisimetric.learned.castro2020 import Castro2020Config
from bisimetric.learned.evaluation import build_reference_measure
from bisimetric.learned.files import describe_run
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.mdp import MDP
from bisimetric.paper.aggregation import cluster_samples
from bisimetric.paper.gridworld_curves import (
    NOISE,
    PAPER_TEXT_UPDATES,
    PARTS,
    GridworldCurves,
    format_extent,
    format_label,
    format_table,
    load_curves,
    validate_counts,
    validate_names,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PAPER_CONFIG",
    "PARTS",
    "GridworldCurves",
    "draw_figures",
    "format_table",
    "load_curves",
    "measure",
    "reproduce",
]

PAPER_CONFIG = Castro2020Config(
    PairNetwork((729,), output="relu"),
    batch=256,
    learning_rate=0.01,
    epsilon=1e-8,
    target_update_period=500,
    horizon_growth=0.9,
)
UPDATES, NUM_SEEDS, QUICK_NUM_SEEDS, LOG_EVERY = 240_000, 10, 3, 500
DISCOUNT = 0.99
SCALING = FeatureScaling(np.full(2, 3.5, np.float32), np.full(2, 3.5, np.float32))
"""From the centres of cells, in cells, to what the network sees: divided by 7, times 2, minus 1."""

NOISE_CLIP = 0.3
"""The largest noise, in cells."""

TOLERANCE = 1e-6
"""Of the exact metric."""

SAMPLES_PER_CELL = 100
"""For the aggregation, states drawn a cell."""

CLUSTER_COUNTS = (8, 31)
"""How many clusters it shows: a few, and as many as there are cells."""

FIGURES = {
    "bisimulation": ("errors.png", r"$d_\sim$, the bisimulation distance, learned on 31 states"),
    "on_policy": ("on-policy-errors.png", r"$d^\pi$, the on-policy distance, learned on 31 states"),
}
MEASURES = {
    "error": r"absolute error $\max\,|d - \psi|$",
    "normalised": r"normalised error $\max\,|d\,/\,\|d\| - \psi\,/\,\|\psi\||$",
}


def reproduce(
    folder: str | os.PathLike[str],
    parts: Sequence[str] = tuple(PARTS),
    *,
    updates: int | None = None,
    num_seeds: int | None = None,
    quick: bool = False,
    config: Castro2020Config = PAPER_CONFIG,
    log_every: int = LOG_EVERY,
    resume: bool = False,
    command: str | None = None,
) -> dict[str, GridworldCurves]:
    """Measures and draws: `measured`, then `drawn`; the arguments are those of `measured`."""
    found = measure(
        folder,
        parts,
        updates=updates,
        num_seeds=num_seeds,
        quick=quick,
        config=config,
        log_every=log_every,
        resume=resume,
        command=command,
    )
    draw_figures(folder)
    return found


def measure(
    folder: str | os.PathLike[str],
    parts: Sequence[str] = tuple(PARTS),
    *,
    updates: int | None = None,
    num_seeds: int | None = None,
    quick: bool = False,
    config: Castro2020Config = PAPER_CONFIG,
    log_every: int = LOG_EVERY,
    resume: bool = False,
    command: str | None = None,
) -> dict[str, GridworldCurves]:
    """Trains the networks of each part, all seeds in one program, and saves what was measured.

    For every part, `<part>.npz` holds its curves and `<part>.safetensors` the network of seed 0.

    Args:
        folder: where files go; it is made where it is missing.
        parts: of `PARTS`.
        steps: default: 240,000, as in the paper's configuration.
        seeds: how many runs, with the keys 0, 1, ...; default: 10. At least 2, for an interval.
        quick: some minutes on two processor cores: fewer steps and seeds, and with noise smaller
            batches.
        settings: the network and how it learns.
        every: steps between two records.
        resume: keep the parts that the folder holds, and go on with one that was broken off.
        command: what the files say that they were made by; default: this call.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    validate_names("paper.gridworld", "part", parts, PARTS)
    validate_counts("paper.gridworld", updates, num_seeds)
    target.mkdir(parents=True, exist_ok=True)
    said = command or _format_command(target, parts, updates, num_seeds, quick)
    found = {}
    for name in parts:
        count, batch = PARTS[name].quick if quick else (UPDATES, config.batch)
        own = dataclasses.replace(config, batch=min(batch, config.batch))
        keys = tuple(range(num_seeds or (QUICK_NUM_SEEDS if quick else NUM_SEEDS)))
        made = _describe_run(name, updates or count, keys, own, log_every, said)
        before = _load_matching(target, name, made) if resume else None
        found[name] = before or _train_part(target, name, made, own, resume)
    return found


def _describe_run(
    name: str,
    updates: int,
    seeds: tuple[int, ...],
    config: Castro2020Config,
    log_every: int,
    command: str,
) -> dict[str, Any]:
    """What is known of a part before it is measured."""
    part = PARTS[name]
    return {
        "command": command,
        "world": part.world,
        "noise": part.noise,
        "most": NOISE_CLIP if part.noise else 0.0,
        "steps": updates,
        "every": log_every,
        **describe_run(part.kind, DISCOUNT, config, seeds),
    }


def _load_matching(folder: Path, name: str, metadata: dict[str, Any]) -> GridworldCurves | None:
    """The curves of a part from an earlier run of the same kind, if there are any."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return None
    found = GridworldCurves.load(path)
    for what, here in metadata.items():
        if what != "command" and found.metadata.get(what) != here:
            raise InputError(
                f"{path} is of another run: its {what} is {found.metadata.get(what)} and here it is "
                f"{here}; do not resume it, or name another folder."
            )
    return found


def _train_part(
    folder: Path, name: str, metadata: dict[str, Any], config: Castro2020Config, resume: bool
) -> GridworldCurves:
    part = PARTS[name]
    mdp = worlds.load(part.world, discount=DISCOUNT)
    points = cell_centres(mdp)
    truth = getattr(exact, part.kind)(mdp, tol=TOLERANCE).values
    source = learned.source_from_mdp(
        part.kind,
        mdp,
        points=points,
        scaling=SCALING,
        noise=part.noise,
        noise_clip=metadata["most"],
    )
    network = config.build_network(source, part.kind, DISCOUNT)
    began, run = time.perf_counter(), folder / f"{name}.run.safetensors"
    done = learned.fit(
        part.kind,
        source,
        discount=DISCOUNT,
        updates=metadata["steps"],
        seeds=metadata["seeds"],
        config=config,
        measure=build_reference_measure(truth, network, source.compute_features()),
        options=learned.RunOptions(
            log_every=metadata["every"],
            checkpoint=run,
            resume=run if resume and run.exists() else None,
        ),
    )
    metadata = metadata | {
        "seconds": round(time.perf_counter() - began, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    networks = [
        LearnedDistance(
            part.kind, DISCOUNT, network, done.parameters(seed), SCALING, metadata=metadata
        )
        for seed in range(len(done.seeds))
    ]
    history = dict(done.history)
    steps = history.pop("step").astype(np.int64)
    tables = np.stack([network.table(points) for network in networks])
    found = GridworldCurves(name, steps, **history, learned=tables, exact=truth, metadata=metadata)
    networks[0].save(folder / f"{name}.safetensors")
    found.save(folder / f"{name}.npz")
    run.unlink()
    return found


def draw_figures(folder: str | os.PathLike[str]) -> list[Path]:
    """Draws what `measured` saved, from its files alone, and returns what it wrote.

    `errors.png` and `on-policy-errors.png`, the two errors over steps; `tables.png`, the learned
    tables beside the exact one; `aggregation.png`, samples of the noisy world in clusters; and
    `gridworld.json`, the curves with their intervals, and how all of it was made.
    """
    from bisimetric import views

    target = Path(folder)
    found = load_curves(target)
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    figures = {}
    for kind, (file, title) in FIGURES.items():
        of_kind = [curves for curves in found.values() if curves.part.kind == kind]
        if of_kind:
            figures[file] = _plot_errors(of_kind, title)
        if of_kind and kind == "bisimulation":
            figures["tables.png"] = _plot_tables(of_kind, mdp)
    about: dict[str, Any] = {name: curves.to_json() for name, curves in found.items()}
    if "noise" in found:
        network = LearnedDistance.load(target / "noise.safetensors")
        figures["aggregation.png"], about["aggregation"] = _plot_aggregation(network, mdp)
    for file, figure in figures.items():
        views.save_figure(figure, target / file)
    with write_atomically(target / "gridworld.json") as beside:
        beside.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return [target / file for file in (*figures, "gridworld.json")]


def _plot_errors(found: list[GridworldCurves], title: str) -> Figure:
    from bisimetric import views

    largest = float(found[0].exact.max())
    return views.plot_learning_curves(
        {
            name: {
                format_label(curves): (curves.updates, getattr(curves, field)) for curves in found
            }
            for field, name in MEASURES.items()
        },
        marks={
            PAPER_TEXT_UPDATES: f"{PAPER_TEXT_UPDATES:,}: the text",
            UPDATES: f"{UPDATES:,}: the configuration",
        },
        levels={MEASURES["error"]: (largest, r"$\psi = 0$" + f": {largest:.1f}")},
        title=f"{title}: mean and 95% interval\n{format_extent(found)}",
    )


def _plot_tables(found: list[GridworldCurves], mdp: MDP) -> Figure:
    from bisimetric import views

    tables: dict[str, NDArray[Any]] = {"exact": found[0].exact}
    tables |= {f"learned, {format_label(curves)}": curves.learned.mean(axis=0) for curves in found}
    return views.plot_comparison(
        tables,
        names=mdp.names or (),
        title=r"$d_\sim$ of all pairs of 31 states, learned: mean of seeds"
        + f"\n{format_extent(found)}",
    )


def _plot_aggregation(network: LearnedDistance, mdp: MDP) -> tuple[Figure, list[dict[str, Any]]]:
    from bisimetric import views

    samples = cluster_samples(
        network,
        cell_centres(mdp),
        noise=NOISE,
        noise_clip=NOISE_CLIP,
        samples_per_state=SAMPLES_PER_CELL,
        cluster_counts=CLUSTER_COUNTS,
    )
    record = [
        {"threshold": each.threshold, "clusters": len(each), "purity": each.purity(samples.cells)}
        for each in samples.clusters
    ]
    panels = {
        f"threshold {row['threshold']:.3f}: {row['clusters']} clusters\n"
        f"{row['purity']:.1%} of samples from their cluster's main cell": each.labels
        for row, each in zip(record, samples.clusters, strict=True)
    }
    how = network.metadata
    figure = views.plot_clusters(
        mdp,
        samples.points - 0.5,
        panels,
        title=f"{SAMPLES_PER_CELL} samples a cell, aggregated by the learned distance (noise on, "
        f"{how['steps']:,} steps, batches of {how['batch']}, seed 0)\n"
        "thresholds as shares of the largest distance; colours come again after eight clusters",
    )
    return figure, record


def cell_centres(mdp: MDP) -> NDArray[np.float64]:
    """The centres (S, 2) of the cells, in cells: the paper's coordinates of the states."""
    if mdp.positions is None:
        raise InputError("paper.gridworld: the states have no positions.")
    return np.asarray(mdp.positions + 0.5)


def _format_command(
    folder: Path, parts: Sequence[str], updates: int | None, num_seeds: int | None, quick: bool
) -> str:
    """The shell command that measures the same again, the network and its settings aside."""
    given = f"steps={updates}, seeds={num_seeds}, quick={quick}"
    words = f"{json.dumps(str(folder))}, {json.dumps(list(parts))}, {given}"
    code = f"from bisimetric.paper import gridworld; gridworld.measured({words})"
    return shlex.join(["python", "-c", code])
