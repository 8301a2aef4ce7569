"""Every file reader on thousands of damaged and hostile files, drawn from seeds; see `fuzzing`.

`QUICK` seeds run in every test run, `LONG` ones with the mark `slow`. Seeds that once failed stay
in `KEPT`, by the name of the reader.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, Transitions, exact, worlds
from bisimetric.datasets import from_dopamine
from bisimetric.sampled import SampledRun
from tests import fuzzing
from tests.fuzzing import mutate_bytes, mutate_folder, mutate_json, mutate_text, mutate_zip

QUICK = range(60)
LONG = range(1_000, 1_600)
SLOW = ("stored_distance", "sharded_checkpoint")
"""Readers that take a tenth of a second per file."""
KEPT: dict[str, list[int]] = {
    "covered_distance": [47],
    "stored_distance": [51],
    "sampled_run": [28],
    "matrices": [1731],
    "minari_set": [5, 13, 24, 34, 36, 41, 855, 856, 2085, 3582, 3848],
    "dopamine_replay": [5, 17, 81],
    "policy": [111, 122],
}

Mutate = Callable[[random.Random], Callable[[], Any]]
Reader = Callable[[Path], Mutate]


def distance(folder: Path) -> Mutate:
    d = exact.on_policy(worlds.load("mirrored-rooms-policy"))
    d.save(folder / "valid.npz")
    raw, path = (folder / "valid.npz").read_bytes(), folder / "d.npz"

    def read() -> None:
        found = Distance.load(path)
        repr(found)
        found.nearest(0)
        found.bounds(0, [0, 1])

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_zip(rng, raw))
        return read

    return mutate


def covered_distance(folder: Path) -> Mutate:
    run = SampledRun("bisimulation", Transitions([0, 1], [0, 0], [1.0, 2.0], [1, 2], [False, True]))
    run.advance(100)
    run.to_distance().save(folder / "valid.npz")
    raw, path = (folder / "valid.npz").read_bytes(), folder / "d.npz"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_zip(rng, raw))
        return lambda: repr(Distance.load(path).coverage)

    return mutate


def stored_distance(folder: Path) -> Mutate:
    exact.sharded.bisimulation(worlds.load("mirrored-rooms"), output=folder / "valid.zarr")
    path = folder / "d.zarr"

    def mutate_file(rng: random.Random, file: Path, raw: bytes) -> bytes:
        if file.suffix == ".json" and rng.random() < 0.8:
            return json.dumps(mutate_json(rng, json.loads(raw))).encode()
        return mutate_zip(rng, raw) if file.suffix == ".npz" else mutate_bytes(rng, raw)

    def read() -> None:
        found = Distance.load(path)
        found(0, 1)
        repr(found)
        np.asarray(found.values)

    def mutate(rng: random.Random) -> Callable[[], Any]:
        mutate_folder(rng, folder / "valid.zarr", path, mutate_file)
        return read

    return mutate


def transitions(folder: Path) -> Mutate:
    steps = Transitions(
        [0, 1, 0, 2], [0, 1, 1, 0], [0.0, 1.0, 0.5, -1.0], [1, 2, 2, 0],
        [False, True, False, False], names=("a", "b", "c"), action_names=("l", "r"),
        positions=[[0, 0], [0, 1], [1, 0]], metadata={"key": 3},
    )  # fmt: skip
    steps.save(folder / "valid.npz")
    raw, path = (folder / "valid.npz").read_bytes(), folder / "t.npz"

    def read() -> None:
        found = Transitions.load(path)
        repr(found)
        worlds.load(path, unseen="missing")

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_zip(rng, raw))
        return read

    return mutate


def sampled_run(folder: Path) -> Mutate:
    from bisimetric.sampled import AllActions, Trajectories

    steps = Transitions([0, 1, 0], [0, 0, 1], [1.0, 2.0, 0.5], [1, 2, 0], [False, True, False])
    made: list[tuple[bytes, Callable[[], SampledRun]]] = []
    for source in (steps, worlds.load("pessimism")):
        for sampler in (Trajectories(), AllActions()):

            def start(source: Any = source, sampler: Any = sampler) -> SampledRun:
                return SampledRun("bisimulation", source, sampler=sampler)

            run = start()
            run.advance(50)
            run.save(folder / "valid.npz")
            made.append(((folder / "valid.npz").read_bytes(), start))
    path = folder / "run.npz"

    def update_checksum(members: dict[str, bytes]) -> dict[str, bytes]:
        from bisimetric._io import compute_checksum

        try:
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(raw)) for name, raw in members.items()
            }
            told = str(arrays.pop("about"))
            arrays.pop("checksum")
            seal = compute_checksum(told, arrays)
        except Exception:
            return members
        return {**members, "checksum.npy": fuzzing.npy_bytes(np.array(seal))}

    def mutate(rng: random.Random) -> Callable[[], Any]:
        raw, start = rng.choice(made)
        seal = update_checksum if rng.random() < 0.8 else None
        path.write_bytes(mutate_zip(rng, raw, update_checksum=seal))

        def read() -> None:
            from bisimetric.sampled.files import read_data

            start().resume(path).advance(20)
            read_data(path)

        return read

    return mutate


def matrices(folder: Path) -> Mutate:
    P = np.array([[[0.5, 0.5, 0], [0, 0, 1.0]], [[0, 1.0, 0]] * 2, [[0, 0, 1.0]] * 2])
    R = np.array([[0.0, 1], [2, 3], [4, 5]])
    about: dict[str, Any] = {
        "discount": 0.9, "names": ["a", "b", "c"], "actions": ["l", "r"],
        "positions": np.zeros((3, 2)), "features": np.zeros((3, 4)), "policy": [0, 1, 0],
        "available": np.ones((3, 2), bool),
    }  # fmt: skip
    stack = MDP(P, R, discount=0.9).P
    np.savez(folder / "dense.npz", P=P, R=R, **about)
    sparse: dict[str, Any] = {"data": stack.data, "indices": stack.indices, "indptr": stack.indptr}
    np.savez(folder / "sparse.npz", R=R, **sparse, **about)
    raws = [(folder / name).read_bytes() for name in ("dense.npz", "sparse.npz")]
    path = folder / "m.npz"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_zip(rng, rng.choice(raws)))
        return lambda: repr(worlds.load(path))

    return mutate


PRISM = {
    "tra": b"3 4 5\n0 0 1 0.5 go\n0 0 2 0.5 go\n0 1 0 1 stay\n1 0 1 1 go\n2 0 2 1 stay\n",
    "sta": b"(x,y)\n0:(0,0)\n1:(0,1)\n2:(1,0)\n",
    "lab": b'0="init" 1="deadlock" 2="goal"\n0: 0\n2: 2\n',
    "srew": b"3 1\n1 2.5\n",
    "trew": b"3 4 2\n0 0 1 1\n0 1 0 2\n",
}


def prism(folder: Path) -> Mutate:
    (folder / "valid").mkdir()
    for ending, raw in PRISM.items():
        (folder / "valid" / f"m.{ending}").write_bytes(raw)

    def mutate_file(rng: random.Random, file: Path, raw: bytes) -> bytes:
        return mutate_text(rng, raw)

    def mutate(rng: random.Random) -> Callable[[], Any]:
        mutate_folder(rng, folder / "valid", folder / "m", mutate_file)
        options: dict[str, Any] = {"observe": "goal"} if rng.random() < 0.3 else {}
        return lambda: repr(worlds.load(folder / "m" / "m.tra", **options))

    return mutate


def grid(folder: Path) -> Mutate:
    texts = [b"*****\n*  g*\n* * *\n*****\n", b"****\n*>g*\n*^<*\n****\n"]
    path = folder / "grid.txt"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutate_text(rng, rng.choice(texts)))
        return lambda: repr(worlds.load(path))

    return mutate


def dopamine_replay(folder: Path) -> Mutate:
    rng_of_frames = np.random.default_rng(0)
    arrays = {
        "$store$_observation": rng_of_frames.integers(1, 9, (12, 3, 2), dtype=np.uint8),
        "$store$_action": np.arange(12, dtype=np.int32) % 3,
        "$store$_reward": np.ones(12, np.float32),
        "$store$_terminal": np.array([0, 0, 0, 1] * 3, np.uint8),
        "add_count": np.array(12),
    }
    (folder / "valid").mkdir()
    for name, array in arrays.items():
        pack_agent = gzip.compress(fuzzing.npy_bytes(array), mtime=0)
        (folder / "valid" / f"{name}_ckpt.1.gz").write_bytes(pack_agent)

    def mutate_file(rng: random.Random, file: Path, raw: bytes) -> bytes:
        inner = gzip.decompress(raw)
        choice = rng.randrange(4)
        if choice == 0:
            return mutate_bytes(rng, raw)
        if choice == 1:
            inner = mutate_bytes(rng, inner)
        elif choice == 2:
            inner = fuzzing.npy_bytes(fuzzing.odd_arrays(rng))
        else:
            inner = fuzzing.lie(rng, np.zeros(4))
        return gzip.compress(inner, mtime=0)

    def mutate(rng: random.Random) -> Callable[[], Any]:
        mutate_folder(rng, folder / "valid", folder / "replay", mutate_file)
        stack, limit = rng.choice([1, 2, 4]), rng.choice([None, 1, 5])
        return lambda: repr(
            from_dopamine(folder / "replay", stack_size=stack, max_transitions=limit)
        )

    return mutate


def safe_pickle(folder: Path) -> Mutate:
    from bisimetric import _safe_pickle

    content = {
        "steps": 7,
        "online_params": {
            "params": {"Conv_0": {"kernel": np.ones((2, 2)), "bias": np.zeros(2, ">f4")}}
        },
        "logs": [np.float32(1), ("a", b"b", 2**70, None, 0.5)],
    }
    raws = [pickle.dumps(content, protocol) for protocol in (0, 2, 4, 5)]
    raws.append(pickle.dumps({**content, "more": fuzzing.Bomb()}, 4))
    path = folder / "ckpt.1"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        raw = rng.choice(raws)
        for _ in range(rng.choice([1, 1, 3])):
            raw = mutate_bytes(rng, raw)
        if rng.random() < 0.1:
            # A number of a remembered object that takes 64 GB.
            raw = raw[:2] + b"N" + b"r" + rng.randrange(2**32).to_bytes(4, "little") + raw[2:]
        path.write_bytes(raw)
        return lambda: _safe_pickle.load_arrays(path)

    return mutate


def sharded_checkpoint(folder: Path) -> Mutate:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    exact.sharded.bisimulation(mdp, tol=5.0, checkpoint=folder / "valid", checkpoint_every=1e-9)

    def mutate_file(rng: random.Random, file: Path, raw: bytes) -> bytes:
        if file.suffix == ".json" and rng.random() < 0.8:
            return json.dumps(mutate_json(rng, json.loads(raw))).encode()
        return mutate_bytes(rng, raw)

    def mutate(rng: random.Random) -> Callable[[], Any]:
        mutate_folder(rng, folder / "valid", folder / "run", mutate_file)

        def read() -> None:
            from bisimetric.errors import NotConverged

            with contextlib.suppress(NotConverged):
                exact.sharded.bisimulation(mdp, tol=5.0, resume=folder / "run")

        return read

    return mutate


def minari_set(folder: Path) -> Mutate:
    minari: Any = pytest.importorskip("minari")
    spaces: Any = pytest.importorskip("gymnasium").spaces
    from bisimetric.datasets import from_minari

    os.environ["MINARI_DATASETS_PATH"] = str(folder / "sets")
    buffer = minari.data_collector.EpisodeBuffer(
        id=0,
        observations=np.zeros((4, 2), np.float32),
        actions=np.array([0, 1, 0]),
        rewards=[1.0, 0.0, 2.0],
        terminations=[False, False, True],
        truncations=[False, False, False],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            dataset_id="fuzz/random-v0",
            buffer=[buffer],
            observation_space=spaces.Box(-1, 1, (2,), np.float32),
            action_space=spaces.Discrete(2),
        )
    shutil.copytree(folder / "sets" / "fuzz" / "random-v0", folder / "valid")

    def mutate_file(rng: random.Random, file: Path, raw: bytes) -> bytes:
        if file.suffix == ".json" and rng.random() < 0.9:
            return json.dumps(mutate_json(rng, json.loads(raw))).encode()
        return mutate_bytes(rng, raw)

    def mutate(rng: random.Random) -> Callable[[], Any]:
        mutate_folder(rng, folder / "valid", folder / "sets" / "fuzz" / "random-v0", mutate_file)
        return lambda: repr(from_minari("fuzz/random-v0"))

    return mutate


def policy(folder: Path) -> Mutate:
    from bisimetric.cli.options import read_policy

    text, array = folder / "policy.txt", folder / "policy.npy"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        if rng.random() < 0.5:
            text.write_bytes(mutate_text(rng, b"0 1\n1 0\n0.5 0.5\n"))
            return lambda: read_policy(text)
        choice = rng.randrange(3)
        raw = fuzzing.npy_bytes(np.array([0, 1, 1]))
        if choice == 0:
            raw = mutate_bytes(rng, raw)
        else:
            raw = (
                fuzzing.lie(rng, np.zeros(2))
                if choice == 1
                else fuzzing.npy_bytes(fuzzing.odd_arrays(rng))
            )
        array.write_bytes(raw)
        return lambda: read_policy(array)

    return mutate


READERS: dict[str, Reader] = {
    each.__name__: each
    for each in (
        distance, covered_distance, stored_distance, transitions, sampled_run, matrices, prism,
        grid, dopamine_replay, safe_pickle, sharded_checkpoint, policy, minari_set,
    )
}  # fmt: skip


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("fuzz")
    before, sets = os.getcwd(), os.environ.get("MINARI_DATASETS_PATH")
    os.chdir(made)
    yield made
    os.chdir(before)
    os.environ.pop("MINARI_DATASETS_PATH", None)
    if sets is not None:
        os.environ["MINARI_DATASETS_PATH"] = sets


def list_names(folder: Path) -> list[str]:
    """What an error may call a file: by its path, or a data set of Minari by its id."""
    return [str(folder), "fuzz/random-v0"]


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_rejected(name: str, folder: Path) -> None:
    few = range(15) if name in SLOW else QUICK
    counts = fuzzing.run([*KEPT.get(name, []), *few], READERS[name](folder), list_names(folder))
    # A mutation that always fails, or never, tests nothing.
    assert sum(counts.values()) - counts.get("read", 0) > 0
    assert counts.get("read", 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_rejected(name: str, folder: Path) -> None:
    many = LONG[:150] if name in SLOW else LONG
    print(name, fuzzing.run(many, READERS[name](folder), list_names(folder)))
