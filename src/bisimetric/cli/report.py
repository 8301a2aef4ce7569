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
    from bisimetric.exact.queries import Answer
    from bisimetric.mdp import MDP

TITLES = {
    "bisimulation": "d~, the bisimulation distance",
    "on_policy": "d^pi, the on-policy distance",
    "lax": "d_lax, the lax bisimulation distance",
    "mico": "MICo, the distance of independent couplings",
}
FEW_CLASSES = 40
FEW_NAMES = 12


def say(*parts: Iterable[str]) -> None:
    """Prints lines, once all of them are known to be good."""
    for line in [line for part in parts for line in part]:
        print(line)


def world_lines() -> Iterator[str]:
    """The built-in worlds, and how to bring others."""
    from bisimetric import worlds

    for world in worlds.describe():
        yield f"{world.name}: {world.description}."
        options = " ".join(f"{key}={value}" for key, value in world.options.items())
        yield f"    discount {world.discount:g}" + (f", --set {options}" if options else "")
    yield from _FROM_A_FILE.splitlines()


_FROM_A_FILE = """
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
    that they tell of, and with --set unseen=lacking states lack actions that were not seen.
rooms.txt: a grid, drawn as text:

    *******
    *  *  g
    *     *
    *******

* wall, space floor, g goal; ^ v < > in place of spaces are a policy. All lines equally long.
States are cells, named row,column from 0,0; entering a goal pays 1, walking into a wall -1.

next: bisimetric exact bisimulation mirrored-rooms -o d.npz"""


def head_lines(distance: Distance) -> Iterator[str]:
    """The MDP, the kind of distance, its largest entry, its error."""
    made = distance.made
    yield f"world      {made.get('world', 'not named')}: {counted(distance.mdp)}"
    yield f"distance   {TITLES.get(distance.kind, distance.kind)}"
    if "policy" in made:
        yield f"policy     {made['policy']}"
    yield largest_line(distance)
    yield error_line(distance)


def table_lines(distance: Distance) -> Iterator[str]:
    """The head, the coverage of data, the zero classes, and how long it took."""
    made = distance.made
    yield from head_lines(distance)
    if distance.coverage is not None and not distance.coverage.complete:
        yield f"seen       {distance.coverage.seen}"
    if distance.kind != "mico" and math.isfinite(distance.error):
        zero = plural(zero_classes(distance), "class", "classes")
        to = "" if distance.coverage is None else ", up to the error"
        yield f"classes    {zero} of states at distance 0{to}"
    if "seconds" in made:
        yield f"seconds    {made['seconds']:.3g}"


def largest_line(distance: Distance) -> str:
    """The largest distance, and between which states."""
    mdp, (s, t) = distance.mdp, farthest(distance)
    between = (
        f"between {mdp.name(s)} and {mdp.name(t)}" if s != t else f"of {mdp.name(s)} to itself"
    )
    return f"largest    {distance.values[s, t]:.6g}, {between}"


def error_line(distance: Distance) -> str:
    """What is known of the error: a proof, that of some pairs, an estimate, or nothing."""
    coverage = distance.coverage
    if coverage is not None and not coverage.complete:
        pairs = plural(coverage.num_pairs, "pair")
        if not coverage.proven:
            return f"error      not known: lower bounds for all of {pairs}"
        return (
            f"error      at most {coverage.error:.2g}, proven, for {coverage.proven:,} of {pairs}; "
            "the others are lower bounds"
        )
    if distance.estimate is not None:
        return f"estimate   from samples, off by about {distance.estimate:.2g}; nothing is proven"
    if math.isinf(distance.error):
        return "error      not known"
    among = ""
    if coverage is not None and not coverage.lived.all():
        among = f", among {plural(int(coverage.lived.sum()), 'state')} that were lived in"
    return f"error      at most {distance.error:.2g}, proven{among}"


