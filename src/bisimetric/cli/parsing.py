"""Parse errors in one sentence, from the boxes that tyro prints; and the flags of a command."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from bisimetric.errors import suggest_names

Commands = Mapping[tuple[str, ...], Callable[..., Any]]
"""The functions of the commands, by the words of each command."""

WIDE_COLUMNS = "10000"
"""Width of a terminal in which tyro breaks no line."""

ANSI = re.compile(r"\x1b\[[0-9;]*m")
UNKNOWN = re.compile(
    r"Unrecognized (?:or misplaced )?options: (.*?)(?: Arguments are applied to .*)?"
)
NUMBER_MESSAGES = {
    r"could not convert string to float: ('.*')": r"\1 is not a number",
    r"invalid literal for int\(\) with base 10: ('.*')": r"\1 is not a whole number",
}
"""Python's messages for text that is not a number, and those of the command line."""

SYNONYMS = {
    "--key": ("--seed",),
    "--keys": ("--num-seeds",),
    "--random-state": ("--seed",),
    "--gamma": ("--discount",),
    "--lr": ("--learning-rate",),
    "--batch": ("--batch-size",),
    "--epochs": ("--updates",),
    "--iterations": ("--updates", "--max-iterations"),
    "--steps": ("--updates", "--max-iterations"),
    "--updates": ("--steps",),
    "--every": ("--log-every", "--checkpoint-every"),
    "--png": ("--plot-clusters", "--plot-radius", "--plot-policy", "--plot-embedding"),
    "--plot": ("--plot-map", "--plot-curves"),
    "--table": ("--matrix", "--distance"),
}
"""Flags that users may expect, and flags with that meaning."""


class ParseError(Exception):
    """A command line that cannot be parsed; the message is one sentence."""


def list_flags(function: Callable[..., Any]) -> dict[str, str]:
    """Return the flags of a command by the names of its parameters and of their fields.

    >>> def command(seed: int, learning_rate: float = 0.1) -> None: ...
    >>> list_flags(command)
    {'seed': '--seed', 'learning_rate': '--learning-rate'}
    """
    flags: dict[str, str] = {}
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        if name == "return":
            continue
        metadata = getattr(hint, "__metadata__", ()) if typing.get_origin(hint) is Annotated else ()
        plain = typing.get_args(hint)[0] if metadata else hint
        if dataclasses.is_dataclass(plain):
            flags.update(list_flags(plain))  # type: ignore[arg-type]
        elif not any("Positional" in repr(each) for each in metadata):
            names = [getattr(each, "name", None) for each in metadata]
            shown = next((each for each in names if isinstance(each, str)), name)
            flags[name] = f"--{shown.replace('_', '-')}"
    return flags


@contextlib.contextmanager
def capture_parse_errors(arguments: Sequence[str], commands: Commands) -> Iterator[None]:
    """Raise a ParseError in place of the box that tyro prints to stderr before it exits."""
    columns, printed = os.environ.get("COLUMNS"), io.StringIO()
    wide = not {"-h", "--help"} & {*arguments}
    try:
        if wide:
            os.environ["COLUMNS"] = WIDE_COLUMNS
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit as stop:
        if not stop.code or not printed.getvalue():
            raise
        raise ParseError(describe_error(printed.getvalue(), arguments, commands)) from None
    finally:
        if wide:
            os.environ.pop("COLUMNS", None)
            if columns is not None:
                os.environ["COLUMNS"] = columns


def describe_error(box: str, arguments: Sequence[str], commands: Commands) -> str:
    """Return the sentence of a box, and the command whose help explains more.

    >>> box = "╭─ Value error ─╮\\n│ Error parsing --k: could not convert string to float: 'x' │"
    >>> describe_error(box, ["show", "d.npz", "--k", "x"], {("show",): print})
    "--k: 'x' is not a number; see `bisimetric show --help`."
    """
    command = _find_command(arguments, commands)
    parts = _split_box(box)
    words = _shorten(" ".join(" ".join(parts[0]).split()) if parts else "it cannot be parsed")
    unknown = UNKNOWN.fullmatch(words)
    if unknown is not None:
        # Flags of other commands are listed with the command that they were given to.
        names = re.sub(r" \(applied to [^)]*\)", ",", unknown[1]).rstrip(",")
        words = f"unknown argument {names}{_suggest(parts[1:], names, command, commands)}"
    elif words.startswith("Missing from"):
        # The options are indented once, what they mean is indented twice.
        missing = [line.strip() for line in parts[0] if re.match(r" {4}\S", line)]
        words = f"missing {' and '.join(missing)}"
    words = words.rstrip(".!")
    more = " See" if words.endswith("?") else "; see"
    return f"{words}{more} `{' '.join(['bisimetric', *command, '--help'])}`."


