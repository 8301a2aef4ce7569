"""The mutation tester: its mutants, the tests of a module, and which mutants survive."""

from __future__ import annotations

from pathlib import Path

import pytest

import mutate

TOY = '''"""A toy: 1 < 2."""
LIMIT = 3


def rounded_up(residual: float, largest: float = 5.0) -> float:
    """The residual + 1."""
    if residual < 0:
        raise ValueError(f"{residual + 1} is below 0")
    return residual + 0.5 * largest


def both(a: list[int], *, wait: int = 0) -> bool:
    n = 0
    while n < wait:
        n += 1
    return all(a) and max(a, default=LIMIT) <= LIMIT
'''


def mutate_line(source: str, line: int) -> set[str]:
    sources = [m for m in mutate.mutants(source) if m.line == line]
    return {m.apply(source).splitlines()[line - 1].strip() for m in sources}


def test_mutants_change_one_expression() -> None:
    assert mutate_line(TOY, 2) == {"LIMIT = 0", "LIMIT = 1", "LIMIT = 6"}
    assert mutate_line(TOY, 7) == {
        "if not residual < 0:",
        "if residual <= 0:",
        "if residual < 1:",
    }
    assert mutate_line(TOY, 9) == {
        "return residual - 0.5 * largest",
        "return residual",
        "return 0.5 * largest",
        "return residual + 0 * largest",
        "return residual + 1 * largest",
    }
    assert {
        "return (all(a) or max(a, default=LIMIT) <= LIMIT)",
        "return any(a) and max(a, default=LIMIT) <= LIMIT",
        "return all(a) and min(a, default=LIMIT) <= LIMIT",
        "return all(a) and max(a, default=LIMIT) < LIMIT",
    } == mutate_line(TOY, 16)


def test_docstrings_messages_annotations_and_defaults_stay() -> None:
    lines = {m.line for m in mutate.mutants(TOY)}
    assert lines == {2, 7, 9, 13, 14, 15, 16}


@pytest.mark.parametrize("source", ["y = (a - (b + c)).max()", "y = é + 1", "y = -(a + b) * c"])
def test_a_mutant_is_a_program_and_not_the_original(source: str) -> None:
    sources = [m.apply(source) for m in mutate.mutants(source)]
    assert sources
    assert source not in sources
    for text in sources:
        compile(text, "mutant", "exec")


def test_only_the_module_level_reaches_kernels_elsewhere() -> None:
    assert {m.line for m in mutate.mutants(TOY) if m.top_level} == {2}


def test_tests_are_found_by_their_place_in_the_tree() -> None:
    terms = "tests/exact/test_rounding_terms.py"
    assert mutate.find_tests("exact/_mico.py", mutate.ROOT) == ["tests/exact/test_mico.py", terms]
    assert mutate.find_tests("exact/deterministic/doubling.py", mutate.ROOT) == [
        "tests/exact/test_deterministic.py",
        terms,
    ]
    assert "tests/sampled/test_sampled.py" in mutate.find_tests("sampled/run.py", mutate.ROOT)
    assert mutate.find_tests("planning.py", mutate.ROOT) == [terms, "tests/test_planning.py"]


def test_every_module_has_tests() -> None:
    package = mutate.ROOT / mutate.PACKAGE
    for module in mutate.MODULES:
        path = package / module
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            assert mutate.find_tests(file.relative_to(package).as_posix(), mutate.ROOT)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A repository with one module, whose test needs the rounding term but not the limit."""
    package = tmp_path / mutate.PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "toy.py").write_text(TOY)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_toy.py").write_text(
        "from bisimetric.toy import both, rounded_up\n"
        "def test_error(): assert rounded_up(1.0, 4.0) == 3.0\n"
        "def test_both(): assert both([1], wait=1) and not both([0, 1])\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return tmp_path


@pytest.mark.slow
def test_tests_kill_some_mutants_and_spare_others(
    toy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [
        *mutate.list_line_mutants(toy, "toy.py:2"),
        *mutate.list_line_mutants(toy, "toy.py:9"),
    ]
    # A loop that does not end is killed by the limit: `n += 0`.
    endless = [m for m in mutate.list_line_mutants(toy, "toy.py:15") if m[1].text == "0"]
    survivors = mutate.mutate(toy, [*chosen, *endless], limit=20)
    assert [(module, mutant.line) for module, mutant in survivors] == [("toy.py", 2)] * 2
    said = capsys.readouterr().out
    assert "SURVIVED: toy.py:2\n@@ -2 +2 @@\n-LIMIT = 3\n+LIMIT = 1\n" in said
    assert "killed (time): toy.py:15" in said
    assert said.endswith("9 mutants, 7 killed, 2 survived\n")
    assert (toy / mutate.PACKAGE / "toy.py").read_text() == TOY


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_raise(toy: Path) -> None:
    (toy / "tests/test_toy.py").write_text("def test(): assert False\n")
    with pytest.raises(SystemExit, match=r"without a mutant, tests/test_toy\.py failed"):
        mutate.mutate(toy, mutate.list_line_mutants(toy, "toy.py:2"), limit=20)


def test_samples_are_seeded() -> None:
    first, again, other = (
        mutate.sample(mutate.ROOT, ["exact/_mico.py"], 8, seed) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 8


@pytest.mark.parametrize("where", ["exact/_mico.py", "nowhere.py:3", "exact/_mico.py:x"])
def test_a_line_that_is_not_there_raises(where: str) -> None:
    with pytest.raises(SystemExit, match="must be file:line"):
        mutate.list_line_mutants(mutate.ROOT, where)