def query_lines(mdp: MDP, query: Answer, world: str, **about: str) -> Iterator[str]:
    """The distances of some pairs of states, and how little was explored for them."""
    yield f"world      {world}: {counted(mdp)}"
    yield f"distance   {TITLES[query.kind]}"
    for key, value in about.items():
        yield f"{key:<10} {value}"
    names = [[mdp.name(mdp.state(state)) for state in pair] for pair in query.pairs]
    widths = [max(len(pair[side]) for pair in names) for side in (0, 1)]
    for (s, t), far in zip(names, query.values, strict=True):
        yield f"pair       {s:<{widths[0]}}  {t:<{widths[1]}}  {far:.6g}"
    yield f"error      at most {query.error:.2g}, proven"
    everything = mdp.num_states * (mdp.num_states - 1) // 2
    yield f"explored   {query.explored:,} of {plural(everything, 'pair')}"
    if "seconds" in query.made:
        yield f"seconds    {query.made['seconds']:.3g}"


def made_lines(distance: Distance) -> Iterator[str]:
    """What else the table knows of its making."""
    for key, value in distance.made.items():
        if key not in ("world", "policy", "classes", "seconds"):
            yield f"{key:<10} {value}"


def next_lines(distance: Distance, output: Path | None, program: str) -> Iterator[str]:
    """What to try after a table was computed."""
    if output is None:
        yield "next: add -o d.npz to keep the table for `bisimetric explain` and `bisimetric show`"
    else:
        s, t = map(distance.mdp.name, farthest(distance))
        yield "next: " + shlex.join([program, "explain", str(output), s, t])


def class_lines(mdp: MDP, labels: NDArray[Any], world: str, **about: str) -> Iterator[str]:
    """The classes by their states where there are few, by their sizes otherwise."""
    sizes = np.bincount(labels)
    yield f"world      {world}: {counted(mdp)}"
    for key, value in about.items():
        yield f"{key:<10} {value}"
    yield f"classes    {len(sizes):,}"
    if len(sizes) == mdp.num_states:
        yield "  every state is alone in its class"
        return
    if len(sizes) <= FEW_CLASSES:
        for label, size in enumerate(sizes):
            names = [mdp.name(int(s)) for s in np.flatnonzero(labels == label)[:FEW_NAMES]]
            more = f"  ... and {size - len(names):,} more" if size > len(names) else ""
            yield f"  {label:<3} {'  '.join(names)}{more}"
        return
    found, counts = np.unique(sizes, return_counts=True)
    rows = list(zip(found.tolist(), counts.tolist(), strict=True))[::-1]
    for size, count in rows[:FEW_NAMES]:
        yield f"  {plural(count, 'class', 'classes')} of {plural(size, 'state')}"
    if len(rows) > FEW_NAMES:
        rest = sum(count for _, count in rows[FEW_NAMES:])
        yield f"  {plural(rest, 'smaller class', 'smaller classes')}"


def nearest_lines(distance: Distance, origin: int, k: int) -> Iterator[str]:
    """The states nearest to one, with their distances."""
    mdp = distance.mdp
    yield f"nearest to {mdp.name(origin)}:"
    coverage = distance.coverage
    rows = []
    for t, value in distance.nearest(origin, k):
        sure = coverage is None or coverage.determined[origin, t]
        rows.append((mdp.name(t), f"{value:.6g}" if sure else f"{value:.6g} or more"))
    width = max((len(name) for name, _ in rows), default=0)
    for name, far in rows:
        yield f"  {name:<{width}}  {far}"


def counted(mdp: MDP) -> str:
    """The size of an MDP in words."""
    nature = "deterministic" if mdp.is_deterministic else "stochastic"
    return (
        f"{plural(mdp.num_states, 'state')}, {plural(mdp.num_actions, 'action')}, {nature}, "
        f"discount {mdp.discount:g}"
    )


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun.

    >>> plural(1, "class", "classes"), plural(1200, "state")
    ('1 class', '1,200 states')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def farthest(distance: Distance) -> tuple[int, int]:
    """The pair of states with the largest distance."""
    s, t = divmod(int(np.argmax(distance.values)), distance.mdp.num_states)
    return s, t


def zero_classes(distance: Distance) -> int:
    """How many classes the states at distance 0 of each other form."""
    values = distance.values
    if not isinstance(values, np.ndarray):
        # A stored table has one row a class, and reading all of them may take hours.
        return int(distance.made["classes"])
    if distance.coverage is not None:
        lived = distance.coverage.lived
        values = values[np.ix_(lived, lived)]
    return len({int(np.argmax(row == 0)) for row in values})


def saved_lines(paths: Sequence[Path | None]) -> Iterator[str]:
    """Where things were saved."""
    for path in paths:
        if path is not None:
            yield f"saved      {path}"
