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
from bisimetric.errors import Diverged, InputError, whole
from bisimetric.learned import files
from bisimetric.learned.networks.pairs import PairNetwork
from bisimetric.learned.paper import Settings
from bisimetric.learned.sources import Record
from bisimetric.learned.verbs import chosen_device
from bisimetric.paper.atari import learning
from bisimetric.paper.atari.learning import EACH, FIRST, PAPER, settings_for
from bisimetric.paper.atari.swept import Shape, Swept, rows, write_table
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (5e-5, 7.5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3)
GRID: dict[str, tuple[int, ...]] = {
    "batch": (4, 8, 16, 32, 64, 128),
    "period": (10, 50, 100, 250, 500, 1000, 2000),
    "layers": (1, 2, 3),
    "units": (16, 32, 64, 128),
}
"""As in the supplement; periods are in steps of the agent, 4 of which make an update."""

CHOSEN = Shape()
"""The paper's choice."""

SEEDS, QUICK_UPDATES = 3, 37_500


def shapes(quick: bool = False, grid: Mapping[str, Sequence[int]] = GRID) -> list[Shape]:
    """All shapes of a grid; quick: the paper's, and those that differ from it in one thing.

    >>> len(shapes()), len(shapes(quick=True))
    (504, 17)
    """
    if not quick:
        return [Shape(*each) for each in itertools.product(*(grid[name] for name in GRID))]
    one = [CHOSEN._replace(**{name: value}) for name, values in grid.items() for value in values]
    return list(dict.fromkeys([CHOSEN, *one]))


