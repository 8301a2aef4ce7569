"""MiniGrid's rooms: what a state is, how to come back to it, its name, and its place on a map."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.worlds.environments import END

STILL = ("wall", "goal", "lava", "floor")
"""What never moves or changes."""

DIRECTIONS = ("east", "south", "west", "north")
OFFSETS = ((0, 1), (1, 1), (1, 0), (0, 0))
"""A cell is drawn as a square of four: north upper left, then clockwise."""

SIDE, GAP = 2, 2
DOORS = ("open", "closed", "locked")


class Thing(NamedTuple):
    """An object that moves or changes: where it lies (None: carried or boxed), and what it is."""

    place: tuple[int, int] | None
    kind: str
    state: int
    inside: Thing | None


class State(NamedTuple):
    """The agent's cell (row, column) and direction, what it carries, and the things in the room."""

    row: int
    column: int
    direction: int
    carrying: Thing | None
    things: tuple[Thing, ...]


def walkable(
    environment: Any,
    start: Callable[[], tuple[Any, Any]],
    copied: Callable[[Any, int], Any],
    told_apart: Callable[[Any, Any], Hashable] | None,
) -> tuple[Any, ...]:
    """What it takes to walk through an environment: start, keep, back, state_of, whole, about.

    `start` and `copied` are those for environments in general; `told_apart` is the caller's own
    `state_of`, if any.
    """
    bare = environment.unwrapped
    things: list[Any] = []

    def begin() -> tuple[Any, Any]:
        _, observation = start()
        things.extend(_things(bare))
        if told_apart is None and environment is bare:
            # The partial view takes most of the time of a step, and nobody looks at it.
            bare.gen_obs = lambda: None
        return environment, observation

    def keep(_: Any) -> Any:
        about = {name: each for name, each in vars(bare).items() if name != "_np_random"}
        return about, list(bare.grid.grid), [dict(vars(thing)) for thing in things]

    def back(kept: Any, again: int) -> Any:
        about, cells, parts = kept
        vars(bare).update(about)
        bare.grid.grid = list(cells)
        for thing, part in zip(things, parts, strict=True):
            vars(thing).update(part)
        stop_the_clock(bare)
        return environment

    def back_to_a_copy(kept: Any, again: int) -> Any:
        another = copied(kept, again)
        stop_the_clock(another.unwrapped)
        return another

    def about(states: list[Any], ended_in: list[Any]) -> dict[str, Any]:
        known = {"actions": action_names(bare)}
        if not all(isinstance(state, State) for state in states):
            return known
        return {**known, **described(states, ended_in)}

    of = told_apart or (lambda environment, _: state_of(environment.unwrapped))
    if hasattr(bare, "instrs"):
        # BabyAI's instructions remember what was done: only a whole copy holds that.
        return start, lambda each: each, back_to_a_copy, of, False, about
    return begin, keep, back, of, told_apart is None, about


def action_names(bare: Any) -> list[str]:
    """The names of the actions of a MiniGrid environment."""
    return [each.name for each in bare.actions][: bare.action_space.n]


def state_of(bare: Any) -> State:
    """The state of a MiniGrid environment, the clock left out."""
    column, row = (int(each) for each in bare.agent_pos)
    width = bare.grid.width
    things = tuple(
        _thing(each, divmod(index, width))
        for index, each in enumerate(bare.grid.grid)
        if each is not None and each.type not in STILL
    )
    carrying = None if bare.carrying is None else _thing(bare.carrying, None)
    return State(row, column, int(bare.agent_dir), carrying, things)


def named(states: list[State]) -> list[str]:
    """Where the agent stands and looks, and what is not as in the first of the states."""
    texts = {room: _changes(states[0][3:], room) for room in {state[3:] for state in states}}
    return [
        ", ".join([f"{each.row},{each.column} {DIRECTIONS[each.direction]}", *texts[each[3:]]])
        for each in states
    ]


def described(states: list[State], ended_in: list[State]) -> dict[str, Any]:
    """The names and positions of states, and of the end where episodes ended in some.

    The end lies where all episodes end, if that is one cell, else below the first room.
    """
    rooms = list(dict.fromkeys(state[3:] for state in states))
    names = named(states)
    at: NDArray[np.int64] = np.array([(each.row, each.column) for each in states + ended_in])
    top, left = at.min(axis=0)
    height, width = np.ptp(at, axis=0) + 1
    across = math.ceil(math.sqrt(len(rooms) * height / width))
    steps = SIDE * height + GAP, SIDE * width + GAP
    corners = {room: divmod(index, across) for index, room in enumerate(rooms)}

    def place(state: State, offset: tuple[int, int]) -> tuple[int, int]:
        down, right = corners[state[3:]]
        return (
            down * steps[0] + SIDE * (state.row - top) + offset[0],
            right * steps[1] + SIDE * (state.column - left) + offset[1],
        )

    positions = [place(state, OFFSETS[state.direction]) for state in states]
    if ended_in:
        names.append(END)
        cells = {(each.row, each.column) for each in ended_in}
        shown = [each for each in ended_in if each[3:] in corners]
        if len(cells) == 1 and shown:
            positions.append(place(shown[0], (0, 0)))
        else:
            positions.append((max(row for row, _ in positions) + GAP + 1, 0))
    return {"names": _distinct(names), "positions": np.array(positions)}


def _things(bare: Any) -> list[Any]:
    """Every object of a room that may change, those in boxes included."""
    open_ended = [each for each in [*bare.grid.grid, bare.carrying] if each is not None]
    found = []
    while open_ended:
        each = open_ended.pop()
        if each.type not in STILL:
            found.append(each)
            open_ended += [each.contains] if each.contains is not None else []
    return found


def _thing(each: Any, place: tuple[int, int] | None) -> Thing:
    kind = f"{each.color} {each.type}"
    inside = None if each.contains is None else _thing(each.contains, None)
    return Thing(place, kind, int(each.encode()[2]), inside)


def stop_the_clock(bare: Any) -> None:
    """Makes the next step the first, for the reward and for the limit of time."""
    # A step adds 1 before it looks: held so, no step is late, and the goal pays all it can.
    bare.step_count = -1


def _changes(first: tuple[Any, ...], room: tuple[Any, ...]) -> list[str]:
    """What is different in a room, in words: carried, moved, opened, gone."""
    carrying, things = room
    words = [] if carrying is None else [f"carrying {carrying.kind}"]
    before, after = Counter(first[1]), Counter(things)
    gone = Counter(thing.kind for thing in (before - after).elements())
    gone[carrying.kind if carrying is not None else None] -= 1
    kinds = Counter(thing.kind for thing in things)
    for thing in (after - before).elements():
        where = "{},{}".format(*thing.place)
        if thing.kind.endswith("door"):
            which = thing.kind if kinds[thing.kind] == 1 else f"{thing.kind} {where}"
            words.append(f"{which} {DOORS[thing.state]}")
        else:
            words.append(f"{thing.kind} at {where}")
        gone[thing.kind] -= 1
    return words + [f"no {kind}" for kind, count in gone.items() if count > 0]


def _distinct(names: list[str]) -> list[str]:
    """The names, the later ones of equal names numbered."""
    count: Counter[str] = Counter()
    told = []
    for name in names:
        count[name] += 1
        told.append(name if count[name] == 1 else f"{name} ({count[name]})")
    return told
