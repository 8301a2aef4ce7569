"""Games by name: what people call them, what ALE calls them, and what one can do in them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

from bisimetric.errors import InputError, suggest_names

INSTALL = "pip install 'bisimetric[atari]'"

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


def import_optional(package: str) -> Any:
    """A package that games need, or one sentence that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        missing = error.name or package
        raise InputError(f"games: {missing} is not installed; {INSTALL}.") from None


@functools.cache
def _list_roms() -> dict[str, tuple[str, str]]:
    """Names and ROMs, by the plain name."""
    ids = sorted(set(import_optional("ale_py.roms").get_all_rom_ids()) - {*MULTIPLAYER_ROMS})
    return {_normalise_name(rom): (rom.title().replace("_", ""), rom) for rom in ids}


@functools.cache
def _load_game(name: str, rom: str) -> Game:
    return Game(
        name, rom, tuple(each.name for each in create_emulator(rom, 0).getMinimalActionSet())
    )


def create_emulator(rom: str, seed: int) -> Any:
    """ALE itself with a ROM in it, silent, without sticky actions; not reset."""
    ale_py = import_optional("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    console = ale_py.ALEInterface()
    console.setInt("random_seed", seed)
    console.setFloat("repeat_action_probability", 0.0)
    console.loadROM(import_optional("ale_py.roms").get_rom_path(rom))
    return console


def _normalise_name(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())
