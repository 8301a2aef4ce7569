"""PyTorch, imported at first use, so that the package can be listed without it."""

from __future__ import annotations

from typing import Any

from bisimetric._optional import import_optional


class LazyTorch:
    """The module torch; the first attribute imports it.

    Raises:
        InputError: at the first use, where PyTorch is not installed.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(import_optional("torch", "losses.torch", "torch"), name)


torch: Any = LazyTorch()
