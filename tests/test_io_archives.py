"""Archives that declare more than they hold, or hold more than the memory: refused unread."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import Distance, Transitions, exact, worlds
from bisimetric._io import ARCHIVE_ERRORS, open_archive, read_gzip_array, read_npy
from bisimetric.datasets import from_dopamine
from bisimetric.errors import InputError, InsufficientMemory
from tests import fuzzing

MIB = 2**20


def header(shape: tuple[int, ...], kind: str = "<f8", length: int | None = None) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = len(text) if length is None else length
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", size) + text


def measure_memory(work: Callable[[], Any]) -> int:
    """Return the peak memory of a call in bytes."""
    tracemalloc.start()
    try:
        work()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def replace_member(path: Path, name: str, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> None:
    """Replace a member of an archive."""
    with zipfile.ZipFile(path) as old:
        members = {each: old.read(each) for each in old.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for each, raw in {**members, name: content}.items():
            archive.writestr(each, raw)


@pytest.fixture
def distance_file(tmp_path: Path) -> Path:
    exact.bisimulation(worlds.load("pessimism")).save(tmp_path / "d.npz")
    return tmp_path / "d.npz"


def test_arrays_are_read_back(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "floats": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "swapped": np.arange(3, dtype=">i4"),
        "texts": np.array(["a", "déjà"]),
        "none": np.zeros((0, 3)),
        "one": np.array(True),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        with open_archive(tmp_path / "a.npz") as opened:
            assert sorted(opened.files) == sorted(arrays)
            for name, array in arrays.items():
                assert opened[name].dtype == array.dtype
                np.testing.assert_array_equal(opened[name], array)
    np.save(tmp_path / "a.npy", arrays["floats"])
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), arrays["floats"])


def test_a_member_larger_than_the_memory_raises_unread(
    distance_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 MiB of zeros deflate to 80 KiB."""
    replace_member(distance_file, "values.npy", header((10 * MIB,)) + bytes(80 * MIB))
    assert distance_file.stat().st_size < MIB
    monkeypatch.setattr("bisimetric._memory.available_memory", lambda: 70.0 * MIB)

    def read() -> None:
        with pytest.raises(
            InsufficientMemory, match=r"d\.npz: its member values\.npy needs 80 MiB"
        ):
            Distance.load(distance_file)

    assert measure_memory(read) < 10 * MIB


@pytest.mark.parametrize(
    "content",
    [
        header((10**15,)),
        header((2**62, 4)),
        header((10**9,)) + bytes(8),
        header((10**9,), "<U0"),
        header((4,), length=2**32 - 1) + bytes(10_000),
        header((-1,)),
        header((2, True)),
        header((2,), "|O") + pickle.dumps(fuzzing.Bomb()),
        header((2,), "<c16") + bytes(32),
        header((3,), "|b1") + b"\0\1\2",
        header((1,), "<U1") + struct.pack("<I", 0x110000),
        header((1,)) + bytes(9),
        b"plain text",
        b"",
    ],
)
@pytest.mark.parametrize("name", ["values", "names", "about"])
def test_false_headers_allocate_no_memory(distance_file: Path, content: bytes, name: str) -> None:
    replace_member(distance_file, f"{name}.npy", content)

    def read() -> None:
        with pytest.raises(InputError, match=r"d\.npz is cut short or no distance file"):
            Distance.load(distance_file)

    assert measure_memory(read) < 10 * MIB
    assert not fuzzing.Bomb.fired


def test_wrong_sizes_in_the_directory_raise(distance_file: Path) -> None:
    """The directory of the zip itself declares a terabyte for a member of some bytes."""
    raw = bytearray(distance_file.read_bytes())
    at = raw.index(b"PK\x01\x02")
    struct.pack_into("<I", raw, at + 24, 2**32 - 2)
    distance_file.write_bytes(raw)
    with pytest.raises(InputError, match="declares more bytes than it can hold"):
        Distance.load(distance_file)


@pytest.mark.parametrize("name", ["readme.txt", "notes/x.bin"])
def test_members_that_are_no_arrays_raise(distance_file: Path, name: str) -> None:
    replace_member(distance_file, name, b"hello")
    with pytest.raises(InputError, match=r"d\.npz is cut short or no distance file"):
        Distance.load(distance_file)
    Transitions([0], [0], [1.0], [1], [True]).save(distance_file)
    replace_member(distance_file, name, b"hello")
    assert len(Transitions.load(distance_file)) == 1


