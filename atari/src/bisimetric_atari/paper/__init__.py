"""The Atari experiment of Castro (2020): the on-policy metric of a game that a trained agent plays.

A frozen agent plays; its 512 features of a frame are the state. A small network learns d^pi from
600,000 steps. The agents are trained for this package, others can be loaded: see `agents`.
`reproduce` writes the figures, videos and claims of one game.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric_atari.paper import (
        claims,
        evaluation,
        exact_returns,
        experiment,
        learning,
        sweep,
    )
    from bisimetric_atari.paper.experiment import reproduce

__all__ = ["claims", "evaluation", "exact_returns", "experiment", "learning", "reproduce", "sweep"]


def __getattr__(name: str) -> Any:
    # Imported on first use: some modules need JAX, the claims do not.
    if name == "reproduce":
        return importlib.import_module("bisimetric_atari.paper.experiment").reproduce
    if name in __all__:
        return importlib.import_module(f"bisimetric_atari.paper.{name}")
    raise AttributeError(f"module 'bisimetric_atari.paper' has no attribute {name!r}")
