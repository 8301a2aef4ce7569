"""Where MDPs come from: the paper's examples, families of any size, and grids drawn as text.

>>> from bisimetric import worlds
>>> worlds.load("mirrored-rooms", discount=0.9)
MDP(31 states, 4 actions, deterministic, discount 0.9)
>>> worlds.load("open-grid", rows=5, columns=5, obstacles=0.0).num_states
25
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import os
from collections.abc import Callable
from typing import Any

from bisimetric.errors import InputError, near_names
from bisimetric.mdp import MDP
from bisimetric.worlds.families import open_grid, random_mdp
from bisimetric.worlds.grids import grid, read_grid
from bisimetric.worlds.paper import (
    duplicated_grid,
    mirrored_rooms,
    mirrored_rooms_policy,
    pessimism,
)

__all__ = ["World", "describe", "grid", "load", "names", "read_grid"]

_WORLDS: dict[str, Callable[..., MDP]] = {
    "mirrored-rooms": mirrored_rooms,
    "mirrored-rooms-policy": mirrored_rooms_policy,
    "duplicated-grid": duplicated_grid,
    "pessimism": pessimism,
    "open-grid": open_grid,
    "random": random_mdp,
}


@dataclasses.dataclass(frozen=True)
class World:
    """A built-in world: its name, one line about it, its default discount, and its options."""

    name: str
    description: str
    discount: float
    options: dict[str, Any]


def names() -> list[str]:
    """The names of the built-in worlds."""
    return list(_WORLDS)


def describe() -> list[World]:
    """What `load` knows by name.

    >>> next(world.options for world in describe() if world.name == "random")
    {'states': 1000, 'actions': 4, 'key': 0}
    """
    described = []
    for name, make in _WORLDS.items():
        defaults = {key: each.default for key, each in inspect.signature(make).parameters.items()}
        discount = defaults.pop("discount")
        line = (inspect.getdoc(make) or "").partition("\n")[0]
        described.append(World(name, line, discount, defaults))
    return described


def load(name: str | os.PathLike[str], *, discount: float | None = None, **options: Any) -> MDP:
    """A built-in world by name, or the grid in a text file by path.

    `discount` None means the world's own: 0.9 for the pessimism example, 0.99 for the others.
    `options` are those of `describe()`; values may also be their texts, such as "70".
    A name with a path separator, one that ends in .txt, and one of an existing file is a path.

    >>> load("miror-rooms")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: worlds: there is no world 'miror-rooms'; did you mean
    'mirrored-rooms' or 'mirrored-rooms-policy'? Use one of mirrored-rooms, ...,
    or a path to a grid text file.
    """
    wanted = os.fspath(name)
    given: dict[str, Any] = {} if discount is None else {"discount": discount}
    world = next((each for each in describe() if each.name == wanted), None)
    if world is not None:
        for option, value in options.items():
            if option not in world.options:
                raise InputError(
                    f"world {wanted!r}: there is no option {option!r}; {_known(world)}."
                )
            given[option] = _option(world, option, value)
        return _WORLDS[wanted](**given)
    separators = [mark for mark in (os.sep, os.altsep) if mark]
    if (
        any(mark in wanted for mark in separators)
        or wanted.endswith(".txt")
        or os.path.isfile(wanted)
    ):
        if options:
            raise InputError(
                f"grid file {wanted}: there is no option {next(iter(options))!r}; "
                "a grid file has none."
            )
        return read_grid(wanted, **given)
    near = near_names(wanted, _WORLDS)
    raise InputError(
        f"worlds: there is no world {wanted!r}{near or '.'} Use one of {', '.join(_WORLDS)}, "
        "or a path to a grid text file."
    )


def _known(world: World) -> str:
    if not world.options:
        return "it has none"
    return "its options are " + ", ".join(f"{key}={value}" for key, value in world.options.items())


def _option(world: World, option: str, value: Any) -> int | float | str:
    """The value of an option, of the type of its default."""
    default = world.options[option]
    try:
        if isinstance(default, str):
            return str(os.fspath(value))
        if isinstance(default, int):
            return int(value) if isinstance(value, str) else operator.index(value)
        number = float(value)
        if math.isfinite(number):
            return number
    except (TypeError, ValueError):
        pass
    wanted = {str: "a text", int: "a whole number", float: "a finite number"}[type(default)]
    raise InputError(f"world {world.name!r}: option {option} is {value!r} and must be {wanted}.")
