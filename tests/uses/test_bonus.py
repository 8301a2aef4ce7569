"""The records behind `uses.bonus`: visit counts of states and a memory of observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, InputError, exact, uses, worlds
from bisimetric.uses.exploration.visit_counts import median_distance
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

Rule = Literal["counts", "nearest"]
RULES: list[Rule] = ["counts", "nearest"]
walks = st.lists(st.integers(0, 5), max_size=25)
radii = st.sampled_from([None, 0.0, 0.3, 2.0, 50.0])
quick = settings(deadline=None, max_examples=scaled(60))


def visit_states(
    visits: uses.VisitCounts, states: Sequence[int]
) -> tuple[list[float], uses.VisitCounts]:
    """The bonuses of a walk, and the visits after it."""
    paid = []
    for state in states:
        bonus, visits = visits.visit(state)
        paid.append(bonus)
    return paid, visits


def slow(table: NDArray[Any], radius: float, rule: Rule, states: list[int], s: int) -> float:
    """The bonus of s after a walk, straight from the definition."""
    counts = {t: states.count(t) for t in set(states)}

    def d(t: int) -> float:
        return 0.0 if s == t else float(table[s, t])

    if rule == "counts":
        if radius == 0:
            n = float(sum(count for t, count in counts.items() if d(t) == 0))
        else:
            n = sum(count * max(0.0, 1 - d(t) / radius) for t, count in counts.items())
        return 1 / math.sqrt(1 + n)
    least = 1.0
    for t, count in counts.items():
        far = 0.0 if d(t) == 0 else (d(t) / radius if radius else math.inf)
        least = min(least, 1 / math.sqrt(1 + count) + far)
    return least


def walk_in(mdp: MDP, walk: list[int]) -> list[int]:
    return [state % mdp.num_states for state in walk]


@pytest.mark.parametrize("rule", RULES)
@given(mdp=stochastic_mdps(discounts=[0.0, 0.9]), walk=walks, radius=radii)
@quick
def test_bonuses_are_those_of_the_definition(
    rule: Rule, mdp: MDP, walk: list[int], radius: float | None
) -> None:
    d = exact.bisimulation(mdp)
    start = uses.VisitCounts.from_distance(d, radius=radius, rule=rule)
    states = walk_in(mdp, walk)
    paid, after = visit_states(start, states)
    for number, bonus in enumerate(paid):
        wanted = slow(d.values, start.radius, rule, states[:number], states[number])
        assert bonus == pytest.approx(wanted)
    for s in range(mdp.num_states):
        wanted = slow(d.values, start.radius, rule, states, s)
        assert after.bonus(s) == pytest.approx(wanted)
        assert after.bonuses[s] == after.bonus(s)
    assert after.counts.tolist() == [states.count(s) for s in range(mdp.num_states)]


@pytest.mark.parametrize("rule", RULES)
@given(mdp=deterministic_mdps(), walk=walks, radius=radii)
@quick
def test_a_bonus_falls_with_visits_and_never_rises(
    rule: Rule, mdp: MDP, walk: list[int], radius: float | None
) -> None:
    visits = uses.VisitCounts.from_distance(exact.bisimulation(mdp), radius=radius, rule=rule)
    for state in walk_in(mdp, walk):
        before = visits
        kept = before.bonuses
        bonus, visits = before.visit(state)
        assert 0 < visits.bonus(state) <= bonus <= 1
        # By "nearest" a visit tells nothing where one more often visited is nearer.
        assert rule == "nearest" or visits.bonus(state) < bonus
        assert visits.bonus(state) <= 1 / math.sqrt(1 + visits.counts[state])
        assert (visits.bonuses <= kept).all()
        assert (before.bonuses == kept).all(), "a record changed"


@pytest.mark.parametrize("rule", RULES)
@given(mdp=deterministic_mdps(), walk=walks)
@quick
def test_where_no_state_is_near_the_bonus_is_that_of_counts(
    rule: Rule, mdp: MDP, walk: list[int]
) -> None:
    d = exact.bisimulation(mdp)
    apart = d.values[d.values > 0]
    states = walk_in(mdp, walk)
    for radius in [0.0, *([float(apart.min())] if len(apart) else [])]:
        _, visits = visit_states(
            uses.VisitCounts.from_distance(d, radius=radius, rule=rule), states
        )
        for s in range(mdp.num_states):
            alike = np.flatnonzero(d.values[s] == 0).tolist()
            each = [states.count(t) for t in alike]
            count = sum(each) if rule == "counts" else max(each)
            assert visits.bonus(s) == pytest.approx(1 / math.sqrt(1 + count))


@given(mdp=stochastic_mdps(discounts=[0.9]), walk=walks, radius=radii)
@quick
def test_bisimilar_states_share_their_bonus(mdp: MDP, walk: list[int], radius: float) -> None:
    d = exact.bisimulation(mdp)
    for rule in RULES:
        _, visits = visit_states(
            uses.VisitCounts.from_distance(d, radius=radius, rule=rule), walk_in(mdp, walk)
        )
        alike = np.argwhere(d.values == 0)
        bonus = visits.bonuses
        assert bonus[alike[:, 0]] == pytest.approx(bonus[alike[:, 1]], abs=1e-12)


@given(mdp=deterministic_mdps(discounts=[0.9]), walk=walks, radius=st.floats(0.1, 30))
@quick
def test_near_states_have_near_bonuses(mdp: MDP, walk: list[int], radius: float) -> None:
    d = exact.bisimulation(mdp)
    _, nearest = visit_states(
        uses.VisitCounts.from_distance(d, radius=radius, rule="nearest"), walk_in(mdp, walk)
    )
    gaps = np.abs(nearest.bonuses[:, None] - nearest.bonuses)
    assert (gaps <= (d.values + 3 * d.error) / radius + 1e-9).all()
    _, counts = visit_states(uses.VisitCounts.from_distance(d, radius=radius), walk_in(mdp, walk))
    gaps = np.abs(counts.accumulator[:, None] - counts.accumulator)
    assert (gaps <= len(walk) * (d.values + 3 * d.error) / radius + 1e-9).all()


@pytest.mark.parametrize("rule", RULES)
def test_relabelling_and_the_unit_of_distances_change_nothing(rule: Rule) -> None:
    d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9)).values
    order = np.random.default_rng(0).permutation(len(d))
    walk = np.random.default_rng(1).integers(len(d), size=200).tolist()
    paid, _ = visit_states(uses.VisitCounts.from_distance(d, rule=rule), walk)
    elsewhere = d[np.ix_(order, order)]
    names = np.argsort(order)
    other, _ = visit_states(
        uses.VisitCounts.from_distance(elsewhere, rule=rule), [int(names[s]) for s in walk]
    )
    assert other == pytest.approx(paid)
    larger, _ = visit_states(uses.VisitCounts.from_distance(8 * d, rule=rule), walk)
    assert larger == pytest.approx(paid)


@pytest.mark.parametrize("rule", RULES)
def test_the_same_visits_under_a_better_distance(rule: Rule) -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    walk = np.random.default_rng(0).integers(31, size=300).tolist()
    start = uses.VisitCounts.from_distance(1 - np.eye(31), radius=0.0, rule=rule)
    _, plain = visit_states(start, walk)
    d = exact.lax(mdp)
    _, wanted = visit_states(uses.VisitCounts.from_distance(d, rule=rule), walk)
    assert plain.with_distance(d).bonuses == pytest.approx(wanted.bonuses)
    assert plain.with_distance(d).radius == wanted.radius
    with pytest.raises(InputError, match="d has 3 states and the visits are of 31"):
        plain.with_distance(1 - np.eye(3))


def test_a_state_is_at_home_also_under_mico() -> None:
    mdp = MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], discount=0.5)
    d = exact.mico(mdp, [0, 0])
    assert d.values[0, 0] > 0
    _, visits = visit_states(uses.VisitCounts.from_distance(d, radius=0.5), [0])
    assert visits.bonus(0) == pytest.approx(1 / math.sqrt(2))


def test_the_radius_is_the_median_of_positive_distances() -> None:
    d = exact.bisimulation(worlds.load("duplicated-grid", discount=0.9))
    above = d.values[np.triu_indices(62, 1)]
    assert uses.VisitCounts.from_distance(d).radius == np.median(above[above > d.error])
    assert median_distance(np.zeros((3, 3))) == 0.0
    _, visits = visit_states(uses.VisitCounts.from_distance(np.zeros((3, 3))), [0, 0])
    assert visits.bonuses == pytest.approx(1 / math.sqrt(3)), "all states are alike"
    assert repr(visits) == "VisitCounts(2 visits to 1 of 3 states, counts, radius 0)"


def test_bad_arguments_raise() -> None:
    broken = 1 - np.eye(3)
    broken[0, 1] = np.nan
    with pytest.raises(InputError, match=r"uses\.bonus: .*matrix has nan at \[0, 1\]"):
        uses.VisitCounts.from_distance(broken)
    with pytest.raises(InputError, match=r"uses\.bonus: .*matrix is float64 of shape \(2, 3\)"):
        uses.VisitCounts.from_distance(np.ones((2, 3)))
    for radius in (-1.0, math.nan, math.inf, "wide"):
        with pytest.raises(InputError, match=r"radius is .* and must be a number, at least 0"):
            uses.VisitCounts.from_distance(1 - np.eye(3), radius=radius)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rule is 'far' and must be counts or nearest"):
        uses.VisitCounts.from_distance(1 - np.eye(3), rule="far")  # type: ignore[arg-type]
    visits = uses.VisitCounts.from_distance(1 - np.eye(3))
    with pytest.raises(InputError, match="there is no state 3; the ids of d are 0 to 2"):
        visits.visit(3)
    with pytest.raises(InputError, match="the state is -1 and must be a whole number"):
        visits.bonus(-1)
    with pytest.raises(InputError, match="the state is 'a' and must be a whole number"):
        visits.visit("a")  # type: ignore[arg-type]


class Plane:
    """Euclidean distances of points; `itself` is what it says of a point and the same point."""

    def __init__(self, itself: float = 0.0) -> None:
        self.itself = itself
        self.shapes: set[tuple[int, int]] = set()

    def table(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        self.shapes.add((len(x), len(y)))
        found = np.linalg.norm(x[:, None] - y[None], axis=2)
        return np.where(found == 0, self.itself, found)


def remember_points(
    memory: uses.EpisodicMemory, points: NDArray[Any]
) -> tuple[list[float], uses.EpisodicMemory]:
    paid = []
    for point in points:
        bonus, memory = memory.visit(point)
        paid.append(bonus)
    return paid, memory


@pytest.mark.parametrize("rule", RULES)
def test_an_unlimited_memory_equals_visit_counts(rule: Rule) -> None:
    places = np.random.default_rng(0).random((12, 2))
    walk = np.random.default_rng(1).integers(12, size=100).tolist()
    table = Plane().table(places, places)
    wanted, _ = visit_states(uses.VisitCounts.from_distance(table, radius=0.6, rule=rule), walk)
    for itself in (0.0, 0.4):
        start = uses.EpisodicMemory.from_distance(
            Plane(itself), radius=0.6, rule=rule, merge_radius=0.0
        )
        paid, memory = remember_points(start, places[walk])
        assert paid == pytest.approx(wanted), "a point is at home whatever a network says"
        assert len(memory.counts) == len(set(walk))


@given(seed=st.integers(0, 50), apart=st.floats(0.01, 0.5))
@quick
def test_the_loss_of_a_limited_memory_is_bounded(seed: int, apart: float) -> None:
    random = np.random.default_rng(seed)
    points, asked = random.random((60, 2)), random.random((20, 2))
    _, memory = remember_points(
        uses.EpisodicMemory.from_distance(Plane(), radius=0.7, merge_radius=apart), points
    )
    far = Plane().table(asked, points)
    exactly = np.maximum(0.0, 1 - far / 0.7).sum(axis=1)
    kept = np.array([1 / memory.bonus(point) ** 2 - 1 for point in asked])
    assert (np.abs(kept - exactly) <= len(points) * apart / 0.7 + 1e-9).all()
    assert memory.counts.sum() == len(points)
    assert memory.observations is not None
    between = Plane(math.inf).table(memory.observations, memory.observations)
    assert (between > apart).all(), "greedy: what is kept is farther apart"


def test_a_memory_is_bounded_and_asks_in_few_shapes() -> None:
    plane = Plane()
    memory = uses.EpisodicMemory.from_distance(
        plane, radius=0.1, merge_radius=0.0, max_observations=40
    )
    _, memory = remember_points(memory, np.random.default_rng(0).random((200, 2)))
    assert len(memory.counts) == 40
    assert memory.counts.sum() == 200
    assert plane.shapes == {(1, 16), (1, 32), (1, 64)}
    assert repr(memory).startswith("EpisodicMemory(200 visits, 40 of at most 40 observations")


def test_the_terminal_state_is_one_observation() -> None:
    memory = uses.EpisodicMemory.from_distance(Plane(), radius=1.0)
    first, memory = memory.visit(None)
    second, memory = memory.visit(None)
    here, memory = memory.visit(np.zeros(2))
    assert (first, here) == (1.0, 1.0)
    assert second == pytest.approx(1 / math.sqrt(2))
    assert memory.bonus(None) == pytest.approx(1 / math.sqrt(3))


def test_bad_memories_raise() -> None:
    with pytest.raises(InputError, match="d is ndarray and compares no observations"):
        uses.EpisodicMemory.from_distance(np.eye(3), radius=1.0)
    with pytest.raises(InputError, match="radius is required for a distance of observations"):
        uses.EpisodicMemory.from_distance(Plane())
    with pytest.raises(InputError, match="merge_radius is -1 and must be a number, at least 0"):
        uses.EpisodicMemory.from_distance(Plane(), radius=1.0, merge_radius=-1)
    with pytest.raises(InputError, match="max_observations is 0 and must be a whole number"):
        uses.EpisodicMemory.from_distance(Plane(), radius=1.0, max_observations=0)
    _, memory = uses.EpisodicMemory.from_distance(Plane(math.nan), radius=1.0).visit(np.zeros(2))
    with pytest.raises(InputError, match=r"an observation has shape \(3,\) and those before had"):
        memory.visit(np.zeros(3))
    _, memory = uses.EpisodicMemory.from_distance(Plane(-1.0), radius=1.0).visit(np.zeros(2))
    with pytest.raises(InputError, match="d is -1 between two observations and must be at least 0"):
        memory.visit(np.zeros(2))
