"""Rounding and tolerances of sampled distances: each term is needed, and each limit is exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import MDP, InputError, NotConverged, Transitions, sampled
from bisimetric.distance import Coverage
from bisimetric.sampled import Uniform
from tests.property_testing import scaled


def on_policy_distances(mdp: MDP, policy: NDArray[np.float64]) -> list[list[Fraction]]:
    """d^pi in rationals, where all actions of a state lead to the same state.

    Two states walk until a pair comes again: a sum of differences, then a geometric series.
    """
    after = mdp.next_state[:, 0].tolist()
    discount = Fraction(mdp.discount)
    reward = []
    for weights, paid in zip(policy.tolist(), mdp.R.tolist(), strict=True):
        shares = [Fraction(each) for each in weights]
        total = sum((p * Fraction(r) for p, r in zip(shares, paid, strict=True)), Fraction(0))
        reward.append(total / sum(shares, Fraction(0)))
    found = []
    for s in range(mdp.num_states):
        row = []
        for t in range(mdp.num_states):
            pairs, (x, y) = [], (s, t)
            while (x, y) not in pairs:
                pairs.append((x, y))
                x, y = after[x], after[y]
            first = pairs.index((x, y))
            gaps = [
                discount**k * abs(reward[a] - reward[b]) for k, (a, b) in enumerate(pairs)
            ]  # fmt: skip
            round_ = sum(gaps[first:], Fraction(0)) / (1 - discount ** (len(pairs) - first))
            row.append(sum(gaps[:first], Fraction(0)) + round_)
        found.append(row)
    return found


@st.composite
def chains(draw: st.DrawFn) -> tuple[MDP, NDArray[np.float64]]:
    """Deterministic MDPs whose actions differ in reward only, and stochastic policies."""
    states, actions = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    after = draw(st.lists(st.integers(0, states - 1), min_size=states, max_size=states))
    size = draw(st.sampled_from([1.0, 1e3, 1e15, 1e-300]))
    number = st.floats(-9, 9).map(lambda x: x * size)
    rewards: Any = draw(
        st.lists(st.lists(number, min_size=actions, max_size=actions), min_size=states,
                 max_size=states)
    )  # fmt: skip
    raw = np.array(
        draw(
            st.lists(
                st.lists(st.integers(1, 9), min_size=actions, max_size=actions),
                min_size=states,
                max_size=states,
            )
        ),
        float,
    )
    policy = raw / raw.sum(axis=1, keepdims=True)
    policy[0] *= 1 - draw(st.sampled_from([0.0, 9e-9]))
    discount = draw(st.sampled_from([0.0, 0.5, 0.9]))
    mdp = MDP.deterministic([[s] * actions for s in after], rewards, discount=discount)
    return mdp, policy


def deviation(mdp: MDP, policy: NDArray[np.float64], **options: Any) -> tuple[Fraction, Any]:
    """Return the largest error of a sampled distance, and the distance."""
    d = sampled.on_policy(mdp, policy, **options)
    truth = on_policy_distances(mdp, policy)
    far = max(
        abs(Fraction(float(value)) - true)
        for row, trues in zip(d.values, truth, strict=True)
        for value, true in zip(row, trues, strict=True)
    )
    return far, d


@settings(deadline=None, max_examples=scaled(30))
@given(chains())
def test_the_error_covers_the_rewards_of_a_stochastic_policy(
    case: tuple[MDP, NDArray[np.float64]],
) -> None:
    far, d = deviation(*case, steps=4096)
    assert far <= Fraction(d.error)
    assert d.coverage is not None
    truth = on_policy_distances(*case)
    above = max(
        Fraction(float(d.values[s, t])) - truth[s][t]
        for s in range(len(truth))
        for t in range(len(truth))
    )
    assert above <= Fraction(d.coverage.rounding)


@pytest.mark.parametrize("other", [[0.0, 0.0], [-9e15, 1e15]])
def test_rewards_that_cancel_are_in_the_error(other: list[float]) -> None:
    """Of one state, and of both in opposite directions."""
    mdp = MDP.deterministic([[0, 0], [1, 1]], [[9e15, -1e15], other], discount=0.9)
    far, d = deviation(mdp, np.array([[0.1, 0.9], [0.1, 0.9]]), steps=1000)
    assert far <= Fraction(d.error) < 1


# Limits and inputs whose exact place matters.


PAIR = MDP.deterministic([[0], [1]], [[0.0], [1.0]], discount=0.5)


def test_weights_of_one_action_are_a_column_or_a_row() -> None:
    flat = sampled.bisimulation(PAIR, sampler=Uniform(np.array([1.0, 2.0])), steps=50)
    column = sampled.bisimulation(PAIR, sampler=Uniform(np.array([[1.0], [2.0]])), steps=50)
    assert (flat.values == column.values).all()
    two = MDP.deterministic([[0, 1], [1, 0]], [[0.0, 0.0], [1.0, 0.0]], discount=0.5)
    with pytest.raises(InputError, match=r"weights have shape \(2,\) and must be .* \(2, 2\)"):
        sampled.bisimulation(two, sampler=Uniform(np.ones(2)), steps=50)


def test_a_bound_that_is_exactly_tol_is_reached() -> None:
    bound = sampled.bisimulation(PAIR, steps=5).error
    assert 0 < bound < 1.9
    met = sampled.bisimulation(PAIR, steps=5, tol=bound)
    assert met.error == bound
    with pytest.raises(NotConverged, match="tol=") as found:
        sampled.bisimulation(PAIR, steps=5, tol=float(np.nextafter(bound, 0)))
    assert isinstance(found.value.partial, type(met))
    assert found.value.partial.error == bound


def test_unobserved_transitions_do_not_count_against_tol() -> None:
    """State 2 was entered and never exited: the estimate may be small, no error is proven."""
    data = Transitions([0, 1], [0, 0], [0.0, 1.0], [0, 2], [False, False], num_states=3)
    with pytest.raises(NotConverged) as found:
        sampled.bisimulation(data, discount=0.5, steps=0, tol=1e-6)
    assert np.isinf(found.value.partial.error)
    d = sampled.bisimulation(data, discount=0.5, steps=4096, tol=1e-6)
    assert np.isinf(d.error)
    assert d.estimate is not None
    assert d.estimate <= 1e-6
    assert sampled.bisimulation(data, discount=0.5, steps=0).estimate is not None


@pytest.mark.parametrize(
    "visited",
    [np.ones(4, bool), np.ones((3, 1), bool), np.ones(3), np.ones(3, int), np.array(True)],
)
def test_visited_states_are_one_boolean_per_state(visited: NDArray[Any]) -> None:
    whole = np.ones((3, 2), bool), np.ones((3, 3), bool)
    assert Coverage(*whole, 0.0, 0.0, 0, 0, np.ones(3, bool)).complete
    with pytest.raises(InputError, match=r"Coverage: visited is .* and must be bool, "):
        Coverage(*whole, 0.0, 0.0, 0, 0, visited)
