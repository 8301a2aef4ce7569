"""The screen of a game that is being played: what the agent sees, in colour and in full."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric.games.environments import FRAME_SKIP
from bisimetric.games.names import Game, create_emulator

ENEMY_COUNT_ADDRESS = {"SpaceInvaders": 17}
"""The byte of memory that counts the foes of a level, where it is known: it rises at its start."""


class ScreenRecorder:
    """A second console that follows a game by its starts and actions, and shows its screen.

    Where a picture flickers, both see the last two frames of a step in one: of each point, the
    brighter colour.

    >>> from bisimetric.games.names import game
    >>> screens = Screens(game("Pong"), seed=1)
    >>> screens.start(frames=10)
    >>> screens.step(3), screens.shown.shape
    (0.0, (210, 160))
    """

    def __init__(self, game: Game, seed: int) -> None:
        self._console = create_emulator(game.rom, seed)
        self._actions = self._console.getMinimalActionSet()
        self._enemy_address = ENEMY_COUNT_ADDRESS.get(game.name)
        self._known_colours = np.zeros(256, np.bool_)
        self.palette = np.zeros((256, 3), np.uint8)
        self.screen: NDArray[np.uint8] = np.zeros(self._console.getScreenDims(), np.uint8)

    def reset(self, num_frames: int) -> None:
        """The start of a game, and so many frames without an action."""
        self._console.reset_game()
        for _ in range(num_frames):
            self._console.act(0)
        self.screen, _ = self._read_screen()

    def step(self, action: int) -> float:
        """Holds an action for the frames of a step, and returns what it paid."""
        paid, looks = 0.0, []
        for frame in range(FRAME_SKIP):
            paid += self._console.act(self._actions[action])
            if self._console.game_over():
                break
            if frame >= FRAME_SKIP - 2:
                looks.append(self._read_screen())
        if len(looks) == 2:
            (one, grey), (other, other_grey) = looks
            self.screen = np.where(grey > other_grey, one, other)
        return paid

    @property
    def lives(self) -> int:
        return int(self._console.lives())

    @property
    def num_enemies(self) -> int | None:
        """How many foes of this level are left, where that is known."""
        return (
            None
            if self._enemy_address is None
            else int(self._console.getRAM()[self._enemy_address])
        )

    def _read_screen(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The screen in the numbers of its colours, and in grey."""
        indices = self._console.getScreen()
        if not self._known_colours[indices].all():
            self.palette[indices] = self._console.getScreenRGB()
            self._known_colours[indices] = True
        return indices, self._console.getScreenGrayscale()
