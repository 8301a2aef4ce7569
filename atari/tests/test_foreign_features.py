"""Recordings of features that were collected elsewhere, and distances without a metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import Transitions
from bisimetric.errors import InputError
from bisimetric_atari.games import Episode, IdleAgent, play
from bisimetric_atari.paper.baselines import check_baselines, compute_baselines, format_table
from bisimetric_atari.paper.claims import check_claims


def build_data(n: int = 12) -> Transitions:
    x = np.random.default_rng(0).normal(size=(n + 1, 3))
    ended = np.arange(1, n + 1) % 5 == 0
    return Transitions(x[:-1], np.arange(n) % 2, np.ones(n), x[1:], ended, metadata={"note": "a"})


def test_an_episode_without_screens() -> None:
    data = build_data()
    episode = Episode.from_transitions(data, game="Mine", values=np.arange(12))
    assert not episode.has_screens
    assert episode.starts.tolist() == [0, 5, 10]
    assert episode.scores.tolist() == [5.0, 5.0, 2.0]
    assert episode.metadata["note"] == "a"
    assert "game" not in episode.metadata
    assert episode.values.tolist() == list(range(12))
    assert episode.truncated.tolist() == [False] * 11 + [True]
    np.testing.assert_array_equal(episode.features, data.observations.astype(np.float32))
    with pytest.raises(InputError, match="Mine: no screens were recorded"):
        episode.render(0)
    claim = {each.name: each for each in check_claims(episode, np.arange(12.0))}
    assert claim["plateaus when nothing moves"].summary == "no screens were recorded."


def test_rgb_screens_are_stored_by_colour() -> None:
    recorded = play("Pong", IdleAgent("Pong"), max_steps=12)
    screens = np.stack([recorded.render(i) for i in range(12)])
    episode = Episode.from_transitions(build_data(), screens=screens)
    np.testing.assert_array_equal(np.stack([episode.render(i) for i in range(12)]), screens)
    assert episode.has_screens


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"screens": np.zeros((12, 4, 4), np.uint8)}, r"\(12, height, width, 3\)"),
        ({"screens": np.arange(12 * 108, dtype=np.int64)}, "must be uint8"),
        ({"values": np.zeros(3)}, "values are"),
    ],
)
def test_arrays_are_validated(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Episode.from_transitions(build_data(), **change)


def test_more_than_256_colours_raise() -> None:
    colours = np.arange(12 * 9 * 3).reshape(12, 3, 3, 3)
    screens = np.stack([colours[..., 0] % 256, colours[..., 1] // 8, colours[..., 2] % 7], axis=-1)
    screens = np.repeat(np.repeat(screens, 3, 1), 3, 2).astype(np.uint8)
    screens[..., 0] += np.arange(9, dtype=np.uint8)
    with pytest.raises(InputError, match=r"colours and at most 256 are stored"):
        Episode.from_transitions(build_data(), screens=screens)


def test_baselines_are_the_plain_differences() -> None:
    episode = play("Pong", IdleAgent("Pong"), max_steps=40)
    found = compute_baselines(episode, 7)
    for frame in (0, 7, 39):
        gap = np.abs(episode.render(frame).astype(float) - episode.render(7)).mean()
        assert found["pixels"][frame] == pytest.approx(gap)
    gaps = np.linalg.norm(episode.features - episode.features[7], axis=1)
    np.testing.assert_allclose(found["features"], gaps, rtol=1e-5, atol=1e-6)
    assert (found["values"] == 0).all()
    checked = check_baselines(episode, source=7)
    metric = check_claims(episode, found["features"], source=7)
    assert [claim.statistics for claim in checked["features"]] == [
        claim.statistics for claim in metric
    ]
    lines = format_table(metric, checked)
    assert lines[0].split() == ["metric", "pixels", "features", "values"]
    assert len(lines) == 1 + len(metric)
