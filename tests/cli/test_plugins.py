"""Groups of commands of other distributions: loaded by their entry points, or named."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType
from typing import Any

import pytest

from bisimetric import InputError
from bisimetric.cli import CommandGroup
from bisimetric.cli.plugins import ENTRY_POINTS
from tests.commands import Run, assert_input_error


def greet(name: str = "you", times: int = 1) -> int:
    """Print a greeting.

    Args:
        name: whom to greet
        times: how often

    Examples:
        bisimetric hello greet --times 2
    """
    if times < 1:
        raise InputError(f"is {times} and must be at least 1", argument="times")
    print("\n".join([f"Hello, {name}."] * times))
    return 0


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that installs entry points with these names and objects."""

    def install(**groups: Any) -> None:
        module = ModuleType("a_plugin")
        vars(module).update(groups)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points = [
            importlib.metadata.EntryPoint(name, f"a_plugin:{name}", ENTRY_POINTS) for name in groups
        ]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)

    return install


def test_a_group_of_another_distribution_is_a_command(run: Run, install: Any) -> None:
    install(hello=CommandGroup("Greetings.", {"greet": greet}))
    assert run("hello", "greet", "--times", "2").out == "Hello, you.\n" * 2
    assert "hello" in run("--help").out
    shown = run("hello", "--help").out
    assert "Greetings." in shown
    assert "  bisimetric hello greet --times 2" in shown
    assert_input_error(run("hello", "greet", "--time", "2"), "did you mean --times?")
    assert_input_error(run("hello", "great"), "greet")
    assert_input_error(run("hello", "greet", "--times", "0"), "--times is 0")


def test_a_missing_distribution_is_named(run: Run, install: Any) -> None:
    install()
    result = run("atari", "show", "Pong")
    assert_input_error(result, "`bisimetric atari` are in another distribution; pip install bisi")
    assert result.err.endswith("pip install bisimetric-atari.\n")
    assert run("worlds").code == 0


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (7, "a_plugin:hello is int and must be a CommandGroup with commands"),
        (CommandGroup("Empty.", {}), "must be a CommandGroup with commands"),
    ],
)
def test_a_broken_group_is_reported(run: Run, install: Any, group: Any, reason: str) -> None:
    install(hello=group)
    assert_input_error(run("hello", "greet"), "the commands 'hello' of a_plugin:hello", reason)
    helped = run("--help")
    assert (helped.code, helped.err.startswith("warning: the commands 'hello'")) == (0, True)
    assert run("worlds") == (0, run("worlds").out, "")


def test_a_group_that_fails_to_import_is_reported(run: Run, install: Any) -> None:
    install(hello=CommandGroup("Greetings.", {"greet": greet}))
    del sys.modules["a_plugin"]
    assert_input_error(run("hello", "greet"), "cannot be loaded: ModuleNotFoundError")


def test_built_in_commands_cannot_be_replaced(run: Run, install: Any) -> None:
    install(show=CommandGroup("Greetings.", {"greet": greet}))
    result = run("--help")
    assert "there is a built-in command of that name" in result.err
    assert "Greetings" not in result.out
