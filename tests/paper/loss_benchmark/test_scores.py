"""Scores of learned distances against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bisimetric.paper.loss_benchmark import scores

EXACT = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 4.0], [2.0, 4.0, 0.0]])


def build(a: float, b: float, c: float, diagonal: float = 0.0) -> scores.Matrix:
    """Return a symmetric matrix with the distances of pairs (0, 1), (0, 2) and (1, 2)."""
    d = diagonal
    return np.array([[d, a, b], [a, d, c], [b, c, d]])


def test_scores_are_those_computed_by_hand() -> None:
    found = scores.score(build(2, 1, 3), EXACT)
    # Ranks 2, 1, 3 and 1, 2, 3: 1 - 6 * 2 / (3 * 8).
    assert found.rank_correlation == pytest.approx(0.5)
    assert found.error == pytest.approx(np.sqrt(3 / 21))
    # The best factor is (2 + 2 + 12) / 14 = 8 / 7.
    assert found.scaled_error == pytest.approx(np.sqrt(1 - 16**2 / (14 * 21)))
    # Of states 0 and 1 the neighbours are 2 and 0, by the reference 1 and 0; 2 agrees.
    assert found.neighbours == pytest.approx(2 / 3)


def test_a_constant_has_no_rank_and_distance_zero_has_error_one() -> None:
    constant = scores.score(build(5, 5, 5), EXACT)
    assert constant.rank_correlation == 0
    assert constant.scaled_error == pytest.approx(np.sqrt(1 - 7**2 / (3 * 21)))
    zero = scores.score(build(0, 0, 0), EXACT)
    assert (zero.error, zero.scaled_error) == (1, 1)
    # No factor below 0 is allowed.
    assert scores.score(build(-1, -2, -4), EXACT).scaled_error == 1


def test_ties_of_the_reference_are_neighbours() -> None:
    tied = build(1, 1, 4)
    assert scores.compute_neighbour_agreement(build(3, 2, 9), tied) == 1


def test_self_distances_matter_for_noise_alone() -> None:
    assert scores.score(build(1, 2, 4, diagonal=9.0), EXACT) == scores.score(EXACT, EXACT)
    assert scores.compute_noise_ratio(build(1, 2, 6, diagonal=1.5)) == pytest.approx(0.5)
    assert scores.compute_noise_ratio(build(0, 0, 0)) == 0


def test_violations_of_the_value_bound_are_counted() -> None:
    values = np.array([0.0, 2.0, 3.0])
    assert scores.compute_value_violations(build(2, 3, 1), values) == 0
    assert scores.compute_value_violations(build(1, 3, 1), values) == pytest.approx(1 / 3)
    # 1% of the largest difference, 0.03, is tolerated.
    assert scores.compute_value_violations(build(1.98, 3, 1), values) == 0
    assert scores.compute_value_violations(build(1.96, 3, 1), values) == pytest.approx(1 / 3)


def test_a_diverged_network_has_no_scores() -> None:
    bad = build(1, float("nan"), 2)
    assert np.isnan(scores.score(bad, EXACT)).all()
    assert np.isnan(scores.compute_noise_ratio(bad))
    assert np.isnan(scores.compute_value_violations(bad, np.zeros(3)))
