"""Python callables as agents.

A function f(observation, state[, context]) -> (action, features, value), state acts in one game.
"""

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, suggest_names
from bisimetric_atari.games.agent import (
    Agent,
    AgentOutput,
    BatchContext,
    get_observes,
    takes_context,
)
from bisimetric_atari.games.environments import Game, get_observation_shape

AgentFunction = Callable[..., tuple[tuple[Any, Any, Any], Any]]

SIGNATURE = "f(observation, state[, context]) -> (action, features, value), state"
AGENT_ATTRIBUTES = (
    "name",
    "num_actions",
    "num_features",
    "observation_shape",
    "initial_state",
    "act",
)
"""Attributes of an object that implements the Agent protocol itself."""


class GameContext(NamedTuple):
    """What else a function may need to act in one game.

    Attributes:
        is_first: whether an episode begins.
        executed_action: the action that the game executed in the step before: the function's own,
            or a random one; -1 where an episode begins.
        rng: a generator for functions that sample their actions; it depends on the seed and the
            index of the game.

    >>> GameContext(True, -1, np.random.default_rng(0)).executed_action
    -1
    """

    is_first: bool
    executed_action: int
    rng: np.random.Generator


class FunctionAgent:
    """Calls a function once per observation, with the state that it returned for that game before.

    The state is None at the start of each episode. A function with a third parameter receives a
    `GameContext`; one with an attribute `observes = "screen"` receives the RGB screen. The function
    is called once with a blank observation, to count its features.

    >>> from bisimetric_atari.games import find_game
    >>> def idle(observation, steps):
    ...     steps = (steps or 0) + 1
    ...     return (0, [observation.mean(), steps], 1.0), steps
    >>> agent = FunctionAgent("idle", idle, find_game("Pong"))
    >>> frames, state = np.zeros((2, 4, 84, 84), np.uint8), agent.initial_state(2)
    >>> for is_first in ([True, True], [False, True]):
    ...     output, state = agent.act(frames, state, np.array(is_first))
    >>> output.features.tolist()
    [[0.0, 2.0], [0.0, 1.0]]
    """

    def __init__(self, name: str, function: AgentFunction, game: Game) -> None:
        self.name, self.function, self.num_actions = name, function, len(game.actions)
        self.observes = get_observes(function)
        self.observation_shape = get_observation_shape(game, self.observes)
        self._takes_context = takes_context(function, 2)
        blank = np.zeros(self.observation_shape, np.uint8)
        blank.setflags(write=False)
        first = GameContext(True, -1, np.random.default_rng(0))
        self.num_features = len(self._call(blank, None, first)[1])

    def initial_state(self, num_envs: int) -> list[Any]:
        """Return no state for each game."""
        return [None] * num_envs

    def act(
        self,
        observations: NDArray[np.uint8],
        state: Sequence[Any],
        is_first: NDArray[np.bool_],
        context: BatchContext | None = None,
    ) -> tuple[AgentOutput, list[Any]]:
        """Call the function with each of the observations (n, *observation_shape)."""
        # A copy: the function may keep its input, and games may reuse their buffers.
        inputs = np.array(observations)
        inputs.setflags(write=False)
        action = np.empty(len(inputs), np.int64)
        features = np.empty((len(inputs), self.num_features), np.float32)
        value = np.empty(len(inputs), np.float32)
        states = []
        if context is None:
            unknown = [np.random.default_rng(n) for n in range(len(inputs))]
            context = BatchContext(np.full(len(inputs), -1), unknown)
        for n, (observation, old, first) in enumerate(zip(inputs, state, is_first, strict=True)):
            each = GameContext(bool(first), int(context.executed_actions[n]), context.rngs[n])
            action[n], vector, value[n], new = self._call(observation, None if first else old, each)
            if len(vector) != self.num_features:
                raise InputError(
                    f"{self.name}: it returned {len(vector)} features, and {self.num_features} for "
                    "its first observation; return the same number each time."
                )
            features[n] = vector
            states.append(new)
        return AgentOutput(action, features, value), states

    def _call(
        self, observation: Any, state: Any, context: GameContext
    ) -> tuple[int, NDArray[np.float32], float, Any]:
        """Call the function with one observation and validate its result."""
        arguments = (observation, state, context)
        returned = self.function(*(arguments if self._takes_context else arguments[:2]))
        try:
            (action, features, value), state = returned
        except (TypeError, ValueError):
            raise InputError(
                f"{self.name}: it returned {_abbreviate(returned)}; it must be {SIGNATURE}."
            ) from None
        index = self._validate_action(action)
        try:
            vector, number = np.asarray(features, np.float32), float(value)
        except (TypeError, ValueError):
            raise InputError(
                f"{self.name}: its features {_abbreviate(features)} and its value "
                f"{_abbreviate(value)} must be numbers."
            ) from None
        if vector.ndim != 1 or not len(vector):
            raise InputError(
                f"{self.name}: its features have shape {vector.shape} and must be a vector (k,)."
            )
        if not (np.isfinite(vector).all() and np.isfinite(number)):
            raise InputError(f"{self.name}: its features or its value are not finite numbers.")
        return index, vector, number, state

    def _validate_action(self, action: Any) -> int:
        """Return an action as an index; raise InputError outside of the game's actions."""
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < self.num_actions:
            raise InputError(
                f"{self.name}: it chose the action {_abbreviate(action)}, and this game has the "
                f"actions 0 to {self.num_actions - 1}, as whole numbers."
            )
        return index


