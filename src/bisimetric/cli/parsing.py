"""What is wrong with a command line, in one sentence: tyro's boxes, read and shortened."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Collection, Iterator, Sequence

from bisimetric.errors import suggest_names

WIDE_COLUMNS = "10000"
"""Columns of a terminal in which tyro breaks no line."""

ANSI = re.compile(r"\x1b\[[0-9;]*m")
NUMBER_MESSAGES = {
    r"could not convert string to float: ('.*')": r"\1 is no number",
    r"invalid literal for int\(\) with base 10: ('.*')": r"\1 is no whole number",
}
"""What Python says of a word that is no number, and how it is said here."""


class ParseError(Exception):
    """A command line that cannot be parsed; the message is one sentence."""


@contextlib.contextmanager
def capture_parse_errors(
    arguments: Sequence[str], commands: Collection[tuple[str, ...]]
) -> Iterator[None]:
    """Raises a ParseError in place of the box that tyro prints to stderr before it exits.

    `commands` are the words that each command starts with.
    """
    columns, said = os.environ.get("COLUMNS"), io.StringIO()
    wide = not {"-h", "--help"} & {*arguments}
    try:
        if wide:
            os.environ["COLUMNS"] = WIDE_COLUMNS
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as stop:
        if not stop.code or not said.getvalue():
            raise
        raise ParseError(describe_error(said.getvalue(), arguments, commands)) from None
    finally:
        if wide:
            os.environ.pop("COLUMNS", None)
            if columns is not None:
                os.environ["COLUMNS"] = columns


def describe_error(
    box: str, arguments: Sequence[str], commands: Collection[tuple[str, ...]]
) -> str:
    """The sentence of a box, with the command whose help says more.

    >>> box = "╭─ Value error ─╮\\n│ Error parsing --k: could not convert string to float: 'x' │"
    >>> describe(box, ["show", "d.npz", "--k", "x"], [("show",)])
    "--k: 'x' is no number; see `bisimetric show --help`."
    """
    command = _find_command(arguments, commands)
    parts = _split_box(box)
    words = _shorten(" ".join(" ".join(parts[0]).split()) if parts else "it cannot be parsed")
    unknown = re.fullmatch(r"Unrecognized options: (.*)", words)
    if unknown is not None:
        words = f"unknown argument {unknown[1]}{_suggest(parts[1:], unknown[1], command, commands)}"
    elif words.startswith("Missing from"):
        # The options are indented once, what they mean is indented twice.
        names = [line.strip() for line in parts[0] if re.match(r" {4}\S", line)]
        words = f"missing {' and '.join(names)}"
    words = words.rstrip(".!")
    more = " See" if words.endswith("?") else "; see"
    return f"{words}{more} `{' '.join(['bisimetric', *command, '--help'])}`."


def _split_box(box: str) -> list[list[str]]:
    """The lines of a box between its rules, without title and borders; hints are left out.

    A terminal without Unicode gets the title in a line of its own, and spaces as borders.
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
    """tyro's words of a value that cannot be used, without its types."""
    message = (
        message.partition(" Got errors: ")[0]
        if "Got errors" not in message
        else _shorten_union(message)
    )
    message = message.removeprefix("Error parsing ")
    for found, said in NUMBER_MESSAGES.items():
        message = re.sub(found, said, message)
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
    """Of a value that may have several types, what the last one says of it."""
    name, _, rest = message.partition(": ")
    reasons = re.split(r" - <class '\w+'>: ", rest.partition("Got errors:")[2])
    return f"{name}: {reasons[-1]}"


def _find_command(
    arguments: Sequence[str], commands: Collection[tuple[str, ...]]
) -> tuple[str, ...]:
    """The words of the command, or of the group of commands, that a command line starts with."""
    for count in (2, 1):
        words = tuple(arguments[:count])
        if len(words) == count and any(path[:count] == words for path in commands):
            return words
    return ()


def _suggest(
    parts: Sequence[Sequence[str]],
    unknown: str,
    command: tuple[str, ...],
    commands: Collection[tuple[str, ...]],
) -> str:
    """The clause `; did you mean ...?` with tyro's guesses, or with the names of commands."""
    guesses = [
        line.split()[0].rstrip(",") for part in parts for line in part if re.match(r" {4}-", line)
    ]
    first = unknown.partition(",")[0]
    if guesses and first.startswith("-"):
        return f"; did you mean {' or '.join(dict.fromkeys(guesses[:3]))}?"
    here = {path[len(command)] for path in commands if path[: len(command)] == command != path}
    others = f"; use one of {', '.join(sorted(here))}" if here else ""
    return suggest_names(first, sorted(here)) or others
