"""Load an MDP by the name of a built-in world, a Gymnasium id, or the path of a file."""

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
from bisimetric.worlds.drn import from_drn
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
from bisimetric.worlds.stormpy_models import PROGRAM_EXTENSIONS, read_program

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
    ".drn": ("DRN file", from_drn),
    **dict.fromkeys(PROGRAM_EXTENSIONS, ("program", read_program)),
    ".npz": ("matrix file", read_matrices),
}
_GRID_READER = ("grid file", read_grid)


@dataclasses.dataclass(frozen=True)
class World:
    """A built-in world.

    Attributes:
        name: as `load` takes it.
        description: one line.
        discount: its default discount.
        options: its options with their defaults.

    >>> next(world.discount for world in describe() if world.name == "pessimism")
    0.9
    """

    name: str
    description: str
    discount: float
    options: dict[str, Any]


def list_names() -> list[str]:
    """List the names of the built-in worlds.

    Returns:
        The names, as `load` takes them.

    >>> "pessimism" in list_names()
    True
    """
    return list(_WORLDS)


def describe() -> list[World]:
    """Describe the built-in worlds.

    Returns:
        One `World` per name of `list_names`.

    >>> next(world.options for world in describe() if world.name == "random")
    {'states': 1000, 'actions': 4, 'successors': 1, 'seed': 0}
    """
    found_worlds = []
    for name, make in _WORLDS.items():
        defaults = {
            option: parameter.default
            for option, parameter in inspect.signature(make).parameters.items()
        }
        discount = defaults.pop("discount")
        summary = (inspect.getdoc(make) or "").partition("\n")[0]
        found_worlds.append(World(name, summary, discount, defaults))
    return found_worlds


def load(name: str | os.PathLike[str], *, discount: float | None = None, **options: Any) -> MDP:
    """Load an MDP by name, by the id of a Gymnasium environment, or by the path of a file.

    | `name` | source | options |
    |---|---|---|
    | a name of `list_names()` | a built-in world | see `describe` |
    | `FrozenLake-v1` and such | `from_gymnasium` | those of the environment |
    | `MiniGrid-...-v0`, `BabyAI-...-v0` | `enumerate_environment` | and `seed`, `max_states` |
    | a path with extension .tra | `from_prism` | `sta`, `lab`, `srew`, `trew`, `observe` |
    | a path with extension .drn | `from_drn` | `observe`, `reward_model` |
    | .prism, .nm, .pm, .sm, .jani, .umb | `read_program` | `constants`, `observe`, `reward_model` |
    | a path with extension .npz | `read_matrices` | `first_axis` |
    | a file written by `Transitions.save` | `Transitions.to_mdp` | `unseen` |
    | any other path | `read_grid` | |

    A name with a path separator, with one of these extensions or .txt, or of an existing file is
    a path.

    Args:
        name: of the world, environment or file.
        discount: None means the default: 0.9 for the pessimism example, 0.99 for all others.
        **options: by source, as above; values may also be strings, such as "70".

    Returns:
        The MDP.

    Raises:
        InputError: there is no such world, environment, file or option, or the file is malformed.

    >>> load("miror-rooms")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: worlds: there is no world 'miror-rooms'; did you mean
    'mirrored-rooms' or 'mirrored-rooms-policy'? Use one of mirrored-rooms, ..., the id of a
    Gymnasium environment, or the path of a grid, .tra, .drn or .npz file.
    """
    source = os.fspath(name)
    arguments: dict[str, Any] = {} if discount is None else {"discount": discount}
    world = next((each for each in describe() if each.name == source), None)
    if world is not None:
        for option, value in options.items():
            _reject_unknown_option(f"world {source!r}", option, world.options)
            arguments[option] = _convert_option(world, option, value)
        return _WORLDS[source](**arguments)
    if is_environment_id(source) and not os.path.isfile(source):
        parsed = {option: parse_option(value) for option, value in options.items()}
        make = enumerate_environment if source.startswith(MINIGRID_PREFIXES) else from_gymnasium
        return make(source, **arguments, **parsed)
    extension = os.path.splitext(source)[1].lower()
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    if (
        any(separator in source for separator in separators)
        or extension in (".txt", *_READERS)
        or os.path.isfile(source)
    ):
        kind, reader = _READERS.get(extension, _GRID_READER)
        if extension == ".npz" and is_transitions_file(source):
            kind, reader = "file of transitions", _read_transitions
        known = {
            key: None for key in inspect.signature(reader).parameters if key not in _NON_OPTIONS
        }
        for option in options:
            _reject_unknown_option(f"{kind} {source}", option, known)
        return reader(source, **arguments, **options)
    suggestion = suggest_names(source, _WORLDS) or suggest_names(source, list_registered_ids())
    raise InputError(
        f"worlds: there is no world {source!r}{suggestion or '.'} Use one of {', '.join(_WORLDS)}, "
        "the id of a Gymnasium environment, or the path of a grid, .tra, .drn or .npz file."
    )


def _read_transitions(
    path: str,
    *,
    discount: float = DEFAULT_DISCOUNT,
    unseen: Literal["raise", "missing"] = "raise",
) -> MDP:
    """Estimate the MDP of a file of recorded transitions."""
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
    texts = [key if value is None else f"{key}={value}" for key, value in known.items()]
    known_options = f"its options are {', '.join(texts)}" if texts else "it has none"
    raise InputError(f"{caller}: there is no option {option!r}; {known_options}.")


def _convert_option(world: World, option: str, value: Any) -> int | float | str:
    """Convert the value of an option to the type of its default."""
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
    expected = {str: "a text", int: "a whole number", float: "a finite number"}[type(default)]
    raise InputError(f"world {world.name!r}: option {option} is {value!r} and must be {expected}.")


def parse_option(value: Any) -> Any:
    """Parse the text of an environment's option as a number, a truth value, a list, or itself.

    >>> [parse_option(text) for text in ("false", "0.5", "['SF', 'FG']", "8x8")]
    [False, 0.5, ['SF', 'FG'], '8x8']
    """
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
