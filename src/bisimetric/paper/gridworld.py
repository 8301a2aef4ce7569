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
from bisimetric.errors import InputError
from bisimetric.files import written_beside
from bisimetric.learned import Learned, Scale
from bisimetric.learned.files import told
from bisimetric.learned.measures import against
from bisimetric.learned.networks.pairs import PairNetwork
from bisimetric.learned.paper import Settings
from bisimetric.mdp import MDP
from bisimetric.paper.aggregation import aggregated
from bisimetric.paper.checks import check_counts, check_names
from bisimetric.paper.grid_curves import NOISE, PARTS, TEXT, Curves, extent, kept, label, lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER", "PARTS", "Curves", "drawn", "kept", "lines", "measured", "reproduce"]

PAPER = Settings(
    PairNetwork((729,), output="relu"),
    batch=256,
    learning_rate=0.01,
    epsilon=1e-8,
    period=500,
    rate=0.9,
)
STEPS, SEEDS, QUICK_SEEDS, EVERY = 240_000, 10, 3, 500
DISCOUNT = 0.99
SCALE = Scale(np.full(2, 3.5, np.float32), np.full(2, 3.5, np.float32))
"""From the centres of cells, in cells, to what the network sees: divided by 7, times 2, minus 1."""

MOST = 0.3
"""The largest noise, in cells."""

TOL = 1e-6
"""Of the exact metric."""

SAMPLES = 100
"""For the aggregation, states drawn a cell."""

CLUSTERS = (8, 31)
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
    steps: int | None = None,
    seeds: int | None = None,
    quick: bool = False,
    settings: Settings = PAPER,
    every: int = EVERY,
    resume: bool = False,
    command: str | None = None,
) -> dict[str, Curves]:
    """Measures and draws: `measured`, then `drawn`; the arguments are those of `measured`."""
    found = measured(
        folder,
        parts,
        steps=steps,
        seeds=seeds,
        quick=quick,
        settings=settings,
        every=every,
        resume=resume,
        command=command,
    )
    drawn(folder)
    return found


def measured(
    folder: str | os.PathLike[str],
    parts: Sequence[str] = tuple(PARTS),
    *,
    steps: int | None = None,
    seeds: int | None = None,
    quick: bool = False,
    settings: Settings = PAPER,
    every: int = EVERY,
    resume: bool = False,
    command: str | None = None,
) -> dict[str, Curves]:
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
    check_names("paper.gridworld", "part", parts, PARTS)
    check_counts("paper.gridworld", steps, seeds)
    target.mkdir(parents=True, exist_ok=True)
    said = command or _call(target, parts, steps, seeds, quick)
    found = {}
    for name in parts:
        count, batch = PARTS[name].quick if quick else (STEPS, settings.batch)
        own = dataclasses.replace(settings, batch=min(batch, settings.batch))
        keys = tuple(range(seeds or (QUICK_SEEDS if quick else SEEDS)))
        made = _making(name, steps or count, keys, own, every, said)
        before = _kept(target, name, made) if resume else None
        found[name] = before or _trained(target, name, made, own, resume)
    return found


def _making(
    name: str, steps: int, keys: tuple[int, ...], settings: Settings, every: int, command: str
) -> dict[str, Any]:
    """What is known of a part before it is measured."""
    part = PARTS[name]
    return {
        "command": command,
        "world": part.world,
        "noise": part.noise,
        "most": MOST if part.noise else 0.0,
        "steps": steps,
        "every": every,
        **told(part.kind, DISCOUNT, settings, keys),
    }


