"""One way in for every world: a name, an id of Gymnasium, or the path of a file."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import operator
import os
from collections.abc import Callable
from typing import Any, Literal

from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP
from bisimetric.transitions import Transitions
from bisimetric.transitions.files import is_transitions_file
from bisimetric.worlds._warnings import warn_missing_actions
from bisimetric.worlds.builtin import (
    duplicated_grid,
    mirrored_rooms,
    mirrored_rooms_policy,
    open_grid,
    pessimism,
    random_mdp,
)
from bisimetric.worlds.enumeration import enumerate_environment
from bisimetric.worlds.grids import read_grid
from bisimetric.worlds.gymnasium_envs import (
    MINIGRID_PREFIXES,
    from_gymnasium,
    is_environment_id,
    list_registered_ids,
)
from bisimetric.worlds.matrices import read_matrices
from bisimetric.worlds.prism import from_prism

_WORLDS: dict[str, Callable[..., MDP]] = {
    "mirrored-rooms": mirrored_rooms,
    "mirrored-rooms-policy": mirrored_rooms_policy,
    "duplicated-grid": duplicated_grid,
    "pessimism": pessimism,
    "open-grid": open_grid,
    "random": random_mdp,
}
_READERS: dict[str, tuple[str, Callable[..., MDP]]] = {
    ".tra": ("PRISM file", from_prism),
    ".npz": ("matrix file", read_matrices),
}
_GRID_READER = ("grid file", read_grid)


@dataclasses.dataclass(frozen=True)
class World:
    """A built-in world: its name, one line about it, its default discount, and its options."""

    name: str
    description: str
    discount: float
    options: dict[str, Any]


def list_names() -> list[str]:
    """The names of the built-in worlds."""
    return list(_WORLDS)


def describe() -> list[World]:
    """What `load` knows by name.

    >>> next(world.options for world in describe() if world.name == "random")
    {'states': 1000, 'actions': 4, 'successors': 1, 'key': 0}
    """
    described = []
    for name, make in _WORLDS.items():
        defaults = {key: each.default for key, each in inspect.signature(make).parameters.items()}
        discount = defaults.pop("discount")
        line = (inspect.getdoc(make) or "").partition("\n")[0]
        described.append(World(name, line, discount, defaults))
    return described


def load(name: str | os.PathLike[str], *, discount: float | None = None, **options: Any) -> MDP:
    """A world by name, by the id of a Gymnasium environment, or by the path of a file.

    | `name` | what it is | options |
    |---|---|---|
    | a name of `describe()` | a built-in world | as it says |
    | `FrozenLake-v1` and such | `from_gymnasium` | those of the environment |
    | `MiniGrid-...-v0`, `BabyAI-...-v0` | `enumerate_environment` | and `seed`, `max_states` |
    | a path that ends in .tra | `from_prism` | `sta`, `lab`, `srew`, `trew`, `observe` |
    | a path that ends in .npz | `read_matrices` | `first` |
    | one that `Transitions.save` wrote | `Transitions.to_mdp` | `unseen` |
    | any other path | `read_grid` | |

    `discount` None means the world's own: 0.9 for the pessimism example, 0.99 for the others.
    Values of options may also be their texts, such as "70". A name with a path separator, one
    that ends in .txt, .tra or .npz, and one of an existing file is a path.

    >>> load("miror-rooms")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: worlds: there is no world 'miror-rooms'; did you mean
    'mirrored-rooms' or 'mirrored-rooms-policy'? Use one of mirrored-rooms, ..., the id of a
    Gymnasium environment, or the path of a grid, .tra or .npz file.
    """
    wanted = os.fspath(name)
    given: dict[str, Any] = {} if discount is None else {"discount": discount}
    world = next((each for each in describe() if each.name == wanted), None)
    if world is not None:
        for option, value in options.items():
            _reject_unknown_option(f"world {wanted!r}", option, world.options)
            given[option] = _convert_option(world, option, value)
        return _WORLDS[wanted](**given)
    if is_environment_id(wanted) and not os.path.isfile(wanted):
        understood = {option: parse_option(value) for option, value in options.items()}
        make = enumerate_environment if wanted.startswith(MINIGRID_PREFIXES) else from_gymnasium
        return make(wanted, **given, **understood)
    ending = os.path.splitext(wanted)[1].lower()
    separators = [mark for mark in (os.sep, os.altsep) if mark]
    if (
        any(mark in wanted for mark in separators)
        or ending in (".txt", *_READERS)
        or os.path.isfile(wanted)
    ):
        kind, read = _READERS.get(ending, _GRID_READER)
        if ending == ".npz" and is_transitions_file(wanted):
            kind, read = "file of transitions", _read_transitions
        own = {key: None for key in inspect.signature(read).parameters if key not in _NON_OPTIONS}
        for option in options:
            _reject_unknown_option(f"{kind} {wanted}", option, own)
        return read(wanted, **given, **options)
    near = suggest_names(wanted, _WORLDS) or suggest_names(wanted, list_registered_ids())
    raise InputError(
        f"worlds: there is no world {wanted!r}{near or '.'} Use one of {', '.join(_WORLDS)}, the "
        "id of a Gymnasium environment, or the path of a grid, .tra or .npz file."
    )


def _read_transitions(
    path: str,
    *,
    discount: float = DEFAULT_DISCOUNT,
    unseen: Literal["raise", "missing"] = "raise",
) -> MDP:
    """The MDP that a file of transitions tells of."""
    steps = Transitions.load(path, observations=False)
    try:
        mdp = steps.to_mdp(discount=discount, unseen=unseen)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('Transitions: ')}") from None
    warn_missing_actions(path, mdp.action_mask)
    return mdp


_NON_OPTIONS = ("path", "tra", "discount")


def _reject_unknown_option(caller: str, option: str, known: dict[str, Any]) -> None:
    if option in known:
        return
    listed = [key if value is None else f"{key}={value}" for key, value in known.items()]
    said = f"its options are {', '.join(listed)}" if listed else "it has none"
    raise InputError(f"{caller}: there is no option {option!r}; {said}.")


def _convert_option(world: World, option: str, value: Any) -> int | float | str:
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


def parse_option(value: Any) -> Any:
    """What a text means as an option of an environment: a number, a truth, a list, or itself.

    >>> meant("false"), meant("0.5"), meant("['SF', 'FG']"), meant("8x8")
    (False, 0.5, ['SF', 'FG'], '8x8')
    """
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
