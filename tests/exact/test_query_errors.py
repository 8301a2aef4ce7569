"""What a query proves, against exact rational distances: tiny masses, huge rewards, policies."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bisimetric import MDP, ImplicitMDP, InputError, NotConverged
from bisimetric.exact import QueryResult, query
from bisimetric.exact.queries import pair_search, row_source
from tests.property_testing import scaled

TINY, UNIT = 2.0**-1074, 2.0**-53
Kind = Literal["bisimulation", "on_policy", "lax"]


@dataclasses.dataclass(frozen=True)
class Fan:
    """Two states whose actions lead at once to absorbing states, which lie on a line.

    Attributes:
        ends: the reward of each absorbing state, in every step.
        rewards: (2, A), of the two states.
        rows: (2, A, ends), their masses, which sum to 1 only nearly.
        policy: (2, A), likewise.
    """

    ends: list[float]
    rewards: list[list[float]]
    rows: list[list[list[float]]]
    policy: list[list[float]]
    discount: float

    @property
    def num_actions(self) -> int:
        return len(self.rewards[0])

    def chain(self) -> list[tuple[Fraction, list[Fraction]]]:
        """R^pi and P^pi of the two states."""
        outcomes = []
        for rewards, rows, policy in zip(self.rewards, self.rows, self.policy, strict=True):
            weights, shares = normalise(policy), [normalise(row) for row in rows]
            reward = sum((w * Fraction(r) for w, r in zip(weights, rewards, strict=True)), ZERO)
            columns = zip(*shares, strict=True)
            mixed = [sum((w * p for w, p in zip(weights, c, strict=True)), ZERO) for c in columns]
            outcomes.append((reward, mixed))
        return outcomes

    def distance(self, kind: Kind) -> Fraction:
        """The exact distance of the two states; W1 on a line is the area between two CDFs."""
        gamma = Fraction(self.discount)
        order = sorted(range(len(self.ends)), key=self.ends.__getitem__)

        def worth(
            first: tuple[Fraction, list[Fraction]], second: tuple[Fraction, list[Fraction]]
        ) -> Fraction:
            (r, p), (u, q) = first, second
            area, above = ZERO, ZERO
            for i, j in itertools.pairwise(order):
                above += p[i] - q[i]
                area += abs(above) * (Fraction(self.ends[j]) - Fraction(self.ends[i]))
            return abs(r - u) + gamma * area / (1 - gamma)

        if kind == "on_policy":
            return worth(*self.chain())
        s, t = (
            [(Fraction(r), normalise(row)) for r, row in zip(rewards, rows, strict=True)]
            for rewards, rows in zip(self.rewards, self.rows, strict=True)
        )
        if kind == "bisimulation":
            return max(worth(one, two) for one, two in zip(s, t, strict=True))
        there = max(min(worth(one, two) for two in t) for one in s)
        return max(there, max(min(worth(one, two) for one in s) for two in t))

    def successors(self, *, bounded: bool) -> ImplicitMDP:
        def step(state: str, action: int) -> tuple[float, Any]:
            if state not in "st":
                return self.ends[int(state)], state
            which = "st".index(state)
            row = self.rows[which][action]
            return self.rewards[which][action], {str(i): p for i, p in enumerate(row)}

        every = [*self.ends, *self.rewards[0], *self.rewards[1]]
        return ImplicitMDP(
            step,
            actions=range(self.num_actions),
            discount=self.discount,
            reward_range=(min(every), max(every)) if bounded else None,
        )

    def choose(self, state: str) -> Any:
        return 0 if state not in "st" else dict(enumerate(self.policy["st".index(state)]))

    def mdp(self) -> MDP:
        """The same as an MDP, whose states 0 and 1 are the two."""
        count = len(self.ends)
        P = np.zeros((2 + count, self.num_actions, 2 + count))
        P[:2, :, 2:] = self.rows
        P[2:, :, 2:] = np.eye(count)[:, None]
        ends = np.repeat(np.array(self.ends)[:, None], self.num_actions, axis=1)
        return MDP(P, np.vstack([self.rewards, ends]), discount=self.discount)


ZERO = Fraction(0)


def normalise(masses: list[float]) -> list[Fraction]:
    exact = [Fraction(mass) for mass in masses]
    return [mass / sum(exact) for mass in exact]


MASSES = st.sampled_from([0.0, TINY, 1e-300, 3e-17, 1e-16, 2.0**-50, 3.9e-15, 0.1, 0.2, 0.3, 1.0])
REWARDS = st.sampled_from([0.0, -0.0, 1.0, 1 / 3, 0.1, -1e15, 9e15, 1e17, 1e200, 1e-320])
OFF = st.sampled_from([1.0, 1 - 9e-9, 1 + 9e-9, 1 - 2**-52])


@st.composite
def distributions(draw: st.DrawFn, size: int) -> list[float]:
    """Masses, tiny ones among them, whose sum may be off by as much as is allowed."""
    masses = draw(st.lists(MASSES, min_size=size, max_size=size).filter(lambda m: sum(m) > 0.05))
    total, off = math.fsum(masses), draw(OFF)
    return [mass / total * off for mass in masses]


@st.composite
def fans(draw: st.DrawFn) -> Fan:
    count, actions = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    rewards = draw(
        st.lists(st.lists(REWARDS, min_size=actions, max_size=actions), min_size=2, max_size=2)
    )
    return Fan(
        draw(st.lists(REWARDS, min_size=count, max_size=count)),
        rewards,
        [[draw(distributions(count)) for _ in range(actions)] for _ in range(2)],
        [draw(distributions(actions)) for _ in range(2)],
        draw(st.sampled_from([0.0, 0.5, 0.9, 0.9999])),
    )


def run_query(kind: Kind, source: MDP | ImplicitMDP, pair: Any, policy: Any = None) -> QueryResult:
    """The answer with the error that it has, whatever was asked for."""
    try:
        return query(source, [pair], kind=kind, policy=policy)
    except NotConverged as caught:
        partial: Any = caught.partial
        assert isinstance(partial, QueryResult)
        return partial


def is_proven(answer: QueryResult, reference: Fraction) -> bool:
    off = abs(Fraction(float(answer.values[0])) - reference)
    return math.isinf(answer.error) or off <= Fraction(answer.error)


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(300))
@given(fans(), st.sampled_from(["bisimulation", "on_policy", "lax"]), st.booleans())
def test_the_error_of_a_function_holds(fan: Fan, kind: Kind, bounded: bool) -> None:
    source = fan.successors(bounded=bounded)
    answer = run_query(kind, source, ("s", "t"), fan.choose if kind == "on_policy" else None)
    assert is_proven(answer, fan.distance(kind))
    assert math.isfinite(answer.error)


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(200))
@given(fans(), st.sampled_from(["bisimulation", "lax"]))
def test_the_error_of_an_mdp_holds(fan: Fan, kind: Kind) -> None:
    assert is_proven(run_query(kind, fan.mdp(), (0, 1)), fan.distance(kind))


@settings(deadline=None, max_examples=scaled(100))
@given(fans())
def test_an_average_is_rounded_once(fan: Fan) -> None:
    chain = fan.successors(bounded=True).apply_policy(fan.choose)
    for state, (reward, masses) in zip("st", fan.chain(), strict=True):
        average, successors = chain.outcome(state, "policy")
        assert average == float(reward)
        wanted = {str(i): float(mass) for i, mass in enumerate(masses) if float(mass) > 0}
        assert successors == wanted


# One case for each term: without the term, the error is too small.


def fan_of(ends: list[float], s: list[float], t: list[float], discount: float) -> Fan:
    return Fan(ends, [[0.0], [0.0]], [[s], [t]], [[1.0], [1.0]], discount)


def test_the_smallest_mass_may_lead_to_a_huge_reward() -> None:
    fan = fan_of([0.0, 1e300], [1.0, TINY], [1.0, 0.0], 0.5)
    answer = run_query("bisimulation", fan.successors(bounded=False), ("s", "t"))
    assert answer.num_explored == 2
    assert is_proven(answer, fan.distance("bisimulation"))
    heavy = fan_of([0.0, 1e30], [1.0 - 4e-15, 4e-15], [1.0, 0.0], 0.5)
    answer = run_query("bisimulation", heavy.successors(bounded=False), ("s", "t"))
    assert answer(*"st") == pytest.approx(4e15)
    assert is_proven(answer, heavy.distance("bisimulation"))


def test_probabilities_that_round_to_one_number_are_separated() -> None:
    """0.1 / (0.1 + 0.9) and 0.1 / (0.1 + 0.2 + 0.7) are one float, and different numbers."""
    fan = fan_of([1e300, 0.0, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0], [0.1, 0.0, 0.2, 0.7], 0.5)
    shares = [normalise(row[0])[0] for row in fan.rows]
    assert shares[0] != shares[1]
    assert float(shares[0]) == float(shares[1])
    answer = run_query("bisimulation", fan.successors(bounded=False), ("s", "t"))
    assert answer.error > 0
    assert is_proven(answer, fan.distance("bisimulation"))


def test_equal_rows_cancel_though_their_sums_are_rounded() -> None:
    scaled = [0.1 * (1 - 9e-9), 0.2, 0.7]
    fan = fan_of([0.0, 1.0, 2.0], scaled, scaled, 0.5)
    assert run_query("bisimulation", fan.successors(bounded=False), ("s", "t")).num_explored == 1


def test_mass_left_aside_is_in_the_error() -> None:
    dust = pair_search.NEGLIGIBLE_MASS
    fan = fan_of([0.0, 1e15], [0.5 + dust, 0.5 - dust], [0.5, 0.5], 0.05)
    answer = run_query("bisimulation", fan.mdp(), (0, 1))
    assert answer.num_explored == 1
    assert is_proven(answer, fan.distance("bisimulation"))
    # Without the differences themselves, what rounding is allowed would not do.
    rounding = 4 * 2 * UNIT * 1e15 / 0.95 * 0.05 / 0.95
    off = abs(Fraction(float(answer.values[0])) - fan.distance("bisimulation"))
    assert off > 1.05 * rounding


@pytest.mark.slow
def test_rounded_probabilities_are_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summed from the left, many masses lose a little each time, and shares come out too large."""

    def shares(mdp: MDP) -> sparse.csr_array:
        totals = [functools.reduce(float.__add__, row[row > 0].tolist()) for row in mdp.P.toarray()]
        scaled = mdp.P.data / np.repeat(totals, np.diff(mdp.P.indptr))
        return sparse.csr_array((scaled, mdp.P.indices, mdp.P.indptr), mdp.P.shape)

    monkeypatch.setattr(MDP, "normalised_probabilities", property(shares))
    n = 300
    small = (math.floor(0.5 / n / UNIT) + 0.49) * UNIT
    row = [0.5, *[small] * n, 0.0]
    total = functools.reduce(float.__add__, row)
    lost = 0.5 / total - float(Fraction(0.5) / sum(map(Fraction, row)))
    assert lost > 50 * UNIT
    # Shares of the first end look equal, while the second state goes there more often.
    fan = fan_of([1e17, *[0.0] * (n + 1)], row, [0.5 / total, *[0.0] * n, 1 - 0.5 / total], 0.5)
    answer = run_query("bisimulation", fan.mdp(), (0, 1))
    reference = fan.distance("bisimulation")
    without = 8 * UNIT * 1e17 / 0.5
    assert abs(Fraction(float(answer.values[0])) - reference) > without
    assert is_proven(answer, reference)


