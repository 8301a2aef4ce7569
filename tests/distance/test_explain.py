"""Explanations of stochastic MDPs: couplings that add up, and their text."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from bisimetric import MDP, Distance, NotConverged, exact, relation, worlds
from bisimetric.distance import Match, PairStep, pair_path
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

SEEDS = st.integers(0, 2**16)


def a_metric(mdp: MDP, kind: Any, seed: int) -> Distance:
    """The distances of some points of a plane: a metric, though not the one of the MDP."""
    points = np.random.default_rng(seed).integers(0, 4, size=(mdp.num_states, 2))
    values = np.linalg.norm(points[:, None] - points, axis=2)
    return Distance(values, math.inf, kind, mdp, estimate=1.0)


def an_exact(mdp: MDP, kind: str, seed: int) -> Distance:
    if kind == "bisimulation":
        return exact.bisimulation(mdp, tol=1e-4)
    if kind == "lax":
        return exact.lax(mdp, tol=1e-4)
    weights = np.random.default_rng(seed).random(mdp.R.shape)
    weights *= 1.0 if mdp.available is None else mdp.available
    return exact.on_policy(mdp, weights / weights.sum(axis=1, keepdims=True), tol=1e-4)


def cheapest(first: NDArray[Any], second: NDArray[Any], d: NDArray[Any]) -> float:
    """Compute W1 by the full linear programme."""
    n = len(first)
    sums = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    found = optimize.linprog(d.ravel(), A_eq=sums, b_eq=np.concatenate([first, second]))
    return float(d.ravel() @ np.asarray(found.x))


def image(d: Distance, s: int, t: int) -> float:
    """F(d)(s, t) as the equation of each kind is written."""
    mdp = d.mdp if d.policy is None else d.mdp.apply_policy(d.policy)
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    P /= P.sum(axis=2, keepdims=True)

    def delta(a: int, b: int) -> float:
        after = P[t, b] @ d.values.T @ P[s, a]
        if d.kind != "mico":
            after = cheapest(P[s, a], P[t, b], d.values)
        return float(abs(mdp.R[s, a] - mdp.R[t, b]) + mdp.discount * after)

    mine, theirs = ([*range(mdp.num_actions)] for _ in range(2))
    if mdp.available is not None:
        mine, theirs = (np.flatnonzero(mdp.available[x]).tolist() for x in (s, t))
    if d.kind != "lax":
        return max(delta(a, a) for a in mine)
    there = max(min(delta(a, b) for b in theirs) for a in mine)
    back = max(min(delta(a, b) for a in mine) for b in theirs)
    return max(there, back)


def adds_up_to(step: PairStep) -> float:
    return step.reward_gap + sum(match.contribution for match in step.coupling)


@settings(deadline=None, max_examples=scaled(80))
@given(stochastic_mdps(available=True), st.sampled_from(["bisimulation", "lax"]), SEEDS)
def test_every_step_is_the_equation(mdp: MDP, kind: str, seed: int) -> None:
    d = a_metric(mdp, kind, seed)
    for s in range(mdp.num_states):
        why = d.explain(s, mdp.num_states - 1)
        for step in [] if mdp.is_deterministic else why.steps:
            assert adds_up_to(step) == pytest.approx(image(d, *step.states), rel=1e-6, abs=1e-6)
        assert str(why)


@settings(deadline=None, max_examples=scaled(80))
@given(stochastic_mdps(), st.sampled_from(["bisimulation", "lax", "on_policy"]), SEEDS)
def test_a_coupling_has_the_successors_as_its_margins(mdp: MDP, kind: str, seed: int) -> None:
    d, dynamics = a_metric(mdp, kind, seed), mdp
    if kind == "on_policy":
        policy = np.random.default_rng(seed).integers(mdp.num_actions, size=mdp.num_states)
        d, dynamics = dataclasses.replace(d, policy=policy), mdp.apply_policy(policy)
    P = dynamics.P.toarray().reshape(*dynamics.R.shape, -1)
    for step in d.explain(0, mdp.num_states - 1).steps:
        if not step.coupling:
            assert dynamics.is_deterministic
            continue
        assert step.actions is not None
        for side in (0, 1):
            margin = np.zeros(mdp.num_states)
            for match in step.coupling:
                margin[match.states[side]] += match.mass
            action = 0 if kind == "on_policy" else step.actions[side]
            np.testing.assert_allclose(margin, P[step.states[side], action], atol=1e-8)
        for match in step.coupling:
            assert match.distance == d(*match.states)
            assert match.contribution == mdp.discount * match.mass * match.distance


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(30))
@given(
    stochastic_mdps(available=True), st.sampled_from(["bisimulation", "on_policy", "lax"]), SEEDS
)
def test_every_step_adds_up_to_the_distance_of_its_pair(mdp: MDP, kind: str, seed: int) -> None:
    d = an_exact(mdp, kind, seed)
    for s in range(mdp.num_states):
        why = d.explain(s, mdp.num_states - 1)
        assert abs(why.total - d(*why.states)) <= 2 * d.error
        assert why.value_gap is not None
        assert why.value_gap <= d(*why.states) + d.error + why.value_gap_error
        for step in why.steps:
            if step.coupling:
                assert abs(adds_up_to(step) - d(*step.states)) <= 2 * d.error


@settings(deadline=None, max_examples=scaled(60))
@given(stochastic_mdps(), SEEDS)
def test_the_steps_of_mico_add_up_to_the_distance(mdp: MDP, seed: int) -> None:
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(mdp.num_actions), size=mdp.num_states)
    d = exact.mico(mdp, policy, tol=1e-5)
    slack = 2 * d.error + 1e-9 * float(d.values.max())  # of the image, a plain product
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            why = d.explain(s, t)
            assert abs(why.total - d(s, t)) <= 2 * d.error
            assert why.value_gap is not None
            assert why.value_gap <= d(s, t) + d.error + why.value_gap_error
            for step in why.steps:
                if step.coupling:
                    assert adds_up_to(step) == pytest.approx(image(d, *step.states), abs=slack)
                    assert abs(adds_up_to(step) - d(*step.states)) <= 2 * d.error


Kinds = st.sampled_from(["bisimulation", "lax", "on_policy", "mico"])


def whatever_is_proven(mdp: MDP, kind: str, seed: int, tol: float) -> Distance:
    """Return a distance with its proven error, for a deterministic policy if it has one."""
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    chosen = np.where(has, np.random.default_rng(seed).random(mdp.R.shape), -1.0).argmax(axis=1)
    try:
        if kind in ("on_policy", "mico"):
            compute: Any = exact.on_policy if kind == "on_policy" else exact.mico
            return compute(mdp, chosen, tol=tol)  # type: ignore[no-any-return]
        if kind == "lax":
            return exact.lax(mdp, tol=tol)
        return exact.bisimulation(mdp, tol=tol)
    except NotConverged as caught:
        partial: Any = caught.partial
        assert isinstance(partial, Distance)
        return partial


# A shift of rewards may round two of them to near-ties.
@pytest.mark.filterwarnings("ignore::bisimetric.errors.NearTieWarning")
@settings(deadline=None, max_examples=scaled(100))
@given(
    st.one_of(stochastic_mdps(available=True), deterministic_mdps()),
    Kinds,
    st.sampled_from([0.0, 0.9, 0.9999]),
    st.sampled_from([(1.0, 0.0), (1e-12, 0.0), (1e9, 0.0), (1.0, 1e9), (1e-3, 1e9)]),
    st.sampled_from([1e-9, 1e-6, 1.0, 1e3]),
    SEEDS,
)
def test_the_total_is_within_twice_the_error(
    mdp: MDP, kind: str, discount: float, scale: tuple[float, float], tol: float, seed: int
) -> None:
    R = mdp.R * scale[0] + scale[1]
    mdp = mdp.replace(R=R, discount=discount)
    d = whatever_is_proven(mdp, kind, seed, tol)
    of = mdp if d.policy is None else mdp.apply_policy(d.policy)
    classes = relation.lax(of, tol=0) if kind == "lax" else relation.bisimulation(of, tol=0)
    for s in range(mdp.num_states):
        for t in range(s):
            why = d.explain(s, t)
            assert abs(why.total - d(s, t)) <= 2 * d.error
            assert why.value_gap is not None
            assert why.value_gap <= d(s, t) + d.error + why.value_gap_error
            if "they are bisimilar" in str(why):
                assert classes[s] == classes[t]
            elif "are bisimilar" in str(why):
                one, two = why.steps[-1].next_states
                assert classes[one] == classes[two]
            elif (
                not why.steps
                and why.mismatched_pair is None
                and kind == "bisimulation"
                and discount > 0
            ):
                assert classes[s] != classes[t] or not mdp.is_deterministic


def test_states_of_different_classes_are_not_called_bisimilar() -> None:
    """Their distance is below the error, and so 0 in the matrix."""
    mdp = MDP.deterministic([[0], [1], [2]], [[0.0], [1e-9], [1.0]], discount=0.5)
    d = exact.bisimulation(mdp, tol=1.0)
    flat = dataclasses.replace(d, values=np.where(d.values < 1e-3, 0.0, d.values))
    for why in (flat.explain(0, 1), d.explain(0, 1)):
        assert "bisimilar" not in str(why)
    text = str(flat.explain(0, 1))
    assert (
        f"no step that contributes to it was found: it is at most the error, {d.error:.2g}" in text
    )
    unknown = dataclasses.replace(flat, error=math.inf)
    assert "no step that contributes to it was found\n" in str(unknown.explain(0, 1))
    # At discount 0 only the first rewards count.
    split = MDP.deterministic([[2], [3], [2], [3]], [[0], [0], [1], [2]], discount=0)
    myopic = exact.bisimulation(split)
    assert myopic(0, 1) == 0
    assert "bisimilar" not in str(myopic.explain(0, 1))


def test_a_truncated_path_claims_nothing() -> None:
    """After 10,000 steps of a loop of 101 * 103 what is left is tiny, and the states differ."""
    n = [*((np.arange(101) + 1) % 101), *(101 + (np.arange(103) + 1) % 103)]
    R = np.zeros((204, 1))
    R[0], R[101] = 1.0, 2.0
    d = exact.bisimulation(MDP.deterministic(np.array(n)[:, None], R, discount=0.99))
    why = d.explain(0, 101)
    assert (len(why.steps), why.bisimilar) == (10_000, False)
    assert "bisimilar" not in str(why)
    assert "contribute nothing, up to the error" in str(why)


def test_bisimilar_states_are_reported_at_the_end_of_the_path() -> None:
    P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.25, 0.75]], [[0, 0, 0.3, 0.7]], [[0, 0, 1, 0]]]
    mdp = MDP(P, [[0.0], [1.0], [0.0], [0.0]], discount=0.5)
    why = exact.bisimulation(mdp).explain(2, 3)
    assert why.bisimilar
    assert "they are bisimilar" in str(why)
    # 0.1 + 0.2 is not 0.3: at distance 0, up to the error, and not bisimilar.
    Q = np.zeros((4, 1, 4))
    Q[0, 0, 2:], Q[1, 0, 2:] = [0.1 + 0.2, 0.7], [0.3, 0.7]
    Q[2:, 0, 2:] = np.eye(2)
    near = exact.bisimulation(MDP(Q, [[0.0], [0.0], [0.0], [1.0]], discount=0.5))
    assert near(0, 1) == 0
    assert not near.explain(0, 1).bisimilar
    assert "bisimilar" not in str(near.explain(0, 1))


def test_values_are_as_exact_as_they_can_be() -> None:
    """Huge rewards at discount 0.9999: the gap of the values has an error, and is reported."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(6), size=(6, 2))
    mdp = MDP(P, 1e9 + rng.random((6, 2)), discount=0.9999)
    why = whatever_is_proven(mdp, "bisimulation", 0, 1.0).explain(0, 1)
    assert why.value_gap is not None
    assert 0 < why.value_gap_error < math.inf
    assert f", up to {why.value_gap_error:.1g}" in str(why).splitlines()[-1]


