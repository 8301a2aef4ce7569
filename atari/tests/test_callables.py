"""Python functions as agents: their inputs, their state, and validation of their results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari import agents, games
from bisimetric_atari.agents.callables import FunctionAgent, make_agent
from bisimetric_atari.games import find_game
from tests.property_testing import scaled

IS_FIRST = np.ones(2, bool)
OBSERVATIONS = np.arange(2 * 4 * 84 * 84).reshape(2, 4, 84, 84).astype(np.uint8)

MODULE = """
from __future__ import annotations
import dataclasses
from bisimetric_atari.agents.callables import FunctionAgent
from bisimetric_atari.games import find_game

def act(observation, state):
    steps = (state or 0) + 1
    return (steps % 6, [float(observation.mean()), steps], 0.5), steps

def build():
    return act

@dataclasses.dataclass
class Recurrent:
    decay: float = 0.5
    def __call__(self, observation, state):
        trace = observation.mean() if state is None else self.decay * state + observation.mean()
        return (2, [trace], trace), trace

class WithArguments:
    def __init__(self, size):
        self.size = size

number = 7
ready = FunctionAgent("ready", act, find_game("Pong"))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with agents in the current folder, by a name that no other test has used."""
    name = f"agents_in_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def build_constant(result: Any) -> FunctionAgent:
    return FunctionAgent("mine", lambda observation, state: result, find_game("Pong"))


def test_a_function_gets_each_observation_and_the_state_of_its_game() -> None:
    def act(observation: Any, state: Any) -> Any:
        trail = (*(state or ()), int(observation[0, 0, 0]))
        return (len(trail), [sum(trail)], -sum(trail)), trail

    agent = FunctionAgent("trail", act, find_game("Pong"))
    frames = np.zeros((2, 4, 84, 84), np.uint8)
    frames[:, 0, 0, 0] = 5, 7
    state = agent.initial_state(2)
    output, state = agent.act(frames, state, IS_FIRST)
    output, state = agent.act(frames + 1, state, np.array([False, True]))
    assert state == [(5, 6), (8,)]
    assert output.action.tolist() == [2, 1]
    assert output.features.tolist() == [[11.0], [8.0]]
    assert output.value.tolist() == [-11.0, -8.0]
    dtypes = [each.dtype for each in output]
    assert dtypes == [np.int64, np.float32, np.float32]


@settings(deadline=None, max_examples=scaled(25))
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6))
def test_each_game_has_its_own_state(starts: list[list[bool]]) -> None:
    def count(observation: Any, state: Any) -> Any:
        return (0, [0.0], 0.0), 1 if state is None else state + 1

    agent = FunctionAgent("count", count, find_game("Pong"))
    state, expected = agent.initial_state(3), [0, 0, 0]
    for is_first in starts:
        _, state = agent.act(np.zeros((3, 4, 84, 84), np.uint8), state, np.array(is_first))
        expected = [1 if first else n + 1 for first, n in zip(is_first, expected, strict=True)]
        assert state == expected


def test_observations_are_private_and_read_only() -> None:
    kept: list[NDArray[np.uint8]] = []

    def act(observation: Any, state: Any) -> Any:
        kept.append(observation)
        return (0, [0.0], 0.0), None

    agent = FunctionAgent("store", act, find_game("Pong"))
    buffer = OBSERVATIONS.copy()
    agent.act(buffer, agent.initial_state(2), IS_FIRST)
    buffer[:] = 0
    np.testing.assert_array_equal(kept[1:], OBSERVATIONS)
    with pytest.raises(ValueError, match="read-only"):
        kept[1][:] = 0


def test_a_function_plays_real_games(module: str) -> None:
    agent = agents.load(f"{module}:act", "Pong")
    assert (agent.num_actions, agent.num_features, agent.observation_shape) == (
        6,
        2,
        (4, 84, 84),
    )
    pong, state = games.AtariGames("Pong", 2), agent.initial_state(2)
    step = pong.reset()
    for _ in range(5):
        output, state = agent.act(step.observations, state, step.is_first)
        step = pong.step(output.action)
    assert state == [5, 5]
    assert output.features[:, 1].tolist() == [5, 5]


@pytest.mark.parametrize("name", ["act", "build", "Recurrent"])
@pytest.mark.parametrize("form", ["{}:{}", "{}.py:{}", "./{}.py:{}"])
def test_functions_factories_and_classes_are_found(form: str, name: str, module: str) -> None:
    agent = agents.load(form.format(module, name), "Pong")
    assert agent.name == form.format(module, name)
    output, _ = agent.act(OBSERVATIONS, agent.initial_state(2), IS_FIRST)
    assert output.features[:, 0] == pytest.approx(OBSERVATIONS.mean((1, 2, 3)))


def test_an_agent_is_returned_unchanged() -> None:
    constant = build_constant(((0, [1.0], 2.0), None))
    assert make_agent("mine", constant, find_game("Pong")) is constant
    assert make_agent("mine", lambda: constant, find_game("Pong")) is constant


def test_an_agent_object_of_another_game_raises(module: str) -> None:
    assert agents.load(f"{module}:ready", "Pong").num_actions == 6
    with pytest.raises(InputError, match="ready: chooses among 6 actions and Asterix has 9"):
        agents.load(f"{module}:ready", "Asterix")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (
            None,
            r"mine: it returned None; it must be f\(observation, state\[, context\]\) -> \(",
        ),
        ((0, [1.0], 0.5), r"it returned \(0, \[1.0\], 0.5\); it must be"),
        (((0, [1.0]), None), "it must be f"),
        (
            ((6, [1.0], 0.5), None),
            "it chose the action 6, and this game has the actions 0 to 5, ",
        ),
        (((-1, [1.0], 0.5), None), "it chose the action -1, and"),
        (((1.0, [1.0], 0.5), None), r"it chose the action 1\.0, and"),
        ((("up", [1.0], 0.5), None), "it chose the action 'up', and"),
        (((0, [[1.0]], 0.5), None), r"features have shape \(1, 1\) and must be a vector"),
        (((0, 1.0, 0.5), None), r"features have shape \(\) and must be a vector"),
        (((0, [], 0.5), None), r"features have shape \(0,\) and must be a vector"),
        (((0, ["red"], 0.5), None), r"its features \['red'\] and its value 0.5 must be numbers"),
        (((0, [1.0], None), None), "its value None must be numbers"),
        (((0, [np.nan], 0.5), None), "its features or its value are not finite"),
        (((0, [1.0], np.inf), None), "its features or its value are not finite"),
    ],
)
def test_results_are_validated(returned: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_constant(returned)


def test_the_number_of_features_must_be_constant() -> None:
    def act(observation: Any, state: Any) -> Any:
        return (0, [0.0, 0.0] if observation.any() else [0.0], 0.0), None

    agent = FunctionAgent("mine", act, find_game("Pong"))
    with pytest.raises(InputError, match="mine: it returned 2 features, and 1 for its first obs"):
        agent.act(OBSERVATIONS, agent.initial_state(2), IS_FIRST)


def test_numpy_numbers_are_accepted() -> None:
    agent = build_constant(((np.int32(3), np.ones(4), np.float64(2)), None))
    output, _ = agent.act(OBSERVATIONS, agent.initial_state(2), IS_FIRST)
    assert output.action.tolist() == [3, 3]
    assert output.features.shape == (2, 4)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{}:actt", "has no 'actt'; did you mean 'act'?"),
        ("{}:zzzzz", r"has no 'zzzzz'\."),
        ("{}:number", r"7 is no agent; it must be f\(observation, state\[, context\]\)"),
        ("{}:WithArguments", "WithArguments needs arguments; give a factory that needs none"),
        ("no_such_module:act", r"cannot be imported \(ModuleNotFoundError: No module named 'no_s"),
        ("no_such_file.py:act", r"there is no file no_such_file\.py"),
    ],
)
def test_unknown_names_raise(form: str, said: str, module: str) -> None:
    with pytest.raises(InputError, match=said):
        agents.load(form.format(module), "Pong")


def test_a_failing_module_is_named(module: str) -> None:
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(
        InputError, match=r"broken\.py cannot be imported \(ZeroDivisionError: division by zero\)\."
    ):
        agents.load("broken.py:act", "Pong")


def test_a_local_file_does_not_shadow_an_installed_package(module: str) -> None:
    Path("json.py").write_text("def act(observation, state): return (0, [1.0], 0.0), None")
    with pytest.raises(InputError, match="json has no 'act'"):
        agents.load("json:act", "Pong")
    assert agents.load("json.py:act", "Pong").num_features == 1
    assert hasattr(sys.modules["json"], "loads")
