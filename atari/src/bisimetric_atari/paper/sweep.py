"""The hyperparameter sweep of the supplement of Castro (2020).

Learning rate, batch size, target update period, layers and units, 3 seeds each. All seeds and
learning rates of one shape are trained in one program; each shape is one file, so that an
interrupted sweep can be resumed. The paper does not state its criterion; here it is the correlation
with the exact distances (see `exact_returns`).
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
from bisimetric.transitions import Transitions
from bisimetric_atari.paper import learning
from bisimetric_atari.paper.learning import (
    INITIAL_STEPS,
    PAPER_CONFIG,
    STEPS_PER_UPDATE,
    get_config,
)
from bisimetric_atari.paper.sweep_results import SweepResult, SweepShape, tabulate, write_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATES = (5e-5, 7.5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3)
GRID: dict[str, tuple[int, ...]] = {
    "batch": (4, 8, 16, 32, 64, 128),
    "target_update_period": (10, 50, 100, 250, 500, 1000, 2000),
    "layers": (1, 2, 3),
    "units": (16, 32, 64, 128),
}
"""As in the supplement; the period is in agent steps, 4 per update."""

PAPER_SHAPE = SweepShape()
"""The paper's choice."""

NUM_SEEDS, QUICK_UPDATES = 3, 37_500


def list_shapes(quick: bool = False, grid: Mapping[str, Sequence[int]] = GRID) -> list[SweepShape]:
    """List the shapes of a grid; quick: the paper's, and those with one other hyperparameter.

    >>> len(list_shapes()), len(list_shapes(quick=True))
    (504, 17)
    """
    if not quick:
        return [SweepShape(*shape) for shape in itertools.product(*(grid[name] for name in GRID))]
    neighbours = [
        PAPER_SHAPE._replace(**{name: value}) for name, values in grid.items() for value in values
    ]
    return list(dict.fromkeys([PAPER_SHAPE, *neighbours]))


