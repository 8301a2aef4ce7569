"""Docstrings of exported names follow their signatures."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = (
    "bisimetric",
    "bisimetric.cli",
    "bisimetric.datasets",
    "bisimetric.distance",
    "bisimetric.exact",
    "bisimetric.exact.gaps",
    "bisimetric.exact.sharded",
    "bisimetric.explorer",
    "bisimetric.learned",
    "bisimetric.learned.castro2020",
    "bisimetric.losses",
    "bisimetric.planning",
    "bisimetric.relation",
    "bisimetric.sampled",
    "bisimetric.uses",
    "bisimetric.views",
    "bisimetric.worlds",
    "bisimetric_atari.agents",
    "bisimetric_atari.agents.rainbow",
    "bisimetric_atari.games",
    "bisimetric_atari.views",
)
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


def parse_section(docstring: str, section: str) -> set[str]:
    """Return the entries of a section of a Google-style docstring."""
    found = re.search(rf"^{section}:\n((?:^(?: {{4}}.*)?\n?)+)", docstring, re.MULTILINE)
    if found is None:
        return set()
    return set(re.findall(r"^ {4}\*{0,2}(\w+)(?: \([^)]*\))?:", found[1], re.MULTILINE))


def parameters(function: Any) -> set[str]:
    """Return the names of the parameters that a caller passes."""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return {name for name in names if not name.startswith("_")}


def describe_function(name: str, function: Any) -> Iterator[str]:
    """Yield what the docstring of a function lacks."""
    docstring = inspect.getdoc(function) or ""
    given, documented = parameters(function), parse_section(docstring, "Args")
    if given - documented:
        yield f"{name}: Args lacks {', '.join(sorted(given - documented))}"
    if documented - given:
        yield f"{name}: Args names {', '.join(sorted(documented - given))}, no parameter"
    returns = inspect.signature(function).return_annotation
    has_result = returns not in (None, "None", inspect.Signature.empty)
    # A summary such as "Return the episodes" says it all where there is no argument.
    in_summary = not given and docstring.startswith(("Return ", "Yield "))
    in_section = re.search(r"^(Returns|Yields):$", docstring, re.MULTILINE)
    if has_result and not (in_section or in_summary):
        yield f"{name}: no Returns"


def describe_class(name: str, cls: type) -> Iterator[str]:
    """Yield what the docstrings of a class and its public methods lack."""
    docstring = inspect.getdoc(cls) or ""
    documented = parse_section(docstring, "Args") | parse_section(docstring, "Attributes")
    given: set[str] = set()
    if dataclasses.is_dataclass(cls):
        given = {field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")}
    elif hasattr(cls, "_fields"):
        given = set(cls._fields)
    elif "__init__" in vars(cls) and not getattr(cls, "_is_protocol", False):
        given = parameters(vars(cls)["__init__"])
    if given - documented:
        yield f"{name}: docstring lacks {', '.join(sorted(given - documented))}"
    for method_name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if method_name.startswith("_") or not inspect.isfunction(function):
            continue
        if getattr(cls, "_is_protocol", False):
            continue
        yield from describe_function(f"{name}.{method_name}", function)


def list_exported() -> Iterator[tuple[str, Any]]:
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module_name}.{name}", value


def test_sections_are_parsed() -> None:
    docstring = (
        "Do it.\n\nArgs:\n    a: one\n        more: text\n    b (int): two\n\nReturns:\n    x"
    )
    assert parse_section(docstring, "Args") == {"a", "b"}
    assert parse_section(docstring, "Raises") == set()


@pytest.mark.parametrize("module_name", MODULES)
def test_every_exported_name_exists_and_is_documented(module_name: str) -> None:
    module = importlib.import_module(module_name)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and inspect.getmodule(value) is not typing:
            assert (inspect.getdoc(value) or "").strip(), name


@pytest.mark.parametrize(
    ("name", "value"), [pytest.param(*each, id=each[0]) for each in list_exported()]
)
def test_docstring_follows_the_signature(name: str, value: Any) -> None:
    describe = describe_class if inspect.isclass(value) else describe_function
    lacking = list(describe(name, value))
    docstring = inspect.getdoc(value) or ""
    exempt = inspect.isclass(value) and (
        issubclass(value, BaseException) or getattr(value, "_is_protocol", False)
    )
    if not exempt and ">>>" not in docstring:
        lacking.append(f"{name}: no doctest")
    assert not lacking, "; ".join(lacking)
