"""How far a query looks: at the pairs that it reaches, each once, and no deeper than it must."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
import psutil
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bisimetric import MDP, ImplicitMDP, InsufficientMemory, exact
from bisimetric.exact import query
from tests.property_testing import scaled
from tests.strategies import stochastic_mdps

quick = settings(deadline=None, max_examples=scaled(100))
Kind = Literal["bisimulation", "on_policy", "lax"]
KINDS: tuple[Kind, ...] = ("bisimulation", "on_policy", "lax")


@quick
@given(stochastic_mdps(), st.booleans(), st.data())
def test_exactly_the_reachable_pairs_are_explored(mdp: MDP, lax: bool, data: st.DataObject) -> None:
    # Where the diameter bound is below tol, no pair needs to be explored.
    assume(np.ptp(mdp.R) == 0 or np.ptp(mdp.R) > 1e-6)
    ids = st.integers(0, mdp.num_states - 1)
    start = data.draw(st.tuples(ids, ids))
    P = mdp.P.toarray() / mdp.P.sum(axis=1)[:, None]
    actions = range(mdp.num_actions)
    todo, seen = [start] if start[0] != start[1] else [], {frozenset(start)}
    while todo:
        s, t = todo.pop()
        for a in actions:
            for b in actions if lax else [a]:
                more = P[s * len(actions) + a] - P[t * len(actions) + b]
                for x in np.flatnonzero(more > 1e-14).tolist():
                    for y in np.flatnonzero(more < -1e-14).tolist():
                        if frozenset((x, y)) not in seen:
                            seen.add(frozenset((x, y)))
                            todo.append((x, y))
    # The discount alone would end the search after thousands of steps; without rewards, at once.
    kind: Kind = "lax" if lax else "bisimulation"
    answer = query(mdp.replace(discount=0.999), [start], kind=kind, tol=1e-4)
    expected = sum(len(pair) == 2 for pair in seen) if np.ptp(mdp.R) > 0 else 0
    assert answer.num_explored == expected


def test_the_other_component_is_never_touched() -> None:
    # Two cycles, of 3 and of 50 states: (0, 1) reaches (1, 2) and (2, 0).
    n = [1, 2, 0, *range(4, 53), 3]
    R = np.arange(53.0)
    mdp = MDP.deterministic(np.array(n)[:, None], R[:, None], discount=0.9)
    for kind in KINDS:
        answer = query(
            mdp, [(0, 1)], kind=kind, policy=np.zeros(53, int) if kind == "on_policy" else None
        )
        assert (answer.num_explored, answer.metadata["complete"]) == (3, True)


def test_common_mass_stays_in_place() -> None:
    """Both states may go on to 2, 3 or 4; only what they do not share is coupled."""
    P = np.zeros((7, 1, 7))
    P[0, 0, [2, 3, 4]] = [1 / 3, 1 / 3, 1 / 3]
    P[1, 0, [3, 4, 5]] = [1 / 3, 1 / 3, 1 / 3]
    P[2:, 0] = np.eye(7)[6]
    R = np.array([[0], [0], [1], [2], [4], [8], [0]])
    answer = query(MDP(P, R, discount=0.5), [(0, 1)])
    assert answer.num_explored == 2  # the pair itself, and (2, 5)
    assert answer(0, 1) == pytest.approx(0.5 * 7 / 3, abs=answer.error)


def test_step_is_called_once_per_reachable_state() -> None:
    calls: Counter[tuple[int, str]] = Counter()

    def step(x: int, action: str) -> tuple[float, int]:
        calls[x, action] += 1
        if x < 0 or x > 12:
            raise AssertionError(f"{x} is outside the reach")
        return float(x == 7), min(12, x + 1) if action == "up" else max(0, x - 1)

    walk = ImplicitMDP(step, actions=("up", "down"), discount=0.9)
    answer = query(walk, [(3, 5), (5, 3), (4, 4)], kind="lax")
    assert set(calls.values()) == {1}
    assert answer.metadata["complete"]
    assert answer(4, 4) == 0
    assert answer(3, 5) == answer(5, 3) > 0

    calls.clear()
    up = query(walk, [(9, 11)], kind="on_policy", policy=lambda x: "up")
    assert set(calls) == {(x, "up") for x in range(9, 13)}
    assert up.num_explored == 3


def test_the_depth_is_bounded() -> None:
    asked: set[int] = set()

    def step(x: int, _: str) -> tuple[float, int]:
        asked.add(x)
        return float(x % 2), x + 2

    ahead = ImplicitMDP(step, actions=["on"], discount=0.5, reward_range=(0, 1))
    answer = query(ahead, [(0, 1)], tol=0.01)
    # 2^-k <= 0.01 / 4 from k = 9 on, and every step adds one pair.
    assert (answer.num_explored, answer.metadata["depth"], answer.metadata["complete"]) == (
        9,
        9,
        False,
    )
    assert asked == set(range(18))
    assert abs(answer(0, 1) - 2) <= answer.error <= 0.01
    assert query(ahead, [(0, 1)], tol=100).num_explored == 0


def test_a_random_walk_on_all_integers_equals_a_truncated_one() -> None:
    def reward(x: int) -> float:
        return float(x % 4 == 0)

    def step(x: int, a: int) -> tuple[float, dict[int, float]]:
        return reward(x), {x + a: 2 / 3, x - 1: 1 / 3}

    walk = ImplicitMDP(step, actions=(1, 2), discount=0.7, reward_range=(0, 1))
    pairs = [(0, 1), (0, 2), (-3, 3)]
    ways: list[tuple[Kind, Any]] = [("bisimulation", exact.bisimulation), ("lax", exact.lax)]
    for kind, table in ways:
        answer = query(walk, pairs, kind=kind, tol=0.05)
        # Walls so far away that no walk reaches them within the depth.
        far = 2 * answer.metadata["depth"] + 10
        P = np.zeros((2 * far + 1, 2, 2 * far + 1))
        R = np.zeros((2 * far + 1, 2))
        for x in range(-far, far + 1):
            for i, a in enumerate((1, 2)):
                P[x + far, i, min(x + a, far) + far] += 2 / 3
                P[x + far, i, max(x - 1, -far) + far] += 1 / 3
                R[x + far] = reward(x)
        mdp = MDP(P, R, discount=0.7)
        finite = [(s + far, t + far) for s, t in pairs]
        assert query(mdp, finite, kind=kind, tol=0.05).num_explored == answer.num_explored
        d = table(mdp)
        for (s, t), value in zip(finite, answer.values, strict=True):
            assert abs(d(s, t) - value) <= d.error + answer.error


def test_an_infinite_walk_has_its_closed_form() -> None:
    """Rewards x % 2 and equal steps: the gap is 1 in every step."""
    walk = ImplicitMDP(
        lambda x, a: (x % 2, {x + 2: 0.25, x - 2: 0.75}),
        actions=["on"],
        discount=0.8,
        reward_range=(0, 1),
    )
    answer = query(walk, [(0, 1)], tol=1e-3)
    assert answer(0, 1) == pytest.approx(5, abs=answer.error)
    same = query(walk, [(0, 2)], tol=1e-3)
    assert same(0, 2) <= same.error <= 1e-3


def test_many_states_and_few_reachable_pairs() -> None:
    """200,000 states in rings of 40, each in a random order: a table would take 298 GiB."""
    random = np.random.default_rng(0)
    states = 200_000
    block = np.arange(states) // 40 * 40
    n = block[:, None] + random.integers(40, size=(states, 3))
    mdp = MDP.deterministic(n, random.random((states, 3)), discount=0.95)
    answer = query(mdp, [(5, 123_456), (199_999, 80_000), (7, 8)])
    assert answer.num_explored <= 2 * 40 * 40 + 40 * 39 // 2
    some = np.concatenate([np.arange(40), block[123_456] + np.arange(40)])
    near = MDP.deterministic(
        np.searchsorted(some, n[some]), np.ascontiguousarray(mdp.R[some]), discount=0.95
    )
    d = exact.bisimulation(near)
    inside = int(np.searchsorted(some, 123_456))
    assert abs(answer(5, 123_456) - d(5, inside)) <= answer.error + d.error
    assert abs(answer(7, 8) - d(7, 8)) <= answer.error + d.error


def test_the_search_grows_beyond_its_initial_capacity() -> None:
    """Random successors: nearly all pairs are reachable, and the capacity grows."""
    random = np.random.default_rng(1)
    n, R = random.integers(300, size=(300, 2)), random.random((300, 2))
    mdp = MDP.deterministic(n, R, discount=0.9)
    answer, d = query(mdp, [(0, 1)]), exact.bisimulation(mdp)
    assert answer.num_explored > 8 * 1024
    assert abs(answer(0, 1) - d(0, 1)) <= answer.error + d.error
    laxer, e = query(mdp, [(0, 1)], kind="lax"), exact.lax(mdp)
    assert abs(laxer(0, 1) - e(0, 1)) <= laxer.error + e.error


def test_almost_equal_probabilities_count_as_equal() -> None:
    """0.1 + 0.2 is not 0.3, and no reason to look into the pair (2, 3)."""
    P = np.zeros((6, 1, 6))
    P[0, 0, [2, 3]] = [0.1 + 0.2, 0.7]
    P[1, 0, [2, 3]] = [0.3, 0.8 - 0.1]
    assert P[0, 0, 2] > P[1, 0, 2]
    assert P[0, 0, 3] < P[1, 0, 3]
    P[2:, 0] = np.eye(6)[5]
    R = np.array([[0], [1], [3], [5], [9], [9]])
    answer = query(MDP(P, R, discount=0.9), [(0, 1)])
    assert answer.num_explored == 1
    assert 0 < abs(answer.error) < 1e-9
    assert answer(0, 1) == pytest.approx(1, abs=answer.error)


# Searches without an end.


def endless(reward_range: tuple[float, float] | None, discount: float = 0.9) -> ImplicitMDP:
    return ImplicitMDP(
        lambda x, a: (float(x % 3 == 0), 2 * x + a),
        actions=(0, 1),
        discount=discount,
        reward_range=reward_range,
    )


def test_an_infinite_search_raises() -> None:
    with pytest.raises(InsufficientMemory, match=r"more than max_pairs=500, .*reward_range"):
        query(endless(None), [(1, 2)], max_pairs=500)
    with pytest.raises(InsufficientMemory, match="more than max_pairs=1, after 0 steps"):
        query(endless(None), [(1, 2), (3, 4)], max_pairs=1)


def test_the_error_names_a_sufficient_tol() -> None:
    with pytest.raises(
        InsufficientMemory, match=r"max_pairs=500, after \d steps; pass tol=\d"
    ) as caught:
        query(endless((0, 1)), [(1, 2)], max_pairs=500)
    tol = float(str(caught.value).partition("tol=")[2].partition(" ")[0])
    assert query(endless((0, 1)), [(1, 2)], max_pairs=500, tol=tol).error <= tol


def test_a_search_stops_before_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    n = np.random.default_rng(0).integers(2000, size=(2000, 2))
    mdp = MDP.deterministic(n, n % 3, discount=0.99)
    free = psutil.virtual_memory()._replace(available=2**26)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    with pytest.raises(InsufficientMemory, match=r"more than the free memory holds, .*; pass tol="):
        query(mdp, [(1, 2)])
