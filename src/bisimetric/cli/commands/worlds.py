"""`bisimetric worlds`: what the other commands can work on."""

from __future__ import annotations


def worlds() -> None:
    """List the built-in worlds and their options, and the characters of a text grid.

    Examples:
        bisimetric worlds
    """
    from bisimetric.cli.report import describe_worlds

    print(*describe_worlds(), sep="\n")
