"""Which states a page shows, and where."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import MDP, worlds
from bisimetric.explorer import layout
from tests.property_testing import scaled


@given(st.integers(20, 200), st.integers(1, 3), st.integers(9, 60), st.integers(0, 99))
@settings(deadline=None, max_examples=scaled(25))
def test_a_sample_has_its_size_and_grows_by_steps(
    count: int, actions: int, most: int, key: int
) -> None:
    rng = np.random.default_rng(key)
    after = rng.integers(0, count, (count, actions))
    mdp = MDP.deterministic(after, np.zeros((count, actions)), discount=0.5)
    found = layout.sample_states(mdp, count, most)
    assert len(found) == len(set(found.tolist())) == min(count, most)
    assert (np.diff(found) > 0).all()


def test_a_sample_is_more_closed_than_one_at_random() -> None:
    mdp = worlds.load("open-grid", rows=50, columns=50, obstacles=0)
    found = layout.sample_states(mdp, mdp.num_states, 500)
    inside = np.isin(mdp.next_state[found], found).mean()
    at_random = np.random.default_rng(0).choice(mdp.num_states, 500, replace=False)
    assert inside > 0.8 > 2 * np.isin(mdp.next_state[at_random], at_random).mean()


def test_coinciding_points_are_spread() -> None:
    moved = layout.spread_points(np.zeros((50, 2)), layout.POINT_SPACING)
    apart = np.linalg.norm(moved[:, None] - moved[None], axis=-1) + np.eye(50)
    assert apart.min() > 0.5 * layout.POINT_SPACING
    alone = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert (layout.spread_points(alone, layout.POINT_SPACING) == alone).all()


@pytest.mark.parametrize("count", [2, 5, 30, 200])
def test_few_bisimilar_states_do_not_overlap(count: int) -> None:
    found = layout.build_layout(
        None, np.zeros((count, count)), np.arange(count), np.full(count, True)
    )
    points = np.array(found["points"])
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(count)
    # As wide as parts/state_layout.js draws them, in shares of the width of the picture.
    drawn = max(1.1, min(4, 30 / math.sqrt(count))) / 100
    assert apart.min() >= drawn
