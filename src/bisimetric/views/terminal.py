"""Distances and comparisons as plain text for a terminal; needs no Matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bisimetric._statistics import compute_confidence_interval
from bisimetric.distance import Distance
from bisimetric.views.landmarks import find_holes
from bisimetric.views.layout import (
    Cells,
    build_number_format,
    describe_kind,
    find_cells,
    find_goals,
    find_unknown_states,
    format_details,
    get_scale,
)

if TYPE_CHECKING:
    from bisimetric.uses.exploration.experiment import ExplorationComparison

WALL_BLOCK = "\u2588"
MAX_WIDTH = 100
MAX_LISTED_STATES = 12


def format_terminal_map(d: Distance, s: int | str, *, normalise: bool = False) -> str:
    """Format the distances from one state as a map, or as a short list if there is no map.

    The source is in [brackets], goals end in *, holes and other absorbing states in o, walls are
    blocks. If a map is too wide for its
    values, each cell has one digit instead, the distance in tenths of the largest.

    Args:
        d: with a matrix of distances.
        s: the index or name of the state.
        normalise: whether to write (1 - discount) * d, distances in units of reward per step, which
            are at most the reward range.

    Returns:
        The lines, joined.

    Raises:
        InputError: there is no such state.

    >>> from bisimetric import exact, worlds
    >>> print(format_terminal_map(exact.bisimulation(worlds.grid(" g")), "0,0"))
    bisimulation distance from 0,0 (discount 0.99)
    ████████████████████████████
    ███████[    0] 2.000*███████
    ████████████████████████████
    [ ] source  * goal
    """
    source = d.mdp.state(s)
    kind = describe_kind(d, normalise=normalise)
    title = f"{kind} from {d.mdp.state_name(source)} ({format_details(d)})"
    cells = find_cells(d.mdp)
    values = d.values[source] * get_scale(d, normalise)
    if cells is None:
        lines = _format_list(d, source, values)
    else:
        lines = _format_map(d, source, cells, values)
    return "\n".join([title, *lines])


def _format_map(
    d: Distance, source: int, cells: Cells, values: NDArray[np.floating]
) -> Iterator[str]:
    format_number = build_number_format(values)
    texts = [format_number(number) for number in values]
    for state in find_unknown_states(d):
        texts[state] = "?"
    width = max(map(len, texts))
    goals = find_goals(d.mdp)
    holes = np.setdiff1d(find_holes(d.mdp), find_unknown_states(d))
    if (width + 2) * cells.shape[1] > MAX_WIDTH:
        yield from _format_digits(d, source, cells, values)
        return
    texts = [f" {text:>{width}} " for text in texts]
    for goal in goals:
        texts[goal] = texts[goal][:-1] + "*"
    for hole in holes:
        texts[hole] = texts[hole][:-1] + "o"
    texts[source] = f"[{texts[source][1:-1]}]"
    yield from _format_rows(cells, texts)
    marks = ("  * goal" if len(goals) else "") + ("  o absorbing" if len(holes) else "")
    yield "[ ] source" + marks


def _format_digits(
    d: Distance, source: int, cells: Cells, values: NDArray[np.floating]
) -> Iterator[str]:
    largest = float(values.max())
    tenths = np.minimum(values / (largest or 1) * 10, 9).astype(np.int64)
    texts = [str(tenth) for tenth in tenths]
    for state in find_unknown_states(d):
        texts[state] = "?"
    for goal in find_goals(d.mdp):
        texts[goal] = "*"
    texts[source] = "S"
    yield from _format_rows(cells, texts)
    star = ", * goal" if "*" in texts else ""
    yield f"S source{star}, digits: tenths of {build_number_format(values)(largest)}, the largest"


def _format_rows(cells: Cells, texts: list[str]) -> Iterator[str]:
    drawn = np.full(cells.shape, WALL_BLOCK * len(texts[0]), dtype=object)
    drawn[cells.rows, cells.columns] = texts
    for row in drawn:
        yield "".join(row)


def _format_list(d: Distance, source: int, values: NDArray[np.floating]) -> Iterator[str]:
    nearest = np.argsort(values, kind="stable")
    known = (nearest != source) & ~np.isin(nearest, find_unknown_states(d))
    order = np.concatenate([[source], nearest[known]])
    shown = order[:MAX_LISTED_STATES]
    format_number = build_number_format(values)
    name_width = max(len(d.mdp.state_name(state)) for state in shown)
    width = max(len(format_number(values[state])) for state in shown)
    for state in shown:
        yield f"  {d.mdp.state_name(state):<{name_width}}  {format_number(values[state]):>{width}}"
    if len(order) > len(shown):
        farthest = format_number(values[order[-1]])
        yield f"  ... and {len(order) - len(shown)} more, the farthest at {farthest}"


def format_comparison(comparison: ExplorationComparison) -> Iterator[str]:
    """Format one line per arm: its first goal, and the states and goals at the end.

    The first goal is the median over the seeds, with the number of seeds that reached it; states
    and goals are means with half the widths of their 95% confidence intervals.
    """
    num_seeds = comparison.first_goal.shape[1]
    width = max(len(name) for name in comparison.names) + 2
    last = f"{int(comparison.steps[-1]):,} steps"
    yield f"{'':<{width}}{'first goal':>10}  {'reached by':<12}{'states':<17}goals, after {last}"
    for row, name in enumerate(comparison.names):
        means = [
            _format_mean(samples[row, :, -1]) for samples in (comparison.visited, comparison.goals)
        ]
        median = float(np.median(comparison.first_goal[row]))
        step = f"{median:,.0f}" if np.isfinite(median) else "never"
        by = f"{int(np.isfinite(comparison.first_goal[row]).sum())} of {num_seeds}"
        yield f"{name:<{width}}{step:>10}  {by:<12}{means[0]:<17}{means[1]}"
    yield f"of {comparison.num_reachable:,} distinct reachable states"


def _format_mean(samples: NDArray[np.int64]) -> str:
    mean = float(samples.mean())
    return f"{mean:.1f}" + (
        f" +- {float(compute_confidence_interval(samples)[1]):.1f}" if len(samples) > 1 else ""
    )
