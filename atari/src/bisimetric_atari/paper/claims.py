"""Check the paper's claims on its distance plots with circular-shift permutation tests.

"The relatively low distances in game or level starts", "the peaks occurring when an enemy alien is
destroyed", in Pong "when the agent scores", "plateaus are when the agent is not moving", and "the
frames furthest away are typically those where the agent is about to be killed".

Consecutive frames are nearly equal, so that tests for independent samples would call anything
significant. Here the statistic of two series is compared with those after all circular shifts of
one series. A claim holds if the statistic has the right sign and p <= 0.05.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric_atari.paper import exact_returns

WINDOW = 15
"""Steps around an event that belong to it: one second of play."""

FURTHEST_FRACTION = 0.01
SIGNIFICANCE = 0.05
VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


class PermutationTest(NamedTuple):
    """A statistic, and the fraction of circular shifts with at least its value."""

    statistic: float
    p_value: float


def rank_auc(series: ArrayLike, mask: ArrayLike) -> PermutationTest:
    """Compute the probability that a masked value of `series` (n,) exceeds an unmasked one.

    This is the area under the ROC curve (Mann-Whitney): 0.5 without association; ties count half.

    >>> rank_auc([1.0, 5.0, 6.0, 2.0], [False, True, True, False]).statistic
    1.0
    """
    from scipy.stats import rankdata

    values, inside = np.asarray(series, np.float64), np.asarray(mask, np.bool_)
    num_inside, num_outside = int(inside.sum()), int((~inside).sum())
    if not num_inside or not num_outside:
        return PermutationTest(np.nan, np.nan)
    sums = _circular_correlation(rankdata(values), inside.astype(np.float64))
    areas = (sums - num_inside * (num_inside + 1) / 2) / (num_inside * num_outside)
    return PermutationTest(float(areas[0]), _compute_p_value(areas))


def rank_correlation(one: ArrayLike, other: ArrayLike) -> PermutationTest:
    """Compute Spearman's rank correlation of two series (n,).

    >>> round(rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]).statistic, 9)
    1.0
    """
    from scipy.stats import rankdata

    x, y = (rankdata(np.asarray(series, np.float64)) for series in (one, other))
    x, y = x - x.mean(), y - y.mean()
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norms == 0:
        return PermutationTest(np.nan, np.nan)
    correlations = _circular_correlation(x, y) / norms
    return PermutationTest(float(np.clip(correlations[0], -1, 1)), _compute_p_value(correlations))


def _circular_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute sum_i x[i] y[i - k] for all circular shifts k, (n,)."""
    product = np.fft.rfft(x) * np.conj(np.fft.rfft(y))
    return np.asarray(np.fft.irfft(product, len(x)))


def _compute_p_value(statistics: NDArray[np.float64]) -> float:
    """Compute the fraction of shifts with at least the unshifted statistic, up to rounding."""
    rounding = 1e-9 * max(float(np.abs(statistics).max()), 1e-30)
    return float(np.mean(statistics >= statistics[0] - rounding))


class RecordedEpisode(Protocol):
    """The fields of `games.Episode` that the claims need."""

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
    """A claim and its evidence.

    Attributes:
        name: of the claim.
        holds: whether it holds; None if undecided.
        statistics: the numbers by name.
        summary: the numbers as a sentence.
        holds_for_reference: whether it holds for the exact distances, where those are known.
    """

    name: str
    holds: bool | None
    statistics: dict[str, float]
    summary: str
    holds_for_reference: bool | None = None

    def __str__(self) -> str:
        reference = ""
        if self.holds_for_reference is not None:
            reference = f" (exact distances: {VERDICTS[self.holds_for_reference]})"
        return f"{self.name}: {VERDICTS[self.holds]}{reference}; {self.summary}"


def check_claims(
    episode: RecordedEpisode,
    distances: ArrayLike,
    *,
    source: int = 0,
    window: int = WINDOW,
    discount: float = 0.99,
    clip_rewards: bool = True,
) -> list[Claim]:
    """Check all claims.

    Args:
        episode: a recording of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: index of the source frame.
        window: steps around an event that belong to it.
        discount: of the metric, for the exact distances.
        clip_rewards: whether the metric is that of clipped rewards.

    Returns:
        The paper's claims, then the comparison with the exact distances.

    Raises:
        InputError: if the distances are not n finite numbers, or `window` is below 1.
    """
    d = np.asarray(distances, np.float64)
    num_frames = len(episode.rewards)
    if d.shape != (num_frames,) or not np.isfinite(d).all():
        raise InputError(
            f"paper: the distances have shape {d.shape} and must be ({num_frames},) finite "
            "numbers, one per frame."
        )
    window = require_integer("paper", "window", window, 1)
    rewards = np.clip(episode.rewards, -1, 1) if clip_rewards else episode.rewards
    rows, reference = _compute_reference(
        rewards, episode.terminated, episode.truncated, source, discount
    )
    claims = _check_paper_claims(episode, d, source, window)
    if len(rows) == num_frames:
        exact = _check_paper_claims(episode, reference, source, window)
        claims = [
            dataclasses.replace(claim, holds_for_reference=other.holds)
            for claim, other in zip(claims, exact, strict=True)
        ]
    return [*claims, check_reference(d[rows], reference)]