def load(spec: str, game: Game) -> Agent:
    """Load the agent of `module:name` or `file.py:name`.

    The name is a function of the signature above, a class or factory without arguments that returns
    such a callable, or an object with the Agent protocol. Modules are also searched for in the
    current folder. The module is executed: name only trusted ones.
    """
    module_name, _, attribute = spec.rpartition(":")
    module = _import_module(spec, module_name)
    try:
        target: Any = getattr(module, attribute)
    except AttributeError:
        known = [name for name in vars(module) if not name.startswith("_")]
        near = suggest_names(attribute, known) or "."
        raise InputError(f"{spec}: {module_name} has no {attribute!r}{near}") from None
    return make_agent(spec, target, game)


def make_agent(name: str, target: Any, game: Game) -> Agent:
    """Return the agent of a function, a factory, or an agent itself.

    >>> from bisimetric_atari.games import find_game
    >>> def factory():
    ...     return lambda observation, state: ((0, [1.0], 0.0), None)
    >>> make_agent("idle", factory, find_game("Pong")).name
    'idle'
    """
    if isinstance(target, type) or (
        callable(target) and not _is_function(target) and _accepts_arguments(target, 0)
    ):
        if not _accepts_arguments(target, 0):
            raise InputError(f"{name}: {name} needs arguments; give a factory that needs none.")
        target = target()
    if all(hasattr(target, attribute) for attribute in AGENT_ATTRIBUTES):
        agent: Agent = target
        return agent
    if not callable(target) or not _is_function(target):
        raise InputError(
            f"{name}: {_abbreviate(target)} is no agent; it must be {SIGNATURE}, or a class or "
            "factory of one."
        )
    return FunctionAgent(name, target, game)


def _is_function(target: Callable[..., Any]) -> bool:
    """Return whether a callable accepts an observation and a state, and perhaps a context."""
    return _accepts_arguments(target, 2) or _accepts_arguments(target, 3)


def _accepts_arguments(function: Callable[..., Any], num_arguments: int) -> bool:
    """Return whether a callable accepts this many arguments; True where unknown."""
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _import_module(spec: str, module_name: str) -> ModuleType:
    """Import a module by its name or its file; an InputError gives the reason of a failure."""
    path = Path(module_name)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise InputError(f"{spec}: there is no file {module_name}.")
    folder = str(path.resolve().parent) if is_file else os.getcwd()
    # Last: a file there must not shadow an installed package.
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return _execute_file(path.resolve()) if is_file else importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise InputError(f"{spec}: {module_name} cannot be imported ({reason}).") from None


def _execute_file(path: Path) -> ModuleType:
    """Execute a file as a module named by its path, since its stem may name another module."""
    loader = importlib.machinery.SourceFileLoader(str(path), str(path))
    spec = importlib.machinery.ModuleSpec(str(path), loader, origin=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(path)] = module
    loader.exec_module(module)
    return module


def _abbreviate(value: Any) -> str:
    """Return the representation of a value in at most 60 characters."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:57]}..."
