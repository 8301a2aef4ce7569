"""Reproduce the figures and experiments of the paper; each module has a function `reproduce`.

Castro (2020), "Scalable methods for computing state similarity in deterministic Markov decision
processes".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric.paper import algorithms, convergence, gridworld, loss_benchmark

__all__ = ["algorithms", "convergence", "gridworld", "loss_benchmark"]


def __getattr__(name: str) -> Any:
    # Imported on first use: one needs Matplotlib, others JAX.
    if name in __all__:
        return importlib.import_module(f"bisimetric.paper.{name}")
    raise AttributeError(f"module 'bisimetric.paper' has no attribute {name!r}")
