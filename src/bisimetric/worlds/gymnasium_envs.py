"""Gymnasium environments: made by id, and the transition tables of toy-text ones as MDPs."""

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
"""Of the ids of MiniGrid's environments."""


def is_environment_id(name: str) -> bool:
    """Tell whether a name has the form of a Gymnasium id with its version.

    >>> is_environment_id("FrozenLake-v1"), is_environment_id("rooms.txt")
    (True, False)
    """
    return ID_PATTERN.fullmatch(name) is not None


def make_environment(
    environment: Any, options: dict[str, Any], *, unwrap: bool = True
) -> tuple[Any, str]:
    """Return an environment, given as such or by id, and its name for messages.

    `unwrap` removes the wrappers of one given by id, above all the time limit.
    """
    if not isinstance(environment, str):
        name = getattr(getattr(environment, "spec", None), "id", None)
        if not (hasattr(environment, "unwrapped") and hasattr(environment, "step")):
            raise InputError(
                f"worlds: {type(environment).__name__} is no Gymnasium environment; give one, or "
                "its id, such as 'FrozenLake-v1'."
            )
        caller = name or type(environment.unwrapped).__name__
        if options:
            raise InputError(
                f"{caller}: option {next(iter(options))!r} is for environments given by id; give "
                "it to gymnasium.make."
            )
        return environment, caller
    gymnasium = import_optional("gymnasium", environment, "worlds")
    if environment.lower().startswith(tuple(map(str.lower, MINIGRID_PREFIXES))):
        import_optional("minigrid", environment, "worlds")
    if environment not in gymnasium.registry and ":" not in environment:
        raise InputError(_describe_unknown_id(gymnasium, environment))
    try:
        instance = gymnasium.make(environment, disable_env_checker=True, **options)
    except Exception as error:
        # Any exception of an environment's constructor is about its options.
        raise InputError(f"{environment}: cannot be made ({_format_error(error)}).") from None
    return instance.unwrapped if unwrap else instance, environment


def list_registered_ids() -> list[str]:
    """List the ids that Gymnasium and MiniGrid register, or none if they are not installed."""
    try:
        import_optional("minigrid", "worlds", "worlds")
        return list(import_optional("gymnasium", "worlds", "worlds").registry)
    except InputError:
        return []


def is_minigrid(environment: Any) -> bool:
    """Tell whether an environment is one of MiniGrid's."""
    return any(each.__name__ == "MiniGridEnv" for each in type(environment.unwrapped).__mro__)


def read_actions(environment: Any, caller: str) -> range:
    """Return the actions of an environment with a Discrete action space."""
    space = environment.action_space
    count, start = getattr(space, "n", None), getattr(space, "start", 0)
    if count is None:
        raise InputError(
            f"{caller}: its actions are {space} and must be Discrete, finitely many and numbered."
        )
    return range(int(start), int(start) + int(count))


def _describe_unknown_id(gymnasium: Any, environment_id: str) -> str:
    """Describe an id that is not registered: other versions, similar names, other packages."""
    stem = environment_id.rpartition("-v")[0]
    same = [each for each in gymnasium.registry if each.rpartition("-v")[0] == stem]
    if same:
        return f"worlds: there is no environment {environment_id!r}; there is {' and '.join(same)}."
    near = suggest_names(environment_id, gymnasium.registry)
    return (
        f"worlds: there is no environment {environment_id!r} in Gymnasium{near or '.'} For one of "
        "another package use 'package:id', or give the environment itself."
    )


def _format_error(error: Exception) -> str:
    """Format an error of Gymnasium without its remark about keyword arguments."""
    message = str(error).partition(" was raised from the environment creator")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


TAXI_LOCATIONS = ("R", "G", "Y", "B", "aboard")
TAXI_MAP_STRIDE = 6
"""Taxi's maps of 5 x 5 cells lie side by side with a cell between them."""


def describe_toy_text(environment: Any, num_states: int) -> dict[str, Any]:
    """Return the names, actions and positions of a known environment, or nothing.

    "terminal" is a position for one more state, outside of the others.
    """
    known = {
        "FrozenLakeEnv": _describe_frozen_lake,
        "CliffWalkingEnv": _describe_cliff_walking,
        "TaxiEnv": _describe_taxi,
    }
    for ancestor in type(environment).__mro__:
        if ancestor.__name__ in known:
            attributes = known[ancestor.__name__](environment)
            return attributes if len(attributes["names"]) == num_states else {}
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
        "terminal": np.array([rows + 1, (columns - 1) // 2]),
    }


def _describe_taxi(environment: Any) -> dict[str, Any]:
    """Describe Taxi: a map of the taxi's 25 cells per location of the passenger and destination.

    Downwards the passenger is at R, G, Y, B or aboard; across the destination is R, G, Y or B.
    """
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
        "terminal": np.array([5 * TAXI_MAP_STRIDE, 0]),
    }


