"""Ablate beta and the target network of Castro (2020), and its differences from the published code.

On the paper's 31 states, with the hyperparameters of its configuration. Without the target network
it is synchronised after every update; beta then grows by the same amount per update as with it.
Without beta, beta is 1 from the first update on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bisimetric._statistics import compute_confidence_interval
from bisimetric.learned.castro2020 import Castro2020Config
from bisimetric.learned.losses import LearnedKind, Objective
from bisimetric.learned.networks.pair_network import PairNetwork, Parameters
from bisimetric.learned.sources import TrainingSource
from bisimetric.paper import gridworld
from bisimetric.paper.gridworld import PAPER_CONFIG
from bisimetric.paper.gridworld_curves import GridworldCurves, validate_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_EVERY = 2_500
"""Updates between two records."""

COMMAND = "bisimetric reproduce claims"
"""The command stored in the files."""

PER_UPDATE_GROWTH = PAPER_CONFIG.horizon_growth ** (1 / PAPER_CONFIG.target_update_period)
"""The growth of beta per update that equals the paper's per synchronisation."""


@dataclasses.dataclass(frozen=True)
class FixedHorizonConfig(Castro2020Config):
    """Castro (2020) with beta = 1 from the first update on.

    >>> FixedHorizonConfig().horizon_growth
    0.0
    """

    horizon_growth: float = 0.0

    def build_objective(
        self, source: TrainingSource, network: Any, kind: LearnedKind, discount: float
    ) -> Objective:
        """Return the loss and its targets, as from the second synchronisation on.

        Args:
            source: what is learned from.
            network: from `build_network`.
            kind: the distance.
            discount: its discount.

        Returns:
            The objective.
        """
        objective = super().build_objective(source, network, kind, discount)

        def prepare(target: Parameters, step: Array) -> Any:
            return objective.prepare(target, step + self.target_update_period)

        return Objective(prepare, objective.loss)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class DoublePairNetwork(PairNetwork):
    """The network of Castro (2020) with float64 weights, as in the published code.

    JAX must have float64 enabled where it is initialised.
    """

    weight_dtype: ClassVar[Any] = jnp.float64


FIXED = FixedHorizonConfig(
    **{
        field.name: getattr(PAPER_CONFIG, field.name)
        for field in dataclasses.fields(PAPER_CONFIG)
        if field.name != "horizon_growth"
    }
)


class Variant(NamedTuple):
    """A variant of the paper's algorithm.

    Attributes:
        label: in tables and figures.
        config: its hyperparameters.
        double: whether it is computed in float64.
    """

    label: str
    config: Castro2020Config
    double: bool = False


VARIANTS = {
    "paper": Variant("the paper's algorithm", PAPER_CONFIG),
    "no-beta": Variant("beta = 1", FIXED),
    "no-target": Variant(
        "no target network",
        dataclasses.replace(PAPER_CONFIG, target_update_period=1, horizon_growth=PER_UPDATE_GROWTH),
    ),
    "neither": Variant(
        "beta = 1, no target network", dataclasses.replace(FIXED, target_update_period=1)
    ),
    "compared-pairs": Variant(
        "averaged over compared pairs", dataclasses.replace(PAPER_CONFIG, average_compared=True)
    ),
    "float64": Variant(
        "float64",
        dataclasses.replace(
            PAPER_CONFIG, network=DoublePairNetwork((729,), output_activation="relu")
        ),
        double=True,
    ),
}
ABLATION = ("paper", "no-beta", "no-target", "neither")
PUBLISHED = ("paper", "compared-pairs", "float64")


def measure(
    folder: str | os.PathLike[str],
    names: Sequence[str] = tuple(VARIANTS),
    *,
    part: str = "no-noise",
    updates: int = gridworld.UPDATES,
    num_seeds: int = gridworld.NUM_SEEDS,
    log_every: int = LOG_EVERY,
    batch_size: int | None = None,
    num_saved: int = 1,
) -> dict[str, GridworldCurves]:
    """Train the variants, each into a folder of its own; finished ones are reused.

    Args:
        folder: where files are written; created if missing.
        names: names in `VARIANTS`.
        part: of `gridworld.PARTS`: "no-noise" or "noise".
        updates: gradient updates per network.
        num_seeds: runs, with seeds 0, 1, ...
        log_every: updates between two records.
        batch_size: default: the paper's.
        num_saved: networks to save per variant.

    Returns:
        The curves by name of the variant; those of one that diverged end before it.

    Raises:
        InputError: if a name is unknown, a number out of range, or a folder is of another run.
    """
    validate_names("paper.stability", "variant", names, VARIANTS)
    results = {}
    for name in names:
        variant = VARIANTS[name]
        size = batch_size or variant.config.batch_size
        precision = jax.enable_x64(True) if variant.double else contextlib.nullcontext()
        with precision:
            results[name] = gridworld.measure(
                Path(folder) / name,
                (part,),
                updates=updates,
                num_seeds=num_seeds,
                config=dataclasses.replace(variant.config, batch_size=size),
                log_every=log_every,
                resume=True,
                command=COMMAND,
                num_saved=num_saved,
                keep_diverged=True,
            )[part]
    return results


