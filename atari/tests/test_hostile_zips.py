"""Zips of Stable-Baselines3 that mean harm, against PyTorch itself; `make test-sb3` runs this."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WHY = "tests of Stable-Baselines3: run `make test-sb3`, which installs it"
torch: Any = pytest.importorskip("torch", reason=WHY)

from bisimetric.errors import InputError, InsufficientMemory  # noqa: E402
from bisimetric_atari.agents.stable_baselines import load  # noqa: E402
from tests import fuzzing  # noqa: E402
from tests.fuzzing import mutate_bytes, mutate_json  # noqa: E402

torch.set_num_threads(1)

DATA = {
    "policy_class": {"__module__": "stable_baselines3.dqn.policies"},
    "action_space": {":type:": "<class 'Discrete'>", "n": 6},
    "observation_space": {"_shape": [4, 84, 84]},
    "policy_kwargs": {},
}


def state() -> dict[str, Any]:
    """The weights of a small DQN with a CnnPolicy."""
    rng = torch.Generator().manual_seed(0)
    shapes = {
        "features_extractor.cnn.0": (4, 4, 8, 8),
        "features_extractor.cnn.2": (4, 4, 4, 4),
        "features_extractor.cnn.4": (4, 4, 3, 3),
        "features_extractor.linear.0": (8, 4 * 7 * 7),
        "q_net.0": (6, 8),
    }
    found = {}
    for name, shape in shapes.items():
        found[f"q_net.{name}.weight"] = torch.randn(shape, generator=rng) / 10
        found[f"q_net.{name}.bias"] = torch.zeros(shape[0])
    return found


def serialise(weights: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(weights, file, **options)
    return file.getvalue()


def write(path: Path, data: Any = DATA, policy: bytes | None = None, **more: bytes) -> Path:
    """Write a zip as SB3 does."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data", data if isinstance(data, bytes) else json.dumps(data))
        file.writestr("policy.pth", serialise(state()) if policy is None else policy)
        for name, content in more.items():
            file.writestr(name, content)
    return path


def test_a_valid_zip_is_read(tmp_path: Path) -> None:
    agent = load(write(tmp_path / "a.zip"))
    assert (agent.num_actions, agent.num_features) == (6, 8)


class Exploit:
    """Make a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def serialise_legacy(weights: Any) -> bytes:
    return serialise(weights, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("pack", [serialise, serialise_legacy])
@pytest.mark.parametrize("where", ["alone", "among weights", "as a name", "in a list"])
def test_code_is_never_executed(tmp_path: Path, where: str, pack: Callable[[Any], bytes]) -> None:
    harm: Any = Exploit(str(tmp_path / "harm"))
    content: Any = {
        "alone": harm,
        "among weights": {**state(), "x": harm},
        "as a name": dict([*state().items(), (harm, torch.zeros(1))]),
        "in a list": [state(), harm],
    }[where]
    path = write(tmp_path / "bad.zip", policy=pack(content))
    with pytest.raises(InputError, match=r"bad\.zip: its policy\.pth is damaged or holds code"):
        load(path)
    assert not (tmp_path / "harm").exists()


def test_pickles_in_the_settings_are_not_read(tmp_path: Path) -> None:
    import base64
    import pickle

    harm = base64.b64encode(pickle.dumps(Exploit(str(tmp_path / "harm")))).decode()
    data = {**DATA, "lr_schedule": {":serialized:": harm}, "policy_class": {":serialized:": harm}}
    load(write(tmp_path / "a.zip", data))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "weights",
    [
        [1, 2],
        torch.zeros(3),
        {**state(), "x": "text"},
        {**state(), "x": 5},
        dict([*state().items(), (3, torch.zeros(1))]),
        {**state(), "x": torch.zeros(2, dtype=torch.complex64)},
        {**state(), "x": torch.zeros(2, dtype=torch.int64)},
        {**state(), "x": torch.eye(3).to_sparse()},
        {**state(), "x": torch.zeros(2, device="meta")},
        # One number that is declared as a terabyte of numbers.
        {**state(), "q_net.q_net.0.bias": torch.zeros(1).expand(2**38)},
    ],
    ids=str,
)
def test_anything_but_a_plain_tensor_raises(tmp_path: Path, weights: Any) -> None:
    path = write(tmp_path / "a.zip", policy=serialise(weights))
    with pytest.raises(InputError, match=r"a\.zip: its (weights|policy\.pth)"):
        load(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", list(state()))
def test_weights_that_are_not_finite_raise(tmp_path: Path, name: str, number: float) -> None:
    weights = state()
    weights[name].view(-1)[0] = number
    with pytest.raises(InputError, match=r"weights '.*' hold numbers that are not finite"):
        load(write(tmp_path / "a.zip", policy=serialise(weights)))


@pytest.mark.parametrize("name", list(state()))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2), (1, 2, 3), (1, 1, 1, 1), (2,) * 5])
def test_weights_of_other_shapes_raise(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    path = write(tmp_path / "a.zip", policy=serialise({**state(), name: torch.zeros(shape)}))
    with pytest.raises(InputError, match=r"a\.zip: its layers do not fit one another"):
        load(path)


@pytest.mark.parametrize("name", list(state()))
def test_weights_that_are_missing_are_named(tmp_path: Path, name: str) -> None:
    weights = state()
    del weights[name]
    with pytest.raises(InputError, match=r"a\.zip: it (has no weights|has weights that no)"):
        load(write(tmp_path / "a.zip", policy=serialise(weights)))


@pytest.mark.parametrize("shape", [[10**9, 10**9], [4, 10**6, 10**6], [0], [-1, 84, 84], [], "x"])
def test_observations_of_impossible_shapes_raise(tmp_path: Path, shape: Any) -> None:
    data = {**DATA, "observation_space": {"_shape": shape}}
    with pytest.raises(InputError, match=r"a\.zip: its number of actions"):
        load(write(tmp_path / "a.zip", data))


def test_a_bomb_raises_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 MiB of zeros deflate to 200 KiB."""
    path = write(tmp_path / "a.zip", policy=bytes(200 * 2**20))
    assert path.stat().st_size < 2**20
    monkeypatch.setattr("bisimetric._memory.available_memory", lambda: 100.0 * 2**20)
    with pytest.raises(InsufficientMemory, match=r"a\.zip: its member policy\.pth needs 200 MiB"):
        load(path)