def settings_of(shape: Shape) -> Settings:
    """The paper's settings with another shape.

    >>> settings_of(Shape(period=10)).period, settings_of(Shape(layers=3)).network.hidden
    (2, (16, 16, 16))
    """
    return dataclasses.replace(
        PAPER,
        network=PairNetwork((shape.units,) * shape.layers, output="relu"),
        batch=shape.batch,
        period=max(1, shape.period // EACH),
    )


def swept(
    folder: str | os.PathLike[str],
    data: Transitions,
    *,
    quick: bool = False,
    chosen: Sequence[Shape] | None = None,
    rates: Sequence[float] = RATES,
    seeds: int = SEEDS,
    updates: int | None = None,
    discount: float = learning.DISCOUNT,
    ends: bool = True,
    growing: tuple[int, int] | None = (FIRST, EACH),
    device: str | None = None,
) -> list[Swept]:
    """Trains the networks of every shape, and saves what was measured: `<shape>.npz`.

    Args:
        folder: where files go; those of this sweep that are there already are kept.
        data: steps of the agent; see `learning.learn`.
        quick: the shapes that differ from the paper's in one thing, and fewer updates.
        chosen: the shapes; default: those of `shapes`.
        seeds: networks a setting, with the keys 0, 1, ...
        updates: default: one every 4 steps of the agent; quick: 37,500 at most.
    """
    count = whole("paper.atari.sweep", "seeds", seeds, 1)
    wanted = shapes(quick) if chosen is None else list(chosen)
    if not (wanted and rates):
        raise InputError("paper.atari.sweep: there is nothing to sweep; give shapes and rates.")
    length = max(1, len(data) // EACH)
    if updates is not None:
        length = whole("paper.atari.sweep", "updates", updates, 1)
    elif quick:
        length = min(length, QUICK_UPDATES)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with jax.default_device(chosen_device(learning.KIND, device)):
        source = learning.source_of(data, ends=ends, growing=growing)
        about = {
            **learning.origin(data),
            "source": files.fingerprint(source),
            "updates": length,
            "discount": discount,
            "rates": list(map(float, rates)),
            "seeds": count,
        }
        return [_one(target, shape, data, source, about) for shape in wanted]


def _one(
    folder: Path, shape: Shape, data: Transitions, source: Record, about: dict[str, Any]
) -> Swept:
    path = folder / f"{shape.name}.npz"
    if path.exists():
        found = Swept.load(path)
        for name, here in about.items():
            if name in ("source", "updates", "discount", "rates", "seeds") and (
                found.made.get(name) != here
            ):
                what = "data" if name == "source" else name
                raise InputError(f"{path} is of another sweep: its {what} differ; name a folder.")
        return found
    settings, discount = settings_of(shape), about["discount"]
    networks = list(itertools.product(about["rates"], range(about["seeds"])))
    began, ended = time.perf_counter(), {}
    try:
        done = learning.fitted(
            source,
            settings=settings,
            updates=about["updates"],
            keys=[key for _, key in networks],
            learning_rates=[rate for rate, _ in networks],
            discount=discount,
            measure=learning.judged(data, source.scale, settings.network, discount),
        )
    except Diverged as error:
        # A setting that fails is a result.
        done, ended = error.partial, {"diverged": str(error)}
    made = {
        **about,
        **ended,
        "seconds": round(time.perf_counter() - began, 3),
        "device": jax.devices()[0].device_kind,
        "bisimetric": bisimetric.__version__,
        "jax": jax.__version__,
    }
    steps = done.history.get("step", np.zeros(1))
    unknown = np.full((len(networks), len(steps)), np.nan)
    found = Swept(
        shape,
        np.array([key for _, key in networks]),
        np.array([rate for rate, _ in networks]),
        steps.astype(np.int64),
        **{
            name: done.history.get(name, unknown)
            for name in ("loss", "distance", "correlation", "error")
        },
        made=made,
    )
    found.save(path)
    return found


def kept(folder: str | os.PathLike[str]) -> list[Swept]:
    """What a folder holds of a sweep, shape by shape."""
    paths = [Path(folder) / f"{shape.name}.npz" for shape in shapes()]
    return [Swept.load(path) for path in paths if path.exists()]


def paper_choice(game: str) -> tuple[Shape, float]:
    """What the paper took for a game, the shape and the learning rate."""
    return CHOSEN, settings_for(game).learning_rate


def drawn(folder: str | os.PathLike[str], found: Sequence[Swept]) -> list[Path]:
    """Writes the table, `sweep.csv`, and the picture, `sweep.png`, where the paper's is in it."""
    from bisimetric import views

    target = Path(folder)
    table = rows(found)
    write_table(target / "sweep.csv", table)
    game = str(found[0].made.get("game", ""))
    panels = {name: each for name, each in slices(found, paper_choice(game)) if each}
    if not panels:
        return [target / "sweep.csv"]
    views.save(_figure(panels, found[0].made, game), target / "sweep.png")
    return [target / "sweep.csv", target / "sweep.png"]


def slices(
    found: Sequence[Swept], chosen: tuple[Shape, float]
) -> Iterator[tuple[str, Mapping[str, list[float]]]]:
    """By hyperparameter, the correlations of all seeds where the others are the chosen ones."""
    shape, rate = chosen
    for name in GRID:
        near = [each for each in found if each.shape == shape._replace(**{name: _of(each, name)})]
        near.sort(key=lambda each: _of(each, name))
        here = {str(_of(each, name)): _last(each, rate) for each in near}
        yield name, {value: each for value, each in here.items() if each}
    for each in found:
        if each.shape == shape:
            yield "learning rate", {f"{at:g}": _last(each, at) for at in np.unique(each.rates)}


def _of(each: Swept, name: str) -> int:
    return int(getattr(each.shape, name))


def _last(each: Swept, rate: float) -> list[float]:
    return [float(value) for value in each.correlation[np.isclose(each.rates, rate), -1]]


def _figure(
    panels: Mapping[str, Mapping[str, list[float]]], made: Mapping[str, Any], game: str
) -> Figure:
    from bisimetric.views import games

    shape, rate = paper_choice(game)
    paper = {**{name: str(getattr(shape, name)) for name in GRID}, "learning rate": f"{rate:g}"}
    return games.sweep(
        panels,
        marked={name: value for name, value in paper.items() if value in panels.get(name, ())},
        label="correlation with exact distances",
        title=f"{game}: one thing at a time, the others as in the paper; "
        f"{made['updates']:,} updates, {made['seeds']} seeds",
    )
