"""Gymnasium's toy-text environments: their own transition tables, read as they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.worlds import toy_text
from bisimetric.worlds.environments import (
    DEFAULT_DISCOUNT,
    TERMINAL,
    make_environment,
    read_actions,
)
from bisimetric.worlds.notes import compute_expected_rewards, warn_missing_actions


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
    about = toy_text.describe_toy_text(environment, num_states)
    if num_total > num_states:
        about["names"] = [*about.get("names", map(str, range(num_states))), TERMINAL]
        if "positions" in about:
            about["positions"] = np.vstack([about["positions"], about.pop("end")])
    about.pop("end", None)
    return about
