"""Read arrays and plain containers from an untrusted pickle without executing any of its code.

A pickle is a program that names functions and calls them. Here each name is looked up in a short
list of stubs, the classes of this file; any other name raises InputError.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError, InsufficientMemory

ArrayTree = dict[str, "ArrayTree | NDArray[Any]"]

DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
"""Accepted NumPy dtypes."""

IGNORED_PACKAGES = ("flax", "jax", "jaxlib", "ml_dtypes", "optax")
"""Packages whose other objects are ignored, such as optimiser states."""


class IgnoredStub:
    """Replaces an ignored object, whatever its arguments."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(cls)

    # Every stub defines this: otherwise a pickle could set attributes of the class.
    def __setstate__(self, state: Any) -> None:
        pass


class BytesStub:
    """Replaces the bytes that old pickles encode as text."""

    def __new__(cls, text: str, *_: Any) -> Any:
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        pass


class FrozenDictStub(dict[Any, Any]):
    """Replaces Flax's FrozenDict by a dictionary."""

    def __setstate__(self, state: Any) -> None:
        self.update(state["_dict"])


class DtypeStub:
    """Replaces a numeric NumPy dtype; `code` is None for any other."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code if isinstance(code, str) and code in DTYPES else None

    def __setstate__(self, state: Any) -> None:
        if self.code is not None and state[1] in ("<", ">"):
            self.code = state[1] + self.code


class ArrayStub:
    """Replaces a NumPy array; `array` is None unless its elements are numbers."""

    array: NDArray[Any] | None

    def __init__(self, *_: Any) -> None:
        self.array = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.fill(raw, dtype, shape, "F" if is_fortran else "C")

    def fill(self, raw: Any, dtype: Any, shape: Any, order: Any) -> None:
        if isinstance(dtype, DtypeStub) and dtype.code and isinstance(raw, bytes | bytearray):
            flat = np.frombuffer(bytes(raw), dtype.code)
            array = flat.reshape(shape, order="F" if order == "F" else "C")
            self.array = array.astype(array.dtype.newbyteorder("="), copy=False)


class BufferArrayStub(ArrayStub):
    """Replaces a NumPy array that is pickled by its buffer."""

    def __init__(self, raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> None:
        super().__init__()
        self.fill(raw, dtype, shape, order)


class JaxArrayStub(ArrayStub):
    """Replaces a JAX array, which is pickled as the parts of a NumPy array."""

    def __init__(self, function: Any, arguments: Any, state: Any, *_: Any) -> None:
        super().__init__()
        self.__setstate__(state)


STUBS: dict[str, Any] = {
    "_codecs.encode": BytesStub,
    "collections.OrderedDict": dict,
    "flax.core.frozen_dict.FrozenDict": FrozenDictStub,
    "jax._src.array._reconstruct_array": JaxArrayStub,
    "jax._src.device_array.reconstruct_device_array": JaxArrayStub,
    "numpy.core.multiarray._reconstruct": ArrayStub,
    "numpy.core.multiarray.scalar": IgnoredStub,
    "numpy.core.numeric._frombuffer": BufferArrayStub,
    "numpy.dtype": DtypeStub,
    "numpy.ndarray": IgnoredStub,
}


class StubUnpickler(pickle.Unpickler):
    """Unpickler that resolves every name to a stub."""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if full in STUBS:
            return STUBS[full]
        if module.partition(".")[0] in IGNORED_PACKAGES:
            return IgnoredStub
        raise InputError(full)


def load_arrays(path: str | os.PathLike[str]) -> ArrayTree:
    """Return the nested dictionaries of arrays in a pickle; all other values are left out.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".pkl") as file:
    ...     pickle.dump({"steps": 7, "layer": {"bias": np.arange(3)}}, file)
    ...     file.flush()
    ...     load_arrays(file.name)
    {'layer': {'bias': array([0, 1, 2])}}
    """
    try:
        size = os.path.getsize(path)
        require_memory(f"{path}: it needs", size, "is it from a trusted source?")
        with open(path, "rb") as file:
            raw = file.read()
        validate_opcodes(raw)
        content = StubUnpickler(io.BytesIO(raw)).load()
        return _extract_arrays(content) if isinstance(content, Mapping) else {}
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
    except InputError as named:
        raise InputError(
            f"{path} names code, {named}, where only arrays and containers are read; none of it "
            "was executed: use a file from a trusted source that holds parameters only."
        ) from None
    except InsufficientMemory:
        raise
    except Exception:
        # A damaged pickle is a changed program and may raise anything.
        raise InputError(
            f"{path} is truncated or no pickle of arrays; copy it again from its source."
        ) from None


def validate_opcodes(raw: bytes) -> None:
    """Raise ValueError if the opcodes of a pickle would allocate more memory than its size.

    Lengths must lie within it, and memo indices within the number of opcodes.
    """
    for count, (code, number, _) in enumerate(pickletools.genops(raw)):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= (number or 0) <= count:
            raise ValueError(f"{code.name} {number}")


def _extract_arrays(mapping: Mapping[Any, Any]) -> ArrayTree:
    """Return the same nested dictionaries with their arrays only."""
    tree: ArrayTree = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            tree[str(name)] = _extract_arrays(value)
        elif isinstance(value, ArrayStub) and value.array is not None:
            tree[str(name)] = value.array
    return tree
