"""`bisimetric demo`: the main job on the built-in default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.arguments import program_name


def demo(output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("demo")) -> int:
    """The three distances on the paper's 31 states: checked, shown, drawn and saved.

    Args:
        output: where the tables and pictures go; it is made where it is missing

    Examples:
        bisimetric demo
        bisimetric demo --output somewhere/else
    """
    from bisimetric import demo as library

    return library.run(output, program=program_name())
