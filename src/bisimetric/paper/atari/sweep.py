"""The sweep of the supplement: learning rate, batch, target period, layers and units, 3 seeds each.

All seeds and learning rates of one shape learn side by side in one program; each shape is a file
of the folder, so that a sweep that was broken off goes on. The paper does not say what it judged
settings by. Here it is how well the learned distances fit the exact ones (see `truth`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import bisimetric
from bisimetric.errors import Diverged, InputError, require_integer
from bisimetric.learned import files
from bisimetric.learned.castro2020 import Castro2020Config
from bisimetric.learned.networks.pair_network import PairNetwork
from bisimetric.learned.sources import TransitionSource
from bisimetric.learned.training import select_device
from bisimetric.paper.atari import learning
from bisimetric.paper.atari.learning import (
    INITIAL_STEPS,
    PAPER_CONFIG,
    STEPS_PER_UPDATE,
    get_config,
)
from bisimetric.paper.atari.sweep_results import SweepResult, SweepShape, tabulate, write_table
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATES = (5e-5, 7.5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3)
GRID: dict[str, tuple[int, ...]] = {
    "batch": (4, 8, 16, 32, 64, 128),
    "period": (10, 50, 100, 250, 500, 1000, 2000),
    "layers": (1, 2, 3),
    "units": (16, 32, 64, 128),
}
"""As in the supplement; periods are in steps of the agent, 4 of which make an update."""

PAPER_SHAPE = SweepShape()
"""The paper's choice."""

NUM_SEEDS, QUICK_UPDATES = 3, 37_500


def list_shapes(quick: bool = False, grid: Mapping[str, Sequence[int]] = GRID) -> list[SweepShape]:
    """All shapes of a grid; quick: the paper's, and those that differ from it in one thing.

    >>> len(shapes()), len(shapes(quick=True))
    (504, 17)
    """
    if not quick:
        return [SweepShape(*each) for each in itertools.product(*(grid[name] for name in GRID))]
    one = [
        PAPER_SHAPE._replace(**{name: value}) for name, values in grid.items() for value in values
    ]
    return list(dict.fromkeys([PAPER_SHAPE, *one]))


