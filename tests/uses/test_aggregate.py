"""Aggregated MDPs: the bounds hold, on thousands of MDPs and on hand-made ones."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bisimetric import MDP, Coverage, Distance, exact, planning, relation, uses, worlds
from bisimetric.errors import InputError
from bisimetric.uses.aggregation.aggregate_mdp import compute_action_distances
from bisimetric.uses.aggregation.clustering import ClusteringRule
from bisimetric.uses.trivial_bounds import format_bound
from tests import oracles
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

DISCOUNTS = [0.0, 0.3, 0.9, 0.99]
MDPS = st.one_of(
    deterministic_mdps(discounts=DISCOUNTS),
    stochastic_mdps(discounts=DISCOUNTS),
    stochastic_mdps(discounts=DISCOUNTS, available=True),
)
RULES: tuple[ClusteringRule, ...] = ("incremental", "complete", "medoids")


def first_actions(mdp: MDP) -> Any:
    return mdp.action_mask.argmax(axis=1)


def build_stochastic_policy(mdp: MDP) -> Any:
    weights = mdp.action_mask * (1.0 + np.arange(mdp.num_actions))
    return weights / weights.sum(axis=1, keepdims=True)


KINDS: dict[str, Callable[[MDP], Distance]] = {
    "d~": exact.bisimulation,
    "d~, float32": lambda mdp: exact.bisimulation(mdp, dtype="float32"),
    "d_lax": exact.lax,
    "d^pi, the best": lambda mdp: exact.on_policy(mdp, planning.greedy_policy(mdp)),
    "d^pi": lambda mdp: exact.on_policy(mdp, first_actions(mdp)),
    "d^pi, mixed": lambda mdp: exact.on_policy(mdp, build_stochastic_policy(mdp)),
    "MICo": lambda mdp: exact.mico(mdp, first_actions(mdp)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=scaled(50))
@given(mdp=MDPS, share=st.floats(0, 1))
def test_bounds_hold(kind: str, mdp: MDP, share: float) -> None:
    # Of every MDP six aggregations: 2,100 in all.
    d = KINDS[kind](mdp)
    if d.policy is None:
        V = planning.optimal_values(mdp, tol=math.inf)
    else:
        V = planning.policy_values(mdp, d.policy, tol=math.inf)
    sizes: list[dict[str, Any]] = [
        {"clusters": 1 + round(share * (mdp.num_states - 1))},
        {"radius": share * float(d.values.max())},
    ]
    for rule, size in itertools.product(RULES, sizes):
        found = uses.aggregate(mdp, d, rule=rule, **size, require_proof=True)
        kept = planning.policy_values(mdp, found.policy, tol=math.inf)
        assert (V.values - kept.values).max() <= found.regret_bound + V.error + kept.error
        off = np.abs(V.values - found.values.values[found.labels]).max()
        assert off <= found.value_bound + V.error
        # Never worse than the bounds that hold for all states alike.
        near, left = found.radius + d.error, 1 - mdp.discount
        rounding = 1e-9 * (1 + mdp.diameter_bound)
        assert found.value_bound <= near / left + rounding
        assert found.regret_bound <= found.diameter_bound
        if kind != "d^pi, mixed":
            assert found.regret_bound <= 2 * near / left**2 + rounding / left
        assert found.regret == max((V.values - kept.values).max(), 0)
        assert found.value_gap == off


@settings(deadline=None, max_examples=scaled(40))
@given(mdp=MDPS, clusters=st.integers(1, 6))
def test_without_measurement_the_bound_is_no_smaller(mdp: MDP, clusters: int) -> None:
    d, clusters = exact.lax(mdp), min(clusters, mdp.num_states)
    found = uses.aggregate(mdp, d, clusters=clusters)
    unsolved = uses.aggregate(mdp, d, clusters=clusters, measure=False)
    assert found.regret_bound * (1 - 1e-12) <= unsolved.regret_bound <= found.diameter_bound
    assert unsolved.value_bound == found.value_bound
    assert math.isnan(unsolved.regret)
    assert math.isnan(unsolved.value_gap)
    np.testing.assert_array_equal(unsolved.policy, found.policy)


ALIKE = [(exact.bisimulation, relation.bisimulation), (exact.lax, relation.lax)]


@pytest.mark.parametrize(("compute", "relate"), ALIKE)
@settings(deadline=None, max_examples=scaled(60))
@given(mdp=MDPS)
def test_bisimilar_states_are_aggregated_without_regret(
    compute: Callable[[MDP], Distance], relate: Callable[[MDP], Any], mdp: MDP
) -> None:
    d = compute(mdp)
    found = uses.aggregate(mdp, d, radius=d.error)
    alike = relate(mdp)
    first = relation.representatives(alike)
    np.testing.assert_array_equal(found.labels, found.labels[first][alike])
    V = planning.optimal_values(mdp, tol=math.inf)
    assert found.regret_bound <= 4 * d.error / (1 - mdp.discount) ** 2 + 1e-6
    assert found.regret <= found.regret_bound + 2 * V.error
    assert found.value_gap <= found.value_bound + V.error


@pytest.mark.parametrize("rule", RULES)
def test_the_quotient_of_an_mdp_with_duplicated_states(rule: ClusteringRule) -> None:
    mdp = worlds.load("duplicated-grid", discount=0.9)
    d = exact.bisimulation(mdp)
    found = uses.aggregate(mdp, d, radius=d.error, rule=rule)
    np.testing.assert_array_equal(found.labels, relation.bisimulation(mdp))
    assert len(found) == 31
    assert found.regret < 1e-9
    assert found.regret_bound < 1e-6
    assert found.note is None


class TestByHand:
    """Two states pay once and end in z: s 1 or 0.9, and t 0.7 or 1. The discount is 1/2."""

    mdp = MDP.deterministic(
        [[2, 2], [2, 2], [2, 2]], [[1, 0.9], [0.7, 1], [0.0, 0]], discount=0.5, names="stz"
    )

    def test_bisimulation(self) -> None:
        # d~(s, t) = 0.3. s stands for both, and action 0 is taken: t loses 0.3. r + delta = 0.6,
        # and action 0 is the best of s by 0.1: the bound is 0.5, since z has no regret.
        found = uses.aggregate(self.mdp, exact.bisimulation(self.mdp), clusters=2)
        assert found.labels.tolist() == [0, 0, 1]
        assert found.representatives.tolist() == [0, 2]
        assert found.policy.tolist() == [0, 0, 0]
        assert found.mdp.policy is not None
        assert (found.mdp.names, found.mdp.policy.tolist()) == (("s", "z"), [0, 0])
        assert found.mdp.R.tolist() == [[1, 0.9], [0, 0]]
        assert found.mdp.next_state.tolist() == [[1, 1], [1, 1]]
        assert found.values.values.tolist() == [1, 0]
        assert found.diameters.tolist() == pytest.approx([0.3, 0])
        numbers = (
            found.radius,
            found.regret,
            found.regret_bound,
            found.value_gap,
            found.value_bound,
        )
        assert numbers == pytest.approx((0.3, 0.3, 0.5, 0, 0.3), abs=1e-5)
        rough = uses.aggregate(self.mdp, exact.bisimulation(self.mdp), clusters=2, measure=False)
        assert rough.regret_bound == pytest.approx(1.0, abs=1e-5)

    def test_lax(self) -> None:
        # d_lax(s, t) = 0.2: 0.7 has no better match than 0.9. t answers action 0 of s by its own 1.
        found = uses.aggregate(self.mdp, exact.lax(self.mdp), clusters=2)
        assert found.policy.tolist() == [0, 1, 0]
        numbers = (found.radius, found.regret, found.regret_bound, found.value_bound)
        assert numbers == pytest.approx((0.2, 0, 0.2, 0.2), abs=1e-5)

    def test_on_policy(self) -> None:
        # Under the best policy s and t both pay 1: d^pi is 0, and t takes the action that pays 1.
        d = exact.on_policy(self.mdp, [0, 1, 0])
        found = uses.aggregate(self.mdp, d, radius=d.error)
        assert found.labels.tolist() == [0, 0, 1]
        assert found.policy.tolist() == [0, 1, 0]
        assert (found.regret, found.regret_bound) == pytest.approx((0, 0), abs=1e-5)

    def test_a_bound_that_is_attained(self) -> None:
        # Each state has one action that pays 1 for ever, and not the same one.
        mdp = MDP.deterministic([[0, 0], [1, 1]], [[1, 0], [0, 1]], discount=0.75)
        found = uses.aggregate(mdp, exact.bisimulation(mdp), clusters=1)
        assert found.regret_bound == found.diameter_bound == 4
        assert found.regret == pytest.approx(4)
        assert found.is_vacuous
        assert "proven at most 4 (vacuous: at least the trivial bound, 4)" in str(found)
        assert uses.aggregate(mdp, exact.lax(mdp), clusters=1).regret == 0


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(40))
@given(stochastic_mdps(available=True))
def test_likeness_is_that_of_a_linear_programme(mdp: MDP) -> None:
    rewards, table = mdp.R[:, 0], exact.lax(mdp).values
    rows = sparse.csr_array(
        mdp.normalised_probabilities[np.arange(mdp.num_states) * mdp.num_actions]
    )
    found = compute_action_distances(mdp, table, rewards, rows, mdp.action_mask)
    dense = mdp.normalised_probabilities.toarray().reshape(*mdp.R.shape, -1)
    for s, b in np.ndindex(mdp.R.shape):
        if not mdp.action_mask[s, b]:
            assert found[s, b] == np.inf
            continue
        p, q = dense[s, 0] > 0, dense[s, b] > 0
        cost = oracles.transport(table[np.ix_(p, q)], dense[s, 0][p], dense[s, b][q])
        wanted = abs(rewards[s] - mdp.R[s, b]) + mdp.discount * cost
        assert found[s, b] == pytest.approx(wanted, abs=1e-8 * (1 + table.max()))


@pytest.fixture(scope="module")
def curve() -> uses.AggregationCurve:
    """The paper's 31 states, discount 0.99, in 1 to 31 classes."""
    mdp = worlds.load("mirrored-rooms", discount=0.99)
    distances = {
        "d~": exact.bisimulation(mdp),
        "d_lax": exact.lax(mdp),
        "d^pi": exact.on_policy(mdp, planning.greedy_policy(mdp)),
        "map": uses.manhattan_distances(mdp),
    }
    return uses.aggregation_curve(mdp, distances, rule="complete")


