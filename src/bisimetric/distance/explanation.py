"""Explanations of a distance: the steps whose reward gaps add up to it, and their text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._text import pluralise
from bisimetric.mdp import MDP

MAX_SHOWN_STEPS = 24
MAX_SHOWN_MATCHES = 8
NEGLIGIBLE_MASS = 1e-12
"""Rounding leaves couplings with such masses; they are not shown."""
MAX_SHOWN_ACTIONS = 4
TITLES = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax", "mico": "MICo"}


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is proven for one entry of a distance matrix.

    Attributes:
        error: a bound on its error; infinite if there is none.
        estimate: for a Monte Carlo matrix, an estimate of its largest error; for one from
            incomplete data, a bound on its distance from what the known transitions determine;
            otherwise None.
        known: for a matrix from data, the observed transitions, (S, A), or (S, 1) for a policy;
            otherwise None.
        complete: whether they determine the whole matrix. If not, two states are compared by the
            actions known in both, and a distance without a finite error is a lower bound.
        empirical: whether the error refers to an MDP that was estimated from data.
        has_successor: between recorded steps, whether a step is followed by another one of the
            matrix, (S,); None where all are. A path ends at one that is not.

    >>> from bisimetric import exact, worlds
    >>> proof = exact.bisimulation(worlds.load("pessimism")).explain("s", "t").proof
    >>> proof.error < 1e-9, proof.is_lower_bound
    (True, False)
    """

    error: float
    estimate: float | None = None
    known: NDArray[np.bool_] | None = dataclasses.field(default=None, repr=False, compare=False)
    complete: bool = True
    empirical: bool = False
    has_successor: NDArray[np.bool_] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    @property
    def is_lower_bound(self) -> bool:
        """Whether the true distance may be arbitrarily larger."""
        return not self.complete and math.isinf(self.error)


@dataclasses.dataclass(frozen=True)
class Match:
    """One entry of a coupling: probability mass of a pair of successors.

    Attributes:
        states: the successor of the first state, and that of the second.
        mass: the probability of the pair.
        distance: the distance between the two successors.
        contribution: discount * mass * distance, the share of the distance before the step.

    >>> from bisimetric import exact
    >>> P = [[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]]
    >>> d = exact.bisimulation(MDP(P, [[0], [0], [1]], discount=0.5))
    >>> match = d.explain(0, 1).steps[0].coupling[0]
    >>> match.states, match.mass, round(match.distance, 6), round(match.contribution, 6)
    ((2, 1), 0.5, 2.0, 0.5)
    """

    states: tuple[int, int]
    mass: float
    distance: float
    contribution: float


@dataclasses.dataclass(frozen=True)
class PairStep:
    """One step of a pair of states.

    Attributes:
        states: the pair of state ids before the step.
        actions: the action of each; they differ only for lax and on-policy distances; None where a
            policy mixes actions.
        reward_gap: abs(R(s, a) - R(t, b)).
        contribution: weight * reward_gap, the gap's share of the whole distance.
        next_states: the pair of state ids after the step; of several, one that contributes most.
        coupling: the matches of the successors, largest contribution first, mass in a common state
            last; reward_gap + the sum of their contributions is the distance of `states`. Empty
            where each state has one successor.
        weight: discount^k, times the mass of the matches that were followed.

    >>> from bisimetric import exact, worlds
    >>> step = exact.bisimulation(worlds.load("pessimism")).explain("s", "t").steps[1]
    >>> step.states, step.actions, step.next_states
    ((1, 2), (1, 1), (0, 2))
    >>> step.reward_gap, round(step.weight, 6), round(step.contribution, 6)
    (1.0, 0.9, 0.9)
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
    """The steps whose reward gaps add up to d(s, t).

    In a deterministic MDP the steps are a path that ends in a pair at distance 0, or returns to an
    earlier pair and then repeats from step `loop_start`. In a stochastic MDP each step shows the
    coupling of its successors, and the next step follows the match that contributes most, where
    matches between states at distance 0 from each other count together.

    `total` is within twice the distance's error of d(s, t): couplings are computed to rounding,
    as for the matrix. For a sampled matrix that has not converged, `total` may be larger.

    Attributes:
        mdp: the MDP of the states.
        kind: the kind of the distance.
        states: the pair of state ids that is explained.
        distance: d(s, t) as computed.
        proof: what is proven for it.
        steps: the path, one step each.
        loop_start: index of the step that the last one leads back to, or None.
        total: the sum of all contributions, repetitions included; with couplings, the reward gap
            and the contributions of the first step.
        value_gap: abs(V(s) - V(t)), for V* or V^pi, which the distance bounds; None where the MDP
            is only partly known.
        mismatched_pair: the last pair, if its states have different labels or actions and are
            therefore at the largest possible distance; otherwise None.
        value_gap_error: a proven bound on the error of `value_gap`.
        bisimilar: whether the states after the last step (without steps: the two states) are proven
            to be bisimilar. If not, they may still be; then their distance is at most the error.

    >>> from bisimetric import exact, worlds
    >>> explanation = exact.bisimulation(worlds.load("pessimism")).explain("s", "t")
    >>> explanation
    Explanation(d~(s; t) = 10, proven to ..., at discount 0.9, 3 steps)
    >>> print(explanation)
    d~(s; t) = 10, proven to ..., at discount 0.9
      step  first  second  action  reward gap    adds     sum
      0     s      t       a                1  1.0000  1.0000
      1     t      u       b                1  0.9000  1.9000
      2     s      u       a                1  0.8100  2.7100
      steps 1 to 2 repeat in a cycle: 7.2900 more, 10.0000 in total
    so their values under the optimal policy differ by at most 10; they differ by 0
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
        """A proven bound on the error of `distance`; infinite if there is none."""
        return self.proof.error

    @property
    def estimate(self) -> float | None:
        """See `Proof`."""
        return self.proof.estimate

    def __str__(self) -> str:
        return "\n".join(format_lines(self))

    def __repr__(self) -> str:
        steps = pluralise(len(self.steps), "step")
        return f"Explanation({_describe_distance(self)}, {steps})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the whole text in IPython and in notebooks."""
        for number, line in enumerate(format_lines(self)):
            if number:
                printer.break_()
            printer.text(line)


