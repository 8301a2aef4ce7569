"""Gymnasium environments by id: made, with every mistake in one sentence."""

from __future__ import annotations

import importlib
import os
import re
from typing import Any

from bisimetric.errors import InputError, suggest_names

ID_PATTERN = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.:-]+-v\d+")
MINIGRID_PREFIXES = ("MiniGrid-", "BabyAI-")
"""How the ids of MiniGrid's environments start."""

DEFAULT_DISCOUNT = 0.99
"""The discount of an environment: Gymnasium's have none of their own."""

TERMINAL = "end"
"""The name of the state that episodes end in, where the environment has none of its own."""

INSTALL_HINT = "pip install 'bisimetric[worlds]'"


def is_environment_id(name: str) -> bool:
    """Whether a name has the form of a Gymnasium id, with its version.

    >>> looks_like_id("FrozenLake-v1"), looks_like_id("ALE/Pong-v5"), looks_like_id("rooms.txt")
    (True, True, False)
    """
    return ID_PATTERN.fullmatch(name) is not None


def make_environment(
    environment: Any, options: dict[str, Any], *, unwrap: bool = True
) -> tuple[Any, str]:
    """An environment given as such or by id, and what to call it in messages.

    `bare` takes the wrappers off of one that is given by id: the limit of time, above all.
    """
    if not isinstance(environment, str):
        name = getattr(getattr(environment, "spec", None), "id", None)
        if not (hasattr(environment, "unwrapped") and hasattr(environment, "step")):
            raise InputError(
                f"worlds: {type(environment).__name__} is no Gymnasium environment; give one, or "
                "its id, such as 'FrozenLake-v1'."
            )
        where = name or type(environment.unwrapped).__name__
        if options:
            raise InputError(
                f"{where}: option {next(iter(options))!r} is for environments given by id; give "
                "it to gymnasium.make."
            )
        return environment, where
    gymnasium = import_optional("gymnasium", environment)
    if environment.lower().startswith(tuple(map(str.lower, MINIGRID_PREFIXES))):
        import_optional("minigrid", environment)
    if environment not in gymnasium.registry and ":" not in environment:
        raise InputError(_describe_unknown_id(gymnasium, environment))
    try:
        found = gymnasium.make(environment, disable_env_checker=True, **options)
    except Exception as error:
        # Whatever an environment raises on its options is about its options.
        raise InputError(f"{environment}: cannot be made ({_format_error(error)}).") from None
    return found.unwrapped if unwrap else found, environment


def list_registered_ids() -> list[str]:
    """The ids that Gymnasium and MiniGrid know, or none where they are not installed."""
    try:
        import_optional("minigrid", "worlds")
        return list(import_optional("gymnasium", "worlds").registry)
    except InputError:
        return []


def is_minigrid(environment: Any) -> bool:
    """Whether an environment is one of MiniGrid's."""
    return any(each.__name__ == "MiniGridEnv" for each in type(environment.unwrapped).__mro__)


def read_actions(environment: Any, caller: str) -> range:
    """The actions of an environment with a Discrete action space."""
    space = environment.action_space
    count, start = getattr(space, "n", None), getattr(space, "start", 0)
    if count is None:
        raise InputError(
            f"{caller}: its actions are {space} and must be Discrete, finitely many and numbered."
        )
    return range(int(start), int(start) + int(count))


def import_optional(package: str, caller: str) -> Any:
    """An optional package, or one sentence that says what needs it and how to install it."""
    # Pygame greets on standard output when MiniGrid imports it.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(f"{caller}: {package} is not installed; {INSTALL_HINT}.") from None


def _describe_unknown_id(gymnasium: Any, environment_id: str) -> str:
    """What to say of an id that is not registered: newer versions, near names, where it may be."""
    stem = environment_id.rpartition("-v")[0]
    same = [each for each in gymnasium.registry if each.rpartition("-v")[0] == stem]
    if same:
        return f"worlds: there is no environment {environment_id!r}; there is {' and '.join(same)}."
    near = suggest_names(environment_id, gymnasium.registry)
    return (
        f"worlds: there is no environment {environment_id!r} in Gymnasium{near or '.'} One of another "
        "package is named 'package:id', or made first and given as it is."
    )


def _format_error(error: Exception) -> str:
    """Gymnasium's own words, without what it adds about keyword arguments."""
    said = str(error).partition(" was raised from the environment creator")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
