"""MiniGrid's rooms: what a state is, how to come back to it, its name, and its place on a map."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import TERMINAL

STATIC_OBJECTS = ("wall", "goal", "lava", "floor")
"""What never moves or changes."""

DIRECTIONS = ("east", "south", "west", "north")
DIRECTION_OFFSETS = ((0, 1), (1, 1), (1, 0), (0, 0))
"""A cell is drawn as a square of four: north upper left, then clockwise."""

CELL_SIDE, ROOM_GAP = 2, 2
DOOR_STATES = ("open", "closed", "locked")


class GridObject(NamedTuple):
    """An object that moves or changes: where it lies (None: carried or boxed), and what it is."""

    position: tuple[int, int] | None
    kind: str
    state: int
    contents: GridObject | None


class MiniGridState(NamedTuple):
    """The agent's cell (row, column) and direction, what it carries, and the things in the room."""

    row: int
    column: int
    direction: int
    carrying: GridObject | None
    objects: tuple[GridObject, ...]


def simulator_functions(
    environment: Any,
    reset: Callable[[], tuple[Any, Any]],
    restore_copy: Callable[[Any, int], Any],
    custom_state_of: Callable[[Any, Any], Hashable] | None,
) -> tuple[Any, ...]:
    """What it takes to walk through an environment: start, keep, back, state_of, whole, about.

    `start` and `copied` are those for environments in general; `told_apart` is the caller's own
    `state_of`, if any.
    """
    bare = environment.unwrapped
    things: list[Any] = []

    def reset_and_collect() -> tuple[Any, Any]:
        _, observation = reset()
        things.extend(_collect_objects(bare))
        if custom_state_of is None and environment is bare:
            # The partial view takes most of the time of a step, and nobody looks at it.
            bare.gen_obs = lambda: None
        return environment, observation

    def snapshot(_: Any) -> Any:
        about = {name: each for name, each in vars(bare).items() if name != "_np_random"}
        return about, list(bare.grid.grid), [dict(vars(thing)) for thing in things]

    def restore(saved: Any, reseed: int) -> Any:
        about, cells, parts = saved
        vars(bare).update(about)
        bare.grid.grid = list(cells)
        for thing, part in zip(things, parts, strict=True):
            vars(thing).update(part)
        reset_step_count(bare)
        return environment

    def restore_without_clock(saved: Any, reseed: int) -> Any:
        another = restore_copy(saved, reseed)
        reset_step_count(another.unwrapped)
        return another

    def describe(states: list[Any], terminal_states: list[Any]) -> dict[str, Any]:
        known = {"actions": list_actions(bare)}
        if not all(isinstance(state, MiniGridState) for state in states):
            return known
        return {**known, **describe_states(states, terminal_states)}

    of = custom_state_of or (lambda environment, _: read_state(environment.unwrapped))
    if hasattr(bare, "instrs"):
        # BabyAI's instructions remember what was done: only a whole copy holds that.
        return reset, lambda each: each, restore_without_clock, of, False, describe
    return reset_and_collect, snapshot, restore, of, custom_state_of is None, describe


def list_actions(environment: Any) -> list[str]:
    """The names of the actions of a MiniGrid environment."""
    return [each.name for each in environment.actions][: environment.action_space.n]


def read_state(environment: Any) -> MiniGridState:
    """The state of a MiniGrid environment, the clock left out."""
    column, row = (int(each) for each in environment.agent_pos)
    width = environment.grid.width
    things = tuple(
        _read_object(each, divmod(index, width))
        for index, each in enumerate(environment.grid.grid)
        if each is not None and each.type not in STATIC_OBJECTS
    )
    carrying = None if environment.carrying is None else _read_object(environment.carrying, None)
    return MiniGridState(row, column, int(environment.agent_dir), carrying, things)


def name_states(states: list[MiniGridState]) -> list[str]:
    """Where the agent stands and looks, and what is not as in the first of the states."""
    texts = {
        room: _describe_changes(states[0][3:], room) for room in {state[3:] for state in states}
    }
    return [
        ", ".join([f"{each.row},{each.column} {DIRECTIONS[each.direction]}", *texts[each[3:]]])
        for each in states
    ]