@settings(deadline=None, max_examples=scaled(60))
@given(stochastic_mdps(max_states=6), st.sampled_from(["bisimulation", "lax"]), SEEDS)
def test_steps_follow_the_largest_contribution(mdp: MDP, kind: str, seed: int) -> None:
    d = a_metric(mdp, kind, seed)
    why = d.explain(0, mdp.num_states - 1)
    if not (why.steps and why.steps[0].coupling):
        return
    assert len(why.steps) <= pair_path.MAX_COUPLING_STEPS

    def like(pair: tuple[int, int]) -> tuple[bytes, bytes]:
        return d.values[pair[0]].tobytes(), d.values[pair[1]].tobytes()

    weight, pair = 1.0, why.states
    for step in why.steps:
        assert step.states == pair
        assert step.weight == pytest.approx(weight)
        assert step.contribution == pytest.approx(weight * step.reward_gap)
        moved = [match for match in step.coupling if len(set(match.states)) == 2]
        shared = step.coupling[len(moved) :]
        assert all(len(set(match.states)) == 1 for match in shared)
        assert [match.contribution for match in moved] == sorted(
            (m.contribution for m in moved), reverse=True
        )
        parts: dict[Any, list[Match]] = defaultdict(list)
        for match in step.coupling:
            parts[like(match.states)].append(match)
        adds = {part: sum(match.contribution for match in found) for part, found in parts.items()}
        assert adds[like(step.next_states)] == pytest.approx(max(adds.values()))
        pair = step.next_states
        weight *= mdp.discount * sum(match.mass for match in parts[like(pair)])
    earlier = [like(step.states) for step in why.steps]
    assert why.loop_start == (earlier.index(like(pair)) if like(pair) in earlier else None)
    if why.loop_start is None and len(why.steps) < pair_path.MAX_COUPLING_STEPS:
        assert weight * d(*pair) <= pair_path.MIN_FOLLOWED_SHARE * d(*why.states)


