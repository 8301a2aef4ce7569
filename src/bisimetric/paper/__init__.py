"""Reproduce the figures and experiments of the paper; each module measures or draws.

Castro (2020), "Scalable methods for computing state similarity in deterministic Markov decision
processes".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric.paper import (
        algorithms,
        claims,
        convergence,
        gridworld,
        loss_benchmark,
        stability,
    )

__all__ = ["algorithms", "claims", "convergence", "gridworld", "loss_benchmark", "stability"]


def __getattr__(name: str) -> Any:
    # Imported on first use: one needs Matplotlib, others JAX.
    if name in __all__:
        return importlib.import_module(f"bisimetric.paper.{name}")
    raise AttributeError(f"module 'bisimetric.paper' has no attribute {name!r}")
