"""Rank statistics of series in time, whose neighbours are alike: tested by turning one of them.

Frames that follow one another are nearly the same, so that tests for independent draws would call
anything significant. Here a series is compared with itself turned round in time, by all amounts:
what is common to both only by chance is as likely to be there after a turn.

What the paper saw in its plots of distances, each as a number.

"The relatively low distances in game or level starts", "the peaks occurring when an enemy alien is
destroyed", in Pong "when the agent scores", "plateaus are when the agent is not moving", and "the
frames furthest away are typically those where the agent is about to be killed".

Series are tested as in `ranks`; a claim holds where the number is on its side and chance explains
it in no more than 5% of turned series.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.paper.atari import exact_returns


class PermutationTest(NamedTuple):
    """A statistic, and the share of turned series for which it is at least as large."""

    statistic: float
    p_value: float


def rank_auc(series: ArrayLike, among: ArrayLike) -> PermutationTest:
    """How likely a number of `series` (n,) where `among` (n,) is true is above one elsewhere.

    0.5 is chance, 1 where all of them are above all others; ties count half.

    >>> higher([1.0, 5.0, 6.0, 2.0], [False, True, True, False]).value
    1.0
    """
    from scipy.stats import rankdata

    numbers, mask = np.asarray(series, np.float64), np.asarray(among, np.bool_)
    inside, outside = int(mask.sum()), int((~mask).sum())
    if not inside or not outside:
        return PermutationTest(np.nan, np.nan)
    sums = _circular_correlation(rankdata(numbers), mask.astype(np.float64))
    areas = (sums - inside * (inside + 1) / 2) / (inside * outside)
    return PermutationTest(float(areas[0]), _compute_p_value(areas))


def rank_correlation(one: ArrayLike, other: ArrayLike) -> PermutationTest:
    """The rank correlation (Spearman's) of two series (n,).

    >>> round(together([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]).value, 9)
    1.0
    """
    from scipy.stats import rankdata

    x, y = (rankdata(np.asarray(each, np.float64)) for each in (one, other))
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.linalg.norm(x) * np.linalg.norm(y))
    if spread == 0:
        return PermutationTest(np.nan, np.nan)
    found = _circular_correlation(x, y) / spread
    return PermutationTest(float(np.clip(found[0], -1, 1)), _compute_p_value(found))


def _circular_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum over i of x[i] y[i - k], for all turns k, (n,)."""
    product = np.fft.rfft(x) * np.conj(np.fft.rfft(y))
    return np.asarray(np.fft.irfft(product, len(x)))


def _compute_p_value(statistics: NDArray[np.float64]) -> float:
    slack = 1e-9 * max(float(np.abs(statistics).max()), 1e-30)
    return float(np.mean(statistics >= statistics[0] - slack))


WINDOW = 15
"""Steps around an event that belong to it: one second of play."""

FURTHEST_FRACTION = 0.01
SIGNIFICANCE = 0.05
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told"}


class RecordedEpisode(Protocol):
    """What is taken of a `games.Episode` of n frames."""

    @property
    def screens(self) -> NDArray[np.uint8]: ...
    @property
    def values(self) -> NDArray[np.float32]: ...
    @property
    def rewards(self) -> NDArray[np.float64]: ...
    @property
    def terminated(self) -> NDArray[np.bool_]: ...
    @property
    def truncated(self) -> NDArray[np.bool_]: ...
    @property
    def starts(self) -> NDArray[np.int64]: ...
    @property
    def life_losses(self) -> NDArray[np.int64]: ...
    @property
    def level_starts(self) -> NDArray[np.int64] | None: ...


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim, whether it holds (None: it cannot be told), the numbers, and a sentence.

    `exact` is whether it holds for the exact distances, where the futures of all frames are known.
    """

    name: str
    holds: bool | None
    statistics: dict[str, float]
    summary: str
    holds_for_reference: bool | None = None

    def __str__(self) -> str:
        also = (
            ""
            if self.holds_for_reference is None
            else f" (of the exact distances: {VERDICTS[self.holds_for_reference]})"
        )
        return f"{self.name}: {VERDICTS[self.holds]}{also}; {self.summary}"


def check_claims(
    episode: RecordedEpisode,
    distances: ArrayLike,
    *,
    source: int = 0,
    window: int = WINDOW,
    discount: float = 0.99,
    clip_rewards: bool = True,
) -> list[Claim]:
    """All claims, of the distances (n,) of the frames of an episode to the frame `source`.

    `discount` and `clip` are those of the metric, for the exact distances.
    """
    d = np.asarray(distances, np.float64)
    steps = len(episode.rewards)
    if d.shape != (steps,) or not np.isfinite(d).all():
        raise InputError(
            f"paper.atari: the distances have shape {d.shape} and must be ({steps},) numbers, one "
            "a frame."
        )
    reach = require_integer("paper.atari", "window", window, 1)
    paid = np.clip(episode.rewards, -1, 1) if clip_rewards else episode.rewards
    rows, real = _compute_reference(paid, episode.terminated, episode.truncated, source, discount)
    found = _check_paper_claims(episode, d, source, reach)
    if len(rows) == steps:
        exactly = _check_paper_claims(episode, real, source, reach)
        found = [
            dataclasses.replace(one, holds_for_reference=other.holds)
            for one, other in zip(found, exactly, strict=True)
        ]
    return [*found, check_reference(d[rows], real)]


def _check_paper_claims(
    episode: RecordedEpisode, d: NDArray[np.float64], source: int, window: int
) -> list[Claim]:
    """What the paper says of distances, of any distances (n,) to the frame `source`."""
    return [
        check_starts("game starts", d, episode.starts, source, window),
        check_starts("level starts", d, episode.level_starts, source, window),
        check_peaks(d, episode.rewards, window),
        check_plateaus(d, episode.screens, episode.starts),
        check_losses(d, episode, window),
        check_values(d, episode.values, source),
    ]


def check_starts(
    name: str, d: NDArray[np.float64], start_frames: ArrayLike | None, source: int, window: int
) -> Claim:
    """Distances are low where games or levels start; the start beside the source does not count."""
    if start_frames is None:
        return Claim(name, None, {}, "where levels start is not known in this game.")
    others = [int(each) for each in np.asarray(start_frames) if abs(int(each) - source) > window]
    among = _mark_windows(len(d), others, 0, window)
    if not among.any():
        return Claim(name, None, {}, "there is none but that of the source.")
    # What lies beside the source is near it in any case.
    elsewhere = ~_mark_windows(len(d), [source], window, window)
    test = rank_auc(-d[elsewhere], among[elsewhere])
    low, other = float(d[among & elsewhere].mean()), float(d[~among & elsewhere].mean())
    return Claim(
        name,
        test.statistic > 0.5 and test.p_value <= SIGNIFICANCE,
        {"auc": test.statistic, "chance": test.p_value, "there": low, "elsewhere": other},
        f"the mean distance is {low:.3g} in the {window} steps after a start and {other:.3g} "
        f"elsewhere; a frame there is lower than one elsewhere with probability {test.statistic:.2f} "
        f"(chance {test.p_value:.2g}).",
    )


def check_peaks(d: NDArray[np.float64], rewards: ArrayLike, window: int) -> Claim:
    """Distances peak where the agent scores.

    Around a step the peak is the largest distance of the steps before and after it, less the
    median of four times as wide a stretch; around points it must be higher than elsewhere.
    """
    from scipy.ndimage import maximum_filter1d, median_filter

    name = "peaks at points"
    scored = np.flatnonzero(np.asarray(rewards) > 0)
    among = _mark_windows(len(d), scored, window, window)
    if not among.any() or among.all():
        what = "no points are scored" if not among.any() else "points are scored all the time"
        return Claim(name, None, {}, f"{what}.")
    largest = maximum_filter1d(d, 2 * window + 1, mode="nearest")
    peaks = largest - median_filter(d, 8 * window + 1, mode="nearest")
    test = rank_auc(peaks, _mark_windows(len(d), scored, 0, 0))
    numbers = {
        "auc": test.statistic,
        "chance": test.p_value,
        "peak": float(peaks[scored].mean()),
        "any": float(peaks.mean()),
        "there": float(d[among].mean()),
        "elsewhere": float(d[~among].mean()),
    }
    return Claim(
        name,
        bool(test.statistic > 0.5 and test.p_value <= SIGNIFICANCE),
        numbers,
        f"peaks in the {window} steps around a point stand out by {numbers['peak']:.3g}, around "
        f"any step by {numbers['any']:.3g}; the first is higher with probability {test.statistic:.2f} "
        f"(chance {test.p_value:.2g}); the mean distance is {numbers['there']:.3g} around a point "
        f"and {numbers['elsewhere']:.3g} elsewhere.",
    )


def check_plateaus(
    d: NDArray[np.float64], screens: NDArray[np.uint8], game_starts: ArrayLike
) -> Claim:
    """The distance changes little where the screen does: rank correlation of both changes.

    It must also change less in the stillest tenth of the steps than elsewhere.
    """
    name = "plateaus when nothing moves"
    changes = np.array(
        [np.count_nonzero(screens[i + 1] != screens[i]) for i in range(len(screens) - 1)], float
    )
    same = ~np.isin(np.arange(1, len(d)), np.asarray(game_starts))
    test = rank_correlation(np.abs(np.diff(d))[same], changes[same])
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "nothing ever changes.")
    quiet = changes[same] <= np.quantile(changes[same], 0.1)
    still, moving = (np.abs(np.diff(d))[same][each].mean() for each in (quiet, ~quiet))
    numbers = {
        "correlation": test.statistic,
        "chance": test.p_value,
        "still": float(still),
        "moving": float(moving),
    }
    return Claim(
        name,
        bool(test.statistic > 0 and test.p_value <= SIGNIFICANCE and still < moving),
        numbers,
        f"changes of distance and of the screen have rank correlation {test.statistic:.2f} (chance "
        f"{test.p_value:.2g}); a step changes the distance by {still:.3g} in the stillest tenth, "
        f"and by {moving:.3g} elsewhere.",
    )


def check_losses(
    d: NDArray[np.float64],
    episode: RecordedEpisode,
    window: int,
    fraction: float = FURTHEST_FRACTION,
) -> Claim:
    """The furthest frames lie just before a life is lost, more often than any frame does.

    Where a game has no lives, just before a point is lost.
    """
    name, losses = "furthest before a loss of life", episode.life_losses
    if not len(losses) and (np.asarray(episode.rewards) < 0).any():
        name, losses = "furthest before a lost point", np.flatnonzero(episode.rewards < 0)
    among = _mark_windows(len(d), losses, window, 0)
    if not among.any() or among.all():
        return Claim(name, None, {}, "no life is lost in it.")
    count = max(1, round(fraction * len(d)))
    far = np.zeros(len(d), np.bool_)
    far[np.argsort(-d, kind="stable")[:count]] = True
    test = rank_correlation(far, among)
    hits, base = float(among[far].mean()), float(among.mean())
    numbers = {"share": hits, "all": base, "chance": test.p_value}
    return Claim(
        name,
        hits > base and test.p_value <= SIGNIFICANCE,
        numbers,
        f"of the furthest {fraction:.0%} of the frames, {hits:.0%} are in the {window} steps before "
        f"one, and of all frames {base:.0%} (chance {test.p_value:.2g}).",
    )


def check_values(d: NDArray[np.float64], values: ArrayLike, source: int) -> Claim:
    """Distances follow |V - V(source)|, which d^pi bounds from above."""
    name = "follows the difference of values"
    gap = np.abs(np.asarray(values, np.float64) - float(np.asarray(values)[source]))
    test = rank_correlation(d, gap)
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "all distances or all values are the same.")
    below = float(np.mean(gap <= d))
    return Claim(
        name,
        test.statistic > 0 and test.p_value <= SIGNIFICANCE,
        {"correlation": test.statistic, "chance": test.p_value, "bounded": below},
        f"rank correlation {test.statistic:.2f} (chance {test.p_value:.2g}); |V - V'| <= d, as it is "
        f"for the exact metric and values, in {below:.0%} of the frames.",
    )


def check_reference(d: NDArray[np.float64], reference: NDArray[np.float64]) -> Claim:
    """Distances follow the exact ones, by the rewards that came after each frame: see `truth`."""
    name = "follows the exact distance"
    if len(reference) < 3:
        return Claim(name, None, {}, "what came after the source is not all recorded.")
    test = rank_correlation(d, reference)
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "all of them are the same.")
    error = float(np.abs(d - reference).mean())
    numbers = {
        "correlation": test.statistic,
        "chance": test.p_value,
        "error": error,
        "mean": float(reference.mean()),
        "frames": float(len(reference)),
    }
    return Claim(
        name,
        test.statistic > 0 and test.p_value <= SIGNIFICANCE,
        numbers,
        f"rank correlation {test.statistic:.2f} (chance {test.p_value:.2g}) over {len(reference):,} frames; "
        f"off by {error:.3g} on average, where the exact ones are {reference.mean():.3g}.",
    )


def _compute_reference(
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike,
    source: int,
    discount: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The frames whose future was recorded, and their exact distances to the source."""
    ahead = exact_returns.compute_horizon(discount)
    rows = exact_returns.find_complete_steps(terminated, truncated, ahead)
    if source not in rows:
        return rows[:0], np.zeros(0)
    future = exact_returns.gather_futures(rewards, terminated, rows, ahead)
    return rows, exact_returns.compute_distances(future[rows == source], discount, future)[0]


def to_json(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """The observations as JSON has them."""
    return [dataclasses.asdict(each) for each in claims]


def _mark_windows(num_frames: int, frames: ArrayLike, before: int, after: int) -> NDArray[np.bool_]:
    """Whether each of `count` steps is at most so many before, or after, one of some steps."""
    among = np.zeros(num_frames, np.bool_)
    for each in np.asarray(frames, np.int64).tolist():
        among[max(0, each - before) : each + after + 1] = True
    return among
