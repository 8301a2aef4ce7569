"""The GridWorld experiment of Castro (2020): learn d~ and d^pi of 31 states with networks.

The inputs are the positions of the states ("noise off"), or positions with noise, the same for a
state and its successor ("noise on": a continuous-state MDP). Hyperparameters and both errors
against the exact metric are the paper's. It reports them for d~; here also for d^pi.

The paper's text says 2,500 steps. Its configuration says 240,000, and its records were taken every
100 steps, so that 2,500 is about where the axis of its figure ends. The figures here mark both.

`measure` trains and needs no Matplotlib; `draw_figures` reads its files alone; `reproduce` does
both.
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
from bisimetric.errors import Diverged, InputError
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
    tabulate,
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
    "tabulate",
]

PAPER_CONFIG = Castro2020Config(
    PairNetwork((729,), output_activation="relu"),
    batch_size=256,
    learning_rate=0.01,
    epsilon=1e-8,
    target_update_period=500,
    horizon_growth=0.9,
)
UPDATES, NUM_SEEDS, QUICK_NUM_SEEDS, LOG_EVERY = 240_000, 10, 3, 500
DISCOUNT = 0.99
SCALING = FeatureScaling(np.full(2, 3.5, np.float32), np.full(2, 3.5, np.float32))
"""From cell centres, in cells, to the inputs of the network: divided by 7, times 2, minus 1."""

NOISE_CLIP = 0.3
"""Largest absolute noise, in cells."""

TOLERANCE = 1e-6
"""Tolerance of the exact metric."""

SAMPLES_PER_CELL = 100
"""Samples per cell for the aggregation."""

CLUSTER_COUNTS = (8, 31)
"""Numbers of clusters of the aggregation: a few, and one per cell."""

FIGURES = {
    "bisimulation": ("errors.png", r"$\tilde d$, the bisimulation distance, learned on 31 states"),
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
    """Train, save the curves, and draw the figures: `measure`, then `draw_figures`.

    Args:
        folder: where files are written; created if missing.
        parts: names in `PARTS`.
        updates: default: 240,000, as in the paper's configuration.
        num_seeds: runs, with seeds 0, 1, ...; at least 2, for an interval; default: 10.
        quick: some minutes on two cores: fewer updates and seeds, and smaller batches with noise.
        config: network and hyperparameters.
        log_every: updates between two records.
        resume: reuse the finished parts in the folder, and continue an interrupted one.
        command: command stored in the files; default: this call.

    Returns:
        The curves by name of the part.

    Raises:
        InputError: if a name is unknown, a number out of range, or `resume` finds another run.
    """
    curves = measure(
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
    return curves


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
    num_saved: int = 1,
    keep_diverged: bool = False,
) -> dict[str, GridworldCurves]:
    """Train the networks of each part, all seeds in one program, and save their curves.

    `<part>.npz` holds the curves of a part, `<part>.safetensors` the network of seed 0,
    `<part>-<seed>.safetensors` those of other seeds.

    Args:
        folder: where files are written; created if missing.
        parts: names in `PARTS`.
        updates: default: 240,000, as in the paper's configuration.
        num_seeds: runs, with seeds 0, 1, ...; at least 2, for an interval; default: 10.
        quick: some minutes on two cores: fewer updates and seeds, and smaller batches with noise.
        config: network and hyperparameters.
        log_every: updates between two records.
        resume: reuse the finished parts in the folder, and continue an interrupted one.
        command: command stored in the files; default: this call.
        num_saved: networks to save per part.
        keep_diverged: save the curves up to a divergence of a seed in place of raising.

    Returns:
        The curves by name of the part.

    Raises:
        InputError: if a name is unknown, a number out of range, or `resume` finds another run.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    validate_names("paper.gridworld", "part", parts, PARTS)
    validate_counts("paper.gridworld", updates, num_seeds)
    target.mkdir(parents=True, exist_ok=True)
    command = command or _format_command(target, parts, updates, num_seeds, quick)
    curves = {}
    for name in parts:
        default_updates, batch = PARTS[name].quick if quick else (UPDATES, config.batch_size)
        part_config = dataclasses.replace(config, batch_size=min(batch, config.batch_size))
        seeds = tuple(range(num_seeds or (QUICK_NUM_SEEDS if quick else NUM_SEEDS)))
        metadata = _describe_run(
            name, updates or default_updates, seeds, part_config, log_every, command
        )
        stored = _load_matching(target, name, metadata) if resume else None
        curves[name] = stored or _train_part(
            target, name, metadata, part_config, resume, num_saved, keep_diverged
        )
    return curves


