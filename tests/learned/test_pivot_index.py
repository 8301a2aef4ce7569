"""A pivot index finds what comparing with all observations finds, with fewer comparisons."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import InputError
from bisimetric.learned import (
    FeatureScaling,
    FreeNetwork,
    LearnedDistance,
    MetricNetwork,
    PivotIndex,
)
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from tests.property_testing import scaled


def build_metric(key: int, network: MetricNetwork | FreeNetwork | None = None) -> LearnedDistance:
    """An untrained network, which is a metric all the same."""
    form = network or MetricNetwork((8,), num_groups=4, group_size=2, fourier_features=0)
    coupled = PairQEnsemble(form, num_actions=2, unit=10.0, diameter_bound=1.0)
    scale = FeatureScaling(np.zeros(2), np.ones(2))
    weights = coupled.init(jax.random.key(key), 2)
    return LearnedDistance("bisimulation", 0.9, coupled, weights, scale)


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(25))
@given(st.integers(0, 5), st.integers(1, 400), st.integers(1, 6), st.integers(1, 9))
def test_it_finds_the_nearest(key: int, count: int, k: int, pivots: int) -> None:
    random = np.random.default_rng(count)
    d, seen = build_metric(key), random.normal(size=(count, 2))
    seen[: count // 3] = seen[0]  # equal ones are at distance 0
    x = random.normal(size=2)
    found = PivotIndex(d, seen, num_pivots=pivots).nearest(x, k)
    plain = d.table(x[None], seen)[0]
    assert len(found.ids) == len(found.distances) == min(k, count)
    np.testing.assert_allclose(found.distances, np.sort(plain)[:k], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(plain[found.ids], found.distances, rtol=1e-5, atol=1e-5)


def test_it_skips_most_distant_observations() -> None:
    random = np.random.default_rng(0)
    corners = random.normal(size=(40, 2)) * 50
    seen = (corners[:, None] + 0.01 * random.normal(size=(40, 100, 2))).reshape(-1, 2)
    found = PivotIndex(build_metric(0), seen).nearest(corners[3], 5)
    assert set(found.ids) <= set(range(300, 400))
    assert found.num_compared < len(seen) / 4


def test_bad_input() -> None:
    with pytest.raises(InputError, match="no MetricNetwork and may violate the triangle"):
        PivotIndex(build_metric(0, FreeNetwork((8,))), np.zeros((3, 2)))
    with pytest.raises(InputError, match="observations is empty"):
        PivotIndex(build_metric(0), np.zeros((0, 2)))
    with pytest.raises(InputError, match="num_pivots is 0"):
        PivotIndex(build_metric(0), np.zeros((3, 2)), num_pivots=0)
    with pytest.raises(InputError, match="k is 0"):
        PivotIndex(build_metric(0), np.zeros((3, 2))).nearest(np.zeros(2), 0)