def test_a_flipped_bit_raises(distance_file: Path) -> None:
    raw = bytearray(distance_file.read_bytes())
    raw[raw.index(b"values.npy") + 200] ^= 1
    distance_file.write_bytes(raw)
    with pytest.raises(InputError, match="CRC"):
        Distance.load(distance_file)


def test_only_the_first_frames_are_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(header((10**9,)) + bytes(64 * MIB)))

    def read() -> None:
        with pytest.raises(ARCHIVE_ERRORS, match=r"more than it holds|ends early"):
            read_gzip_array(path)

    assert measure_memory(read) < 200 * MIB
    assert measure_memory(lambda: read_gzip_array(path, 1000)) < 4 * MIB


@pytest.mark.parametrize(
    ("name", "array", "complaint"),
    [
        ("$store$_action", np.array(["a", "b", "c"]), "action is <U1 of shape"),
        ("$store$_action", np.array([0.5, 1, 2]), "action is float64 of shape"),
        ("$store$_reward", np.array([["1"]] * 3), "reward is <U1"),
        ("$store$_terminal", np.zeros((3, 2)), "terminal is float64 of shape"),
        ("$store$_observation", np.array(["a", "b", "c"]), "frames are <U1"),
        ("$store$_observation", np.zeros((3, 0)), "frames are float64 of shape"),
        ("add_count", np.array([3, 4]), "add_count is int64 of shape"),
        ("add_count", np.array("3"), "add_count is <U1 of shape"),
        ("$store$_reward", np.array([1.0, np.nan, 1.0]), "must be finite"),
    ],
)
def test_replays_of_other_things_raise(
    tmp_path: Path, name: str, array: Any, complaint: str
) -> None:
    arrays: dict[str, Any] = {
        "$store$_observation": np.ones((3, 2)),
        "$store$_action": np.zeros(3, np.int32),
        "$store$_reward": np.ones(3),
        "$store$_terminal": np.zeros(3),
        "add_count": np.array(3),
        name: array,
    }
    for each, content in arrays.items():
        file = io.BytesIO()
        np.save(file, content)
        (tmp_path / f"{each}_ckpt.0.gz").write_bytes(gzip.compress(file.getvalue()))
    with pytest.raises(InputError, match=complaint) as caught:
        from_dopamine(tmp_path, stack_size=1)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("discount", "complaint"),
    [
        (np.array("[]"), "discount is <U2 of shape"),
        (np.array([0.9]), r"discount is float64 of shape \(1,\) and must be one number"),
        (np.array([]), "discount is float64 of shape"),
        (np.array(True), "discount is bool"),
        (np.array(np.nan), "discount is nan"),
        (np.array(1.0), r"discount is 1\.0"),
    ],
)
def test_discounts_in_matrix_files(tmp_path: Path, discount: Any, complaint: str) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, P=np.eye(2)[None], R=np.zeros(2), discount=discount)
    with pytest.raises(InputError, match=rf"m\.npz: {complaint}"):
        worlds.load(path, first_axis="actions")
    np.savez(path, P=np.eye(2)[None], R=np.zeros(2), discount=np.array(0.25))
    assert worlds.load(path, first_axis="actions").discount == 0.25


@pytest.mark.parametrize("metadata", [None, [], 3, "text"])
def test_metadata_of_another_type_raise(distance_file: Path, metadata: Any) -> None:
    with np.load(distance_file) as file:
        arrays = dict(file)
    about = {**json.loads(str(arrays["about"])), "metadata": metadata}
    np.savez(distance_file, **{**arrays, "about": np.array(json.dumps(about))})
    with pytest.raises(InputError, match=r"d\.npz is no distance file .*its metadata is"):
        Distance.load(distance_file)


@pytest.mark.parametrize("text", [None, 5, b"***", ["***", "* *"], np.zeros(3), Path("x")])
def test_a_grid_is_a_text(text: Any) -> None:
    with pytest.raises(InputError, match=r"grid: the text is \w+ and must be a str"):
        worlds.grid(text)


@pytest.mark.parametrize(
    "policy", [[[0.5, 0.5], [1.0]], [0, [1]], [[[1]], [2, 3]], ["a", "b"], "ab"]
)
def test_ragged_policies_raise(policy: Any) -> None:
    mdp = worlds.load("pessimism")
    for solve in (exact.on_policy, exact.mico):
        with pytest.raises(InputError, match="policy"):
            solve(mdp, policy)