def format_lines(explanation: Explanation) -> Iterator[str]:
    """Format the distance, its steps, and the bound on values that it implies."""
    yield _describe_distance(explanation)
    if explanation.mismatched_pair is not None and not explanation.steps:
        actions = _describe_mismatch(explanation, explanation.mismatched_pair)
        yield f"{actions}: the largest possible distance"
    elif not explanation.steps:
        yield _describe_no_step(explanation)
        if explanation.states[0] == explanation.states[1] or explanation.bisimilar:
            return
    elif explanation.steps[0].coupling:
        yield from _format_couplings(explanation)
    else:
        yield from _format_path(explanation)
    yield from _describe_difference(explanation)
    if explanation.proof.is_lower_bound:
        yield _describe_missing(explanation)
    else:
        yield _describe_value_bound(explanation)


def _describe_distance(explanation: Explanation) -> str:
    title = TITLES.get(explanation.kind, explanation.kind)
    first, second = (explanation.mdp.state_name(s) for s in explanation.states)
    relation = ">=" if explanation.proof.is_lower_bound else "="
    return (
        f"{title}({first}; {second}) {relation} {explanation.distance:.6g}, "
        f"{_describe_error(explanation)}, at discount {explanation.mdp.discount:g}"
    )


def describe_unseen(state: str, known: NDArray[np.bool_], action_name: Callable[[int], str]) -> str:
    """Describe which actions were not observed in a state; empty if all were.

    >>> describe_unseen("s", np.array([True, False, False]), ["up", "left", "right"].__getitem__)
    's never took left, right'
    """
    if known.all():
        return ""
    if len(known) == 1:
        return f"the step from {state} was never seen"
    if not known.any():
        return f"{state} was never exited"
    names = [action_name(a) for a in np.flatnonzero(~known).tolist()]
    more = f" and {len(names) - MAX_SHOWN_ACTIONS} more" if len(names) > MAX_SHOWN_ACTIONS else ""
    return f"{state} never took {', '.join(names[:MAX_SHOWN_ACTIONS])}{more}"


def _describe_difference(explanation: Explanation) -> Iterator[str]:
    """Report a visible difference between the sum of the steps and the matrix entry."""
    sampled = explanation.proof.known is not None
    entry, total = f"{explanation.distance:.4f}", f"{explanation.total:.4f}"
    if entry == total or (math.isfinite(explanation.error) and not sampled):
        return
    if not sampled:
        yield f"the matrix has {entry} instead of {total}: it is an estimate"
    elif abs(explanation.total - explanation.distance) > 5e-5:  # not only rounded differently
        yield f"the matrix has {entry} instead of {total}: it has not converged"


def _describe_no_step(explanation: Explanation) -> str:
    if explanation.states[0] == explanation.states[1]:
        return "they are the same state"
    if explanation.bisimilar:
        return "they are bisimilar"
    last = _find_last_step(explanation, explanation.states)
    if last is not None:
        return f"no step is shown: {last} is not followed by a step of the matrix"
    if explanation.proof.known is not None:
        return _describe_zero_distance(explanation, explanation.states)
    error = explanation.error
    limit = f": it is at most the error, {error:.2g}" if math.isfinite(error) else ""
    return f"no step that contributes to it was found{limit}"


