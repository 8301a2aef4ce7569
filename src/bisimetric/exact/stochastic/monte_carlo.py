"""d~ from draws: each distribution replaced by a few of its successors (Ferns et al. 2006)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.distance import Distance
from bisimetric.errors import require_integer
from bisimetric.exact._quotient_solver import DeterministicSolver, solve_on_quotient
from bisimetric.exact._request import Request
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.mdp import MDP

NUM_CHECKED_PAIRS = 512
"""Pairs on which an estimate is put back into the true equation."""


def estimate_bisimulation(
    request: Request, mdp: MDP, solver: DeterministicSolver, samples: int, seed: int
) -> Distance:
    """d~ of the MDP in which n draws stand for each distribution; an estimate.

    W1 between two lots of n equally likely draws is an assignment of the one to the other divided
    by n, and the transport kernel solves it, equal draws merged. The table is solved to
    `request.tol` for the drawn MDP. How far that is from the true d~ is estimated: some random
    pairs are put back into the true equation, and the largest residual is divided by
    1 - discount. Had it been all pairs, that would be a proof.
    """
    count = require_integer("exact.bisimulation", "samples", samples, 1)
    rng = np.random.default_rng(require_integer("exact.bisimulation", "key", seed))
    needed = 40.0 * mdp.R.size * count
    require_memory(f"exact.bisimulation: {count:,} samples need", needed, "take fewer samples")
    drawn = mdp.replace(P=sample_transitions(mdp, count, rng))
    found = solve_on_quotient(request, drawn, solver)
    estimate = 0.0
    if mdp.num_states > 1:
        s, t = rng.integers(mdp.num_states, size=(2, NUM_CHECKED_PAIRS))
        s, t = np.maximum(s, t)[s != t], np.minimum(s, t)[s != t]
        image = policy_iteration.apply_operator(mdp, np.asarray(found.values, np.float64), s, t)
        estimate = float(np.abs(image - found.values[s, t]).max(initial=0.0)) / (1 - mdp.discount)
    made = {**found.metadata, "samples": count, "key": int(seed)}
    return dataclasses.replace(
        found, mdp=mdp, error=math.inf, estimate=estimate + found.error, metadata=made
    )


def sample_transitions(mdp: MDP, num_samples: int, rng: np.random.Generator) -> sparse.csr_array:
    """P (S * A, S) with each row the shares of its states in so many draws."""
    P = mdp.P
    rows = P.shape[0]
    # The draw u of row r is the first successor at which the sum of the probabilities passes u.
    sums = np.cumsum(mdp.normalised_probabilities.data)
    start = np.concatenate([[0.0], sums])[P.indptr[:-1]]
    drawn = np.searchsorted(sums, start[:, None] + rng.random((rows, num_samples)), side="right")
    drawn = np.clip(drawn, P.indptr[:-1, None], P.indptr[1:, None] - 1)
    shares = (
        np.full(drawn.size, 1 / num_samples),
        (np.repeat(np.arange(rows), num_samples), P.indices[drawn.ravel()]),
    )
    return sparse.csr_array(shares, P.shape)