def test_rounded_rewards_are_in_the_error() -> None:
    """0.1 * 9e15 - 0.9 * 1e15 is 0.028 and not 0, for 0.1 and 0.9 are floats."""
    rows = [[[1.0, 0.0]] * 2] * 2
    fan = Fan([0.0, 0.0], [[9e15, -1e15], [0.0, 0.0]], rows, [[0.1, 0.9]] * 2, 0.9)
    answer = run_query("on_policy", fan.successors(bounded=True), ("s", "t"), fan.choose)
    assert answer("s", "t") == pytest.approx(0.027756, abs=1e-6)
    assert answer.error <= 1e-6
    near = dataclasses.replace(fan, rewards=[[9e15, 1.0], [9e15, 1.05]], discount=0.0)
    answer = run_query("on_policy", near.successors(bounded=False), ("s", "t"), near.choose)
    assert abs(Fraction(answer("s", "t")) - near.distance("on_policy")) > Fraction(1, 100)
    assert is_proven(answer, near.distance("on_policy"))


def test_a_policy_that_almost_sums_to_1_is_divided_by_its_sum() -> None:
    rows = [[[0.5 - 9e-9, 0.5], [0.0, 1.0]]] * 2
    fan = Fan([0.0, 1.0], [[0.0, 0.0]] * 2, rows, [[0.5, 0.5], [0.5, 0.5 - 9e-9]], 0.9)
    answer = run_query("on_policy", fan.successors(bounded=False), ("s", "t"), fan.choose)
    assert answer.error < 1e-12
    assert is_proven(answer, fan.distance("on_policy"))
    assert fan.distance("on_policy") > Fraction(1, 10**9)


