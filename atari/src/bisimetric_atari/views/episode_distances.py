"""An episode with the distance of each of its frames to a source frame."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._text import pluralise
from bisimetric.errors import InputError, require_integer

if TYPE_CHECKING:
    from bisimetric_atari.games import Episode

MIN_GAP = 60
"""Steps between frames that count as different: 4 seconds of play."""


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeDistances:
    """An episode with the distance of each frame to the frame `source`.

    Attributes:
        episode: of n frames.
        distances: (n,), to the source frame.
        value_differences: (n,), |V(t) - V(source)|, which the metric of the same policy and rewards
            bounds from above.
        source: the index of the source frame.
    """

    episode: Episode
    distances: NDArray[np.float64]
    value_differences: NDArray[np.float64]
    source: int

    def __len__(self) -> int:
        return len(self.distances)

    def find_closest_so_far(self, min_gap: int = MIN_GAP) -> NDArray[np.int64]:
        """Return the closest frame up to each step, (n,), or -1 while there is none.

        Frames within `min_gap` steps of the source are excluded: they nearly equal it.
        """
        steps = np.arange(len(self))
        counted = np.where(np.abs(steps - self.source) >= min_gap, self.distances, np.inf)
        before = np.minimum.accumulate(np.concatenate([[np.inf], counted[:-1]]))
        return np.maximum.accumulate(np.where(counted < before, steps, -1))

    def find_extremes(self, num_frames: int, min_gap: int = MIN_GAP) -> tuple[list[int], list[int]]:
        """Return the nearest and the furthest frames, at most `num_frames` each, ordered.

        Any two differ and are at least `min_gap` steps apart. The nearest are also that far from
        the source in time; they may show the same screen, in another game.
        """
        order = np.argsort(self.distances, kind="stable").tolist()
        away = [step for step in order if abs(step - self.source) >= min_gap]
        return self._select_distinct(away, num_frames, min_gap), self._select_distinct(
            order[::-1], num_frames, min_gap
        )

    def _select_distinct(self, order: list[int], num_frames: int, min_gap: int) -> list[int]:
        """Select the first frames of an order that differ from all those selected before."""
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
        """Compute the score of the current game before each frame, (n,)."""
        total = np.concatenate([[0.0], np.cumsum(self.episode.rewards[:-1], dtype=np.float64)])
        return np.asarray(total - total[self.episode.starts][self.episode.episode])


def measure_episode(
    episode: Episode,
    distances: ArrayLike,
    *,
    source: int = 0,
    values: ArrayLike | None = None,
) -> EpisodeDistances:
    """Validate the distances of an episode: one finite number per frame, at least 0.

    Args:
        episode: of n frames.
        distances: (n,), of each frame to the frame `source`.
        source: the index of the source frame.
        values: (n,), V of the frames; those of the agent unless given.

    Raises:
        InputError: the episode is too short, or the arrays do not fit it.

    >>> from bisimetric_atari.games import play
    >>> from bisimetric_atari.games.agent import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=4)
    >>> measured = measure_episode(episode, [0.0, 3.0, 2.0, 5.0])
    >>> measured.find_closest_so_far(min_gap=1).tolist(), measured.find_extremes(1, min_gap=1)
    ([-1, 1, 2, 2], ([2], [3]))
    """
    count = len(episode)
    if count < 2:
        raise InputError(
            f"games: the episode has {pluralise(count, 'frame')} and a figure needs at least 2; "
            "play more steps."
        )
    if not 0 <= require_integer("games", "source", source) < count:
        raise InputError(
            f"games: source is frame {source} and the episode has frames 0 to {count - 1}."
        )
    validated = _validate_per_frame("distance", distances, count)
    if (validated < 0).any():
        first = int(np.argmax(validated < 0))
        raise InputError(
            f"games: the distance of frame {first} is {validated[first]:g} and must be at least 0."
        )
    V = _validate_per_frame("value", episode.values if values is None else values, count)
    return EpisodeDistances(episode, validated, np.abs(V - V[source]), int(source))


def _validate_per_frame(name: str, values: ArrayLike, num_frames: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.shape != (num_frames,):
        raise InputError(
            f"games: the {name}s have shape {array.shape} and the episode has {num_frames} frames; "
            f"give one {name} per frame, ({num_frames},)."
        )
    if not np.isfinite(array).all():
        first = int(np.argmin(np.isfinite(array)))
        raise InputError(
            f"games: the {name} of frame {first} is {array[first]} and must be a number; did the "
            "training of the metric diverge?"
        )
    return array
