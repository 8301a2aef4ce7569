"""Concentration inequalities against exact probabilities of all outcomes of a few samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from bisimetric.exact._concentration import RowSamples, RowSlack, penalise_random_sizes
from bisimetric.exact.stochastic.confidence_kernels import bound_probability, bound_rows

METRICS = (
    np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]], float),
    np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]], float),
    np.array([[0, 0.1, 2], [0.1, 0, 2.1], [2, 2.1, 0]], float),
)


def list_outcomes(p: Any, samples: int) -> Iterator[tuple[np.ndarray[Any, Any], float]]:
    """All counts of the values of some samples, with their probabilities."""
    for counts in itertools.product(range(samples + 1), repeat=len(p)):
        if sum(counts) == samples:
            ways = math.factorial(samples) / math.prod(map(math.factorial, counts))
            yield np.array(counts), ways * math.prod(q**k for q, k in zip(p, counts, strict=True))


def compute_w1(d: Any, p: Any, q: Any) -> float:
    n = len(p)
    marginals = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    found: Any = optimize.linprog(d.ravel(), A_eq=marginals, b_eq=np.concatenate([p, q]))
    return float(found.fun)


@pytest.mark.parametrize("samples", [1, 4, 15])
def test_probabilities_are_bounded_from_below(samples: int) -> None:
    for p, failure in itertools.product((0.02, 0.3, 0.5, 0.97), (0.5, 0.1, 0.01)):
        level = -math.log(failure) / samples
        violated = sum(
            probability
            for counts, probability in list_outcomes((p, 1 - p), samples)
            if bound_probability(counts[0] / samples, level) > p
        )
        assert violated <= failure


def test_the_bound_on_a_probability_attains_its_level() -> None:
    for q, level in itertools.product((0.1, 0.5, 0.9), (0.01, 0.3)):
        p = bound_probability(q, level)
        kl = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
        assert level <= kl <= level * (1 + 1e-6)
    assert bound_probability(1.0, 0.5) == pytest.approx(math.exp(-0.5))
    assert bound_probability(0.0, 0.5) == 0
    assert bound_probability(0.5, 0.0) <= 0.5


@pytest.mark.parametrize("observed_only", [False, True])
@pytest.mark.parametrize("metric", METRICS, ids=["discrete", "line", "close"])
def test_empirical_rows_are_near_the_true_ones(metric: Any, observed_only: bool) -> None:
    """W1 exceeds its bound with at most the probability of failure; span and spread always hold."""
    for p, samples in itertools.product([(0.5, 0.3, 0.2), (0.9, 0.09, 0.01)], (2, 6)):
        for failure in (0.6, 0.2, 0.02):
            violated = 0.0
            for counts, probability in list_outcomes(p, samples):
                seen = np.flatnonzero(counts)
                if observed_only and len(seen) < 3:
                    continue  # the assumption does not hold
                transport, span, spread = np.zeros(1), np.zeros(1), np.zeros(1)
                bound_rows(
                    metric, np.array([0, len(seen)]), seen, counts[seen].astype(float),
                    np.array([samples]), np.array([-math.log(failure)]), 3, metric.max(axis=1),
                    observed_only, transport, span, spread,
                )  # fmt: skip
                distance = compute_w1(metric, counts / samples, np.array(p))
                violated += probability * (distance > transport[0] + 1e-9)
                assert span[0] == metric.max()
                # Functions of 1 distance each are 1-Lipschitz; so are distances from a state.
                for f in metric:
                    values = np.repeat(f, counts)
                    assert values.std(ddof=1) <= spread[0] + 1e-12
            assert violated <= failure


def test_bernstein_bounds_the_mean_of_one_function() -> None:
    for p, samples, failure in itertools.product((0.05, 0.5), (2, 5, 20), (0.5, 0.1)):
        violated = 0.0
        for counts, probability in list_outcomes((p, 1 - p), samples):
            values = np.repeat([1.0, 0.0], counts)
            bound = RowSlack._bound_by_bernstein(
                np.array([values.std(ddof=1)]), np.ones(1), np.array([math.log(2 / failure)]),
                np.array([float(samples)]),
            )  # fmt: skip
            violated += probability * (p - values.mean() > bound[0])
        assert violated <= failure
    one = RowSlack._bound_by_bernstein(np.zeros(1), np.ones(1), np.ones(1), np.ones(1))
    assert one[0] == np.inf


def test_random_numbers_of_samples_cost_a_probability_of_at_most_one() -> None:
    K = np.arange(1.0, 1e6)
    tail = 1 / (2 * (1 + math.log(1e6 - 1)))  # the integral of 1 / (2 x (1 + log x)^2)
    assert 0.8 < np.exp(-penalise_random_sizes(K)).sum() + tail <= 1


def collect_samples(adaptive: bool = True, visited: Any = None) -> RowSamples:
    """Three states and two actions; state 2 never takes action 1."""
    rng = np.random.default_rng(0)
    row = np.repeat(np.arange(5), [50, 80, 20, 60, 90])
    return RowSamples.count(
        row, rng.integers(3, size=len(row)), rng.random(len(row)), shape=(3, 2), terminal=None,
        visited=np.ones(3, bool) if visited is None else visited, reward_range=(0.0, 1.0),
        adaptive=adaptive, observed_only=False, deterministic_rewards=False, caller="test",
    )  # fmt: skip


@pytest.mark.parametrize("adaptive", [True, False])
def test_rows_of_a_policy_are_mixtures(adaptive: bool) -> None:
    samples, upper = collect_samples(adaptive), METRICS[1]
    weights = np.array([[0.25, 0.75], [1.0, 0.0], [1.0, 0.0]])
    found = RowSlack(samples, 0.9, 3, 6.0, 0.5, 3.0, weights).compute(upper)
    rows = RowSlack(samples, 0.9, 3, 6.0, 0.5, 3.0).compute(upper)
    # Two rows per state: twice as many means are bounded at once.
    linear = RowSlack(samples, 0.9, 3, 12.0, 0.5, 3.0).compute(upper).linear
    used = weights > 0
    row, linear, square = (
        np.where(used, x.reshape(3, 2), 0) for x in (rows.row, linear, rows.square)
    )
    assert np.allclose(found.row, (weights * row).sum(axis=1))
    assert np.allclose(found.linear, (weights * linear).sum(axis=1))
    assert np.allclose(found.square, (weights**2 * square).sum(axis=1))
    penalty = penalise_random_sizes(samples.totals.reshape(3, 2).astype(float)) * adaptive
    levels = math.log(6 * 4 / 0.1) / 2 + np.where(used, penalty, 0).sum(axis=1)
    assert np.allclose(found.level, levels)
    assert np.isinf(RowSlack(samples, 0.9, 3, 6.0, 0.5, 3.0, 1 - weights).compute(upper).row[2])


def test_states_that_were_not_visited_may_be_at_the_diameter_bound() -> None:
    samples, upper = collect_samples(), METRICS[1]
    known = RowSlack(samples, 0.9, 3, 6.0, 0.5, 3.0).compute(upper)
    more = RowSlack(samples, 0.9, 4, 6.0, 0.5, 10.0).compute(upper)
    assert (more.row[:5] > 2 * known.row[:5]).all()
    # The range of a function is that of the rewards and half of the diameter bound, 1 + 5.
    assert np.allclose(more.square[:5], 36 / (2 * samples.totals[:5]))
    # An id that is no state, however far, does not count.
    far = collect_samples(visited=np.array([True, True, False]))
    apart = upper + 100 * (np.arange(3) == 2) + 100 * (np.arange(3) == 2)[:, None]
    near = RowSlack(far, 0.9, 2, 6.0, 0.5, 3.0).compute(apart)
    assert np.allclose(near.square[:4], 1.5**2 / (2 * far.totals[:4]))


def test_samples_are_counted_by_row() -> None:
    samples = collect_samples()
    rng = np.random.default_rng(0)
    row = np.repeat(np.arange(5), [50, 80, 20, 60, 90])
    successor, reward = rng.integers(3, size=len(row)), rng.random(len(row))
    P, R = samples.estimate()
    for i in range(5):
        own = row == i
        assert samples.mean[i] == pytest.approx(reward[own].mean())
        assert samples.deviation[i] == pytest.approx(reward[own].std(ddof=1), rel=1e-8)
        frequencies = np.bincount(successor[own], minlength=3) / own.sum()
        assert np.allclose(P.toarray()[i], frequencies)
    assert R.shape == (3, 2)
    assert samples.describe() == {"samples": [0, 55.0, 90], "without": 1}


def test_two_possible_successors_have_two_sets() -> None:
    """The excess of one of two states is that of a set of one; both sizes and sets count."""
    d, transport, span, spread = np.array([[0, 1], [1, 0.0]]), np.zeros(1), np.zeros(1), np.zeros(1)
    bound_rows(
        d, np.array([0, 2]), np.array([0, 1]), np.array([60.0, 40.0]), np.array([100]),
        np.array([3.0]), 2, d.max(axis=1), False, transport, span, spread,
    )  # fmt: skip
    # log 2 for two sizes of a set, and log 2 for the two sets of one.
    assert transport[0] == pytest.approx(math.sqrt((3 + 2 * math.log(2)) / 200))
    assert spread[0] == pytest.approx(math.sqrt(0.24 * 100 / 99))