def test_a_bomb_within_the_weights_raises(tmp_path: Path) -> None:
    """PyTorch stores its records; one that is deflated may be any size."""
    inner = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(serialise(state()))) as old,
        zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as made,
    ):
        for name in old.namelist():
            zeros = bytes(100 * 2**20) if name.endswith("data/0") else old.read(name)
            made.writestr(name, zeros)
    with pytest.raises(InputError, match=r"a\.zip: its policy\.pth is damaged"):
        load(write(tmp_path / "a.zip", policy=inner.getvalue()))


def test_false_sizes_raise(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, raw.index(b"PK\x01\x02") + 24, 2**32 - 2)
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"a\.zip is truncated or no zip"):
        load(path)


def mutation(folder: Path) -> Callable[[random.Random], Callable[[], Any]]:
    policy = serialise(state())
    raw = write(folder / "valid.zip").read_bytes()
    path = folder / "agent.zip"

    def mutate(rng: random.Random) -> Callable[[], Any]:
        choice = rng.randrange(5)
        if choice == 0:
            path.write_bytes(mutate_bytes(rng, raw))
        elif choice == 1:
            write(path, mutate_json(rng, DATA))
        elif choice == 2:
            write(path, policy=mutate_bytes(rng, policy))
        elif choice == 3:
            weights = state()
            name = rng.choice(sorted(weights))
            shape = tuple(rng.choice([0, 1, 2, 6, 8]) for _ in range(rng.randrange(5)))
            weights[name] = rng.choice(
                [torch.zeros(shape), torch.full(shape, torch.nan), weights[name].T, 3, None]
            )
            write(path, policy=serialise(weights))
        else:
            inner = io.BytesIO()
            with (
                zipfile.ZipFile(io.BytesIO(policy)) as old,
                zipfile.ZipFile(inner, "w") as made,
            ):
                chosen = rng.choice(old.namelist())
                for name in old.namelist():
                    content = old.read(name)
                    made.writestr(name, mutate_bytes(rng, content) if name == chosen else content)
            write(path, policy=inner.getvalue())
        return lambda: load(path)

    return mutate


@pytest.mark.filterwarnings("ignore")
def test_damaged_zips_are_read_or_raise(tmp_path: Path) -> None:
    counts = fuzzing.run([2071, *range(60)], mutation(tmp_path), [str(tmp_path)])
    assert counts["InputError"] > counts["read"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_damaged_zips_are_read_or_raise(tmp_path: Path) -> None:
    print(fuzzing.run(range(1_000, 4_000), mutation(tmp_path), [str(tmp_path)]))
