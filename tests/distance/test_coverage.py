"""Distances from data: what was seen, what that proves, and what is only a lower bound."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, Distance, InputError, exact, worlds
from bisimetric.cli import report
from bisimetric.distance import Coverage
from tests.partial_data import (
    build_corridor,
    build_partial_corridor,
    build_partial_self_loops,
    compute_partial_distance,
    solve_partial,
)
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

SEEDS = st.integers(0, 2**16)


# What is proven.


@settings(deadline=None, max_examples=scaled(80))
@given(deterministic_mdps(), SEEDS, st.sampled_from([1, 3, 400]))
def test_the_exact_distance_lies_within_the_bounds(mdp: MDP, seed: int, sweeps: int) -> None:
    d, truth = compute_partial_distance(mdp, seed, sweeps), exact.bisimulation(mdp)
    assert d.coverage is not None
    everyone = np.arange(mdp.num_states)
    lower, upper = d.bounds(everyone[:, None], everyone)
    assert (lower <= d.values).all()
    assert (d.values <= upper).all()
    assert (lower >= 0).all()
    assert (lower <= truth.values + truth.error).all()
    assert (truth.values - truth.error <= upper).all()
    assert (np.isinf(upper) == ~d.coverage.determined).all()
    assert (lower.diagonal() == 0).all()
    assert (upper.diagonal() == 0).all()
    assert math.isfinite(d.error) == d.coverage.complete


def test_bounds_of_an_exact_distance() -> None:
    d = dataclasses.replace(exact.bisimulation(worlds.load("pessimism")), error=0.25)
    assert d.bounds("s", "t") == (d("s", "t") - 0.25, d("s", "t") + 0.25)
    assert d.bounds("s", "s") == (0.0, 0.0)
    assert all(isinstance(end, float) for end in d.bounds(0, 1))
    assert dataclasses.replace(d, error=99.0).bounds("s", "t")[0] == 0.0
    assert dataclasses.replace(d, error=math.inf).bounds("s", "t") == (0.0, math.inf)
    assert dataclasses.replace(d, error=math.inf).bounds("s", "s") == (0.0, 0.0)


def test_bounds_of_a_state_that_is_not_at_distance_zero_from_itself() -> None:
    pair = MDP(np.full((2, 1, 2), 0.5), [[0.0], [0.0]], discount=0.5)
    d = Distance(np.array([[2.0, 1.0], [1.0, 0.0]]), 0.5, "mico", pair)
    assert d.bounds(0, 0) == (1.5, 2.5)
    assert d.bounds(1, 1) == (0.0, 0.5)


def test_the_lower_end_allows_for_rounding() -> None:
    d = build_partial_self_loops(0.5)
    assert d.coverage is not None
    d = dataclasses.replace(d, coverage=dataclasses.replace(d.coverage, rounding=0.125))
    assert d.bounds(0, 8) == (0.875, 1.5)
    assert d.bounds(0, 16) == (0.0, math.inf)
    assert d.bounds(16, 16) == (0.0, 0.0)


def test_bounds_broadcast_like_calls() -> None:
    d = build_partial_corridor()
    lower, upper = d.bounds(["A", "B"], [[0], [1], [2]])
    assert lower.shape == upper.shape == (3, 2)
    for i, t in enumerate("ABC"):
        for j, s in enumerate("AB"):
            assert (lower[i, j], upper[i, j]) == d.bounds(s, t)
    assert d.bounds("A", [0, 1])[1].tolist() == [0.0, math.inf]
    with pytest.raises(InputError, match="ids go from 0 to 3"):
        d.bounds([0, 4], 0)


@settings(deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 1e3), st.booleans())
def test_no_bound_is_rounded_inwards(value: float, error: float, single: bool) -> None:
    values: NDArray[np.floating] = np.array([[0, value], [value, 0]])
    values = values.astype(np.float32 if single else np.float64)
    mdp = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)
    lower, upper = Distance(values, error, "lax", mdp).bounds(0, 1)
    exactly, slack = Fraction(float(values[0, 1])), Fraction(error)
    assert lower == 0 or Fraction(lower) <= exactly - slack <= Fraction(np.nextafter(lower, 1e9))
    assert Fraction(np.nextafter(upper, 0)) <= exactly + slack <= Fraction(upper)


# The record.


def test_observed_transitions_of_the_corridor() -> None:
    coverage = build_partial_corridor().coverage
    assert coverage is not None
    assert coverage.unseen.tolist() == [[0, 0], [3, 0], [3, 1]]
    whole = [False, True, True, False]
    assert (coverage.jointly_known == np.outer(whole, whole)).all()
    assert not coverage.complete
    assert (coverage.num_proven, coverage.num_state_pairs) == (0, 6)


def test_coverage_is_read_only() -> None:
    coverage = build_partial_corridor().coverage
    assert coverage is not None
    for mask in (coverage.known, coverage.determined):
        with pytest.raises(ValueError, match="read-only"):
            mask[0, 0] = True


def a_coverage(**change: Any) -> Coverage:
    fields: dict[str, Any] = {
        "known": np.ones((3, 2), bool),
        "determined": np.ones((3, 3), bool),
        "error": 0.5,
        "rounding": 1e-9,
        "num_paired": 2,
        "num_transition_pairs": 6,
    }
    return Coverage(**{**fields, **change})


LOPSIDED = np.array([[True, True, True], [True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"known": np.ones((3, 2))}, r"known is float64 of shape \(3, 2\) and must be bool"),
        ({"known": np.ones(3, bool)}, r"must be bool, \(states, actions\)"),
        ({"known": np.ones((0, 2), bool)}, "must be bool"),
        ({"determined": np.ones((2, 2), bool)}, r"determined must be \(3, 3\)"),
        ({"determined": np.ones((3, 3), int)}, "determined is int64 of shape"),
        ({"determined": LOPSIDED}, r"determined\[1, 2\] is False and determined\[2, 1\] is not"),
        ({"determined": np.zeros((3, 3), bool)}, r"determined\[0, 0\] is False and must be True"),
        ({"error": -0.1}, "error is -0.1 and must be a number, at least 0"),
        ({"error": math.nan}, "error is nan"),
        ({"error": "small"}, "error is 'small'"),
        ({"rounding": math.inf}, "rounding is inf and must be a finite number"),
        ({"num_paired": 7}, "num_paired is 7 and must be at most num_transition_pairs, 6"),
        ({"num_paired": 0.5}, "num_paired is 0.5 and must be a whole number"),
        ({"num_transition_pairs": -1}, "num_transition_pairs is -1 and must be a whole number"),
    ],
)
def test_invalid_coverage_raises(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        a_coverage(**change)


def test_coverage_must_fit_the_matrix() -> None:
    d = build_partial_corridor()
    with pytest.raises(InputError, match=r"has shape \(3, 2\) and must be \(4, 2\)"):
        dataclasses.replace(d, coverage=a_coverage())
    with pytest.raises(InputError, match=r"has shape \(4, 2\) and must be \(4, 1\)"):
        dataclasses.replace(d, kind="on_policy", policy=np.ones(4, int))
    with pytest.raises(InputError, match=r"error is 0\.1 and must be infinite"):
        dataclasses.replace(d, error=0.1)


# Words.


def test_the_report_of_a_partly_seen_corridor() -> None:
    d = build_partial_corridor()
    assert d.coverage is not None
    assert (
        repr(d)
        == "Distance(bisimulation, 4 states, largest 0.5, a lower bound; 0 of 6 pairs proven)"
    )
    assert repr(d.coverage) == (
        "Coverage(5 of 8 state-action pairs seen, 0 of 6 pairs proven, 6 of 12 sampled)"
    )
    assert list(d.coverage.format_lines(d.mdp)) == [
        "seen       5 of 8 state-action pairs",
        "unseen     A never took left; D was never exited",
        "proven     0 of 6 pairs of states",
        "bounds     6 of 6 pairs of states: lower bounds, unseen transitions may increase them",
        "sampled    6 of 12 pairs of known transitions",
        "next       collect more data; once it covers the MDP, use exact on Transitions.to_mdp()",
    ]
    assert "unseen     0 never took 0; 3 was never exited" in str(d.coverage)
    assert "lower bounds" in _report(d)
    for table in (d, dataclasses.replace(d, estimate=None)):
        lines = _report(table).splitlines()
        assert "coverage   5 of 8 state-action pairs" in lines
        assert not [line for line in lines if line.startswith(("classes", "estimate"))]


def _report(d: Distance) -> str:
    """Return the lines that the command line prints for a distance."""
    return "\n".join(map(str, report.describe_distance(d)))


def test_the_report_where_some_pairs_are_proven() -> None:
    d = build_partial_self_loops()
    assert d.coverage is not None
    assert repr(d) == (
        "Distance(bisimulation, 17 states, largest 1.5, a lower bound; "
        "78 of 136 pairs proven to 0.00099)"
    )
    assert "0.00099" in _report(d)
    assert "78 of 136 pairs" in _report(d)
    text = str(d.coverage)
    assert "seen       13 of 17 states\n" in text
    assert "proven     78 of 136 pairs of states, to 0.00099\n" in text
    assert "bounds     58 of 136 pairs" in text
    assert "inf" not in str(build_partial_self_loops(math.inf).coverage) + repr(
        build_partial_self_loops(math.inf)
    )


def test_the_report_of_complete_data() -> None:
    d = solve_partial(build_corridor(), np.ones((4, 2), bool), 3)
    assert d.coverage is not None
    assert "error <= " in repr(d)
    assert f"{d.error:.2g}" in _report(d)
    lines = _report(d).splitlines()
    assert not [line for line in lines if line.startswith("coverage")]
    said = str(d.coverage)
    assert "unseen" not in said
    assert "bounds" not in said
    assert "next       sample more pairs, or use exact" in said


def test_many_unseen_states_are_counted() -> None:
    coverage = a_coverage(known=np.zeros((9, 6), bool), determined=np.eye(9, dtype=bool))
    assert "3 was never exited; and in 5 more\n" in str(coverage)
    some_known = np.zeros((9, 6), bool)
    some_known[:, 0] = True
    coverage = a_coverage(known=some_known, determined=np.eye(9, dtype=bool))
    assert "0 never took 1, 2, 3, 4 and 1 more; " in str(coverage)


# Reasons.


@settings(deadline=None, max_examples=scaled(80))
@given(deterministic_mdps(), SEEDS, st.sampled_from([1, 3, 400]))
def test_the_steps_of_a_partly_known_distance(mdp: MDP, seed: int, sweeps: int) -> None:
    d, truth = compute_partial_distance(mdp, seed, sweeps), exact.bisimulation(mdp)
    assert d.coverage is not None
    within = d.error if d.coverage.complete else d.estimate
    assert within is not None
    slack = d.coverage.rounding + 1e-9
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            why = d.explain(s, t)
            assert d(s, t) - slack <= why.total <= d(s, t) + within + slack
            assert why.total <= truth(s, t) + truth.error + slack
            assert why.mismatched_pair is None
            for step in why.steps:
                assert step.actions is not None
                (u, v), (a, b) = step.states, step.actions
                assert a == b
                assert d.coverage.known[u, a]
                assert d.coverage.known[v, a]
                assert step.reward_gap == abs(mdp.R[u, a] - mdp.R[v, a])
                assert step.next_states == (mdp.next_state[u, a], mdp.next_state[v, a])
            text = str(why)
            proven = bool(d.coverage.determined[s, t])
            assert ("a lower bound" in text, "proven to" in text) == (not proven, proven)
            assert (why.value_gap is None) == (not d.coverage.complete)
            assert "inf" not in text
            assert "are bisimilar" not in text


def test_explanations_in_a_partly_observed_corridor() -> None:
    d = dataclasses.replace(build_partial_corridor(), estimate=0.001)
    assert str(d.explain("A", "B")).splitlines() == [
        "d~(A; B) >= 0.25, a lower bound, at most 0.001 below what the seen transitions "
        "determine, at discount 0.5",
        "  step  first  second  action  reward gap    adds     sum",
        "  0     A      B       right            0  0.0000  0.0000",
        "  1     B      C       right          0.5  0.2500  0.2500",
        "  then no action was seen in both C and D: 0.2500 in total",
        "A never took left: the true distance may be larger",
    ]
    assert str(d.explain("B", "D")).splitlines()[1:] == [
        "no action was seen in both B and D",
        "D was never exited: the true distance may be larger",
    ]
    assert str(d.explain("B", "C")).splitlines()[-1] == (
        "some reachable transitions were not seen: the true distance may be larger"
    )
    assert str(d.explain("D", "D")).splitlines()[1:] == ["they are the same state"]


def test_the_explanation_of_a_determined_pair() -> None:
    text = str(build_partial_self_loops().explain(0, 8)).splitlines()
    assert text[0] == "d~(0; 8) = 1, proven to 0.00099, at discount 0.5"
    assert text[-1] == "so their values under the optimal policy differ by at most 1.00099"


def test_a_distance_that_has_not_converged_reports_it() -> None:
    whole = solve_partial(build_corridor(), np.ones((4, 2), bool), 2)
    text = str(whole.explain(0, 3)).splitlines()
    assert text[-2] == "the matrix has 1.5000 instead of 1.6250: it has not converged"
    assert text[-1].startswith("so their values under the optimal policy differ by at most ")
    bound = float(text[-1].split(";")[0].split()[-1])
    assert bound == pytest.approx(whole(0, 3) + whole.error, rel=1e-5)
    assert "has not converged" not in str(
        solve_partial(build_corridor(), np.ones((4, 2), bool), 60).explain(0, 3)
    )
    rounded = np.array([[0.0, 0.12344999], [0.12344999, 0.0]])
    pays = MDP.deterministic([[0], [1]], [[0.0], [0.061725005]], discount=0.5)
    everything = Coverage(np.ones((2, 1), bool), np.ones((2, 2), bool), 1e-7, 0.0, 1, 1)
    near = Distance(rounded, 1e-7, "bisimulation", pays, coverage=everything)
    assert "0.1235 in total" in str(near.explain(0, 1))
    assert "has not converged" not in str(near.explain(0, 1))
    # Not drawn yet, and so at 0, is not the same as alike.
    fresh = solve_partial(build_corridor(), np.ones((4, 2), bool), 0)
    assert "no sample distinguishes 0 and 3 so far" in str(fresh.explain(0, 3))


def test_a_partly_observed_policy_is_explained() -> None:
    mdp = build_corridor(
        available=np.array([[True, True], [True, True], [True, True], [True, False]])
    )
    seen = np.array([[True], [True], [True], [False]])
    values = np.zeros((4, 4))
    determined = np.eye(4, dtype=bool)
    coverage = Coverage(seen, determined, 0.0, 0.0, 0, 3)
    policy = np.array([[0.5, 0.5]] * 4)
    for given_policy in (np.ones(4, int), policy):
        d = Distance(values, math.inf, "on_policy", mdp, given_policy, {}, 0.0, coverage)
        assert str(d.explain("A", "D")).splitlines() == [
            "d^pi(A; D) >= 0, a lower bound, at most 0 below what the seen transitions "
            "determine, at discount 0.5",
            "no action was seen in both A and D",
            "the step from D was never seen: the true distance may be larger",
        ]
        assert (
            "no sample distinguishes A and B so far\nsome reachable transitions were not seen: "
            in str(d.explain("A", "B"))
        )


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(60))
@given(stochastic_mdps(), st.sampled_from(["bisimulation", "lax"]), SEEDS)
def test_partly_seen_stochastic_mdps_are_explained(mdp: MDP, kind: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = rng.random(mdp.R.shape) < 0.6
    coverage = Coverage(known, np.eye(mdp.num_states, dtype=bool), 0.0, 0.0, 0, 0)
    if coverage.complete:
        return
    values = rng.integers(0, 3, size=(mdp.num_states,) * 2).astype(float)
    values = np.maximum(values, values.T) * ~np.eye(mdp.num_states, dtype=bool)
    d = Distance(values, math.inf, kind, mdp, estimate=1.0, coverage=coverage)
    for s in range(mdp.num_states - 1):
        why = d.explain(s, mdp.num_states - 1)
        for step in why.steps:
            assert step.actions is not None
            assert all(known[x, a] for x, a in zip(step.states, step.actions, strict=True))
        if why.loop_start is not None:
            assert why.steps[-1].next_states == why.steps[why.loop_start].states
        assert ">=" in str(why)
