"""How commands end: what was found is saved, said and drawn, in this order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric.cli.arguments import Pictures, Source, program
from bisimetric.files import written_beside

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.exact.queries import Answer
    from bisimetric.mdp import MDP


def finish(
    distance: Distance,
    source: Source,
    output: Path | None,
    pictures: Pictures,
    *,
    lines: Callable[[Distance], Iterable[str]] | None = None,
    after: Iterable[str] = (),
    **about: str,
) -> None:
    """The end of a command that makes a table.

    `lines` tells of the table, by default as `report.table_lines` does; `after` is said last;
    `about` is kept with the table.
    """
    from bisimetric.cli import report

    distance = named(distance, source, **about)
    if output is not None:
        distance.save(output)
    report.say((lines or report.table_lines)(distance), report.saved_lines([output]))
    pictures.draw(distance)
    following = report.next_lines(distance, output, program())
    report.say(report.saved_lines(pictures.paths), following, after)


def named(distance: Distance, source: Source, **about: str) -> Distance:
    """A table that knows what it is of."""
    return dataclasses.replace(distance, made={**distance.made, "world": source.world, **about})


def finish_query(mdp: MDP, query: Answer, source: Source, **about: str) -> None:
    """The end of a command that answers for some pairs only."""
    from bisimetric.cli import report

    report.say(report.query_lines(mdp, query, source.world, **about))


def finish_relation(
    mdp: MDP, labels: NDArray[Any], source: Source, output: Path | None, **about: str
) -> None:
    """The end of a command that finds classes."""
    import numpy as np

    from bisimetric.cli import report

    if output is not None:
        with written_beside(output) as beside, open(beside, "wb") as file:
            np.save(file, labels)
    report.say(report.class_lines(mdp, labels, source.world, **about), report.saved_lines([output]))