def _describe_run(
    name: str,
    updates: int,
    seeds: tuple[int, ...],
    config: Castro2020Config,
    log_every: int,
    command: str,
) -> dict[str, Any]:
    """Return the metadata of a part that are known before its training."""
    part = PARTS[name]
    return {
        "command": command,
        "world": part.world,
        "noise": part.noise,
        "noise_clip": NOISE_CLIP if part.noise else 0.0,
        "updates": updates,
        "log_every": log_every,
        **describe_run(part.kind, DISCOUNT, config, seeds),
    }


def _load_matching(folder: Path, name: str, metadata: dict[str, Any]) -> GridworldCurves | None:
    """Read the finished curves of a part, if any; raise InputError if they are of another run."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return None
    curves = GridworldCurves.load(path)
    for field, expected in metadata.items():
        # Earlier files have no such field.
        stored = curves.metadata.get(field, False if field == "average_compared" else None)
        # How often errors are recorded does not change a run.
        if field not in ("command", "log_every") and stored != expected:
            raise InputError(
                f"{path} is of another run: its {field} is {stored} and here it is {expected}; do "
                "not resume it, or name another folder."
            )
    return curves


def _train_part(
    folder: Path,
    name: str,
    metadata: dict[str, Any],
    config: Castro2020Config,
    resume: bool,
    num_saved: int,
    keep_diverged: bool,
) -> GridworldCurves:
    """Train all seeds of a part; save their curves and some of the networks."""
    part = PARTS[name]
    mdp = worlds.load(part.world, discount=DISCOUNT)
    points = cell_centres(mdp)
    reference = getattr(exact, part.kind)(mdp, tol=TOLERANCE).values
    source = learned.source_from_mdp(
        part.kind,
        mdp,
        points=points,
        scaling=SCALING,
        noise=part.noise,
        noise_clip=metadata["noise_clip"],
    )
    network = config.build_network(source, part.kind, DISCOUNT)
    start_time, run = time.perf_counter(), folder / f"{name}.run.safetensors"
    divergence = {}
    try:
        result = learned.fit(
            part.kind,
            source,
            discount=DISCOUNT,
            updates=metadata["updates"],
            seeds=metadata["seeds"],
            config=config,
            measure=build_reference_measure(reference, network, source.compute_features()),
            options=learned.RunOptions(
                log_every=metadata["log_every"],
                checkpoint=run,
                resume=run if resume and run.exists() else None,
            ),
        )
    except Diverged as error:
        if not keep_diverged or not error.partial.history:
            raise
        result, divergence = error.partial, {"diverged": str(error)}
    metadata = metadata | {
        **divergence,
        "seconds": round(time.perf_counter() - start_time, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    networks = [
        LearnedDistance(
            part.kind, DISCOUNT, network, result.parameters(seed), SCALING, metadata=metadata
        )
        for seed in range(len(result.seeds))
    ]
    history = dict(result.history)
    updates = history.pop("step").astype(np.int64)
    matrices = np.stack([network.table(points) for network in networks])
    curves = GridworldCurves(
        name, updates, **history, learned=matrices, exact=reference, metadata=metadata
    )
    for seed, each in zip(result.seeds[:num_saved], networks, strict=False):
        each.save(folder / (f"{name}-{seed}.safetensors" if seed else f"{name}.safetensors"))
    curves.save(folder / f"{name}.npz")
    run.unlink()
    return curves


def draw_figures(folder: str | os.PathLike[str]) -> list[Path]:
    """Draw the figures from the files of `measure` alone.

    `errors.png` and `on-policy-errors.png`: both errors over updates; `tables.png`: the learned
    distance matrices beside the exact one; `aggregation.png`: clusters of samples of the noisy MDP;
    `gridworld.json`: the curves with their intervals, and all metadata.

    Args:
        folder: where `measure` wrote its files.

    Returns:
        The paths of the files written.

    Raises:
        FileNotFoundError: if the folder has no curves.
    """
    from bisimetric import views

    target = Path(folder)
    parts = load_curves(target)
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    figures = {}
    for kind, (file, title) in FIGURES.items():
        runs = [curves for curves in parts.values() if curves.part.kind == kind]
        if runs:
            figures[file] = _plot_errors(runs, title)
        if runs and kind == "bisimulation":
            figures["tables.png"] = _plot_tables(runs, mdp)
    record: dict[str, Any] = {name: curves.to_json() for name, curves in parts.items()}
    if "noise" in parts:
        network = LearnedDistance.load(target / "noise.safetensors")
        figures["aggregation.png"], record["aggregation"] = _plot_aggregation(network, mdp)
    for file, figure in figures.items():
        views.save_figure(figure, target / file)
    with write_atomically(target / "gridworld.json") as beside:
        beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return [target / file for file in (*figures, "gridworld.json")]


def _plot_errors(runs: list[GridworldCurves], title: str) -> Figure:
    """Plot both errors over updates."""
    from bisimetric import views

    largest = runs[0].largest
    return views.plot_learning_curves(
        {
            name: {
                format_label(curves): (curves.updates, getattr(curves, field)) for curves in runs
            }
            for field, name in MEASURES.items()
        },
        marks={
            PAPER_TEXT_UPDATES: f"{PAPER_TEXT_UPDATES:,}: the text",
            UPDATES: f"{UPDATES:,}: the configuration",
        },
        levels={MEASURES["error"]: (largest, r"$\psi = 0$" + f": {largest:.1f}")},
        title=f"{title}: mean and 95% interval\n{format_extent(runs)}",
    )


def _plot_tables(runs: list[GridworldCurves], mdp: MDP) -> Figure:
    """Plot the exact and the mean learned distance matrices."""
    from bisimetric import views

    matrices: dict[str, NDArray[Any]] = {"exact": runs[0].exact}
    for curves in runs:
        note = "" if curves.converged else ", not converged"
        matrices[f"learned, {format_label(curves)}{note}"] = curves.learned.mean(axis=0)
    return views.plot_comparison(
        matrices,
        names=mdp.names or (),
        title=r"$\tilde d$ of all pairs of 31 states, learned: mean of seeds"
        + f"\n{format_extent(runs)}",
    )


def _plot_aggregation(network: LearnedDistance, mdp: MDP) -> tuple[Figure, list[dict[str, Any]]]:
    """Plot clusters of samples; return thresholds, numbers of clusters and purities too."""
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
        {
            "threshold": clusters.threshold,
            "clusters": len(clusters),
            "purity": clusters.purity(samples.cells),
        }
        for clusters in samples.clusters
    ]
    panels = {
        f"threshold {row['threshold']:.3f}: {row['clusters']} clusters\n"
        f"{row['purity']:.1%} of samples from their cluster's main cell": clusters.labels
        for row, clusters in zip(record, samples.clusters, strict=True)
    }
    metadata = network.metadata
    figure = views.plot_clusters(
        mdp,
        samples.points - 0.5,
        panels,
        title=f"{SAMPLES_PER_CELL} samples per cell, clustered by the learned distance (noise on, "
        f"{metadata['updates']:,} updates, batches of {metadata['batch_size']}, seed 0)\n"
        "thresholds relative to the largest distance; colours repeat, but not between neighbours",
    )
    return figure, record


def cell_centres(mdp: MDP) -> NDArray[np.float64]:
    """Return the cell centres (S, 2), in cells: the paper's coordinates of the states."""
    if mdp.positions is None:
        raise InputError("paper.gridworld: the states have no positions.")
    return np.asarray(mdp.positions + 0.5)


def _format_command(
    folder: Path, parts: Sequence[str], updates: int | None, num_seeds: int | None, quick: bool
) -> str:
    """Return a shell command that measures the same with the default configuration."""
    options = f"updates={updates}, num_seeds={num_seeds}, quick={quick}"
    arguments = f"{json.dumps(str(folder))}, {json.dumps(list(parts))}, {options}"
    code = f"from bisimetric.paper import gridworld; gridworld.measure({arguments})"
    return shlex.join(["python", "-c", code])
