"""What the paper saw in its plots of distances, each as a number.

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
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, whole
from bisimetric.paper.atari import truth
from bisimetric.paper.atari.ranks import higher, together

WINDOW = 15
"""Steps around an event that belong to it: one second of play."""

FURTHEST = 0.01
CHANCE = 0.05
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told"}


class Played(Protocol):
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
    def losses(self) -> NDArray[np.int64]: ...
    @property
    def levels(self) -> NDArray[np.int64] | None: ...


@dataclasses.dataclass(frozen=True)
class Observation:
    """A claim, whether it holds (None: it cannot be told), the numbers, and a sentence.

    `exact` is whether it holds for the exact distances, where the futures of all frames are known.
    """

    name: str
    holds: bool | None
    numbers: dict[str, float]
    words: str
    exact: bool | None = None

    def __str__(self) -> str:
        also = "" if self.exact is None else f" (of the exact distances: {VERDICTS[self.exact]})"
        return f"{self.name}: {VERDICTS[self.holds]}{also}; {self.words}"


def observed(
    episode: Played,
    distances: ArrayLike,
    *,
    source: int = 0,
    window: int = WINDOW,
    discount: float = 0.99,
    clip: bool = True,
) -> list[Observation]:
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
    reach = whole("paper.atari", "window", window, 1)
    paid = np.clip(episode.rewards, -1, 1) if clip else episode.rewards
    rows, real = _exact(paid, episode.terminated, episode.truncated, source, discount)
    found = _claims(episode, d, source, reach)
    if len(rows) == steps:
        exactly = _claims(episode, real, source, reach)
        found = [
            dataclasses.replace(one, exact=other.holds)
            for one, other in zip(found, exactly, strict=True)
        ]
    return [*found, exact(d[rows], real)]


def _claims(episode: Played, d: NDArray[np.float64], source: int, window: int) -> list[Observation]:
    """What the paper says of distances, of any distances (n,) to the frame `source`."""
    return [
        starts("game starts", d, episode.starts, source, window),
        starts("level starts", d, episode.levels, source, window),
        points(d, episode.rewards, window),
        plateaus(d, episode.screens, episode.starts),
        before_losses(d, episode, window),
        values(d, episode.values, source),
    ]


def starts(
    name: str, d: NDArray[np.float64], at: ArrayLike | None, source: int, window: int
) -> Observation:
    """Distances are low where games or levels start; the start beside the source does not count."""
    if at is None:
        return Observation(name, None, {}, "where levels start is not known in this game.")
    others = [int(each) for each in np.asarray(at) if abs(int(each) - source) > window]
    among = _near(len(d), others, 0, window)
    if not among.any():
        return Observation(name, None, {}, "there is none but that of the source.")
    # What lies beside the source is near it in any case.
    elsewhere = ~_near(len(d), [source], window, window)
    test = higher(-d[elsewhere], among[elsewhere])
    low, other = float(d[among & elsewhere].mean()), float(d[~among & elsewhere].mean())
    return Observation(
        name,
        test.value > 0.5 and test.chance <= CHANCE,
        {"auc": test.value, "chance": test.chance, "there": low, "elsewhere": other},
        f"the mean distance is {low:.3g} in the {window} steps after a start and {other:.3g} "
        f"elsewhere; a frame there is lower than one elsewhere with probability {test.value:.2f} "
        f"(chance {test.chance:.2g}).",
    )


def points(d: NDArray[np.float64], rewards: ArrayLike, window: int) -> Observation:
    """Distances peak where the agent scores.

    Around a step the peak is the largest distance of the steps before and after it, less the
    median of four times as wide a stretch; around points it must be higher than elsewhere.
    """
    from scipy.ndimage import maximum_filter1d, median_filter

    name = "peaks at points"
    scored = np.flatnonzero(np.asarray(rewards) > 0)
    among = _near(len(d), scored, window, window)
    if not among.any() or among.all():
        what = "no points are scored" if not among.any() else "points are scored all the time"
        return Observation(name, None, {}, f"{what}.")
    largest = maximum_filter1d(d, 2 * window + 1, mode="nearest")
    peaks = largest - median_filter(d, 8 * window + 1, mode="nearest")
    test = higher(peaks, _near(len(d), scored, 0, 0))
    numbers = {
        "auc": test.value,
        "chance": test.chance,
        "peak": float(peaks[scored].mean()),
        "any": float(peaks.mean()),
        "there": float(d[among].mean()),
        "elsewhere": float(d[~among].mean()),
    }
    return Observation(
        name,
        bool(test.value > 0.5 and test.chance <= CHANCE),
        numbers,
        f"peaks in the {window} steps around a point stand out by {numbers['peak']:.3g}, around "
        f"any step by {numbers['any']:.3g}; the first is higher with probability {test.value:.2f} "
        f"(chance {test.chance:.2g}); the mean distance is {numbers['there']:.3g} around a point "
        f"and {numbers['elsewhere']:.3g} elsewhere.",
    )


def plateaus(
    d: NDArray[np.float64], screens: NDArray[np.uint8], game_starts: ArrayLike
) -> Observation:
    """The distance changes little where the screen does: rank correlation of both changes.

    It must also change less in the stillest tenth of the steps than elsewhere.
    """
    name = "plateaus when nothing moves"
    changes = np.array(
        [np.count_nonzero(screens[i + 1] != screens[i]) for i in range(len(screens) - 1)], float
    )
    same = ~np.isin(np.arange(1, len(d)), np.asarray(game_starts))
    test = together(np.abs(np.diff(d))[same], changes[same])
    if math.isnan(test.value):
        return Observation(name, None, {}, "nothing ever changes.")
    quiet = changes[same] <= np.quantile(changes[same], 0.1)
    still, moving = (np.abs(np.diff(d))[same][each].mean() for each in (quiet, ~quiet))
    numbers = {
        "correlation": test.value,
        "chance": test.chance,
        "still": float(still),
        "moving": float(moving),
    }
    return Observation(
        name,
        bool(test.value > 0 and test.chance <= CHANCE and still < moving),
        numbers,
        f"changes of distance and of the screen have rank correlation {test.value:.2f} (chance "
        f"{test.chance:.2g}); a step changes the distance by {still:.3g} in the stillest tenth, "
        f"and by {moving:.3g} elsewhere.",
    )


def before_losses(
    d: NDArray[np.float64], episode: Played, window: int, share: float = FURTHEST
) -> Observation:
    """The furthest frames lie just before a life is lost, more often than any frame does.

    Where a game has no lives, just before a point is lost.
    """
    name, losses = "furthest before a loss of life", episode.losses
    if not len(losses) and (np.asarray(episode.rewards) < 0).any():
        name, losses = "furthest before a lost point", np.flatnonzero(episode.rewards < 0)
    among = _near(len(d), losses, window, 0)
    if not among.any() or among.all():
        return Observation(name, None, {}, "no life is lost in it.")
    count = max(1, round(share * len(d)))
    far = np.zeros(len(d), np.bool_)
    far[np.argsort(-d, kind="stable")[:count]] = True
    test = together(far, among)
    hits, base = float(among[far].mean()), float(among.mean())
    numbers = {"share": hits, "all": base, "chance": test.chance}
    return Observation(
        name,
        hits > base and test.chance <= CHANCE,
        numbers,
        f"of the furthest {share:.0%} of the frames, {hits:.0%} are in the {window} steps before "
        f"one, and of all frames {base:.0%} (chance {test.chance:.2g}).",
    )


def values(d: NDArray[np.float64], found: ArrayLike, source: int) -> Observation:
    """Distances follow |V - V(source)|, which d^pi bounds from above."""
    name = "follows the difference of values"
    gap = np.abs(np.asarray(found, np.float64) - float(np.asarray(found)[source]))
    test = together(d, gap)
    if math.isnan(test.value):
        return Observation(name, None, {}, "all distances or all values are the same.")
    below = float(np.mean(gap <= d))
    return Observation(
        name,
        test.value > 0 and test.chance <= CHANCE,
        {"correlation": test.value, "chance": test.chance, "bounded": below},
        f"rank correlation {test.value:.2f} (chance {test.chance:.2g}); |V - V'| <= d, as it is "
        f"for the exact metric and values, in {below:.0%} of the frames.",
    )


def exact(d: NDArray[np.float64], real: NDArray[np.float64]) -> Observation:
    """Distances follow the exact ones, by the rewards that came after each frame: see `truth`."""
    name = "follows the exact distance"
    if len(real) < 3:
        return Observation(name, None, {}, "what came after the source is not all recorded.")
    test = together(d, real)
    if math.isnan(test.value):
        return Observation(name, None, {}, "all of them are the same.")
    error = float(np.abs(d - real).mean())
    numbers = {
        "correlation": test.value,
        "chance": test.chance,
        "error": error,
        "mean": float(real.mean()),
        "frames": float(len(real)),
    }
    return Observation(
        name,
        test.value > 0 and test.chance <= CHANCE,
        numbers,
        f"rank correlation {test.value:.2f} (chance {test.chance:.2g}) over {len(real):,} frames; "
        f"off by {error:.3g} on average, where the exact ones are {real.mean():.3g}.",
    )


def _exact(
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike,
    source: int,
    discount: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The frames whose future was recorded, and their exact distances to the source."""
    ahead = truth.horizon(discount)
    rows = truth.known(terminated, truncated, ahead)
    if source not in rows:
        return rows[:0], np.zeros(0)
    future = truth.futures(rewards, terminated, rows, ahead)
    return rows, truth.distances(future[rows == source], discount, future)[0]


def as_json(found: Sequence[Observation]) -> list[dict[str, Any]]:
    """The observations as JSON has them."""
    return [dataclasses.asdict(each) for each in found]


def _near(count: int, at: ArrayLike, before: int, after: int) -> NDArray[np.bool_]:
    """Whether each of `count` steps is at most so many before, or after, one of some steps."""
    among = np.zeros(count, np.bool_)
    for each in np.asarray(at, np.int64).tolist():
        among[max(0, each - before) : each + after + 1] = True
    return among
