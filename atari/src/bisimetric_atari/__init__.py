"""On-policy metrics of Atari games: games, agents, experience, figures, videos and the experiment.

`games` plays and collects, `agents` loads and evaluates agents, `views` draws episodes, and `paper`
holds the Atari experiment of Castro (2020). The command is `bisimetric atari`.

>>> import bisimetric_atari
>>> bisimetric_atari.games.find_game("pong").name
'Pong'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric_atari import agents, games, paper, views

__version__ = "0.1.0"

__all__ = ["agents", "games", "paper", "views"]


def __getattr__(name: str) -> Any:
    # Imported on first use: some need Matplotlib, others JAX.
    if name in __all__:
        return importlib.import_module(f"bisimetric_atari.{name}")
    raise AttributeError(f"module 'bisimetric_atari' has no attribute {name!r}")
