"""The code of both READMEs and of each documentation page runs, block by block.

Blocks of a page run in order, in an empty folder: `python` and `pycon` blocks share one namespace,
and commands of `sh` blocks run in this process. A comment `<!-- skip: reason -->` above a block
excludes it; `<!-- slow -->` in a page marks its test slow; `<!-- setup: name -->` copies a file of
tests/documentation into the folder first.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.commands import Run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "atari" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- skip: (?P<reason>[^\n]+?) -->\n+)?"
    r"(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
LONGEST_LINE = 100


class Block(NamedTuple):
    """A fenced block: its language, its code, its line, and why it is excluded, if it is."""

    language: str
    code: str
    line: int
    reason: str | None


def find_blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(
            found["language"],
            re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
            text.count("\n", 0, found.start("code")) + 1,
            found["reason"],
        )
        for found in BLOCK.finditer(text)
    ]


def list_pages() -> list[Any]:
    cases = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if any(block.language in ("python", "pycon", "sh") for block in find_blocks(text)):
            marks = [pytest.mark.slow] if "<!-- slow -->" in text else []
            cases.append(pytest.param(page, marks=marks, id=str(page.relative_to(ROOT))))
    return cases


def run_doctest(code: str, name: str, namespace: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(code, namespace, name, name, 0)
    failures: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)
    namespace.update(test.globs)


def test_blocks_are_found() -> None:
    text = (
        "Text\n\n```sh\nbisimetric worlds\n```\n\n<!-- skip: needs a GPU -->\n```python\nx\n```\n"
    )
    assert find_blocks(text) == [
        Block("sh", "bisimetric worlds\n", 4, None),
        Block("python", "x\n", 9, "needs a GPU"),
    ]


@pytest.mark.parametrize("page", list_pages())
def test_code_runs(page: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- setup: (.+?) -->", text):
        shutil.copy(ROOT / "tests" / "documentation" / name, tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in find_blocks(text):
        if block.reason is not None:
            continue
        where = f"{page.name}, line {block.line}"
        if block.language == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
        elif block.language == "pycon":
            run_doctest(block.code, where, namespace)
        elif block.language == "sh":
            for command in block.code.replace("\\\n", " ").splitlines():
                words = shlex.split(command, comments=True)
                if not words:
                    continue
                assert words[0] == "bisimetric", f"{where}: skip `{command}`, with a reason"
                result = run(*words[1:])
                assert result.code == 0, f"{where}: `{command}`: {result.err}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short(page: Path) -> None:
    """Lines of prose end before column 100; tables, links, images and code may be longer."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    long = [
        line
        for line in text.splitlines()
        if len(line) > LONGEST_LINE and not line.lstrip().startswith(("|", "!", "[", "<"))
    ]
    assert not long, long[0]
