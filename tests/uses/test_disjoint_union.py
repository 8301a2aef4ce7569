"""Two MDPs as one: actions, names, maps, and the distances between the two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, InputError, exact, uses, worlds
from bisimetric.uses.certificates import describe_mismatch
from bisimetric.uses.policy_transfer import _disjoint_union
from tests.oracles import transport
from tests.property_testing import scaled
from tests.strategies import deterministic_mdps, stochastic_mdps

MDPS = st.one_of(
    deterministic_mdps(max_states=5), stochastic_mdps(max_states=4), stochastic_mdps(available=True)
)


def across(source: MDP, target: MDP) -> np.ndarray:
    """d_lax between the states of two MDPs by value iteration, as it is written, (S1, S2)."""
    P, Q = (
        mdp.normalised_probabilities.toarray().reshape(*mdp.R.shape, -1) for mdp in (source, target)
    )
    d = np.zeros((source.num_states, target.num_states))
    for _ in range(60):
        image = np.zeros_like(d)
        for s, t in np.ndindex(d.shape):
            delta = np.array(
                [
                    [
                        abs(source.R[s, a] - target.R[t, b])
                        + source.discount * transport(d, P[s, a], Q[t, b])
                        for b in np.flatnonzero(target.action_mask[t])
                    ]
                    for a in np.flatnonzero(source.action_mask[s])
                ]
            )
            image[s, t] = max(delta.min(axis=1).max(), delta.min(axis=0).max())
        if np.abs(image - d).max() < 1e-9:
            break
        d = image
    return d


@settings(deadline=None, max_examples=scaled(60))
@given(MDPS)
def test_copies_are_at_distance_0(mdp: MDP) -> None:
    pair = uses.disjoint_union(mdp, mdp)
    for d in (exact.lax(pair), exact.bisimulation(pair)):
        copies = np.arange(mdp.num_states)
        assert d.values[copies, mdp.num_states + copies].max() <= d.error


@settings(deadline=None, max_examples=scaled(40))
@given(MDPS, MDPS)
def test_the_union_keeps_the_distances_inside_each(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.9), target.replace(discount=0.9)
    d = _disjoint_union.solve_lax(uses.disjoint_union(source, target))
    for mdp, part in ((source, slice(source.num_states)), (target, slice(source.num_states, None))):
        alone = exact.lax(mdp)
        np.testing.assert_allclose(d.values[part, part], alone.values, atol=d.error + alone.error)


@settings(deadline=None, max_examples=scaled(8))
@given(stochastic_mdps(max_states=2, max_actions=2), stochastic_mdps(max_states=3, max_actions=3))
def test_distances_between_the_two_against_the_equation(source: MDP, target: MDP) -> None:
    source, target = source.replace(discount=0.3), target.replace(discount=0.3)
    d = _disjoint_union.solve_lax(uses.disjoint_union(source, target))
    here = source.num_states
    np.testing.assert_allclose(d.values[:here, here:], across(source, target), atol=1e-6)


@settings(deadline=None, max_examples=scaled(40))
@given(deterministic_mdps(), deterministic_mdps())
def test_an_action_twice_changes_nothing(source: MDP, target: MDP) -> None:
    pair = uses.disjoint_union(source.replace(discount=0.9), target.replace(discount=0.9))
    quick, slow = _disjoint_union.solve_lax(pair), exact.lax(pair)
    assert quick.mdp is pair
    np.testing.assert_allclose(quick.values, slow.values, atol=quick.error + slow.error)


def test_actions_of_one_name_are_one_action() -> None:
    left = MDP.deterministic([[0, 0]], [[1, 2]], discount=0.5, actions=["go", "wait"])
    right = MDP.deterministic([[0, 0]], [[2, 1]], discount=0.5, actions=["wait", "go"])
    pair = uses.disjoint_union(left, right)
    assert pair.actions == ("go", "wait")
    assert pair.available is None
    np.testing.assert_array_equal(pair.R, [[1, 2], [1, 2]])
    assert exact.bisimulation(pair)(0, 1) == 0
    assert _disjoint_union.align_actions(left, right).identical


def test_other_actions_share_places_and_are_lacked() -> None:
    left = MDP.deterministic([[0, 0]], [[1, 2]], discount=0.5, actions=["go", "wait"])
    right = MDP.deterministic([[0] * 3], [[3, 4, 5]], discount=0.5, actions=["up", "wait", "x"])
    pair = uses.disjoint_union(left, right)
    assert pair.actions == ("go/up", "wait", "x")
    np.testing.assert_array_equal(pair.action_mask, [[True, True, False], [True, True, True]])
    np.testing.assert_array_equal(pair.R, [[1, 2, 0], [3, 4, 5]])
    np.testing.assert_array_equal(pair.next_state, [[0, 0, 0], [1, 1, 1]])
    assert not _disjoint_union.align_actions(left, right).identical


def test_names_that_would_meet_are_left_out() -> None:
    left = MDP.deterministic([[0, 0]], [[1, 2]], discount=0.5, actions=["a", "a/b"])
    right = MDP.deterministic([[0, 0]], [[1, 2]], discount=0.5, actions=["b", "a/b"])
    assert uses.disjoint_union(left, right).actions is None


def test_maps_are_side_by_side_and_features_distinguish_them() -> None:
    source, target = worlds.grid("* g*"), worlds.grid("*  g*")
    pair = uses.disjoint_union(source, target)
    assert pair.names == ("source 0,1", "source 0,2", "target 0,1", "target 0,2", "target 0,3")
    assert pair.positions is not None
    np.testing.assert_array_equal(pair.positions[:, 1], [1, 2, 5, 6, 7])
    assert pair.features is not None
    np.testing.assert_array_equal(pair.features[:, -1], [0, 0, 1, 1, 1])
    bare = MDP.deterministic([[0] * 4], [[0] * 4], discount=0.99)
    assert uses.disjoint_union(source, bare).positions is None
    assert uses.disjoint_union(source, bare).features is None


def test_discounts_must_be_equal() -> None:
    source, target = worlds.grid(" g", discount=0.9), worlds.grid(" g", discount=0.5)
    with pytest.raises(InputError, match=r"has discount 0\.9 and the target 0\.5"):
        uses.disjoint_union(source, target)


def test_a_pair_is_known_by_its_numbers() -> None:
    source, target = worlds.grid(" g"), worlds.grid("  g")
    pair = uses.disjoint_union(source, target)
    assert describe_mismatch(uses.disjoint_union(source, target).replace(names=None), pair) is None
    for other in (
        uses.disjoint_union(target, source),
        pair.replace(discount=0.5),
        pair.replace(R=pair.R + 1),
        pair.replace(available=np.arange(20).reshape(5, 4) > 0),
        uses.disjoint_union(source, target.replace(P=np.roll(target.P.toarray(), 1, axis=1))),
        source,
    ):
        assert describe_mismatch(other, pair) is not None