def _check_paper_claims(
    episode: RecordedEpisode, d: NDArray[np.float64], source: int, window: int
) -> list[Claim]:
    """Check the paper's claims for any distances (n,) to the frame `source`."""
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
    """Check that distances are low where games or levels start, that of the source excluded."""
    if start_frames is None:
        return Claim(name, None, {}, "level starts are unknown in this game.")
    others = [int(frame) for frame in np.asarray(start_frames) if abs(int(frame) - source) > window]
    near = _mark_windows(len(d), others, 0, window)
    if not near.any():
        return Claim(name, None, {}, "there is none but that of the source.")
    # Frames beside the source are near it in any case.
    elsewhere = ~_mark_windows(len(d), [source], window, window)
    if not (near & elsewhere).any() or not (~near & elsewhere).any():
        return Claim(name, None, {}, "the recording is too short to compare it with other frames.")
    test = rank_auc(-d[elsewhere], near[elsewhere])
    low, other = float(d[near & elsewhere].mean()), float(d[~near & elsewhere].mean())
    return Claim(
        name,
        test.statistic > 0.5 and test.p_value <= SIGNIFICANCE,
        {"auc": test.statistic, "p_value": test.p_value, "near": low, "elsewhere": other},
        f"the mean distance is {low:.3g} in the {window} steps after a start and {other:.3g} "
        "elsewhere; a frame there is lower than one elsewhere with probability "
        f"{test.statistic:.2f} (p = {test.p_value:.2g}).",
    )


def check_peaks(d: NDArray[np.float64], rewards: ArrayLike, window: int) -> Claim:
    """Check that distances peak where the agent scores.

    The peak around a step is the largest distance in the window before and after it, less the
    median of four times that window.
    """
    from scipy.ndimage import maximum_filter1d, median_filter

    name = "peaks at scores"
    scored = np.flatnonzero(np.asarray(rewards) > 0)
    near = _mark_windows(len(d), scored, window, window)
    if not near.any() or near.all():
        reason = "the agent never scores" if not near.any() else "all frames are near a score"
        return Claim(name, None, {}, f"{reason}.")
    largest = maximum_filter1d(d, 2 * window + 1, mode="nearest")
    peaks = largest - median_filter(d, 8 * window + 1, mode="nearest")
    test = rank_auc(peaks, _mark_windows(len(d), scored, 0, 0))
    statistics = {
        "auc": test.statistic,
        "p_value": test.p_value,
        "peak": float(peaks[scored].mean()),
        "mean_peak": float(peaks.mean()),
        "near": float(d[near].mean()),
        "elsewhere": float(d[~near].mean()),
    }
    return Claim(
        name,
        bool(test.statistic > 0.5 and test.p_value <= SIGNIFICANCE),
        statistics,
        f"the mean peak is {statistics['peak']:.3g} in the {window} steps around a score and "
        f"{statistics['mean_peak']:.3g} around any step; the first is higher with probability "
        f"{test.statistic:.2f} (p = {test.p_value:.2g}); the mean distance is "
        f"{statistics['near']:.3g} around a score and {statistics['elsewhere']:.3g} elsewhere.",
    )


def check_plateaus(
    d: NDArray[np.float64], screens: NDArray[np.uint8], game_starts: ArrayLike
) -> Claim:
    """Check that the distance changes little where the screen does, by rank correlation.

    The distance must also change less in the tenth of steps with the smallest screen changes.
    """
    name = "plateaus when nothing moves"
    if not screens.size:
        return Claim(name, None, {}, "no screens were recorded.")
    changes = np.array(
        [np.count_nonzero(screens[i + 1] != screens[i]) for i in range(len(screens) - 1)], float
    )
    same_game = ~np.isin(np.arange(1, len(d)), np.asarray(game_starts))
    test = rank_correlation(np.abs(np.diff(d))[same_game], changes[same_game])
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "neither distance nor screen changes.")
    static = changes[same_game] <= np.quantile(changes[same_game], 0.1)
    still, moving = (np.abs(np.diff(d))[same_game][mask].mean() for mask in (static, ~static))
    return Claim(
        name,
        bool(test.statistic > 0 and test.p_value <= SIGNIFICANCE and still < moving),
        {
            "correlation": test.statistic,
            "p_value": test.p_value,
            "still": float(still),
            "moving": float(moving),
        },
        f"changes of distance and of the screen have rank correlation {test.statistic:.2f} "
        f"(p = {test.p_value:.2g}); the mean change of distance is {still:.3g} in the tenth of "
        f"steps with the smallest screen changes, and {moving:.3g} elsewhere.",
    )