def _split_box(box: str) -> list[list[str]]:
    """Return the lines of a box between its rules, without title, borders and hints.

    Without Unicode, tyro prints the title on its own line, and spaces as borders.
    """
    lines = ANSI.sub("", box).splitlines()
    plain = not any(line.startswith("│") for line in lines)
    parts: list[list[str]] = [[]]
    for line in lines[1:] if plain else lines:
        if line.startswith(("╭", "╰")):
            continue
        inner = (line.removeprefix("  ") if plain else line.removeprefix("│ ")).rstrip("│ ")
        if inner and not inner.strip("─- "):
            parts.append([])
        elif inner:
            parts[-1].append(inner)
    hints = ("For full helptext", "Argument helptext:")
    return [part for part in parts if part and not part[0].startswith(hints)]


def _shorten(message: str) -> str:
    """Shorten tyro's message about an unusable value; its types are left out."""
    message = (
        message.partition(" Got errors: ")[0]
        if "Got errors" not in message
        else _shorten_union(message)
    )
    message = message.removeprefix("Error parsing ")
    for pattern, text in NUMBER_MESSAGES.items():
        message = re.sub(pattern, text, message)
    choice = re.fullmatch(
        r"invalid choice ('.*') for argument '(.*)'\. Expected one of \((.*?),?\)\.", message
    )
    if choice is not None:
        return f"{choice[2]} is {choice[1]} and must be one of {choice[3]}"
    lacking = re.fullmatch(r"Missing value for argument '(.*)'\. Expected (\d+) values?\.", message)
    if lacking is not None:
        return f"{lacking[1]} needs {'a value' if lacking[2] == '1' else f'{lacking[2]} values'}"
    wanted = re.fullmatch(r"Expected one of \{(.*)\}\.", message)
    return f"a command is missing: one of {wanted[1]}" if wanted is not None else message


def _shorten_union(message: str) -> str:
    """Return the message of the last of several accepted types."""
    name, _, rest = message.partition(": ")
    reasons = re.split(r" - <class '\w+'>: ", rest.partition("Got errors:")[2])
    return f"{name}: {reasons[-1]}"


def _find_command(arguments: Sequence[str], commands: Commands) -> tuple[str, ...]:
    """Return the command, or the group of commands, that a command line starts with."""
    for count in (2, 1):
        words = tuple(arguments[:count])
        if len(words) == count and any(path[:count] == words for path in commands):
            return words
    return ()


def _suggest(
    parts: Sequence[Sequence[str]],
    unknown: str,
    command: tuple[str, ...],
    commands: Commands,
) -> str:
    """Return the clause `; did you mean ...?` with flags or commands that resemble `unknown`."""
    first = unknown.replace(",", " ").split()[0].partition("=")[0] if unknown else ""
    accepted = {*list_flags(commands[command]).values()} if command in commands else set()
    guesses = [flag for flag in SYNONYMS.get(first, ()) if flag in accepted] or [
        max(re.findall(r"--?\w[\w-]*", line), key=lambda flag: _similarity(flag, first))
        for part in parts
        for line in part
        if re.match(r" {4}-", line)
    ]
    guesses = [flag for flag in guesses if flag in accepted or not accepted]
    if guesses and first.startswith("-"):
        return f"; did you mean {' or '.join(dict.fromkeys(guesses[:3]))}?"
    here = {path[len(command)] for path in commands if path[: len(command)] == command != path}
    others = f"; use one of {', '.join(sorted(here))}" if here else ""
    return suggest_names(first, sorted(here)) or others


def _similarity(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()
