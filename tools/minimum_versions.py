"""Print the oldest versions that pyproject.toml allows, one `name==version` per line, for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXTRAS = ("worlds", "learn", "scale", "atari")
"""The optional dependencies that the tests need; PyTorch has its own environment."""
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?>=(?P<version>[\w.]+)")


def minimum_versions(project: Mapping[str, Any], extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return the lower bounds of the dependencies and of some extras as exact versions, sorted.

    Raises:
        ValueError: a requirement is not of the form name>=version, or two bounds of one package
            differ, so that the lower one could not be tested.

    >>> project = {"name": "p", "dependencies": ["numpy>=2.0"],
    ...            "optional-dependencies": {"learn": ["jax>=0.10", "p[worlds]"]}}
    >>> minimum_versions(project, ["learn"])
    ['jax==0.10', 'numpy==2.0']
    """
    requirements = list(project["dependencies"])
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    found: dict[str, str] = {}
    for requirement in requirements:
        if requirement.startswith(f"{project['name']}["):
            continue
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} must be of the form name>=version.")
        name = match["name"] + (match["extras"] or "")
        if found.setdefault(name, match["version"]) != match["version"]:
            raise ValueError(f"{name} has the bounds {found[name]} and {match['version']}.")
    return [f"{name}=={found[name]}" for name in sorted(found)]


if __name__ == "__main__":
    try:
        text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
        print("\n".join(minimum_versions(tomllib.loads(text)["project"])))
    except ValueError as error:
        sys.exit(f"pyproject.toml: {error}")
