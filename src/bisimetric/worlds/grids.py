"""Grid worlds from text: walls, floor, goals, rewards, traps and a policy.

`*` is a wall, a space floor, `g` a goal, `1` to `9` a reward, `x` a trap, and `^ v < >` floor with
a policy. Four actions move one cell. Entering a goal pays +1, a reward its digit in tenths, a trap
-1; moving into a wall, or off the edge of the text, pays -1 and stays; anything else pays 0.
Otherwise goals, rewards and traps are ordinary cells.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP

WALL, FLOOR, GOAL, ARROWS = "*", " ", "g", "^v<>"
REWARDS = {GOAL: 1.0, "x": -1.0} | {str(tenths): tenths / 10 for tenths in range(1, 10)}
"""What it pays to enter a cell, by its character."""
ACTIONS = ("up", "down", "left", "right")
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
ALLOWED_CHARACTERS = (
    "'*' wall, ' ' floor, 'g' goal, '1' to '9' reward, 'x' trap, and '^' 'v' '<' '>' a policy"
)
DOWN = ACTIONS.index("down")


def grid(text: str, *, discount: float = 0.99) -> MDP:
    """Build the grid world that a text draws.

    States are the cells that are not walls, row by row, named "row,column" and counted from 0 in
    the text. Positions are (row, column), features the centres (row + 0.5, column + 0.5). Arrows,
    if any, define the policy of the MDP; at goals, rewards and traps it moves down. Empty lines
    before and after the grid are ignored.

    Args:
        text: the lines of the grid, all equally long.
        discount: of the MDP.

    Returns:
        The MDP.

    Raises:
        InputError: the text has other characters, lines of different lengths, or walls only.

    >>> mdp = grid("****\\n* g*\\n****")
    >>> mdp.names, mdp.actions
    (('1,1', '1,2'), ('up', 'down', 'left', 'right'))
    >>> mdp.R
    array([[-1., -1., -1.,  1.],
           [-1., -1.,  0., -1.]])
    >>> grid("x 5").R[1]
    array([-1. , -1. , -1. ,  0.5])
    """
    if not isinstance(text, str):
        raise InputError(
            f"grid: the text is {type(text).__name__} and must be a str; join its lines, or use "
            "read_grid for a file."
        )
    return from_cells(_parse_cells(text, "grid"), discount=discount)


def read_grid(path: str | os.PathLike[str], *, discount: float = 0.99) -> MDP:
    """Build the grid world that a text file draws, in the characters of `grid`.

    Args:
        path: of a UTF-8 text file.
        discount: of the MDP.

    Returns:
        The MDP.

    Raises:
        InputError: the file cannot be read, or `grid` raises for its text.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     print(" g", file=file, flush=True)
    ...     read_grid(file.name)
    MDP(2 states, 4 actions, deterministic, discount 0.99)
    """
    where = f"grid file {os.fspath(path)}"
    return from_cells(_parse_cells(read_grid_text(path), where), discount=discount)


def read_grid_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a grid file, which is not parsed.

    Raises:
        InputError: the file cannot be read.
    """
    where = f"grid file {os.fspath(path)}"
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such file; check the path.") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: byte {error.start} is not UTF-8 text; a grid is a plain text file."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{where}: cannot be read ({reason}).") from None


def from_cells(cells: NDArray[np.uint32], *, discount: float) -> MDP:
    """Build the grid world of character codes (H, W), at least one of them not a wall."""
    rows, columns = np.nonzero(cells != ord(WALL))
    states = len(rows)
    # A border of walls around the text: no move leaves the array.
    ids = np.full((cells.shape[0] + 2, cells.shape[1] + 2), -1, dtype=np.int64)
    ids[rows + 1, columns + 1] = np.arange(states)
    kinds = cells[rows, columns]
    entered = np.zeros(states)
    for character, reward in REWARDS.items():
        entered[kinds == ord(character)] = reward
    next_state = np.empty((states, len(MOVES)), dtype=np.int64)
    rewards = np.empty((states, len(MOVES)))
    for action, (down, right) in enumerate(MOVES):
        target = ids[rows + 1 + down, columns + 1 + right]
        blocked = target < 0
        next_state[:, action] = np.where(blocked, np.arange(states), target)
        rewards[:, action] = np.where(blocked, -1.0, entered[target])
    positions = np.stack([rows, columns], axis=1)
    return MDP.deterministic(
        next_state,
        rewards,
        discount=discount,
        names=list(map("{},{}".format, rows.tolist(), columns.tolist())),
        actions=ACTIONS,
        positions=positions,
        features=positions + 0.5,
        policy=_read_policy(kinds) if np.isin(kinds, _encode_characters(ARROWS)).any() else None,
    )


def _parse_cells(text: str, caller: str) -> NDArray[np.uint32]:
    """Return the characters of a grid as codes (H, W); `caller` names the text in errors."""
    lines = text.replace("\r\n", "\n").split("\n")
    nonempty = [number for number, line in enumerate(lines) if line]
    if not nonempty:
        raise InputError(f"{caller}: is empty; draw the cells with {ALLOWED_CHARACTERS}.")
    first = nonempty[0]
    lines = lines[first : nonempty[-1] + 1]
    width = len(lines[0])
    for number, line in enumerate(lines, start=first + 1):
        if len(line) != width:
            raise InputError(
                f"{caller}: line {number} is {len(line)} wide and line {first + 1} is {width}; "
                "all lines must be equally wide, spaces at their ends included."
            )
    cells = _encode_characters("".join(lines)).reshape(len(lines), width)
    unknown = np.argwhere(
        ~np.isin(cells, _encode_characters(WALL + FLOOR + ARROWS + "".join(REWARDS)))
    )
    if len(unknown):
        row, column = unknown[0]
        raise InputError(
            f"{caller}: line {first + row + 1}, column {column + 1} is {lines[row][column]!r}; "
            f"allowed are {ALLOWED_CHARACTERS}."
        )
    if (cells == ord(WALL)).all():
        raise InputError(f"{caller}: has walls only; leave at least one floor cell (a space).")
    without_arrow = np.argwhere(cells == ord(FLOOR))
    if len(without_arrow) and np.isin(cells, _encode_characters(ARROWS)).any():
        row, column = without_arrow[0]
        raise InputError(
            f"{caller}: line {first + row + 1}, column {column + 1} (state {row},{column}) has no "
            "arrow and other cells have; give every floor cell one of '^' 'v' '<' '>', or none."
        )
    return cells


def _encode_characters(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _read_policy(kinds: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the action of each cell: that of its arrow, else down."""
    policy = np.full(len(kinds), DOWN)
    for action, arrow in enumerate(ARROWS):
        policy[kinds == ord(arrow)] = action
    return policy
