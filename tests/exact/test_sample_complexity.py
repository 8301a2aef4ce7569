"""The PAC bound of the Monte Carlo estimate: its inequality, its inverse, and its coverage."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, InputError, exact, worlds
from bisimetric.exact._concentration import log_subsets


def exceedance(p: Any, samples: int, radius: float) -> float:
    """The probability that an empirical distribution is further off than `radius`, exactly."""
    found = 0.0
    for counts in itertools.product(range(samples + 1), repeat=len(p) - 1):
        counts = (*counts, samples - sum(counts))
        if counts[-1] >= 0:
            frequency = np.array(counts) / samples
            if np.abs(frequency - p).sum() / 2 > radius:
                ways = math.factorial(samples) / math.prod(map(math.factorial, counts))
                found += ways * math.prod(q**k for q, k in zip(p, counts, strict=True))
    return found


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.9, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.7, 0.2, 0.1)])
@pytest.mark.parametrize("samples", [1, 5, 20])
def test_the_deviation_of_empirical_distributions_is_bounded(p: Any, samples: int) -> None:
    for delta in (0.5, 0.1, 0.01):
        radius = math.sqrt((float(log_subsets(len(p))) - math.log(delta)) / (2 * samples))
        assert exceedance(np.array(p), samples, radius) <= delta


def test_the_number_of_samples_is_the_least_that_suffices() -> None:
    mdp = worlds.load("random", states=6, actions=2, successors=3, discount=0.5, seed=0)
    for tol in (0.5, 0.05):
        samples = exact.sample_complexity(mdp, tol=tol, confidence=0.9)
        assert exact.sampling_error(mdp, samples, confidence=0.9) <= tol
        assert exact.sampling_error(mdp, samples - 2, confidence=0.9) > tol
    by_hand = math.log(12 * 6 / 0.1) / 2 * (2 * mdp.diameter_bound / 0.05 * 0.5 / 0.5) ** 2
    assert exact.sample_complexity(mdp, tol=0.05, confidence=0.9) == math.ceil(by_hand)


def test_estimates_are_within_the_bound() -> None:
    held = 0
    for seed in range(40):
        mdp = worlds.load("random", states=5, actions=2, successors=2, discount=0.3, seed=seed)
        d = exact.bisimulation(mdp)
        estimate = exact.bisimulation(mdp, samples=400, seed=seed)
        bound = exact.sampling_error(mdp, 400)
        assert bound < mdp.diameter_bound  # the bound is not vacuous
        held += bool(np.abs(d.values - estimate.values).max() <= bound)
    assert held == 40


def test_deterministic_rows_need_one_sample() -> None:
    mdp = worlds.load("mirrored-rooms")
    assert exact.sample_complexity(mdp, tol=1e-9) == 1
    assert exact.sampling_error(mdp, 1) == 0
    coin = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0], [1]], discount=0.5)
    assert exact.sample_complexity(coin, tol=2.1) == 1  # above the diameter bound
    assert exact.sample_complexity(coin.replace(discount=0.0), tol=1e-3) == 1


def test_invalid_arguments_are_named() -> None:
    coin = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0], [1]], discount=0.5)
    with pytest.raises(InputError, match="confidence is 1 and must be above 0 and below 1"):
        exact.sampling_error(coin, 10, confidence=1)
    with pytest.raises(InputError, match="samples is 0"):
        exact.sampling_error(coin, 0)
    with pytest.raises(InputError, match=r"tol is 0.0 and must be above 0"):
        exact.sample_complexity(coin, tol=0.0)
    with pytest.raises(InputError, match=r"samples per state and action; use exact.bisimulation"):
        exact.sample_complexity(coin, tol=1e-12)
