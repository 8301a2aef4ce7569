"""Sinkhorn value iteration for Markov chains (Calo et al., 2024), compiled with Numba.

Written from the description of the algorithm in the paper, "Bisimulation Metrics are Optimal
Transport Distances, and Can be Computed Efficiently" (NeurIPS 2024). Couplings are restricted to
the supports, only pairs t < s are stored, and the distance of a state to itself is fixed at 0, so
that an iteration is as cheap as possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import MDP

FLOOR = 1e-200
"""Couplings stay above this, so that no entry underflows to 0 for good."""


class Chain(NamedTuple):
    """Successors and probabilities (S, k), padded by probability 0; rewards (S,); discount."""

    successors: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    rewards: NDArray[np.float64]
    discount: float


def read_chain(mdp: MDP) -> Chain:
    """Return an MDP with one action as padded arrays."""
    if mdp.num_actions != 1:
        raise ValueError(f"Sinkhorn value iteration: {mdp.num_actions} actions; it needs a chain.")
    P = mdp.P
    lengths = np.diff(P.indptr)
    successors = np.zeros((mdp.num_states, int(lengths.max())), np.int64)
    probabilities = np.zeros(successors.shape)
    filled = np.arange(successors.shape[1]) < lengths[:, None]
    successors[filled], probabilities[filled] = P.indices, P.data
    return Chain(successors, probabilities, mdp.R[:, 0].copy(), mdp.discount)


class SinkhornValueIteration:
    """Alternate multiplicative updates of the couplings and value updates.

    With the coupling pi(x', y' | x, y) and the value V of a pair, one iteration is

        pi <- pi * exp(-eta * discount * V(x', y')), scaled to the rows P(x' | x) in odd
              iterations and to the columns P(y' | y) in even ones,
        V  <- |R(x) - R(y)| + discount * sum pi * V(x', y').

    `bound()` rounds the couplings to feasible ones and evaluates them: an upper bound of d~.

    Args:
        mdp: A Markov chain: an MDP with one action.
        eta: The step size of the multiplicative update.
        decay: In iteration k = 1, 2, ... the step size is eta / k ** decay.
    """

    def __init__(self, mdp: MDP, eta: float, decay: float = 0.0) -> None:
        self.chain, self.eta, self.decay, self.iterations = read_chain(mdp), eta, decay, 0
        self.x, self.y = np.tril_indices(mdp.num_states, -1)
        P = self.chain.probabilities
        self.couplings = P[self.x][:, :, None] * P[self.y][:, None, :]
        self.cost = np.abs(self.chain.rewards[self.x] - self.chain.rewards[self.y])
        self.values = np.zeros((mdp.num_states, mdp.num_states))

    def iterate(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            eta = self.eta / (self.iterations + 1) ** self.decay
            scale = np.exp(-eta * self.chain.discount * self.values)
            rows = self.iterations % 2 == 0
            P, successors = self.chain.probabilities, self.chain.successors
            _scale_couplings(self.couplings, scale, self.x, self.y, successors, P, rows)
            self.values = self._update(self.couplings, self.values)
            self.iterations += 1

    def bound(self, accuracy: float) -> NDArray[np.float64]:
        """Return an upper bound of d~ (S, S): the value of the rounded couplings.

        Args:
            accuracy: How far the policy evaluation of the couplings may be from its limit.
        """
        rounded = np.empty_like(self.couplings)
        _round_couplings(self.couplings, rounded, self.x, self.y, self.chain.probabilities)
        values, discount = self.values, self.chain.discount
        while True:
            update = self._update(rounded, values)
            change = np.abs(update - values).max()
            values = update
            if change * discount / (1 - discount) <= accuracy:
                return values

    def _update(
        self, couplings: NDArray[np.float64], values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        successors, discount = self.chain.successors, self.chain.discount
        update: NDArray[np.float64] = _evaluate(
            couplings, values, self.x, self.y, successors, self.cost, discount
        )
        return update


@njit(cache=True)
def _scale_couplings(couplings, scale, x, y, successors, P, rows):  # type: ignore[no-untyped-def]
    """Multiply the couplings by `scale`, then match their row or column sums."""
    size = P.shape[1]
    for pair in range(len(x)):
        coupling, s, t = couplings[pair], x[pair], y[pair]
        columns = np.zeros(size)
        for i in range(size):
            total = 0.0
            for j in range(size):
                entry = max(coupling[i, j] * scale[successors[s, i], successors[t, j]], FLOOR)
                coupling[i, j] = entry
                total += entry
                columns[j] += entry
            if rows:
                factor = P[s, i] / total
                for j in range(size):
                    coupling[i, j] *= factor
        if not rows:
            for j in range(size):
                columns[j] = P[t, j] / columns[j]
            for i in range(size):
                for j in range(size):
                    coupling[i, j] *= columns[j]


@njit(cache=True)
def _evaluate(couplings, values, x, y, successors, cost, discount):  # type: ignore[no-untyped-def]
    """Return cost + discount * the expected value under the couplings, for every pair."""
    update = np.zeros_like(values)
    size = successors.shape[1]
    for pair in range(len(x)):
        s, t, expected = x[pair], y[pair], 0.0
        for i in range(size):
            row = values[successors[s, i]]
            for j in range(size):
                expected += couplings[pair, i, j] * row[successors[t, j]]
        update[s, t] = update[t, s] = cost[pair] + discount * expected
    return update


@njit(cache=True)
def _round_couplings(couplings, rounded, x, y, P):  # type: ignore[no-untyped-def]
    """Round to feasible couplings: scale rows and columns down, then add what is missing."""
    size = P.shape[1]
    for pair in range(len(x)):
        s, t = x[pair], y[pair]
        columns, missing_rows, missing_columns = np.zeros(size), np.zeros(size), np.zeros(size)
        for i in range(size):
            total = couplings[pair, i].sum()
            factor = min(1.0, P[s, i] / total) if total > 0 else 1.0
            for j in range(size):
                rounded[pair, i, j] = couplings[pair, i, j] * factor
                columns[j] += rounded[pair, i, j]
        for j in range(size):
            factor = min(1.0, P[t, j] / columns[j]) if columns[j] > 0 else 1.0
            for i in range(size):
                rounded[pair, i, j] *= factor
            missing_columns[j] = P[t, j] - columns[j] * factor
        missing = 0.0
        for i in range(size):
            missing_rows[i] = P[s, i] - rounded[pair, i].sum()
            missing += missing_rows[i]
        if missing > 0:
            for i in range(size):
                for j in range(size):
                    rounded[pair, i, j] += missing_rows[i] * missing_columns[j] / missing
