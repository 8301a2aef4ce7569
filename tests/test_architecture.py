"""The tree is the data flow: a module imports only from lines above its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bisimetric

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bisimetric"
TREE = (
    "errors",
    "_text",
    "_k_centre",
    "_statistics",
    "_rounding",
    "_optional",
    "_memory",
    "_io",
    "_safe_pickle",
    "_progress",
    "mdp",
    "implicit_mdp",
    "planning",
    "_transport",
    "transitions",
    "distance",
    "worlds",
    "datasets",
    "relation",
    "exact",
    "sampled",
    "learned",
    "losses",
    "uses",
    "views",
    "explorer",
    "paper",
    "demo",
    "cli",
)
ATARI_TREE = ("games", "agents", "views", "paper", "cli")
ROOTS = ("__init__", "__main__")
ATARI_SOURCE = ROOT / "atari" / "src" / "bisimetric_atari"
TREES = {SOURCE: TREE, ATARI_SOURCE: ATARI_TREE}
"""The tree of each distribution; bisimetric-atari imports from all of bisimetric."""
HEAVY = ("numpy", "scipy", "numba", "matplotlib", "jax")


def list_modules() -> list[Path]:
    return [path for source in TREES for path in sorted(source.rglob("*.py"))]


def find_source(path: Path) -> Path:
    """Return the folder of the package that a file belongs to."""
    return next(source for source in TREES if path.is_relative_to(source))


def find_tree_line(path: Path) -> str:
    """Return the line of the tree that a file belongs to."""
    return path.relative_to(find_source(path)).parts[0].removesuffix(".py")


def format_name(path: Path) -> str:
    """Return the path of a module below its package's parent."""
    return str(path.relative_to(find_source(path).parent))


def list_imports(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports at run time, also inside functions."""
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield from (f"{start}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


def test_imports_inside_functions_are_found() -> None:
    text = """
import numpy as np
from bisimetric import exact
if TYPE_CHECKING:
    from bisimetric import cli
def late():
    try:
        from bisimetric.views.maps import all_maps
    finally:
        from . import here
"""
    found = list(_imports(ast.parse(text)))
    assert found == ["numpy", "bisimetric.exact", "bisimetric.views.maps.all_maps", "..here"]


@pytest.mark.parametrize("path", list_modules(), ids=format_name)
def test_a_module_imports_only_from_earlier_lines(path: Path) -> None:
    here, source = find_tree_line(path), find_source(path)
    if here in ROOTS:
        return
    tree = TREES[source]
    assert here in tree, f"{here} is not in the tree: give it a line"
    for name in list_imports(path):
        assert not name.startswith("."), f"{path} imports {name}: write the whole name"
        package, _, rest = name.partition(".")
        there = rest.partition(".")[0]
        if package == source.name and there not in ("", "__version__", here):
            assert there in tree, f"{path} imports {name}, which is not in the tree"
            assert tree.index(there) < tree.index(here), f"{path} imports {name} from below"


@pytest.mark.parametrize(
    "path", [path for path in list_modules() if find_source(path) == SOURCE], ids=format_name
)
def test_the_core_knows_no_other_distribution(path: Path) -> None:
    assert not [name for name in list_imports(path) if name.startswith("bisimetric_")]


@pytest.mark.parametrize("path", list_modules(), ids=format_name)
def test_only_views_imports_matplotlib(path: Path) -> None:
    if find_tree_line(path) != "views":
        assert not [name for name in list_imports(path) if name.partition(".")[0] == "matplotlib"]


def test_public_names_are_the_exported_ones() -> None:
    assert dir(bisimetric) == sorted(bisimetric.__all__)


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in list_modules()}), ids=lambda path: path.name
)
def test_no_exported_function_shadows_its_module(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != build_module_name(folder)
        for alias in node.names
    }
    stems = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    assert not names & stems


def build_module_name(folder: Path) -> str:
    return ".".join(folder.relative_to(find_source(folder).parent).parts)


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in list_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(format_name(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


@pytest.mark.parametrize("path", list_modules(), ids=format_name)
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def test_every_line_of_the_tree_exists_and_is_documented() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for source, tree in TREES.items():
        lines = {find_tree_line(path) for path in source.rglob("*.py")}
        assert lines - {*ROOTS} == {*tree}
        assert f"\n    {' '.join(tree)}\n" in text


@pytest.mark.parametrize(
    "arguments", [["--help"], ["exact", "bisimulation", "--help"], ["atari", "learn", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from bisimetric.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "usage: bisimetric" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("path", list_modules(), ids=format_name)
def test_no_kernel_uses_numba_s_own_threads(path: Path) -> None:
    # They spin while they wait, which is slow where other processes occupy the cores.
    assert not [name for name in list_imports(path) if name.partition(".")[2] == "prange"]
