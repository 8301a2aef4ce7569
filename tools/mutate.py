"""Mutation testing: change one expression of a module at a time, and see whether a test fails.

Mutants are sampled with a seed, or are all of one line. Each is written into a copy of the
repository, with its own Numba cache where kernels may depend on it, and its module's tests run
there under a time limit. A mutant is killed by a test that fails or times out; a survivor is
printed as a diff, and is either equivalent to the original or a missing test.

    python tools/mutate.py --modules exact/_mico.py relation --count 30 --seed 1
    python tools/mutate.py --line exact/_request.py:60
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "src/bisimetric"
MODULES = ("exact", "mdp", "planning.py", "relation", "sampled", "implicit_mdp.py", "uses")
"""The default: every module that proves an error or a bound."""
ADDITIONAL_TESTS = {
    "_transport": ("exact/test_stochastic.py", "exact/test_rounding_terms.py"),
    "exact": ("exact/test_rounding_terms.py",),
    "exact/_concentration": ("exact/test_confidence.py",),
    "exact/_interval_iteration": ("exact/test_asynchronous.py", "exact/test_confidence.py"),
    "exact/stochastic/confidence_kernels": ("exact/test_concentration.py",),
    "exact/stochastic/interval_kernels": ("exact/test_asynchronous.py",),
    "exact/undiscounted_solver": (
        "exact/test_undiscounted.py",
        "exact/test_undiscounted_mdp.py",
    ),
    "implicit_mdp": ("exact/test_query.py", "exact/test_query_errors.py"),
    "mdp": ("test_planning.py", "relation/test_quotient.py"),
    "planning": ("exact/test_rounding_terms.py",),
    "relation": ("exact/test_rounding_terms.py",),
    "uses/aggregation": ("uses/test_aggregate.py", "uses/test_cluster.py"),
    "uses/exploration": ("uses/test_bonus.py", "uses/test_bonus_wrapper.py"),
    "uses/policy_transfer": ("uses/test_transfer.py",),
}
"""Tests of a module or package besides those at its place in the tree of tests."""
SWAPPED_NAMES = {"all": "any", "max": "min", "maximum": "minimum", "argmax": "argmin"}
SWAPPED_NAMES |= {new: old for old, new in SWAPPED_NAMES.items()}
SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One changed expression of a module.

    Attributes:
        line: the line of the expression.
        low, high: its range in the bytes of the module.
        text: its replacement.
        top_level: whether it is outside all functions, like a constant that kernels of other
            modules may have compiled in.
    """

    line: int
    low: int
    high: int
    text: str
    top_level: bool

    def apply(self, source: str) -> str:
        """Return the source of the module with the expression changed."""
        whole = source.encode()
        return (whole[: self.low] + self.text.encode() + whole[self.high :]).decode()

    def diff(self, source: str) -> str:
        """Return the changed lines in unified format."""
        old, new = source.splitlines(), self.apply(source).splitlines()
        return "\n".join(list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:])


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines.

    >>> source = "x = a + 2 * b"
    >>> [m.apply(source) for m in mutants(source)]
    ['x = a - 2 * b', 'x = a', 'x = 2 * b', 'x = a + 0 * b', 'x = a + 1 * b', 'x = a + 4 * b']
    >>> source = "if max(a) <= b: go()"
    >>> [m.apply(source) for m in mutants(source)]
    ['if not max(a) <= b: go()', 'if max(a) < b: go()', 'if min(a) <= b: go()']
    """
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, top_level in _expressions(ast.parse(source), True):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        low = starts[node.lineno - 1] + node.col_offset
        high = starts[node.end_lineno - 1] + node.end_col_offset
        if isinstance(node, ast.Attribute):  # only its name changes
            low = high - len(node.attr.encode())
        found += [Mutant(node.lineno, low, high, new, top_level) for new in _replacements(node)]
    return sorted(found, key=lambda mutant: mutant.line)


def _expressions(node: ast.AST, top_level: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the expressions that may change: no annotations, decorators, messages or defaults."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        parts: list[ast.AST] = list(node.body)
        top_level = False
    elif isinstance(node, ast.ClassDef):
        parts = list(node.body)
    elif isinstance(node, ast.AnnAssign):
        parts = [] if node.value is None else [node.value]
    else:
        parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.expr):
        yield node, top_level
    for part in parts:
        if isinstance(node, ast.If | ast.While | ast.IfExp) and part is node.test:
            yield _Condition(node.test), top_level
        yield from _expressions(part, top_level)


class _Condition(ast.expr):
    """The condition of a branch or a loop, which is negated."""

    def __init__(self, test: ast.expr) -> None:
        super().__init__()
        self.test = test
        ast.copy_location(self, test)


def _replacements(node: ast.expr) -> Iterator[str]:
    """Yield the replacements of an expression."""
    match node:
        case _Condition():
            yield f"not {_operand(node.test)}"
        case ast.Constant(value=bool() | str() | bytes() | None):
            return
        case ast.Constant(value=int() | float() as value):
            yield from (repr(new) for new in dict.fromkeys((0, 1, 2 * value)) if new != value)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            if type(operator) in SWAPPED_COMPARISONS:
                swapped = SWAPPED_COMPARISONS[type(operator)]()
                yield ast.unparse(ast.Compare(left, [swapped], [right]))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
            other = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
            yield ast.unparse(ast.BinOp(left, other, right))
            yield _operand(left)
            if isinstance(operator, ast.Add):
                yield _operand(right)
        case ast.BoolOp(op=operator, values=values):
            swapped_op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(swapped_op, values))})"
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            if name in SWAPPED_NAMES:
                yield SWAPPED_NAMES[name]


def _operand(node: ast.expr) -> str:
    """Return the source of an operand, in parentheses if it binds less than a product."""
    text = ast.unparse(node)
    loose = isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr)
    sums = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    return f"({text})" if loose or sums else text


def find_tests(module: str, root: Path) -> list[str]:
    """Return the test files of a module: the tree of tests mirrors that of the package.

    For `a/b/c.py` these are `tests/a/b/test_c*.py`, else `tests/a/b/test_*.py`, else
    `tests/a/test_b*.py`, else `tests/a/test_*.py`; and those of `ADDITIONAL_TESTS`.
    """
    tests = root / "tests"
    path = Path(module).with_suffix("")
    prefixes = [path, *path.parents][:-1]
    found: set[Path] = set()
    for prefix in prefixes:
        found |= set(tests.glob(f"{prefix}/test_*.py")) if prefix != path else set()
        if not found:
            folder = tests if prefix.parent == Path() else tests / prefix.parent
            found |= set(folder.glob(f"test_{prefix.name.removeprefix('_')}*.py"))
        if found or (len(prefix.parts) > 1 and prefix.as_posix() in ADDITIONAL_TESTS):
            break
    for prefix in prefixes:
        found |= {tests / name for name in ADDITIONAL_TESTS.get(prefix.as_posix(), ())}
    if not found:
        raise SystemExit(f"mutate: no test file in tests/ belongs to {module}.")
    return sorted(file.relative_to(root).as_posix() for file in found)


@dataclasses.dataclass
class Copy:
    """A copy of a repository in which mutants are tested."""

    root: Path

    @classmethod
    def create(cls, root: Path, folder: Path) -> Copy:
        """Copy a repository without its hidden and generated files."""
        ignored = shutil.ignore_patterns(".*", "__pycache__", "demo", "dist", "site")
        shutil.copytree(root, folder / "copy", ignore=ignored)
        return cls(folder / "copy")

    def run(self, tests: Sequence[str], limit: float, *, cache: str) -> str:
        """Run tests and return "passed", "failed" or "timed out"."""
        folder = self.root.parent / cache
        environment = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            "NUMBA_CACHE_DIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "timed out"
        # Without tests to run (5) or with a wrong command line (4), nothing was tested.
        if code in (4, 5):
            raise SystemExit(f"mutate: pytest ended with {code}: {' '.join(command)}")
        return "passed" if code == 0 else "failed"


def sample(root: Path, modules: Sequence[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Draw mutants of some modules uniformly, without replacement."""
    package = root / PACKAGE
    files = set[Path]()
    for module in modules:
        path = package / module
        files |= set(path.rglob("*.py")) if path.is_dir() else set(package.glob(module))
    if not files:
        raise SystemExit(f"mutate: nothing in {PACKAGE} is named {', '.join(modules)}.")
    known = [
        (file.relative_to(package).as_posix(), mutant)
        for file in sorted(files)
        for mutant in mutants(file.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(known, min(count, len(known)))


def list_line_mutants(root: Path, location: str) -> list[tuple[str, Mutant]]:
    """Return all mutants of one line, given as file:line."""
    module, _, line = location.rpartition(":")
    path = root / PACKAGE / module
    if not path.is_file() or not line.isdecimal():
        raise SystemExit(f"mutate: --line is {location!r} and must be file:line in {PACKAGE}.")
    found = mutants(path.read_text(encoding="utf-8"))
    return [(module, mutant) for mutant in found if mutant.line == int(line)]


def mutate(
    root: Path, chosen: Sequence[tuple[str, Mutant]], *, limit: float, tests: Sequence[str] = ()
) -> list[tuple[str, Mutant]]:
    """Test mutants one by one, print the outcome of each, and return the survivors."""
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = Copy.create(root, Path(folder))
        # Tests that fail without a mutant would kill them all.
        for needed in sorted({tuple(tests or find_tests(module, root)) for module, _ in chosen}):
            start_time = time.monotonic()
            outcome = copy.run(needed, 10 * limit, cache="cache")
            if outcome != "passed":
                raise SystemExit(f"mutate: without a mutant, {' '.join(needed)} {outcome}.")
            print(
                f"{time.monotonic() - start_time:6.0f} s  unchanged: {' '.join(needed)}", flush=True
            )
        for number, (module, mutant) in enumerate(chosen, 1):
            path = copy.root / PACKAGE / module
            original = path.read_text(encoding="utf-8")
            # Kernels are cached by their own file, and contain code of other files.
            recompile = mutant.top_level or "njit" in original
            cache = f"cache-{number}" if recompile else "cache"
            start_time = time.monotonic()
            try:
                path.write_text(mutant.apply(original), encoding="utf-8")
                outcome = copy.run(tests or find_tests(module, root), limit, cache=cache)
            finally:
                path.write_text(original, encoding="utf-8")
                if recompile:
                    shutil.rmtree(copy.root.parent / cache, ignore_errors=True)
            survived = outcome == "passed"
            word = "SURVIVED" if survived else "killed" if outcome == "failed" else "killed (time)"
            print(
                f"{time.monotonic() - start_time:6.0f} s  {word}: {module}:{mutant.line}",
                flush=True,
            )
            if survived:
                survivors.append((module, mutant))
                print(mutant.diff(original), flush=True)
    killed = len(chosen) - len(survivors)
    print(f"{len(chosen)} mutants, {killed} killed, {len(survivors)} survived")
    return survivors


def main(words: Sequence[str] | None = None) -> None:
    """Parse the command line and test the mutants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modules = parser.add_argument("--modules", nargs="+", default=MODULES, metavar="PATH")
    modules.help = f"files, folders or patterns in {PACKAGE}; default: {' '.join(MODULES)}"
    parser.add_argument("--count", type=int, default=20, help="mutants to sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--line", metavar="FILE:LINE", help="all mutants of one line instead")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds per mutant")
    parser.add_argument("--tests", nargs="+", default=(), help="these instead of the module's own")
    arguments = parser.parse_args(words)
    if arguments.line is not None:
        chosen = list_line_mutants(ROOT, arguments.line)
    else:
        chosen = sample(ROOT, arguments.modules, arguments.count, arguments.seed)
    mutate(ROOT, chosen, limit=arguments.limit, tests=arguments.tests)


if __name__ == "__main__":
    main()
