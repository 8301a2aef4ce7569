"""The Markov chain that a policy induces, with a bound on the rounding of its entries."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric._rounding import TINY, UNIT, two_sum
from bisimetric.mdp._validation import validate_policy

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

VELTKAMP_SPLITTER = 2.0**27 + 1
"""Veltkamp's constant: splits a float64 into two halves of 26 bits."""


@dataclasses.dataclass(frozen=True, eq=False)
class InducedChain:
    """The Markov chain of an MDP under a policy, as an MDP with one action.

    With pi(.|s) and P(s, a) divided by their exact sums, the chain is

        R^pi(s) = sum_a pi(a|s) R(s, a),    P^pi(s) = sum_a pi(a|s) P(s, a).

    Attributes:
        mdp: the chain in float64.
        reward_error: bound on |mdp.R(s) - R^pi(s)| over all states.
        mass_error: bound on the total variation distance between P^pi(s) and row s of `mdp.P`
            divided by its exact sum, over all states.
    """

    mdp: MDP
    reward_error: float = 0.0
    mass_error: float = 0.0

    def pair_error(self, max_distance: float) -> float:
        """Bound the rounding that the chain adds to one Bellman update of a pair distance.

        |R^pi(s) - R^pi(t)| moves by at most twice `reward_error`. Both W1 and the expectation over
        independent successors move by at most `mass_error` times the largest distance, for s and
        again for t.

        Args:
            max_distance: bound on the distances that the update reads.
        """
        mass = 2 * self.mdp.discount * self.mass_error * max_distance
        return (2 * self.reward_error + mass) * (1 + 4 * UNIT)

    def value_error(self, max_value: float) -> float:
        """Bound the rounding that the chain adds to one Bellman update of a value function.

        Args:
            max_value: bound on the absolute values that the update reads.
        """
        mass = 2 * self.mdp.discount * self.mass_error * max_value
        return (self.reward_error + mass) * (1 + 4 * UNIT)


def induce_chain(mdp: MDP, policy: ArrayLike) -> InducedChain:
    """Return the Markov chain that `policy` induces, with bounds on its rounding.

    Args:
        mdp: any MDP.
        policy: (S,) actions or (S, A) probabilities.

    Returns:
        The chain. Its errors are 0 for a deterministic policy.

    Raises:
        InputError: the policy has a wrong shape, is no distribution, or takes a missing action.
    """
    pi = validate_policy(mdp, policy)
    states, actions = mdp.R.shape
    every_state = np.arange(states)
    reward_error, mass_error = 0.0, 0.0
    taken = pi > 0 if pi.ndim == 2 else None
    if taken is not None and (taken.sum(axis=1) == 1).all():
        pi, taken = taken.argmax(axis=1), None
    if taken is None:
        P, R = mdp.P[every_state * actions + pi], mdp.R[every_state, pi]
    else:
        s, a = np.nonzero(taken)
        probability = (pi / pi.sum(axis=1, keepdims=True))[s, a]
        weights: Any = sparse.csr_array(
            (probability, (s, s * actions + a)), (states, states * actions)
        )
        P = sparse.csr_array(weights @ mdp.normalised_probabilities)
        R, reward_error = _compute_averages(pi, mdp.R)
        mass_error = _bound_mass_error(mdp, P)
    chain = dataclasses.replace(
        mdp,
        P=sparse.csr_array(P),
        R=R[:, None],
        actions=None,
        policy=None,
        available=None,
        choice_labels=None,
    )
    return InducedChain(chain, reward_error, mass_error)


def _bound_mass_error(mdp: MDP, P: sparse.csr_array) -> float:
    """Bound the total variation distance between each row of P^pi, normalised, and the exact one.

    Every entry is a sum of nonnegative products, so rounding is relative: n for dividing a row of P
    by its sum, A for dividing the policy's, A for the products and their sum. If all entries have a
    relative error of at most e, dividing by the sum leaves a total variation of at most
    e / (1 - e). Underflow adds at most A * n of the smallest floats. Both fit into 4 more units.
    """
    if int(np.diff(P.indptr).max()) == 1:
        return 0.0
    width = int(np.diff(mdp.P.indptr).max())
    return (2 * mdp.num_actions + width + 4) * UNIT


def _compute_averages(
    weights: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return row averages of `values` with `weights`, both (n, k), and a bound on their error.

    sum_k w_k v_k / sum_k w_k, both sums in doubled precision (Ogita, Rump & Oishi 2005, Accurate
    sum and dot product, SIAM J. Sci. Comput. 26(6)): huge values of opposite sign cancel without
    loss. Rows whose values with a positive weight are all equal are exact.
    """
    used = weights > 0
    low = np.where(used, values, np.inf).min(axis=1)
    high = np.where(used, values, -np.inf).max(axis=1)
    # A power of two per row brings the largest value near 1, where no product overflows.
    _, exponent = np.frexp(np.maximum(np.abs(low), np.abs(high)))
    scaled = np.ldexp(np.where(used, values, 0.0), -exponent[:, None])
    top, top_rest = np.zeros(len(values)), np.zeros(len(values))
    mass, mass_rest = np.zeros(len(values)), np.zeros(len(values))
    for w, v in zip(weights.T, scaled.T, strict=True):
        product, product_rest = _two_product(w, v)
        top, sum_rest = two_sum(top, product)
        top_rest += sum_rest + product_rest
        mass, sum_rest = two_sum(mass, w)
        mass_rest += sum_rest
    quotient = top / mass
    product, product_rest = _two_product(quotient, mass)
    rest = ((top - product) - product_rest) + (top_rest - quotient * mass_rest)
    with np.errstate(over="ignore"):  # beyond the largest float: clipped
        average = np.ldexp(quotient + rest / mass, exponent)
    average = np.where(low == high, low, np.clip(average, low, high))
    # One rounding of the result; the error of the doubled precision is relative to the largest
    # value of the row, with a few roundings per term in each factor.
    terms = weights.shape[1] + 4
    double = 8 * (terms * UNIT) ** 2 * np.maximum(np.abs(low), np.abs(high))
    error = (UNIT * np.abs(average) + double) * (1 + 8 * UNIT) + TINY
    return average, float(np.where(low == high, 0.0, error).max())


def _two_product(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a * b as a float and its rounding error, exact unless it underflows (Dekker)."""
    product = a * b
    a_high, b_high = (VELTKAMP_SPLITTER * x - (VELTKAMP_SPLITTER * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest
