"""Small recordings, by hand and from hypothesis, and their comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric.mdp import MDP
from bisimetric.transitions import COLUMNS, Transitions
from tests.strategies import REWARDS


def steps(**changes: Any) -> Transitions:
    """Four steps of two episodes among three states, some fields changed."""
    fields: dict[str, Any] = {
        "observations": np.array([0, 1, 0, 2]),
        "actions": np.array([0, 1, 1, 0]),
        "rewards": np.array([0.0, 1.0, 0.5, -1.0]),
        "next_observations": np.array([1, 2, 2, 0]),
        "terminated": np.array([False, True, False, False]),
        "truncated": np.array([False, False, False, True]),
    }
    return Transitions(**(fields | changes))


def images(n: int = 4, **changes: Any) -> Transitions:
    """Steps with small images as observations, without ids."""
    pictures = np.random.default_rng(0).integers(256, size=(n + 1, 3, 2), dtype=np.uint8)
    fields: dict[str, Any] = {
        "observations": pictures[:-1],
        "next_observations": pictures[1:],
        "actions": np.zeros(n, int),
        "rewards": np.arange(n),
        "terminated": np.zeros(n, bool),
    }
    return Transitions(**(fields | changes))


@st.composite
def recordings(draw: st.DrawFn, max_steps: int = 12) -> Transitions:
    """A few steps among a few states, or of vectors, with or without names; closed at the end."""
    n = draw(st.integers(1, max_steps))
    states, actions = draw(st.integers(1, 4)), draw(st.integers(1, 3))

    def column(each: st.SearchStrategy[Any]) -> NDArray[Any]:
        return np.array(draw(st.lists(each, min_size=n, max_size=n)))

    ids, following = column(st.integers(0, states - 1)), column(st.integers(0, states - 1))
    about: dict[str, Any] = {"num_states": states, "metadata": {"seed": draw(st.integers(0, 9))}}
    kind = draw(st.sampled_from(["ids", "uint8 ids", "vectors", "vectors with ids"]))
    observations, next_observations = ids, following
    if kind == "uint8 ids":
        observations, next_observations = ids.astype(np.uint8), following.astype(np.uint8)
    elif kind.startswith("vectors"):
        observations, next_observations = np.eye(4)[ids], np.eye(4)[following]
        about |= {"states": ids, "next_states": following}
    if kind == "vectors":
        about = {"metadata": {}}
    elif draw(st.booleans()):
        about["names"] = tuple("abcd"[:states])
        about["positions"] = np.arange(2.0 * states).reshape(states, 2)
    continuous = draw(st.booleans())
    if not continuous:
        about["num_actions"] = actions
    truncated = column(st.booleans())
    truncated[-1] = True
    return Transitions(
        observations,
        column(st.floats(-1, 1, width=32)).astype(np.float32)[:, None]
        if continuous
        else column(st.integers(0, actions - 1)),
        column(REWARDS),
        next_observations,
        column(st.booleans()),
        truncated,
        **about,
    )


def same(one: Transitions, other: Transitions) -> None:
    for name in (*COLUMNS, "positions"):
        mine, yours = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(mine, yours)
        assert mine is None or mine.dtype == yours.dtype
    for name in ("num_states", "num_actions", "names", "action_names", "metadata"):
        assert getattr(one, name) == getattr(other, name)


def same_mdp(one: MDP, other: MDP) -> None:
    np.testing.assert_array_equal(one.P.toarray(), other.P.toarray())
    np.testing.assert_array_equal(one.R, other.R)
    assert one.discount == other.discount


def walk(mdp: MDP, times: int, seed: int, ends: NDArray[np.bool_] | None = None) -> Transitions:
    """Every state and action of a deterministic MDP, at least once, in a random order."""
    rng = np.random.default_rng(seed)
    pairs = np.arange(mdp.R.size)
    chosen = rng.permutation(np.concatenate([pairs, rng.choice(pairs, times)]))
    s, a = np.divmod(chosen, mdp.num_actions)
    n = mdp.next_state[s, a].astype(np.int64)
    ended = np.zeros(len(s), bool) if ends is None else ends[n]
    return Transitions(
        s, a, mdp.R[s, a], n, ended, ~ended, num_states=mdp.num_states, num_actions=mdp.num_actions
    )
