"""Print the section of CHANGELOG.md on the version of the package: the notes of its release."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def read_version(source: str) -> str:
    """Return the version in the source of the package.

    Raises:
        ValueError: there is none.

    >>> read_version('__version__ = "0.1.0"')
    '0.1.0'
    """
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise ValueError('src/bisimetric/__init__.py has no line __version__ = "...".')
    return found[1]


def extract_section(changelog: str, version: str) -> str:
    """Return the text below the heading of a released version.

    Raises:
        ValueError: there is no such heading, or it has no date.

    >>> extract_section("# Changelog\\n\\n## 0.2.0 (2027-01-31)\\n\\n- a\\n\\n## 0.1.0\\n", "0.2.0")
    '- a'
    >>> extract_section("## 0.2.0 (unreleased)\\n\\n- a\\n", "0.2.0")
    Traceback (most recent call last):
    ...
    ValueError: CHANGELOG.md needs a heading '## 0.2.0 (YYYY-MM-DD)' for the release.
    """
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    found = re.search(heading + r"\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(
            f"CHANGELOG.md needs a heading '## {version} (YYYY-MM-DD)' for the release."
        )
    return found[1].strip()


if __name__ == "__main__":
    try:
        version = read_version(
            (ROOT / "src" / "bisimetric" / "__init__.py").read_text(encoding="utf-8")
        )
        print(extract_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    except ValueError as error:
        sys.exit(str(error))