@pytest.mark.slow
def test_the_rows_of_a_large_problem_are_matched_at_the_least_cost() -> None:
    rng = np.random.default_rng(5)
    points = rng.random((60, 2))
    d = np.linalg.norm(points[:, None] - points, axis=2)
    first, second = (np.where(rng.random(60) < 0.5, rng.random(60), 0) for _ in range(2))
    first, second = first / first.sum(), second / second.sum()
    sides = [{x: float(side[x]) for x in np.flatnonzero(side).tolist()} for side in (first, second)]
    plan = pair_path.compute_optimal_coupling(sides[0], sides[1], d)
    cost = sum(mass * d[states] for states, mass in plan.items())
    assert cost == pytest.approx(cheapest(first, second, d), abs=1e-9)


# Text.


def two_coins(**about: Any) -> MDP:
    """Coins s and t that show heads, with reward 1 per step afterwards, with 1/2 and 3/4."""
    heads, tails = [[0, 0, 1, 0]], [[0, 0, 0, 1]]
    P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.75, 0.25]], heads, tails]
    return MDP(
        P,
        [[0.0], [0.5], [1.0], [0.0]],
        discount=0.5,
        names=["s", "t", "H", "T"],
        actions=["flip"],
        **about,
    )


TRUE = np.array([[0, 0.75, 1.5, 0.5], [0.75, 0, 0.75, 1.25], [1.5, 0.75, 0, 2], [0.5, 1.25, 2, 0]])
"""|V(x) - V(y)|, which d~ of the two coins is: everything moves in one direction."""


