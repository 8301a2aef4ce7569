"""What the pictures of a game take: an episode, and the distance of each of its frames."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, require_integer

if TYPE_CHECKING:
    from bisimetric.games import Episode

MIN_GAP = 60
"""Steps between two frames that are not nearly the same: 4 seconds of play."""


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeDistances:
    """An episode with the distance of each frame to the frame `source`.

    `distances` (n,) are those of the metric, `differences` (n,) are |V(t) - V(source)|, which the
    metric of the same policy and the same rewards bounds from above.
    """

    episode: Episode
    distances: NDArray[np.float64]
    value_differences: NDArray[np.float64]
    source: int

    def __len__(self) -> int:
        return len(self.distances)

    def find_closest_so_far(self, min_gap: int = MIN_GAP) -> NDArray[np.int64]:
        """(n,): at each step the closest of the frames up to it, -1 where there is none yet.

        Frames within `apart` steps of the source do not count: they are nearly the source itself.
        """
        steps = np.arange(len(self))
        counted = np.where(np.abs(steps - self.source) >= min_gap, self.distances, np.inf)
        before = np.minimum.accumulate(np.concatenate([[np.inf], counted[:-1]]))
        return np.maximum.accumulate(np.where(counted < before, steps, -1))

    def find_extremes(self, num_frames: int, min_gap: int = MIN_GAP) -> tuple[list[int], list[int]]:
        """The nearest frames and the furthest, at most `count` each, the extreme one first.

        Any two look different and are at least `apart` steps apart; the nearest are so from the
        source, of which they may be the image, where another game starts.
        """
        order = np.argsort(self.distances, kind="stable").tolist()
        away = [step for step in order if abs(step - self.source) >= min_gap]
        return self._select_distinct(away, num_frames, min_gap), self._select_distinct(
            order[::-1], num_frames, min_gap
        )

    def _select_distinct(self, order: list[int], num_frames: int, min_gap: int) -> list[int]:
        """The first frames of an order that are unlike all chosen before them."""
        screens, chosen = self.episode.screens, list[int]()
        for step in order:
            if len(chosen) == num_frames:
                break
            if all(
                abs(step - other) >= min_gap and (screens[step] != screens[other]).any()
                for other in chosen
            ):
                chosen.append(step)
        return chosen

    def compute_score(self) -> NDArray[np.float64]:
        """(n,): the points of the running game before each frame."""
        total = np.concatenate([[0.0], np.cumsum(self.episode.rewards[:-1], dtype=np.float64)])
        return np.asarray(total - total[self.episode.starts][self.episode.episode])


def measure_episode(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    values: ArrayLike | None = None,
) -> EpisodeDistances:
    """An episode and its distances, checked: one a frame, and all of them numbers.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: which frame that is.
        values: (n,), how good the frames are; as the agent found them unless given.

    >>> from bisimetric.games import play
    >>> from bisimetric.games.agent import Idle
    >>> episode = play("Pong", Idle("Pong"), most=4)
    >>> shown = measured(episode, [0.0, 3.0, 2.0, 5.0])
    >>> shown.closest_so_far(apart=1).tolist(), shown.ends(1, apart=1)
    ([-1, 1, 2, 2], ([2], [3]))
    """
    count = len(episode)
    if count < 2:
        raise InputError(
            f"games: the episode has {count} {'frame' if count == 1 else 'frames'} and a picture "
            "needs at least 2; play more steps."
        )
    if not 0 <= require_integer("games", "source", source) < count:
        raise InputError(
            f"games: source is frame {source} and the episode has frames 0 to {count - 1}."
        )
    checked = _validate_per_frame("distance", distances, count)
    if (checked < 0).any():
        first = int(np.argmax(checked < 0))
        raise InputError(
            f"games: the distance of frame {first} is {checked[first]:g} and must be at least 0."
        )
    good = _validate_per_frame("value", episode.values if values is None else values, count)
    return EpisodeDistances(episode, checked, np.abs(good - good[source]), int(source))


def _validate_per_frame(name: str, values: ArrayLike, num_frames: int) -> NDArray[np.float64]:
    found = np.asarray(values, np.float64)
    if found.shape != (num_frames,):
        raise InputError(
            f"games: the {name}s have shape {found.shape} and the episode has {num_frames} frames; "
            f"give one {name} a frame, ({num_frames},)."
        )
    if not np.isfinite(found).all():
        first = int(np.argmin(np.isfinite(found)))
        raise InputError(
            f"games: the {name} of frame {first} is {found[first]} and must be a number; did the "
            "training of the metric diverge?"
        )
    return found
