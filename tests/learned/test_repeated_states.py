"""Repeated states in data: hashing, mean rewards, and warnings of different outcomes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from bisimetric import Transitions, learned
from bisimetric.errors import StochasticDataWarning
from bisimetric.learned import MetricNetwork, PairQConfig
from bisimetric.learned.repeated_states import (
    average_repeated_rewards,
    describe_randomness,
    find_first_occurrences,
)
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

QUICK = PairQConfig(MetricNetwork((4,), num_groups=2), batch_size=4)


def build(changes: dict[str, Any] | None = None, observations: bool = False) -> Transitions:
    """0 -> 1 -> 0 -> 1, twice, with actions of a policy and rewards of the states."""
    fields: dict[str, Any] = {
        "states": [0, 1, 0, 1],
        "actions": [0, 1, 0, 1],
        "rewards": [0.0, 1.0, 0.0, 1.0],
        "next_states": [1, 0, 1, 0],
        "terminated": [False] * 4,
        **(changes or {}),
    }
    s, t = fields.pop("states"), fields.pop("next_states")
    if observations:
        points = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        s, t = points[s], points[t]
    return Transitions(s, fields["actions"], fields["rewards"], t, fields["terminated"])


@pytest.mark.parametrize("observations", [False, True])
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"rewards": [0.0, 1.0, 2.0, 1.0]}, True),
        ({"next_states": [1, 0, 1, 2]}, True),
        ({"terminated": [False, False, True, False]}, True),
        # Successors of terminated steps are not compared.
        ({"terminated": [True, False, True, False], "next_states": [1, 0, 2, 0]}, False),
    ],
)
def test_different_outcomes_are_found(
    changes: dict[str, Any], expected: bool, kind: Any, observations: bool
) -> None:
    message = describe_randomness(kind, build(changes, observations), None)
    assert (message is not None) == expected
    if message is not None:
        assert f"learned.{kind}: 1 of 4 transitions repeats a state" in message
        assert "have different outcomes" in message
        assert message.endswith("learned.ModelBasedConfig.")
        assert ("data.to_mdp()" in message) == (kind == "bisimulation" and not observations)
    assert describe_randomness("mico", build(changes, observations), None) is None


@pytest.mark.parametrize("observations", [False, True])
def test_a_stochastic_policy_is_found(observations: bool) -> None:
    data = build({"actions": [0, 1, 1, 1], "next_states": [1, 0, 2, 0]}, observations)
    assert describe_randomness("bisimulation", data, None) is None
    message = describe_randomness("on_policy", data, None)
    assert message is not None
    assert "a state, and have different outcomes, also under different actions" in message
    assert message.endswith("learned.ModelBasedConfig, or give the policy.")
    # Other actions with the same outcome change nothing.
    assert describe_randomness("on_policy", build({"actions": [0, 1, 1, 1]}), None) is None
    if not observations:
        assert describe_randomness("on_policy", data, [0, 1, 0]) is None


def test_continuous_actions_are_compared_row_by_row() -> None:
    actions = np.array([[0.0, 1.0], [0.5, 0.5], [0.0, 2.0], [0.5, 0.5]])
    data = build({"actions": actions, "rewards": [0.0, 1.0, 2.0, 1.0]}, observations=True)
    message = describe_randomness("on_policy", data, None)
    assert message is not None
    assert "under different actions" in message


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_python_warns(kind: str) -> None:
    data = build({"rewards": [0.0, 1.0, 2.0, 1.0]}, observations=True)
    with pytest.warns(StochasticDataWarning, match="different outcomes") as caught:
        d = getattr(learned, kind)(data, updates=2, config=QUICK)
    assert caught[0].filename == __file__
    assert d.metadata["stochastic_data"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", StochasticDataWarning)
        d = getattr(learned, kind)(build(observations=True), updates=2, config=QUICK)
    assert not d.metadata["stochastic_data"]


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64, bool]
)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5)])
def test_first_occurrences_are_those_of_a_loop(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(-1 if dtype not in (np.uint8, bool) else 0, 2, size=(60, *shape))
    array = array.astype(dtype)
    if np.dtype(dtype).kind == "f":
        array *= -1  # -0.0 and 0.0 are equal
    keys = [tuple(np.ravel(row).tolist()) for row in array]
    assert find_first_occurrences(array).tolist() == [keys.index(key) for key in keys]


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).integers(3, size=(100, 2))
    whole = find_first_occurrences(array)
    monkeypatch.setattr("bisimetric.learned.repeated_states.HASH_BLOCK", 7)
    np.testing.assert_array_equal(find_first_occurrences(array), whole)
    mean = average_repeated_rewards(array, np.arange(100.0))
    for row in range(100):
        same = (array == array[row]).all(axis=1)
        assert mean[row] == pytest.approx(np.flatnonzero(same).mean())