def _kept(folder: Path, name: str, made: dict[str, Any]) -> Curves | None:
    """The curves of a part from an earlier run of the same kind, if there are any."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return None
    found = Curves.load(path)
    for what, here in made.items():
        if what != "command" and found.made.get(what) != here:
            raise InputError(
                f"{path} is of another run: its {what} is {found.made.get(what)} and here it is "
                f"{here}; do not resume it, or name another folder."
            )
    return found


def _trained(
    folder: Path, name: str, made: dict[str, Any], settings: Settings, resume: bool
) -> Curves:
    part = PARTS[name]
    mdp = worlds.load(part.world, discount=DISCOUNT)
    points = centres(mdp)
    truth = getattr(exact, part.kind)(mdp, tol=TOL).values
    source = learned.of_mdp(
        part.kind, mdp, points=points, scale=SCALE, noise=part.noise, most=made["most"]
    )
    network = settings.network_of(source, part.kind, DISCOUNT)
    began, run = time.perf_counter(), folder / f"{name}.run.safetensors"
    done = learned.fit(
        part.kind,
        source,
        discount=DISCOUNT,
        steps=made["steps"],
        keys=made["keys"],
        settings=settings,
        every=made["every"],
        measure=against(truth, network, source.features()),
        checkpoint=run,
        resume=run if resume and run.exists() else None,
    )
    made = made | {
        "seconds": round(time.perf_counter() - began, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    networks = [
        Learned(part.kind, DISCOUNT, network, done.parameters(seed), SCALE, made=made)
        for seed in range(len(done.keys))
    ]
    history = dict(done.history)
    steps = history.pop("step").astype(np.int64)
    tables = np.stack([network.table(points) for network in networks])
    found = Curves(name, steps, **history, learned=tables, exact=truth, made=made)
    networks[0].save(folder / f"{name}.safetensors")
    found.save(folder / f"{name}.npz")
    run.unlink()
    return found


def drawn(folder: str | os.PathLike[str]) -> list[Path]:
    """Draws what `measured` saved, from its files alone, and returns what it wrote.

    `errors.png` and `on-policy-errors.png`, the two errors over steps; `tables.png`, the learned
    tables beside the exact one; `aggregation.png`, samples of the noisy world in clusters; and
    `gridworld.json`, the curves with their intervals, and how all of it was made.
    """
    from bisimetric import views

    target = Path(folder)
    found = kept(target)
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    figures = {}
    for kind, (file, title) in FIGURES.items():
        of_kind = [curves for curves in found.values() if curves.part.kind == kind]
        if of_kind:
            figures[file] = _errors_drawn(of_kind, title)
        if of_kind and kind == "bisimulation":
            figures["tables.png"] = _tables_drawn(of_kind, mdp)
    about: dict[str, Any] = {name: curves.record() for name, curves in found.items()}
    if "noise" in found:
        network = Learned.load(target / "noise.safetensors")
        figures["aggregation.png"], about["aggregation"] = _aggregation_drawn(network, mdp)
    for file, figure in figures.items():
        views.save(figure, target / file)
    with written_beside(target / "gridworld.json") as beside:
        beside.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return [target / file for file in (*figures, "gridworld.json")]


def _errors_drawn(found: list[Curves], title: str) -> Figure:
    from bisimetric import views

    largest = float(found[0].exact.max())
    return views.learning(
        {
            name: {label(curves): (curves.steps, getattr(curves, field)) for curves in found}
            for field, name in MEASURES.items()
        },
        marks={TEXT: f"{TEXT:,}: the text", STEPS: f"{STEPS:,}: the configuration"},
        levels={MEASURES["error"]: (largest, r"$\psi = 0$" + f": {largest:.1f}")},
        title=f"{title}: mean and 95% interval\n{extent(found)}",
    )


def _tables_drawn(found: list[Curves], mdp: MDP) -> Figure:
    from bisimetric import views

    tables: dict[str, NDArray[Any]] = {"exact": found[0].exact}
    tables |= {f"learned, {label(curves)}": curves.learned.mean(axis=0) for curves in found}
    return views.comparison(
        tables,
        names=mdp.names or (),
        title=r"$d_\sim$ of all pairs of 31 states, learned: mean of seeds" + f"\n{extent(found)}",
    )


def _aggregation_drawn(network: Learned, mdp: MDP) -> tuple[Figure, list[dict[str, Any]]]:
    from bisimetric import views

    samples = aggregated(
        network, centres(mdp), noise=NOISE, most=MOST, each=SAMPLES, counts=CLUSTERS
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
    how = network.made
    figure = views.clusters(
        mdp,
        samples.points - 0.5,
        panels,
        title=f"{SAMPLES} samples a cell, aggregated by the learned distance (noise on, "
        f"{how['steps']:,} steps, batches of {how['batch']}, seed 0)\n"
        "thresholds as shares of the largest distance; colours come again after eight clusters",
    )
    return figure, record


def centres(mdp: MDP) -> NDArray[np.float64]:
    """The centres (S, 2) of the cells, in cells: the paper's coordinates of the states."""
    if mdp.positions is None:
        raise InputError("paper.gridworld: the states have no positions.")
    return np.asarray(mdp.positions + 0.5)


def _call(
    folder: Path, parts: Sequence[str], steps: int | None, seeds: int | None, quick: bool
) -> str:
    """The shell command that measures the same again, the network and its settings aside."""
    given = f"steps={steps}, seeds={seeds}, quick={quick}"
    words = f"{json.dumps(str(folder))}, {json.dumps(list(parts))}, {given}"
    code = f"from bisimetric.paper import gridworld; gridworld.measured({words})"
    return shlex.join(["python", "-c", code])