def _find_last_step(explanation: Explanation, pair: tuple[int, int]) -> str | None:
    """Return the name of the state in the pair whose successor is not in the matrix, or None."""
    has_successor = explanation.proof.has_successor
    if has_successor is None:
        return None
    found = [s for s in pair if not has_successor[s]]
    return explanation.mdp.state_name(found[0]) if found else None


def _describe_zero_distance(explanation: Explanation, pair: tuple[int, int]) -> str:
    """Describe what is known of a pair at distance 0."""
    first, second = (explanation.mdp.state_name(s) for s in pair)
    known = explanation.proof.known
    if first == second:
        return f"both are in {first}"
    if known is None:
        if explanation.bisimilar:
            return f"{first} and {second} are bisimilar"
        limit = ", up to the error" if explanation.error > 0 else ""
        return f"{first} and {second} contribute nothing{limit}"
    if not explanation.proof.complete and not (known[pair[0]] & known[pair[1]]).any():
        return f"no action was seen in both {first} and {second}"
    return f"no sample distinguishes {first} and {second} so far"


def _describe_missing(explanation: Explanation) -> str:
    """Describe which observations a lower bound lacks."""
    known, mdp = explanation.proof.known, explanation.mdp
    rows = [] if known is None else [(mdp.state_name(s), known[s]) for s in explanation.states]
    parts = [describe_unseen(name, row, mdp.action_name) for name, row in rows]
    missing = " and ".join(filter(None, parts)) or "some reachable transitions were not seen"
    return f"{missing}: the true distance may be larger"


def _describe_error(explanation: Explanation) -> str:
    error, estimate = explanation.error, explanation.estimate
    model = " for the empirical model" if explanation.proof.empirical else ""
    if explanation.proof.is_lower_bound:
        if estimate is None or not math.isfinite(estimate):
            return "a lower bound"
        return f"a lower bound, at most {estimate:.2g} below what the seen transitions determine"
    if estimate is not None and not math.isfinite(error):
        return f"an estimate, off by about {estimate:.1g}{model}"
    return f"proven to {error:.2g}{model}" if math.isfinite(error) else "not proven"


def _describe_value_bound(explanation: Explanation) -> str:
    on_policy = explanation.kind in ("on_policy", "mico")
    values = f"their values under the {'' if on_policy else 'optimal '}policy differ by"
    if math.isfinite(explanation.error):
        known = ""
        if explanation.value_gap is not None:
            known = f"; they differ by {_format_value_gap(explanation)}"
        return f"so {values} at most {explanation.distance + explanation.error:.6g}{known}"
    return f"{values} {_format_value_gap(explanation)}; the true distance is at least that"


def _format_value_gap(explanation: Explanation) -> str:
    """Format the value gap, with its error where it is visible."""
    gap, error = explanation.value_gap, explanation.value_gap_error
    visible = error > 1e-6 * max(gap or 0.0, explanation.distance)
    return f"{gap:.6g}" + (f", up to {error:.1g}" if visible else "")


def _describe_mismatch(explanation: Explanation, pair: tuple[int, int]) -> str:
    """List the labels of two states or, if these agree, their available actions."""
    labels, available = explanation.mdp.labels, explanation.mdp.available
    clauses = []
    if labels is not None and labels.of(pair[0]) != labels.of(pair[1]):
        for state in pair:
            names = ", ".join(labels.of(state))
            noun = "label" if len(labels.of(state)) == 1 else "labels"
            owned = f"{noun} {names}" if names else "no label"
            clauses.append(f"{explanation.mdp.state_name(state)} has {owned}")
        return " and ".join(clauses)
    for state in pair:
        actions = [] if available is None else available[state].nonzero()[0].tolist()
        names = ", ".join(explanation.mdp.action_name(a) for a in actions)
        noun = "action" if len(actions) == 1 else "actions"
        clauses.append(f"{explanation.mdp.state_name(state)} has {noun} {names}")
    return " and ".join(clauses)


def _format_actions(explanation: Explanation, step: PairStep) -> str:
    if step.actions is None:
        return "mixed"
    a, b = (explanation.mdp.action_name(action) for action in step.actions)
    return a if a == b else f"{a} / {b}"


