"""Reference pages from the package itself: the Python API and the command line."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
from pathlib import Path
from types import ModuleType

from bisimetric.cli._main import list_commands, main
from bisimetric.cli.parsing import ANSI

MODULES = [
    "bisimetric",
    "bisimetric.worlds",
    "bisimetric.datasets",
    "bisimetric.planning",
    "bisimetric.relation",
    "bisimetric.exact",
    "bisimetric.exact.gaps",
    "bisimetric.exact.sharded",
    "bisimetric.sampled",
    "bisimetric.learned",
    "bisimetric.learned.castro2020",
    "bisimetric.losses",
    "bisimetric.losses.torch",
    "bisimetric.uses",
    "bisimetric.views",
    "bisimetric.explorer",
    "bisimetric.paper",
    "bisimetric.cli",
    "bisimetric.errors",
    "bisimetric_atari.games",
    "bisimetric_atari.agents",
    "bisimetric_atari.views",
    "bisimetric_atari.paper",
]
"""The public modules, in the order of the pages."""

WIDE_COLUMNS = "1000"
"""Width of a terminal in which no line of help is broken."""


def write_api_pages(folder: Path) -> None:
    """Write one page per public module, and an overview with the first line of each docstring.

    Args:
        folder: where to write them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    overview = ["# Python API\n"]
    for name in MODULES:
        module = importlib.import_module(name)
        summary = (inspect.getdoc(module) or "").partition("\n")[0]
        page = f"{name.removeprefix('bisimetric.')}.md"
        overview += [f"## [`{name}`]({page})\n", f"{summary}\n"]
        entries = [f"# `{name}`\n", f"{summary}\n"]
        for member in list_members(module):
            line = (inspect.getdoc(getattr(module, member)) or "").partition("\n")[0]
            overview.append(f"- [`{member}`]({page}#{name}.{member}): {line}")
            entries.append(f"::: {name}.{member}\n")
        for part in list_modules(module):
            line = (inspect.getdoc(getattr(module, part)) or "").partition("\n")[0]
            overview.append(f"- [`{part}`]({page}#{name}.{part}): {line}")
            entries += [f"## `{name}.{part}` {{ #{name}.{part} }}\n", f"{line}\n"]
            for member in list_documented_members(getattr(module, part)):
                entries.append(
                    f"::: {name}.{part}.{member}\n    options:\n      heading_level: 3\n"
                )
        overview.append("")
        (folder / page).write_text("\n".join(entries), encoding="utf-8")
    (folder / "index.md").write_text("\n".join(overview), encoding="utf-8")


def list_members(module: ModuleType) -> list[str]:
    """Return the public names of a module that are no modules themselves.

    >>> import bisimetric.exact
    >>> list_members(bisimetric.exact)[:4]
    ['Potential', 'QueryResult', 'asynchronous', 'bisimulation']
    """
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def list_modules(module: ModuleType) -> list[str]:
    """Return the public modules of a package that have no page of their own.

    >>> import bisimetric.paper
    >>> list_modules(bisimetric.paper)[:3]
    ['algorithms', 'claims', 'convergence']
    """
    return [
        name
        for name in getattr(module, "__all__", ())
        if inspect.ismodule(getattr(module, name)) and f"{module.__name__}.{name}" not in MODULES
    ]


def list_documented_members(module: ModuleType) -> list[str]:
    """Return the functions and classes of a module whose docstrings describe arguments or fields.

    Helpers that only their own package calls do not.

    >>> from bisimetric.paper import gridworld
    >>> list_documented_members(gridworld)
    ['GridworldCurves', 'draw_figures', 'measure', 'reproduce']
    """
    members = {name: getattr(module, name) for name in list_members(module)}
    return sorted(
        name
        for name, value in members.items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and re.search(r"^(Args|Attributes):$", inspect.getdoc(value) or "", re.M)
    )


def write_cli_page(path: Path) -> None:
    """Write the reference of all commands: usage, options and examples, from their `--help`.

    Args:
        path: the page.
    """
    lines = [
        "# Command line\n",
        "Each command has a Python counterpart of the same name; `--help` prints this text.\n",
    ]
    group = ""
    commands, group_help = list_commands()
    for words in commands:
        if words[0] in group_help and words[0] != group:
            group = words[0]
            lines += [f"## {group}\n", f"{group_help[group]}\n"]
        level = "###" if words[0] in group_help else "##"
        lines.append(f"{level} bisimetric {' '.join(words)}\n")
        lines.append(format_help(read_help(words)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def read_help(words: tuple[str, ...]) -> str:
    """Return what a command prints with `--help`, in long lines."""
    # tyro prints boxes only to a stream that can encode them.
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDE_COLUMNS
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    printed.seek(0)
    return ANSI.sub("", printed.read())


def format_help(text: str) -> str:
    """Return the help of a command as Markdown.

    Args:
        text: as tyro prints it: boxes with a title, a description, a rule, and entries.

    Returns:
        The usage, a table of options per box, and the examples.
    """
    boxes, _, examples = text.partition("examples:\n")
    usage, *rest = boxes.strip().splitlines()
    lines = ["```text", usage.removeprefix("usage: "), "```", ""]
    for line in rest:
        inner = line.strip("│").rstrip()
        if line.startswith("╭"):
            title = line.strip("╭╮─ ")
            lines += [f"**{title[0].upper()}{title[1:]}**", ""]
            entries: list[list[str]] = []
        elif line.startswith("╰"):
            column = "Argument" if title.startswith("positional") else "Option"
            lines += [f"| {column} | Meaning |", "|---|---|"]
            lines += [f"| `{name}` | {escape(words)} |" for name, words in entries]
            lines.append("")
        elif line.startswith("│"):
            lines += add_entry(entries, inner)
        elif line.strip():
            lines += [escape(line), ""]
    commands = "\n".join(line.strip() for line in examples.splitlines())
    return "\n".join([*lines, "```sh", commands, "```", ""])


def add_entry(entries: list[list[str]], line: str) -> list[str]:
    """Add one line of a box to its entries; return the lines that describe the box itself."""
    found = re.match(r" (-\S.*?|[A-Z_\[{].*?)(?:\s{2,}(.*))?$", line)
    if not line.strip("─ "):
        description = [escape(name) + "\n" for name, _ in entries]
        entries.clear()
        return description
    if line.startswith("  ") and entries:
        entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
    elif found:
        entries.append([found[1], found[2] or ""])
    else:
        entries.append([line.strip(), ""])
    return []


def escape(text: str) -> str:
    """Escape what Markdown tables and HTML would interpret, outside code spans."""
    parts = text.strip().split("`")
    for index in range(0, len(parts), 2):
        parts[index] = parts[index].replace("<", "&lt;").replace("*", "\\*")
    return "`".join(parts).replace("|", "\\|")
