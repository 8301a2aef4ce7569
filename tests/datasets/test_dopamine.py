"""Dopamine's memories: a ring written as Dopamine writes it, against the episodes themselves."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import datasets
from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.transitions import Transitions
from tests.property_testing import scaled

SHAPE = (2, 3)


class Ring:
    """Single frames, and `stack` - 1 blank entries before each episode."""

    def __init__(self, capacity: int, stack: int) -> None:
        self.store: dict[str, Any] = {
            "observation": np.zeros((capacity, *SHAPE), np.uint8),
            "action": np.zeros(capacity, np.int32),
            "reward": np.zeros(capacity, np.float32),
            "terminal": np.zeros(capacity, np.uint8),
        }
        self.capacity, self.stack, self.added = capacity, stack, 0

    def begin(self) -> None:
        for _ in range(self.stack - 1):
            self.add(np.zeros(SHAPE), 0, 0.0, False)

    def add(self, *entry: Any) -> None:
        for array, value in zip(self.store.values(), entry, strict=True):
            array[self.added % self.capacity] = value
        self.added += 1

    @property
    def arrays(self) -> dict[str, Any]:
        return {**self.store, "add_count": np.array(self.added)}


class Entry(NamedTuple):
    """A simulated step: the last frames, the next ones, or None where none followed."""

    at: int
    seen: Any
    action: int
    reward: float
    after: Any
    terminal: bool


def simulate(random: np.random.Generator, ring: Ring, steps: int, cuts: bool) -> list[Entry]:
    """Episodes of up to 8 steps put into a ring; the last one may be going on."""
    entries: list[Entry] = []
    blank = np.zeros(SHAPE, np.uint8)
    while len(entries) < steps:
        ring.begin()
        length = int(random.integers(1, 9))
        ends = not cuts or random.random() < 0.6
        # Frames may be blank themselves; rewards tell them from the blank ones before.
        frames = random.integers(0, 256, (length, *SHAPE)) * (random.random((length, 1, 1)) < 0.9)
        past = [blank] * ring.stack
        for step in range(min(length, steps - len(entries))):
            last = step == length - 1
            past = [*past[1:], frames[step]]
            following = blank if last and ends else None if last else frames[step + 1]
            after = None if following is None else np.stack([*past[1:], following], axis=-1)
            entry = (int(random.integers(4)), 1.0 + float(random.integers(3)), last and ends)
            entries.append(
                Entry(ring.added, np.stack(past, axis=-1), entry[0], entry[1], after, entry[2])
            )
            ring.add(frames[step], *entry)
    return entries


def select_expected(entries: list[Entry], ring: Ring) -> list[Entry]:
    """The transitions whose stack is complete, and whose next frame is stored or not needed."""
    oldest = max(0, ring.added - ring.capacity)
    return [
        entry
        for entry in entries
        if entry.at - ring.stack + 1 >= oldest
        and entry.after is not None
        and (entry.terminal or entry.at < ring.added - 1)
    ]


def agrees(steps: Transitions, entries: list[Entry]) -> None:
    assert len(steps) == len(entries)
    np.testing.assert_array_equal(steps.observations, np.stack([each.seen for each in entries]))
    np.testing.assert_array_equal(
        steps.next_observations, np.stack([each.after for each in entries])
    )
    assert steps.actions.tolist() == [each.action for each in entries]
    assert steps.rewards.tolist() == [each.reward for each in entries]
    assert steps.terminated.tolist() == [each.terminal for each in entries]
    after = [each.at for each in entries[1:]] + [-1]
    goes_on = [each.at + 1 == next_at for each, next_at in zip(entries, after, strict=True)]
    for cut, on, each in zip(steps.truncated.tolist(), goes_on, entries, strict=True):
        assert cut == (not on and not each.terminal)


@settings(deadline=None, max_examples=scaled(150))
@given(
    st.integers(1, 4), st.integers(8, 40), st.integers(2, 90), st.booleans(), st.integers(0, 999)
)
def test_the_episodes_come_out_as_they_were(
    stack: int, capacity: int, steps: int, cuts: bool, seed: int
) -> None:
    ring = Ring(capacity, stack)
    # Without blank frames between episodes, nothing in a memory shows a cut.
    entries = select_expected(
        simulate(np.random.default_rng(seed), ring, steps, cuts and stack > 1), ring
    )
    if not entries:
        return
    found = datasets.from_dopamine(ring.arrays, stack_size=stack)
    agrees(found, entries)
    assert found.observations.dtype == np.uint8
    assert found.observations.shape[1:] == (*SHAPE, stack)
    few = datasets.from_dopamine(ring.arrays, stack_size=stack, max_transitions=3)
    assert len(few) == min(3, len(found))
    np.testing.assert_array_equal(few.observations, found.observations[:3])


def save(folder: Path, ring: Ring, number: int) -> None:
    for name, array in ring.arrays.items():
        stored = name if name == "add_count" else f"$store$_{name}"
        with gzip.open(folder / f"{stored}_ckpt.{number}.gz", "wb") as file:
            np.save(file, array)


@pytest.mark.parametrize("steps", [20, 200])
@pytest.mark.parametrize("max_transitions", [None, 7])
def test_a_folder_is_read(tmp_path: Path, steps: int, max_transitions: int | None) -> None:
    ring = Ring(60, 4)
    entries = select_expected(simulate(np.random.default_rng(0), ring, steps, cuts=False), ring)[
        :max_transitions
    ]
    save(tmp_path, Ring(60, 4), 9)
    save(tmp_path, ring, 10)
    found = datasets.from_dopamine(tmp_path, max_transitions=max_transitions, num_actions=6)
    agrees(found, entries)
    assert found.num_actions == 6
    agrees(
        datasets.from_dopamine(str(tmp_path), checkpoint=10, max_transitions=max_transitions),
        entries,
    )
    with pytest.raises(InputError, match="checkpoint 9: the memory is empty"):
        datasets.from_dopamine(tmp_path, checkpoint=9)


def test_a_limit_reads_only_the_frames_that_it_needs(tmp_path: Path) -> None:
    ring = Ring(500, 4)
    entries = select_expected(simulate(np.random.default_rng(0), ring, 200, cuts=False), ring)[:5]
    save(tmp_path, ring, 0)
    path = tmp_path / "$store$_observation_ckpt.0.gz"
    with gzip.open(path, "rb") as file:
        head = file.read(400)
    with gzip.open(path, "wb") as file:
        file.write(head)
    agrees(datasets.from_dopamine(tmp_path, max_transitions=5), entries)
    with pytest.raises(InputError, match=r"observation_ckpt.0.gz: cannot be read \(it ends early"):
        datasets.from_dopamine(tmp_path)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"observation": None}, {}, "the mapping has no 'observation'; it needs observation, act"),
        ({"add_count": 0}, {}, "from_dopamine: the memory is empty"),
        ({"add_count": -3}, {}, "add_count is -3 and must be a whole number, at least 0"),
        ({"action": [0]}, {}, "its arrays have different lengths"),
        ({"add_count": 3}, {}, "none of its 3 entries has 4 frames and a next one"),
        ({}, {"stack_size": 0}, "stack_size is 0 and must be a whole number, at least 1"),
        (
            {},
            {"max_transitions": -1},
            "max_transitions is -1 and must be a whole number, at least 1",
        ),
        ({}, {"num_actions": 1}, r"actions\[\d+\] is \d and must be from 0 to 0"),
    ],
)
def test_bad_memories_raise(change: Any, options: Any, message: str) -> None:
    ring = Ring(40, 4)
    simulate(np.random.default_rng(0), ring, 30, cuts=False)
    arrays = {**ring.arrays, **change}
    given = {name: value for name, value in arrays.items() if value is not None}
    with pytest.raises(InputError, match=message):
        datasets.from_dopamine(given, **options)


def test_bad_folders_raise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no file \$store\$_observation_ckpt.N.gz\."):
        datasets.from_dopamine(tmp_path)
    with pytest.raises(InputError, match="nowhere: holds no file"):
        datasets.from_dopamine(tmp_path / "nowhere")
    ring = Ring(40, 4)
    simulate(np.random.default_rng(0), ring, 30, cuts=False)
    save(tmp_path, ring, 2)
    with pytest.raises(InputError, match=r"ckpt.7.gz; there are checkpoints \[2\]"):
        datasets.from_dopamine(tmp_path, checkpoint=7)
    (tmp_path / "$store$_reward_ckpt.2.gz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"reward_ckpt.2.gz: cannot be read"):
        datasets.from_dopamine(tmp_path)
    (tmp_path / "$store$_reward_ckpt.2.gz").unlink()
    with pytest.raises(InputError, match=r"reward_ckpt.2.gz: cannot be read"):
        datasets.from_dopamine(tmp_path)


def test_requests_beyond_the_memory_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(40, 4)
    simulate(np.random.default_rng(0), ring, 30, cuts=False)
    monkeypatch.setattr("bisimetric._memory.fits_in_memory", lambda needed: False)
    with pytest.raises(
        InsufficientMemory, match=r"transitions need .* are free; pass max_transitions"
    ):
        datasets.from_dopamine(ring.arrays)
