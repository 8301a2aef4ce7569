"""Recorded episodes of an agent: screens, features, values, actions and rewards, and their file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from bisimetric._io import read_record, write_atomically
from bisimetric.errors import InputError
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions

FORMAT = "bisimetric episode, version 1"
FRAME_FIELDS = {
    "screens": (3, "u"),
    "features": (2, "f"),
    "values": (1, "f"),
    "actions": (1, "i"),
    "rewards": (1, "f"),
    "lives": (1, "i"),
    "terminated": (1, "b"),
    "truncated": (1, "b"),
    "episode": (1, "i"),
}
"""The fields with one row per frame: number of dimensions and NumPy kind."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Episode:
    """The n frames that an agent acted on, from one episode or several in succession.

    Arrays are read-only. The final frame of an episode, on which no action is taken, is excluded.

    Attributes:
        game: name of the game.
        screens: (n, 210, 160) uint8, colour indices; `render` returns RGB. (n, 0, 0) without any.
        palette: (256, 3) uint8, RGB of each colour index.
        features: (n, k) float32, features of the agent.
        values: (n,) float32, the agent's value estimates.
        actions: (n,), actions taken.
        rewards: (n,), rewards received for them, not clipped.
        lives: (n,), lives left.
        terminated: (n,), whether the game was over after the action.
        truncated: (n,), whether the episode or the recording was cut after the action.
        episode: (n,), index of the episode, from 0.
        level_starts: frames where a level starts within an episode; None where unknown.
        metadata: JSON-compatible facts on how it was recorded.

    >>> from bisimetric_atari.games import IdleAgent, play
    >>> play("Pong", IdleAgent("Pong"), max_steps=5)
    Episode(Pong, 5 frames, scores [0.0])
    """

    game: str
    screens: NDArray[np.uint8]
    palette: NDArray[np.uint8]
    features: NDArray[np.float32]
    values: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    lives: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    episode: NDArray[np.int64]
    level_starts: NDArray[np.int64] | None
    metadata: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.game, str) or not isinstance(self.metadata, dict):
            raise InputError(
                f"Episode: game is {self.game!r} and metadata {type(self.metadata).__name__}; they "
                "must be a name and a dict."
            )
        for name, (dimensions, kind) in FRAME_FIELDS.items():
            array = getattr(self, name)
            if array.ndim != dimensions or len(array) != len(self) or array.dtype.kind != kind:
                raise InputError(
                    f"Episode: {name} are {array.dtype} of shape {array.shape} and must have "
                    f"{dimensions} dimensions and {len(self)} rows, one per frame."
                )
            freeze(array)
            if kind == "f" and not np.isfinite(array).all():
                raise InputError(f"Episode: {name} hold numbers that are not finite.")
        if len(self) == 0:
            raise InputError("Episode: there are no frames; give at least one.")
        if self.palette.shape != (256, 3) or self.palette.dtype != np.uint8:
            raise InputError(
                f"Episode: the palette is {self.palette.dtype} of shape {self.palette.shape} and "
                "must be uint8, (256, 3)."
            )
        if self.screens.dtype != np.uint8:
            raise InputError(f"Episode: screens are {self.screens.dtype} and must be uint8.")
        if self.episode[0] != 0 or not np.isin(np.diff(self.episode), (0, 1)).all():
            raise InputError("Episode: episode must number the episodes from 0, without gaps.")
        self._validate_level_starts()

    def _validate_level_starts(self) -> None:
        starts = self.level_starts
        if starts is None:
            return
        integers = starts.ndim == 1 and starts.dtype.kind == "i"
        if not (integers and ((starts >= 0) & (starts < len(self))).all()):
            raise InputError(
                f"Episode: level_starts are {starts.dtype} of shape {starts.shape} and must be "
                f"frames, from 0 to {len(self) - 1}."
            )

    def __repr__(self) -> str:
        return f"Episode({self.game}, {len(self):,} frames, scores {self.scores.tolist()})"

    def __len__(self) -> int:
        return len(self.screens)

    @property
    def has_screens(self) -> bool:
        """Whether the screens were recorded."""
        return self.screens.size > 0

    @classmethod
    def from_transitions(
        cls,
        data: Transitions,
        *,
        game: str = "",
        screens: ArrayLike | None = None,
        values: ArrayLike | None = None,
        lives: ArrayLike | None = None,
    ) -> Episode:
        """Build the recording of transitions that were collected elsewhere.

        Args:
            data: n steps in their order; the observations are features (n, k).
            game: a name for figures; default: that in the metadata of the data, if any.
            screens: (n, h, w, 3) uint8, the RGB screens, of at most 256 colours; default: none, and
                then there are no pictures of frames.
            values: (n,), value estimates; default: 0.
            lives: (n,), lives left; default: 0.

        Returns:
            The recording, with the metadata of the data.

        Raises:
            InputError: if the observations are no features, or an array does not fit.

        >>> data = Transitions(np.eye(3), [0, 1, 0], [0.0, 1.0, 0.0], np.eye(3), [False] * 3)
        >>> Episode.from_transitions(data, game="Mine")
        Episode(Mine, 3 frames, scores [1.0])
        """
        n = len(data)
        if data.observations.ndim != 2 or data.observations.dtype.kind not in "fiu":
            raise InputError(
                f"Episode: the observations have shape {data.observations.shape} and must be "
                "features, (steps, k)."
            )
        if data.actions.ndim != 1:
            raise InputError("Episode: the actions must be numbered, (steps,).")
        ended = data.terminated | data.truncated
        indices, palette = _index_colours(n, screens)
        truncated = np.array(data.truncated)
        truncated[-1] |= not data.terminated[-1]
        return cls(
            game=game or str(data.metadata.get("game", "episode")),
            screens=indices,
            palette=palette,
            features=np.asarray(data.observations, np.float32),
            values=_fill(values, n, np.float32),
            actions=np.asarray(data.actions, np.int64),
            rewards=np.asarray(data.rewards, np.float64),
            lives=_fill(lives, n, np.int64),
            terminated=np.array(data.terminated),
            truncated=truncated,
            episode=np.concatenate([[0], np.cumsum(ended[:-1])]).astype(np.int64),
            level_starts=None,
            metadata=dict(data.metadata),
        )

    def render(self, frame: int) -> NDArray[np.uint8]:
        """Return the screen of a frame in RGB.

        Args:
            frame: its index; negative ones count from the end.

        Returns:
            (210, 160, 3) uint8.

        Raises:
            InputError: if there is no such frame, or no screen was recorded.
        """
        if not self.has_screens:
            raise InputError(f"{self.game}: no screens were recorded.")
        if not -len(self) <= frame < len(self):
            raise InputError(f"{self.game}: there is no frame {frame}; there are {len(self)}.")
        return np.asarray(self.palette[self.screens[frame]])

    @property
    def starts(self) -> NDArray[np.int64]:
        """First frame of each episode; the first of them is 0."""
        return np.flatnonzero(np.diff(self.episode, prepend=-1))

    @property
    def scores(self) -> NDArray[np.float64]:
        """Undiscounted return of each episode, up to its end or its truncation."""
        return np.add.reduceat(self.rewards, self.starts)

    @property
    def scoring_frames(self) -> NDArray[np.int64]:
        """Frames with a nonzero reward, positive or negative."""
        return np.flatnonzero(self.rewards)

    @property
    def life_losses(self) -> NDArray[np.int64]:
        """Last frames before the loss of a life, the last life of a game with lives included."""
        fewer = np.zeros(len(self), np.bool_)
        same = np.diff(self.episode) == 0
        fewer[:-1] = same & (np.diff(self.lives) < 0)
        return np.flatnonzero(fewer | (self.terminated & (self.lives > 0)))

    def list_events(self) -> dict[str, NDArray[np.int64]]:
        """List the frames of all events.

        Returns:
            Frames of `starts`, `scores`, `life losses` and, where known, `level starts`.
        """
        events = {
            "starts": self.starts,
            "scores": self.scoring_frames,
            "life losses": self.life_losses,
        }
        return (
            events if self.level_starts is None else {**events, "level starts": self.level_starts}
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one compressed `.npz` file, atomically.

        Args:
            path: the file to write.
        """
        about = {"format": FORMAT, "game": self.game, "metadata": self.metadata}
        arrays = {name: getattr(self, name) for name in (*FRAME_FIELDS, "palette")}
        if self.level_starts is not None:
            arrays["level_starts"] = self.level_starts
        with write_atomically(path) as beside, open(beside, "wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Episode:
        """Read and validate a file written by `save`.

        Args:
            path: the file to read.

        Returns:
            The episode.

        Raises:
            InputError: if the file holds no valid episode.
        """

        def build(**fields: Any) -> Episode:
            return cls(**{"level_starts": None, **fields})

        otherwise = "no episode of a game ({}); record it again with Episode.save."
        return read_record(path, FORMAT, build, otherwise)


def _index_colours(
    num_frames: int, screens: ArrayLike | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return RGB screens (n, h, w, 3) as indices (n, h, w) into a palette (256, 3)."""
    palette = np.zeros((256, 3), np.uint8)
    if screens is None:
        return np.zeros((num_frames, 0, 0), np.uint8), palette
    frames = np.asarray(screens)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[::3] != (num_frames, 3):
        raise InputError(
            f"Episode: the screens are {frames.dtype} of shape {frames.shape} and must be uint8, "
            f"({num_frames}, height, width, 3)."
        )
    codes = frames.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, indices = np.unique(codes, return_inverse=True)
    if len(colours) > len(palette):
        raise InputError(
            f"Episode: the screens have {len(colours):,} colours and at most 256 are stored."
        )
    palette[: len(colours)] = (colours[:, None] >> np.array([16, 8, 0])) & 255
    return indices.reshape(codes.shape).astype(np.uint8), palette


def _fill(values: ArrayLike | None, num_frames: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return values with a type, or zeros."""
    return np.zeros(num_frames, dtype) if values is None else np.array(values, dtype)
