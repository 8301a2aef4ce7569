"""Monte Carlo estimate of d~: each distribution is replaced by samples (Ferns et al. 2006)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.exact._quotient_solver import DeterministicSolver, solve_on_quotient
from bisimetric.exact._request import Request
from bisimetric.exact._sample_complexity import sampling_error
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.mdp import MDP

NUM_CHECKED_PAIRS = 512
"""Random pairs whose residual in the true equation is computed."""
PAC_CONFIDENCE = 0.95
"""The probability of the bound that holds before sampling, `exact.sampling_error`."""


def estimate_bisimulation(
    request: Request, mdp: MDP, solver: DeterministicSolver, samples: int, seed: int
) -> Distance:
    """Estimate d~ by that of the MDP of n sampled successors per state and action.

    W1 between two empirical distributions of n samples is an assignment problem divided by n, which
    the transport kernel solves with equal samples merged. d~ of the sampled MDP is solved to
    `request.tol`. Its distance from the true d~ is estimated: the largest residual of some random
    pairs in the true equation, divided by 1 - discount. Over all pairs that would be a proof. The
    metadata have the PAC bound of `exact.sampling_error`, "pac_bound".
    """
    if mdp.choice_labels is not None:
        raise InputError(
            "exact.bisimulation: samples= does not compare actions of equal choice labels as sets; "
            "leave samples out."
        )
    num_samples = require_integer("exact.bisimulation", "samples", samples, 1)
    rng = np.random.default_rng(require_integer("exact.bisimulation", "seed", seed))
    needed = 40.0 * mdp.R.size * num_samples
    require_memory(
        f"exact.bisimulation: {num_samples:,} samples need", needed, "take fewer samples"
    )
    sampled_mdp = mdp.replace(P=sample_transitions(mdp, num_samples, rng))
    distance = solve_on_quotient(request, sampled_mdp, solver)
    estimate = 0.0
    if mdp.num_states > 1:
        s, t = rng.integers(mdp.num_states, size=(2, NUM_CHECKED_PAIRS))
        s, t = np.maximum(s, t)[s != t], np.minimum(s, t)[s != t]
        backup = policy_iteration.apply_operator(mdp, np.asarray(distance.values, np.float64), s, t)
        estimate = float(np.abs(backup - distance.values[s, t]).max(initial=0.0)) / (
            1 - mdp.discount
        )
    pac_bound = sampling_error(mdp, num_samples, confidence=PAC_CONFIDENCE) + distance.error
    metadata = {
        **distance.metadata,
        "samples": num_samples,
        "seed": int(seed),
        "pac_bound": min(pac_bound, mdp.diameter_bound),
        "pac_confidence": PAC_CONFIDENCE,
    }
    return dataclasses.replace(
        distance, mdp=mdp, error=math.inf, estimate=estimate + distance.error, metadata=metadata
    )


def sample_transitions(mdp: MDP, num_samples: int, rng: np.random.Generator) -> sparse.csr_array:
    """Return P (S * A, S) with the relative frequencies of sampled successors in each row."""
    P = mdp.P
    rows = P.shape[0]
    # Inverse transform sampling: the first successor whose cumulative probability exceeds u.
    sums = np.cumsum(mdp.normalised_probabilities.data)
    start = np.concatenate([[0.0], sums])[P.indptr[:-1]]
    sampled = np.searchsorted(sums, start[:, None] + rng.random((rows, num_samples)), side="right")
    sampled = np.clip(sampled, P.indptr[:-1, None], P.indptr[1:, None] - 1)
    entries = (
        np.full(sampled.size, 1 / num_samples),
        (np.repeat(np.arange(rows), num_samples), P.indices[sampled.ravel()]),
    )
    return sparse.csr_array(entries, P.shape)