class Stability(NamedTuple):
    """Final errors of one variant per seed.

    Attributes:
        error: the largest absolute error.
        normalised: the largest error of the normalised matrices.
        correlation: over pairs of distinct states.
        bias: the mean of psi - d over pairs of distinct states.
        smallest: the smallest absolute error of the run.
        overshoots: whether the mean psi is above the mean d.
        collapsed: whether psi is 0 for some pair of distinct states at a positive distance.
    """

    error: list[float]
    normalised: list[float]
    correlation: list[float]
    bias: list[float]
    smallest: list[float]
    overshoots: list[bool]
    collapsed: list[bool]


def summarise(curves: GridworldCurves) -> Stability:
    """Return the final errors of all seeds.

    Args:
        curves: of one variant.

    Returns:
        One number per seed and field.
    """
    distinct = ~np.eye(len(curves.exact), dtype=bool)
    d, learned = curves.exact[distinct], curves.learned[:, distinct]
    bias = (learned - d).mean(axis=1)
    return Stability(
        curves.error[:, -1].tolist(),
        curves.normalised[:, -1].tolist(),
        [_correlate(d, psi) for psi in learned],
        bias.tolist(),
        curves.error.min(axis=1).tolist(),
        (bias > 0).tolist(),
        ((learned == 0) & (d > 0)).any(axis=1).tolist(),
    )


def _correlate(x: Any, y: Any) -> float:
    """Return the correlation; 0 for a constant."""
    return float(np.corrcoef(x, y)[0, 1]) if np.std(y) > 0 else 0.0


def format_table(results: Mapping[str, Stability]) -> Iterator[str]:
    """Yield the lines of a table of means and 95% intervals.

    Args:
        results: by name of the variant.

    Yields:
        A head, and one line per variant.
    """
    columns = ("absolute error", "normalised error", "mean psi - d", "smallest error")
    yield f"{'':<30}" + "".join(f"{head:>22}" for head in columns) + f"{'overshoot':>12}"
    for name, each in results.items():
        cells = [each.error, each.normalised, each.bias, each.smallest]
        text = "".join(f"{format_interval(cell):>22}" for cell in cells)
        count = f"{sum(each.overshoots)} of {len(each.overshoots)}"
        yield f"{VARIANTS[name].label:<30}{text}{count:>12}"


def format_interval(values: Sequence[float]) -> str:
    """Return mean and half-width of the 95% interval of the mean.

    >>> format_interval([1.0, 2.0, 3.0]), format_interval([100.0, 300.0])
    ('2 ± 2.5', '200 ± 1271')
    """
    mean, half = compute_confidence_interval(np.asarray(values)[:, None])
    width = float(half[0])
    return f"{float(mean[0]):.3g} ± " + (f"{width:.0f}" if 99.5 <= width < 1e5 else f"{width:.2g}")


def plot_curves(results: Mapping[str, GridworldCurves]) -> Figure:
    """Plot both errors of several variants over the updates, with logarithmic axes of errors.

    Args:
        results: by name of the variant; all of the same part.

    Returns:
        The figure.
    """
    from bisimetric import views

    first = next(iter(results.values()))
    noise = "with noise" if first.part.noise else "without noise"
    return views.plot_learning_curves(
        {
            label: {
                VARIANTS[name].label: (curves.updates, getattr(curves, field))
                for name, curves in results.items()
            }
            for field, label in gridworld.MEASURES.items()
        },
        logarithmic=True,
        title=r"$\tilde d$ of 31 states " + f"{noise}: mean and 95% interval of "
        f"{first.num_seeds} seeds, batches of {first.metadata['batch_size']}",
    )
