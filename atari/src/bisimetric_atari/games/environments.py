"""Atari 2600 games by name, and vector environments with the standard preprocessing.

By default without sticky actions; frames, frame skip and stacking are those of Dopamine.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._optional import import_optional
from bisimetric.errors import InputError, require_integer, suggest_names

Observes = Literal["stacked", "screen"]
"""What an agent observes: four grey frames (4, 84, 84), or the RGB screen, (210, 160, 3)."""

MULTIPLAYER_ROMS = ("combat", "joust", "maze_craze", "warlords")
"""ROMs without a single-player mode; loading one makes ALE end the process."""


@dataclasses.dataclass(frozen=True)
class Game:
    """A game of the Atari 2600.

    Attributes:
        name: the usual name, such as "SpaceInvaders".
        rom: ALE's name, such as "space_invaders".
        actions: names of the minimal action set, in ALE's order.
        screen_shape: height and width of the screen.

    >>> Game("Pong", "pong", ("NOOP", "FIRE")).rom
    'pong'
    """

    name: str
    rom: str
    actions: tuple[str, ...]
    screen_shape: tuple[int, int] = (210, 160)


def find_game(name: str | Game) -> Game:
    """Find a game by its name, ignoring case and underscores.

    Args:
        name: the name; a `Game` is returned unchanged.

    Returns:
        The game with its ROM and its actions.

    Raises:
        InputError: if ALE has no such single-player game, or is not installed.

    >>> find_game("space_invaders").name, find_game("pong").actions
    ('SpaceInvaders', ('NOOP', 'FIRE', 'RIGHT', 'LEFT', 'RIGHTFIRE', 'LEFTFIRE'))
    >>> find_game("Pog")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: games: there is no game 'Pog'; did you mean 'Pong'?
    """
    if isinstance(name, Game):
        return name
    known = _list_roms()
    found = known.get(_normalise_name(str(name)))
    if found is None:
        near = suggest_names(str(name), [known_name for known_name, _ in known.values()])
        raise InputError(
            f"games: there is no game {name!r}{near or '; name one such as Pong or SpaceInvaders.'}"
        )
    return _load_game(*found)


def list_games() -> list[str]:
    """List the names of all single-player games of ALE.

    Returns:
        The names, in alphabetical order of their ROMs.

    >>> "Pong" in list_games()
    True
    """
    return [name for name, _ in _list_roms().values()]


def import_game_package(package: str) -> Any:
    """Import a package that games need; an InputError says how to install it."""
    return import_optional(package, "games", None, "bisimetric-atari")


@functools.cache
def _list_roms() -> dict[str, tuple[str, str]]:
    """Return names and ROMs by normalised name."""
    ids = sorted(set(import_game_package("ale_py.roms").get_all_rom_ids()) - {*MULTIPLAYER_ROMS})
    return {_normalise_name(rom): (rom.title().replace("_", ""), rom) for rom in ids}


@functools.cache
def _load_game(name: str, rom: str) -> Game:
    emulator = create_emulator(rom, 0)
    actions = tuple(action.name for action in emulator.getMinimalActionSet())
    height, width = emulator.getScreenDims()
    return Game(name, rom, actions, (int(height), int(width)))


def create_emulator(rom: str, seed: int, repeat_action_probability: float = 0.0) -> Any:
    """Create an ALE emulator with a loaded ROM, without logging; not reset."""
    ale_py = import_game_package("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    console = ale_py.ALEInterface()
    console.setInt("random_seed", seed)
    console.setFloat("repeat_action_probability", repeat_action_probability)
    console.loadROM(import_game_package("ale_py.roms").get_rom_path(rom))
    return console


def _normalise_name(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


OBSERVATION_SHAPE = (4, 84, 84)
"""One observation: four grey uint8 frames, the oldest first; 0 before the start of an episode."""

FRAME_SKIP = 4
"""Emulator frames per step: the action is repeated and the rewards are summed."""

REPEAT_ACTION_PROBABILITY = 0.0
"""Sticky actions: the probability per frame that ALE repeats the last action; none by default."""

MAX_EPISODE_STEPS = 27_000
"""Steps after which an episode is truncated: half an hour of play."""

MAX_NOOPS = 30
"""No-op frames at the start of an episode, at most."""


def get_observation_shape(game: Game, observes: Observes = "stacked") -> tuple[int, ...]:
    """Return the shape of one observation.

    >>> get_observation_shape(find_game("Pong"), "screen")
    (210, 160, 3)
    """
    if observes not in get_args(Observes):
        raise InputError(
            f"{game.name}: observes is {observes!r} and must be 'stacked' (four grey frames of "
            "84 x 84) or 'screen' (the RGB screen)."
        )
    return OBSERVATION_SHAPE if observes == "stacked" else (*game.screen_shape, 3)


class VectorStep(NamedTuple):
    """Outcome of one step in each of n games.

    Attributes:
        observations: (n, 4, 84, 84) or (n, height, width, 3) uint8.
        rewards: (n,), not clipped.
        terminated: (n,), whether the game is over; the observation is its last.
        truncated: (n,), whether the episode was cut after `max_episode_steps`.
        is_first: (n,), whether the observation is the first of an episode; the action was ignored.
        lives: (n,), lives left; always 0 in games without lives.
        frames: (n,), emulator frames since the start of the episode.

    >>> AtariGames("Pong", 2).reset().is_first.tolist()
    [True, True]
    """

    observations: NDArray[np.uint8]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_first: NDArray[np.bool_]
    lives: NDArray[np.int64]
    frames: NDArray[np.int64]


class AtariGames:
    """Vector environment of one game.

    An episode begins after a random number of no-op frames. Without sticky actions, this is all
    randomness. After the end of an episode the next `send` starts another one, ignores the action
    and sets `is_first`. Emulator i is seeded by (seed, first_index + i): its episodes depend
    neither on the other emulators nor on the number of threads.

    Args:
        game: the game or its name.
        num_envs: number of parallel emulators n.
        seed: of the random starts.
        max_noops: no-op frames at the start of an episode, fewer than this.
        num_threads: threads of ALE; 0 for one per core.
        max_episode_steps: steps after which an episode is truncated.
        first_index: index of the first emulator among those of the seed.
        frame_skip: emulator frames per step; the action is repeated and the rewards are summed.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.
        observes: "stacked" for the last four grey frames (4, 84, 84), each the maximum of the last
            two frames of its step; "screen" for the RGB screen (height, width, 3) of the last
            frame, as it is. The screen at the end of a game is that of the step before.

    Raises:
        InputError: if the game is unknown or an argument is out of range.

    >>> games = AtariGames("Pong", 2, seed=1)
    >>> games.reset().observations.shape
    (2, 4, 84, 84)
    >>> games.step([0, 3]).rewards.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        game: str | Game,
        num_envs: int,
        *,
        seed: int = 0,
        max_noops: int = MAX_NOOPS,
        num_threads: int = 0,
        max_episode_steps: int = MAX_EPISODE_STEPS,
        first_index: int = 0,
        frame_skip: int = FRAME_SKIP,
        repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
        observes: Observes = "stacked",
    ) -> None:
        self.game = find_game(game)
        caller = self.game.name
        self.num_envs = require_integer(caller, "num_envs", num_envs, 1)
        seed = require_integer(caller, "seed", seed)
        first_index = require_integer(caller, "first_index", first_index)
        self.seeds = derive_seeds(seed, self.num_envs, first_index)
        steps = require_integer(caller, "max_episode_steps", max_episode_steps, 1)
        skip = require_integer(caller, "frame_skip", frame_skip, 1)
        sticky = validate_probability(
            caller, "repeat_action_probability", repeat_action_probability
        )
        shape = get_observation_shape(self.game, observes)
        self._is_screen = observes == "screen"
        images: dict[str, Any] = {}
        if self._is_screen:
            images = {"grayscale": False, "stack_num": 1, "maxpool": False}
            images |= {"img_height": shape[0], "img_width": shape[1]}
        self._finished = np.zeros(self.num_envs, np.bool_)
        self._vector = import_game_package("ale_py.vector_env").AtariVectorEnv(
            self.game.rom,
            self.num_envs,
            num_threads=require_integer(caller, "num_threads", num_threads),
            noop_max=require_integer(caller, "max_noops", max_noops),
            max_num_frames_per_episode=skip * steps,
            frameskip=skip,
            repeat_action_probability=sticky,
            use_fire_reset=False,
            reward_clipping=False,
            **images,
        )

    def reset(self) -> VectorStep:
        """Start all games again from the seed.

        Returns:
            The first observations, with zero rewards and `is_first` set.
        """
        observations, info = self._vector.reset(seed=self.seeds)
        zeros, none = np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_)
        self._finished = none
        return VectorStep(
            self._select(observations), zeros, none, none, is_first=~none, **_extract_info(info)
        )

    def send(self, actions: ArrayLike) -> None:
        """Start a step with these actions and return at once; `receive` waits for its outcome.

        Args:
            actions: (n,) integers, indices into `game.actions`.

        Raises:
            InputError: if the shape, the type or a value is wrong.
        """
        indices = np.asarray(actions)
        num_actions = len(self.game.actions)
        if indices.shape != (self.num_envs,) or indices.dtype.kind not in "iu":
            raise InputError(
                f"{self.game.name}: actions are {indices.dtype} of shape {indices.shape} and must "
                f"be whole numbers of shape ({self.num_envs},), one per game."
            )
        if indices.min() < 0 or indices.max() >= num_actions:
            wrong = indices[(indices < 0) | (indices >= num_actions)][0]
            raise InputError(
                f"{self.game.name}: there is no action {wrong}; there are {num_actions}, "
                f"{', '.join(self.game.actions)}."
            )
        self._vector.send(indices.astype(np.int64))

    def receive(self) -> VectorStep:
        """Wait for the step that `send` started.

        Returns:
            The outcome in each game.
        """
        observations, rewards, terminated, truncated, info = self._vector.recv()
        is_first, self._finished = self._finished, terminated | truncated
        rewards = rewards.astype(np.float64)
        return VectorStep(
            self._select(observations),
            rewards,
            terminated,
            truncated,
            is_first=is_first,
            **_extract_info(info),
        )

    def _select(self, observations: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the observations without the axis of a stack of one screen."""
        return observations[:, 0] if self._is_screen else observations

    def step(self, actions: ArrayLike) -> VectorStep:
        """Take one step: `send`, then `receive`.

        Args:
            actions: (n,) integers, indices into `game.actions`.

        Returns:
            The outcome in each game.

        Raises:
            InputError: if the shape, the type or a value is wrong.
        """
        self.send(actions)
        return self.receive()


def validate_probability(caller: str, name: str, value: float) -> float:
    """Raise InputError if a probability is not from 0 to 1; otherwise return it."""
    if not (isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1):
        raise InputError(
            f"is {value!r} and must be a number from 0 to 1", caller=caller, argument=name
        )
    return float(value)


def derive_seeds(seed: int, num_envs: int, first_index: int = 0) -> NDArray[np.int64]:
    """Derive the seeds (num_envs,) of the emulators first_index, first_index + 1, ..."""
    indices = range(first_index, first_index + num_envs)
    states = [np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(1) for i in indices]
    return np.concatenate(states).astype(np.int64) >> 1


def _extract_info(info: dict[str, NDArray[np.int32]]) -> dict[str, NDArray[np.int64]]:
    """Return lives and frame numbers from ALE's info."""
    names = {"lives": "lives", "frames": "episode_frame_number"}
    return {name: info[ale_name].astype(np.int64) for name, ale_name in names.items()}
