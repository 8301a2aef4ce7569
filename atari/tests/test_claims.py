"""The paper's claims on series where they are planted, and where they are not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from bisimetric.errors import InputError
from bisimetric_atari.paper import claims, exact_returns
from bisimetric_atari.paper.claims import rank_auc, rank_correlation

STEPS, WINDOW = 2_000, 5


@dataclasses.dataclass
class FakeEpisode:
    """An episode without any events."""

    screens: NDArray[Any] = dataclasses.field(
        default_factory=lambda: np.zeros((STEPS, 4, 4), np.uint8)
    )
    values: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(STEPS, np.float32))
    rewards: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(STEPS))
    terminated: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(STEPS, bool))
    truncated: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(STEPS, bool))
    starts: NDArray[Any] = dataclasses.field(default_factory=lambda: np.array([0]))
    life_losses: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    level_starts: NDArray[Any] | None = None


def make_smooth_series(seed: int) -> NDArray[np.float64]:
    """Make an autocorrelated series."""
    noise = np.random.default_rng(seed).normal(size=STEPS + 60)
    return 10 + np.convolve(noise, np.ones(61) / 8, mode="valid")


def check_by_name(episode: FakeEpisode, d: NDArray[Any], **options: Any) -> dict[str, claims.Claim]:
    found = claims.check_claims(episode, d, window=WINDOW, **options)
    return {each.name: each for each in found}


EVENTS = np.array([150, 333, 480, 701, 950, 1100, 1500, 1777])


def make_bumps(at: NDArray[Any], height: float, before: int, after: int) -> NDArray[np.float64]:
    found = np.zeros(STEPS)
    for each in at:
        found[each - before : each + after + 1] = height
    return found


@pytest.mark.parametrize(("height", "holds"), [(-8.0, True), (0.0, False), (8.0, False)])
@pytest.mark.parametrize("kind", ["game", "level"])
def test_low_distances_at_starts(kind: str, height: float, holds: bool) -> None:
    d = np.maximum(make_smooth_series(0) + make_bumps(EVENTS, height, 0, WINDOW), 0)
    starts = np.append(0, EVENTS)
    episode = FakeEpisode(starts=starts) if kind == "game" else FakeEpisode(level_starts=EVENTS)
    found = check_by_name(episode, d)[f"{kind} starts"]
    assert found.holds is holds
    assert (found.statistics["near"] < found.statistics["elsewhere"]) is (height < 0)
    if height < 0:
        assert found.statistics["auc"] > 0.95
        assert "holds" in str(found)


def test_a_recording_without_other_frames_is_undecided() -> None:
    claim = claims.check_starts("game starts", np.arange(30.0), [0], source=29, window=15)
    assert claim.holds is None
    assert "too short" in claim.summary


def test_the_start_beside_the_source_is_excluded() -> None:
    d = make_smooth_series(0)
    d[700:720] = 0
    found = check_by_name(FakeEpisode(starts=np.array([0, 705])), d, source=702)["game starts"]
    # Frame 0 is a start too, and the source is not beside it.
    assert found.statistics["near"] > 3
    assert check_by_name(FakeEpisode(), d)["game starts"].holds is None
    assert check_by_name(FakeEpisode(), d)["level starts"].holds is None


@pytest.mark.parametrize(("height", "holds"), [(8.0, True), (0.0, False), (-8.0, False)])
def test_peaks_at_scores(height: float, holds: bool) -> None:
    d = make_smooth_series(11) + make_bumps(EVENTS, height, 2, 2)
    episode = FakeEpisode()
    episode.rewards[EVENTS] = 25
    # Points of the opponent do not count.
    episode.rewards[EVENTS + 60] = -1
    found = check_by_name(episode, d)["peaks at scores"]
    assert found.holds is holds
    if holds:
        assert found.statistics["peak"] - found.statistics["mean_peak"] > 2
        assert found.statistics["auc"] > 0.9
    assert check_by_name(FakeEpisode(), d)["peaks at scores"].holds is None


@pytest.mark.parametrize("linked", [True, False])
def test_plateaus_where_the_screen_does_not_change(linked: bool) -> None:
    rng = np.random.default_rng(2)
    moves = np.repeat(rng.random(STEPS // 20) < 0.5, 20)
    steps = np.where(moves, rng.normal(size=STEPS), 0.01 * rng.normal(size=STEPS))
    screens = np.cumsum(moves if linked else np.roll(moves, 777), dtype=np.int64)
    pictures = np.repeat((screens % 251).astype(np.uint8), 16).reshape(STEPS, 4, 4)
    found = check_by_name(FakeEpisode(screens=pictures), 50 + np.cumsum(steps))
    one = found["plateaus when nothing moves"]
    assert one.holds is linked
    if linked:
        assert one.statistics["still"] < one.statistics["moving"] / 10
    nothing = check_by_name(FakeEpisode(), np.ones(STEPS))["plateaus when nothing moves"]
    assert nothing.holds is None


@pytest.mark.parametrize(("height", "holds"), [(30.0, True), (0.0, False)])
@pytest.mark.parametrize("lives", [True, False])
def test_the_furthest_frames_before_a_loss(height: float, holds: bool, lives: bool) -> None:
    d = make_smooth_series(3) + make_bumps(EVENTS, height, WINDOW, 0)
    episode = FakeEpisode(life_losses=EVENTS) if lives else FakeEpisode()
    if not lives:
        episode.rewards[EVENTS] = -1
    name = "furthest before a loss of life" if lives else "furthest before a lost point"
    found = check_by_name(episode, d)[name]
    assert found.holds is holds
    assert found.statistics["base_fraction"] == pytest.approx(8 * (WINDOW + 1) / STEPS)
    if holds:
        assert found.statistics["fraction"] == 1
    assert check_by_name(FakeEpisode(), d)["furthest before a loss of life"].holds is None


def test_distances_that_correlate_with_values() -> None:
    d = make_smooth_series(4)
    d[7] = 0
    other = check_by_name(FakeEpisode(values=make_smooth_series(5).astype(np.float32)), d, source=7)
    assert other["correlates with the difference of values"].holds is False
    episode = FakeEpisode(values=(3 + 0.9 * d).astype(np.float32))
    found = check_by_name(episode, d, source=7)["correlates with the difference of values"]
    assert found.holds is True
    assert found.statistics["correlation"] > 0.99
    assert found.statistics["bounded"] == 1
    double = FakeEpisode(values=(3 + 2 * d).astype(np.float32))
    far = check_by_name(double, d, source=7)["correlates with the difference of values"]
    assert far.statistics["bounded"] < 0.01
    flat = check_by_name(FakeEpisode(), d)["correlates with the difference of values"]
    assert flat.holds is None


def test_distances_that_correlate_with_the_exact_ones() -> None:
    episode = FakeEpisode()
    rng = np.random.default_rng(6)
    episode.rewards[:] = np.where(rng.random(STEPS) < 0.05, 30.0, 0.0)
    episode.terminated[[600, 1300]] = True
    horizon = exact_returns.compute_horizon(0.9)
    future = exact_returns.gather_futures(
        np.clip(episode.rewards, -1, 1), episode.terminated, np.arange(STEPS), horizon
    )
    d = exact_returns.compute_distances(future[:1], 0.9, future)[0]
    found = check_by_name(episode, d, discount=0.9)["correlates with the exact distance"]
    assert found.holds is True
    assert found.statistics["correlation"] == pytest.approx(1)
    assert found.statistics["error"] == pytest.approx(0, abs=1e-5)
    assert found.statistics["frames"] == STEPS - horizon + 1
    other = check_by_name(episode, make_smooth_series(7), discount=0.9)[
        "correlates with the exact distance"
    ]
    assert other.holds is False
    # Without clipping they are 30 times as far.
    wide = check_by_name(episode, 30 * d, discount=0.9, clip_rewards=False)[
        "correlates with the exact distance"
    ]
    assert wide.statistics["error"] == pytest.approx(0, abs=1e-3)
    late = check_by_name(episode, d, discount=0.9, source=STEPS - 5)[
        "correlates with the exact distance"
    ]
    assert late.holds is None


def test_claims_are_checked_for_the_exact_distances_too() -> None:
    episode = FakeEpisode()
    episode.rewards[np.append(EVENTS, EVENTS + 3)] = 1.0
    episode.terminated[-1] = True
    learned = make_smooth_series(8) - make_bumps(EVENTS, 8.0, WINDOW, WINDOW)
    found = check_by_name(episode, np.maximum(learned, 0), discount=0.9)["peaks at scores"]
    # Far from a score all rewards are 0 for long, as after frame 0: the exact distance is 0.
    assert (found.holds, found.holds_for_reference) == (False, True)
    assert "does not hold (exact distances: holds)" in str(found)
    episode.terminated[-1] = False
    assert (
        check_by_name(episode, make_smooth_series(8), discount=0.9)[
            "peaks at scores"
        ].holds_for_reference
        is None
    )


def test_distances_of_another_shape_raise() -> None:
    with pytest.raises(InputError, match=r"the distances have shape \(5,\) and must be \(2000,\)"):
        claims.check_claims(FakeEpisode(), np.zeros(5))
    with pytest.raises(InputError, match="numbers, one per frame"):
        claims.check_claims(FakeEpisode(), np.full(STEPS, np.nan))


def test_ranks_are_those_of_scipy() -> None:
    rng = np.random.default_rng(8)
    x, y, mask = rng.integers(0, 9, 300), rng.normal(size=300), rng.random(300) < 0.2
    test = stats.mannwhitneyu(x[mask], x[~mask])
    assert rank_auc(x, mask).statistic == pytest.approx(test.statistic / mask.sum() / (~mask).sum())
    assert rank_correlation(x, y).statistic == pytest.approx(stats.spearmanr(x, y).statistic)


def test_p_values_are_calibrated_for_autocorrelated_series() -> None:
    """A test for independent samples would reject far too often."""
    p_values, naive = [], []
    for seed in range(60):
        one, other = make_smooth_series(100 + seed), make_smooth_series(300 + seed)
        p_values.append(rank_correlation(one, other).p_value)
        naive.append(stats.spearmanr(one, other, alternative="greater").pvalue)
    assert np.mean(np.array(p_values) <= 0.05) < 0.15
    assert np.mean(np.array(naive) <= 0.05) > 0.25


@pytest.mark.parametrize("shift", [0, 13, 1999])
def test_the_p_value_counts_circular_shifts(shift: int) -> None:
    x, y = make_smooth_series(9), make_smooth_series(10)
    statistics = [np.dot(stats.rankdata(x), np.roll(stats.rankdata(y), k)) for k in range(STEPS)]
    shifted = np.roll(y, shift)
    expected = np.mean(np.array(statistics) >= statistics[shift] - 1e-6)
    assert rank_correlation(x, shifted).p_value == pytest.approx(expected, abs=2 / STEPS)