def _format_path(explanation: Explanation) -> Iterator[str]:
    """Format a deterministic path as one table."""
    mdp, steps, loop = explanation.mdp, explanation.steps, explanation.loop_start
    rows: list[tuple[str, ...]] = [
        ("step", "first", "second", "action", "reward gap", "adds", "sum")
    ]
    so_far = 0.0
    for k, step in enumerate(steps):
        so_far += step.contribution
        if k < MAX_SHOWN_STEPS:
            names = (mdp.state_name(s) for s in step.states)
            numbers = (f"{step.reward_gap:g}", f"{step.contribution:.4f}", f"{so_far:.4f}")
            rows.append((str(k), *names, _format_actions(explanation, step), *numbers))
    yield from _align_columns(rows, num_left=4)
    if len(steps) > MAX_SHOWN_STEPS:
        yield f"  ... {len(steps) - MAX_SHOWN_STEPS} more steps, up to {so_far:.4f}"
    rest, in_total = explanation.total - so_far, f"{explanation.total:.4f} in total"
    unproven = explanation.proof.known is not None or math.isinf(explanation.error)
    last_step = _find_last_step(explanation, steps[-1].next_states)
    if last_step is not None:
        yield f"  from {last_step} on, not in the matrix: {rest:.4f} more, {in_total}"
    elif loop is not None:
        last = len(steps) - 1
        cycle = f"step {loop} repeats" if loop == last else f"steps {loop} to {last} repeat"
        yield f"  {cycle} in a cycle: {rest:.4f} more, {in_total}"
    elif explanation.mismatched_pair is not None:
        actions = _describe_mismatch(explanation, explanation.mismatched_pair)
        yield f"  then {actions}: the largest possible distance, {rest:.4f} more, {in_total}"
    elif rest <= max(0.0 if unproven else explanation.error, 1e-9):
        yield f"  then {_describe_zero_distance(explanation, steps[-1].next_states)}: {in_total}"
    else:
        yield f"  the rest of the path adds {rest:.4f}: {in_total}"


def _format_couplings(explanation: Explanation) -> Iterator[str]:
    """Format one table per step, with common column widths."""
    tables = [_build_coupling_rows(explanation, step) for step in explanation.steps]
    aligned = list(_align_columns([row for rows in tables for row in rows], num_left=3))
    for k, (step, rows) in enumerate(zip(explanation.steps, tables, strict=True)):
        yield ""
        share = min(1.0, step.weight * _sum_contributions(step) / (explanation.total or 1.0))
        percentage = f" ({share:.0%} of the distance)" if k else ""
        yield f"step {k}: {_describe_step(explanation, step)}{percentage}"
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
    name, mico = explanation.mdp.state_name, explanation.kind == "mico"
    different = [match for match in step.coupling if mico or len(set(match.states)) == 2]
    shared = step.coupling[len(different) :]
    different = [match for match in different if match.mass > NEGLIGIBLE_MASS]
    shown, rest = different[:MAX_SHOWN_MATCHES], different[MAX_SHOWN_MATCHES:]
    if len(rest) == 1:
        shown, rest = different, []
    write = _choose_format(explanation.distance)
    rows: list[tuple[str, ...]] = [
        ("mass", "first", "second", "distance", "adds"),
        ("", "reward gap", "", "", write(step.reward_gap)),
    ]
    for match in shown:
        names = (name(s) for s in match.states)
        rows.append(
            (_format_mass([match]), *names, write(match.distance), write(match.contribution))
        )
    if rest:
        cells = (f"{len(rest)} more", "matches", "")
        rows.append((_format_mass(rest), *cells, write(sum(match.contribution for match in rest))))
    if shared:
        place = name(shared[0].states[0]) if len(shared) == 1 else f"one of {len(shared)}"
        rows.append((_format_mass(shared), "both in", place, write(0.0), write(0.0)))
    return [*rows, ("", "total", "", "", write(_sum_contributions(step)))]


def _sum_contributions(step: PairStep) -> float:
    return step.reward_gap + sum(match.contribution for match in step.coupling)


def _format_mass(matches: Sequence[Match]) -> str:
    mass = sum(match.mass for match in matches)
    return f"{mass:.4f}" if mass >= 0.0001 else f"{mass:.0e}"


def _choose_format(total: float) -> Callable[[float], str]:
    """Choose the decimals for parts of `total`: four, or as many as show four digits of it."""
    digits = 4 if total <= 0 else max(4, 3 - math.floor(math.log10(total)))
    return lambda part: f"{part:.{digits}f}"


def _describe_end(explanation: Explanation) -> str:
    """Describe the pair after the last step of a stochastic explanation."""
    final = explanation.steps[-1].next_states
    first, second = (explanation.mdp.state_name(s) for s in final)
    if explanation.mismatched_pair is not None:
        actions = _describe_mismatch(explanation, explanation.mismatched_pair)
        return f"then {actions}: the largest possible distance"
    if explanation.loop_start is None:
        return f"and so on from {first} and {second}"
    back = f"the largest contribution leads back to step {explanation.loop_start}"
    earlier = explanation.steps[explanation.loop_start].states
    if final == earlier:
        return back
    names = " and ".join(map(explanation.mdp.state_name, earlier))
    return f"{back}: {first} and {second} are at distance 0 from {names}"


def _align_columns(rows: Sequence[tuple[str, ...]], *, num_left: int) -> Iterator[str]:
    """Align the first `num_left` columns to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if i < num_left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
