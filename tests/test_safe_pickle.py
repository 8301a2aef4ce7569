"""Arrays from untrusted pickles: every protocol is read, and no code is executed."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import _safe_pickle
from bisimetric._safe_pickle import DtypeStub, load_arrays
from bisimetric.errors import InputError


def write_pickle(path: Path, content: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


class Exploit:
    """Call a function when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("harm",)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_not_executed(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_pickle(tmp_path / "p", {"a": np.ones(2), "b": [Exploit()]}, protocol)
    with pytest.raises(InputError, match=r"p names code, \w+\.mkdir, where only arrays"):
        load_arrays(path)
    assert not Path("harm").exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, jnp.asarray])
def test_arrays_come_through_every_protocol(kind: Any, protocol: int, tmp_path: Path) -> None:
    wanted = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    path = write_pickle(tmp_path / "p", {"a": {"b": kind(wanted)}, "c": 7, "d": ["x"]}, protocol)
    found: Any = load_arrays(path)
    assert list(found) == ["a"]
    np.testing.assert_array_equal(found["a"]["b"], wanted)
    assert found["a"]["b"].dtype == np.float32


def test_bytes_in_the_other_order_are_read(tmp_path: Path) -> None:
    found = load_arrays(write_pickle(tmp_path / "p", {"a": np.arange(4, dtype=">i4")}))
    np.testing.assert_array_equal(found["a"], np.arange(4))


def test_names_of_known_packages_are_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(b"coptax.harm\nrun\n(S'x'\ntR.")
    assert load_arrays(path) == {}
    assert "optax.harm" not in sys.modules
    path.write_bytes(b"cnumpy.testing\nrunstring\n(S'x'\ntR.")
    with pytest.raises(InputError, match=r"names code, numpy\.testing\.runstring"):
        load_arrays(path)


def test_a_pickle_cannot_change_the_stubs(tmp_path: Path) -> None:
    kinds = (
        "ArrayStub",
        "BufferArrayStub",
        "BytesStub",
        "DtypeStub",
        "FrozenDictStub",
        "IgnoredStub",
        "JaxArrayStub",
    )
    assert {each.__name__ for each in _safe_pickle.STUBS.values()} == {*kinds, "dict"}
    for full in [*_safe_pickle.STUBS, "optax.anything"]:
        module, _, name = full.rpartition(".")
        # BUILD with (None, {"code": 1}) sets attributes of what is on the stack: the class.
        code = f"c{module}\n{name}\n(N(dS'code'\nI1\nstb."
        path = tmp_path / "p"
        path.write_bytes(code.encode())
        with pytest.raises(InputError, match="truncated or no pickle"):
            load_arrays(path)
    assert not hasattr(DtypeStub, "code")
    assert not any(hasattr(getattr(_safe_pickle, kind), "code") for kind in kinds)


@pytest.mark.parametrize(("kind", "read"), [("f8", True), ("O8", False), ("V8", False)])
def test_raw_bytes_are_never_taken_for_objects(kind: str, read: bool, tmp_path: Path) -> None:
    # An array whose elements are addresses, as only a forged pickle has it.
    path = tmp_path / "p"
    path.write_bytes(
        b"(dS'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I1\nt"
        + f"cnumpy\ndtype\n(S'{kind}'\nI00\nI01\ntRI00\n".encode()
        + b"C\x08" + b"\x01" * 8 + b"tbs."
    )  # fmt: skip
    assert list(load_arrays(path)) == ["a"] * read
