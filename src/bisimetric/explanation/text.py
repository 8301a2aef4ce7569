"""An explanation as text: aligned tables, and a sentence on what they mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bisimetric.explanation.records import Explanation, Match, Step

SHOWN_STEPS = 24
SHOWN_MATCHES = 8
SHOWN_ACTIONS = 4
TITLES = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax", "mico": "MICo"}


def lines(why: Explanation) -> Iterator[str]:
    """The distance, where it comes from, and what it says of the values."""
    first, second = (why.mdp.name(s) for s in why.states)
    relation = ">=" if why.proof.is_lower_bound else "="
    yield (
        f"{TITLES.get(why.kind, why.kind)}({first}; {second}) {relation} {why.distance:.6g}, "
        f"{_sure(why)}, at discount {why.mdp.discount:g}"
    )
    if why.apart is not None and not why.steps:
        yield f"{_different_actions(why, why.apart)}: the largest possible distance"
    elif not why.steps:
        yield _no_step(why)
        if why.states[0] == why.states[1] or why.bisimilar:
            return
    elif why.steps[0].coupling:
        yield from _couplings(why)
    else:
        yield from _path(why)
    yield from _difference(why)
    yield _unseen(why) if why.proof.is_lower_bound else _meaning(why)


def _difference(why: Explanation) -> Iterator[str]:
    """That the steps add up to something else than the table has, where one can see it."""
    drawn = why.proof.known is not None
    found, wanted = f"{why.distance:.4f}", f"{why.total:.4f}"
    if found == wanted or (math.isfinite(why.error) and not drawn):
        return
    if not drawn:
        yield f"the table has {found} in place of {wanted}: it is an estimate"
    elif abs(why.total - why.distance) > 5e-5:  # and not only on the two sides of a rounding
        yield f"the table has {found} in place of {wanted}: it has not converged"


def unseen_in(state: str, known: NDArray[np.bool_], action_name: Callable[[int], str]) -> str:
    """What was not seen in a state, or nothing.

    >>> unseen_in("s", np.array([True, False, False]), ["up", "left", "right"].__getitem__)
    's never took left, right'
    """
    if known.all():
        return ""
    if len(known) == 1:
        return f"the step from {state} was never seen"
    if not known.any():
        return f"{state} was never left"
    names = [action_name(a) for a in np.flatnonzero(~known).tolist()]
    more = f" and {len(names) - SHOWN_ACTIONS} more" if len(names) > SHOWN_ACTIONS else ""
    return f"{state} never took {', '.join(names[:SHOWN_ACTIONS])}{more}"


def _no_step(why: Explanation) -> str:
    if why.states[0] == why.states[1]:
        return "they are the same state"
    if why.bisimilar:
        return "they behave alike: no step tells them apart"
    if why.proof.known is None:
        return "no step that adds to it was found" + _up_to_error(why)
    return _alike(why, why.states)


def _up_to_error(why: Explanation) -> str:
    return f": it is at most the error, {why.error:.2g}" if math.isfinite(why.error) else ""


def _alike(why: Explanation, pair: tuple[int, int]) -> str:
    """What is known of a pair at distance 0."""
    a, b = (why.mdp.name(s) for s in pair)
    known = why.proof.known
    if a == b:
        return f"both are in {a}"
    if known is None:
        if why.bisimilar:
            return f"{a} and {b} behave alike"
        return f"{a} and {b} add nothing" + (", up to the error" if why.error > 0 else "")
    if not why.proof.complete and not (known[pair[0]] & known[pair[1]]).any():
        return f"no action was seen in both {a} and {b}"
    return f"no draw so far tells {a} and {b} apart"


def _unseen(why: Explanation) -> str:
    """What is missing for more than a lower bound."""
    known, mdp = why.proof.known, why.mdp
    rows = [] if known is None else [(mdp.name(s), known[s]) for s in why.states]
    parts = [unseen_in(name, row, mdp.action_name) for name, row in rows]
    missing = " and ".join(filter(None, parts)) or "not all that they lead to was seen"
    return f"{missing}: the true distance may be larger"


def _sure(why: Explanation) -> str:
    if why.proof.is_lower_bound:
        short = why.estimate is not None and math.isfinite(why.estimate)
        return "a lower bound" + (
            f", at most {why.estimate:.2g} short of what was seen" if short else ""
        )
    if why.estimate is not None and not math.isfinite(why.error):
        return f"an estimate, off by about {why.estimate:.1g}"
    return f"proven to {why.error:.2g}" if math.isfinite(why.error) else "not proven"


def _meaning(why: Explanation) -> str:
    under = "the policy" if why.kind in ("on_policy", "mico") else "the best policy"
    values = f"their values under {under} differ by"
    if math.isfinite(why.error):
        known = "" if why.value_gap is None else f"; they differ by {_value_gap(why)}"
        return f"so {values} at most {why.distance + why.error:.6g}{known}"
    return f"{values} {_value_gap(why)}; the true distance is at least that"


def _value_gap(why: Explanation) -> str:
    """The gap, with its error where that can be seen."""
    seen = why.value_gap_error > 1e-6 * max(why.value_gap or 0.0, why.distance)
    return f"{why.value_gap:.6g}" + (f", up to {why.value_gap_error:.1g}" if seen else "")


def _different_actions(why: Explanation, pair: tuple[int, int]) -> str:
    """Which actions two states have that do not have the same ones."""
    available = why.mdp.available
    clauses = []
    for state in pair:
        found = [] if available is None else available[state].nonzero()[0].tolist()
        names = ", ".join(why.mdp.action_name(a) for a in found)
        noun = "action" if len(found) == 1 else "actions"
        clauses.append(f"{why.mdp.name(state)} has {noun} {names}")
    return " and ".join(clauses)


def _acting(why: Explanation, step: Step) -> str:
    if step.actions is None:
        return "mixed"
    a, b = (why.mdp.action_name(action) for action in step.actions)
    return a if a == b else f"{a} / {b}"


def _path(why: Explanation) -> Iterator[str]:
    mdp, drawn = why.mdp, why.proof.known is not None
    rows: list[tuple[str, ...]] = [
        ("step", "first", "second", "action", "reward gap", "adds", "so far")
    ]
    so_far = 0.0
    for k, step in enumerate(why.steps):
        so_far += step.adds
        if k < SHOWN_STEPS:
            names = (mdp.name(s) for s in step.states)
            numbers = (f"{step.gap:g}", f"{step.adds:.4f}", f"{so_far:.4f}")
            rows.append((str(k), *names, _acting(why, step), *numbers))
    yield from _aligned(rows, left=4)
    if len(why.steps) > SHOWN_STEPS:
        yield f"  ... {len(why.steps) - SHOWN_STEPS} more steps, up to {so_far:.4f}"
    rest, in_all = why.total - so_far, f"{why.total:.4f} in all"
    if why.loop is not None:
        what = (
            f"step {why.loop} repeats"
            if why.loop == len(why.steps) - 1
            else f"steps {why.loop} to {len(why.steps) - 1} repeat"
        )
        yield f"  {what} for ever: {rest:.4f} more, {in_all}"
    elif why.apart is not None:
        sets = _different_actions(why, why.apart)
        yield f"  then {sets}: as far apart as can be, {rest:.4f} more, {in_all}"
    elif rest <= max(0.0 if drawn or math.isinf(why.error) else why.error, 1e-9):
        yield f"  then {_alike(why, why.steps[-1].leads_to)}: {in_all}"
    else:
        yield f"  the rest of the path adds {rest:.4f}: {in_all}"


def _couplings(why: Explanation) -> Iterator[str]:
    """One table a step, all with the same columns."""
    tables = [_coupling_rows(why, step) for step in why.steps]
    aligned = list(_aligned([row for rows in tables for row in rows], left=3))
    for k, (step, rows) in enumerate(zip(why.steps, tables, strict=True)):
        yield ""
        share = min(1.0, step.weight * _in_all(step) / (why.total or 1.0))
        through = f" ({share:.0%} of the distance)" if k else ""
        yield f"step {k}: {_who(why, step)}{through}"
        yield from aligned[: len(rows)]
        del aligned[: len(rows)]
    yield ""
    if why.steps[-1].coupling[0].adds > 0:
        yield _end(why)


def _who(why: Explanation, step: Step) -> str:
    first, second = (why.mdp.name(s) for s in step.states)
    both = f"{first} and {second}" if first != second else f"two copies of {first}"
    if step.actions is None:
        return f"{both} follow the policy"
    a, b = (why.mdp.action_name(action) for action in step.actions)
    return f"{both} take {a}" if a == b else f"{first} takes {a}, {second} takes {b}"


def _coupling_rows(why: Explanation, step: Step) -> list[tuple[str, ...]]:
    name = why.mdp.name
    moved = [each for each in step.coupling if why.kind == "mico" or len(set(each.states)) == 2]
    shared = step.coupling[len(moved) :]
    shown, rest = moved[:SHOWN_MATCHES], moved[SHOWN_MATCHES:]
    if len(rest) == 1:
        shown, rest = moved, []
    written = _decimals(why.distance)
    rows: list[tuple[str, ...]] = [
        ("mass", "first", "second", "distance", "adds"),
        ("", "reward gap", "", "", written(step.gap)),
    ]
    for each in shown:
        names = (name(s) for s in each.states)
        rows.append((_mass([each]), *names, written(each.distance), written(each.adds)))
    if rest:
        words = (f"{len(rest)} more", "matches", "")
        rows.append((_mass(rest), *words, written(sum(each.adds for each in rest))))
    if shared:
        where = name(shared[0].states[0]) if len(shared) == 1 else f"one of {len(shared)}"
        rows.append((_mass(shared), "both in", where, written(0.0), written(0.0)))
    return [*rows, ("", "in all", "", "", written(_in_all(step)))]


def _in_all(step: Step) -> float:
    return step.gap + sum(each.adds for each in step.coupling)


def _mass(matches: Sequence[Match]) -> str:
    mass = sum(each.mass for each in matches)
    return f"{mass:.4f}" if mass >= 0.0001 else f"{mass:.0e}"


def _decimals(whole: float) -> Callable[[float], str]:
    """How to write parts of `whole`: with four decimals, or as many as show four digits of it."""
    digits = 4 if whole <= 0 else max(4, 3 - math.floor(math.log10(whole)))
    return lambda part: f"{part:.{digits}f}"


def _end(why: Explanation) -> str:
    """Where the last step leads."""
    after = why.steps[-1].leads_to
    first, second = (why.mdp.name(s) for s in after)
    if why.apart is not None:
        return f"then {_different_actions(why, why.apart)}: as far apart as can be"
    if why.loop is None:
        return f"and so on from {first} and {second}"
    back = f"what adds most leads back to step {why.loop}"
    like = why.steps[why.loop].states
    if after == like:
        return back
    there = " and ".join(map(why.mdp.name, like))
    return f"{back}, for {first} and {second} are at distance 0 from {there}"


def _aligned(rows: Sequence[tuple[str, ...]], *, left: int) -> Iterator[str]:
    """Rows of text in columns: the first `left` ones start together, the others end together."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
