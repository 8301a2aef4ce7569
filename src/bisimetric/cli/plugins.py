"""Groups of commands that other distributions add, through the entry points `bisimetric.commands`.

An entry point of this group has the name of the group of commands, and loads a `CommandGroup`:

    [project.entry-points."bisimetric.commands"]
    atari = "bisimetric_atari.cli:COMMANDS"
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from typing import Any

from bisimetric.errors import InputError

ENTRY_POINTS = "bisimetric.commands"
KNOWN_DISTRIBUTIONS = {"atari": "bisimetric-atari"}
"""Distributions of this project with commands of their own, by the group of commands."""


class PluginWarning(UserWarning):
    """The commands of another distribution cannot be loaded; all others work."""


@dataclasses.dataclass(frozen=True)
class CommandGroup:
    """Commands of another distribution: `bisimetric <group> <command>`.

    Each command is a function with annotated arguments, which become its flags (see tyro), and a
    docstring, which becomes its help: a summary, `Args:` and `Examples:`. It returns None or an
    exit code, and reports bad input by `bisimetric.InputError`. Heavy packages are best imported
    inside the functions, so that `--help` is fast.

    Args:
        help: one sentence on the group.
        commands: the functions, by the names of the commands.

    >>> def greet(name: str) -> None:
    ...     '''Print a greeting.'''
    >>> CommandGroup("Examples of commands.", {"greet": greet}).help
    'Examples of commands.'
    """

    help: str
    commands: Mapping[str, Callable[..., int | None]]


def load_groups(words: Collection[str], reserved: Collection[str]) -> dict[str, CommandGroup]:
    """Load the groups that other distributions add.

    Args:
        words: the words of the command line; a group that it names must load.
        reserved: the names of built-in commands.

    Returns:
        The groups by name; one that fails to load is left out with a warning.

    Raises:
        InputError: the command line names a group that is not installed or fails to load.
    """
    groups: dict[str, CommandGroup] = {}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            groups[entry.name] = _load_group(entry, reserved)
        except Exception as error:  # the code of another distribution may raise anything
            reason = str(error) if isinstance(error, InputError) else f"{error!r}"
            message = (
                f"the commands {entry.name!r} of {_describe_source(entry)} cannot be loaded: "
                f"{reason.rstrip('.')}"
            )
            if entry.name in words:
                raise InputError(f"{message}; reinstall or remove it.") from error
            warnings.warn(message, PluginWarning, stacklevel=2)
    for name, distribution in KNOWN_DISTRIBUTIONS.items():
        if name in words and name not in groups:
            raise InputError(
                f"the commands of `bisimetric {name}` are in another distribution; pip install "
                f"{distribution}."
            )
    return groups


def _load_group(entry: metadata.EntryPoint, reserved: Collection[str]) -> CommandGroup:
    if entry.name in reserved:
        raise InputError("there is a built-in command of that name")
    group: Any = entry.load()
    if not isinstance(group, CommandGroup) or not group.commands:
        raise InputError(
            f"{entry.value} is {type(group).__name__} and must be a CommandGroup with commands"
        )
    return group


def _describe_source(entry: metadata.EntryPoint) -> str:
    """Return the name of the distribution of an entry point, or its value where unknown."""
    return entry.value if entry.dist is None else entry.dist.name
