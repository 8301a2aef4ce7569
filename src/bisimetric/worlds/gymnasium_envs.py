"""Gymnasium environments by id: made, with every mistake in one sentence.

Names, actions and positions for Gymnasium's toy-text environments.

Gymnasium's toy-text environments: their own transition tables, read as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._optional import import_optional
from bisimetric.errors import InputError, suggest_names
from bisimetric.mdp import DEFAULT_DISCOUNT, MDP, TERMINAL
from bisimetric.worlds._warnings import compute_expected_rewards, warn_missing_actions

ID_PATTERN = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.:-]+-v\d+")
MINIGRID_PREFIXES = ("MiniGrid-", "BabyAI-")
"""How the ids of MiniGrid's environments start."""


def is_environment_id(name: str) -> bool:
    """Whether a name has the form of a Gymnasium id, with its version.

    >>> looks_like_id("FrozenLake-v1"), looks_like_id("ALE/Pong-v5"), looks_like_id("rooms.txt")
    (True, True, False)
    """
    return ID_PATTERN.fullmatch(name) is not None


def make_environment(
    environment: Any, options: dict[str, Any], *, unwrap: bool = True
) -> tuple[Any, str]:
    """An environment given as such or by id, and what to call it in messages.

    `bare` takes the wrappers off of one that is given by id: the limit of time, above all.
    """
    if not isinstance(environment, str):
        name = getattr(getattr(environment, "spec", None), "id", None)
        if not (hasattr(environment, "unwrapped") and hasattr(environment, "step")):
            raise InputError(
                f"worlds: {type(environment).__name__} is no Gymnasium environment; give one, or "
                "its id, such as 'FrozenLake-v1'."
            )
        where = name or type(environment.unwrapped).__name__
        if options:
            raise InputError(
                f"{where}: option {next(iter(options))!r} is for environments given by id; give "
                "it to gymnasium.make."
            )
        return environment, where
    gymnasium = import_optional("gymnasium", environment, "worlds")
    if environment.lower().startswith(tuple(map(str.lower, MINIGRID_PREFIXES))):
        import_optional("minigrid", environment, "worlds")
    if environment not in gymnasium.registry and ":" not in environment:
        raise InputError(_describe_unknown_id(gymnasium, environment))
    try:
        found = gymnasium.make(environment, disable_env_checker=True, **options)
    except Exception as error:
        # Whatever an environment raises on its options is about its options.
        raise InputError(f"{environment}: cannot be made ({_format_error(error)}).") from None
    return found.unwrapped if unwrap else found, environment


def list_registered_ids() -> list[str]:
    """The ids that Gymnasium and MiniGrid know, or none where they are not installed."""
    try:
        import_optional("minigrid", "worlds", "worlds")
        return list(import_optional("gymnasium", "worlds", "worlds").registry)
    except InputError:
        return []


def is_minigrid(environment: Any) -> bool:
    """Whether an environment is one of MiniGrid's."""
    return any(each.__name__ == "MiniGridEnv" for each in type(environment.unwrapped).__mro__)


def read_actions(environment: Any, caller: str) -> range:
    """The actions of an environment with a Discrete action space."""
    space = environment.action_space
    count, start = getattr(space, "n", None), getattr(space, "start", 0)
    if count is None:
        raise InputError(
            f"{caller}: its actions are {space} and must be Discrete, finitely many and numbered."
        )
    return range(int(start), int(start) + int(count))


def _describe_unknown_id(gymnasium: Any, environment_id: str) -> str:
    """What to say of an id that is not registered: newer versions, near names, where it may be."""
    stem = environment_id.rpartition("-v")[0]
    same = [each for each in gymnasium.registry if each.rpartition("-v")[0] == stem]
    if same:
        return f"worlds: there is no environment {environment_id!r}; there is {' and '.join(same)}."
    near = suggest_names(environment_id, gymnasium.registry)
    return (
        f"worlds: there is no environment {environment_id!r} in Gymnasium{near or '.'} One of another "
        "package is named 'package:id', or made first and given as it is."
    )


def _format_error(error: Exception) -> str:
    """Gymnasium's own words, without what it adds about keyword arguments."""
    said = str(error).partition(" was raised from the environment creator")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