def build_config(shape: SweepShape) -> Castro2020Config:
    """The paper's settings with another shape.

    >>> settings_of(Shape(period=10)).period, settings_of(Shape(layers=3)).network.hidden
    (2, (16, 16, 16))
    """
    return dataclasses.replace(
        PAPER_CONFIG,
        network=PairNetwork((shape.units,) * shape.layers, output="relu"),
        batch=shape.batch,
        target_update_period=max(1, shape.target_update_period // STEPS_PER_UPDATE),
    )


def run_sweep(
    folder: str | os.PathLike[str],
    data: Transitions,
    *,
    quick: bool = False,
    selected_shapes: Sequence[SweepShape] | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    num_seeds: int = NUM_SEEDS,
    updates: int | None = None,
    discount: float = learning.DISCOUNT,
    terminal_state: bool = True,
    replay_growth: tuple[int, int] | None = (INITIAL_STEPS, STEPS_PER_UPDATE),
    device: str | None = None,
) -> list[SweepResult]:
    """Trains the networks of every shape, and saves what was measured: `<shape>.npz`.

    Args:
        folder: where files go; those of this sweep that are there already are kept.
        data: steps of the agent; see `learning.learn`.
        quick: the shapes that differ from the paper's in one thing, and fewer updates.
        chosen: the shapes; default: those of `shapes`.
        seeds: networks a setting, with the keys 0, 1, ...
        updates: default: one every 4 steps of the agent; quick: 37,500 at most.
    """
    count = require_integer("paper.atari.sweep", "seeds", num_seeds, 1)
    wanted = list_shapes(quick) if selected_shapes is None else list(selected_shapes)
    if not (wanted and learning_rates):
        raise InputError("paper.atari.sweep: there is nothing to sweep; give shapes and rates.")
    length = max(1, len(data) // STEPS_PER_UPDATE)
    if updates is not None:
        length = require_integer("paper.atari.sweep", "updates", updates, 1)
    elif quick:
        length = min(length, QUICK_UPDATES)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with jax.default_device(select_device(learning.KIND, device)):
        source = learning.build_source(
            data, terminal_state=terminal_state, replay_growth=replay_growth
        )
        about = {
            **learning.describe_origin(data),
            "source": files.compute_fingerprint(source),
            "updates": length,
            "discount": discount,
            "rates": list(map(float, learning_rates)),
            "seeds": count,
        }
        return [_run_shape(target, shape, data, source, about) for shape in wanted]


def _run_shape(
    folder: Path,
    shape: SweepShape,
    data: Transitions,
    source: TransitionSource,
    metadata: dict[str, Any],
) -> SweepResult:
    path = folder / f"{shape.name}.npz"
    if path.exists():
        found = SweepResult.load(path)
        for name, here in metadata.items():
            if name in ("source", "updates", "discount", "rates", "seeds") and (
                found.metadata.get(name) != here
            ):
                what = "data" if name == "source" else name
                raise InputError(f"{path} is of another sweep: its {what} differ; name a folder.")
        return found
    settings, discount = build_config(shape), metadata["discount"]
    networks = list(itertools.product(metadata["rates"], range(metadata["seeds"])))
    began, ended = time.perf_counter(), {}
    try:
        done = learning.fit_networks(
            source,
            config=settings,
            updates=metadata["updates"],
            seeds=[key for _, key in networks],
            learning_rates=[rate for rate, _ in networks],
            discount=discount,
            measure=learning.build_measure(data, source.scaling, settings.network, discount),
        )
    except Diverged as error:
        # A setting that fails is a result.
        done, ended = error.partial, {"diverged": str(error)}
    made = {
        **metadata,
        **ended,
        "seconds": round(time.perf_counter() - began, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    steps = done.history.get("step", np.zeros(1))
    unknown = np.full((len(networks), len(steps)), np.nan)
    found = SweepResult(
        shape,
        np.array([key for _, key in networks]),
        np.array([rate for rate, _ in networks]),
        steps.astype(np.int64),
        **{
            name: done.history.get(name, unknown)
            for name in ("loss", "distance", "correlation", "error")
        },
        metadata=made,
    )
    found.save(path)
    return found


def load_results(folder: str | os.PathLike[str]) -> list[SweepResult]:
    """What a folder holds of a sweep, shape by shape."""
    paths = [Path(folder) / f"{shape.name}.npz" for shape in list_shapes()]
    return [SweepResult.load(path) for path in paths if path.exists()]


def get_paper_choice(game: str) -> tuple[SweepShape, float]:
    """What the paper took for a game, the shape and the learning rate."""
    return PAPER_SHAPE, get_config(game).learning_rate


def write_outputs(folder: str | os.PathLike[str], results: Sequence[SweepResult]) -> list[Path]:
    """Writes the table, `sweep.csv`, and the picture, `sweep.png`, where the paper's is in it."""
    from bisimetric import views

    target = Path(folder)
    table = tabulate(results)
    write_table(target / "sweep.csv", table)
    game = str(results[0].metadata.get("game", ""))
    panels = {name: each for name, each in compute_slices(results, get_paper_choice(game)) if each}
    if not panels:
        return [target / "sweep.csv"]
    views.save_figure(_plot_sweep(panels, results[0].metadata, game), target / "sweep.png")
    return [target / "sweep.csv", target / "sweep.png"]


def compute_slices(
    results: Sequence[SweepResult], chosen: tuple[SweepShape, float]
) -> Iterator[tuple[str, Mapping[str, list[float]]]]:
    """By hyperparameter, the correlations of all seeds where the others are the chosen ones."""
    shape, rate = chosen
    for name in GRID:
        near = [
            each
            for each in results
            if each.shape == shape._replace(**{name: _get_hyperparameter(each, name)})
        ]
        near.sort(key=lambda each: _get_hyperparameter(each, name))
        here = {
            str(_get_hyperparameter(each, name)): _final_correlations(each, rate) for each in near
        }
        yield name, {value: each for value, each in here.items() if each}
    for each in results:
        if each.shape == shape:
            yield (
                "learning rate",
                {f"{at:g}": _final_correlations(each, at) for at in np.unique(each.learning_rates)},
            )


def _get_hyperparameter(each: SweepResult, name: str) -> int:
    return int(getattr(each.shape, name))


def _final_correlations(each: SweepResult, rate: float) -> list[float]:
    return [float(value) for value in each.correlation[np.isclose(each.learning_rates, rate), -1]]


def _plot_sweep(
    panels: Mapping[str, Mapping[str, list[float]]], metadata: Mapping[str, Any], game: str
) -> Figure:
    from bisimetric.views import games

    shape, rate = get_paper_choice(game)
    paper = {**{name: str(getattr(shape, name)) for name in GRID}, "learning rate": f"{rate:g}"}
    return games.plot_sweep(
        panels,
        chosen={name: value for name, value in paper.items() if value in panels.get(name, ())},
        label="correlation with exact distances",
        title=f"{game}: one thing at a time, the others as in the paper; "
        f"{metadata['updates']:,} updates, {metadata['seeds']} seeds",
    )