def from_gymnasium(environment: Any, *, discount: float | None = None, **make_options: Any) -> MDP:
    """Build the MDP of an environment with a transition table, such as FrozenLake or Taxi.

    The table is `environment.unwrapped.P`: `P[s][a]` lists (probability, next state, reward,
    terminated). R(s, a) is the expected reward; an `ExpectedRewardWarning` says, once, where the
    reward depends on the successor.

    The terminal state is absorbing, with reward 0. A state that is entered only by terminating
    transitions, and is no start state, is terminal itself: the holes and the goal of FrozenLake (64
    states for 8x8), the goal of CliffWalking (48). Where a terminating transition leads to a state
    that also has others, as a drop-off in Taxi, it leads to one more state, "end": Taxi has 501.
    Truncation is not termination.

    Grids have positions and states named "row,column"; Taxi's states have names such as
    "taxi 0,1 passenger R to G".

    Args:
        environment: a Gymnasium environment, or its id.
        discount: of the MDP; None means 0.99.
        **make_options: for `gymnasium.make`, if an id is given.

    Returns:
        The MDP.

    Raises:
        InputError: the environment cannot be made or has no valid table, or Gymnasium is missing.

    >>> from_gymnasium("FrozenLake-v1", is_slippery=False)
    MDP(16 states, 4 actions, deterministic, discount 0.99)
    >>> from_gymnasium("Taxi-v4").state_name(500)
    'end'
    """
    instance, caller = make_environment(environment, make_options)
    unwrapped = instance.unwrapped
    table = getattr(unwrapped, "P", None)
    if table is None:
        raise InputError(
            f"{caller}: has no transition table P, so its probabilities are unknown. If it is "
            "deterministic, use worlds.enumerate_environment; otherwise collect transitions."
        )
    if getattr(unwrapped, "fickle_passenger", False):
        raise InputError(
            f"{caller}: its table P leaves the fickle passenger out; make it without one."
        )
    space = read_actions(unwrapped, caller)
    s, a, p, n, r, terminated = _parse_table(table, caller)
    a -= space.start
    num_states, actions = len(table), len(space)
    _reject_out_of_range(caller, "state", n, num_states)
    _reject_out_of_range(caller, "action", a, actions)
    s, a, p, n, r, terminated = (column[p > 0] for column in (s, a, p, n, r, terminated))
    terminal = _find_terminal_states(
        s, n, terminated, _find_start_states(unwrapped, num_states, s[(n != s) | (r != 0)])
    )
    n = np.where(terminated & ~terminal[n], num_states, n)
    num_total = num_states + bool((n == num_states).any())

    absorbing = np.flatnonzero(np.append(terminal, True)[:num_total])
    self_loops = (absorbing[:, None] * actions + np.arange(actions)).ravel()
    kept_rows = ~terminal[s]
    row = s[kept_rows] * actions + a[kept_rows]
    rows = np.concatenate([row, self_loops])
    successors = np.concatenate([n[kept_rows], np.repeat(absorbing, actions)])
    values = np.concatenate([p[kept_rows], np.ones(len(self_loops))])
    P = sparse.coo_array((values, (rows, successors)), (num_total * actions, num_total))
    R = compute_expected_rewards(caller, row, p[kept_rows], r[kept_rows], num_total * actions)
    available = np.zeros((num_total, actions), dtype=np.bool_)
    available.ravel()[rows] = True
    warn_missing_actions(caller, available)
    return MDP(
        sparse.csr_array(P),
        R.reshape(num_total, actions),
        DEFAULT_DISCOUNT if discount is None else discount,
        available=available,
        **_describe_states(unwrapped, num_states, num_total),
    )


def _parse_table(table: Any, caller: str) -> tuple[NDArray[Any], ...]:
    """Return the table as columns: state, action, probability, next state, reward, terminated."""
    try:
        rows = list(_iterate_outcomes(table))
        columns = np.array(rows, dtype=np.float64).reshape(len(rows), 6).T
        states, _, _, next_states, *_ = columns
        if set(states.astype(int)) != set(range(len(table))) or (next_states % 1).any():
            raise ValueError("states must be numbered from 0, and each have an outcome")
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{caller}: its P is no table of s -> a -> (probability, next, reward, terminated) "
            f"({error})."
        ) from None
    s, a, p, n, r, terminated = columns
    return s.astype(np.int64), a.astype(np.int64), p, n.astype(np.int64), r, terminated > 0


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
    """Find the states (S,), no starts, that only self-loops and terminating transitions enter."""
    nonterminal = starts.copy()
    nonterminal[n[~terminated & (n != s)]] = True
    terminal = np.zeros_like(nonterminal)
    terminal[n[terminated]] = True
    return terminal & ~nonterminal


def _find_start_states(
    environment: Any, num_states: int, active_states: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Find the start states: those of the environment's distribution, or else all active states.

    Active states move or pay.
    """
    distribution = np.asarray(getattr(environment, "initial_state_distrib", ()))
    if distribution.shape == (num_states,):
        return np.asarray(distribution > 0)
    return np.isin(np.arange(num_states), active_states)


def _reject_out_of_range(caller: str, name: str, values: NDArray[np.int64], limit: int) -> None:
    outside = values[(values < 0) | (values >= limit)]
    if len(outside):
        raise InputError(
            f"{caller}: its P holds {name} {outside[0]}; {name}s must lie from 0 to {limit - 1}."
        )


def _describe_states(environment: Any, num_states: int, num_total: int) -> dict[str, Any]:
    """Return names and positions, with those of an added terminal state."""
    attributes = describe_toy_text(environment, num_states)
    if num_total > num_states:
        attributes["names"] = [*attributes.get("names", map(str, range(num_states))), TERMINAL]
        if "positions" in attributes:
            attributes["positions"] = np.vstack(
                [attributes["positions"], attributes.pop("terminal")]
            )
    attributes.pop("terminal", None)
    return attributes