def test_the_text_of_two_coins() -> None:
    d = Distance(TRUE, 1e-9, "bisimulation", two_coins())
    assert str(d.explain("s", "t")).splitlines() == [
        "d~(s; t) = 0.75, proven to 1e-09, at discount 0.5",
        "",
        "step 0: s and t take flip",
        "  mass    first       second    distance    adds",
        "          reward gap                      0.5000",
        "  0.2500  T           H           2.0000  0.2500",
        "  0.7500  both in     one of 2    0.0000  0.0000",
        "          total                           0.7500",
        "",
        "step 1: T and H take flip (33% of the distance)",
        "  mass    first       second    distance    adds",
        "          reward gap                      1.0000",
        "  1.0000  T           H           2.0000  1.0000",
        "          total                           2.0000",
        "",
        "the largest contribution leads back to step 1",
        "so their values under the optimal policy differ by at most 0.75; they differ by 0.75",
    ]
    assert "they are the same state" in str(d.explain("s", "s"))


def test_the_text_of_a_state_that_is_not_at_distance_zero_from_itself() -> None:
    text = str(exact.mico(two_coins()).explain("s", "s")).splitlines()
    assert text[0].startswith("MICo(s; s) = 0.5, proven to ")
    assert text[2:9] == [
        "step 0: two copies of s take flip",
        "  mass    first       second  distance    adds",
        "          reward gap                    0.0000",
        "  0.2500  H           T         2.0000  0.2500",
        "  0.2500  T           H         2.0000  0.2500",
        "  0.2500  H           H         0.0000  0.0000",
        "  0.2500  T           T         0.0000  0.0000",
    ]
    assert text[-1] == "so their values under the policy differ by at most 0.5; they differ by 0"


def test_bisimilar_states_are_followed_together() -> None:
    d = exact.mico(worlds.load("duplicated-grid", base="mirrored-rooms-policy"))
    why = d.explain("lower 1,1", "upper 2,1")
    assert [len(step.coupling) for step in why.steps] == [4] * len(why.steps)
    assert [step.weight for step in why.steps] == pytest.approx([0.99**k for k in range(5)])
    assert why.loop_start == 3
    text = str(why)
    assert "step 4: lower 1,5 takes down, lower 2,5 takes up (99% of the distance)" in text
    assert (
        "leads back to step 3: lower 2,5 and lower 1,5 are at distance 0 from lower 1,4 and "
        "lower 2" in text
    )


