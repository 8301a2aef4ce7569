"""The Atari experiment of Castro (2020): the on-policy metric of a game that a trained agent plays.

The agent plays without learning; what it makes of each frame, 512 numbers, is the state. A small
network learns d^pi from 600,000 steps of that. The published agents cannot be had: see `agents`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric.paper.atari import claims, exact_returns, experiment, learning, sweep

__all__ = ["claims", "exact_returns", "experiment", "learning", "sweep"]


def __getattr__(name: str) -> Any:
    # Imported when first used: some need JAX, and the observations do not.
    if name in __all__:
        return importlib.import_module(f"bisimetric.paper.atari.{name}")
    raise AttributeError(f"module 'bisimetric.paper.atari' has no attribute {name!r}")
