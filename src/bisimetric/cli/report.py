"""What commands print: labelled facts, as text or, with `--json`, as one JSON object."""

from __future__ import annotations

import contextlib
import contextvars
import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bisimetric._text import pluralise, shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Coverage, Distance, DistanceBounds
    from bisimetric.exact._query import QueryResult
    from bisimetric.mdp import MDP

TITLES = {
    "bisimulation": "d~, the bisimulation distance",
    "on_policy": "d^pi, the on-policy distance",
    "lax": "d_lax, the lax bisimulation distance",
    "mico": "MICo, the distance of independent couplings",
    "reduced_mico": "reduced MICo, MICo less the mean of its self-distances",
    "undiscounted": "the undiscounted bisimulation distance, from 0 to 1",
}
MAX_LISTED_CLASSES = 40
MAX_LISTED_STATES = 12
MAX_LIST_TEXT = 80
REPEATED = ("saved", "next", "pair", "note")
"""Labels that may occur several times; JSON holds a list of their values."""

_results: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "results", default=None
)


class Fact(NamedTuple):
    """One reported fact.

    Attributes:
        label: the first word of the line, and the key in JSON.
        text: the rest of the line.
        value: what JSON holds under the label; None for the text itself.
    """

    label: str
    text: str
    value: Any = None

    def __str__(self) -> str:
        return f"next: {self.text}" if self.label == "next" else f"{self.label:<10} {self.text}"


def emit(*groups: Iterable[Fact | str]) -> None:
    """Print facts and lines of text once all of them are computed; JSON omits plain text."""
    results = _results.get()
    for line in [line for group in groups for line in group]:
        if results is None:
            print(line)
        elif isinstance(line, Fact):
            value = line.text if line.value is None else line.value
            if line.label in REPEATED:
                results.setdefault(line.label, []).append(value)
            else:
                results[line.label] = value


def emit_values(**values: Any) -> None:
    """Add values to the JSON object; the text output has them in separate lines."""
    results = _results.get()
    if results is not None:
        results.update(values)


def emit_fields(record: Any, *names: str) -> None:
    """Add attributes of a record to the JSON object."""
    emit_values(**{name: getattr(record, name) for name in names})


@contextlib.contextmanager
def collect_json() -> Iterator[None]:
    """Print everything emitted inside the block as one JSON object.

    Of several processes only the first one emits anything, and the others print nothing.
    """
    results: dict[str, Any] = {}
    token = _results.set(results)
    try:
        yield
    finally:
        _results.reset(token)
    if results:
        print(json.dumps(to_json(results), indent=2, allow_nan=False))


def to_json(value: Any) -> Any:
    """Convert arrays, paths and numbers to JSON types; NaN and infinity become null.

    >>> to_json({"error": math.inf, "values": np.arange(2), "path": Path("d.npz")})
    {'error': None, 'values': [0, 1], 'path': 'd.npz'}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set):
        return [to_json(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def describe_worlds() -> Iterator[Fact | str]:
    """List the built-in worlds with their options, and the formats of other models."""
    from bisimetric import worlds

    for world in worlds.describe():
        emit_values(
            **{
                world.name: {
                    "description": world.description,
                    "discount": world.discount,
                    "options": world.options,
                }
            }
        )
        yield f"{world.name}: {world.description}."
        options = " ".join(f"{key}={value}" for key, value in world.options.items())
        yield f"    discount {world.discount:g}" + (f", --set {options}" if options else "")
    yield from _CUSTOM_WORLDS.splitlines()


_CUSTOM_WORLDS = """
Or load your own:

FrozenLake-v1, CliffWalking-v1, Taxi-v4 and others: Gymnasium environments with a transition table.
    --set takes their options: FrozenLake-v1 --set map_name=8x8 is_slippery=False
MiniGrid-Empty-5x5-v0 and others: MiniGrid environments, enumerated from a start (--set seed=3).
    Both need pip install 'bisimetric[worlds]'.
model.tra: an MDP or a DTMC exported by PRISM, with model.sta, .lab, .srew and .trew beside it.
    --set observe=goal,fail reads these labels: states that differ in them are distinguished,
    --set srew=model1.srew selects rewards.
model.drn: an MDP or a DTMC exported by Storm. --set observe=goal,fail reads these labels,
    --set reward_model=steps selects rewards.