def test_an_estimate_is_never_called_proven() -> None:
    honest = Distance(TRUE, 1e-9, "bisimulation", two_coins())
    estimated = dataclasses.replace(honest, values=TRUE * 1.25, error=math.inf, estimate=0.0421)
    text = str(estimated.explain("s", "t"))
    assert text.startswith("d~(s; t) = 0.9375, an estimate, off by about 0.04, at discount 0.5\n")
    assert "the matrix has 0.9375 instead of 0.8125: it is an estimate" in text
    assert text.endswith("differ by 0.75; the true distance is at least that")
    unknown = dataclasses.replace(honest, error=math.inf)
    assert str(unknown.explain("s", "t")).startswith("d~(s; t) = 0.75, not proven, at discount")
    for said in (text, str(unknown.explain("s", "t")), str(estimated.explain("s", "s"))):
        assert "proven to" not in said
        assert "inf" not in said


@pytest.mark.parametrize("successors", [[0, 1], [[0.5, 0.5], [0.5, 0.5]]])
def test_different_actions_are_the_whole_reason(successors: Any) -> None:
    have = np.array([[True, True], [True, False]])
    P = np.eye(2)[:, None].repeat(2, axis=1) if successors == [0, 1] else np.full((2, 2, 2), 0.5)
    mdp = MDP(P, [[1, 0], [0, 0]], discount=0.5, names="xy", actions=["go", "stay"], available=have)
    d = Distance(np.array([[0.0, 2.0], [2.0, 0.0]]), 0.0, "bisimulation", mdp)
    why = d.explain("x", "y")
    assert (why.steps, why.mismatched_pair, why.total) == ((), (0, 1), 2.0)
    assert str(why).splitlines() == [
        "d~(x; y) = 2, proven to 0, at discount 0.5",
        "x has actions go, stay and y has action go: the largest possible distance",
        "so their values under the optimal policy differ by at most 2; they differ by "
        + f"{why.value_gap:.6g}",
    ]


def test_a_path_ends_where_actions_differ() -> None:
    have = np.array([[True, True], [True, True], [True, True], [True, False]])
    mdp = MDP.deterministic(
        [[2, 2], [3, 3], [2, 2], [3, 3]],
        [[0.0, 0.0], [0.0, 0.25], [1.0, 0.0], [0.0, 0.0]],
        discount=0.5,
        available=have,
        actions=["a", "b"],
    )
    d = np.full((4, 4), 2.0)
    np.fill_diagonal(d, 0)
    d[0, 1] = d[1, 0] = 1.25
    why = Distance(d, 0.0, "bisimulation", mdp).explain(0, 1)
    assert (why.mismatched_pair, why.total) == ((2, 3), 1.25)
    assert why.steps[0].actions == (1, 1)
    assert (
        "then 2 has actions a, b and 3 has action a: the largest possible distance, 1.0000 more"
        in str(why)
    )


def test_many_matches_are_cut_in_the_text_only() -> None:
    states = 30
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(states), size=(states, 1))
    mdp = MDP(P, rng.normal(size=(states, 1)), discount=0.9)
    why = exact.mico(mdp).explain(0, 1)
    assert len(why.steps[0].coupling) == states**2
    table = str(why).split("\n\n")[1].splitlines()
    assert len(table) == 1 + 1 + 1 + 8 + 1 + 1
    assert "892 more" in table[-2]
    written = [float(line.split()[-1]) for line in table[2:]]
    assert sum(written[:-1]) == pytest.approx(written[-1], abs=6e-4)


def test_small_numbers_show_their_digits() -> None:
    small = two_coins().replace(R=two_coins().R * 1e-6)
    text = str(Distance(TRUE * 1e-6, 1e-12, "lax", small).explain("s", "t"))
    assert "0.0000002500" in text
    assert "0.0000007500" in text


class TestRepr:
    def test_one_line(self) -> None:
        why = exact.bisimulation(worlds.load("pessimism")).explain("s", "t")
        text = repr(why)
        assert text.startswith("Explanation(d~(s; t) = 10, proven to ")
        assert text.endswith(", at discount 0.9, 3 steps)")
        assert len(text) < 80
        same = repr(exact.bisimulation(why.mdp).explain("s", "s"))
        assert same.endswith(", 0 steps)")

    def test_ipython_shows_the_whole_text(self) -> None:
        class Printer:
            def __init__(self) -> None:
                self.shown = ""

            def text(self, text: str) -> None:
                self.shown += text

            def break_(self) -> None:
                self.shown += "\n"

        why = exact.bisimulation(worlds.load("pessimism")).explain("s", "t")
        printer = Printer()
        why._repr_pretty_(printer, False)
        assert printer.shown == str(why)
