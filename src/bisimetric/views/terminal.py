"""Distances from one state as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bisimetric.distance import Distance
from bisimetric.views.layout import (
    Cells,
    build_number_format,
    describe_kind,
    find_cells,
    find_goals,
    find_unknown_states,
    format_details,
)

WALL_BLOCK = "\u2588"
MAX_WIDTH = 100
MAX_LISTED_STATES = 12


def format_terminal_map(d: Distance, s: int | str) -> str:
    """The distances from one state as text: a map, or a short list where there is no map.

    The source stands in [brackets], goals end in *, walls are blocks. A map too wide for its
    numbers has one digit a cell instead, the distance in tenths of the largest.

    >>> from bisimetric import exact, worlds
    >>> print(terminal_map(exact.bisimulation(worlds.grid(" g")), "0,0"))
    bisimulation distance from 0,0 (discount 0.99)
    ████████████████████████████
    ███████[    0] 2.000*███████
    ████████████████████████████
    [ ] source  * goal
    """
    source = d.mdp.state(s)
    title = f"{describe_kind(d)} from {d.mdp.state_name(source)} ({format_details(d)})"
    on_map = find_cells(d.mdp)
    lines = _format_list(d, source) if on_map is None else _format_map(d, source, on_map)
    return "\n".join([title, *lines])


def _format_map(d: Distance, source: int, on_map: Cells) -> Iterator[str]:
    numbers = d.values[source]
    written = build_number_format(numbers)
    texts = [written(number) for number in numbers]
    for state in find_unknown_states(d):
        texts[state] = "?"
    longest = max(map(len, texts))
    entered = find_goals(d.mdp)
    if (longest + 2) * on_map.shape[1] > MAX_WIDTH:
        yield from _format_digits(d, source, on_map)
        return
    texts = [f" {text:>{longest}} " for text in texts]
    for goal in entered:
        texts[goal] = texts[goal][:-1] + "*"
    texts[source] = f"[{texts[source][1:-1]}]"
    yield from _format_rows(on_map, texts)
    yield "[ ] source" + ("  * goal" if len(entered) else "")


def _format_digits(d: Distance, source: int, on_map: Cells) -> Iterator[str]:
    numbers = d.values[source]
    largest = float(numbers.max())
    tenths = np.minimum(numbers / (largest or 1) * 10, 9).astype(np.int64)
    texts = [str(tenth) for tenth in tenths]
    for state in find_unknown_states(d):
        texts[state] = "?"
    for goal in find_goals(d.mdp):
        texts[goal] = "*"
    texts[source] = "S"
    yield from _format_rows(on_map, texts)
    star = ", * goal" if "*" in texts else ""
    yield f"S source{star}, digits: tenths of {build_number_format(numbers)(largest)}, the largest"


def _format_rows(on_map: Cells, texts: list[str]) -> Iterator[str]:
    drawn = np.full(on_map.shape, WALL_BLOCK * len(texts[0]), dtype=object)
    drawn[on_map.rows, on_map.columns] = texts
    for row in drawn:
        yield "".join(row)


def _format_list(d: Distance, source: int) -> Iterator[str]:
    numbers = d.values[source]
    nearest = np.argsort(numbers, kind="stable")
    known = (nearest != source) & ~np.isin(nearest, find_unknown_states(d))
    order = np.concatenate([[source], nearest[known]])
    shown = order[:MAX_LISTED_STATES]
    written = build_number_format(numbers)
    longest = max(len(d.mdp.state_name(state)) for state in shown)
    width = max(len(written(numbers[state])) for state in shown)
    for state in shown:
        yield f"  {d.mdp.state_name(state):<{longest}}  {written(numbers[state]):>{width}}"
    if len(order) > len(shown):
        farthest = written(numbers[order[-1]])
        yield f"  ... and {len(order) - len(shown)} more, the farthest at {farthest}"
