"""Mutations of valid files, drawn from a seed, and what a reader may do with the result.

A reader either returns, or raises one of the library's own errors in one sentence that names the
file. Anything else is a defect: another exception, a warning, code that runs, memory without bound.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import traceback
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from bisimetric.errors import InputError, InsufficientMemory

DOCUMENTED = (InputError, InsufficientMemory, OSError)
"""What a reader may raise."""

MAX_MEMORY = 2**28
"""Bytes that reading a small file may take at most, whatever it declares."""

JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**70, 10**400, 0.5, -0.5, float("nan"), float("inf"), 1e308, "",
    "x", "0.5", "[]", [], [1], ["a", None], [[1, 2], [3]], {}, {"a": 1},
)  # fmt: skip
WORDS: tuple[bytes, ...] = (
    b"0", b"-1", b"1", b"1e400", b"nan", b"inf", b"99999999999999999999999", b"0.5", b"1/0", b"x",
    b"", b"\x00", b"\xff\xfe", b"  ", b"\n\n", b"#", b":", b"=", b'"', b"{", b"[0,1]",
)  # fmt: skip


class Bomb:
    """Runs code when it is unpickled: `fired` says whether any did."""

    fired = False

    def __reduce__(self) -> Any:
        return (fire, ())


def fire() -> None:
    Bomb.fired = True


def odd_arrays(rng: random.Random) -> Any:
    """An array of an unusual type, shape or content."""
    shape = rng.choice([(), (0,), (1,), (2,), (3, 3), (2, 3), (4, 1, 2), (0, 5), (7,)])
    size = int(np.prod(shape))
    dtype = rng.choice(
        ["f8", "f4", "f2", "i8", "i1", "u8", "u1", "?", "c16", ">f8", ">i4", "S3", "U4", "M8[s]",
         "m8[s]", "V4", "O"]
    )  # fmt: skip
    if dtype == "O":
        made = np.empty(shape, object)
        made.fill(Bomb())
        return made
    if dtype.endswith(("f8", "f4", "f2", "c16")):
        numbers = [0.0, 1.0, -1.0, float("nan"), float("inf"), 1e300, 0.5, 5e-324]
        with np.errstate(over="ignore"):
            return np.array([rng.choice(numbers) for _ in range(size)]).astype(dtype).reshape(shape)
    raw = bytes(rng.choice([0, 0, 0, 1, 2, 255]) for _ in range(size * np.dtype(dtype).itemsize))
    if dtype == "U4":
        raw = np.array(["a\x00b"] * size, dtype).tobytes()
    return np.frombuffer(raw, dtype).reshape(shape)


def mutate_json(rng: random.Random, value: Any) -> Any:
    """The same structure with one value replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(sorted(value))
        found = dict(value)
        choice = rng.random()
        if choice < 0.15:
            del found[name]
        elif choice < 0.2:
            found["extra"] = rng.choice(JSON_VALUES)
        else:
            found[name] = mutate_json(rng, value[name])
        return found
    if isinstance(value, list) and value and rng.random() < 0.7:
        copied = list(value)
        place = rng.randrange(len(copied))
        copied[place] = mutate_json(rng, copied[place])
        return copied
    if rng.random() < 0.02:
        deep: Any = 1
        for _ in range(500):
            deep = [deep]
        return deep
    return rng.choice(JSON_VALUES)