def check_losses(
    d: NDArray[np.float64],
    episode: RecordedEpisode,
    window: int,
    fraction: float = FURTHEST_FRACTION,
) -> Claim:
    """Check that the furthest frames precede the loss of a life more often than any frame.

    In a game without lives: the loss of a point.
    """
    name, losses = "furthest before a loss of life", episode.life_losses
    if not len(losses) and (np.asarray(episode.rewards) < 0).any():
        name, losses = "furthest before a lost point", np.flatnonzero(episode.rewards < 0)
    near = _mark_windows(len(d), losses, window, 0)
    if not near.any() or near.all():
        return Claim(name, None, {}, "no life is lost.")
    furthest = np.zeros(len(d), np.bool_)
    furthest[np.argsort(-d, kind="stable")[: max(1, round(fraction * len(d)))]] = True
    test = rank_correlation(furthest, near)
    hits, base = float(near[furthest].mean()), float(near.mean())
    return Claim(
        name,
        hits > base and test.p_value <= SIGNIFICANCE,
        {"fraction": hits, "base_fraction": base, "p_value": test.p_value},
        f"{hits:.0%} of the furthest {fraction:.0%} of the frames are in the {window} steps before "
        f"one, and {base:.0%} of all frames (p = {test.p_value:.2g}).",
    )


def check_values(d: NDArray[np.float64], values: ArrayLike, source: int) -> Claim:
    """Check that distances correlate with |V - V(source)|, which d^pi bounds from above."""
    name = "correlates with the difference of values"
    gap = np.abs(np.asarray(values, np.float64) - float(np.asarray(values)[source]))
    test = rank_correlation(d, gap)
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "all distances or all values are equal.")
    bounded = float(np.mean(gap <= d))
    return Claim(
        name,
        test.statistic > 0 and test.p_value <= SIGNIFICANCE,
        {"correlation": test.statistic, "p_value": test.p_value, "bounded": bounded},
        f"rank correlation {test.statistic:.2f} (p = {test.p_value:.2g}); |V - V'| <= d, which is "
        f"true of the exact metric and values, in {bounded:.0%} of the frames.",
    )


def check_reference(d: NDArray[np.float64], reference: NDArray[np.float64]) -> Claim:
    """Check that distances correlate with the exact ones; see `exact_returns`."""
    name = "correlates with the exact distance"
    if len(reference) < 3:
        return Claim(name, None, {}, "the future of the source is not fully recorded.")
    test = rank_correlation(d, reference)
    if math.isnan(test.statistic):
        return Claim(name, None, {}, "all distances are equal.")
    error = float(np.abs(d - reference).mean())
    return Claim(
        name,
        test.statistic > 0 and test.p_value <= SIGNIFICANCE,
        {
            "correlation": test.statistic,
            "p_value": test.p_value,
            "error": error,
            "mean": float(reference.mean()),
            "frames": float(len(reference)),
        },
        f"rank correlation {test.statistic:.2f} (p = {test.p_value:.2g}) over "
        f"{len(reference):,} frames; mean absolute error {error:.3g}, mean exact distance "
        f"{reference.mean():.3g}.",
    )


def _compute_reference(
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike,
    source: int,
    discount: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the frames with a fully recorded future, and their exact distances to the source."""
    horizon = exact_returns.compute_horizon(discount)
    rows = exact_returns.find_complete_steps(terminated, truncated, horizon)
    if source not in rows:
        return rows[:0], np.zeros(0)
    futures = exact_returns.gather_futures(rewards, terminated, rows, horizon)
    return rows, exact_returns.compute_distances(futures[rows == source], discount, futures)[0]


def to_json(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return the claims as JSON-compatible dictionaries."""
    return [dataclasses.asdict(claim) for claim in claims]


def _mark_windows(num_frames: int, frames: ArrayLike, before: int, after: int) -> NDArray[np.bool_]:
    """Mark the frames from `before` frames before to `after` frames after any of `frames`."""
    mask = np.zeros(num_frames, np.bool_)
    for frame in np.asarray(frames, np.int64).tolist():
        mask[max(0, frame - before) : frame + after + 1] = True
    return mask
