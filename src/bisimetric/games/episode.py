"""What an agent saw and did in one game or several, with the screens: to be looked at."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import read_record, write_atomically
from bisimetric.errors import InputError
from bisimetric.mdp._validation import freeze

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
"""The fields with one row a frame: how many dimensions, and the kind of numbers."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Episode:
    """The n frames that an agent acted on, of one game or of several in a row.

    Arrays are read-only. The frames after the end of a game are not among them.

    Attributes:
        game: its name.
        screens: (n, 210, 160) uint8, colours by number; `rgb` shows them.
        palette: (256, 3) uint8, red, green and blue of each.
        features: (n, k) float32, what the agent found in the observation.
        values: (n,) float32, how good it found it.
        actions: (n,), what it did there.
        rewards: (n,), what that paid, not clipped.
        lives: (n,), how many it had there.
        terminated: (n,), whether the game was over after it.
        truncated: (n,), whether the game, or the recording, was cut after it.
        episode: (n,), the number of the game, from 0.
        levels: where a level starts within a game, or None where that is not known.
        made: how it was made, as JSON has it.
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
                f"Episode: game is {self.game!r} and made {type(self.metadata).__name__}; they must be "
                "a name and a dict."
            )
        for name, (dimensions, kind) in FRAME_FIELDS.items():
            array = getattr(self, name)
            if array.ndim != dimensions or len(array) != len(self) or array.dtype.kind != kind:
                raise InputError(
                    f"Episode: {name} are {array.dtype} of shape {array.shape} and must have "
                    f"{dimensions} dimensions and {len(self)} rows, one a frame."
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
            raise InputError("Episode: episode must number the games from 0, in a row.")
        self._validate_level_starts()

    def _validate_level_starts(self) -> None:
        found = self.level_starts
        if found is None:
            return
        inside = found.ndim == 1 and found.dtype.kind == "i"
        if not (inside and ((found >= 0) & (found < len(self))).all()):
            raise InputError(
                f"Episode: levels are {found.dtype} of shape {found.shape} and must be frames, "
                f"from 0 to {len(self) - 1}."
            )

    def __repr__(self) -> str:
        return f"Episode({self.game}, {len(self):,} frames, scores {self.scores.tolist()})"

    def __len__(self) -> int:
        return len(self.screens)

    def render(self, frame: int) -> NDArray[np.uint8]:
        """The screen of a frame, (210, 160, 3): red, green and blue."""
        if not -len(self) <= frame < len(self):
            raise InputError(f"{self.game}: there is no frame {frame}; there are {len(self)}.")
        return np.asarray(self.palette[self.screens[frame]])

    @property
    def starts(self) -> NDArray[np.int64]:
        """The frames where a game starts; the first is 0."""
        return np.flatnonzero(np.diff(self.episode, prepend=-1))

    @property
    def scores(self) -> NDArray[np.float64]:
        """What each game paid, up to its end or its cut."""
        return np.add.reduceat(self.rewards, self.starts)

    @property
    def scoring_frames(self) -> NDArray[np.int64]:
        """The frames whose action paid anything, for or against the agent."""
        return np.flatnonzero(self.rewards)

    @property
    def life_losses(self) -> NDArray[np.int64]:
        """The last frames before a life is lost, the last one of a game with lives included."""
        fewer = np.zeros(len(self), np.bool_)
        same = np.diff(self.episode) == 0
        fewer[:-1] = same & (np.diff(self.lives) < 0)
        return np.flatnonzero(fewer | (self.terminated & (self.lives > 0)))

    def list_events(self) -> dict[str, NDArray[np.int64]]:
        """What happens, and at which frames: starts, levels where known, points and losses."""
        found = {"starts": self.starts, "points": self.scoring_frames, "losses": self.life_losses}
        return found if self.level_starts is None else {**found, "levels": self.level_starts}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one compressed `.npz`; the file appears whole or not at all."""
        about = {"format": FORMAT, "game": self.game, "made": self.metadata}
        arrays = {name: getattr(self, name) for name in (*FRAME_FIELDS, "palette")}
        if self.level_starts is not None:
            arrays["levels"] = self.level_starts
        with write_atomically(path) as beside, open(beside, "wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Episode:
        """Reads what `save` wrote, and checks it."""

        def make(**found: Any) -> Episode:
            return cls(**{"levels": None, **found})

        otherwise = "no episode of a game ({}); make it again with Episode.save."
        return read_record(path, FORMAT, make, otherwise)
