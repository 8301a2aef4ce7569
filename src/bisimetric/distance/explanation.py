"""An explanation as text: aligned tables, and a sentence on what they mean.

What an explanation holds: steps of two states side by side, and what each adds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import MDP

MAX_SHOWN_STEPS = 24
MAX_SHOWN_MATCHES = 8
MAX_SHOWN_ACTIONS = 4
TITLES = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax", "mico": "MICo"}


def format_lines(explanation: Explanation) -> Iterator[str]:
    """The distance, where it comes from, and what it says of the values."""
    first, second = (explanation.mdp.state_name(s) for s in explanation.states)
    relation = ">=" if explanation.proof.is_lower_bound else "="
    yield (
        f"{TITLES.get(explanation.kind, explanation.kind)}({first}; {second}) {relation} {explanation.distance:.6g}, "
        f"{_describe_error(explanation)}, at discount {explanation.mdp.discount:g}"
    )
    if explanation.mismatched_pair is not None and not explanation.steps:
        yield f"{_describe_action_sets(explanation, explanation.mismatched_pair)}: the largest possible distance"
    elif not explanation.steps:
        yield _describe_no_step(explanation)
        if explanation.states[0] == explanation.states[1] or explanation.bisimilar:
            return
    elif explanation.steps[0].coupling:
        yield from _format_couplings(explanation)
    else:
        yield from _format_path(explanation)
    yield from _describe_difference(explanation)
    yield (
        _describe_missing(explanation)
        if explanation.proof.is_lower_bound
        else _describe_value_bound(explanation)
    )


def _describe_difference(explanation: Explanation) -> Iterator[str]:
    """That the steps add up to something else than the table has, where one can see it."""
    drawn = explanation.proof.known is not None
    found, wanted = f"{explanation.distance:.4f}", f"{explanation.total:.4f}"
    if found == wanted or (math.isfinite(explanation.error) and not drawn):
        return
    if not drawn:
        yield f"the table has {found} in place of {wanted}: it is an estimate"
    elif (
        abs(explanation.total - explanation.distance) > 5e-5
    ):  # and not only on the two sides of a rounding
        yield f"the table has {found} in place of {wanted}: it has not converged"


def describe_unseen(state: str, known: NDArray[np.bool_], action_name: Callable[[int], str]) -> str:
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
    more = f" and {len(names) - MAX_SHOWN_ACTIONS} more" if len(names) > MAX_SHOWN_ACTIONS else ""
    return f"{state} never took {', '.join(names[:MAX_SHOWN_ACTIONS])}{more}"


def _describe_no_step(explanation: Explanation) -> str:
    if explanation.states[0] == explanation.states[1]:
        return "they are the same state"
    if explanation.bisimilar:
        return "they behave alike: no step tells them apart"
    if explanation.proof.known is None:
        return "no step that adds to it was found" + _format_error_limit(explanation)
    return _describe_zero_distance(explanation, explanation.states)


def _format_error_limit(explanation: Explanation) -> str:
    return (
        f": it is at most the error, {explanation.error:.2g}"
        if math.isfinite(explanation.error)
        else ""
    )


def _describe_zero_distance(explanation: Explanation, pair: tuple[int, int]) -> str:
    """What is known of a pair at distance 0."""
    a, b = (explanation.mdp.state_name(s) for s in pair)
    known = explanation.proof.known
    if a == b:
        return f"both are in {a}"
    if known is None:
        if explanation.bisimilar:
            return f"{a} and {b} behave alike"
        return f"{a} and {b} add nothing" + (", up to the error" if explanation.error > 0 else "")
    if not explanation.proof.complete and not (known[pair[0]] & known[pair[1]]).any():
        return f"no action was seen in both {a} and {b}"
    return f"no draw so far tells {a} and {b} apart"


def _describe_missing(explanation: Explanation) -> str:
    """What is missing for more than a lower bound."""
    known, mdp = explanation.proof.known, explanation.mdp
    rows = [] if known is None else [(mdp.state_name(s), known[s]) for s in explanation.states]
    parts = [describe_unseen(name, row, mdp.action_name) for name, row in rows]
    missing = " and ".join(filter(None, parts)) or "not all that they lead to was seen"
    return f"{missing}: the true distance may be larger"


def _describe_error(explanation: Explanation) -> str:
    if explanation.proof.is_lower_bound:
        short = explanation.estimate is not None and math.isfinite(explanation.estimate)
        return "a lower bound" + (
            f", at most {explanation.estimate:.2g} short of what was seen" if short else ""
        )
    if explanation.estimate is not None and not math.isfinite(explanation.error):
        return f"an estimate, off by about {explanation.estimate:.1g}"
    return (
        f"proven to {explanation.error:.2g}" if math.isfinite(explanation.error) else "not proven"
    )


def _describe_value_bound(explanation: Explanation) -> str:
    under = "the policy" if explanation.kind in ("on_policy", "mico") else "the best policy"
    values = f"their values under {under} differ by"
    if math.isfinite(explanation.error):
        known = (
            ""
            if explanation.value_gap is None
            else f"; they differ by {_format_value_gap(explanation)}"
        )
        return f"so {values} at most {explanation.distance + explanation.error:.6g}{known}"
    return f"{values} {_format_value_gap(explanation)}; the true distance is at least that"


def _format_value_gap(explanation: Explanation) -> str:
    """The gap, with its error where that can be seen."""
    seen = explanation.value_gap_error > 1e-6 * max(
        explanation.value_gap or 0.0, explanation.distance
    )
    return f"{explanation.value_gap:.6g}" + (
        f", up to {explanation.value_gap_error:.1g}" if seen else ""
    )


def _describe_action_sets(explanation: Explanation, pair: tuple[int, int]) -> str:
    """Which actions two states have that do not have the same ones."""
    available = explanation.mdp.available
    clauses = []
    for state in pair:
        found = [] if available is None else available[state].nonzero()[0].tolist()
        names = ", ".join(explanation.mdp.action_name(a) for a in found)
        noun = "action" if len(found) == 1 else "actions"
        clauses.append(f"{explanation.mdp.state_name(state)} has {noun} {names}")
    return " and ".join(clauses)


def _format_actions(explanation: Explanation, step: PairStep) -> str:
    if step.actions is None:
        return "mixed"
    a, b = (explanation.mdp.action_name(action) for action in step.actions)
    return a if a == b else f"{a} / {b}"


def _format_path(explanation: Explanation) -> Iterator[str]:
    mdp, drawn = explanation.mdp, explanation.proof.known is not None
    rows: list[tuple[str, ...]] = [
        ("step", "first", "second", "action", "reward gap", "adds", "so far")
    ]
    so_far = 0.0
    for k, step in enumerate(explanation.steps):
        so_far += step.contribution
        if k < MAX_SHOWN_STEPS:
            names = (mdp.state_name(s) for s in step.states)
            numbers = (f"{step.reward_gap:g}", f"{step.contribution:.4f}", f"{so_far:.4f}")
            rows.append((str(k), *names, _format_actions(explanation, step), *numbers))
    yield from _align_columns(rows, num_left=4)
    if len(explanation.steps) > MAX_SHOWN_STEPS:
        yield f"  ... {len(explanation.steps) - MAX_SHOWN_STEPS} more steps, up to {so_far:.4f}"
    rest, in_all = explanation.total - so_far, f"{explanation.total:.4f} in all"
    if explanation.loop_start is not None:
        what = (
            f"step {explanation.loop_start} repeats"
            if explanation.loop_start == len(explanation.steps) - 1
            else f"steps {explanation.loop_start} to {len(explanation.steps) - 1} repeat"
        )
        yield f"  {what} for ever: {rest:.4f} more, {in_all}"
    elif explanation.mismatched_pair is not None:
        sets = _describe_action_sets(explanation, explanation.mismatched_pair)
        yield f"  then {sets}: as far apart as can be, {rest:.4f} more, {in_all}"
    elif rest <= max(0.0 if drawn or math.isinf(explanation.error) else explanation.error, 1e-9):
        yield f"  then {_describe_zero_distance(explanation, explanation.steps[-1].next_states)}: {in_all}"
    else:
        yield f"  the rest of the path adds {rest:.4f}: {in_all}"


def _format_couplings(explanation: Explanation) -> Iterator[str]:
    """One table a step, all with the same columns."""
    tables = [_build_coupling_rows(explanation, step) for step in explanation.steps]
    aligned = list(_align_columns([row for rows in tables for row in rows], num_left=3))
    for k, (step, rows) in enumerate(zip(explanation.steps, tables, strict=True)):
        yield ""
        share = min(1.0, step.weight * _sum_contributions(step) / (explanation.total or 1.0))
        through = f" ({share:.0%} of the distance)" if k else ""
        yield f"step {k}: {_describe_step(explanation, step)}{through}"
        yield from aligned[: len(rows)]
        del aligned[: len(rows)]
    yield ""
    if explanation.steps[-1].coupling[0].contribution > 0:
        yield _describe_end(explanation)


def _describe_step(explanation: Explanation, step: PairStep) -> str:
    first, second = (explanation.mdp.state_name(s) for s in step.states)
    both = f"{first} and {second}" if first != second else f"two copies of {first}"
    if step.actions is None:
        return f"{both} follow the policy"
    a, b = (explanation.mdp.action_name(action) for action in step.actions)
    return f"{both} take {a}" if a == b else f"{first} takes {a}, {second} takes {b}"


def _build_coupling_rows(explanation: Explanation, step: PairStep) -> list[tuple[str, ...]]:
    name = explanation.mdp.state_name
    moved = [
        each for each in step.coupling if explanation.kind == "mico" or len(set(each.states)) == 2
    ]
    shared = step.coupling[len(moved) :]
    shown, rest = moved[:MAX_SHOWN_MATCHES], moved[MAX_SHOWN_MATCHES:]
    if len(rest) == 1:
        shown, rest = moved, []
    written = _choose_format(explanation.distance)
    rows: list[tuple[str, ...]] = [
        ("mass", "first", "second", "distance", "adds"),
        ("", "reward gap", "", "", written(step.reward_gap)),
    ]
    for each in shown:
        names = (name(s) for s in each.states)
        rows.append(
            (_format_mass([each]), *names, written(each.distance), written(each.contribution))
        )
    if rest:
        words = (f"{len(rest)} more", "matches", "")
        rows.append((_format_mass(rest), *words, written(sum(each.contribution for each in rest))))
    if shared:
        where = name(shared[0].states[0]) if len(shared) == 1 else f"one of {len(shared)}"
        rows.append((_format_mass(shared), "both in", where, written(0.0), written(0.0)))
    return [*rows, ("", "in all", "", "", written(_sum_contributions(step)))]


def _sum_contributions(step: PairStep) -> float:
    return step.reward_gap + sum(each.contribution for each in step.coupling)


def _format_mass(matches: Sequence[Match]) -> str:
    mass = sum(each.mass for each in matches)
    return f"{mass:.4f}" if mass >= 0.0001 else f"{mass:.0e}"


def _choose_format(total: float) -> Callable[[float], str]:
    """How to write parts of `whole`: with four decimals, or as many as show four digits of it."""
    digits = 4 if total <= 0 else max(4, 3 - math.floor(math.log10(total)))
    return lambda part: f"{part:.{digits}f}"


def _describe_end(explanation: Explanation) -> str:
    """Where the last step leads."""
    after = explanation.steps[-1].next_states
    first, second = (explanation.mdp.state_name(s) for s in after)
    if explanation.mismatched_pair is not None:
        return f"then {_describe_action_sets(explanation, explanation.mismatched_pair)}: as far apart as can be"
    if explanation.loop_start is None:
        return f"and so on from {first} and {second}"
    back = f"what adds most leads back to step {explanation.loop_start}"
    like = explanation.steps[explanation.loop_start].states
    if after == like:
        return back
    there = " and ".join(map(explanation.mdp.state_name, like))
    return f"{back}, for {first} and {second} are at distance 0 from {there}"


def _align_columns(rows: Sequence[tuple[str, ...]], *, num_left: int) -> Iterator[str]:
    """Rows of text in columns: the first `left` ones start together, the others end together."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if i < num_left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is proven of one distance of a table.

    Attributes:
        error: a bound on its error; infinite where there is none.
        estimate: of a table from draws, an estimate of its largest error; of one that is not
            complete, a bound on how far it is from what the known transitions tell; else None.
        known: (S, A), or (S, 1) for a policy, the transitions that were seen, where the table comes
            from experience; else None.
        complete: whether they determine the whole table. If not, it compares two states by the
            actions known in both, and a distance without a finite error is a lower bound.
    """

    error: float
    estimate: float | None = None
    known: NDArray[np.bool_] | None = dataclasses.field(default=None, repr=False, compare=False)
    complete: bool = True

    @property
    def is_lower_bound(self) -> bool:
        """Whether the true distance may be any larger."""
        return not self.complete and math.isinf(self.error)


@dataclasses.dataclass(frozen=True)
class Match:
    """Some mass of the first state's successors, matched with as much of the second's.

    Attributes:
        states: the successor of the first state, and that of the second.
        mass: how much probability is matched so.
        distance: d of the two successors.
        adds: discount * mass * distance, what the match adds to the distance before the step.
    """

    states: tuple[int, int]
    mass: float
    distance: float
    contribution: float


@dataclasses.dataclass(frozen=True)
class PairStep:
    """One step of the two states side by side.

    Attributes:
        states: the pair of state ids before the step.
        actions: the action of each; equal but for lax and on-policy distances; None where a policy
            mixes actions.
        gap: abs(R(s, a) - R(t, b)).
        adds: weight * gap, what the gap adds to the whole distance.
        leads_to: the pair of state ids after the step; of several, one that adds most.
        coupling: how the successors are matched, what adds most first, mass in a common state
            last; gap + sum of their `adds` is the distance of `states`. Empty where each state
            has one successor.
        weight: discount^k, times the mass of the matches on the way here.
    """

    states: tuple[int, int]
    actions: tuple[int, int] | None
    reward_gap: float
    contribution: float
    next_states: tuple[int, int]
    coupling: tuple[Match, ...] = ()
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The steps whose gaps add up to d(s, t).

    Where every pair has one successor, the steps are a path: it ends in a pair at distance 0, or
    returns to an earlier pair, and then the steps from `loop` on repeat for ever. Where successors
    branch, each step shows their coupling, and the next step follows the match that adds most,
    matches of states at distance 0 from its own taken together.
    Put together, `total` is within twice the distance's error of d(s, t): couplings are found to
    rounding, like those of the table. In a table from draws that has not converged, `total` may be
    the larger one.

    Attributes:
        steps: the path, one step each.
        loop: index of the step that the last one leads back to, or None.
        total: what all steps add, the repetitions included; with couplings, what the gap and the
            matches of the first step add.
        distance: d(s, t) as computed.
        proof: what is proven of it.
        value_gap: abs(V(s) - V(t)), V* or V^pi, which the distance bounds; None where not all of
            the MDP is known.
        value_gap_error: a proven bound on the error of `value_gap`.
        apart: the pair at the end of the steps whose states have different actions, and are
            therefore as far apart as states can be; else None.
        bisimilar: whether the states after the last step (without steps: the two states) are proven
            to be bisimilar. If not, they may still be: then their distance is at most the error.
    """

    mdp: MDP
    kind: str
    states: tuple[int, int]
    distance: float
    proof: Proof
    steps: tuple[PairStep, ...]
    loop_start: int | None
    total: float
    value_gap: float | None
    mismatched_pair: tuple[int, int] | None = None
    value_gap_error: float = 0.0
    bisimilar: bool = False

    @property
    def error(self) -> float:
        """A proven bound on the error of `distance`; infinite where there is none."""
        return self.proof.error

    @property
    def estimate(self) -> float | None:
        """See `Proof`."""
        return self.proof.estimate

    def __str__(self) -> str:
        return "\n".join(format_lines(self))
