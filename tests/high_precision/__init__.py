"""An oracle for every distance and value: exact input, proven enclosures, no code of the library.

It is written from the definitions, in integers of any size. Input floats are taken as the rational
numbers that they are; a distribution is its entries divided by their exact sum. Distances and
values are numbers of `BITS` binary digits after the point, found by policy iteration, and put
back into their equation F: |d - d*| <= |F(d) - d| / (1 - discount) encloses the true ones within
a `radius` far below the least float.
"""

from tests.high_precision.distances import bisimulation, lax, mico, on_policy
from tests.high_precision.models import Distribution, Model, induce_chain, model, normalise
from tests.high_precision.numbers import BITS, Enclosure, Undecided, round_to_units
from tests.high_precision.values import action_values, optimal_values, policy_values

__all__ = [
    "BITS",
    "Distribution",
    "Enclosure",
    "Model",
    "Undecided",
    "action_values",
    "bisimulation",
    "induce_chain",
    "lax",
    "mico",
    "model",
    "normalise",
    "on_policy",
    "optimal_values",
    "policy_values",
    "round_to_units",
]
