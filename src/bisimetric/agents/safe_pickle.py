"""Arrays and plain containers out of a foreign pickle; nothing that it names is imported or run.

A pickle is a programme that names functions and calls them. Here each name is looked up in a short
list, and stands for a class of this file. Any other name ends the reading.
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
"""The types of numbers that are read, by NumPy's short names."""

IGNORED_PACKAGES = ("flax", "jax", "jaxlib", "ml_dtypes", "optax")
"""Packages whose other objects are passed over: the state of an optimiser, above all."""


class IgnoredStub:
    """Stands for something that is passed over, whatever it is made of."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(cls)

    # Each stand-in has this method: without it, a pickle could set attributes of the class.
    def __setstate__(self, state: Any) -> None:
        pass


class BytesStub:
    """Stands for the bytes that old pickles keep as text."""

    def __new__(cls, text: str, *_: Any) -> Any:
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        pass


class FrozenDictStub(dict[Any, Any]):
    """Stands for Flax's FrozenDict: a dictionary."""

    def __setstate__(self, state: Any) -> None:
        self.update(state["_dict"])


class DtypeStub:
    """Stands for a NumPy dtype of plain numbers; `code` is None for any other."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code if isinstance(code, str) and code in DTYPES else None

    def __setstate__(self, state: Any) -> None:
        if self.code is not None and state[1] in ("<", ">"):
            self.code = state[1] + self.code


class ArrayStub:
    """Stands for a NumPy array; `array` is None where its elements are not plain numbers."""

    array: NDArray[Any] | None

    def __init__(self, *_: Any) -> None:
        self.array = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        self.fill(raw, kind, shape, "F" if by_columns else "C")

    def fill(self, raw: Any, dtype: Any, shape: Any, order: Any) -> None:
        if isinstance(dtype, DtypeStub) and dtype.code and isinstance(raw, bytes | bytearray):
            flat = np.frombuffer(bytes(raw), dtype.code)
            whole = flat.reshape(shape, order="F" if order == "F" else "C")
            self.array = whole.astype(whole.dtype.newbyteorder("="), copy=False)


class BufferArrayStub(ArrayStub):
    """Stands for a NumPy array that is pickled by its buffer."""

    def __init__(self, raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> None:
        super().__init__()
        self.fill(raw, dtype, shape, order)


class JaxArrayStub(ArrayStub):
    """Stands for a JAX array, which is pickled as the parts of a NumPy array."""

    def __init__(self, make: Any, of: Any, state: Any, *_: Any) -> None:
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
    """An unpickler whose names all lead to the classes above."""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if full in STUBS:
            return STUBS[full]
        if module.partition(".")[0] in IGNORED_PACKAGES:
            return IgnoredStub
        raise InputError(full)


def load_arrays(path: str | os.PathLike[str]) -> ArrayTree:
    """The dictionaries of arrays in a pickle; whatever else it holds is left out.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".pkl") as file:
    ...     pickle.dump({"steps": 7, "layer": {"bias": np.arange(3)}}, file)
    ...     file.flush()
    ...     arrays(file.name)
    {'layer': {'bias': array([0, 1, 2])}}
    """
    try:
        needed = os.path.getsize(path)
        require_memory(f"{path}: it needs", needed, "is it from a trusted source?")
        with open(path, "rb") as file:
            raw = file.read()
        validate_opcodes(raw)
        found = StubUnpickler(io.BytesIO(raw)).load()
        return _extract_arrays(found) if isinstance(found, Mapping) else {}
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror or error}.") from None
    except InputError as named:
        raise InputError(
            f"{path} names code, {named}, where only arrays and containers are read; nothing of it "
            "was run: take a file from a source you trust, that holds parameters alone."
        ) from None
    except InsufficientMemory:
        raise
    except Exception:
        # A damaged pickle fails in any way: it is a programme that was cut or changed.
        raise InputError(
            f"{path} is cut short or no pickle of arrays; copy it once more from where it was made."
        ) from None


def validate_opcodes(raw: bytes) -> None:
    """A ValueError where the opcodes of a pickle would take more memory than it has bytes for.

    Lengths must lie within it, and numbers of remembered objects within what there are.
    """
    for count, (code, number, _) in enumerate(pickletools.genops(raw)):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= (number or 0) <= count:
            raise ValueError(f"{code.name} {number}")


def _extract_arrays(mapping: Mapping[Any, Any]) -> ArrayTree:
    """The same dictionaries with their arrays, less what is neither."""
    tree: ArrayTree = {}
    for name, each in mapping.items():
        if isinstance(each, Mapping):
            tree[str(name)] = _extract_arrays(each)
        elif isinstance(each, ArrayStub) and each.array is not None:
            tree[str(name)] = each.array
    return tree
