"""A transferred policy: its bounds hold, its parts equal slow references, and bad input raises."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import (
    MDP,
    Coverage,
    Distance,
    InputError,
    NotConverged,
    exact,
    planning,
    uses,
    worlds,
)
from bisimetric._rounding import UNIT
from bisimetric.uses.policy_transfer import _disjoint_union
from bisimetric.uses.policy_transfer.action_bounds import ActionBounds, TransferRule, bound_actions
from bisimetric.uses.policy_transfer.imitation import solve_imitation
from tests.oracles import transport
from tests.property_testing import scaled
from tests.strategies import DISCOUNTS, deterministic_mdps, stochastic_mdps

RULES = get_args(TransferRule)
STOCHASTIC = st.one_of(stochastic_mdps(max_states=4), stochastic_mdps(max_states=4, available=True))
ANY = st.one_of(deterministic_mdps(), STOCHASTIC)


def values_of(mdp: MDP) -> tuple[planning.ValueFunction, NDArray[np.float64]]:
    """V* and Q*, the latter minus infinity for what a state lacks."""
    V = planning.optimal_values(mdp, tol=math.inf)
    Q = mdp.R + mdp.discount * (mdp.normalised_probabilities @ V.values).reshape(mdp.R.shape)
    return V, np.where(mdp.action_mask, Q, -np.inf)


def match_actions(source: MDP, target: MDP, d: Distance) -> ActionBounds:
    _, Q = values_of(source)
    asked = np.full(target.num_states, int(Q[0].argmax()))
    everything = np.ones((source.num_actions, target.num_actions), bool)
    return bound_actions(source, target, d.values[: source.num_states], Q, asked, everything)


def distances_of(source: MDP, target: MDP) -> list[Distance]:
    pair = uses.disjoint_union(source, target)
    if _disjoint_union.align_actions(source, target).identical:
        return [_disjoint_union.solve_lax(pair), exact.bisimulation(pair)]
    return [_disjoint_union.solve_lax(pair)]


def check_promises(source: MDP, target: MDP) -> None:
    """Every rule with every distance: no regret exceeds its bound."""
    for d in distances_of(source, target):
        for rule in RULES:
            found = uses.transfer(source, target, d, rule=rule, require_proof=True)
            assert (found.regret <= found.regret_bound + found.regret_error).all()
            values = planning.policy_values(target, found.policy, tol=math.inf)
            best = planning.optimal_values(target, tol=math.inf)
            np.testing.assert_allclose(
                found.regret, np.maximum(best.values - values.values, 0), atol=found.regret_error
            )
            assert source.action_mask[found.matched_states, found.matched_actions].all()
            assert (found.regret_bound <= found.diameter_bound * (1 + 1e-12)).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(60))
@given(deterministic_mdps(), deterministic_mdps(), st.sampled_from(DISCOUNTS))
def test_bounds_hold_in_deterministic_mdps(source: MDP, target: MDP, discount: float) -> None:
    check_promises(source.replace(discount=discount), target.replace(discount=discount))


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(40))
@given(STOCHASTIC, STOCHASTIC, st.sampled_from(DISCOUNTS))
def test_bounds_hold_in_stochastic_mdps(source: MDP, target: MDP, discount: float) -> None:
    check_promises(source.replace(discount=discount), target.replace(discount=discount))


@settings(deadline=None, max_examples=scaled(30))
@given(deterministic_mdps(), STOCHASTIC, st.booleans())
def test_bounds_hold_where_one_of_the_two_is_stochastic(one: MDP, other: MDP, turned: bool) -> None:
    one, other = one.replace(discount=0.9), other.replace(discount=0.9)
    check_promises(*((other, one) if turned else (one, other)))


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(40))
@given(ANY, ANY, st.sampled_from([0.01, 0.1, 1.0]), st.integers(0, 9))
def test_bounds_hold_with_perturbed_distances(
    source: MDP, target: MDP, most: float, seed: int
) -> None:
    """Any table within its error of the true one will do."""
    source, target = source.replace(discount=0.3), target.replace(discount=0.3)
    for d in distances_of(source, target):
        noise = np.random.default_rng(seed).choice([-most, most], d.values.shape)
        moved = np.maximum(d.values + np.triu(noise, 1) + np.triu(noise, 1).T, 0.0)
        off = dataclasses.replace(d, values=moved, error=d.error + most)
        for rule in RULES:
            found = uses.transfer(source, target, off, rule=rule, require_proof=True)
            assert (found.regret <= found.regret_bound + found.regret_error).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(60))
@given(ANY, st.sampled_from(DISCOUNTS))
def test_transfer_of_an_mdp_to_itself_has_no_regret(mdp: MDP, discount: float) -> None:
    mdp = mdp.replace(discount=discount)
    V, _ = values_of(mdp)
    grain = 1e5 * UNIT * (1 + np.abs(V.values).max() + np.abs(mdp.R).max())
    for d in distances_of(mdp, mdp):
        for rule in RULES:
            found = uses.transfer(mdp, mdp, d, rule=rule)
            slack = 12 * (d.error + V.error + uses_error(rule) + grain) / (1 - discount)
            assert found.max_regret_bound <= slack
            assert found.max_regret <= slack


def uses_error(rule: str) -> float:
    """What the optimistic rule asks of its own distance."""
    return 1e-6 if rule == "optimistic" else 0.0


@settings(deadline=None, max_examples=scaled(60))
@given(ANY, ANY)
def test_action_values_satisfy_the_bounds(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.9), target.replace(discount=0.9)
    V, _ = values_of(source)
    W, Q = values_of(target)
    for d in distances_of(source, target):
        found = match_actions(source, target, d)
        off = d.error + V.error + W.error + found.error + 1e-12 * (1 + np.abs(V.values).max())
        has = target.action_mask
        assert (found.lower[has] <= Q[has] + off).all()
        assert (found.upper[has] >= Q[has] - off).all()
        assert (found.lower[~has] == -np.inf).all()
        # The bounds of states, which those of actions refine.
        across = d.values[: source.num_states, source.num_states :]
        assert (found.lower.max(axis=1) >= (V.values[:, None] - across).max(axis=0) - off).all()
        assert (found.upper.max(axis=1) <= (V.values[:, None] + across).min(axis=0) + off).all()


@settings(deadline=None, max_examples=scaled(15))
@given(STOCHASTIC, stochastic_mdps(max_states=3))
def test_bounds_against_linear_programmes(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.9), target.replace(discount=0.9)
    d = _disjoint_union.solve_lax(uses.disjoint_union(source, target))
    found = match_actions(source, target, d)
    _, Q = values_of(source)
    P, N = (
        mdp.normalised_probabilities.toarray().reshape(*mdp.R.shape, -1) for mdp in (source, target)
    )
    cost = d.values[: source.num_states, source.num_states :]
    for t, b in np.argwhere(target.action_mask):
        delta = {
            (s, a): abs(source.R[s, a] - target.R[t, b]) + 0.9 * transport(cost, P[s, a], N[t, b])
            for s, a in np.argwhere(source.action_mask).tolist()
        }
        atol = 1e-7 * (1 + max(delta.values()))
        low = max(Q[pair] - far for pair, far in delta.items())
        up = min(Q[pair] + far for pair, far in delta.items())
        assert math.isclose(found.lower[t, b], low, abs_tol=atol)
        assert math.isclose(found.upper[t, b], up, abs_tol=atol)
        match = divmod(int(found.lower_matches[t, b]), source.num_actions)
        assert math.isclose(found.lower_distances[t, b], delta[match], abs_tol=atol)


@settings(deadline=None, max_examples=scaled(40))
@given(ANY, ANY)
def test_bounds_are_never_above_the_chain_of_regrets(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.9), target.replace(discount=0.9)
    d = _disjoint_union.solve_lax(uses.disjoint_union(source, target))
    bounds = match_actions(source, target, d)
    everyone = np.arange(target.num_states)
    for rule in ("nearest", "pessimistic", "hopeful"):
        found = uses.transfer(source, target, d, rule=rule)
        regret = bounds.upper.max(axis=1) - bounds.lower[everyone, found.policy]
        chain = target.replace(R=np.repeat(regret[:, None], target.num_actions, axis=1))
        along = planning.policy_values(chain, found.policy, tol=math.inf)
        slack = 1e-4 * (1 + np.abs(found.optimal_values.values).max())
        assert (found.regret_bound <= along.values + slack).all()


@settings(deadline=None, max_examples=scaled(60))
@given(deterministic_mdps(), deterministic_mdps(), st.sampled_from(DISCOUNTS))
def test_imitation_is_a_shortest_path(source: MDP, target: MDP, discount: float) -> None:
    source, target = source.replace(discount=discount), target.replace(discount=discount)
    policy = planning.greedy_policy(source, tol=math.inf)
    found = solve_imitation(source, policy, target, tol=1e-6)
    chain, shape = source.apply_policy(policy), (source.num_states, target.num_states)
    after = chain.next_state[:, :, None] * target.num_states + target.next_state[None]
    gap = np.abs(chain.R[:, :, None] - target.R[None])
    actions = target.num_actions
    graph = MDP.deterministic(
        after.reshape(-1, actions), -gap.reshape(-1, actions), discount=discount
    )
    least = planning.optimal_values(graph, tol=math.inf)
    np.testing.assert_allclose(
        found.values, -least.values.reshape(shape), atol=found.error + least.error
    )


@settings(deadline=None, max_examples=scaled(15))
@given(stochastic_mdps(max_states=3), stochastic_mdps(max_states=3, available=True))
def test_imitation_solves_its_equation(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.9), target.replace(discount=0.9)
    policy = planning.greedy_policy(source, tol=math.inf)
    found = solve_imitation(source, policy, target, tol=1e-6)
    chain = source.apply_policy(policy)
    P, N = (
        chain.normalised_probabilities.toarray(),
        target.normalised_probabilities.toarray().reshape(*target.R.shape, -1),
    )
    for s, t in np.ndindex(found.values.shape):
        answers = {
            b: abs(chain.R[s, 0] - target.R[t, b]) + 0.9 * transport(found.values, P[s], N[t, b])
            for b in np.flatnonzero(target.action_mask[t]).tolist()
        }
        atol = 2 * found.error + 1e-8 * (1 + found.values.max())
        assert math.isclose(found.values[s, t], min(answers.values()), abs_tol=atol)
        assert math.isclose(answers[int(found.actions[s, t])], found.values[s, t], abs_tol=atol)


def test_imitation_of_many_stochastic_states() -> None:
    source, target = (
        worlds.load("random", states=states, successors=3, seed=states, discount=0.99)
        for states in (12, 40)
    )
    policy = planning.greedy_policy(source)
    found = solve_imitation(source, policy, target, tol=1e-8)
    assert found.error <= 1e-8
    V, best = planning.policy_values(source, policy), planning.optimal_values(target)
    lower = (V.values[:, None] - found.values).max(axis=0)
    assert (lower <= best.values + V.error + best.error + found.error).all()
    # What it leads to is worth at least that, and not by chance: the bound is near.
    assert (best.values - lower).max() < 0.1 * best.values.max()


def test_a_policy_computed_by_hand() -> None:
    """One action of state 0 pays 1 for ever; the other leads to state 1, which pays nothing.

    The two MDPs differ in the names of these actions only: d_lax of equal states is 0. d~ sees
    that action 0 pays 1 for ever here and nothing there: 2.
    """
    source = MDP.deterministic([[0, 1], [1, 1]], [[1, 0], [0, 0]], discount=0.5)
    target = MDP.deterministic([[1, 0], [1, 1]], [[0, 1], [0, 0]], discount=0.5)
    for rule in RULES:
        found = uses.transfer(source, target, rule=rule)
        assert found.policy[0] == 1
        assert found.max_regret_bound < 1e-4
        np.testing.assert_allclose(found.random_regret, [2 - 2 / 3, 0], atol=1e-9)
        if rule != "hopeful":  # for which a worse action that is far away is as good a match
            assert (found.matched_states[0], found.matched_actions[0]) == (0, 0)
            assert found.distances[0] < 1e-6
    by_names = exact.bisimulation(uses.disjoint_union(source, target))
    assert by_names("source 0", "target 0") == pytest.approx(2)
    found = uses.transfer(source, target, by_names, rule="nearest")
    assert found.max_regret == pytest.approx(2)
    assert found.max_regret_bound >= 2


def test_the_order_of_the_targets_states_changes_nothing() -> None:
    source = worlds.load("random", states=8, actions=2, seed=1, discount=0.9)
    target = worlds.load("random", states=20, actions=3, seed=2, discount=0.9)
    order = np.random.default_rng(0).permutation(20)
    turned = MDP.deterministic(
        np.argsort(order)[target.next_state[order]], target.R[order], discount=0.9
    )
    for rule in RULES:
        one, other = (uses.transfer(source, each, rule=rule) for each in (target, turned))
        np.testing.assert_allclose(one.regret_bound[order], other.regret_bound, atol=1e-4)
        np.testing.assert_array_equal(one.policy[order], other.policy)


def test_the_optimistic_rule_finds_its_way_through_larger_rooms() -> None:
    small, large = (
        worlds.load("open-grid", rows=side, columns=side, obstacles=0.0, discount=0.9)
        for side in (4, 7)
    )
    losses = {rule: uses.transfer(small, large, rule=rule).max_regret for rule in RULES}
    assert losses["optimistic"] < 1e-9
    assert losses["nearest"] > 1


@settings(deadline=None, max_examples=scaled(10))
@given(deterministic_mdps(max_states=4))
def test_the_same_call_is_the_same_answer(mdp: MDP) -> None:
    one, other = (uses.transfer(mdp, mdp) for _ in range(2))
    np.testing.assert_array_equal(one.policy, other.policy)
    np.testing.assert_array_equal(one.regret_bound, other.regret_bound)


def estimates(pair: MDP) -> list[Any]:
    """A table that nothing is proven of, in the forms that it may have."""
    d = exact.lax(pair)
    unsure = dataclasses.replace(d, error=math.inf, estimate=0.1)

    class Network:
        def table(self, x: Any, y: Any) -> None: ...

        def to_distance(self) -> Distance:
            return unsure

    known, sides = np.ones(pair.R.shape, bool), np.ones((pair.num_states,) * 2, bool)
    lived = np.arange(pair.num_states) > 0
    partly = dataclasses.replace(d, coverage=Coverage(known, sides, 0.0, 0.0, 0, 0, lived))
    return [d.values, d.values.tolist(), unsure, Network(), partly]


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_estimates_have_no_bound(discount: float) -> None:
    source, target = (worlds.grid(text, discount=discount) for text in (" g", "  g"))
    for d in estimates(uses.disjoint_union(source, target)):
        for rule in RULES:
            found = uses.transfer(source, target, d, rule=rule)
            assert np.isinf(found.regret_bound).all()
            assert np.isfinite(found.regret).all()
            assert "no bound" in repr(found)
            assert "there is no regret bound" in str(found)
        with pytest.raises(InputError, match="require_proof requires a proven error"):
            uses.transfer(source, target, d, require_proof=True)


def test_repr_and_lines_of_a_transfer() -> None:
    source, target = worlds.grid("  g", discount=0.5), worlds.grid("    g", discount=0.5)
    found = uses.transfer(source, target)
    assert repr(found) == "Transfer(optimistic, 3 to 5 states, regret 0, proven at most 0.5)"
    assert str(found).splitlines() == [
        "transfer   to 5 states, matched with 2 of the 3 source states",
        "rule       optimistic, by d_lax",
        "bound      at most 0.5, 0.25 on average",
        "           below the regret of random actions in 5 of 5 states",
        "regret     0 everywhere",
        "random     at most 2.051, 1.733 on average",
        "values     from 0.1667 to 1.333",
    ]
    with pytest.raises(ValueError, match="read-only"):
        found.policy[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.rule = "nearest"  # type: ignore[misc]


def test_a_vacuous_bound_is_marked() -> None:
    source = MDP.deterministic([[0]], [[0.0]], discount=0.5)
    target = MDP.deterministic([[0, 0]], [[-9.0, 9.0]], discount=0.5)
    found = uses.transfer(source, target, rule="nearest")
    assert found.diameter_bound == 36
    assert found.max_regret_bound == pytest.approx(36, rel=1e-12)
    assert found.is_vacuous
    assert "vacuous: at least the trivial bound, 36\n" in str(found)
    assert repr(found).endswith("proven at most 36 (vacuous: at least the trivial bound, 36))")
    assert not found.better_than_random.any()


def test_large_rewards_have_a_bound_with_a_larger_error() -> None:
    source, target = (
        worlds.load("random", states=states, actions=states - 3, seed=1, discount=0.999)
        for states in (5, 6)
    )
    source, target = (mdp.replace(R=1e7 * mdp.R) for mdp in (source, target))
    with pytest.raises(NotConverged):
        exact.lax(uses.disjoint_union(source, target))
    found = uses.transfer(source, target)
    assert found.d is not None
    assert found.d.error > 1e-6
    assert (found.regret <= found.regret_bound + found.regret_error).all()


SMALL, LARGE = worlds.grid(" g", discount=0.9), worlds.grid("  g", discount=0.9)
PAIR = uses.disjoint_union(SMALL, LARGE)


@pytest.mark.parametrize(
    ("d", "match"),
    [
        (exact.lax(SMALL), r"another MDP: it has 2 states and not 5; .* uses\.disjoint_union"),
        (
            exact.lax(uses.disjoint_union(LARGE, SMALL)),
            "another MDP: its rewards differ; .* on uses",
        ),
        (exact.on_policy(PAIR, [0] * 5), "of kind 'on_policy', which does not bound"),
        (np.zeros((4, 4)), "d has 4 states and must have the 5 of uses.disjoint_union"),
        (np.zeros((5, 4)), "uses.transfer: the distance matrix is .* must be square"),
        (-np.ones((5, 5)), "must be finite and at least 0"),
    ],
)
def test_distances_of_other_mdps_raise(d: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        uses.transfer(SMALL, LARGE, d)


def test_bad_input_raises() -> None:
    with pytest.raises(InputError, match="rule is 'best' and must be one of optimistic, pess"):
        uses.transfer(SMALL, LARGE, rule="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="load both with the same discount"):
        uses.transfer(SMALL, LARGE.replace(discount=0.5))
    other = worlds.load("pessimism", discount=0.9)
    d = exact.bisimulation(uses.disjoint_union(other, SMALL))
    with pytest.raises(InputError, match=r"different ones \(a, b; up, down, left, right\); use"):
        uses.transfer(other, SMALL, d)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimistic_rule_converges_at_a_discount_near_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    discount = math.nextafter(1, 0)
    rewards = rng.choice([0.1, 0.2, 1 / 3], (4, 2))
    mdp = MDP.deterministic(rng.integers(4, size=(4, 2)), rewards, discount=discount)
    found = uses.transfer(mdp, mdp, rule="optimistic")
    assert (found.regret_bound >= found.regret - found.regret_error).all()
