"""Damaged files of agents and episodes are read or rejected, with one sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric.learned.files import write_tensors
from bisimetric_atari.agents.rainbow import load
from bisimetric_atari.agents.rainbow.files import AGENT_FORMAT
from bisimetric_atari.agents.rainbow.network import RainbowNetwork
from bisimetric_atari.games.episode import Episode
from tests import fuzzing
from tests.fuzzing import mutate_bytes, mutate_json, mutate_zip

Mutate = Callable[[random.Random], Callable[[], Any]]


def rainbow_agent(folder: Path) -> Mutate:
    tensors: dict[str, Any] = {"history step": np.arange(3.0), "history loss": np.zeros(3)}
    for layer, shape in RainbowNetwork(3).kernel_shapes().items():
        tensors[f"{layer}.kernel"] = np.zeros(shape, np.float16)
        tensors[f"{layer}.bias"] = np.zeros(shape[-1:], np.float16)
    about = {
        "format": AGENT_FORMAT,
        "game": "Pong",
        "actions": 3,
        "key": 0,
        "settings": {},
        "steps": 1,
    }
    write_tensors(folder / "valid.safetensors", tensors, about)
    raw = (folder / "valid.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, rest = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    path = folder / "agent.safetensors"

    def pack_agent(top: Any) -> bytes:
        text = json.dumps(top).encode()
        return len(text).to_bytes(8, "little") + text + rest

    # Without its checksum, as older files are: with one, no change is ever read.
    del header["__metadata__"]["sha256"]
    raw = pack_agent(header)
    size = int.from_bytes(raw[:8], "little")

    def mutate(rng: random.Random) -> Callable[[], Any]:
        choice = rng.randrange(4)
        if choice == 0:
            made = raw[: rng.choice([0, 4, 8, 100, size, size + 8, len(raw) - 1])]
        elif choice == 1:
            made = mutate_bytes(rng, raw[: 8 + size]) + rest
        elif choice == 2:
            made = pack_agent(mutate_json(rng, header))
        else:
            said = json.loads(header["__metadata__"]["about"])
            label = json.dumps(mutate_json(rng, said))
            made = pack_agent({**header, "__metadata__": {"about": label}})
        path.write_bytes(made)
        return lambda: load(path)

    return mutate


def episode(folder: Path) -> Mutate:
    n = 5
    Episode(
        game="Pong", screens=np.zeros((n, 4, 3), np.uint8), palette=np.zeros((256, 3), np.uint8),
        features=np.zeros((n, 2), np.float32), values=np.zeros(n, np.float32),
        actions=np.zeros(n, np.int64), rewards=np.ones(n), lives=np.ones(n, np.int64),
        terminated=np.zeros(n, bool), truncated=np.zeros(n, bool),
        episode=np.array([0, 0, 1, 1, 1]), level_starts=np.array([0]), metadata={"key": 0},
    ).save(folder / "valid.npz")  # fmt: skip
    raw, path = (folder / "valid.npz").read_bytes(), folder / "episode.npz"

    def read() -> None:
        found = Episode.load(path)
        repr(found)
        found.render(0)
        found.list_events()

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_zip(rng, raw))
        return read

    return mutate


READERS: dict[str, Callable[[Path], Mutate]] = {
    "rainbow_agent": rainbow_agent,
    "episode": episode,
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    seeds = range(15) if name == "rainbow_agent" else range(60)
    counts = fuzzing.run(seeds, READERS[name](tmp_path), [str(tmp_path)])
    # A mutation that always fails, or never, tests nothing.
    assert sum(counts.values()) - counts.get("read", 0) > 0
    assert counts.get("read", 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    seeds = range(1_000, 1_150 if name == "rainbow_agent" else 1_600)
    print(name, fuzzing.run(seeds, READERS[name](tmp_path), [str(tmp_path)]))
