"""Promise and loss over the number of classes, for several distances side by side."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.uses.aggregation._aggregate import Aggregation, aggregate
from bisimetric.uses.aggregation.clustering import ClusteringRule

MAX_COUNTS = 40
"""Up to so many states every number of classes is tried; of more states, about as many numbers."""
NEGLIGIBLE_REGRET = 1e-9
"""The share of what a policy can lose at most that counts as nothing: rounding."""


@dataclasses.dataclass(frozen=True, eq=False)
class AggregationCurve:
    """The states of one MDP, aggregated more and more finely.

    Attributes:
        mdp: the MDP.
        rule: how the classes were made.
        found: by the name of a distance, fewest classes first.
    """

    mdp: MDP
    rule: ClusteringRule
    aggregations: dict[str, tuple[Aggregation, ...]]

    @property
    def negligible_regret(self) -> float:
        """A loss up to this is rounding."""
        return NEGLIGIBLE_REGRET * self.mdp.diameter_bound

    def min_classes(self, name: str, max_regret: float = 0.0, *, persistent: bool = False) -> int:
        """The fewest classes, of those tried, by which no state loses more than `most`.

        A finer aggregation may lose more again; with `lasting`, none of those tried does.
        """
        enough = max_regret + self.negligible_regret
        good = self.mdp.num_states
        for each in reversed(self.aggregations[name]):
            if each.regret <= enough:
                good = len(each)
            elif persistent:
                break
        return good

    def lines(self) -> Iterator[str]:
        """How many classes keep how much, one distance a line."""
        losses = [share * self.mdp.diameter_bound for share in (0.0, 0.01, 0.1)]
        above = [f"at most {most:.3g}" if most else "nothing" for most in losses]
        yield _format_row(f"of {self.mdp.num_states:,} classes, fewest (lasting) that lose", above)
        for name in self.aggregations:
            counts = [
                (self.min_classes(name, x), self.min_classes(name, x, persistent=True))
                for x in losses
            ]
            yield _format_row(name, [f"{few:,} ({lasting:,})" for few, lasting in counts])

    def __str__(self) -> str:
        return "\n".join(self.lines())


def aggregation_curve(
    mdp: MDP,
    distances: Mapping[str, Any],
    *,
    clusters: Sequence[int] | None = None,
    rule: ClusteringRule = "incremental",
    seed: int = 0,
) -> AggregationCurve:
    """Aggregates by each of several distances, into each of several numbers of classes.

    Args:
        distances: by name, as in `aggregate`.
        clusters: numbers of classes; default: all of them for up to 40 states, else 40 between 1
            and all, in equal ratios.
        rule, key: as in `aggregate`.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> curve = aggregation_curve(mdp, {"d~": exact.bisimulation(mdp), "d_lax": exact.lax(mdp)})
    >>> curve.fewest("d~"), curve.fewest("d_lax")
    (3, 1)
    """
    if not distances:
        raise InputError("uses.aggregation_curve: there are no distances; give at least one.")
    counts = _class_counts(mdp.num_states) if clusters is None else sorted(set(clusters))
    if not counts:
        raise InputError("uses.aggregation_curve: there are no numbers of clusters; give one.")
    found: dict[str, tuple[Aggregation, ...]] = {}
    with show_progress(len(distances) * len(counts), "aggregations") as progress:
        for done, (name, d) in enumerate(distances.items()):
            by_classes: dict[int, Aggregation] = {}
            for at, count in enumerate(counts):
                each = aggregate(mdp, d, clusters=count, rule=rule, seed=seed)
                by_classes.setdefault(len(each), each)
                progress.set_position(done * len(counts) + at + 1)
            found[name] = tuple(by_classes[count] for count in sorted(by_classes))
    return AggregationCurve(mdp, rule, found)


def manhattan_distances(mdp: MDP) -> NDArray[np.float64]:
    """How far apart states lie on the map, (S, S): rows and columns between them.

    What one would use who knows nothing of behaviour, to compare with.

    >>> from bisimetric import worlds
    >>> float(map_distances(worlds.load("mirrored-rooms")).max())
    10.0
    """
    if mdp.positions is None:
        raise InputError("uses.map_distances: the states have no map; give the MDP positions.")
    return np.asarray(
        sum(np.abs(np.subtract.outer(axis, axis)) for axis in mdp.positions.T), np.float64
    )


def _format_row(name: str, cells: list[str]) -> str:
    return f"{name:<44}" + "".join(f"{cell:>15}" for cell in cells)


def _class_counts(num_states: int) -> list[int]:
    """Numbers of classes from 1 to all states.

    >>> _counts(3), len(_counts(10_000)), _counts(10_000)[-2:]
    ([1, 2, 3], 37, [7897, 10000])
    """
    if num_states <= MAX_COUNTS:
        return list(range(1, num_states + 1))
    ratios = np.linspace(0.0, math.log(num_states), MAX_COUNTS)
    return sorted({round(math.exp(ratio)) for ratio in ratios})