def mutate_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Flips, cuts, repeats, removes or overwrites bytes."""
    data = bytearray(raw)
    choice = rng.randrange(6)
    if not data or choice == 0:
        return bytes(data[: rng.randrange(len(data) + 1)])
    if choice == 1:
        for _ in range(rng.choice([1, 1, 2, 8, 64])):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif choice == 2:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif choice == 3:
        low, high = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        to = rng.randrange(len(data) + 1)
        data[to:to] = data[low:high][:4096]
    elif choice == 4:
        low = rng.randrange(len(data))
        del data[low : low + rng.choice([1, 2, 7, 100, 1000])]
    else:
        low = rng.randrange(len(data))
        size = rng.choice([1, 2, 4, 8])
        data[low : low + size] = rng.choice([b"\xff", b"\x00", b"\x7f", b"\x80"]) * size
    return bytes(data)


def mutate_text(rng: random.Random, raw: bytes) -> bytes:
    """Replaces words, repeats or removes lines, or mutates bytes."""
    lines = raw.split(b"\n")
    place = rng.randrange(len(lines))
    choice = rng.randrange(5)
    if choice == 0:
        words = lines[place].split(b" ")
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        lines[place] = b" ".join(words)
    elif choice == 1:
        del lines[place]
    elif choice == 2:
        lines.insert(place, rng.choice(lines))
    elif choice == 3:
        lines[place] += b" " + rng.choice(WORDS)
    else:
        return mutate_bytes(rng, raw)
    return b"\n".join(lines)


def npy_bytes(array: Any) -> bytes:
    """A .npy stream; arrays of objects are pickled into it."""
    file = io.BytesIO()
    npy.write_array(file, np.asanyarray(array), allow_pickle=True)
    return file.getvalue()


def lie(rng: random.Random, array: Any) -> bytes:
    """A .npy stream whose header declares another shape or type than it holds."""
    raw = np.asarray(array).tobytes()
    shape = rng.choice([(10**12,), (2**40, 2**40), (-1,), (2**62, 4), (10**9,), (1,) * 40, (True,)])
    kind = rng.choice(["<f8", "|O", "|S0", "<U0", "|V100", "<f8", "<i4", "(2,)f8", "nonsense", 5])
    header = repr({"descr": kind, "fortran_order": rng.random() < 0.3, "shape": shape})
    text = header.encode("latin1") + b"\n"
    length = rng.choice([len(text), len(text), 2**32 - 1])
    return b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little") + text + raw


def mutate_zip(
    rng: random.Random, raw: bytes, label: str = "about.npy", update_checksum: Any = None
) -> bytes:
    """An archive with one member replaced, added, removed, renamed, or with damaged bytes.

    `label` is the member that holds JSON; `update_checksum(members)` may restore a valid checksum.
    """
    if rng.random() < 0.25:
        return mutate_bytes(rng, raw)
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = rng.choice(sorted(members))
    choice = rng.randrange(9)
    if choice < 3 and label in members:
        about = json.loads(str(np.load(io.BytesIO(members[label]))))
        members[label] = npy_bytes(np.array(json.dumps(mutate_json(rng, about))))
    elif choice == 3:
        members[name] = npy_bytes(odd_arrays(rng))
    elif choice == 4:
        members[name] = lie(rng, np.zeros(4))
    elif choice == 5:
        members[name] = mutate_bytes(rng, members[name])
    elif choice == 6:
        del members[name]
    elif choice == 7:
        other = rng.choice(["readme.txt", "x.npy", "../x.npy", "values", name.removesuffix(".npy")])
        members[other] = rng.choice([b"plain text", members[name], pickle.dumps(Bomb()), b""])
    else:
        array = np.load(io.BytesIO(members[name]))
        members[name] = npy_bytes(_nudge(rng, array))
    if update_checksum is not None:
        members = update_checksum(members)
    made = io.BytesIO()
    kind = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(made, "w", kind) as file:
        for each, content in members.items():
            file.writestr(each, content)
    return made.getvalue()


def _nudge(rng: random.Random, array: Any) -> Any:
    """An array with one entry, its shape or its type changed."""
    choice = rng.randrange(4)
    if choice == 0 and array.size and array.dtype.kind in "iuf":
        changed = array.copy()
        place = tuple(rng.randrange(size) for size in array.shape)
        numbers = [-1, 127, 100] if array.dtype.kind in "iu" else [np.nan, np.inf, -1.0, 1e300]
        with np.errstate(all="ignore"):
            changed[place] = np.array(rng.choice(numbers)).astype(array.dtype)
        return changed
    if choice == 1:
        return array.ravel()[: rng.randrange(array.size + 1)]
    if choice == 2:
        return array[None] if rng.random() < 0.5 else array.T
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if array.dtype.kind in "SU":
            return array.astype(rng.choice(["S5", "U3"]))
        return array.astype(rng.choice(["f8", "f4", "i8", "u1", "?", "c16", "U5", "S5"]))


def check(read: Callable[[], Any], named: Sequence[str]) -> str:
    """Read a file that may be damaged; return "read", or the name of the error that it raised.

    Raises AssertionError where the error is none of the library's, names no file or has several
    lines; where a warning is raised, code was run, or too much memory was taken.
    """
    Bomb.fired = False
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            for note in NOTES:
                warnings.simplefilter("ignore", note)
            read()
        outcome = "read"
    except DOCUMENTED as error:
        message = str(error)
        assert any(name in message for name in named), f"it names no file: {message}"
        assert "\n" not in message, f"several lines: {message}"
        outcome = type(error).__name__
    except Exception:
        raise AssertionError(traceback.format_exc()) from None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not Bomb.fired, "code was run"
    assert peak < MAX_MEMORY, f"{peak:,} bytes were taken"
    return outcome


def run(
    seeds: Sequence[int] | range,
    mutate: Callable[[random.Random], Callable[[], Any]],
    named: Sequence[str],
) -> dict[str, int]:
    """Check one mutation per seed and count the outcomes."""
    counts: dict[str, int] = {}
    failures = []
    for seed in seeds:
        try:
            outcome = check(mutate(random.Random(seed)), named)
        except AssertionError as error:
            failures.append(f"seed {seed}: {error}")
            outcome = "failure"
        counts[outcome] = counts.get(outcome, 0) + 1
    assert not failures, f"{len(failures)} of {len(seeds)} fail\n" + "\n".join(failures[:3])
    return counts


def mutate_folder(
    rng: random.Random,
    folder: Path,
    copied: Path,
    mutate_file: Callable[[random.Random, Path, bytes], bytes],
) -> None:
    """Copy a folder and mutate, remove or replace one of its files."""
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(folder, copied)
    files = sorted(path for path in copied.rglob("*") if path.is_file())
    path = rng.choice(files)
    choice = rng.random()
    if choice < 0.05:
        path.unlink()
    elif choice < 0.08:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(mutate_file(rng, path, path.read_bytes()))


def notes() -> Iterator[type[Warning]]:
    from bisimetric.errors import ExpectedRewardWarning, MissingActionsWarning

    yield from (ExpectedRewardWarning, MissingActionsWarning)


NOTES = tuple(notes())