TAXI_LOCATIONS = ("R", "G", "Y", "B", "aboard")
TAXI_MAP_STRIDE = 6
"""Taxi's maps of 5 x 5 cells, side by side with a cell between them."""


def describe_toy_text(environment: Any, num_states: int) -> dict[str, Any]:
    """The names, actions and positions of a known environment, else nothing.

    "end" is a position for one more state, outside of the others.
    """
    known = {
        "FrozenLakeEnv": _describe_frozen_lake,
        "CliffWalkingEnv": _describe_cliff_walking,
        "TaxiEnv": _describe_taxi,
    }
    for each in type(environment).__mro__:
        if each.__name__ in known:
            described = known[each.__name__](environment)
            return described if len(described["names"]) == num_states else {}
    return {}


def _describe_frozen_lake(environment: Any) -> dict[str, Any]:
    actions = ("left", "down", "right", "up")
    return {**_describe_grid(environment.nrow, environment.ncol), "actions": actions}


def _describe_cliff_walking(environment: Any) -> dict[str, Any]:
    return {**_describe_grid(*environment.shape), "actions": ("up", "right", "down", "left")}


def _describe_grid(rows: int, columns: int) -> dict[str, Any]:
    positions = np.indices((rows, columns)).reshape(2, -1).T
    return {
        "names": [f"{row},{column}" for row, column in positions.tolist()],
        "positions": positions,
        "end": np.array([rows + 1, (columns - 1) // 2]),
    }


def _describe_taxi(environment: Any) -> dict[str, Any]:
    """One map of the taxi's 25 cells for each place of the passenger (downwards: R, G, Y, B,
    aboard) and each destination (across: R, G, Y, B)."""
    decoded: NDArray[np.int64] = np.array([environment.decode(s) for s in range(500)])
    row, column, passenger, destination = decoded.T
    return {
        "names": [
            f"taxi {r},{c} passenger {TAXI_LOCATIONS[p]} to {TAXI_LOCATIONS[d]}"
            for r, c, p, d in decoded
        ],
        "actions": ("south", "north", "east", "west", "pick up", "drop off"),
        "positions": np.stack(
            [passenger * TAXI_MAP_STRIDE + row, destination * TAXI_MAP_STRIDE + column], axis=1
        ),
        "end": np.array([5 * TAXI_MAP_STRIDE, 0]),
    }


def from_gymnasium(environment: Any, *, discount: float | None = None, **make_options: Any) -> MDP:
    """The MDP of an environment with a transition table: FrozenLake, CliffWalking, Taxi and such.

    `environment` is one, or its id, which `make_options` go with. The table is
    `environment.unwrapped.P`: P[s][a] lists (probability, next state, reward, terminated).

    The end of an episode is a state, absorbing, with reward 0 for ever. A state that is entered
    by ending only, and no start, is that state: the holes and the goal of FrozenLake (64 states
    for 8x8), the goal of CliffWalking (48). Where an ending leads to a state that also goes on,
    as a drop-off in Taxi, it leads to one more state, "end": Taxi has 500 + 1. Limits of time
    are no ends.

    R(s, a) is the expected reward; an `ExpectedReward` warning says, once, where the reward
    depends on the successor. `discount` None means 0.99. Grids have positions and are named
    "row,column"; Taxi's states are named such as "taxi 0,1 passenger R to G".

    >>> from_gymnasium("FrozenLake-v1", is_slippery=False)
    MDP(16 states, 4 actions, deterministic, discount 0.99)
    >>> from_gymnasium("Taxi-v4").name(500)
    'end'
    """
    found, where = make_environment(environment, make_options)
    bare = found.unwrapped
    table = getattr(bare, "P", None)
    if table is None:
        raise InputError(
            f"{where}: has no transition table P, so its probabilities are not known. If it is "
            "deterministic, use worlds.enumerate_environment; else collect transitions."
        )
    if getattr(bare, "fickle_passenger", False):
        raise InputError(
            f"{where}: its table P leaves the fickle passenger out; make it without one."
        )
    space = read_actions(bare, where)
    s, a, p, n, r, ends = _parse_table(table, where)
    a -= space.start
    states, actions = len(table), len(space)
    _reject_out_of_range(where, "state", n, states)
    _reject_out_of_range(where, "action", a, actions)
    s, a, p, n, r, ends = (column[p > 0] for column in (s, a, p, n, r, ends))
    ended = _find_terminal_states(
        s, n, ends, _find_start_states(bare, states, s[(n != s) | (r != 0)])
    )
    n = np.where(ends & ~ended[n], states, n)
    size = states + bool((n == states).any())

    absorbing = np.flatnonzero(np.append(ended, True)[:size])
    stays = (absorbing[:, None] * actions + np.arange(actions)).ravel()
    moves = ~ended[s]
    row = s[moves] * actions + a[moves]
    rows = np.concatenate([row, stays])
    successors = np.concatenate([n[moves], np.repeat(absorbing, actions)])
    values = np.concatenate([p[moves], np.ones(len(stays))])
    P = sparse.coo_array((values, (rows, successors)), (size * actions, size))
    R = compute_expected_rewards(where, row, p[moves], r[moves], size * actions)
    available = np.zeros((size, actions), dtype=np.bool_)
    available.ravel()[rows] = True
    warn_missing_actions(where, available)
    return MDP(
        sparse.csr_array(P),
        R.reshape(size, actions),
        DEFAULT_DISCOUNT if discount is None else discount,
        available=available,
        **_describe_states(bare, states, size),
    )


def _parse_table(table: Any, caller: str) -> tuple[NDArray[Any], ...]:
    """The table as columns: state, action, probability, next state, reward, terminated."""
    try:
        rows = list(_iterate_outcomes(table))
        given = np.array(rows, dtype=np.float64).reshape(len(rows), 6).T
        states, _, _, following, *_ = given
        if set(states.astype(int)) != set(range(len(table))) or (following % 1).any():
            raise ValueError("states must be numbered from 0, and each have an outcome")
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{caller}: its P is no table of s -> a -> (probability, next, reward, terminated) "
            f"({error})."
        ) from None
    s, a, p, n, r, ends = given
    return s.astype(np.int64), a.astype(np.int64), p, n.astype(np.int64), r, ends > 0


def _iterate_outcomes(table: Any) -> Iterator[tuple[float, ...]]:
    for s, choices in _iterate_indexed(table):
        for a, outcomes in _iterate_indexed(choices):
            for p, n, r, ends in outcomes:
                yield s, a, p, n, r, ends


def _iterate_indexed(entries: Any) -> Iterator[tuple[Any, Any]]:
    return iter(entries.items()) if isinstance(entries, Mapping) else enumerate(entries)


def _find_terminal_states(
    s: NDArray[np.int64],
    n: NDArray[np.int64],
    terminated: NDArray[np.bool_],
    starts: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """The states (S,) that are ends: entered by ending only, loops apart, and no starts."""
    living = starts.copy()
    living[n[~terminated & (n != s)]] = True
    ended = np.zeros_like(living)
    ended[n[terminated]] = True
    return ended & ~living


def _find_start_states(
    environment: Any, num_states: int, active_states: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Where an episode may start: where the environment says so, else in any state that moves or
    pays, which are `alive`."""
    given = np.asarray(getattr(environment, "initial_state_distrib", ()))
    if given.shape == (num_states,):
        return np.asarray(given > 0)
    return np.isin(np.arange(num_states), active_states)


def _reject_out_of_range(caller: str, name: str, values: NDArray[np.int64], limit: int) -> None:
    outside = values[(values < 0) | (values >= limit)]
    if len(outside):
        raise InputError(
            f"{caller}: its P holds {name} {outside[0]}; {name}s must lie from 0 to {limit - 1}."
        )


def _describe_states(environment: Any, num_states: int, num_total: int) -> dict[str, Any]:
    """Names and positions, the added end included."""
    about = describe_toy_text(environment, num_states)
    if num_total > num_states:
        about["names"] = [*about.get("names", map(str, range(num_states))), TERMINAL]
        if "positions" in about:
            about["positions"] = np.vstack([about["positions"], about.pop("end")])
    about.pop("end", None)
    return about