class TestTheRooms:
    def test_lax_needs_fewer_classes(self, curve: uses.AggregationCurve) -> None:
        assert curve.min_classes("d_lax") <= curve.min_classes("d~") == 30
        assert curve.min_classes("d_lax", 2.0) < curve.min_classes("d~", 2.0) / 2
        assert curve.min_classes("d^pi") < curve.min_classes("d_lax", 2.0)
        assert curve.min_classes("map", 2.0) == curve.min_classes("d~", 2.0)

    def test_a_finer_aggregation_may_lose_more(self, curve: uses.AggregationCurve) -> None:
        few = curve.min_classes("d_lax", 2.0)
        for_good = curve.min_classes("d_lax", 2.0, persistent=True)
        lost = {len(each): each.regret for each in curve.aggregations["d_lax"]}
        assert lost[few] <= 2 < min(loss for count, loss in lost.items() if count < few)
        assert few < for_good
        assert lost[for_good - 1] > 2 >= max(lost[k] for k in range(for_good, 32))

    def test_lines(self, curve: uses.AggregationCurve) -> None:
        lines = str(curve).splitlines()
        assert lines[0].endswith(
            "(persistent), regret              0      at most 2     at most 20"
        )
        assert [each.split()[0] for each in lines[1:-1]] == ["d~", "d_lax", "d^pi", "map"]
        assert lines[1].split()[1:3] == ["30", "(30)"]

    def test_bounds_hold_along_the_curve(self, curve: uses.AggregationCurve) -> None:
        for name, found in curve.aggregations.items():
            assert [len(each) for each in found] == sorted({len(each) for each in found})
            for each in found:
                assert math.isinf(each.regret_bound) == (name == "map")
                assert each.regret <= each.regret_bound + 1e-6
                assert each.value_gap <= each.value_bound + 1e-6

    def test_some_numbers_of_classes(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        d = exact.lax(mdp)
        curve = uses.aggregation_curve(mdp, {"d_lax": d}, clusters=[31, 4, 4], rule="medoids")
        assert [len(each) for each in curve.aggregations["d_lax"]] == [4, 31]
        with pytest.raises(InputError, match="distances is empty"):
            uses.aggregation_curve(mdp, {})
        with pytest.raises(InputError, match="clusters is empty"):
            uses.aggregation_curve(mdp, {"d_lax": d}, clusters=[])
        with pytest.raises(InputError, match="clusters is 40 and must be at most"):
            uses.aggregation_curve(mdp, {"d_lax": d}, clusters=[40])
        with pytest.raises(InputError, match="the MDP has no positions"):
            uses.manhattan_distances(mdp.replace(positions=None))


class TestWithoutAProof:
    mdp = worlds.load("mirrored-rooms", discount=0.9)

    def test_a_plain_table(self) -> None:
        table = uses.manhattan_distances(self.mdp)
        found = uses.aggregate(self.mdp, table, clusters=9)
        assert (found.kind, found.regret_bound, found.value_bound) == (None, math.inf, math.inf)
        assert found.regret > 0
        assert found.policy.tolist() == np.asarray(found.mdp.policy)[found.labels].tolist()
        assert "there is no regret bound" in str(found)
        assert "no bound" in repr(found)

    def test_an_estimate(self) -> None:
        d = exact.bisimulation(self.mdp, samples=3)
        assert math.isinf(uses.aggregate(self.mdp, d, clusters=9).regret_bound)
        with pytest.raises(InputError, match=r"require_proof requires a proven error"):
            uses.aggregate(self.mdp, d, clusters=9, require_proof=True)
        with pytest.raises(InputError, match="require_proof requires a proven error"):
            uses.aggregate(self.mdp, d.values, clusters=9, require_proof=True)

    def test_an_on_policy_distance_without_its_policy(self) -> None:
        d = exact.on_policy(self.mdp, planning.greedy_policy(self.mdp))
        unknown = dataclasses.replace(d, error=math.inf, policy=None)
        found = uses.aggregate(self.mdp, unknown, clusters=6)
        assert (found.kind, found.value_function) == ("on_policy", "V*")
        assert found.policy.tolist() == np.asarray(found.mdp.policy)[found.labels].tolist()
        assert uses.aggregate(self.mdp, d, clusters=6).value_function == "V^pi"

    def test_the_error_alone_gives_the_bound(self) -> None:
        exactly = exact.bisimulation(self.mdp)
        unsure = dataclasses.replace(exactly, error=math.inf)
        one, other = (uses.aggregate(self.mdp, d, clusters=9) for d in (exactly, unsure))
        np.testing.assert_array_equal(one.policy, other.policy)
        assert one.regret == other.regret
        assert math.isinf(other.regret_bound)

    def test_unvisited_states(self) -> None:
        d, everyone = exact.bisimulation(self.mdp), np.ones(31, bool)
        known, determined = np.ones((31, 4), bool), np.ones((31, 31), bool)
        for lived in (everyone, np.arange(31) > 0):
            seen = Coverage(known, determined, d.error, 0.0, 1, 1, lived)
            found = uses.aggregate(self.mdp, dataclasses.replace(d, coverage=seen), clusters=9)
            assert math.isfinite(found.regret_bound) == lived.all()

    def test_a_network_converts_to_a_distance(self) -> None:
        class Network:
            def table(self, x: Any, y: Any) -> None: ...

            def to_distance(self) -> Distance:
                return dataclasses.replace(exact.bisimulation(mdp), error=math.inf)

        mdp = self.mdp
        found = uses.aggregate(mdp, Network(), clusters=9)
        assert found.kind == "bisimulation"
        assert math.isinf(found.regret_bound)


class TestWords:
    mdp = worlds.load("mirrored-rooms", discount=0.5)
    d = exact.bisimulation(mdp)

    def test_repr_and_print(self) -> None:
        found = uses.aggregate(self.mdp, self.d, clusters=12, rule="complete")
        assert repr(found) == (
            f"Aggregation(31 states in {len(found)} classes by bisimulation, complete, regret "
            f"{found.regret:.4g}, proven at most "
            f"{format_bound(found.regret_bound, found.trivial_bound)})"
        )
        lines = str(found).splitlines()
        assert [each.split()[0] for each in lines[:4]] == ["classes", "radius", "values", "regret"]
        assert lines[3].endswith("V* - V^policy")
        for array in (found.labels, found.representatives, found.policy, found.diameters):
            assert not array.flags.writeable
        assert "not measured" in repr(uses.aggregate(self.mdp, self.d, clusters=2, measure=False))
        d = exact.on_policy(self.mdp, planning.greedy_policy(self.mdp))
        assert "V^pi - V^policy" in str(uses.aggregate(self.mdp, d, clusters=2))

    def test_trivial_clusterings_are_reported(self) -> None:
        nothing = uses.aggregate(self.mdp, self.d, radius=0)
        assert nothing.note == "no two states are in one class: nothing was aggregated"
        assert (nothing.regret, len(nothing)) == (0, 31)
        everything = uses.aggregate(self.mdp, self.d, radius=1e9)
        assert everything.note == "all states are in one class"
        assert str(everything).endswith("all states are in one class")


class TestRefusals:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"discount": 0.5}, r"its discount is 0\.9 and not 0\.5"),
            ({"R": np.zeros((31, 4))}, "its rewards differ"),
            ({"P": sparse.csr_array(np.eye(31)[np.zeros(124, int)])}, "its transitions differ"),
            ({"available": np.eye(31, 4) == 0}, "its rewards differ|its available actions differ"),
        ],
    )
    def test_another_mdp(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(
            InputError, match=f"d belongs to another MDP: ({message}); pass the MDP"
        ):
            uses.aggregate(self.mdp.replace(**change), self.d, clusters=3)

    def test_another_size(self) -> None:
        small = worlds.load("pessimism")
        with pytest.raises(InputError, match="another MDP: it has 31 states and this one 3"):
            uses.aggregate(small, self.d, clusters=2)

    def test_names_and_positions_are_irrelevant(self) -> None:
        bare = self.mdp.replace(names=None, positions=None)
        assert len(uses.aggregate(bare, self.d, clusters=3)) == 3

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "neither is given"),
            ({"clusters": 32}, "clusters is 32 and must be at most .* 31"),
            ({"radius": -1}, "radius is -1"),
        ],
    )
    def test_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=f"uses.aggregate: .*{message}"):
            uses.aggregate(self.mdp, self.d, **options)

    def test_a_table_that_is_none(self) -> None:
        bad = self.d.values.copy()
        bad[4, 7] = np.nan
        with pytest.raises(InputError, match=r"uses.aggregate: .*matrix has nan at \[4, 7\]"):
            uses.aggregate(self.mdp, bad, clusters=3)
