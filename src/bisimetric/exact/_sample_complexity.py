"""How many samples a Monte Carlo estimate of d~ needs: a PAC bound."""

from __future__ import annotations

import math

import numpy as np

from bisimetric._rounding import UNIT
from bisimetric.errors import InputError, require_integer
from bisimetric.exact._concentration import log_subsets, validate_confidence
from bisimetric.exact._request import validate_tol
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp

ROUNDING = 1 + 64 * UNIT
"""Logarithms, square roots, products and quotients of few numbers of at least 0."""


def sampling_error(mdp: MDP, samples: int, *, confidence: float = 0.95) -> float:
    """Bound the error of a Monte Carlo estimate of d~, with some probability, before sampling.

    `exact.bisimulation(mdp, samples=K)` replaces each row P(s, a) by the empirical distribution of
    K independent samples (Ferns et al. 2006). With probability at least `confidence`, its solution
    d_K satisfies for all pairs at once

        |d_K - d~| <= 2 discount / (1 - discount) * D * eps,
        eps = sqrt(log(sum over rows of (2^n - 2) / (1 - confidence)) / (2 K))

    where n is the number of successors of a row and D the diameter bound. For d_K and d~ are the
    fixed points of contractions that differ at d~ by at most discount times the sum of two
    W1(d~)(P_K, P), W1(d~)(P_K, P) is at most D times the total variation distance, and that exceeds
    eps with probability at most (2^n - 2) exp(-2 K eps^2) (Weissman et al. 2003, Inequalities for
    the L1 deviation of the empirical distribution). A row with one successor costs nothing.

    Castro (2011), On planning, prediction and knowledge transfer in fully and partially observable
    Markov decision processes, PhD thesis, McGill University, has a PAC bound for this estimate;
    this one is proven here, and its constants are not those of the thesis.

    Args:
        mdp: the MDP, whose rows are sampled. Its probabilities enter only by their support.
        samples: K, the number of samples per state and action.
        confidence: the probability that the bound holds, above 0 and below 1.

    Returns:
        The bound, at most the diameter bound, in units of reward. The estimate itself is solved to
        its own `tol`, which comes on top.

    Raises:
        InputError: an argument has the wrong type or value.

    >>> mdp = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0], [1]], discount=0.5)
    >>> [round(sampling_error(mdp, k), 3) for k in (1, 100, 10_000)]
    [2.0, 0.543, 0.054]
    """
    caller = "exact.sampling_error"
    require_mdp(caller, mdp)
    count = require_integer(caller, "samples", samples, 1)
    log_rows = _count_log_subsets(mdp) - math.log(1 - validate_confidence(caller, confidence))
    bound = _scale(mdp) * math.sqrt(max(log_rows, 0.0) / (2 * count)) * ROUNDING
    return min(bound, mdp.diameter_bound * ROUNDING)


def sample_complexity(mdp: MDP, *, tol: float, confidence: float = 0.95) -> int:
    """Return how many samples per state and action make a Monte Carlo estimate of d~ accurate.

    The least K for which `sampling_error` is at most `tol`: with probability at least `confidence`,
    `exact.bisimulation(mdp, samples=K)` is within `tol` of d~ for all pairs at once, besides the
    `tol` to which it is solved,

        K = log(sum over rows of (2^n - 2) / (1 - confidence)) / 2
            * (2 discount D / ((1 - discount) tol))^2

    which grows with the fourth power of the horizon 1 / (1 - discount), since D grows with it, too.
    `exact.confidence_bounds` gives bounds from samples that were drawn, which are tighter.

    Args:
        mdp: the MDP, whose rows are sampled.
        tol: bound on the error of every distance.
        confidence: the probability that the bound holds, above 0 and below 1.

    Returns:
        K, at least 1.

    Raises:
        InputError: an argument has the wrong type or value.

    >>> mdp = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0], [1]], discount=0.5)
    >>> sample_complexity(mdp, tol=0.1), sample_complexity(mdp.replace(discount=0.99), tol=0.1)
    (2952, 72309415060)
    """
    caller = "exact.sample_complexity"
    require_mdp(caller, mdp)
    tol = validate_tol(caller, tol)
    log_rows = _count_log_subsets(mdp) - math.log(1 - validate_confidence(caller, confidence))
    if mdp.diameter_bound * ROUNDING <= tol or log_rows <= 0 or _scale(mdp) == 0:
        return 1
    needed = log_rows / 2 * (_scale(mdp) * ROUNDING / tol) ** 2
    if not needed < 2**62:
        raise InputError(
            f"is {tol:g}, which needs {needed:.2g} samples per state and action", caller=caller,
            argument="tol", remedy="use exact.bisimulation without samples",
        )  # fmt: skip
    samples = max(1, math.floor(needed))
    while sampling_error(mdp, samples, confidence=confidence) > tol:
        samples += 1
    return samples


def _scale(mdp: MDP) -> float:
    """Return 2 discount D / (1 - discount)."""
    return 2 * mdp.discount * mdp.diameter_bound / (1 - mdp.discount)


def _count_log_subsets(mdp: MDP) -> float:
    """Return the logarithm of the sum over the rows of 2^n - 2; missing actions do not count."""
    supports = np.diff(mdp.P.indptr)[mdp.action_mask.ravel()]
    return float(np.logaddexp.reduce(log_subsets(supports)))