@pytest.mark.parametrize(("reward_error", "mass_error"), [(0.25, 0.0), (0.0, 0.125)])
def test_the_rounding_of_a_chain_is_in_the_error(
    reward_error: float, mass_error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two absorbing states, moved together by as much as is allowed."""
    stay, low = 1.0 - mass_error, reward_error
    mdp = MDP([[[stay, mass_error]], [[mass_error, stay]]], [[low], [1.0 - low]], discount=0.5)
    errors = {"reward_error": reward_error, "mass_error": mass_error}
    monkeypatch.setattr(row_source.MDPRowSource.__init__, "__kwdefaults__", errors)
    answer = run_query("bisimulation", mdp, (0, 1))
    off = 2.0 - answer(0, 1)  # 1 + 0.5 d = d
    assert answer.error / 2 < off <= answer.error


def test_the_distance_of_states_with_different_actions_is_rounded() -> None:
    source = ImplicitMDP(
        lambda x, a: (0.0, x),
        actions=lambda x: ["stay", "go"][: x + 1],
        discount=0.9,
        reward_range=(0, 1),
    )
    answer = run_query("bisimulation", source, (0, 1))
    off = abs(Fraction(answer(0, 1)) - 1 / (1 - Fraction(0.9)))
    assert 0 < off <= Fraction(answer.error)


def test_pairs_beyond_the_search_are_in_the_error() -> None:
    source = ImplicitMDP(
        lambda x, a: (float(x > 0), x + (x > 0) - (x < 0)),
        actions=["on"],
        discount=0.5,
        reward_range=(0, 1),
    )
    answer = query(source, [(1, -1)], tol=0.01)
    assert not answer.metadata["complete"]
    assert answer.error / 2 < abs(answer(1, -1) - 2.0) <= answer.error


def test_a_search_truncated_by_the_discount_has_a_valid_error() -> None:
    """Below the normal numbers a power of the discount has few digits."""
    gamma = 1.0001e-161
    walk = ImplicitMDP(
        lambda x, a: (float(abs(x) == 2) * 1e300 * (x > 0), x + (x > 0) - (x < 0)),
        actions=["on"],
        discount=gamma,
        reward_range=(0, 1e300),
    )
    answer = run_query("bisimulation", walk, (1, -1))
    assert (answer.num_explored, answer.metadata["complete"]) == (2, False)
    assert abs(Fraction(answer(1, -1)) - Fraction(gamma) * Fraction(1e300)) <= answer.error


def test_a_tolerance_far_below_the_distances() -> None:
    """tol / D is too small for a float; the search ends all the same."""
    walk = ImplicitMDP(
        lambda x, a: (1e300 * (x == 1), min(x + 1, 2)),
        actions=["on"],
        discount=0.5,
        reward_range=(0, 1e300),
    )
    answer = query(walk, [(2, 3)], tol=1e-300)
    assert (answer.num_explored, answer.metadata["complete"]) == (1, True)


def test_rewards_that_no_distance_can_hold() -> None:
    for reward_range in (None, (-1.7e308, 1.7e308)):
        source = ImplicitMDP(
            lambda x, a: (1.7e308 * x, x), actions=["on"], discount=0.5, reward_range=reward_range
        )
        with pytest.raises(InputError, match="float64 cannot hold; scale the rewards down"):
            query(source, [(1, -1)])
    mdp = MDP.deterministic([[0], [1]], [[1.7e308], [-1.7e308]], discount=0.5)
    with pytest.raises(InputError, match="float64 cannot hold; scale the rewards down"):
        query(mdp, [(0, 1)])
