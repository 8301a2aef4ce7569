"""States of MiniGrid environments: identity, snapshots, names, and positions on a map."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import TERMINAL

STATIC_OBJECTS = ("wall", "goal", "lava", "floor")
"""Objects that never move or change."""

DIRECTIONS = ("east", "south", "west", "north")
DIRECTION_OFFSETS = ((0, 1), (1, 1), (1, 0), (0, 0))
"""A cell is drawn as a square of four: north upper left, then clockwise."""

CELL_SIDE, ROOM_GAP = 2, 2
DOOR_STATES = ("open", "closed", "locked")


class GridObject(NamedTuple):
    """An object that can move or change: position (None: carried or in a box), kind and state."""

    position: tuple[int, int] | None
    kind: str
    state: int
    contents: GridObject | None


class MiniGridState(NamedTuple):
    """The agent's cell (row, column) and direction, its carried object, and those in the room."""

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
    """Return what a `Simulator` needs: reset, snapshot, restore, state_of, is_full_state, describe.

    `reset` and `restore_copy` are those for environments in general; `custom_state_of` is the
    caller's own, if any.
    """
    unwrapped = environment.unwrapped
    objects: list[Any] = []

    def reset_and_collect() -> tuple[Any, Any]:
        _, observation = reset()
        objects.extend(_collect_objects(unwrapped))
        if custom_state_of is None and environment is unwrapped:
            # The partial observation takes most of the time of a step and is not used.
            unwrapped.gen_obs = lambda: None
        return environment, observation

    def snapshot(_: Any) -> Any:
        attributes = {name: each for name, each in vars(unwrapped).items() if name != "_np_random"}
        return attributes, list(unwrapped.grid.grid), [dict(vars(item)) for item in objects]

    def restore(saved: Any, reseed: int) -> Any:
        attributes, cells, states_of_objects = saved
        vars(unwrapped).update(attributes)
        unwrapped.grid.grid = list(cells)
        for item, part in zip(objects, states_of_objects, strict=True):
            vars(item).update(part)
        reset_step_count(unwrapped)
        return environment

    def restore_without_clock(saved: Any, reseed: int) -> Any:
        another = restore_copy(saved, reseed)
        reset_step_count(another.unwrapped)
        return another

    def describe(states: list[Any], terminal_states: list[Any]) -> dict[str, Any]:
        attributes = {"actions": list_actions(unwrapped)}
        if not all(isinstance(state, MiniGridState) for state in states):
            return attributes
        return {**attributes, **describe_states(states, terminal_states)}

    state_function = custom_state_of or (lambda environment, _: read_state(environment.unwrapped))
    if hasattr(unwrapped, "instrs"):
        # BabyAI's instructions have a memory of their own: only a deep copy holds it.
        return reset, lambda each: each, restore_without_clock, state_function, False, describe
    return reset_and_collect, snapshot, restore, state_function, custom_state_of is None, describe


def list_actions(environment: Any) -> list[str]:
    """List the names of the actions of a MiniGrid environment."""
    return [each.name for each in environment.actions][: environment.action_space.n]


def read_state(environment: Any) -> MiniGridState:
    """Return the state of a MiniGrid environment, without the step count."""
    column, row = (int(each) for each in environment.agent_pos)
    width = environment.grid.width
    objects = tuple(
        _read_object(each, divmod(index, width))
        for index, each in enumerate(environment.grid.grid)
        if each is not None and each.type not in STATIC_OBJECTS
    )
    carrying = None if environment.carrying is None else _read_object(environment.carrying, None)
    return MiniGridState(row, column, int(environment.agent_dir), carrying, objects)


def name_states(states: list[MiniGridState]) -> list[str]:
    """Name the agent's cell and direction, and all differences from the first state."""
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
    """Return the names and positions of states, and of a terminal state if there are any.

    The terminal state is placed where all episodes terminate, if that is one cell, or else below
    the first room.
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
    """Collect all objects of a room that can change, those in boxes included."""
    stack = [
        entity for entity in [*environment.grid.grid, environment.carrying] if entity is not None
    ]
    objects = []
    while stack:
        entity = stack.pop()
        if entity.type not in STATIC_OBJECTS:
            objects.append(entity)
            stack += [entity.contains] if entity.contains is not None else []
    return objects


def _read_object(entity: Any, position: tuple[int, int] | None) -> GridObject:
    kind = f"{entity.color} {entity.type}"
    inside = None if entity.contains is None else _read_object(entity.contains, None)
    return GridObject(position, kind, int(entity.encode()[2]), inside)


def reset_step_count(environment: Any) -> None:
    """Make the next step the first one, for the reward and for the time limit."""
    # A step adds 1 first: with -1 no step is late, and the goal pays its full reward.
    environment.step_count = -1


def _describe_changes(initial_room: tuple[Any, ...], room: tuple[Any, ...]) -> list[str]:
    """Describe the differences of a room: objects carried, moved, opened, missing."""
    carrying, objects = room
    changes = [] if carrying is None else [f"carrying {carrying.kind}"]
    before, after = Counter(initial_room[1]), Counter(objects)
    missing = Counter(item.kind for item in (before - after).elements())
    missing[carrying.kind if carrying is not None else None] -= 1
    kinds = Counter(item.kind for item in objects)
    for item in (after - before).elements():
        place = "{},{}".format(*item.position)
        if item.kind.endswith("door"):
            door = item.kind if kinds[item.kind] == 1 else f"{item.kind} {place}"
            changes.append(f"{door} {DOOR_STATES[item.state]}")
        else:
            changes.append(f"{item.kind} at {place}")
        missing[item.kind] -= 1
    return changes + [f"no {kind}" for kind, count in missing.items() if count > 0]


def _make_distinct(names: list[str]) -> list[str]:
    """Number the later ones of equal names."""
    counts: Counter[str] = Counter()
    distinct = []
    for name in names:
        counts[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return distinct
