"""Any Python callable as an agent: f(observation, state) -> (action, features, value), state."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, suggest_names
from bisimetric.games.agent import Agent, AgentOutput
from bisimetric.games.environments import OBSERVATION_SHAPE

AgentFunction = Callable[[NDArray[np.uint8], Any], tuple[tuple[Any, Any, Any], Any]]

SIGNATURE = "f(observation, state) -> (action, features, value), state"
AGENT_ATTRIBUTES = ("name", "num_actions", "num_features", "shape", "start", "see")
"""What an object has that is an agent already, and sees many observations at once."""


class FunctionAgent:
    """Calls a function once an observation, with the state that it returned for that game before.

    The state is None at the start of each game; a recurrent agent keeps what it likes in it. The
    function is called once with a blank observation, to count its features.

    >>> def lazy(observation, steps):
    ...     steps = (steps or 0) + 1
    ...     return (0, [observation.mean(), steps], 1.0), steps
    >>> agent = FunctionAgent("lazy", lazy, num_actions=6)
    >>> frames, memory = np.zeros((2, 4, 84, 84), np.uint8), agent.start(2)
    >>> for fresh in ([True, True], [False, True]):
    ...     seen, memory = agent.see(frames, memory, np.array(fresh))
    >>> seen.features.tolist()
    [[0.0, 2.0], [0.0, 1.0]]
    """

    observation_shape = OBSERVATION_SHAPE

    def __init__(self, name: str, function: AgentFunction, num_actions: int) -> None:
        self.name, self.function, self.num_actions = name, function, num_actions
        blank = np.zeros(OBSERVATION_SHAPE, np.uint8)
        blank.setflags(write=False)
        self.num_features = len(self._call(blank, None)[1])

    def initial_state(self, num_games: int) -> list[Any]:
        """No state, for each of the games."""
        return [None] * num_games

    def act(
        self, observations: NDArray[np.uint8], memory: Sequence[Any], is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, list[Any]]:
        """What the function makes of observations (n, 4, 84, 84), one after the other."""
        # A copy: a function may keep what it is shown, and games may reuse their buffers.
        shown = np.array(observations)
        shown.setflags(write=False)
        action = np.empty(len(shown), np.int64)
        features = np.empty((len(shown), self.num_features), np.float32)
        value = np.empty(len(shown), np.float32)
        after = []
        for n, (each, state, begins) in enumerate(zip(shown, memory, is_first, strict=True)):
            action[n], found, value[n], state = self._call(each, None if begins else state)
            if len(found) != self.num_features:
                raise InputError(
                    f"{self.name}: it returned {len(found)} features, and {self.num_features} for "
                    "its first observation; return as many each time."
                )
            features[n] = found
            after.append(state)
        return AgentOutput(action, features, value), after

    def _call(self, observation: Any, state: Any) -> tuple[int, NDArray[np.float32], float, Any]:
        """What the function returns for one observation, checked."""
        returned = self.function(observation, state)
        try:
            (action, features, value), state = returned
        except (TypeError, ValueError):
            raise InputError(
                f"{self.name}: it returned {_abbreviate(returned)}; it must be {SIGNATURE}."
            ) from None
        chosen = self._validate_action(action)
        try:
            found, worth = np.asarray(features, np.float32), float(value)
        except (TypeError, ValueError):
            raise InputError(
                f"{self.name}: its features {_abbreviate(features)} and its value {_abbreviate(value)} must "
                "be numbers."
            ) from None
        if found.ndim != 1 or not len(found):
            raise InputError(
                f"{self.name}: its features have the shape {found.shape} and must be a vector (k,)."
            )
        if not (np.isfinite(found).all() and np.isfinite(worth)):
            raise InputError(f"{self.name}: its features or its value are not finite numbers.")
        return chosen, found, worth, state

    def _validate_action(self, action: Any) -> int:
        try:
            chosen = operator.index(action)
        except TypeError:
            chosen = -1
        if not 0 <= chosen < self.num_actions:
            raise InputError(
                f"{self.name}: it chose the action {_abbreviate(action)}, and this game has the actions "
                f"0 to {self.num_actions - 1}, as whole numbers."
            )
        return chosen


def load(spec: str, num_actions: int) -> Agent:
    """The agent that is named `module:function`, or `file.py:function`.

    The name may stand for a function of the form above, for a class or a factory without
    arguments that makes such a callable, or for an object that is an Agent itself. Modules are also
    looked for in the current folder. This runs the module: name only what you trust.
    """
    where, _, attribute = spec.rpartition(":")
    module = _import_module(spec, where)
    try:
        found: Any = getattr(module, attribute)
    except AttributeError:
        known = [name for name in vars(module) if not name.startswith("_")]
        near = suggest_names(attribute, known) or "."
        raise InputError(f"{spec}: {where} has no {attribute!r}{near}") from None
    return make_agent(spec, found, num_actions)


def make_agent(name: str, target: Any, num_actions: int) -> Agent:
    """An agent from a function, from what makes one, or from an agent.

    >>> agent("idle", lambda: lambda observation, state: ((0, [1.0], 0.0), None), 6).num_features
    1
    """
    if isinstance(target, type) or (
        callable(target) and not _accepts_arguments(target, 2) and _accepts_arguments(target, 0)
    ):
        if not _accepts_arguments(target, 0):
            raise InputError(f"{name}: {name} needs arguments; give a factory that needs none.")
        target = target()
    if all(hasattr(target, each) for each in AGENT_ATTRIBUTES):
        checked: Agent = target
        return checked
    if not callable(target) or not _accepts_arguments(target, 2):
        raise InputError(
            f"{name}: {_abbreviate(target)} is no agent; it must be {SIGNATURE}, or a class or factory of one."
        )
    return FunctionAgent(name, target, num_actions)


def _accepts_arguments(function: Callable[..., Any], num_arguments: int) -> bool:
    """Whether a callable can be called with so many arguments; yes where nobody knows."""
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _import_module(spec: str, module_name: str) -> ModuleType:
    """A module by its name or its file, or one sentence that says why not."""
    path = Path(module_name)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise InputError(f"{spec}: there is no file {module_name}.")
    folder = str(path.resolve().parent) if is_file else os.getcwd()
    # After all others: a file there must not take the place of an installed package.
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return _execute_file(path.resolve()) if is_file else importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise InputError(f"{spec}: {module_name} cannot be imported ({reason}).") from None


def _execute_file(path: Path) -> ModuleType:
    """The module in a file, known by its path: its stem may be the name of another module."""
    loader = importlib.machinery.SourceFileLoader(str(path), str(path))
    spec = importlib.machinery.ModuleSpec(str(path), loader, origin=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(path)] = module
    loader.exec_module(module)
    return module


def _abbreviate(value: Any) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:57]}..."
