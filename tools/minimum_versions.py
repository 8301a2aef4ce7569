"""Print the oldest versions that both distributions allow, `name==version` per line, for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXTRAS = ("worlds", "learn", "scale")
"""The optional dependencies that the tests need; PyTorch has its own environment."""
FILES = {"pyproject.toml": EXTRAS, "atari/pyproject.toml": ()}
"""The files of the distributions, with the extras that the tests need."""
OWN = re.compile(r"bisimetric(-atari)?(\[[\w,-]+\])?(==[\w.]+)?")
"""Requirements of the distributions on themselves and on one another."""
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?>=(?P<version>[\w.]+)")


def minimum_versions(project: Mapping[str, Any], extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return the lower bounds of the dependencies and of some extras as exact versions, sorted.

    Raises:
        ValueError: a requirement is not of the form name>=version, or two bounds of one package
            differ, so that the lower one could not be tested.

    >>> project = {"dependencies": ["numpy>=2.0"],
    ...            "optional-dependencies": {"learn": ["jax>=0.10", "bisimetric[worlds]"]}}
    >>> minimum_versions(project, ["learn"])
    ['jax==0.10', 'numpy==2.0']
    """
    requirements = list(project["dependencies"])
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    found: dict[str, str] = {}
    for requirement in requirements:
        if OWN.fullmatch(requirement):
            continue
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} must be of the form name>=version.")
        name = match["name"] + (match["extras"] or "")
        if found.setdefault(name, match["version"]) != match["version"]:
            raise ValueError(f"{name} has the bounds {found[name]} and {match['version']}.")
    return [f"{name}=={found[name]}" for name in sorted(found)]


def main() -> None:
    """Print the versions of all distributions; two bounds of one package must be equal."""
    root = Path(__file__).parents[1]
    found: dict[str, str] = {}
    for file, extras in FILES.items():
        project = tomllib.loads((root / file).read_text(encoding="utf-8"))["project"]
        try:
            for line in minimum_versions(project, extras):
                name, _, version = line.partition("==")
                if found.setdefault(name, version) != version:
                    raise ValueError(f"{name} has the bounds {found[name]} and {version}.")
        except ValueError as error:
            sys.exit(f"{file}: {error}")
    print("\n".join(f"{name}=={found[name]}" for name in sorted(found)))


if __name__ == "__main__":
    main()
