"""Streams: the rollout in pieces, endless where it has no limit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bisimetric import datasets
from bisimetric.errors import InputError
from bisimetric.transitions import Transitions

COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")


def same(one: Transitions, other: Transitions) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS
    )


@pytest.mark.parametrize("chunk", [1, 64, 1000])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FrozenLake-v1", {"steps": 500}),
        ("Blackjack-v1", {"episodes": 150}),
        ("MiniGrid-DoorKey-5x5-v0", {"steps": 500}),
    ],
)
def test_a_stream_is_the_rollout_in_pieces(name: str, chunk: int, options: Any) -> None:
    whole = datasets.rollout(name, seed=6, **options)
    parts = list(datasets.stream(name, seed=6, chunk_size=chunk, **options))
    together = Transitions.concatenate(parts)
    assert same(together, whole)
    assert together.names == whole.names
    assert together.metadata == whole.metadata
    assert whole.states is not None
    np.testing.assert_array_equal(together.states, whole.states)
    np.testing.assert_array_equal(together.next_states, whole.next_states)
    assert [len(part) for part in parts[:-1]] == [chunk] * (len(parts) - 1)
    counts = [part.num_states or 0 for part in parts]
    assert counts == sorted(counts)
    seen = 0
    for part, count in zip(parts, counts, strict=True):
        assert part.states is not None
        assert part.next_states is not None
        seen = max(seen, int(part.states.max()) + 1, int(part.next_states.max()) + 1)
        assert count >= seen


def test_a_stream_need_not_end() -> None:
    parts = datasets.stream("FrozenLake-v1", chunk_size=10, seed=2)
    taken = list(itertools.islice(parts, 30))
    assert same(
        Transitions.concatenate(taken)[:299],
        datasets.rollout("FrozenLake-v1", seed=2, steps=300)[:299],
    )


def test_a_stream_validates_before_the_first_step() -> None:
    with pytest.raises(InputError, match="chunk_size is 0 and must be a whole number, at least 1"):
        datasets.stream("FrozenLake-v1", chunk_size=0)
    with pytest.raises(InputError, match="steps is 0 and must be"):
        datasets.stream("FrozenLake-v1", steps=0)
