"""Regret and regret bound over the number of classes, for several distances."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bisimetric._progress import show_progress
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.uses.aggregation._aggregate import Aggregation, aggregate
from bisimetric.uses.aggregation.clustering import ClusteringRule

MAX_COUNTS = 40
"""Every number of classes is tried up to as many states; about as many numbers beyond."""
NEGLIGIBLE_REGRET = 1e-9
"""A regret below this fraction of the diameter bound is rounding."""


@dataclasses.dataclass(frozen=True, eq=False)
class AggregationCurve:
    """Aggregations of one MDP into increasing numbers of classes, by several distances.

    Attributes:
        mdp: the MDP.
        rule: the clustering rule.
        aggregations: by the name of a distance, fewest classes first.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> curve = aggregation_curve(mdp, {"d_lax": exact.lax(mdp)}, clusters=[1, 2])
    >>> [len(aggregation) for aggregation in curve.aggregations["d_lax"]]
    [1, 2]
    """

    mdp: MDP
    rule: ClusteringRule
    aggregations: dict[str, tuple[Aggregation, ...]]

    @property
    def negligible_regret(self) -> float:
        """A regret up to this is rounding."""
        return NEGLIGIBLE_REGRET * self.mdp.diameter_bound

    def min_classes(self, name: str, max_regret: float = 0.0, *, persistent: bool = False) -> int:
        """Return the fewest classes, of those tried, with a regret of at most `max_regret`.

        Args:
            name: of the distance.
            max_regret: the largest acceptable regret of a state.
            persistent: require the same of all larger numbers of classes that were tried; a finer
                aggregation may have a larger regret.

        Returns:
            A number of classes; the number of states where no aggregation qualifies.
        """
        threshold = max_regret + self.negligible_regret
        fewest = self.mdp.num_states
        for aggregation in reversed(self.aggregations[name]):
            if aggregation.regret <= threshold:
                fewest = len(aggregation)
            elif persistent:
                break
        return fewest

    def min_informative_classes(self, name: str) -> int | None:
        """Return the fewest classes, of those tried, with a regret bound that is not vacuous.

        Args:
            name: of the distance.

        Returns:
            A number of classes; None where every bound is vacuous, or nothing is proven.
        """
        informative = (len(each) for each in self.aggregations[name] if not each.is_vacuous)
        return next(informative, None)

    def lines(self) -> Iterator[str]:
        """Yield the fewest classes for three regrets and for a bound, one distance per line.

        Returns:
            An iterator over lines of text.
        """
        limits = [fraction * self.mdp.diameter_bound for fraction in (0.0, 0.01, 0.1)]
        headings = [f"at most {limit:.3g}" if limit else "0" for limit in limits]
        yield _format_row(
            f"of {self.mdp.num_states:,} states, fewest classes (persistent), regret", headings
        )
        for name in self.aggregations:
            counts = [
                (self.min_classes(name, x), self.min_classes(name, x, persistent=True))
                for x in limits
            ]
            yield _format_row(
                name, [f"{fewest:,} ({persistent:,})" for fewest, persistent in counts]
            )
        fewest_informative = (
            f"{name} {self.min_informative_classes(name) or 'none'}" for name in self.aggregations
        )
        yield f"fewest classes with a bound that is not vacuous: {'; '.join(fewest_informative)}"

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
    """Aggregate by each of several distances into each of several numbers of classes.

    Args:
        mdp: the MDP to aggregate.
        distances: by name: each a `Distance`, a `LearnedDistance` or a matrix (S, S).
        clusters: numbers of classes; default: all of them for up to 40 states, else 40 between 1
            and all, in geometric progression.
        rule: the clustering rule, "incremental", "complete" or "medoids"; see `cluster`.
        seed: of the initial medoids.

    Returns:
        An `AggregationCurve`.

    Raises:
        InputError: where there are no distances or no numbers of classes, or where `aggregate`
            raises it.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> curve = aggregation_curve(mdp, {"d~": exact.bisimulation(mdp), "d_lax": exact.lax(mdp)})
    >>> curve.min_classes("d~"), curve.min_classes("d_lax")
    (3, 1)
    """
    if not distances:
        raise InputError("uses.aggregation_curve: distances is empty; give at least one.")
    counts = _class_counts(mdp.num_states) if clusters is None else sorted(set(clusters))
    if not counts:
        raise InputError("uses.aggregation_curve: clusters is empty; give at least one number.")
    aggregations: dict[str, tuple[Aggregation, ...]] = {}
    with show_progress(len(distances) * len(counts), "aggregations") as progress:
        for row, (name, d) in enumerate(distances.items()):
            by_classes: dict[int, Aggregation] = {}
            for column, count in enumerate(counts):
                aggregation = aggregate(mdp, d, clusters=count, rule=rule, seed=seed)
                by_classes.setdefault(len(aggregation), aggregation)
                progress.set_position(row * len(counts) + column + 1)
            aggregations[name] = tuple(by_classes[count] for count in sorted(by_classes))
    return AggregationCurve(mdp, rule, aggregations)


def manhattan_distances(mdp: MDP) -> NDArray[np.float64]:
    """Return the Manhattan distances between the positions of states, a behaviour-free baseline.

    Args:
        mdp: an MDP with positions.

    Returns:
        (S, S), |row - row'| + |column - column'|.

    Raises:
        InputError: where the MDP has no positions.

    >>> from bisimetric import worlds
    >>> float(manhattan_distances(worlds.load("mirrored-rooms")).max())
    10.0
    """
    if mdp.positions is None:
        raise InputError("uses.manhattan_distances: the MDP has no positions; give it some.")
    return np.asarray(cdist(mdp.positions, mdp.positions, "cityblock"))


def _format_row(name: str, cells: list[str]) -> str:
    return f"{name:<44}" + "".join(f"{cell:>15}" for cell in cells)


def _class_counts(num_states: int) -> list[int]:
    """Return increasing numbers of classes from 1 to all states.

    >>> _class_counts(3), len(_class_counts(10_000)), _class_counts(10_000)[-2:]
    ([1, 2, 3], 37, [7897, 10000])
    """
    if num_states <= MAX_COUNTS:
        return list(range(1, num_states + 1))
    ratios = np.linspace(0.0, math.log(num_states), MAX_COUNTS)
    return sorted({round(math.exp(ratio)) for ratio in ratios})
