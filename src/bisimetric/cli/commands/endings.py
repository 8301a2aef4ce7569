"""How commands end: what was found is saved, said and drawn, in this order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric.cli.arguments import FigureOptions, WorldOptions, program_name
from bisimetric.files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.exact.queries import QueryResult
    from bisimetric.mdp import MDP


def write_result(
    distance: Distance,
    source: WorldOptions,
    output: Path | None,
    figures: FigureOptions,
    *,
    describe: Callable[[Distance], Iterable[str]] | None = None,
    suggestions: Iterable[str] = (),
    **details: str,
) -> None:
    """The end of a command that makes a table.

    `lines` tells of the table, by default as `report.table_lines` does; `after` is said last;
    `about` is kept with the table.
    """
    from bisimetric.cli import report

    distance = add_metadata(distance, source, **details)
    if output is not None:
        distance.save(output)
    report.print_lines(
        (describe or report.describe_distance)(distance), report.describe_saved([output])
    )
    figures.draw(distance)
    following = report.suggest_commands(distance, output, program_name())
    report.print_lines(report.describe_saved(figures.paths), following, suggestions)


def add_metadata(distance: Distance, source: WorldOptions, **details: str) -> Distance:
    """A table that knows what it is of."""
    return dataclasses.replace(
        distance, metadata={**distance.metadata, "world": source.world, **details}
    )


def print_query(mdp: MDP, query: QueryResult, source: WorldOptions, **details: str) -> None:
    """The end of a command that answers for some pairs only."""
    from bisimetric.cli import report

    report.print_lines(report.describe_query(mdp, query, source.world, **details))


def write_relation(
    mdp: MDP, labels: NDArray[Any], source: WorldOptions, output: Path | None, **details: str
) -> None:
    """The end of a command that finds classes."""
    import numpy as np

    from bisimetric.cli import report

    if output is not None:
        with write_atomically(output) as beside, open(beside, "wb") as file:
            np.save(file, labels)
    report.print_lines(
        report.describe_classes(mdp, labels, source.world, **details),
        report.describe_saved([output]),
    )
