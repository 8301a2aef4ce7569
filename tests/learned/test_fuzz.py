"""Damaged files of learned distances and training runs: intact, or one-sentence errors.

Every case is made from a seed: a failing one is repeated with `mutate(seed, ...)`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from bisimetric import InputError
from bisimetric.cli import main
from bisimetric.learned import FeatureScaling, FitResult, LearnedDistance, files
from bisimetric.learned.networks.metric_networks import MetricNetwork, PairQEnsemble
from bisimetric.learned.training import initialise_state
from tests.learned_references import (  # noqa: F401 - a fixture
    SMALL,
    STATES,
    TRIANGLE,
    compile_quickly,
    one,
    run,
)

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**9, 10**30, 0.5, -0.5, 1e308, math.nan, math.inf,
    "", "relu", "metric", "free", "pairs", "mico", "own", "random", [], [True], [0], [1], [10**9],
    [0.5], ["a"], [[1]], {}, {"a": 1},
]  # fmt: skip
TYPES = [np.float16, np.float64, np.int32, np.int64, np.uint8, np.bool_]


def header_of(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    found: dict[str, Any] = json.loads(data[8 : 8 + size])
    return found


def flip_bits(rng: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    end = len(data)
    if rng.integers(2):
        end = 8 + int.from_bytes(data[:8], "little")  # half of them in the header
    for _ in range(rng.integers(1, 5)):
        changed[rng.integers(end)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def damage_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    place = int(rng.integers(len(data)))
    if rng.integers(4) == 0:
        return data + bytes(rng.integers(256, size=rng.integers(1, 40), dtype=np.uint8))
    if rng.integers(2):
        return data[:place]
    return data[:place] + data[place + int(rng.integers(1, 30)) :]


def change_metadata(rng: np.random.Generator, data: bytes) -> bytes:
    metadata = header_of(data)["__metadata__"]
    about = json.loads(metadata["about"])
    place, key = about, str(rng.choice(list(about)))
    if isinstance(about[key], dict) and about[key] and rng.integers(2):
        place = about[key]
        key = str(rng.choice(list(place)))
    if rng.integers(4) == 0:
        del place[key]
    else:
        place[key] = VALUES[rng.integers(len(VALUES))]
    metadata["about"] = json.dumps(about)
    return save(load(data), metadata)


def change_tensor(rng: np.random.Generator, data: bytes) -> bytes:
    tensors, metadata = load(data), header_of(data)["__metadata__"]
    name = str(rng.choice(sorted(tensors)))
    array = tensors[name]
    kind = int(rng.integers(5))
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        with np.errstate(all="ignore"):
            tensors[name] = array.astype(TYPES[rng.integers(len(TYPES))])
    elif kind == 2:
        tensors[name] = array[None] if rng.integers(2) else array.ravel()[:-1]
    else:
        wrong = np.array(array, dtype=np.promote_types(array.dtype, np.float16))
        wrong.flat[rng.integers(wrong.size)] = rng.choice([np.nan, np.inf, -np.inf])
        tensors[name] = wrong.astype(array.dtype) if array.dtype.kind == "f" else wrong
    return save(tensors, metadata)


def without_checksum(data: bytes) -> bytes:
    """The file as it was written before files had checksums."""
    return save(load(data), {"about": header_of(data)["__metadata__"]["about"]})


MUTATORS = (flip_bits, damage_bytes, change_metadata, change_tensor)


def mutate(seed: int, data: bytes, older: bool) -> tuple[str, bytes]:
    """A damaged copy of a file, and how it was damaged."""
    rng = np.random.default_rng(seed)
    how = MUTATORS[rng.integers(len(MUTATORS))]
    return how.__name__, how(rng, without_checksum(data) if older else data)


@pytest.fixture(scope="module")
def metric(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A learned distance with all that a file may hold."""
    network = PairQEnsemble(
        MetricNetwork((3,), num_groups=2, group_size=2, fourier_features=1), 2, 1.5, 4.0, 2, (0, 1)
    )
    found = one(
        network=network,
        parameters=jax.tree.map(np.asarray, network.init(jax.random.key(0), 2)),
        scaling=FeatureScaling(np.zeros(2), np.ones(2), shape=(2,)),
        points=np.array([[0, 0], [0, 1], [1, 1]], np.float32),
        names=TRIANGLE.names,
        metadata={
            "kind": "bisimulation",
            "discount": 0.5,
            "updates": 4,
            "seeds": [0],
            "batch_size": 6,
        },
        history={"step": np.array([2.0, 4.0]), "loss": np.array([1.0, np.nan])},
    )
    file = tmp_path_factory.mktemp("metric") / "d.safetensors"
    found.save(file)
    return file.read_bytes()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("run") / "run.safetensors"
    run(4, checkpoint=file)
    return file.read_bytes()


