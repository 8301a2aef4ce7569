"""How alike are two states of a Markov decision process, by how they behave?

>>> import bisimetric
>>> mdp = bisimetric.worlds.load("pessimism", discount=0.9)
>>> d = bisimetric.exact._bisimulation(mdp)
>>> round(d("s", "t"), 6)
10.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bisimetric import (
        agents,
        datasets,
        exact,
        explorer,
        games,
        learned,
        paper,
        planning,
        relation,
        sampled,
        uses,
        views,
        worlds,
    )
    from bisimetric.distance import Coverage, Distance
    from bisimetric.errors import InputError, InsufficientMemory, NotConverged
    from bisimetric.implicit_mdp import ImplicitMDP
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

# Names are imported when they are first used, so that `bisimetric --help` stays quick.
_CLASS_MODULES = {
    "MDP": "mdp",
    "Coverage": "distance",
    "Distance": "distance",
    "InputError": "errors",
    "NotConverged": "errors",
    "TableTooLarge": "errors",
    "Successors": "successors",
    "Transitions": "transitions",
}
_SUBPACKAGES = (
    "agents",
    "datasets",
    "exact",
    "explorer",
    "games",
    "learned",
    "paper",
    "planning",
    "relation",
    "sampled",
    "uses",
    "views",
    "worlds",
)

__all__ = [
    "MDP",
    "Coverage",
    "Distance",
    "ImplicitMDP",
    "InputError",
    "InsufficientMemory",
    "NotConverged",
    "Transitions",
    "agents",
    "datasets",
    "exact",
    "explorer",
    "games",
    "learned",
    "paper",
    "planning",
    "relation",
    "sampled",
    "uses",
    "views",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"bisimetric.{name}")
    if name in _CLASS_MODULES:
        return getattr(importlib.import_module(f"bisimetric.{_CLASS_MODULES[name]}"), name)
    raise AttributeError(f"module 'bisimetric' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
