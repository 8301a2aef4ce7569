"""What the commands print: a few readable lines about an MDP, a table or its classes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.exact._query import QueryResult
    from bisimetric.mdp import MDP

TITLES = {
    "bisimulation": "d~, the bisimulation distance",
    "on_policy": "d^pi, the on-policy distance",
    "lax": "d_lax, the lax bisimulation distance",
    "mico": "MICo, the distance of independent couplings",
}
MAX_LISTED_CLASSES = 40
MAX_LISTED_STATES = 12


def print_lines(*parts: Iterable[str]) -> None:
    """Prints lines, once all of them are known to be good."""
    for line in [line for part in parts for line in part]:
        print(line)


def describe_worlds() -> Iterator[str]:
    """The built-in worlds, and how to bring others."""
    from bisimetric import worlds

    for world in worlds.describe():
        yield f"{world.name}: {world.description}."
        options = " ".join(f"{key}={value}" for key, value in world.options.items())
        yield f"    discount {world.discount:g}" + (f", --set {options}" if options else "")
    yield from _CUSTOM_WORLDS.splitlines()


_CUSTOM_WORLDS = """
Or bring your own:

FrozenLake-v1, CliffWalking-v1, Taxi-v4 and others: Gymnasium environments with a transition table.
    --set takes their options: FrozenLake-v1 --set map_name=8x8 is_slippery=False
MiniGrid-Empty-5x5-v0 and others: MiniGrid rooms, walked through from a start (--set seed=3).
    Both need pip install 'bisimetric[worlds]'.
model.tra: an MDP or a DTMC that PRISM exports, with the model.sta, .lab, .srew, .trew beside it.
    --set observe=goal,fail makes labels count, --set srew=model1.srew chooses rewards.
model.npz: arrays P (actions, states, states) or (states, actions, states), and R.
    --set first=actions tells the order where there are as many actions as states.
data.npz: transitions, as `bisimetric rollout FrozenLake-v1 -o data.npz` collects them or
    Transitions.save writes them. `bisimetric sampled` draws from them; the others take the model
    that they tell of, and with --set unseen=missing states lack actions that were not seen.
rooms.txt: a grid, drawn as text:

    *******
    *  *  g
    *     *
    *******

* wall, space floor, g goal; ^ v < > in place of spaces are a policy. All lines equally long.
States are cells, named row,column from 0,0; entering a goal pays 1, walking into a wall -1.

