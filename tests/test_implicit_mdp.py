"""Successors: what a step may give, what is refused, and what a policy makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from bisimetric import ImplicitMDP, InputError
from bisimetric.exact import query


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        ((0, {1: 0.5, 2: 0.4}), r"step\(7, 'go'\) sum to 0.9"),
        ((0, {1: 1.5, 2: -0.5}), r"step\(7, 'go'\) gives 2 the probability -0.5"),
        ((0, {1: float("nan")}), "the probability nan"),
        ((float("nan"), 1), r"reward of step\(7, 'go'\) is nan and must be finite"),
        (("much", 1), "reward of .* is 'much'"),
        ((5, 1), r"reward of step\(7, 'go'\) is 5 and lies outside reward_range=\(0, 1\)"),
        (1, r"step\(7, 'go'\) returned 1 and must return \(reward, successor\)"),
        ((1, 2, False, False, {}), "must return"),
        ((0, [1, 2]), r"lists 1 and must list \(probability, successor\)"),
        ((0, [(1.0, [3])]), r"\[3\], which must be hashable"),
        ((0, {1, 2}), r"\{1, 2\}, which must be hashable"),
    ],
)
def test_a_bad_step_names_state_and_action(outcome: Any, complaint: str) -> None:
    source = ImplicitMDP(lambda x, a: outcome, actions=["go"], discount=0.5, reward_range=(0, 1))
    with pytest.raises(InputError, match=complaint):
        query(source, [(7, 8)])


def test_forms_of_an_outcome() -> None:
    forms = {
        "one": (0, (1, 1)),
        "dictionary": (0, {"x": 0.25, "y": 0.75, "never": 0.0}),
        "list": (0, [(0.5, "x"), (0.25, "y"), (0.25, "x")]),
    }
    source = ImplicitMDP(lambda x, a: forms[a], actions=tuple(forms), discount=0.5)
    assert source.outcome(0, "one") == (0, {(1, 1): 1.0})
    assert source.outcome(0, "dictionary") == (0, {"x": 0.25, "y": 0.75})
    assert source.outcome(0, "list") == (0, {"x": 0.75, "y": 0.25})


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({"actions": []}, r"actions are \[\] and must be one or more distinct"),
        ({"actions": ["a", "a"]}, "distinct"),
        ({"actions": 3}, "actions are 3"),
        ({"discount": 1.0}, "discount is 1.0"),
        ({"reward_range": (1, 0)}, r"reward_range is \(1, 0\)"),
        ({"reward_range": (0, float("inf"))}, "two finite numbers"),
        ({"reward_range": 3}, "reward_range is 3"),
        ({"step": 4}, "step is 4"),
    ],
)
def test_bad_successors(about: dict[str, Any], complaint: str) -> None:
    fine: dict[str, Any] = {"step": lambda x, a: (0, x), "actions": [0], "discount": 0.5}
    with pytest.raises(InputError, match=complaint):
        ImplicitMDP(**{**fine, **about})


def test_a_policy_is_checked_where_it_is_followed() -> None:
    source = ImplicitMDP(lambda x, a: (a, x + a), actions=(0, 1), discount=0.5, reward_range=(0, 1))
    for policy, complaint in [
        (lambda x: 7, r"policy\(3\) takes 7, which the state lacks; it has 0, 1"),
        (lambda x: {0: 0.5, 1: 0.4}, r"policy\(3\) sum to 0.9"),
        (lambda x: [0], r"policy\(3\) returned the action \[0\], which must be hashable"),
        (3, "policy is 3 and must be a function"),
    ]:
        with pytest.raises(InputError, match=complaint):
            source.apply_policy(policy).outcome(3, "policy")  # type: ignore[arg-type]
    third = source.apply_policy(lambda x: {0: 2 / 3, 1: 1 / 3})
    assert third.outcome(3, "policy") == (1 / 3, {3: 2 / 3, 4: 1 / 3})


def test_no_actions_in_some_state() -> None:
    source = ImplicitMDP(lambda x, a: (0, x), actions=lambda x: [], discount=0.5)
    with pytest.raises(InputError, match=r"actions\(3\) returned \[\]"):
        query(source, [(3, 4)], kind="lax")
