"""Import packages that only some extras of the distribution install."""

from __future__ import annotations

import importlib
import os
from typing import Any

from bisimetric.errors import InputError


def import_optional(
    package: str, caller: str, extra: str | None, distribution: str = "bisimetric"
) -> Any:
    """Import an optional package, or raise an error that says how to install it.

    Args:
        package: the name of the package or of one of its modules.
        caller: the function or the input that needs it, which begins the message.
        extra: the extra of the distribution that installs it; None for the distribution itself.
        distribution: the distribution to install.

    Returns:
        The module.

    Raises:
        InputError: the package, or one that it imports, is not installed.

    >>> import_optional("no_such_package", "learned", "learn")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: learned: no_such_package is not installed; pip install
    'bisimetric[learn]'.
    """
    # Pygame, which MiniGrid imports, prints a greeting to standard output.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        return importlib.import_module(package)
    except ImportError as error:
        missing = (error.name or package).partition(".")[0]
        if missing in ("bisimetric", distribution.replace("-", "_")):
            raise
        requirement = distribution if extra is None else f"'{distribution}[{extra}]'"
        raise InputError(
            f"{missing} is not installed",
            caller=caller,
            remedy=f"pip install {requirement}",
        ) from None
