"""The observations of the paper on series where they are planted, and where they are not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from bisimetric.errors import InputError
from bisimetric.paper.atari import claims, exact_returns
from bisimetric.paper.atari.claims import rank_auc, rank_correlation

STEPS, WINDOW = 2_000, 5


@dataclasses.dataclass
class Played:
    """An episode with nothing in it, to plant things in."""

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


def smooth(key: int) -> NDArray[np.float64]:
    """A series whose neighbours are alike."""
    noise = np.random.default_rng(key).normal(size=STEPS + 60)
    return 10 + np.convolve(noise, np.ones(61) / 8, mode="valid")


def by_name(played: Played, d: NDArray[Any], **options: Any) -> dict[str, claims.Claim]:
    found = claims.check_claims(played, d, window=WINDOW, **options)
    return {each.name: each for each in found}


EVENTS = np.array([150, 333, 480, 701, 950, 1100, 1500, 1777])


def bumps(at: NDArray[Any], height: float, before: int, after: int) -> NDArray[np.float64]:
    found = np.zeros(STEPS)
    for each in at:
        found[each - before : each + after + 1] = height
    return found


@pytest.mark.parametrize(("height", "holds"), [(-8.0, True), (0.0, False), (8.0, False)])
@pytest.mark.parametrize("kind", ["game", "level"])
def test_low_distances_at_starts(kind: str, height: float, holds: bool) -> None:
    d = np.maximum(smooth(0) + bumps(EVENTS, height, 0, WINDOW), 0)
    starts = np.append(0, EVENTS)
    played = Played(starts=starts) if kind == "game" else Played(level_starts=EVENTS)
    found = by_name(played, d)[f"{kind} starts"]
    assert found.holds is holds
    assert (found.statistics["there"] < found.statistics["elsewhere"]) is (height < 0)
    if height < 0:
        assert found.statistics["auc"] > 0.95
        assert "holds" in str(found)


def test_the_start_beside_the_source_proves_nothing() -> None:
    d = smooth(0)
    d[700:720] = 0
    found = by_name(Played(starts=np.array([0, 705])), d, source=702)["game starts"]
    # Frame 0 is a start too, and the source is not beside it.
    assert found.statistics["there"] > 3
    assert by_name(Played(), d)["game starts"].holds is None
    assert by_name(Played(), d)["level starts"].holds is None


@pytest.mark.parametrize(("height", "holds"), [(8.0, True), (0.0, False), (-8.0, False)])
def test_peaks_where_points_are_scored(height: float, holds: bool) -> None:
    d = smooth(11) + bumps(EVENTS, height, 2, 2)
    played = Played()
    played.rewards[EVENTS] = 25
    # Points of the opponent are none of the agent's.
    played.rewards[EVENTS + 60] = -1
    found = by_name(played, d)["peaks at points"]
    assert found.holds is holds
    if holds:
        assert found.statistics["peak"] - found.statistics["any"] > 2
        assert found.statistics["auc"] > 0.9
    assert by_name(Played(), d)["peaks at points"].holds is None


@pytest.mark.parametrize("linked", [True, False])
def test_plateaus_where_the_screen_stands_still(linked: bool) -> None:
    rng = np.random.default_rng(2)
    moves = np.repeat(rng.random(STEPS // 20) < 0.5, 20)
    steps = np.where(moves, rng.normal(size=STEPS), 0.01 * rng.normal(size=STEPS))
    screens = np.cumsum(moves if linked else np.roll(moves, 777), dtype=np.int64)
    pictures = np.repeat((screens % 251).astype(np.uint8), 16).reshape(STEPS, 4, 4)
    found = by_name(Played(screens=pictures), 50 + np.cumsum(steps))
    one = found["plateaus when nothing moves"]
    assert one.holds is linked
    if linked:
        assert one.statistics["still"] < one.statistics["moving"] / 10
    nothing = by_name(Played(), np.ones(STEPS))["plateaus when nothing moves"]
    assert nothing.holds is None


@pytest.mark.parametrize(("height", "holds"), [(30.0, True), (0.0, False)])
@pytest.mark.parametrize("lives", [True, False])
def test_the_furthest_frames_before_a_loss(height: float, holds: bool, lives: bool) -> None:
    d = smooth(3) + bumps(EVENTS, height, WINDOW, 0)
    played = Played(life_losses=EVENTS) if lives else Played()
    if not lives:
        played.rewards[EVENTS] = -1
    name = "furthest before a loss of life" if lives else "furthest before a lost point"
    found = by_name(played, d)[name]
    assert found.holds is holds
    assert found.statistics["all"] == pytest.approx(8 * (WINDOW + 1) / STEPS)
    if holds:
        assert found.statistics["share"] == 1
    assert by_name(Played(), d)["furthest before a loss of life"].holds is None


def test_distances_that_follow_values_and_bound_them() -> None:
    d = smooth(4)
    d[7] = 0
    other = by_name(Played(values=smooth(5).astype(np.float32)), d, source=7)
    assert other["follows the difference of values"].holds is False
    played = Played(values=(3 + 0.9 * d).astype(np.float32))
    found = by_name(played, d, source=7)["follows the difference of values"]
    assert found.holds is True
    assert found.statistics["correlation"] > 0.99
    assert found.statistics["bounded"] == 1
    double = Played(values=(3 + 2 * d).astype(np.float32))
    far = by_name(double, d, source=7)["follows the difference of values"]
    assert far.statistics["bounded"] < 0.01
    flat = by_name(Played(), d)["follows the difference of values"]
    assert flat.holds is None


def test_distances_that_follow_the_exact_ones() -> None:
    played = Played()
    rng = np.random.default_rng(6)
    played.rewards[:] = np.where(rng.random(STEPS) < 0.05, 30.0, 0.0)
    played.terminated[[600, 1300]] = True
    ahead = exact_returns.compute_horizon(0.9)
    future = exact_returns.gather_futures(
        np.clip(played.rewards, -1, 1), played.terminated, np.arange(STEPS), ahead
    )
    d = exact_returns.compute_distances(future[:1], 0.9, future)[0]
    found = by_name(played, d, discount=0.9)["follows the exact distance"]
    assert found.holds is True
    assert found.statistics["correlation"] == pytest.approx(1)
    assert found.statistics["error"] == pytest.approx(0, abs=1e-5)
    assert found.statistics["frames"] == STEPS - ahead + 1
    other = by_name(played, smooth(7), discount=0.9)["follows the exact distance"]
    assert other.holds is False
    # Without clipping they are 30 times as far.
    wide = by_name(played, 30 * d, discount=0.9, clip=False)["follows the exact distance"]
    assert wide.statistics["error"] == pytest.approx(0, abs=1e-3)
    late = by_name(played, d, discount=0.9, source=STEPS - 5)["follows the exact distance"]
    assert late.holds is None


def test_claims_are_put_to_the_exact_distances_too() -> None:
    played = Played()
    played.rewards[np.append(EVENTS, EVENTS + 3)] = 1.0
    played.terminated[-1] = True
    learned = smooth(8) - bumps(EVENTS, 8.0, WINDOW, WINDOW)
    found = by_name(played, np.maximum(learned, 0), discount=0.9)["peaks at points"]
    # Far from a point nothing is paid for long, as after frame 0: the exact distance is 0 there.
    assert (found.holds, found.holds_for_reference) == (False, True)
    assert "does not hold (of the exact distances: holds)" in str(found)
    played.terminated[-1] = False
    assert by_name(played, smooth(8), discount=0.9)["peaks at points"].holds_for_reference is None


def test_distances_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"the distances have shape \(5,\) and must be \(2000,\)"):
        claims.check_claims(Played(), np.zeros(5))
    with pytest.raises(InputError, match="numbers, one a frame"):
        claims.check_claims(Played(), np.full(STEPS, np.nan))


def test_ranks_are_those_of_scipy() -> None:
    rng = np.random.default_rng(8)
    x, y, mask = rng.integers(0, 9, 300), rng.normal(size=300), rng.random(300) < 0.2
    test = stats.mannwhitneyu(x[mask], x[~mask])
    assert rank_auc(x, mask).statistic == pytest.approx(test.statistic / mask.sum() / (~mask).sum())
    assert rank_correlation(x, y).statistic == pytest.approx(stats.spearmanr(x, y).statistic)


def test_chance_is_rare_only_where_nothing_is_alike() -> None:
    """Series that drift by themselves: a test of single draws would find something in most."""
    chances, naive = [], []
    for key in range(60):
        one, other = smooth(100 + key), smooth(300 + key)
        chances.append(rank_correlation(one, other).p_value)
        naive.append(stats.spearmanr(one, other, alternative="greater").pvalue)
    assert np.mean(np.array(chances) <= 0.05) < 0.15
    assert np.mean(np.array(naive) <= 0.05) > 0.25


@pytest.mark.parametrize("turn", [0, 13, 1999])
def test_the_chance_counts_the_turns(turn: int) -> None:
    x, y = smooth(9), smooth(10)
    turned = [np.dot(stats.rankdata(x), np.roll(stats.rankdata(y), k)) for k in range(STEPS)]
    shifted = np.roll(y, turn)
    expected = np.mean(np.array(turned) >= turned[turn] - 1e-6)
    assert rank_correlation(x, shifted).p_value == pytest.approx(expected, abs=2 / STEPS)
