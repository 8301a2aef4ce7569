"""The command line: parse, call, print. Errors are one line and exit code 2, no traceback."""

from bisimetric.cli._main import main
from bisimetric.cli.plugins import CommandGroup

__all__ = ["CommandGroup", "main"]
