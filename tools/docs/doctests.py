"""Griffe extension: doctests in docstrings become code blocks of the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n(?!>>> )|\Z)", re.MULTILINE | re.DOTALL)
"""From a prompt to the first blank line that no prompt follows, or to the end."""


class Doctests(griffe.Extension):
    """Fence the doctests of each docstring."""

    def on_object(self, *, obj: griffe.Object, **_options: Any) -> None:
        """Rewrite the docstring of an object after it was parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)


def fence_doctests(docstring: str) -> str:
    r"""Return a docstring with its doctests in fenced blocks.

    >>> fence_doctests("Add.\n\n>>> 1 + 1\n2\n\n>>> 2 + 2\n4\n\nText.")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n\n>>> 2 + 2\n4\n```\n\nText.'
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", docstring)