def load_metric(file: Path) -> dict[str, Any]:
    """What a learned distance is, as plain values."""
    found = LearnedDistance.load(file, TRIANGLE)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.parameters))
    assert type(found.discount) is float
    assert 0 <= found.discount < 1
    arrays = {
        **files.name_leaves(found.parameters),
        "shift": found.scaling.shift,
        "points": found.points,
    }
    about = (
        found.kind,
        found.discount,
        found.network,
        found.names,
        found.metadata,
        found.scaling.shape,
    )
    return {"about": repr(about), **arrays, **found.history}


@functools.cache
def initial_run() -> FitResult:
    """The run of the checkpoint before its first update."""
    keys = jnp.stack([jax.random.key(0)])
    state = initialise_state(SMALL, SMALL.network, STATES.scaling.num_features, keys)
    return FitResult("bisimulation", 0.5, SMALL, STATES, SMALL.network, 8, (0,), state, {})


def load_checkpoint(file: Path) -> dict[str, Any]:
    found, history = files.restore_run(file, initial_run(), files.compute_fingerprint(STATES))
    plain = found._replace(key=jax.random.key_data(found.key))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(plain))
    assert int(found.step) >= 0
    return {**files.name_leaves(plain), **history}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        value == other[name] if isinstance(value, str) else np.array_equal(
            value, other[name], equal_nan=np.asarray(value).dtype.kind == "f"
        )
        for name, value in one.items()
    )  # fmt: skip


Reader = Callable[[Path], dict[str, Any]]


def check(file: Path, data: bytes, read: Reader, seeds: range) -> dict[str, int]:
    """Every damaged copy is refused by InputError, or has a checksum and is read as it was."""
    file.write_bytes(data)
    intact = read(file)
    file.write_bytes(without_checksum(data))
    assert same(read(file), intact), "older files are read as before"
    counts = {"refused": 0, "intact": 0, "older, plausible": 0}
    for seed in seeds:
        older = seed % 2 == 1
        how, damaged = mutate(seed, data, older)
        file.write_bytes(damaged)
        try:
            found = read(file)
        except InputError as error:
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {how}: {error!r}") from error
        else:
            assert older or same(found, intact), (seed, how)
            counts["older, plausible" if older else "intact"] += 1
            continue
        assert str(file) in said, (seed, how)
        assert "\n" not in said, (seed, how)
        counts["refused"] += 1
    return counts


@pytest.mark.parametrize("name", ["metric", "checkpoint"])
def test_a_damaged_file_raises_or_is_intact(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    read = {"metric": load_metric, "checkpoint": load_checkpoint}[name]
    counts = check(tmp_path / "f", request.getfixturevalue(name), read, range(60))
    assert counts["refused"] > 30


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metric", "checkpoint"])
def test_many_damaged_files_raise_or_are_intact(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    read = {"metric": load_metric, "checkpoint": load_checkpoint}[name]
    print(name, check(tmp_path / "f", request.getfixturevalue(name), read, range(1000, 2000)))


@pytest.mark.parametrize("name", ["metric", "checkpoint"])
def test_showing_a_damaged_file_ends_with_one_sentence(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, data = tmp_path / "f.safetensors", request.getfixturevalue(name)
    for seed in range(24):
        how, damaged = mutate(seed, data, older=seed % 4 != 0)
        file.write_bytes(damaged)
        code: Any = None
        with contextlib.suppress(SystemExit):
            code = main(["show", str(file)])
        said = capsys.readouterr().err
        assert code in (0, 2), (seed, how)
        assert len(said.splitlines()) == (1 if code else 0), (seed, how, said)


def test_a_weight_that_is_no_number_raises(tmp_path: Path, metric: bytes) -> None:
    tensors, metadata = load(metric), header_of(metric)["__metadata__"]
    name = next(name for name in tensors if "weights" in name)
    tensors[name] = np.full_like(tensors[name], np.nan)
    file = tmp_path / "d.safetensors"
    file.write_bytes(save(tensors, {"about": metadata["about"]}))
    with pytest.raises(InputError, match="holds NaN or infinity"):
        LearnedDistance.load(file)
    tensors[name] = np.zeros_like(tensors[name])
    file.write_bytes(save(tensors, metadata))
    with pytest.raises(InputError, match="its checksum does not match"):
        LearnedDistance.load(file)


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    found = one()
    found.parameters[0]["weights"][0, 0] = np.inf
    file = tmp_path / "d.safetensors"
    with pytest.raises(InputError, match=f"cannot write {file}: .* holds NaN or infinity"):
        found.save(file)
    assert not list(tmp_path.iterdir())