def build_config(shape: SweepShape) -> Castro2020Config:
    """Return the paper's hyperparameters with another shape.

    >>> build_config(SweepShape(target_update_period=10)).target_update_period
    2
    >>> build_config(SweepShape(layers=3)).network.hidden
    (16, 16, 16)
    """
    return dataclasses.replace(
        PAPER_CONFIG,
        network=PairNetwork((shape.units,) * shape.layers, output_activation="relu"),
        batch_size=shape.batch,
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
    """Train the networks of every shape, and save their curves as `<shape>.npz`.

    Args:
        folder: where files are written; finished shapes of the same sweep are reused.
        data: transitions of the agent in their order; observations are its features.
        quick: the shapes that differ from the paper's in one hyperparameter, and fewer updates.
        selected_shapes: default: those of `list_shapes`.
        learning_rates: of Adam.
        num_seeds: networks per setting, with seeds 0, 1, ...
        updates: default: one per 4 agent steps; quick: at most 37,500.
        discount: per agent step.
        terminal_state: whether the end of a game is an absorbing terminal state.
        replay_growth: transitions available at the first update, and how many more per update;
            None for all of them.
        device: platform such as "cpu" or "gpu"; default: that of JAX.

    Returns:
        The results, by shape.

    Raises:
        InputError: if an argument is out of range or a file is of another sweep.
    """
    num_seeds = require_integer("paper.sweep", "num_seeds", num_seeds, 1)
    shapes = list_shapes(quick) if selected_shapes is None else list(selected_shapes)
    if not (shapes and learning_rates):
        raise InputError(
            "paper.sweep: there is nothing to sweep; give selected_shapes and learning_rates."
        )
    num_updates = max(1, len(data) // STEPS_PER_UPDATE)
    if updates is not None:
        num_updates = require_integer("paper.sweep", "updates", updates, 1)
    elif quick:
        num_updates = min(num_updates, QUICK_UPDATES)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with jax.default_device(select_device(learning.KIND, device)):
        source = learning.build_source(
            data, terminal_state=terminal_state, replay_growth=replay_growth
        )
        metadata = {
            **learning.describe_origin(data),
            "source": files.compute_fingerprint(source),
            "updates": num_updates,
            "discount": discount,
            "learning_rates": list(map(float, learning_rates)),
            "num_seeds": num_seeds,
        }
        return [_run_shape(target, shape, data, source, metadata) for shape in shapes]


def _run_shape(
    folder: Path,
    shape: SweepShape,
    data: Transitions,
    source: TransitionSource,
    metadata: dict[str, Any],
) -> SweepResult:
    """Train the networks of one shape, or read their finished file."""
    path = folder / f"{shape.name}.npz"
    if path.exists():
        return _load_matching(path, metadata)
    config, discount = build_config(shape), metadata["discount"]
    settings = list(itertools.product(metadata["learning_rates"], range(metadata["num_seeds"])))
    learning_rates, seeds = [rate for rate, _ in settings], [seed for _, seed in settings]
    start_time, failure = time.perf_counter(), {}
    try:
        fitted = learning.fit_networks(
            source,
            config=config,
            updates=metadata["updates"],
            seeds=seeds,
            learning_rates=learning_rates,
            discount=discount,
            measure=learning.build_measure(data, source.scaling, config.network, discount),
        )
    except Diverged as error:
        # Divergence of a setting is a result.
        fitted, failure = error.partial, {"diverged": str(error)}
    metadata = {
        **metadata,
        **failure,
        "seconds": round(time.perf_counter() - start_time, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    updates = fitted.history.get("step", np.zeros(1))
    unknown = np.full((len(settings), len(updates)), np.nan)
    result = SweepResult(
        shape,
        np.array(seeds),
        np.array(learning_rates),
        updates.astype(np.int64),
        **{
            name: fitted.history.get(name, unknown)
            for name in ("loss", "distance", "correlation", "error")
        },
        metadata=metadata,
    )
    result.save(path)
    return result


def _load_matching(path: Path, metadata: dict[str, Any]) -> SweepResult:
    """Read a finished shape; raise InputError if it is of another sweep."""
    result = SweepResult.load(path)
    for name in ("source", "updates", "discount", "learning_rates", "num_seeds"):
        if result.metadata.get(name) != metadata[name]:
            field = "data" if name == "source" else name
            raise InputError(f"{path} is of another sweep: its {field} differ; name a folder.")
    return result


def get_paper_choice(game: str) -> tuple[SweepShape, float]:
    """Return the paper's shape and learning rate for a game."""
    return PAPER_SHAPE, get_config(game).learning_rate


def write_outputs(folder: str | os.PathLike[str], results: Sequence[SweepResult]) -> list[Path]:
    """Write the table, `sweep.csv`, and the figure, `sweep.png`, if it has the paper's setting."""
    from bisimetric import views

    target = Path(folder)
    write_table(target / "sweep.csv", tabulate(results))
    game = str(results[0].metadata.get("game", ""))
    slices = compute_slices(results, get_paper_choice(game))
    panels = {name: values for name, values in slices if values}
    if not panels:
        return [target / "sweep.csv"]
    views.save_figure(_plot_sweep(panels, results[0].metadata, game), target / "sweep.png")
    return [target / "sweep.csv", target / "sweep.png"]


def compute_slices(
    results: Sequence[SweepResult], chosen: tuple[SweepShape, float]
) -> Iterator[tuple[str, Mapping[str, list[float]]]]:
    """Yield final correlations of all seeds per value of one hyperparameter, the others chosen."""
    shape, rate = chosen
    for name in GRID:
        line = [
            result
            for result in results
            if result.shape == shape._replace(**{name: _get_hyperparameter(result, name)})
        ]
        line.sort(key=lambda result: _get_hyperparameter(result, name))
        correlations = {
            str(_get_hyperparameter(result, name)): _final_correlations(result, rate)
            for result in line
        }
        yield name, {value: seeds for value, seeds in correlations.items() if seeds}
    for result in results:
        if result.shape == shape:
            rates = np.unique(result.learning_rates)
            yield "learning_rate", {f"{at:g}": _final_correlations(result, at) for at in rates}


def _get_hyperparameter(result: SweepResult, name: str) -> int:
    return int(getattr(result.shape, name))


def _final_correlations(result: SweepResult, rate: float) -> list[float]:
    """Return the final correlations of all seeds with this learning rate."""
    mask = np.isclose(result.learning_rates, rate)
    return [float(value) for value in result.correlation[mask, -1]]


def _plot_sweep(
    panels: Mapping[str, Mapping[str, list[float]]], metadata: Mapping[str, Any], game: str
) -> Figure:
    """Plot the slices, with the paper's choice marked."""
    from bisimetric import views

    shape, rate = get_paper_choice(game)
    paper = {**{name: str(getattr(shape, name)) for name in GRID}, "learning_rate": f"{rate:g}"}
    return views.plot_sweep(
        panels,
        chosen={name: value for name, value in paper.items() if value in panels.get(name, ())},
        label="correlation with exact distances",
        title=f"{game}: one hyperparameter at a time, the others as in the paper; "
        f"{metadata['updates']:,} updates, {metadata['num_seeds']} seeds",
    )