model.prism, .nm, .pm or .jani: a PRISM program or a JANI model, built with pip install stormpy.
    --set constants=N=16,MAX=2 defines constants; observe and reward_model are as above.
model.npz: arrays P (actions, states, states) or (states, actions, states), and R.
    --set first_axis=actions gives the order where there are as many actions as states.
data.npz: transitions, as written by `bisimetric rollout FrozenLake-v1 -o data.npz` or by
    Transitions.save. `bisimetric sampled` samples from them; the other commands build their
    empirical MDP, in which --set unseen=missing leaves out actions that were never taken.
rooms.txt: a grid, drawn as text:

    *******
    *  *  g
    *     *
    *******

* wall, space floor, g goal, 1 to 9 reward, x trap; ^ v < > in place of spaces are a policy. All
lines equally long. States are cells, named row,column from 0,0; entering a goal pays 1, a reward
its digit in tenths, a trap -1; walking into a wall pays -1.

next: bisimetric exact bisimulation mirrored-rooms -o d.npz"""


def describe_mdp(label: str, name: object, mdp: MDP) -> Fact:
    """Return the name and the size of an MDP."""
    value = {
        "name": str(name),
        "states": mdp.num_states,
        "actions": mdp.num_actions,
        "deterministic": mdp.is_deterministic,
        "discount": mdp.discount,
    }
    return Fact(label, f"{name}: {format_mdp(mdp)}", value)


def describe_kind(kind: str, note: str = "") -> Fact:
    """Return which distance it is; `note` follows its title."""
    return Fact("distance", f"{TITLES.get(kind, kind)}{note}", kind)


def describe_seconds(seconds: float) -> Fact:
    """Return the duration of the computation."""
    return Fact("seconds", f"{seconds:.3g}", seconds)


def describe_header(distance: Distance) -> Iterator[Fact]:
    """Yield the MDP, the kind of distance, its largest entry and its error."""
    metadata = distance.metadata
    yield describe_mdp("world", metadata.get("world", "not named"), distance.mdp)
    yield describe_kind(distance.kind)
    if "policy" in metadata:
        yield Fact("policy", str(metadata["policy"]))
    yield describe_largest(distance)
    yield describe_error(distance)


def describe_distance(distance: Distance) -> Iterator[Fact]:
    """Yield the header, the coverage of the data, the number of zero classes and the duration."""
    yield from describe_header(distance)
    if distance.coverage is not None and not distance.coverage.complete:
        yield Fact("coverage", distance.coverage.summary, count_coverage(distance.coverage))
    if distance.kind != "mico" and math.isfinite(distance.error):
        count = count_zero_classes(distance)
        zero = pluralise(count, "class", "classes")
        to = "" if distance.coverage is None else ", up to the error"
        yield Fact("classes", f"{zero} of states at distance 0{to}", count)
    if "seconds" in distance.metadata:
        yield describe_seconds(distance.metadata["seconds"])


def count_coverage(coverage: Coverage) -> dict[str, int]:
    """Return how much of the MDP was observed, and how many pairs of states are proven."""
    return {
        "visited_states": int(coverage.visited.sum()),
        "seen": int(coverage.known.sum()),
        "unseen": len(coverage.unseen),
        "proven_pairs": coverage.num_proven,
        "pairs": coverage.num_state_pairs,
        "sampled_transition_pairs": coverage.num_paired,
        "transition_pairs": coverage.num_transition_pairs,
    }


def describe_largest(distance: Distance) -> Fact:
    """Return the largest distance and its pair of states."""
    mdp, (s, t) = distance.mdp, find_farthest_pair(distance)
    names = mdp.state_name(s), mdp.state_name(t)
    between = f"between {names[0]} and {names[1]}" if s != t else f"of {names[0]} to itself"
    largest = float(distance.values[s, t])
    value = {"distance": largest, "states": names}
    return Fact("largest", f"{largest:.6g}, {between}", value)


def describe_error(distance: Distance) -> Fact:
    """Return what is known of the error: a bound for all or some pairs, an estimate, or nothing."""
    coverage = distance.coverage
    if coverage is not None and not coverage.complete:
        pairs = pluralise(coverage.num_state_pairs, "pair")
        value = {"proven_pairs": coverage.num_proven, "pairs": coverage.num_state_pairs}
        if not coverage.num_proven:
            return Fact("error", f"unknown: lower bounds for all {pairs}", {**value, "bound": None})
        text = f"at most {coverage.error:.2g}, proven, for {coverage.num_proven:,} of {pairs}"
        return Fact("error", f"{text}; lower bounds elsewhere", {**value, "bound": coverage.error})
    if distance.estimate is not None:
        text = f"sampled, error about {distance.estimate:.2g}; "
        bound = distance.metadata.get("pac_bound", math.inf)
        if bound < distance.mdp.diameter_bound:
            text += f"at most {bound:.2g} with probability {distance.metadata['pac_confidence']:g}"
        else:
            text += "nothing is proven"
        return Fact("estimate", text, distance.estimate)
    if math.isinf(distance.error):
        return Fact("error", "unknown", {"bound": None})
    among = ""
    if coverage is not None and not coverage.visited.all():
        among = f", among {pluralise(int(coverage.visited.sum()), 'visited state')}"
    model = describe_model(distance.metadata)
    text = f"at most {distance.error:.2g}, proven{model}{among}"
    return Fact("error", text, {"bound": distance.error})


def describe_model(metadata: Mapping[str, Any]) -> str:
    """Return a clause that names the MDP to which a proven error refers.

    >>> describe_model({"model": "empirical"})
    ' for the empirical model; `exact confidence-bounds` is for the environment'
    """
    if metadata.get("model") != "empirical":
        return ""
    return " for the empirical model; `exact confidence-bounds` is for the environment"


def describe_query(
    mdp: MDP, query: QueryResult, world: str, details: Mapping[str, str]
) -> Iterator[Fact]:
    """Yield the distances of some pairs of states and the number of pairs explored for them."""
    yield describe_mdp("world", world, mdp)
    yield describe_kind(query.kind)
    yield from (Fact(label, value) for label, value in details.items())
    names = [[mdp.state_name(mdp.state(state)) for state in pair] for pair in query.pairs]
    widths = [max(len(pair[side]) for pair in names) for side in (0, 1)]
    for (s, t), value in zip(names, query.values, strict=True):
        text = f"{s:<{widths[0]}}  {t:<{widths[1]}}  {value:.6g}"
        yield Fact("pair", text, {"states": [s, t], "distance": float(value)})
    model = describe_model(query.metadata)
    yield Fact("error", f"at most {query.error:.2g}, proven{model}", {"bound": query.error})
    num_pairs = mdp.num_states * (mdp.num_states - 1) // 2
    text = f"{query.num_explored:,} of {pluralise(num_pairs, 'pair')}"
    yield Fact("explored", text, {"explored": query.num_explored, "pairs": num_pairs})
    if "seconds" in query.metadata:
        yield describe_seconds(query.metadata["seconds"])


def describe_bounds(bounds: DistanceBounds, pairs: Sequence[tuple[str, str]]) -> Iterator[Fact]:
    """Yield the widths of proven bounds on all distances, and the bounds of some pairs."""
    metadata = bounds.metadata
    yield describe_mdp("world", metadata["world"], bounds.mdp)
    yield describe_kind(bounds.kind)
    if "policy" in metadata:
        yield Fact("policy", str(metadata["policy"]))
    width = (bounds.upper - bounds.lower)[np.tril_indices(bounds.mdp.num_states, -1)]
    mean = float(width.mean()) if width.size else 0.0
    text = f"mean {mean:.4g}, largest {bounds.max_width:.4g}, proven{describe_model(metadata)}"
    yield Fact("width", text, {"mean": mean, "largest": bounds.max_width})
    yield Fact("updates", f"{metadata['updates']:,} of single pairs", metadata["updates"])
    yield from describe_pair_bounds(bounds, pairs)
    yield describe_seconds(metadata["seconds"])


def describe_pair_bounds(
    bounds: DistanceBounds, pairs: Sequence[tuple[str, str]]
) -> Iterator[Fact]:
    """Yield the bounds of some pairs of states."""
    for s, t in pairs:
        names = [bounds.mdp.state_name(bounds.mdp.state(state)) for state in (s, t)]
        lower, upper = bounds.bounds(s, t)
        text = f"{names[0]}  {names[1]}  {lower:.6g} to {upper:.6g}"
        yield Fact("pair", text, {"states": names, "lower": lower, "upper": upper})


def describe_metadata(distance: Distance) -> Iterator[Fact]:
    """Yield the metadata that the header does not show."""
    for key, value in distance.metadata.items():
        if key not in ("world", "policy", "classes", "seconds"):
            text = shorten(str(value), MAX_LIST_TEXT) if isinstance(value, list) else str(value)
            yield Fact(key, text, value)


def suggest_commands(distance: Distance, output: Path | None, program: str) -> Iterator[Fact]:
    """Yield what to try after a distance matrix was computed."""
    if output is None:
        text = "add -o d.npz to save the distances for `bisimetric explain` and `bisimetric show`"
        yield Fact("next", text)
    else:
        s, t = map(distance.mdp.state_name, find_farthest_pair(distance))
        command = ["explain", str(output), s, t]
        if distance.kind in ("reduced_mico", "undiscounted"):
            command = ["show", str(output)]
        yield Fact("next", shlex.join([program, *command]))


def describe_classes(
    mdp: MDP, labels: NDArray[Any], world: str, details: Mapping[str, str]
) -> Iterator[Fact | str]:
    """Yield the classes by their states where there are few, by their sizes otherwise."""
    sizes = np.bincount(labels)
    yield describe_mdp("world", world, mdp)
    yield from (Fact(label, value) for label, value in details.items())
    yield Fact("classes", f"{len(sizes):,}", len(sizes))
    emit_values(labels=labels)
    emit_values(sizes=sizes)
    if len(sizes) == mdp.num_states:
        yield "  each state forms its own class"
        return
    if len(sizes) <= MAX_LISTED_CLASSES:
        for label, size in enumerate(sizes):
            members = np.flatnonzero(labels == label)[:MAX_LISTED_STATES]
            names = [mdp.state_name(int(s)) for s in members]
            more = f"  ... and {size - len(names):,} more" if size > len(names) else ""
            yield f"  {label:<3} {'  '.join(names)}{more}"
        return
    found, counts = np.unique(sizes, return_counts=True)
    rows = list(zip(found.tolist(), counts.tolist(), strict=True))[::-1]
    for size, count in rows[:MAX_LISTED_STATES]:
        yield f"  {pluralise(count, 'class', 'classes')} of {pluralise(size, 'state')}"
    if len(rows) > MAX_LISTED_STATES:
        rest = sum(count for _, count in rows[MAX_LISTED_STATES:])
        yield f"  {pluralise(rest, 'smaller class', 'smaller classes')}"


def describe_nearest(distance: Distance, origin: int, k: int) -> Iterator[str]:
    """Yield the k states nearest to `origin`, with their distances."""
    mdp = distance.mdp
    yield f"nearest to {mdp.state_name(origin)}:"
    coverage = distance.coverage
    rows = []
    for t, value in distance.nearest(origin, k):
        determined = coverage is None or coverage.determined[origin, t]
        rows.append((mdp.state_name(t), value, bool(determined)))
    fields = ("state", "distance", "determined")
    emit_values(nearest=[dict(zip(fields, row, strict=True)) for row in rows])
    width = max((len(name) for name, *_ in rows), default=0)
    for name, value, determined in rows:
        yield f"  {name:<{width}}  {value:.6g}{'' if determined else ' or more'}"


def format_mdp(mdp: MDP) -> str:
    """Format the size of an MDP."""
    nature = "deterministic" if mdp.is_deterministic else "stochastic"
    states, actions = pluralise(mdp.num_states, "state"), pluralise(mdp.num_actions, "action")
    return f"{states}, {actions}, {nature}, discount {mdp.discount:g}"


def find_farthest_pair(distance: Distance) -> tuple[int, int]:
    """Return the pair of states with the largest distance."""
    s, t = divmod(int(np.argmax(distance.values)), distance.mdp.num_states)
    return s, t


def count_zero_classes(distance: Distance) -> int:
    """Count the classes of states at distance 0 from each other."""
    values = distance.values
    if not isinstance(values, np.ndarray):
        # A matrix on disk has one row per class, and reading all of them may take hours.
        return int(distance.metadata["classes"])
    if distance.coverage is not None:
        visited = distance.coverage.visited
        values = values[np.ix_(visited, visited)]
    return len({int(np.argmax(row == 0)) for row in values})


def describe_saved(paths: Sequence[Path | None]) -> Iterator[Fact]:
    """Yield the files that were written."""
    for path in paths:
        if path is not None:
            yield Fact("saved", str(path))