def describe_states(
    states: list[MiniGridState], terminal_states: list[MiniGridState]
) -> dict[str, Any]:
    """The names and positions of states, and of the end where episodes ended in some.

    The end lies where all episodes end, if that is one cell, else below the first room.
    """
    rooms = list(dict.fromkeys(state[3:] for state in states))
    names = name_states(states)
    at: NDArray[np.int64] = np.array([(each.row, each.column) for each in states + terminal_states])
    top, left = at.min(axis=0)
    height, width = np.ptp(at, axis=0) + 1
    across = math.ceil(math.sqrt(len(rooms) * height / width))
    steps = CELL_SIDE * height + ROOM_GAP, CELL_SIDE * width + ROOM_GAP
    corners = {room: divmod(index, across) for index, room in enumerate(rooms)}

    def locate(state: MiniGridState, offset: tuple[int, int]) -> tuple[int, int]:
        down, right = corners[state[3:]]
        return (
            down * steps[0] + CELL_SIDE * (state.row - top) + offset[0],
            right * steps[1] + CELL_SIDE * (state.column - left) + offset[1],
        )

    positions = [locate(state, DIRECTION_OFFSETS[state.direction]) for state in states]
    if terminal_states:
        names.append(TERMINAL)
        cells = {(each.row, each.column) for each in terminal_states}
        shown = [each for each in terminal_states if each[3:] in corners]
        if len(cells) == 1 and shown:
            positions.append(locate(shown[0], (0, 0)))
        else:
            positions.append((max(row for row, _ in positions) + ROOM_GAP + 1, 0))
    return {"names": _make_distinct(names), "positions": np.array(positions)}


def _collect_objects(environment: Any) -> list[Any]:
    """Every object of a room that may change, those in boxes included."""
    open_ended = [
        each for each in [*environment.grid.grid, environment.carrying] if each is not None
    ]
    found = []
    while open_ended:
        each = open_ended.pop()
        if each.type not in STATIC_OBJECTS:
            found.append(each)
            open_ended += [each.contains] if each.contains is not None else []
    return found


def _read_object(entity: Any, position: tuple[int, int] | None) -> GridObject:
    kind = f"{entity.color} {entity.type}"
    inside = None if entity.contains is None else _read_object(entity.contains, None)
    return GridObject(position, kind, int(entity.encode()[2]), inside)


def reset_step_count(environment: Any) -> None:
    """Makes the next step the first, for the reward and for the limit of time."""
    # A step adds 1 before it looks: held so, no step is late, and the goal pays all it can.
    environment.step_count = -1


def _describe_changes(initial_room: tuple[Any, ...], room: tuple[Any, ...]) -> list[str]:
    """What is different in a room, in words: carried, moved, opened, gone."""
    carrying, things = room
    words = [] if carrying is None else [f"carrying {carrying.kind}"]
    before, after = Counter(initial_room[1]), Counter(things)
    gone = Counter(thing.kind for thing in (before - after).elements())
    gone[carrying.kind if carrying is not None else None] -= 1
    kinds = Counter(thing.kind for thing in things)
    for thing in (after - before).elements():
        where = "{},{}".format(*thing.place)
        if thing.kind.endswith("door"):
            which = thing.kind if kinds[thing.kind] == 1 else f"{thing.kind} {where}"
            words.append(f"{which} {DOOR_STATES[thing.state]}")
        else:
            words.append(f"{thing.kind} at {where}")
        gone[thing.kind] -= 1
    return words + [f"no {kind}" for kind, count in gone.items() if count > 0]


def _make_distinct(names: list[str]) -> list[str]:
    """The names, the later ones of equal names numbered."""
    count: Counter[str] = Counter()
    told = []
    for name in names:
        count[name] += 1
        told.append(name if count[name] == 1 else f"{name} ({count[name]})")
    return told
