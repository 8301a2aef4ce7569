"""Every command in README.md and docs parses. Shell completion works."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisimetric.cli._main import list_commands as load_commands
from bisimetric.cli._main import parse
from tests.commands import Run, assert_input_error

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "atari" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS, _ = load_commands()
EXAMPLE_GROUP = "lake"
"""The group of commands that docs/how-to/commands.md defines."""


def list_commands(text: str) -> Iterator[str]:
    """The command lines in a page: indented or fenced lines, and code spans in the text."""
    text = re.sub(r"\s*\\\n\s*", " ", text)
    for line in text.splitlines():
        found = re.match(r"^(?: {4}|\t)?(?:\$ )?(?:(?:srun|mpirun) .*?)?(bisimetric .*)$", line)
        if found and ", version " not in line:
            yield found[1].partition(" #")[0].strip()
    # The formats of files are named "bisimetric ..., version N".
    yield from re.findall(r"`(bisimetric (?![^`]*, version )[^`]+)`", text.replace("\n", " "))


def is_complete(words: list[str]) -> bool:
    """Whether words name a command with its arguments, and not only a command."""
    path = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
    return path in COMMANDS and (len(words) > len(path) or path in {("worlds",), ("demo",)})


def collect() -> list[tuple[str, str]]:
    found = dict.fromkeys(
        (str(page.relative_to(ROOT)), command)
        for page in PAGES
        for command in list_commands(page.read_text(encoding="utf-8"))
        if "..." not in command and command.split()[1] != EXAMPLE_GROUP
    )
    return list(found)


def test_commands_are_found() -> None:
    text = "Text `bisimetric show d.npz`:\n\n    bisimetric worlds   # all\n"
    text += "    srun -n 2 bisimetric x \\\n      --json\n"
    assert list(list_commands(text)) == [
        "bisimetric worlds",
        "bisimetric x --json",
        "bisimetric show d.npz",
    ]
    assert len(collect()) > 60


@pytest.mark.parametrize(("page", "command"), collect())
def test_commands_in_the_documentation_parse(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    if words[0].startswith("--"):
        assert words[0] in ("--help", "--version", "--tyro-write-completion"), page
        return
    assert any(path[: len(words[:1])] == tuple(words[:1]) for path in COMMANDS), page
    if not is_complete(words):
        return
    if words[0] == "launch":
        words = words[words.index("--") + 1 :]
        if words[0] != "bisimetric":
            return
        words = words[1:]
    assert callable(parse(words)), page


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shell_completion_is_written(run: Run, shell: str, tmp_path: Path) -> None:
    assert run("--tyro-write-completion", shell, "completion").code == 0
    text = (tmp_path / "completion").read_text(encoding="utf-8")
    assert "bisimetric" in text
    assert "plot-map" in text
    if shell == "bash":
        subprocess.run(["bash", "-n", str(tmp_path / "completion")], check=True)


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("exact bisimulation pessimism --key 3", "--seed"),
        ("reproduce convergence --keys 3", "--num-seeds"),
        ("learned bisimulation pessimism --steps 3", "--updates"),
        ("learned bisimulation pessimism --lr 3", "--learning-rate"),
        ("exact lax pessimism --plot m.png", "--plot-map"),
        ("sharded bisimulation random --every 3", "--checkpoint-every"),
        ("exact lax pessimism --disount 3", "--discount"),
    ],
)
def test_expected_flags_are_suggested(run: Run, words: str, suggestion: str) -> None:
    result = run(*words.split())
    assert result.code == 2
    assert f"did you mean {suggestion}?" in result.err


def test_seeds_is_the_number_of_seeds(run: Run) -> None:
    result = run("reproduce", "convergence", "--seeds", "0")
    assert_input_error(result, "--num-seeds is 0")


def test_gamma_is_the_discount(run: Run) -> None:
    assert "discount 0.5" in run("exact", "lax", "pessimism", "--gamma", "0.5").out