next: bisimetric exact bisimulation mirrored-rooms -o d.npz"""


def describe_header(distance: Distance) -> Iterator[str]:
    """The MDP, the kind of distance, its largest entry, its error."""
    made = distance.metadata
    yield f"world      {made.get('world', 'not named')}: {format_mdp(distance.mdp)}"
    yield f"distance   {TITLES.get(distance.kind, distance.kind)}"
    if "policy" in made:
        yield f"policy     {made['policy']}"
    yield format_largest(distance)
    yield format_error(distance)


def describe_distance(distance: Distance) -> Iterator[str]:
    """The head, the coverage of data, the zero classes, and how long it took."""
    made = distance.metadata
    yield from describe_header(distance)
    if distance.coverage is not None and not distance.coverage.complete:
        yield f"seen       {distance.coverage.summary}"
    if distance.kind != "mico" and math.isfinite(distance.error):
        zero = format_count(count_zero_classes(distance), "class", "classes")
        to = "" if distance.coverage is None else ", up to the error"
        yield f"classes    {zero} of states at distance 0{to}"
    if "seconds" in made:
        yield f"seconds    {made['seconds']:.3g}"


def format_largest(distance: Distance) -> str:
    """The largest distance, and between which states."""
    mdp, (s, t) = distance.mdp, find_farthest_pair(distance)
    between = (
        f"between {mdp.state_name(s)} and {mdp.state_name(t)}"
        if s != t
        else f"of {mdp.state_name(s)} to itself"
    )
    return f"largest    {distance.values[s, t]:.6g}, {between}"


def format_error(distance: Distance) -> str:
    """What is known of the error: a proof, that of some pairs, an estimate, or nothing."""
    coverage = distance.coverage
    if coverage is not None and not coverage.complete:
        pairs = format_count(coverage.num_state_pairs, "pair")
        if not coverage.num_proven:
            return f"error      not known: lower bounds for all of {pairs}"
        return (
            f"error      at most {coverage.error:.2g}, proven, for {coverage.num_proven:,} of {pairs}; "
            "the others are lower bounds"
        )
    if distance.estimate is not None:
        return f"estimate   from samples, off by about {distance.estimate:.2g}; nothing is proven"
    if math.isinf(distance.error):
        return "error      not known"
    among = ""
    if coverage is not None and not coverage.visited.all():
        among = f", among {format_count(int(coverage.visited.sum()), 'state')} that were lived in"
    return f"error      at most {distance.error:.2g}, proven{among}"


def describe_query(mdp: MDP, query: QueryResult, world: str, **details: str) -> Iterator[str]:
    """The distances of some pairs of states, and how little was explored for them."""
    yield f"world      {world}: {format_mdp(mdp)}"
    yield f"distance   {TITLES[query.kind]}"
    for key, value in details.items():
        yield f"{key:<10} {value}"
    names = [[mdp.state_name(mdp.state(state)) for state in pair] for pair in query.pairs]
    widths = [max(len(pair[side]) for pair in names) for side in (0, 1)]
    for (s, t), far in zip(names, query.values, strict=True):
        yield f"pair       {s:<{widths[0]}}  {t:<{widths[1]}}  {far:.6g}"
    yield f"error      at most {query.error:.2g}, proven"
    everything = mdp.num_states * (mdp.num_states - 1) // 2
    yield f"explored   {query.num_explored:,} of {format_count(everything, 'pair')}"
    if "seconds" in query.metadata:
        yield f"seconds    {query.metadata['seconds']:.3g}"


def describe_metadata(distance: Distance) -> Iterator[str]:
    """What else the table knows of its making."""
    for key, value in distance.metadata.items():
        if key not in ("world", "policy", "classes", "seconds"):
            yield f"{key:<10} {value}"


def suggest_commands(distance: Distance, output: Path | None, program: str) -> Iterator[str]:
    """What to try after a table was computed."""
    if output is None:
        yield "next: add -o d.npz to keep the table for `bisimetric explain` and `bisimetric show`"
    else:
        s, t = map(distance.mdp.state_name, find_farthest_pair(distance))
        yield "next: " + shlex.join([program, "explain", str(output), s, t])


def describe_classes(mdp: MDP, labels: NDArray[Any], world: str, **details: str) -> Iterator[str]:
    """The classes by their states where there are few, by their sizes otherwise."""
    sizes = np.bincount(labels)
    yield f"world      {world}: {format_mdp(mdp)}"
    for key, value in details.items():
        yield f"{key:<10} {value}"
    yield f"classes    {len(sizes):,}"
    if len(sizes) == mdp.num_states:
        yield "  every state is alone in its class"
        return
    if len(sizes) <= MAX_LISTED_CLASSES:
        for label, size in enumerate(sizes):
            names = [
                mdp.state_name(int(s)) for s in np.flatnonzero(labels == label)[:MAX_LISTED_STATES]
            ]
            more = f"  ... and {size - len(names):,} more" if size > len(names) else ""
            yield f"  {label:<3} {'  '.join(names)}{more}"
        return
    found, counts = np.unique(sizes, return_counts=True)
    rows = list(zip(found.tolist(), counts.tolist(), strict=True))[::-1]
    for size, count in rows[:MAX_LISTED_STATES]:
        yield f"  {format_count(count, 'class', 'classes')} of {format_count(size, 'state')}"
    if len(rows) > MAX_LISTED_STATES:
        rest = sum(count for _, count in rows[MAX_LISTED_STATES:])
        yield f"  {format_count(rest, 'smaller class', 'smaller classes')}"


def describe_nearest(distance: Distance, origin: int, k: int) -> Iterator[str]:
    """The states nearest to one, with their distances."""
    mdp = distance.mdp
    yield f"nearest to {mdp.state_name(origin)}:"
    coverage = distance.coverage
    rows = []
    for t, value in distance.nearest(origin, k):
        sure = coverage is None or coverage.determined[origin, t]
        rows.append((mdp.state_name(t), f"{value:.6g}" if sure else f"{value:.6g} or more"))
    width = max((len(name) for name, _ in rows), default=0)
    for name, far in rows:
        yield f"  {name:<{width}}  {far}"


def format_mdp(mdp: MDP) -> str:
    """The size of an MDP in words."""
    nature = "deterministic" if mdp.is_deterministic else "stochastic"
    return (
        f"{format_count(mdp.num_states, 'state')}, {format_count(mdp.num_actions, 'action')}, {nature}, "
        f"discount {mdp.discount:g}"
    )


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """A count and its noun.

    >>> plural(1, "class", "classes"), plural(1200, "state")
    ('1 class', '1,200 states')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def find_farthest_pair(distance: Distance) -> tuple[int, int]:
    """The pair of states with the largest distance."""
    s, t = divmod(int(np.argmax(distance.values)), distance.mdp.num_states)
    return s, t


def count_zero_classes(distance: Distance) -> int:
    """How many classes the states at distance 0 of each other form."""
    values = distance.values
    if not isinstance(values, np.ndarray):
        # A stored table has one row a class, and reading all of them may take hours.
        return int(distance.metadata["classes"])
    if distance.coverage is not None:
        lived = distance.coverage.visited
        values = values[np.ix_(lived, lived)]
    return len({int(np.argmax(row == 0)) for row in values})


def describe_saved(paths: Sequence[Path | None]) -> Iterator[str]:
    """Where things were saved."""
    for path in paths:
        if path is not None:
            yield f"saved      {path}"
