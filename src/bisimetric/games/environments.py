"""Games by name: what people call them, what ALE calls them, and what one can do in them.

Several games side by side, as standard preprocessing shows them to an agent.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._optional import import_optional
from bisimetric.errors import InputError, require_integer, suggest_names

MULTIPLAYER_ROMS = ("combat", "joust", "maze_craze", "warlords")
"""ROMs without a game for one player; ALE ends the process when it loads one."""


@dataclasses.dataclass(frozen=True)
class Game:
    """A game of the Atari 2600.

    Attributes:
        name: as people write it, "SpaceInvaders".
        rom: as ALE writes it, "space_invaders".
        actions: the names of its actions, those without any effect left out.
    """

    name: str
    rom: str
    actions: tuple[str, ...]


def find_game(name: str | Game) -> Game:
    """A game by its name, in any case, with `_` or without.

    >>> game("space_invaders").name, game("pong").actions
    ('SpaceInvaders', ('NOOP', 'FIRE', 'RIGHT', 'LEFT', 'RIGHTFIRE', 'LEFTFIRE'))
    >>> game("Pog")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: games: there is no game 'Pog'; did you mean 'Pong'?
    """
    if isinstance(name, Game):
        return name
    known = _list_roms()
    found = known.get(_normalise_name(str(name)))
    if found is None:
        near = suggest_names(str(name), [each for each, _ in known.values()])
        raise InputError(
            f"games: there is no game {name!r}{near or '; name one such as Pong or SpaceInvaders.'}"
        )
    return _load_game(*found)


def list_games() -> list[str]:
    """The names of all games for one player that ALE carries."""
    return [name for name, _ in _list_roms().values()]


def import_game_package(package: str) -> Any:
    """Import a package that games need, or raise an error that says how to install it."""
    return import_optional(package, "games", "atari")


@functools.cache
def _list_roms() -> dict[str, tuple[str, str]]:
    """Names and ROMs, by the plain name."""
    ids = sorted(set(import_game_package("ale_py.roms").get_all_rom_ids()) - {*MULTIPLAYER_ROMS})
    return {_normalise_name(rom): (rom.title().replace("_", ""), rom) for rom in ids}


@functools.cache
def _load_game(name: str, rom: str) -> Game:
    return Game(
        name, rom, tuple(each.name for each in create_emulator(rom, 0).getMinimalActionSet())
    )


def create_emulator(rom: str, seed: int) -> Any:
    """ALE itself with a ROM in it, silent, without sticky actions; not reset."""
    ale_py = import_game_package("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    console = ale_py.ALEInterface()
    console.setInt("random_seed", seed)
    console.setFloat("repeat_action_probability", 0.0)
    console.loadROM(import_game_package("ale_py.roms").get_rom_path(rom))
    return console


def _normalise_name(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


OBSERVATION_SHAPE = (4, 84, 84)
"""One observation: four frames, the oldest first, grey, uint8; before the start of a game, 0."""

FRAME_SKIP = 4
"""Frames of the console in one step; the action is held, the rewards are added."""

MAX_EPISODE_STEPS = 27_000
"""Steps after which a game is cut: half an hour of play."""

MAX_NOOPS = 30


class VectorStep(NamedTuple):
    """What a step led to, in each of n games.

    Attributes:
        observations: (n, 4, 84, 84) uint8.
        rewards: (n,), as the game pays them, not clipped.
        terminated: (n,), whether the game is over; the observation is the last of it.
        truncated: (n,), whether it was cut, after `longest` steps.
        fresh: (n,), whether this was no step, but the start of the next game.
        lives: (n,), how many are left; always 0 in games without lives.
        frames: (n,), frames of the console since the game started.
    """

    observations: NDArray[np.uint8]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_first: NDArray[np.bool_]
    lives: NDArray[np.int64]
    frames: NDArray[np.int64]


class AtariGames:
    """`count` games side by side, without sticky actions: all chance is in their starts.

    A game starts after some frames without an action, fewer than `noops`, drawn at random. When
    it is over, the next `send` starts the one after it; its action is not taken, and `fresh` says
    so. Console i is that of (key, first + i), the same in any company and with any number of
    threads (0: as many as there are cores).

    >>> games = Games("Pong", 2, key=1)
    >>> games.reset().observations.shape
    (2, 4, 84, 84)
    >>> games.step([0, 3]).rewards.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        name: str | Game,
        num_games: int,
        *,
        seed: int = 0,
        max_noops: int = MAX_NOOPS,
        num_threads: int = 0,
        max_episode_steps: int = MAX_EPISODE_STEPS,
        first_index: int = 0,
    ) -> None:
        self.game = find_game(name)
        where = self.game.name
        self.num_games = require_integer(where, "count", num_games, 1)
        self.seeds = derive_seeds(
            require_integer(where, "key", seed),
            self.num_games,
            require_integer(where, "first", first_index),
        )
        self._finished = np.zeros(self.num_games, np.bool_)
        self._vector = import_game_package("ale_py.vector_env").AtariVectorEnv(
            self.game.rom,
            self.num_games,
            num_threads=require_integer(where, "threads", num_threads),
            noop_max=require_integer(where, "noops", max_noops),
            max_num_frames_per_episode=FRAME_SKIP
            * require_integer(where, "longest", max_episode_steps, 1),
            frameskip=FRAME_SKIP,
            repeat_action_probability=0.0,
            use_fire_reset=False,
            reward_clipping=False,
        )

    def reset(self) -> VectorStep:
        """Starts all games anew: the same ones again."""
        observations, info = self._vector.reset(seed=self.seeds)
        nothing, none = np.zeros(self.num_games), np.zeros(self.num_games, np.bool_)
        self._finished = none
        return VectorStep(observations, nothing, none, none, is_first=~none, **_extract_info(info))

    def send(self, actions: ArrayLike) -> None:
        """Takes the actions (n,) to the consoles, which work while others do: see `receive`."""
        given = np.asarray(actions)
        most = len(self.game.actions)
        if given.shape != (self.num_games,) or given.dtype.kind not in "iu":
            raise InputError(
                f"{self.game.name}: actions are {given.dtype} of shape {given.shape} and must be "
                f"whole numbers of shape ({self.num_games},), one a game."
            )
        if given.min() < 0 or given.max() >= most:
            wrong = given[(given < 0) | (given >= most)][0]
            raise InputError(
                f"{self.game.name}: there is no action {wrong}; there are {most}, "
                f"{', '.join(self.game.actions)}."
            )
        self._vector.send(given.astype(np.int64))

    def receive(self) -> VectorStep:
        """What the actions sent last led to."""
        observations, rewards, terminated, truncated, info = self._vector.recv()
        fresh, self._finished = self._finished, terminated | truncated
        paid = rewards.astype(np.float64)
        return VectorStep(
            observations, paid, terminated, truncated, is_first=fresh, **_extract_info(info)
        )

    def step(self, actions: ArrayLike) -> VectorStep:
        """`send`, then `receive`."""
        self.send(actions)
        return self.receive()


def derive_seeds(seed: int, num_games: int, first_index: int = 0) -> NDArray[np.int64]:
    """The seeds (count,) of the consoles `first`, `first` + 1, ... of a key."""
    places = range(first_index, first_index + num_games)
    states = [np.random.SeedSequence(seed, spawn_key=(each,)).generate_state(1) for each in places]
    return np.concatenate(states).astype(np.int64) >> 1


def _extract_info(info: dict[str, NDArray[np.int32]]) -> dict[str, NDArray[np.int64]]:
    names = {"lives": "lives", "frames": "episode_frame_number"}
    return {name: info[theirs].astype(np.int64) for name, theirs in names.items()}
