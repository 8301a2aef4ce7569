"""Bisimulation metrics: how alike are two states of a Markov decision process, by behaviour?

>>> import bisimetric
>>> mdp = bisimetric.worlds.load("pessimism", discount=0.9)
>>> d = bisimetric.exact.bisimulation(mdp)
>>> round(d("s", "t"), 6)
10.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bisimetric import (
        datasets,
        exact,
        explorer,
        learned,
        losses,
        paper,
        planning,
        relation,
        sampled,
        uses,
        views,
        worlds,
    )
    from bisimetric.distance import Coverage, Distance, DistanceBounds
    from bisimetric.errors import InputError, InsufficientMemory, NotConverged
    from bisimetric.implicit_mdp import ImplicitMDP
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

__all__ = [
    "MDP",
    "Coverage",
    "Distance",
    "DistanceBounds",
    "ImplicitMDP",
    "InputError",
    "InsufficientMemory",
    "NotConverged",
    "Transitions",
    "datasets",
    "exact",
    "explorer",
    "learned",
    "losses",
    "paper",
    "planning",
    "relation",
    "sampled",
    "uses",
    "views",
    "worlds",
]

# Names are imported at first use, so that `bisimetric --help` stays quick.
_DEFINING_MODULES = {
    "MDP": "mdp",
    "Coverage": "distance",
    "Distance": "distance",
    "DistanceBounds": "distance",
    "ImplicitMDP": "implicit_mdp",
    "InputError": "errors",
    "InsufficientMemory": "errors",
    "NotConverged": "errors",
    "Transitions": "transitions",
}


def __getattr__(name: str) -> Any:
    if name in _DEFINING_MODULES:
        module = importlib.import_module(f"bisimetric.{_DEFINING_MODULES[name]}")
        return getattr(module, name)
    if name in __all__:
        return importlib.import_module(f"bisimetric.{name}")
    raise AttributeError(f"module 'bisimetric' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
