"""The paper's figures and experiments, made anew: one module each, `reproduce` makes its files.

Castro (2020), "Scalable methods for computing state similarity in deterministic Markov decision
processes".
"""

from __future__ import annotations

from bisimetric.paper import convergence

__all__ = ["convergence"]
